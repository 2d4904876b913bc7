"""Read objects that are far away: few large requests at the same time instead of many small ones in a row."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from lance_core.errors import NotFoundError
from lance_core.store.coalesce import DEFAULT_MAX_GAP, cut, plan_reads
from lance_core.store.memory import MemoryReader, copy_ranges
from lance_core.store.tasks import blocking

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    import numpy.typing as npt

    from lance_core.store.base import ObjectReader, PendingRead
    from lance_core.store.coalesce import ReadPlan

_T = TypeVar("_T")

Fetch: TypeAlias = "Callable[[Sequence[tuple[int, int]]], PendingRead[list[bytes]]]"
"""Begins to read half-open byte ranges at the same time."""

TAIL_SIZE = 1 << 16
"""Bytes at the end of an object that come with opening it: the metadata of most data files, and all of small ones."""

WHOLE_BYTES = 1 << 20
"""Objects of so many bytes are read whole when they are opened: that takes less time than another request."""

FAR_AT_ONCE = 64
"""Objects of one store that are read at the same time: enough to hide how long each answer takes."""

_ALIGNMENT, _LEAST_ALIGNMENT = 64, 16
"""Bytes: of memory that pieces are copied to, and of what may stay where the store's client has put it."""

_CHECKED_BYTES = 1000
"""Bytes of a file for each byte of its checksums, a little less than there are."""


class Deferred(Generic[_T]):
    """A read that begins when its result is wanted; see `lance_core.store.base.PendingRead`.

    Args:
        read: The read.
        is_at_hand: The bytes are in memory: no thread has to wait for them.
    """

    def __init__(self, read: Callable[[], _T], *, is_at_hand: bool = False) -> None:
        self._read = read
        self._is_at_hand = is_at_hand

    def result(self) -> _T:
        """Read."""
        return self._read() if self._is_at_hand else blocking(self._read)

    def cancel(self) -> None:
        """Do nothing: it has not begun."""


class RangeReader:
    """Random access to one object of a remote store. May be shared by threads.

    Args:
        fetch: Begins to read half-open byte ranges at the same time.
        path: Address of the object, for errors.
        size: Bytes in the object.
        tail: Its last bytes, if they are known already.
    """

    def __init__(self, fetch: Fetch, *, path: str, size: int, tail: bytes = b"") -> None:
        self._fetch = fetch
        self._path = path
        self._size = size
        self._tail_start = size - len(tail)
        self._tail = _joined(self._tail_start, size, [tail])

    @property
    def size(self) -> int:
        """Bytes in the object."""
        return self._size

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        """Read half-open byte ranges.

        Raises:
            NotFoundError: A range lies beyond the end of the object.
            OSError: The store failed.
        """
        return self.begin_ranges(ranges).result()

    def begin_ranges(self, ranges: Sequence[tuple[int, int]], /) -> PendingRead[list[pa.Buffer]]:
        """Begin to read half-open byte ranges; errors as of `read_ranges`."""
        self._check(ranges)
        plan = plan_reads([(0, 0) if start >= self._tail_start else (start, end) for start, end in ranges])
        requests = [request for span in plan.spans for request in span.requests]
        return _PendingPieces(self._fetch(requests) if requests else None, partial(self._slices, ranges, plan))

    def merged(
        self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], /
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return ranges that are cheaper to read than those given, which are ascending and apart, and hold them."""
        is_last = np.append(starts[1:] - ends[:-1] > DEFAULT_MAX_GAP, True)[: len(starts)]
        is_first = np.append(True, is_last[:-1])[: len(starts)]
        return starts[is_first], ends[is_last]

    def begin_copy(self, into: memoryview, ranges: Sequence[tuple[int, int]], /) -> PendingRead[None]:
        """Begin to copy ascending ranges, one behind the other; errors as of `read_ranges`."""
        self._check(ranges)
        missing = [(start, min(end, self._tail_start)) for start, end in ranges if start < self._tail_start]
        requests = [request for start, end in missing for request in cut(start, end)]
        target, at = np.frombuffer(into, np.uint8), sum([end - start for start, end in missing])
        tail = np.frombuffer(self._tail, np.uint8)
        for start, end in ranges:
            first = max(start, self._tail_start)
            if first < end:
                target[at : at + end - first] = tail[first - self._tail_start : end - self._tail_start]
                at += end - first
        return _PendingPieces(self._fetch(requests) if requests else None, partial(self._put, target, requests))

    def close(self) -> None:
        """Nothing is held open."""

    def _check(self, ranges: Sequence[tuple[int, int]]) -> None:
        for start, end in ranges:
            if not 0 <= start <= end <= self._size:
                raise NotFoundError(
                    f"bytes {start} to {end} are not in the object of {self._size} bytes", path=self._path
                )

    def _check_pieces(self, requests: Sequence[tuple[int, int]], pieces: Sequence[bytes]) -> None:
        """Raise ConnectionError if a request did not bring all that was asked for."""
        for (start, end), piece in zip(requests, pieces, strict=True):
            if len(piece) != end - start:
                raise ConnectionError(f"{self._path}: asked for bytes {start} to {end}, got {len(piece)}")

    def _put(self, target: npt.NDArray[np.uint8], requests: Sequence[tuple[int, int]], pieces: Sequence[bytes]) -> None:
        self._check_pieces(requests, pieces)
        _put(pieces, target)

    def _slices(self, ranges: Sequence[tuple[int, int]], plan: ReadPlan, pieces: Sequence[bytes]) -> list[pa.Buffer]:
        """Return ranges out of what a plan's requests brought, and of the end of the object."""
        self._check_pieces([request for span in plan.spans for request in span.requests], pieces)
        left = iter(pieces)
        spans = [_joined(span.start, span.end, [next(left) for _ in span.requests]) for span in plan.spans]
        return [
            self._tail.slice(max(0, start - self._tail_start), end - start)
            if number < 0
            else spans[number].slice(start - plan.spans[number].start, end - start)
            for (start, end), number in zip(ranges, plan.span_of, strict=True)
        ]


