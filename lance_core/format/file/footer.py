"""The last bytes of a data file since version 2.0: footer and the two offset tables before it.

Files of version 0.1 end in version and magic too, but have another footer (`lance_core.format.file.legacy_file`).

All integers are little-endian.

| offset | size | field                                                              |
|--------|------|--------------------------------------------------------------------|
| 0      | 8    | position of the first column metadata                              |
| 8      | 8    | position of the column metadata table: per column u64 position, u64 length |
| 16     | 8    | position of the global buffer table: per buffer u64 position, u64 length   |
| 24     | 4    | number of global buffers (buffer 0 is the FileDescriptor)          |
| 28     | 4    | number of columns                                                  |
| 32     | 2    | major version                                                      |
| 34     | 2    | minor version                                                      |
| 36     | 4    | "LANC"                                                             |

The tables follow one another and end where the footer begins.
"""

from __future__ import annotations

import struct
from itertools import chain

from lance_core.common.frozen import frozen
from lance_core.errors import CorruptDataError

MAGIC = b"LANC"
_FOOTER = struct.Struct("<QQQIIHH4s")
_VERSION = struct.Struct("<HH4s")
_ENTRY = struct.Struct("<QQ")
FOOTER_SIZE = _FOOTER.size
ENTRY_SIZE = 16
"""Bytes of an entry of a table."""


@frozen(kw_only=True)
class Footer:
    """Absolute positions of the parts of a data file."""

    column_metadata_start: int
    column_table_start: int
    global_table_start: int
    num_global_buffers: int
    num_columns: int
    major: int
    minor: int


def encode_footer(footer: Footer) -> bytes:
    """Return the 40 bytes of a footer."""
    return _FOOTER.pack(
        footer.column_metadata_start,
        footer.column_table_start,
        footer.global_table_start,
        footer.num_global_buffers,
        footer.num_columns,
        footer.major,
        footer.minor,
        MAGIC,
    )


def decode_version(tail: bytes | memoryview, file_size: int) -> tuple[int, int]:
    """Major and minor version of a data file of any version; they stand right before the magic.

    Args:
        tail: End of the file.
        file_size: Bytes in the whole file.

    Raises:
        CorruptDataError: Not a data file.
    """
    if len(tail) < _VERSION.size:
        raise CorruptDataError(f"a file of {file_size} bytes is too short for a Lance data file")
    major, minor, magic = _VERSION.unpack(tail[-_VERSION.size :])
    if magic != MAGIC:
        raise CorruptDataError("the file does not end in the magic of Lance data files", offset=file_size - 4)
    return major, minor


def decode_footer(tail: bytes | memoryview, file_size: int) -> Footer:
    """Read the footer.

    Args:
        tail: End of the file, at least 40 bytes.
        file_size: Bytes in the whole file.

    Raises:
        CorruptDataError: Not a data file, or positions that cannot be.
    """
    major, minor = decode_version(tail, file_size)
    if len(tail) < FOOTER_SIZE:
        raise CorruptDataError(f"a file of {file_size} bytes is too short for a Lance data file")
    columns_at, column_table, global_table, num_globals, num_columns, *_ = _FOOTER.unpack(tail[-FOOTER_SIZE:])
    footer = Footer(
        column_metadata_start=columns_at,
        column_table_start=column_table,
        global_table_start=global_table,
        num_global_buffers=num_globals,
        num_columns=num_columns,
        major=major,
        minor=minor,
    )
    _check_positions(footer, file_size - FOOTER_SIZE)
    return footer


def _check_positions(footer: Footer, end: int) -> None:
    in_order = footer.column_metadata_start <= footer.column_table_start <= footer.global_table_start <= end
    columns_fit = footer.column_table_start + footer.num_columns * ENTRY_SIZE <= footer.global_table_start
    globals_fit = footer.global_table_start + footer.num_global_buffers * ENTRY_SIZE <= end
    if not (in_order and columns_fit and globals_fit):
        raise CorruptDataError("the footer's positions do not fit the file", offset=end)


def encode_table(entries: list[tuple[int, int]]) -> bytes:
    """Return a table of (position, length)."""
    return struct.pack(f"<{2 * len(entries)}Q", *chain.from_iterable(entries))


def decode_table(data: bytes | memoryview, *, limit: int, what: str) -> list[tuple[int, int]]:
    """Read a table of (position, length).

    Args:
        data: The table, 16 bytes per entry.
        limit: Position that no entry may reach beyond.
        what: Name of the table for the error message.

    Raises:
        CorruptDataError: An entry lies outside the file.
    """
    entries: list[tuple[int, int]] = list(_ENTRY.iter_unpack(data))
    for position, length in entries:
        if position + length > limit:
            raise CorruptDataError(f"an entry of the {what} table lies outside the file", offset=position)
    return entries
