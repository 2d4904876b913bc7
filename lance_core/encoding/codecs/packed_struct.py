"""Packed structs: all fields of a struct side by side in one column; a read of one field reads all of them.

Structs of fields that all have a fixed width are rows of bytes (``PackedStruct``: one Flat value each). With fields of
variable width (``VariablePackedStruct``, file version 2.2) a row is a full-zip value: for each field its bytes, behind
their length (4 or 8 bytes) where the width varies. A null struct has no bytes. Nulls of the fields are not stored.

Source: messages ``PackedStruct`` and ``VariablePackedStruct``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lance_core.encoding.codecs import flat
from lance_core.encoding.codecs.codec import Codec, decode_rows, decode_strings
from lance_core.encoding.kernels import gather, gather_windows, gather_words, join_ranges, starts_of
from lance_core.encoding.values import FixedListValues, FixedValues, StructValues, VariableValues
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.file.encodings import (
    FixedSizeList,
    Flat,
    PackedField,
    PackedStruct,
    Variable,
    VariablePackedStruct,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_core.encoding.values import Bytes, Int64s, Values
    from lance_core.format.file.encodings import Encoding

MAX_INT32 = 2**31 - 1


def fixed_rows(values: Values) -> Bytes | None:
    """Shape (n, bytes per value): values of fixed width as bytes; None for others, for booleans and for null items."""
    match values:
        case FixedValues(data):
            return None if data.dtype == np.bool_ else flat.to_bytes(data).reshape(len(data), flat.bits_of(values) // 8)
        case FixedListValues(dimension, items, validity):
            inner = fixed_rows(items) if validity is None else None
            return None if inner is None else inner.reshape(len(items) // dimension, -1)
        case VariableValues():
            return None


def encode_fixed(values: StructValues) -> tuple[tuple[int, ...], FixedValues] | None:
    """Return rows of structs whose fields are all plain values of whole bytes.

    Returns:
        Bits of each field, and the rows; None for other structs.
    """
    if not all(isinstance(child, FixedValues) for child in values.children):
        return None
    columns = [rows for child in values.children if (rows := fixed_rows(child)) is not None]
    if len(columns) != len(values.children):
        return None
    return tuple(column.shape[1] * 8 for column in columns), FixedValues(np.hstack(columns))


def split_rows(rows: FixedValues, widths: Sequence[int]) -> list[FixedValues]:
    """Return the fields of rows.

    Args:
        rows: Structs as bytes.
        widths: Bytes of each field.

    Raises:
        CorruptDataError: The rows have another width.
    """
    if rows.data.dtype == np.bool_ or flat.bits_of(rows) != 8 * sum(widths):
        raise CorruptDataError(f"packed structs of {flat.bits_of(rows)} bits where the fields have {8 * sum(widths)}")
    data = flat.to_bytes(rows.data).reshape(len(rows), sum(widths))
    bounds = starts_of(np.array(widths, np.int64)).tolist()
    return [
        flat.from_bytes(np.ascontiguousarray(data[:, low:high]).reshape(-1), 8 * (high - low))
        for low, high in pairwise(bounds)
    ]


def encode_variable(values: StructValues) -> tuple[VariablePackedStruct, VariableValues]:
    """Return rows of structs with fields of any width but booleans and null items.

    Raises:
        UnsupportedError: A field that cannot be packed.
    """
    fields: list[PackedField] = []
    parts: list[tuple[Bytes, Int64s]] = []  # bytes of all rows, and the bounds of each row's piece
    for child in values.children:
        if isinstance(child, VariableValues):
            bits = child.offsets.dtype.itemsize * 8
            fields.append(PackedField(Variable(bits), None, bits))
            sizes = np.diff(child.offsets)
            parts.append(_even(sizes.astype(f"<u{bits // 8}").view(np.uint8), bits // 8))
            parts.append((child.data[int(child.offsets[0]) :], starts_of(sizes)))
            continue
        rows = fixed_rows(child)
        if rows is None:
            raise UnsupportedError("a packed struct with booleans, or with lists of items that may be null")
        fields.append(PackedField(_fixed_encoding(child), rows.shape[1] * 8, None))
        parts.append(_even(rows.reshape(-1), rows.shape[1]))
    data, bounds = join_ranges(*parts)
    offsets = bounds.astype(np.int32) if bounds[-1] <= MAX_INT32 else bounds
    return VariablePackedStruct(tuple(fields)), VariableValues(offsets, data)


def _even(data: Bytes, width: int) -> tuple[Bytes, Int64s]:
    """Bytes, and the bounds of pieces of one width."""
    return data, np.arange(len(data) // width + 1, dtype=np.int64) * width


def _fixed_encoding(values: Values) -> Encoding:
    if isinstance(values, FixedListValues):
        return FixedSizeList(values.dimension, False, _fixed_encoding(values.items))  # noqa: FBT003 - no validity
    assert isinstance(values, FixedValues)  # noqa: S101 - `fixed_rows` has seen to it
    return Flat(flat.bits_of(values))


def decode_variable(encoding: VariablePackedStruct, rows: VariableValues) -> StructValues:
    """Decode the fields of rows; those of empty rows (null structs) are zero and empty.

    Args:
        encoding: How the rows are encoded.
        rows: The bytes of each row.

    Raises:
        CorruptDataError: Rows that do not hold their fields.
    """
    offsets = rows.offsets.astype(np.int64)
    has_row = offsets[1:] > offsets[:-1]
    at, ends = offsets[:-1][has_row], offsets[1:][has_row]
    children: list[Values] = []
    for field in encoding.fields:
        width = (field.bits_per_value or field.bits_per_length or 0) // 8
        _check_ends(at + width, ends)
        if field.bits_per_value is not None:
            data = np.zeros((len(has_row), width), np.uint8)
            data[has_row] = gather_windows(rows.data, at, width)
            children.append(decode_rows(field.values, data))
            at = at + width
            continue
        lengths = gather_words(rows.data, at, f"<u{width}")
        if len(lengths) and int(lengths.max()) > len(rows.data):
            raise CorruptDataError("a field of a packed struct is longer than its page")
        at, sizes = at + width, lengths.astype(np.int64)
        _check_ends(at + sizes, ends)
        strings = decode_strings(field.values, _strings(rows.data, at, sizes, has_row))
        if not isinstance(strings, VariableValues):
            raise UnsupportedError("a packed struct inside of another")
        children.append(strings)
        at = at + sizes
    if (at != ends).any():
        raise CorruptDataError("a packed struct has bytes behind its last field")
    return StructValues(tuple(children))


def _strings(data: Bytes, at: Int64s, sizes: Int64s, has_row: npt.NDArray[np.bool_]) -> VariableValues:
    all_sizes = np.zeros(len(has_row), np.int64)
    all_sizes[has_row] = sizes
    return VariableValues(starts_of(all_sizes), gather(data, at, sizes))


def _check_ends(reached: Int64s, ends: Int64s) -> None:
    if (reached > ends).any():
        raise CorruptDataError("a field of a packed struct reaches beyond its row")


PACKED_STRUCT = Codec(serves=PackedStruct, unwrap=lambda encoding, chunks: (encoding.values, chunks))
VARIABLE_PACKED_STRUCT = Codec(serves=VariablePackedStruct, decode_strings=decode_variable)
