"""Sets of 32-bit numbers (row offsets, fragment ids) as portable Roaring bitmaps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyroaring import BitMap

from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Iterable


def encode_bitmap(numbers: Iterable[int]) -> bytes:
    """Encode a set of numbers below 2^32."""
    return BitMap(numbers).serialize()


def decode_bitmap(data: bytes, what: str, *, path: str | None = None) -> BitMap:
    """Decode a set of numbers.

    Args:
        data: The bitmap; bytes behind it are ignored.
        what: What the numbers are, for errors.
        path: The file that has the bitmap, for errors.

    Raises:
        CorruptDataError: Not a bitmap.
    """
    try:
        return BitMap.deserialize(data)
    except (ValueError, IndexError) as error:  # the second if there are no bytes
        raise CorruptDataError(f"the bitmap of {what} cannot be decoded", path=path) from error
