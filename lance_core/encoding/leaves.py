"""Shred nested Arrow arrays into leaves, and put leaves together again.

A leaf is a field that has a column of its own. Its path leads from a top-level field to it: a struct is one step, a
list is one step, a map is two (the list of entries and the struct ``entries``). Each column carries the structure of
all its ancestors, so a parent's structure may be taken from any one of its leaves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.encoding.arrow_values import (
    buffer_view,
    dictionary_without_nulls,
    is_fieldless,
    null_mask,
    pack_bits,
    unpack_bits,
)
from lance_core.encoding.kernels import aranges, numbers_array
from lance_core.encoding.repdef import NO_LEVELS, Levels
from lance_core.encoding.shred import Nesting, build_levels
from lance_core.errors import CorruptDataError, InvalidInputError
from lance_core.format.blobs import described, is_first_version
from lance_core.format.file.page_layout import Layer

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_core.encoding.repdef import Mask, Slots
    from lance_core.format.schema import Field

_DICTIONARY = pa.dictionary(pa.int8(), pa.int8()).id
_LIST_TYPES = ("list", "list.struct", "large_list", "large_list.struct", "map")


@frozen
class LeafPath:
    """The way to one leaf.

    Attributes:
        fields: From the top-level field to the leaf.
        child_indices: For each of them but the leaf, the index of the next one among its children.
        items_per_row: Entries of each row, lists not counted: the product of the sizes of fixed-size lists of structs.
    """

    fields: tuple[Field, ...]
    child_indices: tuple[int, ...] = ()
    items_per_row: int = 1

    @property
    def leaf(self) -> Field:
        """The field that has the column."""
        return self.fields[-1]

    @property
    def num_layers(self) -> int:
        """Layers of the leaf's levels."""
        return len(self.fields)

    @property
    def dimensions(self) -> list[int] | None:
        """For each layer, from the leaf outwards, the size of fixed-size lists of structs, else 1; None without."""
        return None if self.items_per_row == 1 else [field.struct_list_size or 1 for field in reversed(self.fields)]


def is_list_field(field: Field) -> bool:
    """True for fields whose layer is a list layer."""
    return field.logical_type in _LIST_TYPES


def leaf_paths(field: Field) -> list[LeafPath]:
    """Return the paths to all leaves at or below a top-level field, in column order."""
    if field.is_leaf:
        return [LeafPath((field,))]
    size = field.struct_list_size or 1
    return [
        LeafPath((field, *path.fields), (index, *path.child_indices), size * path.items_per_row)
        for index, child in enumerate(field.children)
        for path in leaf_paths(child)
    ]


def shred(path: LeafPath, array: pa.Array) -> tuple[Levels, pa.Array]:
    """Return the levels and the leaf array of one leaf.

    Args:
        path: The leaf.
        array: Array of the top-level field.

    Returns:
        Levels, and the values that have a slot.
    """
    if len(path.fields) == 1 and array.type.id != _DICTIONARY:  # by far the most columns
        is_null = null_mask(array) if array.null_count else None
        return NO_LEVELS if is_null is None else Levels((Layer.NULLABLE_ITEM,), None, is_null.astype(np.uint16)), array
    nestings: list[Nesting] = []
    masked: Mask | None = None
    lists_left = sum(map(is_list_field, path.fields))
    is_below_nullable = False
    for field, child_index in zip(path.fields, (*path.child_indices, None), strict=True):
        array = dictionary_without_nulls(array)
        is_null = null_mask(array)
        if is_list_field(field):
            is_null = _either(is_null, masked)
            sizes, array = list_items(array, is_null)
            # pylance 14.0.2 miscounts a list without nulls directly below a struct that is declared nullable.
            nestings.append(Nesting(length=len(sizes), is_null=is_null, sizes=sizes, is_nullable=is_below_nullable))
            masked, is_below_nullable = None, False
            lists_left -= 1
            continue
        # pylance 14.0.2 fails to join pages of a struct above a list if only some of them declare it nullable.
        is_nullable = child_index is not None and lists_left > 0 and field.nullable
        is_below_nullable = is_below_nullable or is_nullable
        size = 0 if child_index is None else field.struct_list_size
        # pylance 14.0.2 likewise fails to join pages of fixed-size lists of structs.
        is_nullable = is_nullable or (field.nullable and path.items_per_row > 1)
        # It also takes what a null struct holds as null, and then refuses it in a struct that is not null there.
        is_nullable = is_nullable or (child_index is not None and masked is not None)
        nestings.append(Nesting(length=len(array), is_null=is_null, is_nullable=is_nullable, dimension=size or 1))
        if size:
            array = array.values.slice(array.offset * size, len(array) * size)
            masked = None  # no lists below
        elif child_index is not None:
            masked = _either(masked, is_null)
            array = array.field(child_index)
    return build_levels(nestings), array


