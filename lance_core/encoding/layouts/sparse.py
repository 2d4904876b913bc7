"""Sparse layers of file version 2.3: from positions to levels, and to the values of the slots that they tell of."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from lance_core.common.frozen import frozen
from lance_core.common.limits import check_limit
from lance_core.encoding import registry
from lance_core.encoding.arrow_values import spread_values, take_values
from lance_core.encoding.kernels import starts_of
from lance_core.encoding.layouts import full_zip
from lance_core.encoding.layouts.page import Decoded
from lance_core.encoding.repdef import max_visible_def, rows_of_levels
from lance_core.encoding.shred import Nesting, build_levels
from lance_core.encoding.values import DictionaryValues, StructValues
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.file.page_layout import MiniBlockLayout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from lance_core.encoding.repdef import Levels, Mask
    from lance_core.encoding.values import Bytes, Int64s, LeafValues
    from lance_core.format.file.encodings import Encoding
    from lance_core.format.file.page_layout import SparseLayout
    from lance_core.format.file.sparse_layers import SparseLayer, SparseLists, SparseValidity

_MAX_SLOTS = 1 << 31
_Item = TypeVar("_Item", bound=np.generic)


@frozen(kw_only=True)
class SparseRows:
    """Some rows of a page, and the values they need.

    A page of values has one value per row, and no levels; see `SparseLayout` for what there is a value for.

    Attributes:
        levels: Levels of the rows.
        num_slots: Slots of the leaf in the rows.
        values: Rows of the page of values that are needed, ascending.
        is_valid: Shape (num_slots,), True for slots that have a value; None if there is one for each, nulls included.
        indices: For each slot with a value its place among ``values``; None if they are in order.
    """

    levels: Levels
    num_slots: int
    values: range | Int64s
    is_valid: Mask | None
    indices: Int64s | None

    def join(self, values: LeafValues | None) -> Decoded:
        """Return the rows with their values.

        Args:
            values: Those that are needed; None if there are none.
        """
        if values is not None and self.indices is not None:
            if isinstance(values, (StructValues, DictionaryValues)):
                raise UnsupportedError("indexed packed structs are not supported")
            values = take_values(values, self.indices)
        if values is not None and self.is_valid is not None:
            assert not isinstance(values, DictionaryValues)  # noqa: S101 - only chunks keep places in dictionaries
            values = spread_values(values, self.is_valid)
        return Decoded(levels=self.levels, values=values, num_slots=self.num_slots)


def value_buffers(layout: SparseLayout) -> range:
    """Return the buffers of the page of values, behind that of the indices and in front of those of the layers."""
    first = int(layout.indices is not None and registry.has_bytes(layout.indices))
    if isinstance(layout.values, MiniBlockLayout):
        return range(first, first + 2 + (layout.values.dictionary is not None))
    return range(first, first + 1 + full_zip.has_index(layout.values))


def data_buffer(layout: SparseLayout) -> int:
    """Return the buffer that holds the values, of which only a part may be needed."""
    return value_buffers(layout)[isinstance(layout.values, MiniBlockLayout)]


@frozen(kw_only=True)
class SparsePage:
    """The levels of a page, and which value belongs to which slot.

    Attributes:
        levels: Levels of all rows.
        num_slots: Slots of the leaf.
        num_values: Rows of the page of values.
        valid: Shape (num_slots,), True for slots that are valid; None if there is a value for each, nulls included.
        indices: Shape (num_slots,): row of the page of values for each slot; None if values are not indexed.
    """

    levels: Levels
    num_slots: int
    num_values: int
    valid: Mask | None
    indices: npt.NDArray[Any] | None

    @property
    def num_bytes(self) -> int:
        """Bytes of all arrays."""
        arrays = (self.levels.rep, self.levels.definition, self.valid, self.indices)
        return sum([array.nbytes for array in arrays if array is not None])

    def find(self, rows: range | Int64s) -> SparseRows:
        """Find the values of some rows, which ascend.

        Raises:
            CorruptDataError: An index points beyond the values.
        """
        levels, slots = rows_of_levels(self.levels, rows)
        values, is_valid, value_indices = slots, None, None
        if self.valid is not None:
            is_valid = _pick(self.valid, slots)
            if self.indices is None:
                values = _ranks(self.valid, slots)
            else:
                values, value_indices = _items(_pick(self.indices, slots)[is_valid], self.num_values)
        return SparseRows(levels=levels, num_slots=len(slots), values=values, is_valid=is_valid, indices=value_indices)


def decode_page(layout: SparseLayout, buffers: Sequence[Bytes], num_rows: int) -> SparsePage:
    """Decode the layers of a page, and its indices.

    Args:
        layout: Layout of the page.
        buffers: All its buffers; those of the values (`value_buffers`) are not looked at.
        num_rows: Rows of the page; with fixed-size lists of structs, items.

    Raises:
        CorruptDataError: Layers, indices and values do not fit each other.
        UnsupportedError: See `decode_levels`.
    """
    levels = decode_levels(layout.sparse, buffers[value_buffers(layout).stop :], num_rows)
    lists = [layer.lists for layer in layout.sparse if layer.lists is not None]
    num_slots = lists[-1].num_items if lists else num_rows
    num_values, valid, indices = layout.values.num_items, None, None
    if isinstance(layout.values, MiniBlockLayout):
        if num_values not in (0, num_slots):
            raise CorruptDataError(f"a page has {num_values} values for {num_slots} slots of sparse layers")
        num_values = num_slots
    else:
        valid = _valid_slots(levels, num_slots)
        num_valid = int(np.count_nonzero(valid))
        if layout.indices is not None:
            data = buffers[0] if registry.has_bytes(layout.indices) else np.empty(0, np.uint8)
            indices = registry.decode_integers(layout.indices, data, num_slots).copy()  # it may be the file's memory
        elif num_values != num_valid:
            raise CorruptDataError(f"a page has {num_values} values for {num_valid} valid slots")
    return SparsePage(levels=levels, num_slots=num_slots, num_values=num_values, valid=valid, indices=indices)


def _valid_slots(levels: Levels, num_slots: int) -> Mask:
    """Return a mask of the slots of the leaf that are valid."""
    if levels.definition is None:
        return np.ones(num_slots, np.bool_)
    return levels.definition[levels.definition <= max_visible_def(levels.layers)] == 0


def _pick(values: npt.NDArray[_Item], indices: range | Int64s) -> npt.NDArray[_Item]:
    return values[indices.start : indices.stop] if isinstance(indices, range) else values[indices]


def _items(indices: npt.NDArray[Any], num_items: int) -> tuple[Int64s, Int64s]:
    """Return the items that are needed, ascending, and for each index its place among them."""
    if len(indices) and int(indices.max()) >= num_items:
        raise CorruptDataError(f"index {int(indices.max())} points beyond {num_items} values")
    return np.unique(indices.astype(np.int64), return_inverse=True)


def _ranks(valid: Mask, slots: range | Int64s) -> range | Int64s:
    """Return positions of those of the wanted slots that are valid among all valid slots."""
    if isinstance(slots, range):
        first = int(np.count_nonzero(valid[: slots.start]))
        return range(first, first + int(np.count_nonzero(valid[slots.start : slots.stop])))
    return starts_of(valid)[slots[valid[slots]]]


def decode_levels(layers: Sequence[SparseLayer], buffers: Sequence[Bytes], num_rows: int) -> Levels:
    """Return levels of a whole page.

    Args:
        layers: From the outermost to the leaf.
        buffers: The buffers of the layers.
        num_rows: Rows of the page; with fixed-size lists of structs, items.

    Raises:
        CorruptDataError: Positions, counts, buffers and rows do not fit each other.
        UnsupportedError: Lists around or in fixed-size lists of structs; an encoding that cannot be read.
    """
    dimension = prod(sparse_layer.dimension for sparse_layer in layers)
    if dimension > 1 and any(sparse_layer.lists is not None for sparse_layer in layers):
        raise UnsupportedError("lists around or in fixed-size lists of structs are not supported")
    if num_rows % dimension:
        raise CorruptDataError(f"{num_rows} structs do not fill lists of {dimension}")
    rest, slots = iter(buffers), num_rows // dimension
    nestings: list[Nesting] = []
    for layer in layers:
        check_limit("max_decompressed_bytes", 8 * slots, "bytes of levels")
        sizes = None if layer.lists is None else _sizes(layer.lists, rest, slots)
        is_null = _nulls(layer.validity, rest, slots)
        if sizes is not None and is_null is not None and sizes[is_null].any():
            raise CorruptDataError("a list that is null has items")
        nestings.append(Nesting(length=slots, is_null=is_null, sizes=sizes, dimension=layer.dimension))
        slots = slots * layer.dimension if layer.lists is None else layer.lists.num_items
    if next(rest, None) is not None:
        raise CorruptDataError("a page has more buffers than its sparse layers")
    return build_levels(nestings)


def _integers(encoding: Encoding, rest: Iterator[Bytes], count: int) -> Int64s:
    data = next(rest, None) if registry.has_bytes(encoding) else np.empty(0, np.uint8)
    if data is None:
        raise CorruptDataError("a page has fewer buffers than its sparse layers")
    integers = registry.decode_integers(encoding, data, count)
    if len(integers) and int(integers.max()) > _MAX_SLOTS:
        raise CorruptDataError(f"a sparse layer tells of slot {int(integers.max())}")
    return integers.astype(np.int64)


def _positions(encoding: Encoding, rest: Iterator[Bytes], count: int, slots: int) -> Int64s:
    if count > slots:
        raise CorruptDataError(f"a sparse layer of {slots} slots tells {count} positions")
    integers = _integers(encoding, rest, count)
    if len(integers) and (int(integers[-1]) >= slots or (integers[1:] <= integers[:-1]).any()):
        raise CorruptDataError(f"the positions of a sparse layer of {slots} slots go back or beyond its end")
    return integers


def _nulls(validity: SparseValidity, rest: Iterator[Bytes], slots: int) -> Mask | None:
    """Return a mask of null slots; None if no slot is null."""
    positions = _positions(validity.positions, rest, validity.num_positions, slots)
    is_null = np.full(slots, validity.are_valid)
    is_null[positions] = not validity.are_valid
    return is_null if is_null.any() else None


def _sizes(lists: SparseLists, rest: Iterator[Bytes], slots: int) -> Int64s:
    """Items of each list."""
    positions = _positions(lists.positions, rest, lists.num_positions, slots)
    counts = _integers(lists.counts, rest, lists.num_positions)
    if int(counts.sum()) != lists.num_items or not counts.all():
        raise CorruptDataError(f"the lists of a sparse layer do not hold {lists.num_items} items")
    sizes = np.zeros(slots, np.int64)
    sizes[positions] = counts
    return sizes
