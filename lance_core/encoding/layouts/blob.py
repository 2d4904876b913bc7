"""Blob pages (``BlobLayout``): values lie somewhere else in the file, the page holds where.

The page is a mini-block page of packed structs (position u64, size u64). Size 0 at a position that is not 0 stands for
a null or something null around it: ``position = definition level << 16 | repetition level``.

Not supported: blobs inside of lists. Values carry no repetition level, so that nobody can read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.encoding.layouts.page import Decoded
from lance_core.encoding.repdef import Levels, max_def
from lance_core.encoding.values import FixedValues, StructValues
from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.values import Int64s, Values
    from lance_core.format.file.page_layout import Layers

_LEVEL_SHIFT = 16
FIELD_BITS = (64, 64)
"""Bits of position and size."""


def describe(layers: Layers, values: Values) -> Decoded:
    """Return positions and sizes of blobs, with the levels that stand in for those of nulls.

    Args:
        layers: Layers of the blobs, none of lists.
        values: The page's values.

    Raises:
        CorruptDataError: Not positions and sizes.
    """
    if not isinstance(values, FixedValues) or values.data.dtype != np.uint8 or values.data.shape[1:] != (16,):
        raise CorruptDataError("a blob page does not hold positions and sizes")
    pairs: npt.NDArray[np.uint64] = np.ascontiguousarray(values.data).view(np.uint64).reshape(-1, 2)
    positions, sizes = pairs[:, 0], pairs[:, 1]
    definition = None
    if max_def(layers):
        is_null = (sizes == 0) & (positions != 0)
        definition = np.where(is_null, np.minimum(positions >> np.uint64(_LEVEL_SHIFT), 2**16 - 1), 0).astype(np.uint16)
        positions = np.where(is_null, 0, positions)
    children = (FixedValues(np.ascontiguousarray(positions)), FixedValues(np.ascontiguousarray(sizes)))
    return Decoded(levels=Levels(layers, None, definition), values=StructValues(children), num_slots=len(values))


def describing(levels: Levels, positions: Int64s, sizes: Int64s) -> FixedValues:
    """Return the values of a page.

    Args:
        levels: Levels of the blobs, no lists.
        positions: Absolute position of each blob in the file.
        sizes: Bytes of each blob.
    """
    pairs = np.stack([np.where(sizes == 0, 0, positions), sizes], axis=1).astype(np.uint64)
    if levels.definition is not None:
        is_null = levels.definition != 0
        pairs[is_null, 0] = levels.definition[is_null].astype(np.uint64) << np.uint64(_LEVEL_SHIFT)
        pairs[is_null, 1] = 0
    return FixedValues(pairs.view(np.uint8).reshape(-1, 16))