def _either(mask: Mask | None, other: Mask | None) -> Mask | None:
    if mask is None or other is None:
        return other if mask is None else mask
    return mask | other


def _list_offsets(array: pa.Array) -> npt.NDArray[Any]:
    """Return an array of shape (n + 1,): positions in the child array."""
    if not len(array):
        return np.zeros(1, np.int64)
    dtype = np.int64 if pa.types.is_large_list(array.type) else np.int32
    return buffer_view(array.buffers()[1], dtype)[array.offset : array.offset + len(array) + 1]


def _list_child(array: pa.Array) -> pa.Array:
    """Return the whole child array, whatever the array's own offset."""
    if not pa.types.is_map(array.type):
        return array.values
    entries = [array.type.key_field, array.type.item_field]
    return pa.StructArray.from_arrays([array.keys, array.items], fields=entries)


def list_items(array: pa.Array, is_null: Mask | None) -> tuple[npt.NDArray[np.int64], pa.Array]:
    """Sizes of the lists, 0 where null, and exactly the items of the others."""
    offsets = _list_offsets(array)
    sizes = np.diff(offsets).astype(np.int64, copy=False)
    if is_null is not None and sizes[is_null].any():
        is_valid = ~is_null
        wanted = aranges(offsets[:-1][is_valid].astype(np.int64), sizes[is_valid])
        return np.where(is_null, 0, sizes), _list_child(array).take(numbers_array(wanted))
    return sizes, _items_between(array, offsets)


def _items_between(array: pa.Array, offsets: npt.NDArray[Any]) -> pa.Array:
    """Return the items of all lists, given their offsets, with those of nulls."""
    return _list_child(array).slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


def check_nulls(field: Field, array: pa.Array) -> None:
    """Raise InvalidInputError if a field that is not nullable holds nulls (those inside null parents do not count)."""
    if not field.nullable and array.null_count:
        raise InvalidInputError(f"field {field.name!r} is not nullable, but {array.null_count} of its values are null")
    if is_fieldless(array.type) and array.null_count:
        raise InvalidInputError(f"field {field.name!r}: a struct without fields cannot be null")
    if field.is_leaf or all(descendant.nullable for descendant in field.walk()):
        return
    is_null = null_mask(array)
    if is_list_field(field):
        _, items = list_items(array, is_null)
        check_nulls(field.children[0], items)
        return
    size = field.struct_list_size
    for index, child in enumerate(field.children):
        if not all(descendant.nullable for descendant in child.walk()):
            if size and is_null is not None:
                is_null = np.repeat(is_null, size)
            inside = array.values.slice(array.offset * size, len(array) * size) if size else array.field(index)
            check_nulls(child, inside if is_null is None else inside.filter(pa.array(~is_null)))


def path_array(path: LeafPath, slots: Sequence[Slots], leaf: pa.Array) -> pa.Array:
    """Wrap a leaf array in its ancestors, each of which holds nothing else.

    Args:
        path: The leaf.
        slots: One for each layer, from the leaf outwards.
        leaf: The leaf array, nulls included.

    Returns:
        Nested array; maps come as lists of structs.
    """
    array = leaf
    for index in range(len(path.fields) - 2, -1, -1):
        field, slot = path.fields[index], slots[len(path.fields) - 1 - index]
        bitmap = None if slot.validity is None else pack_bits(slot.validity)
        inner = pa.field(path.fields[index + 1].name, array.type)
        if field.struct_list_size:
            kind = pa.list_(inner, field.struct_list_size)
            array = pa.Array.from_buffers(kind, slot.length, [bitmap], children=[array])
            continue
        if slot.offsets is None:
            array = pa.Array.from_buffers(pa.struct([inner]), slot.length, [bitmap], children=[array])
            continue
        is_large = field.logical_type.startswith("large_list")
        offsets = _fit_offsets(slot.offsets, is_large=is_large, name=field.name)
        kind = pa.large_list(inner) if is_large else pa.list_(inner)
        array = pa.Array.from_buffers(kind, slot.length, [bitmap, pa.py_buffer(offsets)], children=[array])
    return array


