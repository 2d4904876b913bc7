"""Compression profiles: the codecs that columns use by default, which trade bytes for time to read and write.

A table keeps its profile in the metadata of its schema, so that all of its writers follow it. What a field's metadata
asks for goes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from lance_core.common.frozen import frozen
from lance_core.errors import InvalidInputError
from lance_core.format.file.encodings import Compression

if TYPE_CHECKING:
    from collections.abc import Mapping

CompressionProfile: TypeAlias = Literal["fast", "balanced", "small"]

PROFILE_KEY = "lance-encoding:compression-profile"
"""Key of the profile in the metadata of the schema."""
DEFAULT_PROFILE: CompressionProfile = "balanced"


@frozen(kw_only=True)
class Codecs:
    """Codecs that a profile uses, each with the part of the bytes that it may leave at most.

    Attributes:
        fixed: For values of at most 32 bits, beside what their best encoding leaves; tried in this order.
        long: For values of 64 bits.
        split_long: Part of the bytes under zstd that 64-bit values may take with their bytes split under LZ4.
        strings: For strings, beside plain ones and beside the codec before it.
        least_string_bytes: Bytes of the strings of a page from which codecs are tried.
        plain_offsets: Part of the bytes under zstd that strings may take with their offsets as they are.
        string_chunk_bytes: Bytes of strings that a chunk aims at before compression by each codec.
        separate_strings: For strings that are compressed one by one; None to store them as they are.
    """

    fixed: Mapping[Compression, float]
    long: Mapping[Compression, float]
    split_long: float
    strings: Mapping[Compression, float]
    least_string_bytes: int
    plain_offsets: float
    string_chunk_bytes: Mapping[Compression, int]
    separate_strings: float | None


_LZ4, _ZSTD = Compression.LZ4, Compression.ZSTD
_CHUNK_BYTES = {_LZ4: 9 << 10, _ZSTD: 1 << 14}
_LEAST_STRING_BYTES = 1 << 15
"""Fewer bytes, such as those of a commit of a thousand rows, are not worth the samples of all codecs: these take a
quarter of such a commit. pylance 14.0.2 compresses no fewer either."""

PROFILES: Mapping[CompressionProfile, Codecs] = {
    "fast": Codecs(
        fixed={},
        long={},
        split_long=0.0,
        strings={},
        least_string_bytes=_LEAST_STRING_BYTES,
        plain_offsets=1.0,
        string_chunk_bytes=_CHUNK_BYTES,
        separate_strings=None,
    ),
    # zstd is slow to read, but can do most for 64-bit values. The upper bytes of keys and times that rise are alike
    # for long: LZ4 leaves about as much of their planes of bytes, or less, and a million are read in 6 ms, not in 20.
    # Strings are read five times as fast under LZ4, so zstd must leave half as many bytes. LZ4 in twice as large chunks
    # leaves 6 % less, but 10,000 scattered rows cost 1.8 times as much, and a hundred that are on disk 1.4 times. Under
    # zstd chunks hold twice as much, and take as many bytes on disk: half as many tables to read cost a quarter less.
    # 9 KiB instead of 8 fill the chunks of log lines: 15 % fewer bytes, and a seventh off their writes.
    # zstd finds next to nothing in offsets, and takes long for it: see "Offsets under zstd" in benchmarks/text.md.
    "balanced": Codecs(
        fixed={_LZ4: 0.6},
        long={_LZ4: 0.6, _ZSTD: 0.5},
        split_long=1.1,
        strings={_LZ4: 0.75, _ZSTD: 0.5},
        least_string_bytes=_LEAST_STRING_BYTES,
        plain_offsets=1.1,
        string_chunk_bytes=_CHUNK_BYTES,
        separate_strings=0.75,
    ),
    # zstd in half as large chunks leaves 6 % more and takes a fifth longer to write and a tenth longer to scan, but a
    # hundred scattered rows cost half.
    "small": Codecs(
        fixed={_LZ4: 0.9, _ZSTD: 0.9},
        long={_LZ4: 0.9, _ZSTD: 0.9},
        split_long=1.0,
        strings={_LZ4: 0.9, _ZSTD: 0.95},
        least_string_bytes=1 << 12,
        plain_offsets=1.0,
        string_chunk_bytes={_LZ4: 1 << 15, _ZSTD: 1 << 15},
        separate_strings=0.9,
    ),
}


def checked_profile(name: str) -> CompressionProfile:
    """Return the profile of a name.

    Raises:
        InvalidInputError: There is none.
    """
    for profile in PROFILES:
        if profile == name:
            return profile
    raise InvalidInputError(f"compression_profile is {name!r}; allowed: {', '.join(PROFILES)}")


def with_profile(metadata: Mapping[str, bytes], profile: str | None) -> Mapping[str, bytes]:
    """Return the metadata of a schema with a profile; unchanged if it is None.

    Raises:
        InvalidInputError: A profile that does not exist.
    """
    return metadata if profile is None else {**metadata, PROFILE_KEY: checked_profile(profile).encode()}


def check_profile(metadata: Mapping[str, bytes], profile: str | None) -> None:
    """Refuse a profile for rows that are added to a table with another one.

    Raises:
        InvalidInputError: The profile is another one, or does not exist.
    """
    if profile is not None and checked_profile(profile) != profile_of(metadata):
        raise InvalidInputError(
            f"compression_profile is {profile!r}, but that of the table is {profile_of(metadata)!r}. Leave it out, or "
            f"change the table's by update_schema_metadata({{{PROFILE_KEY!r}: {profile!r}}}); nothing was written"
        )


def profile_of(metadata: Mapping[str, bytes]) -> CompressionProfile:
    """Return the profile that the metadata of a schema asks for.

    Raises:
        InvalidInputError: One that does not exist.
    """
    name = metadata.get(PROFILE_KEY)
    return DEFAULT_PROFILE if name is None else checked_profile(name.decode("utf-8", "replace"))
