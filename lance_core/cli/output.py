"""Answers as text and as JSON."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.reports.describe import aligned

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_core.cli.command import Answer

_MAX_WIDTH = 60
"""Characters of a cell that are shown."""
_STEP = 1024


def write(answer: Answer, *, as_json: bool) -> Iterator[str]:
    """Yield the lines that a command prints."""
    if not as_json:
        yield from answer.lines
    elif isinstance(answer.document, Iterator):
        for item in answer.document:
            yield _json(item)
    else:
        yield _json(answer.document)


def table(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Return rows below their names; numbers stand to the right.

    Text of a table may hold anything, also what would steer the terminal; see `printable`.
    """
    cells = [tuple(map(cell, row)) for row in rows]
    values = [list(map(str, names)), *cells]
    are_text = [at for at in range(len(names)) if not all(_is_number(row[at]) for row in cells)]
    return aligned(values, left=are_text)


def cell(value: Any) -> str:
    """Return a value as short text."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, bytes):
        text = f"<{len(value):,} bytes>"
    elif isinstance(value, datetime):
        text = value.isoformat(sep=" ", timespec="seconds" if not value.microsecond else "microseconds")
    elif isinstance(value, (Mapping, list, tuple)):
        text = _json(value)
    else:
        text = str(value)
    shown = printable(text)
    return shown if len(shown) <= _MAX_WIDTH else f"{shown[: _MAX_WIDTH - 3]}..."


def printable(text: str) -> str:
    """Escape characters that would steer the terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def size(num_bytes: int | None) -> str:
    """Return a number of bytes for people."""
    if num_bytes is None:
        return "?"
    if num_bytes < _STEP:
        return f"{num_bytes} B"
    power = min(int(math.log(num_bytes, _STEP)), 4)
    return f"{num_bytes / _STEP**power:.1f} {('KiB', 'MiB', 'GiB', 'TiB')[power - 1]}"


def _is_number(text: str) -> bool:
    return text == "null" or text.lstrip("-").replace(",", "").replace(".", "", 1).isdecimal()


def _json(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    """Return a value in JSON's types: times as ISO 8601, bytes as base64, durations in seconds, NaN as text."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    return str(value)
