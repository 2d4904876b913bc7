"""Conditions that only texts with certain parts meet, asked of many texts."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import NamedTuple
from lance_core.encoding.arrow_values import as_mask, null_mask, pack_bits, to_values
from lance_core.encoding.kernels import take_inside

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_core.encoding.values import Bytes, Int64s, VariableValues

_FEWEST_BYTES = 1 << 16
"""Texts with fewer bytes are asked at once: to look for a piece takes 150 us before the first byte."""

_LOOKED_AT = 1 << 12
"""Bytes in which the pieces of all parts are counted, to look for the rarest of them in all bytes."""

_NO_ASCII = 128

_MOST_PIECES = 16
"""Pieces of each width that are counted."""

_PASS_NS, _WIDTH_NS, _POSITION_NS, _MOST_NS = 0.1, 0.11, 60.0, 1.3
"""Time for a byte of texts: to look for a piece, more for each byte of its width, and for a position if one begins at
each byte. To ask all texts takes 2."""

_BLOCK_BYTES = 1 << 22
"""Bytes that are looked at together: memory for answers that is used again takes half the time of fresh memory."""

_MOST_POSITIONS = 0.25
"""Positions for each text: to find and ask the texts of more takes as long as to ask all."""


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


class _Piece(NamedTuple):
    """Bytes of a part that are looked for."""

    part: bytes
    start: int
    width: int  # 1, 2, 4 or 8

    @property
    def value(self) -> bytes:
        return self.part[self.start : self.start + self.width]


def _rows_that_may_have(values: pa.Array, parts: Sequence[bytes]) -> Int64s | None:
    """Return rows, ascending, among which are all that have some part; None if these may be many."""
    texts = cast("VariableValues", to_values(values))
    if not parts or len(texts.data) < _FEWEST_BYTES:
        return None
    piece = _rarest(parts, texts.data[:_LOOKED_AT].tobytes())
    if piece is None:
        return None
    positions = _positions_of_part(texts.data, piece)
    if len(positions) > len(values) * _MOST_POSITIONS:
        return None
    may_have = np.zeros(len(values), np.bool_)
    may_have[texts.offsets.searchsorted(positions.astype(texts.offsets.dtype), "right") - 1] = True
    return np.flatnonzero(may_have)


def _rarest(parts: Sequence[bytes], sample: bytes) -> _Piece | None:
    """Return the piece of parts that takes least time to look for, by how often it is in some bytes; None for none."""
    rarest, least_ns = None, _MOST_NS
    for width in (1, 2, 4, 8):
        pass_ns = _PASS_NS + _WIDTH_NS * width
        if pass_ns >= least_ns:  # wider pieces take more, however rare they are
            break
        pieces = (_Piece(part, start, width) for part in parts for start in range(len(part) - width + 1))
        for piece in islice(pieces, _MOST_PIECES):
            needed_ns = pass_ns + _POSITION_NS * sample.count(piece.value) / len(sample)
            if needed_ns < least_ns:
                rarest, least_ns = piece, needed_ns
    return rarest


def _positions_of_part(data: Bytes, piece: _Piece) -> Int64s:
    """Return positions at which a part begins, by a piece of it."""
    positions = _positions(data, piece.value) - piece.start
    positions = positions[positions >= 0]
    for shift, byte in enumerate(piece.part):
        if not piece.start <= shift < piece.start + piece.width:
            positions = positions[data.take(positions + shift, mode="clip") == byte]
    return positions


def _positions(data: Bytes, value: bytes) -> Int64s:
    """Return positions of 1, 2, 4 or 8 bytes, in any order.

    They are compared with those that begin at each eighth byte, with those one byte behind these, and so on: such
    comparisons by numpy take less time than Arrow's search. What lies across two texts is found as well.
    """
    width, wanted = len(value), np.frombuffer(value, f"u{len(value)}")
    step = max(1, min(_BLOCK_BYTES, len(data)) // width)
    answers = np.empty(step, np.bool_)
    positions: list[Int64s] = []
    for shift in range(width):
        pieces = data[shift : len(data) - (len(data) - shift) % width].view(wanted.dtype)
        for start in range(0, len(pieces), step):
            block = pieces[start : start + step]
            is_equal = np.equal(block, wanted, out=answers[: len(block)])
            positions.append((np.flatnonzero(is_equal) + start) * width + shift)
    return np.concatenate(positions)
