"""A cache of one value, for objects that are asked many times in a row for the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")


class KeepsLast:
    """Keeps what was made last, until it is asked for that of another owner. May be shared by threads."""

    _last_kept: tuple[object, Any] | None = None

    def kept_for(self, owner: object, make: Callable[[], _T]) -> _T:
        """Return what was made for an owner; it is forgotten when another one asks."""
        last = self._last_kept
        if last is None or last[0] is not owner:
            last = self._last_kept = (owner, make())
        return last[1]
