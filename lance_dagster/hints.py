"""Hints for misspelt names."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def did_you_mean(name: object, candidates: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the closest candidate, or an empty text if none is close."""
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    close = get_close_matches(str(name).lower(), by_lower, n=1, cutoff=0.6)
    return f" Did you mean {by_lower[close[0]]!r}?" if close else ""