class StampedRangeReader(RangeReader):
    """As `RangeReader`, of a store that tells when an object was replaced.

    Args:
        fetch: As of `RangeReader`; likewise the next ones.
        path: Address.
        size: Bytes.
        tail: Last bytes.
        stamp: See `lance_core.store.base.StampedReader`.
    """

    def __init__(self, fetch: Fetch, *, path: str, size: int, tail: bytes, stamp: Hashable) -> None:
        super().__init__(fetch, path=path, size=size, tail=tail)
        self.stamp = stamp


class _PendingPieces(Generic[_T]):
    """Pieces of an object that are on their way, and what is made of them.

    Args:
        pieces: The pieces; None if the end of the object has all that is wanted.
        use: Is told the pieces.
    """

    def __init__(self, pieces: PendingRead[list[bytes]] | None, use: Callable[[list[bytes]], _T]) -> None:
        self._pieces = pieces
        self._use = use

    def result(self) -> _T:
        """Wait for the pieces."""
        return self._use([] if self._pieces is None else self._pieces.result())

    def cancel(self) -> None:
        """Say that nobody wants them."""
        if self._pieces is not None:
            self._pieces.cancel()


def tail_bytes(size: int, most_bytes: int) -> int:
    """Return how many bytes to read with the first request to a data file of ``size`` bytes.

    One of at most ``most_bytes`` is read whole. Checksums take a thousandth of a file and lie in front of its footer.
    """
    return max(size, TAIL_SIZE) if size <= most_bytes else TAIL_SIZE + size // _CHECKED_BYTES


def reader_of(fetch: Fetch, *, path: str, size: int, tail: bytes, stamp: Hashable) -> ObjectReader:
    """Return a reader of an object whose end was read; arguments as of `StampedRangeReader`."""
    if len(tail) == size:
        return WholeReader(tail, path)
    return StampedRangeReader(fetch, path=path, size=size, tail=tail, stamp=stamp)


class WholeReader(MemoryReader):
    """Random access to a small object that was read whole; see `lance_core.store.base.CopiedReader`.

    Args:
        data: The object.
        path: Its address, for errors.
    """

    def __init__(self, data: bytes, path: str) -> None:
        super().__init__(_joined(0, len(data), [data]), path)

    @property
    def mapped(self) -> pa.Buffer:
        """The whole object."""
        return self._buffer

    def announce(self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], /) -> None:
        """Do nothing: all is there."""

    def copy_present(self, into: memoryview, ranges: Sequence[tuple[int, int]], /) -> int:
        """Copy ranges, one behind the other; return how many, which is all."""
        self.copy(into, ranges)
        return len(ranges)

    def copy(self, into: memoryview, ranges: Sequence[tuple[int, int]], /) -> None:
        """Copy ranges, one behind the other."""
        copy_ranges(self._buffer, into, ranges)


def _joined(start: int, end: int, pieces: Sequence[bytes]) -> pa.Buffer:
    """Return consecutive bytes as one buffer; what is aligned in the object is aligned in memory.

    One piece is copied only to align it: a tenth of the CPU time of a scan went into fresh memory for 147 MB.
    """
    if len(pieces) == 1 and end - start:
        piece = pa.py_buffer(pieces[0])
        if (piece.address - start) % _LEAST_ALIGNMENT == 0:
            return piece
    shift = start % _ALIGNMENT
    memory = pa.allocate_buffer(shift + end - start)
    _put(pieces, np.frombuffer(memory, np.uint8)[shift:])
    return memory.slice(shift)


def _put(pieces: Sequence[bytes], target: npt.NDArray[np.uint8]) -> None:
    at = 0
    for piece in pieces:
        target[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
        at += len(piece)
