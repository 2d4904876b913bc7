"""Decoders that never read: generators that ask for byte ranges of a file and are sent the bytes.

`Steps` of several columns are run `together`, so that one read serves all of them.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from lance_core.encoding.arrow_values import buffer_view
from lance_core.encoding.physical.memory import empty, starts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from lance_core.encoding.values import Bytes, Int64s

_T = TypeVar("_T")

Rows: TypeAlias = "range | Int64s"
"""Ascending row numbers: consecutive ones as range, others as array without repetition."""

Ranges: TypeAlias = list[tuple[int, int]]
Steps: TypeAlias = Generator[Ranges, "list[pa.Buffer]", _T]
Plan: TypeAlias = Steps["list[pa.Array]"]

# Bytes that are read along although nobody wants them.
_MAX_GAP = 1 << 14  # between two ranges, if others remain apart
_MEAN_GAP = 1 << 16  # between ranges, if all become one
_GAP_SHARE = 0.25  # likewise, as part of the bytes wanted


def together(plans: Sequence[Steps[_T]]) -> Steps[list[_T]]:
    """Run plans in step, one read for all of them at each."""
    results: dict[int, _T] = {}
    waiting: list[tuple[int, Steps[_T], Ranges]] = []

    def advance(number: int, plan: Steps[_T], buffers: list[pa.Buffer] | None) -> None:
        try:
            ranges = next(plan) if buffers is None else plan.send(buffers)
        except StopIteration as stop:
            results[number] = stop.value
        else:
            waiting.append((number, plan, ranges))

    for number, plan in enumerate(plans):
        advance(number, plan, None)
    while waiting:
        buffers = iter((yield [one for _, _, ranges in waiting for one in ranges]))
        answered, waiting = waiting, []
        for number, plan, ranges in answered:
            advance(number, plan, [next(buffers) for _ in ranges])
    return [results[number] for number in range(len(plans))]


def split_rows(first_rows: Int64s, rows: Rows) -> Iterator[tuple[int, Rows]]:
    """Rows of a column as rows of its pages.

    Args:
        first_rows: Shape (pages + 1,): first row of each page, and the end.
        rows: At least one row, all before the end.

    Yields:
        Number of a page, and rows counted from its first one; pages without wanted rows are left out.
    """
    last = rows.stop if isinstance(rows, range) else int(rows[-1]) + 1
    low = int(np.searchsorted(first_rows, rows[0], side="right")) - 1
    for number in range(low, int(np.searchsorted(first_rows, last))):
        start, end = int(first_rows[number]), int(first_rows[number + 1])
        if isinstance(rows, range):
            inside: Rows = range(max(rows.start, start) - start, min(rows.stop, end) - start)
        else:
            begin, stop = np.searchsorted(rows, (start, end))
            inside = rows[begin:stop] - start
        if len(inside):
            yield number, inside


def bridge(starts: Int64s, ends: Int64s) -> Ranges:
    """Join ranges with little between them: one range needs no copy, and each costs a request."""
    if len(starts) > 1:
        gaps = starts[1:] - ends[:-1]
        is_ascending = int(gaps.min()) >= 0
        allowed = max(_MEAN_GAP * len(gaps), _GAP_SHARE * int((ends - starts).sum()))
        if is_ascending and int(gaps.sum()) <= allowed:
            starts, ends = starts[:1], ends[-1:]
        elif is_ascending:
            breaks = np.flatnonzero(gaps > _MAX_GAP)
            starts, ends = starts[np.append(0, breaks + 1)], ends[np.append(breaks, len(ends) - 1)]
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def places_in(ranges: Ranges, positions: Int64s) -> Int64s:
    """Where positions of the file, all inside of ascending ranges, lie in the ranges laid end to end."""
    if len(ranges) == 1:
        return positions - ranges[0][0]
    starts = np.array([start for start, _ in ranges], np.int64)
    shifts = starts_of(np.array([end - start for start, end in ranges], np.int64))[:-1] - starts
    return positions + shifts[np.searchsorted(starts, positions, side="right") - 1]


def join(buffers: Sequence[pa.Buffer]) -> Bytes:
    """Buffers end to end; one alone is not copied."""
    if len(buffers) == 1:
        return buffer_view(buffers[0], np.uint8)
    out: Bytes = empty(sum(buffer.size for buffer in buffers), np.uint8)
    views: list[Any] = [np.frombuffer(buffer, np.uint8) for buffer in buffers if buffer.size]
    return np.concatenate(views, out=out) if views else out
