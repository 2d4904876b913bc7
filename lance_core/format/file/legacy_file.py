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

Files that lance_core writes have checksums (`lance_core.format.file.checksums`) in front of the schema, and between
metadata and footer 40 bytes that other readers skip: where the checksums are, as in the last entry of the table of
global buffers of newer files, and zeros, so that the entry is as far from the end of the file as there.
"""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from lance_core._proto import file_pb2, table_pb2
from lance_core.common.frozen import frozen
from lance_core.errors import CorruptDataError
from lance_core.format.schema import JSON, Field, Schema, decode_fields, encode_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_FOOTER = struct.Struct("<qHH4s")
LEGACY_FOOTER_SIZE = _FOOTER.size
SIZE_BYTES = 4
_ENTRY_BYTES = 16


_STATISTICS = ("null_count", "min_value", "max_value")


@frozen(kw_only=True)
class LegacyStatistics:
    """Location of the statistics of a file (message ``Metadata.StatisticsMetadata``).

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
    """Location of the parts of a file (message ``Metadata``).

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
    """Return the u32 in front of a message."""
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
    by_field: dict[int, tuple[Field, Field, Field]] = {}
    for field in decode_fields(message.schema, {}).fields:
        parts = {child.name: child for child in field.children}
        if field.name.isascii() and field.name.isdigit() and all(name in parts for name in _STATISTICS):
            null_count, minimum, maximum = (parts[name] for name in _STATISTICS)
            by_field[int(field.name)] = (null_count, minimum, maximum)
    return LegacyStatistics(page_table_position=message.page_table_position, fields=by_field)


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


# --------------------------------------------------------------------------------------------------------- writing

_MAJOR, _MINOR = 0, 2
_PLAIN, _VAR_BINARY, _DICTIONARY = 1, 2, 3
_VARIABLE = frozenset({"string", "binary", "large_string", "large_binary", "json"})


def with_encodings(schema: Schema) -> Schema:
    """Return the schema with the encoding of each field, without which pylance 14.0.2 does not write more files."""
    return Schema(tuple([_with_encoding(field) for field in schema.fields]), schema.metadata)


def _with_encoding(field: Field) -> Field:
    text = field.logical_type
    if text in ("struct", "null"):
        encoding = 0
    elif text in _VARIABLE:
        encoding = _VAR_BINARY
    else:
        encoding = _DICTIONARY if text.startswith("dict:") else _PLAIN
    children = tuple([_with_encoding(child) for child in field.children])
    return replace(field, encoding=encoding, children=children)


def encode_legacy_schema(schema: Schema) -> bytes:
    """Encode the schema of a file, which is a manifest with little else, with its size in front."""
    message = table_pb2.Manifest(
        fields=encode_fields(schema),
        schema_metadata=dict(schema.metadata),
        version=1,
        data_format=table_pb2.DataStorageFormat(file_format="lance", version="0.1"),
    )
    return _sized(message.SerializeToString(deterministic=True))


def encode_legacy_metadata(
    *,
    schema_position: int,
    page_table_position: int,
    batch_offsets: Sequence[int],
    statistics: tuple[Schema, int] | None,
) -> bytes:
    """Encode the metadata of a file with its size in front.

    Args:
        schema_position: As in `LegacyMetadata`.
        page_table_position: As in `LegacyMetadata`.
        batch_offsets: As in `LegacyMetadata`.
        statistics: Schema of the statistics, and the position of their page table; None if there are none.
    """
    message = file_pb2.Metadata(
        manifest_position=schema_position, batch_offsets=batch_offsets, page_table_position=page_table_position
    )
    if statistics is not None:
        schema, position = statistics
        message.statistics.schema.extend(encode_fields(schema))
        message.statistics.fields.extend(field.id for field in schema.walk())
        message.statistics.page_table_position = position
    return _sized(message.SerializeToString(deterministic=True))


def statistics_schema(fields: Iterable[Field]) -> Schema:
    """Return the schema of the statistics of some data fields."""
    parts: list[Field] = []
    for field in fields:
        first = 4 * len(parts)
        kind = "large_binary" if field.logical_type == JSON else field.logical_type
        children = (
            Field(id=first + 1, name=_STATISTICS[0], logical_type="int64", nullable=False),
            Field(id=first + 2, name=_STATISTICS[1], logical_type=kind),
            Field(id=first + 3, name=_STATISTICS[2], logical_type=kind),
        )
        parts.append(Field(id=first, name=str(field.id), logical_type="struct", nullable=False, children=children))
    return with_encodings(Schema(tuple(parts)))


def encode_page_table(pages: Mapping[int, Sequence[tuple[int, int]]], *, first_id: int, num_batches: int) -> bytes:
    """Encode a page table.

    Args:
        pages: By field id: position and length of its page in each batch.
        first_id: Field id of the first row of the table.
        num_batches: Number of batches.
    """
    table = np.zeros((max(pages, default=first_id - 1) - first_id + 1, num_batches, 2), "<i8")
    for field_id, entries in pages.items():
        table[field_id - first_id] = entries
    return table.tobytes()


def encode_legacy_footer(metadata_position: int) -> bytes:
    """Encode the footer."""
    return _FOOTER.pack(metadata_position, _MAJOR, _MINOR, b"LANC")


def _sized(message: bytes) -> bytes:
    return len(message).to_bytes(SIZE_BYTES, "little") + message
