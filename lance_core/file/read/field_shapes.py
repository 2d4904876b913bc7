"""What the fields of a projection are made of: worked out once for all files and readers that are asked for them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from lance_core.encoding.leaves import leaf_paths
from lance_core.format.schema import JSON, arrow_type_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.encoding.leaves import LeafPath
    from lance_core.format.schema import Field

_RECENT = 8


class LeafShape(NamedTuple):
    """One leaf.

    Attributes:
        path: The way to it.
        kind: Its Arrow type as it is decoded.
        is_dictionary: True if that is a dictionary type.
        is_plain: True if there is nothing around the leaf, and its values are what is stored.
        is_packed: True for a packed struct, of which files may hold more fields than are wanted.
    """

    path: LeafPath
    kind: pa.DataType
    is_dictionary: bool
    is_plain: bool
    is_packed: bool


class FieldShape(NamedTuple):
    """One top-level field, its Arrow type and its leaves in the order of columns."""

    field: Field
    kind: pa.DataType
    leaves: list[LeafShape]


_known: deque[tuple[tuple[Field, ...], list[FieldShape]]] = deque(maxlen=_RECENT)
"""The fields of a table are the same objects as long as its manifest is known, so comparing them costs little."""


def shapes_of(fields: Sequence[Field]) -> list[FieldShape]:
    """The shapes of some fields.

    Raises:
        UnsupportedError: There is no Arrow type for a field.
    """
    wanted = tuple(fields)
    for known, shapes in list(_known):
        if known == wanted:
            return shapes
    shapes = [FieldShape(one, arrow_type_of(one), [_leaf(path) for path in leaf_paths(one)]) for one in wanted]
    _known.appendleft((wanted, shapes))
    return shapes


def _leaf(path: LeafPath) -> LeafShape:
    is_json = path.leaf.logical_type == JSON
    kind = pa.large_binary() if is_json else arrow_type_of(path.leaf)
    is_plain = not is_json and len(path.fields) == 1 and path.items_per_row == 1
    return LeafShape(path, kind, pa.types.is_dictionary(kind), is_plain, path.leaf.is_packed)
