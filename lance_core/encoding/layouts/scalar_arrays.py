"""A handful of values as Arrow arrays, nested ones included; see `scalar_levels`."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import NamedTuple
from lance_core.encoding.arrow_values import offset_dtype
from lance_core.encoding.leaves import is_list_field
from lance_core.encoding.values import FixedValues, VariableValues
from lance_core.errors import CorruptDataError, InvalidInputError

if TYPE_CHECKING:
    from lance_core.encoding.codecs.codec import Shape
    from lance_core.encoding.layouts.scalar_levels import ScalarSlots
    from lance_core.encoding.values import Values
    from lance_core.format.schema import Field

Make: TypeAlias = Callable[[Sequence[bytes], "Sequence[bool] | None"], pa.Array]
"""From values, and for each whether it is valid (None if all are), an Arrow array. Values of one width may be several
end to end."""

_MANY_KINDS = 256
_BITS: Shape = ("bits", 1)
_STRINGS: Shape = ("strings", 0)


class Leaf(NamedTuple):
    """A leaf, and what is around it.

    Attributes:
        array: Its values.
        slots: One for each layer, from the leaf outwards.
    """

    array: pa.Array
    slots: Sequence[ScalarSlots]


Nest: TypeAlias = Callable[[Sequence[Leaf]], pa.Array]
"""Puts the leaves of a top-level field together."""


def shape_of_items(items: Values) -> Shape | None:
    """Return the shape of a dictionary's items; None if they are neither fixed-width values nor strings."""
    match items:
        case VariableValues():
            return _STRINGS
        case FixedValues(data) if data.dtype != np.bool_:
            return ("words", data.dtype.itemsize * (data.shape[1] if data.ndim > 1 else 1))
        case _:
            return None


@lru_cache(maxsize=_MANY_KINDS)
def maker(kind: pa.DataType) -> tuple[Shape, Make] | None:
    """Return the function that makes arrays of a type, and the shape of its values; None if no such function exists."""
    if pa.types.is_null(kind) or pa.types.is_dictionary(kind):
        return None
    if pa.types.is_boolean(kind):
        return _BITS, _bits
    if pa.types.is_fixed_size_list(kind):
        return _lists_of(kind)
    dtype = offset_dtype(kind)
    if dtype is not None:
        return _STRINGS, _strings_of(kind, "q" if dtype == np.int64 else "i")
    width = _width(kind)
    return None if width is None else (("words", width), _words_of(kind, width))


def num_values(values: Sequence[bytes], shape: Shape) -> int:
    """Return how many values there are."""
    width = shape[1]
    return sum(map(len, values)) // width if width else len(values)


def _width(kind: pa.DataType) -> int | None:
    """Return bytes of a value; None if there is no such number."""
    if pa.types.is_nested(kind):
        return None
    try:
        bits = kind.bit_width
    except ValueError:
        return None
    return bits // 8 if bits and bits % 8 == 0 else None


def _bits(values: Sequence[bytes], valid: Sequence[bool] | None) -> pa.Array:
    bits = b"".join(values)
    data = _bitmap([bit != 0 for bit in bits])
    return pa.Array.from_buffers(pa.bool_(), len(bits), [_bitmap(valid), data])


def _words_of(kind: pa.DataType, width: int) -> Make:
    def make(values: Sequence[bytes], valid: Sequence[bool] | None) -> pa.Array:
        data = b"".join(values)
        return pa.Array.from_buffers(kind, len(data) // width, [_bitmap(valid), pa.py_buffer(data)])

    return make


def _strings_of(kind: pa.DataType, code: str) -> Make:
    limit = (1 << 8 * array(code).itemsize - 1) - 1

    def make(values: Sequence[bytes], valid: Sequence[bool] | None) -> pa.Array:
        offsets = list(accumulate(map(len, values), initial=0))
        if offsets[-1] > limit:
            raise InvalidInputError(f"more than 2 GiB of {kind} in one batch; ask for smaller batches")
        buffers = [_bitmap(valid), pa.py_buffer(array(code, offsets)), pa.py_buffer(b"".join(values))]
        return pa.Array.from_buffers(kind, len(values), buffers)

    return make


def _lists_of(kind: pa.DataType) -> tuple[Shape, Make] | None:
    width = _width(kind.value_type)
    if width is None:
        return None

    def make(values: Sequence[bytes], valid: Sequence[bool] | None) -> pa.Array:
        data = b"".join(values)
        items = pa.Array.from_buffers(kind.value_type, len(data) // width, [None, pa.py_buffer(data)])
        return pa.Array.from_buffers(kind, len(items) // kind.list_size, [_bitmap(valid)], children=[items])

    return ("lists", width * kind.list_size), make


def _bitmap(valid: Sequence[bool] | None) -> pa.Buffer | None:
    if valid is None:
        return None
    bits = sum(1 << position for position, is_valid in enumerate(valid) if is_valid)
    return pa.py_buffer(bits.to_bytes((len(valid) + 7) // 8, "little"))


def nest_of(field: Field, kind: pa.DataType) -> Nest | None:
    """Return the assembly of a top-level field from its leaves; None if there are fixed-size lists of structs.

    Args:
        field: The field.
        kind: Its Arrow type.
    """
    if field.is_leaf:
        return _first_leaf
    if any(child.struct_list_size for child in field.walk()):
        return None
    return _nest(field, kind, depth=0, first=0)


def _first_leaf(leaves: Sequence[Leaf]) -> pa.Array:
    return leaves[0].array


def _nest(field: Field, kind: pa.DataType, *, depth: int, first: int) -> Nest:
    """Return the assembly of a field at a depth, whose first leaf has that number."""
    if field.is_leaf:
        return lambda leaves: leaves[first].array
    if is_list_field(field):
        return _nest_list(field, kind, depth=depth, first=first)
    children: list[Nest] = []
    at = first
    for index, child in enumerate(field.children):
        children.append(_nest(child, kind.field(index).type, depth=depth + 1, first=at))
        at += sum(1 for _ in child.leaves())

    def make(leaves: Sequence[Leaf]) -> pa.Array:
        slots = leaves[first].slots[-1 - depth]
        arrays = [child(leaves) for child in children]
        for nested in arrays:
            _check_length(nested, slots.length)
        return pa.Array.from_buffers(kind, slots.length, [_bitmap(slots.valid)], children=arrays)

    return make


def _nest_list(field: Field, kind: pa.DataType, *, depth: int, first: int) -> Nest:
    is_map = pa.types.is_map(kind)
    inner = pa.struct([kind.key_field, kind.item_field]) if is_map else kind.value_type
    child = _nest(field.children[0], inner, depth=depth + 1, first=first)
    code = "q" if field.logical_type.startswith("large_list") else "i"

    def make(leaves: Sequence[Leaf]) -> pa.Array:
        slots = leaves[first].slots[-1 - depth]
        items, offsets = child(leaves), slots.offsets or [0]
        _check_length(items, offsets[-1])
        buffers = [_bitmap(slots.valid), pa.py_buffer(array(code, offsets))]
        return pa.Array.from_buffers(kind, slots.length, buffers, children=[items])

    return make


def _check_length(result: pa.Array, length: int) -> None:
    if len(result) != length:
        raise CorruptDataError(f"the columns of a field contradict each other: {len(result)} items and {length}")
