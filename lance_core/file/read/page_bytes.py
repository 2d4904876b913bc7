"""The bytes of pages that a scan goes through: asked for in a few large requests, and each of them once.

What is decoded together follows decoded bytes, so that a scan needs little memory. What is asked of a store follows
stored bytes: runs of whole pages, which are kept as they are stored until all columns have passed them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.encoding.kernels import starts_of
from lance_core.encoding.plans import ByteRanges, RangeBuffers, range_buffers
from lance_core.file.read import strategy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy.typing as npt

    from lance_core.encoding.plans import Ranges
    from lance_core.encoding.values import Int64s
    from lance_core.store.base import PendingRead


class PageBytes:
    """Answers what decoders ask for, from pages that are fetched as a whole.

    The first answer fetches the first run of pages of all columns; while a run is decoded, the next one is on its way.

    Args:
        begin: Begins to read half-open ranges of the file, all at once.
        columns: For each column the half-open range of each page that the scan goes through, in order.
    """

    def __init__(self, begin: Callable[[Ranges], PendingRead[list[pa.Buffer]]], columns: Sequence[Ranges]) -> None:
        self._begin = begin
        most = strategy.request_bytes(len(columns))
        pieces = [
            (start, end, number, run)
            for number, pages in enumerate(columns)
            for run, part in enumerate(_runs(pages, most))
            for start, end in part
        ]
        table = np.array(sorted(pieces), np.int64).reshape(-1, 4)
        if (table[1:, 0] < table[:-1, 1]).any():  # no sound file has pages that overlap
            table = table[:0]
        self._starts, self._ends, self._columns, self._runs = np.ascontiguousarray(table.T)
        self._of_run: dict[tuple[int, int], list[int]] = {}
        for piece, key in enumerate(zip(self._columns.tolist(), self._runs.tolist(), strict=True)):
            self._of_run.setdefault(key, []).append(piece)
        self._pieces: dict[int, pa.Buffer] = {}
        self._coming: dict[int, _Coming] = {}
        self._lowest: dict[int, int] = {}
        self._has_begun = False

    def answer(self, wanted: Sequence[tuple[int, int] | ByteRanges]) -> list[Any]:
        """Return the buffers and memory that `lance_core.encoding.plans.Steps` ask for."""
        scattered = [
            request if isinstance(request, ByteRanges) else ByteRanges(np.array([request[0]]), np.array([request[1]]))
            for request in wanted
        ]
        bounds = starts_of(np.array([len(request.starts) for request in scattered], np.int64)).tolist()
        starts = np.concatenate([request.starts for request in scattered]) if scattered else np.empty(0, np.int64)
        ends = np.concatenate([request.ends for request in scattered]) if scattered else np.empty(0, np.int64)
        fetched = self._fetch(starts, ends)
        ranges: Ranges = list(zip(starts.tolist(), ends.tolist(), strict=True))
        answers: list[Any] = []
        for request, low, high in zip(wanted, bounds, bounds[1:], strict=False):
            if isinstance(request, ByteRanges):
                answers.append(_buffers_of(ranges[low:high], fetched[low:high]))
            else:
                answers.append(_whole(request, fetched[low]))
        return answers

    def next_window(self) -> None:
        """Let go of what lies before all that was asked for since the last call; what follows lies behind it."""
        lowest, self._lowest = self._lowest, {}
        for piece in list(self._pieces):
            column = int(self._columns[piece])
            if column in lowest and int(self._runs[piece]) < lowest[column]:
                del self._pieces[piece]

    def close(self) -> None:
        """Cancel what is on its way."""
        for coming in self._coming.values():
            coming.read.cancel()
        self._coming.clear()

    def _fetch(self, starts: Int64s, ends: Int64s) -> list[list[tuple[int, pa.Buffer]]]:
        """For each range the buffers that hold it one after the other, and where they begin in the file."""
        first = self._starts.searchsorted(starts, side="right") - 1
        last = self._starts.searchsorted(ends, side="left") - 1
        is_ours = self._is_covered(first, last, ends)
        needed = {piece for low, high in _pairs(first[is_ours], last[is_ours]) for piece in range(low, high + 1)}
        others = np.flatnonzero(~is_ours & (ends > starts))
        direct = dict(zip(others.tolist(), self._load(needed, _pairs(starts[others], ends[others])), strict=True))
        pieces: list[list[tuple[int, pa.Buffer]]] = []
        for number, (low, high, ours) in enumerate(zip(first.tolist(), last.tolist(), is_ours.tolist(), strict=True)):
            if ours:
                pieces.append([(int(self._starts[piece]), self._pieces[piece]) for piece in range(low, high + 1)])
            else:
                pieces.append([(int(starts[number]), direct[number])] if number in direct else [])
        return pieces

    def _is_covered(self, first: Int64s, last: Int64s, ends: Int64s) -> npt.NDArray[np.bool_]:
        """Return a mask of the ranges that lie in pieces without a gap."""
        if not len(self._starts):
            return np.zeros(len(first), np.bool_)
        gaps = starts_of(self._starts[1:] > self._ends[:-1])
        inside = (first >= 0) & (last >= first) & (ends <= self._ends[last])
        return inside & (gaps[np.maximum(first, 0)] == gaps[np.maximum(last, 0)])

    def _load(self, pieces: set[int], others: Ranges) -> list[pa.Buffer]:
        """Fetch all runs that some pieces belong to, and begin the next ones; return some ranges that are no pieces."""
        runs = {(int(self._columns[piece]), int(self._runs[piece])) for piece in pieces}
        for column, run in runs:
            self._lowest[column] = min(run, self._lowest.get(column, run))
        wanted: list[int] = []
        if not pieces <= self._pieces.keys():
            wanted = sorted({piece for key in runs for piece in self._of_run[key]} - self._pieces.keys())
        now = wanted
        if not self._has_begun:
            self._has_begun = True
            first = {piece for (_, run), run_pieces in self._of_run.items() if not run for piece in run_pieces}
            now = sorted(first.union(wanted))
        coming = self._ask(now, others)
        if wanted:
            after = {piece for column, run in runs for piece in self._of_run.get((column, run + 1), ())}
            self._ask(sorted(after), [])
        while late := [self._coming[piece] for piece in wanted if piece in self._coming]:
            self._keep(late[0])
        if coming is None:
            return []
        return self._keep(coming)[len(coming.pieces) :]

    def _ask(self, pieces: list[int], others: Ranges) -> _Coming | None:
        """Begin to read pieces that are neither there nor on their way, and other ranges."""
        new = [piece for piece in pieces if piece not in self._pieces and piece not in self._coming]
        asked = [(int(self._starts[piece]), int(self._ends[piece])) for piece in new] + others
        if not asked:
            return None
        coming = _Coming(new, self._begin(asked))
        self._coming.update(dict.fromkeys(new, coming))
        return coming if others else None

    def _keep(self, coming: _Coming) -> list[pa.Buffer]:
        """Wait for pieces and keep them; return all that was asked for with them."""
        if coming.buffers is None:
            coming.buffers = coming.read.result()
            for piece, buffer in zip(coming.pieces, coming.buffers, strict=False):
                del self._coming[piece]
                self._pieces[piece] = buffer
        return coming.buffers


@dataclass(slots=True)
class _Coming:
    """Pieces that were asked for together, perhaps with other ranges."""

    pieces: list[int]
    read: PendingRead[list[pa.Buffer]]
    buffers: list[pa.Buffer] | None = None


def _runs(pages: Ranges, most: int) -> Iterator[Ranges]:
    """Neighbouring pages together, as far as they are small; larger pages in parts of nearly the same size."""
    run: Ranges = []
    size = 0
    for start, end in pages:
        if run and size + end - start > min(most, strategy.MOST_FETCHED_TOGETHER):
            yield run
            run, size = [], 0
        parts = -(-(end - start) // most)
        bounds = [start + (end - start) * number // max(1, parts) for number in range(parts + 1)]
        for low, high in pairwise(bounds[:-1]):
            yield [(low, high)]
        if parts:
            run.append((bounds[-2], bounds[-1]))
            size += bounds[-1] - bounds[-2]
    if run:
        yield run


def _pairs(starts: Int64s, ends: Int64s) -> Ranges:
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def _parts_of(start: int, end: int, pieces: list[tuple[int, pa.Buffer]]) -> tuple[Ranges, list[pa.Buffer]]:
    """A range as ranges that lie in one buffer each, and these."""
    ranges: Ranges = []
    buffers: list[pa.Buffer] = []
    for begin, buffer in pieces:
        low, high = max(start, begin), min(end, begin + buffer.size)
        ranges.append((low, high))
        buffers.append(buffer.slice(low - begin, high - low))
    return ranges, buffers


def _whole(wanted: tuple[int, int], pieces: list[tuple[int, pa.Buffer]]) -> pa.Buffer:
    _, buffers = _parts_of(*wanted, pieces)
    return buffers[0] if len(buffers) == 1 else pa.py_buffer(b"".join(buffers))


def _buffers_of(wanted: Ranges, pieces: list[list[tuple[int, pa.Buffer]]]) -> RangeBuffers:
    """Memory that holds ranges: the buffer that has all of them, else a copy."""
    whole = {begin: buffer for request_pieces in pieces for begin, buffer in request_pieces}
    if len(whole) == 1:
        return range_buffers([(begin, begin + buffer.size) for begin, buffer in whole.items()], list(whole.values()))
    parts = sorted(
        (part, buffer)
        for (start, end), request_pieces in zip(wanted, pieces, strict=True)
        for part, buffer in zip(*_parts_of(start, end, request_pieces), strict=True)
    )
    return range_buffers([part for part, _ in parts], [buffer for _, buffer in parts])
