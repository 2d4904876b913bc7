"""The bytes of pages that a scan goes through: asked for in a few large requests, and each of them once.

What is decoded together follows decoded bytes, so that a scan needs little memory. What is asked of a store follows
stored bytes: runs of whole pages, which are kept as they are stored until all columns have passed them.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import mutable
from lance_core.encoding.plans import ByteRanges, RangeBuffers, range_buffers
from lance_core.file.read import strategy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lance_core.encoding.plans import Ranges
    from lance_core.file.source import FileBytes
    from lance_core.store.base import PendingRead

_T = TypeVar("_T")


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
        pieces.sort()
        if any(later[0] < earlier[1] for earlier, later in pairwise(pieces)):  # no sound file has pages that overlap
            pieces = []
        self._starts = [start for start, *_ in pieces]
        self._ends = [end for _, end, *_ in pieces]
        self._run_of = [(number, run) for *_, number, run in pieces]
        self._of_run: dict[tuple[int, int], list[int]] = {}
        for piece, key in enumerate(self._run_of):
            self._of_run.setdefault(key, []).append(piece)
        self._pieces: dict[int, pa.Buffer] = {}
        self._coming: dict[int, _Coming] = {}
        self._lowest: dict[int, int] = {}
        self._has_begun = False

    def answer(self, wanted: Sequence[tuple[int, int] | ByteRanges]) -> list[Any]:
        """Return the buffers and memory that `lance_core.encoding.plans.ReadPlan` ask for."""
        # A scan asks for few ranges at a time, so that lists cost less than arrays.
        ranges: Ranges = []
        bounds = [0]
        for request in wanted:
            if isinstance(request, ByteRanges):
                ranges += zip(request.starts.tolist(), request.ends.tolist(), strict=True)
            else:
                ranges.append(request)
            bounds.append(len(ranges))
        fetched = self._fetch(ranges)
        answers: list[Any] = []
        for request, (low, high) in zip(wanted, pairwise(bounds), strict=True):
            if isinstance(request, ByteRanges):
                answers.append(_buffers_of(ranges[low:high], fetched[low:high]))
            else:
                answers.append(_whole(request, fetched[low]))
        return answers

    def next_window(self) -> None:
        """Let go of what lies before all that was asked for since the last call; what follows lies behind it."""
        lowest, self._lowest = self._lowest, {}
        for piece in list(self._pieces):
            column, run = self._run_of[piece]
            if column in lowest and run < lowest[column]:
                del self._pieces[piece]

    def close(self) -> None:
        """Cancel what is on its way."""
        for coming in self._coming.values():
            coming.read.cancel()
        self._coming.clear()

    def closing(self, results: Iterator[_T]) -> Iterator[_T]:
        """Yield results; whoever stops before the last one leaves no reads behind."""
        try:
            yield from results
        finally:
            self.close()

    def _fetch(self, ranges: Ranges) -> list[list[tuple[int, pa.Buffer]]]:
        """For each range the buffers that hold it one after the other, and where they begin in the file."""
        pieces_by_range = [self._pieces_of(start, end) for start, end in ranges]
        needed = {piece for pieces in pieces_by_range for piece in pieces}
        others = [
            number
            for number, pieces in enumerate(pieces_by_range)
            if not pieces and ranges[number][0] < ranges[number][1]
        ]
        direct = dict(zip(others, self._load(needed, [ranges[number] for number in others]), strict=True))
        return [
            [(ranges[number][0], direct[number])]
            if number in direct
            else [(self._starts[piece], self._pieces[piece]) for piece in pieces]
            for number, pieces in enumerate(pieces_by_range)
        ]

    def _pieces_of(self, start: int, end: int) -> range:
        """Return the pieces that hold a range without a gap; none if there are none, or if it is empty."""
        first = last = bisect_right(self._starts, start) - 1
        if first < 0 or start == end:
            return range(0)
        while self._ends[last] < end:
            last += 1
            if last == len(self._starts) or self._starts[last] > self._ends[last - 1]:
                return range(0)
        return range(first, last + 1)

    def _load(self, pieces: set[int], others: Ranges) -> list[pa.Buffer]:
        """Fetch all runs that some pieces belong to, and begin the next ones; return some ranges that are no pieces."""
        runs = {self._run_of[piece] for piece in pieces}
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
        asked = [(self._starts[piece], self._ends[piece]) for piece in new] + others
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


class TouchedPages:
    """Answers what decoders of scattered rows ask for, from pages that are fetched as a whole and at one go.

    Args:
        file: The file.
        extents: Half-open ranges of the pages, ascending.
    """

    def __init__(self, file: FileBytes, extents: Ranges) -> None:
        self._file = file
        self._extents = extents
        self._starts, self._ends = np.array(extents, np.int64).T
        self._fetched: RangeBuffers | None = None

    def answer(self, wanted: Sequence[tuple[int, int] | ByteRanges]) -> list[Any]:
        """Return the buffers and memory that `lance_core.encoding.plans.ReadPlan` ask for."""
        others = [request for request in wanted if not self._holds(request)]
        fetched, pages = self._fetched, [] if self._fetched else self._extents
        answers = self._file.answer([*pages, *others], is_scan=False)
        if fetched is None:
            fetched = self._fetched = range_buffers(pages, answers[: len(pages)])
        read = iter(answers[len(pages) :])
        return [self._part(fetched, request) if self._holds(request) else next(read) for request in wanted]

    def _holds(self, wanted: tuple[int, int] | ByteRanges) -> bool:
        """Return whether all of a request lies in the pages."""
        starts, ends = (wanted.starts, wanted.ends) if isinstance(wanted, ByteRanges) else wanted
        page = self._starts.searchsorted(starts, side="right") - 1
        return bool(np.all(page >= 0)) and bool(np.all(ends <= self._ends[page]))

    @staticmethod
    def _part(fetched: RangeBuffers, wanted: tuple[int, int] | ByteRanges) -> pa.Buffer | RangeBuffers:
        return fetched if isinstance(wanted, ByteRanges) else fetched.part(*wanted)


@mutable
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


def _parts_of(start: int, end: int, pieces: list[tuple[int, pa.Buffer]]) -> tuple[Ranges, list[pa.Buffer]]:
    """Return a range as ranges that lie in one buffer each, and these."""
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
