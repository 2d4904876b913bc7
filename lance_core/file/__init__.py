"""Data files. The public names are those of ``lance.file`` of pylance; a table puts many such files together."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lance_core.file.api import (
        LanceBufferDescriptor,
        LanceColumnMetadata,
        LanceColumnStatistics,
        LanceFileMetadata,
        LanceFileReader,
        LanceFileStatistics,
        LanceFileWriter,
        LancePageMetadata,
        ReaderResults,
        stable_version,
    )

__all__ = [
    "LanceBufferDescriptor",
    "LanceColumnMetadata",
    "LanceColumnStatistics",
    "LanceFileMetadata",
    "LanceFileReader",
    "LanceFileStatistics",
    "LanceFileWriter",
    "LancePageMetadata",
    "ReaderResults",
    "stable_version",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lance_core.file import api  # noqa: PLC0415 tables do not need it

    value = globals()[name] = getattr(api, name)
    return value
