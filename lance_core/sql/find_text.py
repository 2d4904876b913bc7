"""Conditions that only texts with certain parts meet, asked of many texts."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from lance_core.encoding.arrow_values import as_mask, null_mask, pack_bits, to_values
from lance_core.encoding.kernels import take_inside

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_core.encoding.values import Bytes, Int64s, VariableValues

_FEWEST_BYTES = 1 << 15
"""Texts with fewer bytes are asked at once: to look for a piece takes 40 us before the first byte."""

_LOOKED_AT = 1 << 12
"""Bytes in which the pieces of all parts are counted, to look for the rarest of them in all bytes."""

_NO_ASCII = 128

_MOST_PIECES = 64
"""Pieces that are counted."""

_MOST_POSITIONS = 0.25
"""Positions for each text: to find the texts of more takes as long as to ask all texts."""


def ask_with_parts(ask: Callable[[pa.Array], pa.Array], values: pa.Array, parts: Sequence[str]) -> pa.Array:
    """Ask a condition of few texts if few have what it needs.

    Args:
        ask: Returns true or false for each text, and null for null; true only for texts that contain all parts.
        values: Texts, shape (n,).
        parts: Texts that are not empty; if there are none, all values are asked.

    Returns:
        What ``ask`` returns for the values, shape (n,).
    """
    rows = _rows_that_may_have(values, [part.encode() for part in parts])
    if rows is None:
        return ask(values)
    answers = np.zeros(len(values), np.bool_)
    answers[rows] = as_mask(ask(take_inside(values, rows)))
    is_null = null_mask(values)
    validity = None if is_null is None else pack_bits(~is_null)
    return pa.Array.from_buffers(pa.bool_(), len(values), [validity, pack_bits(answers)])


def is_ascii(values: pa.Array) -> bool:
    """Return whether all texts consist of ASCII."""
    return int(np.maximum.reduce(cast("VariableValues", to_values(values)).data, initial=0)) < _NO_ASCII


def _rows_that_may_have(values: pa.Array, parts: Sequence[bytes]) -> Int64s | None:
    """Return rows, ascending, among which are all that have some parts; None if these may be many."""
    texts = cast("VariableValues", to_values(values))
    if not parts or len(texts.data) < _FEWEST_BYTES:
        return None
    sample, most_positions = texts.data[:_LOOKED_AT].tobytes(), len(values) * _MOST_POSITIONS
    pieces = [piece for part in parts for piece in _pieces(part)][:_MOST_PIECES]
    count, piece = min((sample.count(piece), piece) for piece in pieces)
    if count * len(texts.data) > most_positions * len(sample):
        return None
    positions = _positions(texts.data, piece)
    if len(positions) > most_positions:
        return None
    may_have = np.zeros(len(values), np.bool_)
    may_have[texts.offsets.searchsorted(positions.astype(texts.offsets.dtype), "right") - 1] = True
    return np.flatnonzero(may_have)


def _pieces(part: bytes) -> list[bytes]:
    """Return all pieces of a part that have 4 bytes, or else 2 or 1, as many as it has."""
    width = next(width for width in (4, 2, 1) if width <= len(part))
    return [part[at : at + width] for at in range(len(part) - width + 1)]


def _positions(data: Bytes, piece: bytes) -> Int64s:
    """Return positions of a piece of 1, 2 or 4 bytes, in any order.

    It is compared with the pieces that begin at each fourth byte, and with those one, two and three bytes behind these:
    four comparisons by numpy take an eighth of the time of Arrow's search. Pieces across two texts are found as well.
    """
    width, wanted = len(piece), np.frombuffer(piece, f"u{len(piece)}")
    positions: list[Int64s] = []
    for shift in range(width):
        pieces = data[shift : len(data) - (len(data) - shift) % width].view(wanted.dtype)
        positions.append(np.flatnonzero(pieces == wanted) * width + shift)
    return np.concatenate(positions)
