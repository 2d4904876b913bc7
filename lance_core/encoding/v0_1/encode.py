"""From Arrow arrays to pages of version 0.1, whose layout `lance_core.encoding.v0_1.pages` describes.

There is no place for nulls: callers replace or refuse them.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import mutable
from lance_core.encoding.arrow_values import as_mask, buffer_view, offset_dtype, pack_bits, to_values
from lance_core.encoding.v2_0.encode import fixed_bytes
from lance_core.encoding.values import VariableValues
from lance_core.format.arrow_kinds import is_text

if TYPE_CHECKING:
    from lance_core.encoding.values import Bytes, Int64s


@mutable
class PageBytes:
    """Pages one behind the other, on their way into a file.

    Attributes:
        position: Where in the file the next byte goes.
        parts: The bytes so far.
    """

    position: int
    parts: list[bytes] = field(default_factory=list[bytes])

    def put(self, data: bytes | Bytes) -> int:
        """Append bytes; their position."""
        start, self.position = self.position, self.position + len(data)
        self.parts.append(data if isinstance(data, bytes) else data.tobytes())
        return start

    def take(self) -> bytes:
        """Return the bytes so far and forget them."""
        data = b"".join(self.parts)
        self.parts = []
        return data


def put_values(array: pa.Array, pages: PageBytes) -> int:
    """Write a page of values that are neither structs nor lists of varying length.

    Args:
        array: Values; nulls among strings become empty strings, whatever stands under other nulls is written.
        pages: Takes the bytes.

    Returns:
        Position of the page.
    """
    kind = array.type
    if pa.types.is_null(kind):
        return pages.position
    if offset_dtype(kind) is not None:
        return put_strings(_strings(array), pages)
    if pa.types.is_boolean(kind):
        mask = as_mask(array)
        return pages.put(buffer_view(pack_bits(mask), np.uint8))
    return pages.put(np.ascontiguousarray(fixed_bytes(array)).reshape(-1))


def put_strings(values: VariableValues, pages: PageBytes) -> int:
    """Write a page of strings: their bytes, then where they lie in the file. Returns the position of the latter."""
    offsets = values.offsets.astype("<i8")
    start = pages.put(values.data[: int(offsets[-1])])
    return pages.put((offsets + start).view(np.uint8))


def put_offsets(sizes: Int64s, pages: PageBytes, *, is_large: bool) -> int:
    """Write a page of list offsets, which begin with 0.

    Args:
        sizes: Shape (n,), items of each list.
        pages: Takes the bytes.
        is_large: True for large lists.

    Returns:
        Position of the page.
    """
    offsets = np.zeros(len(sizes) + 1, "<i8" if is_large else "<i4")
    np.cumsum(sizes, out=offsets[1:])
    return pages.put(offsets.view(np.uint8))


def _strings(array: pa.Array) -> VariableValues:
    if array.null_count:
        # A null may own bytes, which would come back as a value.
        array = array.fill_null("" if is_text(array.type) else b"")
    values = to_values(array)
    assert isinstance(values, VariableValues)  # noqa: S101 for the type checker: the caller asked
    return values
