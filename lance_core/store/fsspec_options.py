"""Options of file systems of fsspec, which may be secret. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_MIN_SECRET = 4


def without_secrets(text: str, options: Mapping[str, Any]) -> str:
    """Return the text, with values of options blotted out, whichever of them it repeats."""
    for value in [part for option in options.values() for part in _parts(option)]:
        if isinstance(value, str) and len(value) >= _MIN_SECRET:
            text = text.replace(value, "***")
    return text


def _parts(value: Any) -> list[Any]:
    """Return a value and what it is made of."""
    if isinstance(value, dict):
        return [*value.values()]
    if isinstance(value, str) and "AccountKey=" in value:
        return [value, value.partition("AccountKey=")[2].partition(";")[0]]
    return [value]
