"""Lists and structs from what is in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lance_core.encoding.arrow_values import MAX_INT32, pack_bits
from lance_core.encoding.kernels import starts_of
from lance_core.errors import CorruptDataError, InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.encoding.repdef import Mask
    from lance_core.encoding.values import Int64s

LIST_TYPES = ("list", "list.struct", "large_list", "large_list.struct")
"""Logical types of fields whose pages tell where lists end."""


def list_array(name: str, kind: pa.DataType, sizes: Int64s, validity: Mask | None, items: pa.Array) -> pa.Array:
    """Lists of the items that follow one another.

    Args:
        name: Field name, for the error message.
        kind: List or large list type.
        sizes: Shape (n,), items of each list; null lists may have some.
        validity: Shape (n,), None if nothing is null.
        items: ``sizes.sum()`` items.

    Raises:
        InvalidInputError: More items than 32-bit offsets can tell.
    """
    offsets = starts_of(sizes)
    if len(items) != int(offsets[-1]):
        raise CorruptDataError(f"field {name!r}: {len(items)} items where lists have {int(offsets[-1])}")
    if not pa.types.is_large_list(kind):
        if int(offsets[-1]) > MAX_INT32:
            raise InvalidInputError(f"field {name!r}: more than 2**31 items in one batch; ask for smaller batches")
        offsets = offsets.astype("int32")
    bitmap = None if validity is None else pack_bits(validity)
    return pa.Array.from_buffers(kind, len(sizes), [bitmap, pa.py_buffer(offsets)], children=[items])


def struct_array(kind: pa.DataType, length: int, children: Sequence[pa.Array]) -> pa.Array:
    """Structs, none of which is null."""
    return pa.Array.from_buffers(kind, length, [None], children=list(children))
