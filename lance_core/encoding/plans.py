"""Decoders that never read: generators that ask for byte ranges of a file and are sent the bytes.

`ReadPlan` of several columns are run `together`, so that one read serves all of them.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.encoding.arrow_values import buffer_view
from lance_core.encoding.kernels import empty, starts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lance_core.encoding.values import Bytes, Int64s

_T = TypeVar("_T")

Rows: TypeAlias = "range | Int64s"
"""Ascending row numbers: consecutive ones as range, others as array without repetition."""

Ranges: TypeAlias = list[tuple[int, int]]

_MAX_PADDING = 4096
"""Bytes between two buffers of a page, for all that writers align to."""


@frozen
class ByteRanges:
    """Many ranges that are wanted in one memory, answered with `RangeBuffers`.

    Attributes:
        starts: Shape (n,): positions in the file.
        ends: Shape (n,).
    """

    starts: Int64s
    ends: Int64s


@frozen
class RangeBuffers:
    """Memory that holds `ByteRanges`: the whole file if it is mapped, else what was read of it.

    Attributes:
        memory: Bytes.
        starts: Shape (m,), ascending: positions in the file of the m ranges of which the memory consists; None for the
            whole file.
        shifts: Shape (m,): from positions in the file to those in the memory.
    """

    memory: Bytes
    starts: Int64s | None = None
    shifts: Int64s | None = None

    def in_memory(self, positions: Int64s) -> Int64s:
        """Map file positions inside the requested ranges to positions in memory."""
        if self.starts is None or self.shifts is None:
            return positions
        if len(self.starts) == 1:
            return positions + self.shifts[0]
        return positions + self.shifts[self.starts.searchsorted(positions, side="right") - 1]

    def part(self, start: int, end: int) -> pa.Buffer:
        """Return the bytes of a range that lies in one of those of which the memory consists."""
        low = int(self.in_memory(np.array([start], np.int64))[0])
        return pa.py_buffer(self.memory[low : low + end - start])

    def moved(self, by: int) -> RangeBuffers:
        """Return the same memory for who counts positions from elsewhere."""
        if self.starts is None or self.shifts is None:
            raise ValueError("a whole file lies where it lies")
        return RangeBuffers(self.memory, self.starts + by, self.shifts - by)


ReadPlan: TypeAlias = Generator["Sequence[tuple[int, int] | ByteRanges]", "list[Any]", _T]
"""Asks for ranges, which are answered with buffers (`pa.Buffer`), and for `ByteRanges`."""

Plan: TypeAlias = ReadPlan["list[pa.Array]"]

# Bytes that are read along although nobody wants them.
_MAX_GAP = 1 << 14  # between two ranges, if others remain apart
_GAP_SHARE = 0.05  # between ranges, if all become one, as part of the bytes wanted


def result_of(coroutine: ReadPlan[_T], answer: Callable[[Sequence[tuple[int, int] | ByteRanges]], list[Any]]) -> _T:
    """Run the plan to completion, if all that it asks for is answered at once."""
    try:
        wanted = next(coroutine)
        while True:
            wanted = coroutine.send(answer(wanted))
    except StopIteration as stop:
        return stop.value


def finished_plan(result: _T) -> ReadPlan[_T]:
    """Return a plan that asks for nothing."""
    return result
    yield []


def together(plans: Sequence[ReadPlan[_T]]) -> ReadPlan[list[_T]]:
    """Run plans in step, one read for all of them at each."""
    results: dict[int, _T] = {}
    waiting: list[tuple[int, ReadPlan[_T], Sequence[tuple[int, int] | ByteRanges]]] = []

    def advance(number: int, plan: ReadPlan[_T], buffers: list[Any] | None) -> None:
        try:
            ranges = next(plan) if buffers is None else plan.send(buffers)
        except StopIteration as stop:
            results[number] = stop.value
        else:
            waiting.append((number, plan, ranges))

    for number, plan in enumerate(plans):
        advance(number, plan, None)
    while waiting:
        buffers = iter((yield [ranges_of_coroutine for _, _, ranges in waiting for ranges_of_coroutine in ranges]))
        answered, waiting = waiting, []
        for number, plan, ranges in answered:
            advance(number, plan, [next(buffers) for _ in ranges])
    return [results[number] for number in range(len(plans))]


def split_rows(first_rows: Int64s, rows: Rows) -> Iterator[tuple[int, Rows]]:
    """Yield rows of a column as rows of its pages.

    Args:
        first_rows: Shape (pages + 1,): first row of each page, and the end.
        rows: At least one row, all before the end.

    Yields:
        Number of a page, and rows counted from its first one; pages without wanted rows are left out.
    """
    last = rows.stop if isinstance(rows, range) else int(rows[-1]) + 1
    low = int(first_rows.searchsorted(rows[0], side="right")) - 1
    if last <= first_rows[low + 1]:  # as of most single rows and windows
        first = int(first_rows[low])
        yield low, range(rows.start - first, rows.stop - first) if isinstance(rows, range) else rows - first
        return
    bounds = first_rows[low : int(first_rows.searchsorted(last)) + 1]
    if isinstance(rows, range):
        for number, (start, end) in enumerate(pairwise(bounds.tolist()), low):
            if end > start:
                yield number, range(max(rows.start, start) - start, min(rows.stop, end) - start)
        return
    split_points = rows.searchsorted(bounds)
    for number, start, (begin, stop) in zip(count(low), bounds.tolist(), pairwise(split_points.tolist()), strict=False):
        if stop > begin:
            yield number, rows[begin:stop] - start


def bridge(starts: Int64s, ends: Int64s) -> Ranges:
    """Join ranges with little between them: one range needs no copy, and each costs a request."""
    if len(starts) > 1:
        gaps = starts[1:] - ends[:-1]
        is_ascending = int(gaps.min()) >= 0
        if is_ascending and int(gaps.sum()) <= _GAP_SHARE * int((ends - starts).sum()):
            starts, ends = starts[:1], ends[-1:]
        elif is_ascending:
            breaks = (gaps > _MAX_GAP).nonzero()[0]
            starts, ends = starts[np.append(0, breaks + 1)], ends[np.append(breaks, len(ends) - 1)]
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def range_buffers(ranges: Ranges, buffers: Sequence[pa.Buffer]) -> RangeBuffers:
    """Return the buffers of byte ranges, out of those that were read.

    Args:
        ranges: Ascending.
        buffers: One for each.
    """
    starts = np.array([start for start, _ in ranges], np.int64)
    sizes = np.array([end - start for start, end in ranges], np.int64)
    return RangeBuffers(join(buffers), starts, starts_of(sizes)[:-1] - starts)


def join(buffers: Sequence[pa.Buffer]) -> Bytes:
    """Buffers end to end; one alone is not copied."""
    if len(buffers) == 1:
        return buffer_view(buffers[0], np.uint8)
    out: Bytes = empty(sum(buffer.size for buffer in buffers), np.uint8)
    views: list[Any] = [np.frombuffer(buffer, np.uint8) for buffer in buffers if buffer.size]
    return np.concatenate(views, out=out) if views else out


def extents_of(buffers: Iterable[tuple[int, int]]) -> Ranges:
    """Return the bytes of a page: one range, unless there is more than padding between its buffers.

    Args:
        buffers: Position and size of each.
    """
    whole: Ranges = []
    for start, end in sorted((start, start + size) for start, size in buffers if size):
        if whole and 0 <= start - whole[-1][1] <= _MAX_PADDING:
            whole[-1] = (whole[-1][0], end)
        else:
            whole.append((start, end))
    return whole


def touching(starts: Int64s, ends: Int64s) -> ByteRanges:
    """Ranges, those that touch joined."""
    breaks = (starts[1:] != ends[:-1]).nonzero()[0]
    return ByteRanges(starts[np.append(0, breaks + 1)], ends[np.append(breaks, len(ends) - 1)])
