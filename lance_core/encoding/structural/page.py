"""What every page layout decodes to and is encoded from, and an encoded page before it has a place in a file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.encoding.arrow_values import from_values
from lance_core.encoding.leaves import path_array
from lance_core.encoding.repdef import check_levels, unravel
from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from lance_core.encoding.leaves import LeafPath
    from lance_core.encoding.repdef import Levels
    from lance_core.encoding.values import Bytes, Int64s, Values
    from lance_core.format.page_layout import PageLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """Some rows of one leaf.

    Attributes:
        levels: Levels of whole rows.
        values: Values that have a slot, None if all of them are null.
        num_slots: Number of slots.
    """

    levels: Levels
    values: Values | None
    num_slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedPage:
    """One page.

    Attributes:
        layout: How to read it.
        buffers: Its buffers, without padding.
    """

    layout: PageLayout
    buffers: list[Bytes]


def to_arrow(decoded: Decoded, path: LeafPath, kind: pa.DataType, num_rows: int) -> pa.Array:
    """The leaf inside its ancestors.

    Args:
        decoded: Rows of the leaf.
        path: The leaf.
        kind: Arrow type of the leaf.
        num_rows: Rows that must come out.

    Raises:
        CorruptDataError: Levels, values and rows do not fit each other.
    """
    if len(decoded.levels.layers) != path.num_layers:
        raise CorruptDataError(
            f"field {path.leaf.name!r}: a page has {len(decoded.levels.layers)} layers, the schema {path.num_layers}"
        )
    check_levels(decoded.levels)
    slots = unravel(decoded.levels, decoded.num_slots)
    leaf = from_values(decoded.values, kind, slots[0].validity, decoded.num_slots)
    array = path_array(path, slots, leaf)
    if len(array) != num_rows:
        raise CorruptDataError(f"field {path.leaf.name!r}: a page holds {len(array)} rows instead of {num_rows}")
    return array


def pick(array: pa.Array, rows: range | Int64s) -> pa.Array:
    """Some rows of an array: a view for a range, a copy otherwise."""
    if isinstance(rows, range):
        return array if len(rows) == len(array) else array.slice(rows.start, len(rows))
    return array.take(rows_array(rows))


def rows_array(rows: Int64s) -> pa.Array:
    """Row numbers as an Arrow array without a copy."""
    return pa.Array.from_buffers(pa.int64(), len(rows), [None, pa.py_buffer(np.ascontiguousarray(rows, np.int64))])
