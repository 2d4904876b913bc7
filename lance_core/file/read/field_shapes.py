"""Shapes of the fields of a projection, shared by all files and readers."""

from __future__ import annotations

from collections import deque
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_core.common.frozen import NamedTuple
from lance_core.common.late_module import LateModule
from lance_core.encoding.leaves import is_list_field, leaf_paths
from lance_core.file.read.strategy import GUESSED_STRING_BYTES
from lance_core.format.schema import JSON, arrow_type_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.encoding.codecs.codec import Shape
    from lance_core.encoding.layouts import scalar_arrays
    from lance_core.encoding.layouts.scalar_arrays import Make, Nest
    from lance_core.encoding.leaves import LeafPath
    from lance_core.format.schema import Field
else:  # for single rows
    scalar_arrays = LateModule("lance_core.encoding.layouts.scalar_arrays")

_RECENT = 8


class LeafShape(NamedTuple):
    """One leaf.

    Attributes:
        path: The way to it.
        kind: Its Arrow type as it is decoded.
        is_dictionary: True if that is a dictionary type.
        is_plain: True if there is nothing around the leaf, and its values are what is stored.
        is_simple: True if each row or item is one value, neither dictionary-encoded in Arrow nor a packed struct.
        is_packed: True for a packed struct, of which files may hold more fields than are wanted.
        least_width: Bytes that a value has at least when it is decoded; guessed if that depends on the value.
        has_lists: True if a row has several values, so that levels tell where rows begin.
    """

    path: LeafPath
    kind: pa.DataType
    is_dictionary: bool
    is_plain: bool
    is_simple: bool
    is_packed: bool
    least_width: float
    has_lists: bool


class ScalarForm(NamedTuple):
    """Construction of a field's array from values that were read one by one.

    Attributes:
        makers: For each leaf what values it takes, and what makes its array of them.
        nest: Puts the leaves together; None if the field is one leaf.
    """

    makers: list[tuple[Shape, Make]]
    nest: Nest | None


class FieldShape:
    """One top-level field.

    Args:
        field: The field.

    Attributes:
        field: The field.
        kind: Its Arrow type.
        leaves: Its leaves in the order of columns.
        width: Bytes of each value if the field is one leaf of values of one width; 0 otherwise.
    """

    def __init__(self, field: Field) -> None:
        self.field = field
        self.kind = arrow_type_of(field)
        self.leaves = [_leaf(path) for path in leaf_paths(field)]
        first = self.leaves[0]
        self.width = first.least_width if first.is_plain and pa.types.is_primitive(first.kind) else 0.0

    @cached_property
    def scalar_form(self) -> ScalarForm | None:
        """Return the construction of the field's array from single values; None if there is none."""
        makers = [_maker_of(leaf) for leaf in self.leaves]
        forms = [maker for maker in makers if maker is not None]
        if len(forms) < len(makers):
            return None
        if self.field.is_leaf:
            return ScalarForm(forms, None)
        nest = scalar_arrays.nest_of(self.field, self.kind)
        return None if nest is None else ScalarForm(forms, nest)


def _maker_of(leaf: LeafShape) -> tuple[Shape, Make] | None:
    return None if leaf.is_dictionary or leaf.path.leaf.logical_type == JSON else scalar_arrays.maker(leaf.kind)


_recent: deque[tuple[tuple[Field, ...], list[FieldShape]]] = deque(maxlen=_RECENT)
"""The fields of a table are the same objects as long as its manifest is cached, so comparing them costs little."""


def shapes_of(fields: Sequence[Field]) -> list[FieldShape]:
    """Return the shapes of some fields.

    Raises:
        UnsupportedError: There is no Arrow type for a field.
    """
    wanted = tuple(fields)
    for fields_before, shapes in list(_recent):
        if fields_before == wanted:
            return shapes
    shape_of = {id(shape.field): shape for _, shapes in list(_recent) for shape in shapes}
    shapes = [shape_of.get(id(field)) or FieldShape(field) for field in wanted]
    _recent.appendleft((wanted, shapes))
    return shapes


def _leaf(path: LeafPath) -> LeafShape:
    is_json = path.leaf.logical_type == JSON
    kind = pa.large_binary() if is_json else arrow_type_of(path.leaf)
    is_plain = not is_json and len(path.fields) == 1 and path.items_per_row == 1
    is_dictionary = pa.types.is_dictionary(kind)
    is_packed = pa.types.is_nested(kind) and not pa.types.is_fixed_size_list(kind)
    is_simple = not is_dictionary and not is_packed and path.items_per_row == 1
    has_lists = any(is_list_field(field) for field in path.fields)
    return LeafShape(path, kind, is_dictionary, is_plain, is_simple, path.leaf.is_packed, least_width(kind), has_lists)


def least_width(kind: pa.DataType) -> float:
    """Return the bytes that a value has at least when it is decoded; guessed if that depends on the value."""
    if pa.types.is_fixed_size_list(kind):
        return kind.list_size * least_width(kind.value_type)
    try:
        return kind.bit_width / 8
    except ValueError:  # no fixed width
        return GUESSED_STRING_BYTES