def _fit_offsets(offsets: npt.NDArray[np.int64], *, is_large: bool, name: str) -> npt.NDArray[Any]:
    if is_large:
        return offsets
    if int(offsets[-1]) >= 2**31:
        raise InvalidInputError(f"field {name!r}: more than 2**31 items in one batch; ask for smaller batches")
    return offsets.astype(np.int32)


def join_leaves(field: Field, kind: pa.DataType, arrays: Sequence[pa.Array]) -> pa.Array:
    """Put the leaves of one field together.

    Args:
        field: The field, with the children that are wanted.
        kind: Its Arrow type.
        arrays: One array for each leaf (`path_array`), of the same rows.

    Returns:
        Array of type ``kind``.
    """
    first = arrays[0]
    if first.type == kind:
        return first
    if field.is_leaf:
        return pick_packed(field, kind, first) if field.is_packed else first
    length = len(first)
    if is_list_field(field):
        child_kind = pa.struct([kind.key_field, kind.item_field]) if pa.types.is_map(kind) else kind.value_type
        parts = [_items_between(array, _list_offsets(array)) for array in arrays]
        offsets = _list_offsets(first)
        offsets = offsets - offsets[0] if offsets[0] else offsets
        child = join_leaves(field.children[0], child_kind, parts)
        buffers = [_bitmap(first), pa.py_buffer(offsets)]
        return pa.Array.from_buffers(kind, length, buffers, null_count=first.null_count, children=[child])
    if field.struct_list_size:
        size = field.struct_list_size
        parts = [array.values.slice(array.offset * size, length * size) for array in arrays]
        child = join_leaves(field.children[0], kind.value_type, parts)
        return pa.Array.from_buffers(kind, length, [_bitmap(first)], null_count=first.null_count, children=[child])
    children: list[pa.Array] = []
    taken = 0
    for index, child_field in enumerate(field.children):
        count = sum(1 for _ in child_field.leaves())
        parts = [array.field(0) for array in arrays[taken : taken + count]]
        children.append(join_leaves(child_field, kind.field(index).type, parts))
        taken += count
    return pa.Array.from_buffers(kind, length, [_bitmap(first)], null_count=first.null_count, children=children)


def packed_kind(stored: Field, wanted: Field, kind: pa.DataType) -> pa.DataType:
    """The Arrow type in which a packed struct is decoded: all fields of the file, not only those that are wanted.

    Args:
        stored: The struct in the schema of the file.
        wanted: The struct with the fields that are wanted.
        kind: Arrow type of ``wanted``.

    Returns:
        ``kind`` if the file holds just these fields, else a struct whose fields are named by their ids. If the file
        has blobs of version 1 where descriptions of version 2 are wanted, their descriptions of version 1.

    Raises:
        CorruptDataError: The file lacks a field.
    """
    if is_first_version(stored):
        return described(stored).to_arrow().type
    ids = [child.id for child in stored.children]
    if ids == [child.id for child in wanted.children]:
        return kind
    missing = [child.name for child in wanted.children if child.id not in ids]
    if missing:
        raise CorruptDataError(f"The file has no field {missing[0]!r} in its packed struct {stored.name!r}.")
    return pa.struct([child.to_arrow().with_name(_packed_name(child)) for child in stored.children])


def pick_packed(field: Field, kind: pa.DataType, array: pa.Array) -> pa.Array:
    """Return the wanted fields of a packed struct that was decoded as `packed_kind`."""
    if array.type == kind:
        return array
    if field.is_blob:
        return _to_second_version(array, kind)
    children = [array.field(_packed_name(child)) for child in field.children]
    buffers = [_bitmap(array)]
    return pa.Array.from_buffers(kind, len(array), buffers, null_count=array.null_count, children=children)


def _to_second_version(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Descriptions of blobs of version 2, all of them inline, from those of version 1."""
    zeros = np.zeros(len(array), np.uint32)
    children = [
        numbers_array(zeros.astype(np.uint8)),
        array.field("position"),
        array.field("size"),
        numbers_array(zeros),
        pa.repeat("", len(array)),
    ]
    return pa.Array.from_buffers(kind, len(array), [_bitmap(array)], null_count=array.null_count, children=children)


def _packed_name(field: Field) -> str:
    return f"field {field.id}"


def _bitmap(array: pa.Array) -> pa.Buffer | None:
    """Return the validity bitmap of an array, beginning with its first slot."""
    if not array.null_count:
        return None
    bitmap: pa.Buffer = array.buffers()[0]
    if array.offset % 8 == 0:
        return bitmap.slice(array.offset // 8)
    return pack_bits(unpack_bits(bitmap, array.offset, len(array)))
