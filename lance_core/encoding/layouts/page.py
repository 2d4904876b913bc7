"""Values that every page layout decodes to and is encoded from, and an encoded page before it is put into a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.common.frozen import frozen
from lance_core.encoding.arrow_values import binary_to_json, from_values, is_fieldless, slice_leaf
from lance_core.encoding.kernels import check_places, take_inside
from lance_core.encoding.leaves import path_array
from lance_core.encoding.repdef import Levels, Slots, check_levels, unravel
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.schema import JSON

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lance_core.encoding.layouts.shared_levels import SharedLevels
    from lance_core.encoding.leaves import LeafPath
    from lance_core.encoding.values import Bytes, Int64s, LeafValues
    from lance_core.format.file.page_layout import PageLayout


@frozen(kw_only=True)
class Decoded:
    """Some rows of one leaf.

    Attributes:
        levels: Levels of whole rows.
        values: Values that have a slot, None if all of them are null.
        num_slots: Number of slots.
    """

    levels: Levels
    values: LeafValues | None
    num_slots: int


@frozen(kw_only=True)
class EncodedPage:
    """One page.

    Attributes:
        layout: How to read it.
        buffers: Its buffers, without padding.
        encoded_layout: The layout as bytes, if somebody has made them already.
    """

    layout: PageLayout
    buffers: Sequence[bytes | Bytes]
    encoded_layout: bytes | None = None


def to_arrow(
    decoded: Decoded, path: LeafPath, kind: pa.DataType, num_rows: int, shared: SharedLevels | None = None
) -> pa.Array:
    """Return the leaf inside its ancestors.

    Args:
        decoded: Rows of the leaf.
        path: The leaf.
        kind: Arrow type of the leaf, as it is stored.
        num_rows: Rows that must come out; in fixed-size lists of structs, items.
        shared: Knows the levels of the leaf before.

    Raises:
        CorruptDataError: Levels, values and rows do not fit each other.
    """
    if is_fieldless(kind):  # pylance 14.0.2 writes one layer, and "all null" for what is not
        slots = [Slots(decoded.num_slots, None)] * path.num_layers
        return path_array(path, slots, from_values(None, kind, None, decoded.num_slots))
    if len(decoded.levels.layers) != path.num_layers:
        raise CorruptDataError(
            f"field {path.leaf.name!r}: a page has {len(decoded.levels.layers)} layers, the schema {path.num_layers}"
        )
    if shared is None:
        check_levels(decoded.levels)
        slots = unravel(decoded.levels, decoded.num_slots, path.dimensions)
    else:
        slots = shared.unravel(decoded.levels, decoded.num_slots, path.dimensions)
    leaf = from_values(decoded.values, kind, slots[0].validity, decoded.num_slots)
    if path.leaf.logical_type == JSON:
        leaf = binary_to_json(leaf)
    array = path_array(path, slots, leaf)
    if len(array) * path.items_per_row != num_rows:
        raise CorruptDataError(f"field {path.leaf.name!r}: a page holds {len(array)} rows instead of {num_rows}")
    return array


def cut(decoded: Decoded, rows: range) -> Decoded:
    """Return some consecutive entries of a leaf without lists."""
    levels = decoded.levels
    if levels.rep is not None:
        raise UnsupportedError("lists around or in fixed-size lists of structs are not supported")
    definition = None if levels.definition is None else levels.definition[rows.start : rows.stop]
    values = slice_leaf(decoded.values, rows.start, rows.stop)
    return Decoded(levels=Levels(levels.layers, None, definition), values=values, num_slots=len(rows))


def pick(array: pa.Array, rows: range | Int64s) -> pa.Array:
    """Return some rows of an array: a view for a range, a copy otherwise."""
    if isinstance(rows, range):
        return array if len(rows) == len(array) else array.slice(rows.start, len(rows))
    check_places(rows, len(array))
    return take_inside(array, rows)
