"""Bring data into the form of a blob column of version 2: struct ``data``, ``uri`` [, ``position``, ``size``]."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lance_core.encoding.arrow_values import null_mask, pack_bits
from lance_core.errors import InvalidInputError

if TYPE_CHECKING:
    from lance_core.format.schema import Field

_BYTES = (pa.binary(), pa.large_binary())
_NAMES = ("data", "uri", "position", "size")


def takes_blobs(given: pa.DataType) -> bool:
    """True for types that can become blobs: bytes, and the structs that `lance_core.blob_array` makes."""
    if given in _BYTES:
        return True
    return pa.types.is_struct(given) and tuple(name.name for name in given) in (_NAMES[:2], _NAMES)


def fit_blobs(array: pa.Array, field: Field, path: str) -> pa.StructArray:
    """Bring an array into a blob field's type.

    Raises:
        InvalidInputError: A part of an external blob where the table only takes whole ones.
    """
    kind = field.to_arrow().type
    if array.type.equals(kind):
        return array
    if not takes_blobs(array.type):
        raise InvalidInputError(f"column {path!r} holds blobs and cannot store values of type {array.type}")
    is_null = null_mask(array)
    if array.type in _BYTES:
        given = {"data": array.cast(pa.large_binary())}
    else:
        given = {name: array.field(index) for index, name in enumerate(_NAMES[: array.type.num_fields])}
    wanted = [field.name for field in kind]
    for name, values in given.items():
        if name not in wanted and values.null_count < len(values):
            raise InvalidInputError(f"{path!r}: this table's blobs have no {name}; they are external as a whole or not")
    columns = [
        given[field.name].cast(field.type) if field.name in given else pa.nulls(len(array), field.type)
        for field in kind
    ]
    bitmap = None if is_null is None else pack_bits(~is_null)
    return pa.Array.from_buffers(kind, len(array), [bitmap], children=columns)
