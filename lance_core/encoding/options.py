"""Options for writing the pages of one column: the version of the file, and what the field's metadata asks for.

Keys and their meaning are pylance's: ``lance-encoding:compression`` and the others of `_KEYS`. They are read from the
leaf that has the column, but for ``structural-encoding``, which is read from the top-level field.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from lance_core.common.frozen import frozen
from lance_core.encoding import registry
from lance_core.encoding.profiles import DEFAULT_PROFILE, PROFILES
from lance_core.errors import InvalidInputError
from lance_core.format.file.encodings import Compression

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_core.encoding.leaves import LeafPath
    from lance_core.encoding.profiles import Codecs, CompressionProfile
    from lance_core.format.schema import Field

PREFIX = "lance-encoding:"


CODECS: dict[str, Compression] = {"lz4": Compression.LZ4, "zstd": Compression.ZSTD}
_MIN_LEVEL, _MAX_LEVEL = -131072, 22
_MAX_MINI_CHUNK = 1 << 24
_MAX_CHUNK_BYTES = {"2.1": 1 << 14, "2.2": 1 << 24}


@frozen(kw_only=True)
class PageOptions:
    """Options for writing pages; None leaves the choice to the data.

    Attributes:
        version: str of the file.
        profile: What decides where nothing else does.
        compression: "lz4" or "zstd" for what the data's own encoding leaves, the name of a codec of the registry, or
            "none", which stores values as they are.
        compression_level: Level for zstd.
        rle_threshold: Runs may be at most this part of the values for run-length encoding.
        bss: Split values into planes of bytes before a codec that was asked for.
        dict_divisor: A dictionary may have at most one item for so many values.
        dict_size_ratio: Part of the bytes that a dictionary may leave at most.
        dict_values_compression: Codec for the items of dictionaries.
        dict_values_compression_level: Its level.
        structural_encoding: Layout of pages.
        minichunk_size: Bytes that a chunk of strings aims at.
    """

    version: str = "2.2"
    profile: CompressionProfile = DEFAULT_PROFILE
    compression: str | None = None
    compression_level: int | None = None
    rle_threshold: float | None = None
    bss: Literal["on", "off", "auto"] = "auto"
    dict_divisor: int = 2
    dict_size_ratio: float = 0.8
    dict_values_compression: Literal["lz4", "zstd", "none"] | None = None
    dict_values_compression_level: int | None = None
    structural_encoding: Literal["miniblock", "fullzip"] | None = None
    minichunk_size: int | None = None

    @property
    def has_large_chunks(self) -> bool:
        """True if chunks may be larger than 32 KiB, and constants other than null."""
        return self.version != "2.1"

    @property
    def codecs(self) -> Codecs:
        """The codecs of the profile."""
        return PROFILES[self.profile]

    @property
    def asks_nothing(self) -> bool:
        """True if the field's metadata asks for nothing."""
        return self == free_options(self.version, self.profile)

    @property
    def codec(self) -> Compression | None:
        """The codec that was asked for, if one was."""
        return None if self.compression is None else CODECS.get(self.compression)

    @property
    def chunk_bytes(self) -> int | None:
        """The bytes that a chunk was asked to aim at, as far as the version allows."""
        return None if self.minichunk_size is None else self.fitting(self.minichunk_size)

    def fitting(self, chunk_bytes: int) -> int:
        """Return the bytes that a chunk may aim at, as far as the version allows."""
        return min(chunk_bytes, _MAX_CHUNK_BYTES[self.version])


def page_options(path: LeafPath, version: str, profile: CompressionProfile = DEFAULT_PROFILE) -> PageOptions:
    """Return the options of one column.

    Args:
        path: The leaf that has the column.
        version: str of the file.
        profile: What decides where the metadata asks for nothing.

    Raises:
        InvalidInputError: A value that means nothing; the message names field, key, value and what is allowed.
    """
    if not path.leaf.metadata and not path.fields[0].metadata:
        return free_options(version, profile)
    given: dict[str, Any] = {}
    for key, parse in _KEYS.items():
        field = path.fields[0] if key == "structural-encoding" else path.leaf
        value = field.metadata.get(PREFIX + key)
        if value is not None:
            given[key.replace("-", "_")] = parse(field, key, value.decode("utf-8", "replace"))
    kind = path.leaf.logical_type
    if given.get("structural_encoding") == "fullzip" and "fixed_size_list:bool:" in kind:
        # pylance 14.0.2 cannot read them with null items, or of odd length
        raise _refuse(path.fields[0], "structural-encoding", "fullzip", f"miniblock for {kind}")
    return PageOptions(version=version, profile=profile, **given)


@cache
def free_options(version: str, profile: CompressionProfile = DEFAULT_PROFILE) -> PageOptions:
    """Return the options of columns for which nothing is asked."""
    return PageOptions(version=version, profile=profile)


def _refuse(field: Field, key: str, value: str, allowed: str) -> InvalidInputError:
    return InvalidInputError(f"field {field.name!r}: metadata {PREFIX + key!r} is {value!r}; allowed: {allowed}")


def _one_of(*allowed: str) -> Callable[[Field, str, str], str]:
    def parse(field: Field, key: str, value: str) -> str:
        if value not in allowed:
            raise _refuse(field, key, value, ", ".join(allowed))
        return value

    return parse


def _compression(field: Field, key: str, value: str) -> str:
    names = [codec.name for codec in registry.CODECS.values() if codec.name is not None]
    return _one_of("zstd", "lz4", *names, "none")(field, key, value)


def _whole(low: int, high: int) -> Callable[[Field, str, str], int]:
    def parse(field: Field, key: str, value: str) -> int:
        try:
            number = int(value)
        except ValueError:
            number = low - 1
        if not low <= number <= high:
            raise _refuse(field, key, value, f"whole numbers from {low} to {high}")
        return number

    return parse


def _part(*, may_be_zero: bool) -> Callable[[Field, str, str], float]:
    def parse(field: Field, key: str, value: str) -> float:
        try:
            number = float(value)
        except ValueError:
            number = -1.0
        if not 0.0 <= number <= 1.0 or (number == 0 and not may_be_zero):  # also refuses what is not a number
            raise _refuse(field, key, value, f"numbers from 0 to 1{'' if may_be_zero else ', but not 0'}")
        return number

    return parse


_KEYS: dict[str, Callable[[Field, str, str], Any]] = {
    "compression": _compression,
    "compression-level": _whole(_MIN_LEVEL, _MAX_LEVEL),
    "rle-threshold": _part(may_be_zero=True),
    "bss": _one_of("off", "on", "auto"),
    "dict-divisor": _whole(1, 1 << 31),
    "dict-size-ratio": _part(may_be_zero=False),
    "dict-values-compression": _one_of("lz4", "zstd", "none"),
    "dict-values-compression-level": _whole(_MIN_LEVEL, _MAX_LEVEL),
    "structural-encoding": _one_of("miniblock", "fullzip"),
    "minichunk-size": _whole(1, _MAX_MINI_CHUNK),
}
