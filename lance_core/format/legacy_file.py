"""Footer, metadata, schema and page table of data files of version 0.1.

    pages, page table, statistics, dictionaries
    [u32 size][Manifest]    schema of the file: ``fields`` only      <- Metadata.manifest_position
    [u32 size][Metadata]                                             <- position in the footer
    i64 position, u16 major = 0, u16 minor = 0 to 2, "LANC"

Page table: for each field id from the file's first one on, and for each batch, i64 position and i64 length (rows; for
lists, rows + 1); zeros for structs and for ids that are not there. Little-endian. Source: messages ``Metadata`` of
package ``lance.file`` and ``Manifest`` of package ``lance.table``.

Statistics, where there are any, are one more table of pages with a schema of its own: for each data field a struct
named like the field's id, with the fields ``null_count``, ``min_value`` and ``max_value``; each page has one value for
each batch.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from lance_core._proto import file_pb2, table_pb2
from lance_core.errors import CorruptDataError
from lance_core.format.schema import Schema, decode_fields
from lance_core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_core.format.schema import Field

_FOOTER = struct.Struct("<qHH4s")
SIZE_BYTES = 4
_ENTRY_BYTES = 16


_STATISTICS = ("null_count", "min_value", "max_value")


@frozen(kw_only=True)
class LegacyStatistics:
    """Where the statistics of a file lie (message ``Metadata.StatisticsMetadata``).

    Attributes:
        page_table_position: Position of their page table.
        fields: By id of a data field: the fields of its number of nulls, its minimum and its maximum.
    """

    page_table_position: int
    fields: Mapping[int, tuple[Field, Field, Field]]

    def entry_range(self, field: Field) -> tuple[int, int]:
        """Absolute position of a field's entry in the page table."""
        start = self.page_table_position + field.id * _ENTRY_BYTES
        return start, start + _ENTRY_BYTES


@frozen(kw_only=True)
class LegacyMetadata:
    """Where the parts of a file lie (message ``Metadata``).

    Attributes:
        schema_position: Position of the schema.
        page_table_position: Position of the page table.
        batch_offsets: Shape (batches + 1,): first row of each batch, and the number of rows.
        statistics: None if there are none.
    """

    schema_position: int
    page_table_position: int
    batch_offsets: npt.NDArray[np.int64]
    statistics: LegacyStatistics | None = None

    def table_range(self, row: int) -> tuple[int, int]:
        """Absolute position of a row of the page table."""
        size = _ENTRY_BYTES * (len(self.batch_offsets) - 1)
        start = self.page_table_position + row * size
        return start, start + size


def decode_legacy_footer(tail: bytes | memoryview, file_size: int) -> int:
    """Position of the metadata.

    Raises:
        CorruptDataError: It lies outside the file.
    """
    if len(tail) < _FOOTER.size:
        raise CorruptDataError(f"a file of {file_size} bytes is too short for a Lance data file")
    position, *_ = _FOOTER.unpack(tail[-_FOOTER.size :])
    if not 0 <= position <= file_size - _FOOTER.size - SIZE_BYTES:
        raise CorruptDataError("the position of the metadata lies outside the file", offset=file_size - _FOOTER.size)
    return position


def decode_size(data: bytes) -> int:
    """The u32 in front of a message."""
    return int.from_bytes(data[:SIZE_BYTES], "little")


def decode_legacy_metadata(data: bytes) -> LegacyMetadata:
    """Read the metadata.

    Raises:
        CorruptDataError: Not the metadata of a file, or batches that do not ascend.
    """
    try:
        message = file_pb2.Metadata.FromString(data)
    except DecodeError as error:
        raise CorruptDataError(f"the metadata of the file cannot be parsed: {error}") from error
    offsets = np.array(message.batch_offsets or [0], np.int64)
    if offsets[0] != 0 or (np.diff(offsets) < 0).any():
        raise CorruptDataError("the batches of the file do not ascend")
    return LegacyMetadata(
        schema_position=message.manifest_position,
        page_table_position=message.page_table_position,
        batch_offsets=offsets,
        statistics=_decode_statistics(message.statistics) if message.HasField("statistics") else None,
    )


def _decode_statistics(message: file_pb2.Metadata.StatisticsMetadata) -> LegacyStatistics:
    """Fields that are not described in full are left out: readers do without their statistics."""
    found: dict[int, tuple[Field, Field, Field]] = {}
    for one in decode_fields(message.schema, {}).fields:
        parts = {child.name: child for child in one.children}
        if one.name.isascii() and one.name.isdigit() and all(name in parts for name in _STATISTICS):
            null_count, minimum, maximum = (parts[name] for name in _STATISTICS)
            found[int(one.name)] = (null_count, minimum, maximum)
    return LegacyStatistics(page_table_position=message.page_table_position, fields=found)


def decode_legacy_schema(data: bytes) -> Schema:
    """Read the schema.

    Raises:
        CorruptDataError: Not a manifest.
    """
    try:
        message = table_pb2.Manifest.FromString(data)
    except DecodeError as error:
        raise CorruptDataError(f"the schema of the file cannot be parsed: {error}") from error
    return decode_fields(message.fields, dict(message.schema_metadata))


def decode_page_table(data: bytes, *, limit: int) -> npt.NDArray[np.int64]:
    """Pages of one field.

    Args:
        data: One row of the page table.
        limit: Position that no page may begin behind.

    Returns:
        Shape (batches, 2): position and length.

    Raises:
        CorruptDataError: A page lies outside the file.
    """
    pages: npt.NDArray[np.int64] = np.frombuffer(data, "<i8").reshape(-1, 2)
    if len(pages) and (int(pages.min()) < 0 or int(pages[:, 0].max()) > limit):
        raise CorruptDataError("an entry of the page table lies outside the file")
    return pages
