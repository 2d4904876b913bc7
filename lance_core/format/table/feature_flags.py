"""Feature flags: what a reader or writer must know before it may touch a version.

Source: fields ``reader_feature_flags`` and ``writer_feature_flags`` of the manifest; the bits are those that pylance
14.0.2 checks.
"""

from __future__ import annotations

from enum import IntFlag

from lance_core.errors import CorruptDataError, UnsupportedError


class Feature(IntFlag):
    """Known bits."""

    DELETION_FILES = 1
    STABLE_ROW_IDS = 2
    V2_FILES = 4
    CONFIG = 8
    BASE_PATHS = 16
    NO_TRANSACTION_FILES = 32
    DATA_OVERLAYS = 64
    COVERING_FIELDS = 128
    MIXED_FILE_VERSIONS = 256
    STABLE_ROW_IDS_WITH_FRAGMENT_REUSE = 512
    TAGGED_FRAGMENT_REUSE = 1024
    SPILLED_ROW_LINEAGE = 2048
    CLUSTERING = 4096
    MANAGED_BLOBS = 16384
    NON_REUSABLE_FIELD_IDS = 32768
    ZONE_WRITE_SEEDS = 65536


_BOTH = (
    Feature.DELETION_FILES
    | Feature.STABLE_ROW_IDS
    | Feature.V2_FILES
    | Feature.CONFIG
    | Feature.BASE_PATHS
    | Feature.NO_TRANSACTION_FILES
    | Feature.COVERING_FIELDS
    | Feature.MIXED_FILE_VERSIONS
    | Feature.MANAGED_BLOBS  # as long as no column holds blobs, see `lance_core.format.table.manifest`
    | Feature.SPILLED_ROW_LINEAGE
    | Feature.NON_REUSABLE_FIELD_IDS
)
# Plain numbers: the complement of an IntFlag leaves out the bits that have no name.
READABLE = int(_BOTH | Feature.TAGGED_FRAGMENT_REUSE)
WRITABLE = int(_BOTH)
_UNREADABLE, _UNWRITABLE = ~READABLE, ~WRITABLE

_PAIRED = int(
    Feature.MIXED_FILE_VERSIONS | Feature.TAGGED_FRAGMENT_REUSE | Feature.MANAGED_BLOBS | Feature.ZONE_WRITE_SEEDS
)
"""Set for readers and writers alike."""


def check_readable(reader_flags: int, writer_flags: int, *, path: str | None = None) -> None:
    """Refuse a version that cannot be read correctly.

    Raises:
        UnsupportedError: Names the bits that are not known.
        CorruptDataError: The two sets of flags contradict each other.
    """
    if reader_flags & _UNREADABLE:
        raise _refusal(reader_flags & _UNREADABLE, "read", path)
    if (reader_flags ^ writer_flags) & _PAIRED:
        raise CorruptDataError("feature flags for readers and writers contradict each other", path=path)


def check_writable(writer_flags: int, *, path: str | None = None) -> None:
    """Refuse to add a version to a table that cannot be written correctly.

    Raises:
        UnsupportedError: Names the bits that are not known.
    """
    if writer_flags & _UNWRITABLE:
        raise _refusal(writer_flags & _UNWRITABLE, "write", path)


def _refusal(unknown: int, verb: str, path: str | None) -> UnsupportedError:
    names = ", ".join(_name(1 << bit) for bit in range(unknown.bit_length()) if unknown >> bit & 1)
    return UnsupportedError(
        f"the table has feature flags that lance_core cannot {verb}: {names}; use a newer version of it, or the "
        "tool that made the table",
        path=path,
    )


def _name(bit: int) -> str:
    return f"{bit} ({Feature(bit).name})" if bit in Feature.__members__.values() else str(bit)
