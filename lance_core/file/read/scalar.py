"""The scalar kernel: a handful of rows, read value by value; pure.

What columns share in `lance_core.file.read.batches` costs hundreds of steps for each encoding, whatever the number of
values. Below some values it is cheaper to pick them one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from lance_core.common.frozen import NamedTuple
from lance_core.encoding.layouts.scalar_arrays import Leaf, num_values
from lance_core.encoding.layouts.scalar_levels import unravel_scalar
from lance_core.encoding.plans import ByteRanges
from lance_core.file.read.scalar_pages import ScalarRows, runs_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lance_core.encoding.codecs.codec import Shape
    from lance_core.encoding.layouts.scalar_arrays import Make, Nest
    from lance_core.encoding.layouts.scalar_levels import ScalarSlots
    from lance_core.encoding.plans import RangeBuffers
    from lance_core.encoding.repdef import LayersLevels
    from lance_core.encoding.values import Int64s
    from lance_core.file.read.column_read import ColumnRead
    from lance_core.file.read.field_shapes import FieldShape, ScalarForm
    from lance_core.file.read.scalar_pages import Run

_Field: TypeAlias = "tuple[list[list[Run]], list[pa.Array]]"
"""Rows of one top-level field: for each leaf where its rows are, and what takes the array."""


class _Alike(NamedTuple):
    """Fields that are one leaf each, of one type: they become views of one array.

    Attributes:
        make: Makes it.
        layers: What levels mean.
        has_definition: They have definition levels.
        fields: The fields.
    """

    make: Make
    layers: LayersLevels
    has_definition: bool
    fields: list[_Field]


class ScalarJob:
    """Rows of fields that are read value by value.

    Args:
        rows: The rows.
    """

    __slots__ = ("_alike", "_leaves", "_nested", "_numbers", "_rows")

    def __init__(self, rows: Int64s) -> None:
        self._rows = rows
        self._numbers: list[int] = rows.tolist()
        self._leaves: list[list[Run]] = []
        self._alike: dict[tuple[Make, tuple[int, bool]], _Alike] = {}
        self._nested: list[tuple[ScalarForm, Nest, _Field]] = []

    def takes(self, shape: FieldShape, reads: Sequence[ColumnRead], arrays: list[pa.Array]) -> bool:
        """Take a top-level field; False if it is to be read otherwise.

        Args:
            shape: The field.
            reads: Its leaves; their pages are found, and the indexes of these known.
            arrays: Takes the field's array.
        """
        form = shape.scalar_form
        if form is None:
            return False
        leaves: list[list[Run]] = []
        for read, (wanted, _) in zip(reads, form.makers, strict=True):
            runs = runs_of(read, wanted, self._rows, self._numbers)
            if runs is None:
                return False
            leaves += (runs,)
        self._leaves += leaves
        if form.nest is not None:
            self._nested.append((form, form.nest, (leaves, arrays)))
            return True
        page, make = leaves[0][0][0], form.makers[0][1]
        group = self._alike.get((make, page.alike))
        if group is None:
            group = _Alike(make, page.layers, page.has_definition, [])
            self._alike[make, page.alike] = group
        group.fields.append((leaves, arrays))
        return True

    @property
    def is_needed(self) -> bool:
        """True if it took a field."""
        return bool(self._alike or self._nested)

    @property
    def ranges(self) -> ByteRanges:
        """The byte ranges that hold the rows, each once."""
        positions = [position for runs in self._leaves for _, run, _ in runs for position in run]
        bounds = sorted({(position[0], position[0] + position[1]) for position in positions if position[1]})
        return ByteRanges(*np.array(bounds, np.int64).reshape(-1, 2).T)

    def decode(self, buffers: RangeBuffers) -> None:
        """Decode the rows."""
        memory = buffers.memory.data
        cache: dict[object, Any] = {}
        is_moved, count = buffers.starts is not None and len(buffers.starts) > 0, len(self._numbers)
        for make, layers, has_definition, fields in self._alike.values():
            rows = ScalarRows(memory, cache, bytearray(), bytearray() if has_definition else None)
            for (leaf,), _ in fields:
                for page, positions, numbers in _moved(leaf, buffers) if is_moved else leaf:
                    page.read(positions, numbers, rows)
            whole = make(
                rows.values, None if rows.definition is None else _slots(layers, rows, len(rows.values))[0].valid
            )
            if len(fields) == 1:
                fields[0][1].append(whole)
                continue
            for at, (_, arrays) in enumerate(fields):
                arrays.append(whole.slice(at * count, count))
        for form, nest, (leaves, arrays) in self._nested:
            each = [_moved(leaf, buffers) for leaf in leaves] if is_moved else leaves
            makers = zip(form.makers, each, strict=True)
            arrays.append(nest([_decode(shape, make, leaf, memory, cache) for (shape, make), leaf in makers]))


def _moved(leaf: list[Run], buffers: RangeBuffers) -> list[Run]:
    """Return rows with where they lie in what was read."""
    moved: list[Run] = []
    for page, positions, rows in leaf:
        starts = buffers.in_memory(np.array([start for start, *_ in positions], np.int64)).tolist()
        moved.append((page, [(start, *rest) for start, (_, *rest) in zip(starts, positions, strict=True)], rows))
    return moved


def _decode(shape: Shape, make: Make, leaf: list[Run], memory: memoryview, cache: dict[object, Any]) -> Leaf:
    """Decode one of several leaves of a field."""
    first = leaf[0][0]
    rows = ScalarRows(memory, cache, bytearray(), bytearray() if first.has_definition else None)
    for page, positions, numbers in leaf:
        page.read(positions, numbers, rows)
    slots = _slots(first.layers, rows, num_values(rows.values, shape))
    return Leaf(make(rows.values, slots[0].valid), slots)


def _slots(layers: LayersLevels, rows: ScalarRows, count: int) -> list[ScalarSlots]:
    """Return validity and offsets; leaves of one field mostly have the same."""
    if not layers.max_rep:
        return unravel_scalar(layers, None, rows.definition, count)
    key = (id(layers), bytes(rows.rep), rows.definition and bytes(rows.definition), count)
    slots: list[ScalarSlots] | None = rows.cache.get(key)
    if slots is None:
        slots = rows.cache[key] = unravel_scalar(layers, rows.rep, rows.definition, count)
    return slots
