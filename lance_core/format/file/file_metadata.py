"""Metadata of a data file: the FileDescriptor (global buffer 0) and one ColumnMetadata per column.

Source: messages ``FileDescriptor`` of package ``lance.file`` and ``ColumnMetadata`` of package ``lance.file.v2``. The
encoding of a page is a serialized ``Any`` in ``encoding.direct``; deferred encodings are not supported (nobody writes
them).
"""

from __future__ import annotations

from functools import lru_cache

from google.protobuf.message import DecodeError

from lance_core._proto import file2_pb2, file_pb2
from lance_core.common.frozen import frozen
from lance_core.common.limits import check_limit
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.schema import Schema, decode_fields
from lance_core.format.wire import field_of

PAGE_ALIGNMENT = 64
"""Page buffers and global buffers start at multiples of this; pylance refuses others."""

PAD_BYTE = b"H"

# Any{type_url="/lance.encodings.ColumnEncoding", value=ColumnEncoding{values: Empty}}: the same for all columns.
_COLUMN_ENCODING = b"\x0a\x1f/lance.encodings.ColumnEncoding\x12\x02\x0a\x00"
# Likewise with ColumnEncoding{blob: Blob{inner: ColumnEncoding{values: Empty}}}.
_BLOB_ENCODING = b"\x0a\x1f/lance.encodings.ColumnEncoding\x12\x06\x1a\x04\x0a\x02\x0a\x00"
_MANY_LAYOUTS = 256
_LARGE_DESCRIPTOR = 1 << 14
"""Descriptors of so many bytes are not kept."""
MAX_ROWS = 2**48
"""More rows in one file are taken for damage."""


@frozen(kw_only=True)
class Page:
    """Some consecutive rows of one column.

    Attributes:
        buffers: Absolute position and size of each buffer.
        num_rows: Top-level rows.
        first_row: Row number of the first one.
        layout: Serialized page layout (see `lance_core.format.file.page_layout`).
    """

    buffers: tuple[tuple[int, int], ...]
    num_rows: int
    first_row: int
    layout: bytes


@lru_cache(maxsize=_MANY_LAYOUTS)
def _direct(encoding: bytes) -> file2_pb2.Encoding:
    """Return an encoding as message, which nobody may change; the columns of a wide table have few different ones."""
    return file2_pb2.Encoding(direct=file2_pb2.DirectEncoding(encoding=encoding))


def encode_column(pages: list[Page], *, is_blob: bool = False) -> bytes:
    """Return the ColumnMetadata of a column.

    Args:
        pages: Its pages.
        is_blob: True if pages only tell where the values are (version 2.0).
    """
    encoding = _BLOB_ENCODING if is_blob else _COLUMN_ENCODING
    message = file2_pb2.ColumnMetadata(encoding=_direct(encoding))
    for page in pages:
        message.pages.add(
            buffer_offsets=[position for position, _ in page.buffers],
            buffer_sizes=[size for _, size in page.buffers],
            length=page.num_rows,
            encoding=_direct(page.layout),
            priority=page.first_row,
        )
    return message.SerializeToString(deterministic=True)


def decode_column(data: bytes, *, limit: int) -> tuple[Page, ...]:
    """Read the pages of a column.

    Args:
        data: Serialized ColumnMetadata.
        limit: Position that no buffer may reach beyond.

    Raises:
        CorruptDataError: Not column metadata, or buffers outside the file.
        UnsupportedError: A deferred encoding.
    """
    return _decode_pages(_decode_message(data), limit)


def decode_plain_column(data: bytes, *, limit: int) -> tuple[Page, ...] | None:
    """Return the pages of a column, if all of it is in them: it has neither buffers nor an encoding of its own.

    Args:
        data: Serialized ColumnMetadata.
        limit: Position that no buffer may reach beyond.

    Returns:
        None for another column; errors as in `decode_column`.
    """
    message = _decode_message(data)
    if message.buffer_offsets or message.encoding.direct.encoding != _COLUMN_ENCODING:
        return None
    return _decode_pages(message, limit)


def _decode_message(data: bytes) -> file2_pb2.ColumnMetadata:
    check_limit("max_metadata_bytes", len(data), "bytes of metadata of a column")
    try:
        return file2_pb2.ColumnMetadata.FromString(data)
    except DecodeError as error:
        raise CorruptDataError(f"column metadata cannot be parsed: {error}") from error


def _decode_pages(message: file2_pb2.ColumnMetadata, limit: int) -> tuple[Page, ...]:
    check_limit("max_pages", len(message.pages), "pages")
    pages: list[Page] = []
    total = 0
    for page in message.pages:
        offsets, sizes = page.buffer_offsets, page.buffer_sizes
        if len(offsets) != len(sizes):
            raise CorruptDataError("a page has as many buffer positions as sizes, but here they differ")
        buffers = tuple(zip(offsets, sizes, strict=True))
        for offset, size in buffers:
            if offset + size > limit:
                raise CorruptDataError("a page buffer lies outside the file", offset=offset)
        layout = page.encoding.direct.encoding
        if not layout and page.encoding.WhichOneof("location") == "indirect":
            raise UnsupportedError("deferred page encodings are not supported")
        pages.append(Page(buffers=buffers, num_rows=page.length, first_row=total, layout=layout))
        total += page.length
    if total > MAX_ROWS:
        raise CorruptDataError(f"a column claims {total} rows")
    return tuple(pages)


def encode_descriptor(schema: Schema, num_rows: int) -> bytes:
    """Return the FileDescriptor."""
    # Field 1 is the schema, whose fields are the same for all files of a table.
    fields = schema.encoded
    if schema.metadata:
        fields += file_pb2.Schema(metadata=schema.metadata).SerializeToString(deterministic=True)
    rows = file_pb2.FileDescriptor(length=num_rows).SerializeToString()
    return field_of(fields, 1) + rows


def decode_descriptor(data: bytes) -> tuple[Schema, int]:
    """Read schema and number of rows.

    Raises:
        CorruptDataError: Not a FileDescriptor.
    """
    check_limit("max_metadata_bytes", len(data), "bytes of a file descriptor")
    decode = _decode_descriptor if len(data) < _LARGE_DESCRIPTOR else _decode_descriptor.__wrapped__
    return decode(data)


@lru_cache(maxsize=64)
def _decode_descriptor(data: bytes) -> tuple[Schema, int]:
    """Decode what small files of a table with as many rows have in common."""
    try:
        message = file_pb2.FileDescriptor.FromString(data)
    except DecodeError as error:
        raise CorruptDataError(f"the file descriptor cannot be parsed: {error}") from error
    check_limit("max_fields", len(message.schema.fields), "fields")
    if message.length > MAX_ROWS:
        raise CorruptDataError(f"the file descriptor claims {message.length} rows")
    return decode_fields(message.schema.fields, dict(message.schema.metadata)), message.length
