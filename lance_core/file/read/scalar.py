"""The scalar kernel: a handful of rows, read value by value; pure.

What columns share in `lance_core.file.read.batches` costs hundreds of steps for each encoding, whatever the number of
values. Below some values it is cheaper to pick them one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from lance_core.encoding.layouts.few_levels import unravel_few
from lance_core.encoding.layouts.few_values import Leaf
from lance_core.encoding.plans import Spots
from lance_core.file.read.scalar_pages import ScalarRows, pages_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lance_core.encoding.layouts.few_levels import FewLayers, FewSlots
    from lance_core.encoding.plans import Found
    from lance_core.file.read.column_read import ColumnRead
    from lance_core.file.read.field_shapes import FieldShape, ScalarForm
    from lance_core.file.read.scalar_pages import Place, ScalarPage

_Run: TypeAlias = "tuple[ScalarPage, list[Place]]"
"""Rows of one page, one after the other. A plain tuple: there is one for each column."""


class _Field(NamedTuple):
    """Rows of one top-level field: how its array is made, and for each leaf where its rows are."""

    form: ScalarForm
    runs: list[list[_Run]]
    arrays: list[pa.Array]


class ScalarJob:
    """Rows of fields that are read value by value."""

    __slots__ = ("_fields",)

    def __init__(self) -> None:
        self._fields: list[_Field] = []

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
        runs: list[list[_Run]] = []
        for read, (wanted, _) in zip(reads, form.makers, strict=True):
            pages = pages_of(read, wanted)
            if pages is None:
                return False
            leaf: list[_Run] = []
            for page, rows in pages:
                places = page.find(rows)
                if places is None:
                    return False
                leaf.append((page, places))
            runs.append(leaf)
        self._fields.append(_Field(form, runs, arrays))
        return True

    @property
    def ranges(self) -> Spots:
        """The byte ranges that hold the rows, each once."""
        places = [place for field in self._fields for leaf in field.runs for _, run in leaf for place in run]
        bounds = sorted({(start, start + size) for start, size, *_ in places if size})
        return Spots(*np.array(bounds, np.int64).reshape(-1, 2).T)

    def decode(self, buffers: Found) -> None:
        """Decode the rows."""
        memory, known = buffers.memory.data, dict[object, Any]()
        for field in self._fields:
            runs = field.runs
            if buffers.starts is not None and len(buffers.starts):
                runs = [[(page, _moved(run, buffers)) for page, run in leaf] for leaf in runs]
            field.arrays.append(_decode(field.form, runs, memory, known))


def _moved(run: list[Place], buffers: Found) -> list[Place]:
    """Return rows with where they lie in what was read."""
    starts = buffers.places(np.array([start for start, *_ in run], np.int64)).tolist()
    return [(at, size, *rest) for at, (_, size, *rest) in zip(starts, run, strict=True)]


def _decode(form: ScalarForm, runs: list[list[_Run]], memory: memoryview, known: dict[object, Any]) -> pa.Array:
    leaves: list[Leaf] = []
    for (_, make), leaf in zip(form.makers, runs, strict=True):
        first = leaf[0][0]
        rows = ScalarRows([] if first.layers.max_rep else None, [] if first.has_definition else None)
        for page, places in leaf:
            page.read(memory, places, rows, known)
        if form.nest is None and not first.has_definition:
            return make(rows.values, None)  # nothing is around the values
        slots = _slots(first.layers, rows, known)
        leaves.append(Leaf(make(rows.values, slots[0].valid), slots))
    return form.nest(leaves) if form.nest else leaves[0].array


def _slots(layers: FewLayers, rows: ScalarRows, known: dict[object, Any]) -> list[FewSlots]:
    """Return validity and offsets; leaves of one field mostly have the same."""
    if rows.rep is None:
        return unravel_few(layers, rows.rep, rows.definition, len(rows.values))
    key = (id(layers), tuple(rows.rep), rows.definition and tuple(rows.definition), len(rows.values))
    slots: list[FewSlots] | None = known.get(key)
    if slots is None:
        slots = known[key] = unravel_few(layers, rows.rep, rows.definition, len(rows.values))
    return slots
