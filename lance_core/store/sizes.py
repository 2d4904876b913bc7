"""Ask how large an object is before it is read as a whole."""

from __future__ import annotations

from lance_core.common.limits import check_limit, limits
from lance_core.format.table.paths import limit_of


def most_bytes(path: str) -> int:
    """Return how many bytes an object may have that is read as a whole."""
    return getattr(limits(), limit_of(path))


def check_size(path: str, size: int, address: str) -> None:
    """Refuse an object that is too large to be read as a whole.

    Args:
        path: Its path in the dataset, which says what it is.
        size: Bytes in it.
        address: Its address, for the error.

    Raises:
        UnsupportedError: It is; the message says which limit to raise.
    """
    check_limit(limit_of(path), size, "bytes", path=address)
