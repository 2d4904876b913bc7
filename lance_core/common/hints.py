"""Texts of messages: hints for misspelt names, lists of what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_LISTED = 20
_ALIKE = 0.6


def did_you_mean(name: object, candidates: Iterable[str]) -> str:
    """Return `` Did you mean 'x'?`` for the closest candidate, or an empty text if none is close."""
    close = _close(str(name), list(candidates), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def joined_reasons(reasons: Sequence[str]) -> str:
    """Return what is wrong as one text: the first twenty, and how many more there are."""
    more = [f"and {len(reasons) - _LISTED:,} more"] if len(reasons) > _LISTED else []
    return "; ".join([*reasons[:_LISTED], *more])


def close_names(name: str, candidates: Sequence[str], *, n: int) -> Sequence[str]:
    """Return the names closest to a misspelt one, or the first names of all if none is close.

    Args:
        name: The misspelt name.
        candidates: All names.
        n: Most names returned if some are close.
    """
    return _close(name, candidates, n=n) or candidates[:_LISTED]


def _close(name: str, candidates: Sequence[str], *, n: int) -> list[str]:
    """Return the closest candidates; those that differ in case only come first."""
    from difflib import get_close_matches  # noqa: PLC0415 rarely needed

    same = [candidate for candidate in candidates if candidate.lower() == name.lower()]
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    alike = [by_lower[lower] for lower in get_close_matches(name.lower(), by_lower, n=n, cutoff=_ALIKE)]
    return list(dict.fromkeys([*same, *alike]))[:n]
