"""Sparse layers of file version 2.3: from positions to levels."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

from lance_core.encoding import registry
from lance_core.encoding.codecs import sequences
from lance_core.encoding.shred import Nesting, build_levels
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.limits import check_limit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_core.encoding.repdef import Levels, Mask
    from lance_core.encoding.values import Bytes, Int64s
    from lance_core.format.encodings import Encoding
    from lance_core.format.sparse_layers import SparseLayer, SparseLists, SparseValidity

_MAX_SLOTS = 1 << 31


def decode_levels(layers: Sequence[SparseLayer], buffers: Sequence[Bytes], num_rows: int) -> Levels:
    """Levels of a whole page.

    Args:
        layers: From the outermost to the leaf.
        buffers: All buffers of the page.
        num_rows: Rows of the page; with fixed-size lists of structs, items.

    Raises:
        CorruptDataError: Positions, counts, buffers and rows do not fit each other.
        UnsupportedError: Lists around or in fixed-size lists of structs; an encoding that cannot be read.
    """
    dimension = prod(one.dimension for one in layers)
    if dimension > 1 and any(one.lists is not None for one in layers):
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
    data = next(rest, None) if sequences.has_bytes(encoding) else np.empty(0, np.uint8)
    if data is None:
        raise CorruptDataError("a page has fewer buffers than its sparse layers")
    found = registry.decode_integers(encoding, data, count)
    if len(found) and int(found.max()) > _MAX_SLOTS:
        raise CorruptDataError(f"a sparse layer tells of slot {int(found.max())}")
    return found.astype(np.int64)


def _positions(encoding: Encoding, rest: Iterator[Bytes], count: int, slots: int) -> Int64s:
    if count > slots:
        raise CorruptDataError(f"a sparse layer of {slots} slots tells {count} positions")
    found = _integers(encoding, rest, count)
    if len(found) and (int(found[-1]) >= slots or (found[1:] <= found[:-1]).any()):
        raise CorruptDataError(f"the positions of a sparse layer of {slots} slots go back or beyond its end")
    return found


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
