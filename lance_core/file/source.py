"""The bytes of one data file, the end of which is read when it is opened."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from lance_core.encoding.plans import ByteRanges, RangeBuffers, result_of
from lance_core.errors import CorruptDataError
from lance_core.file.blame import Blame
from lance_core.file.integrity import TAIL_SIZE, Checking, checking, open_checks
from lance_core.file.scattered import CopiedFile, ScatteredRead, copied_ranges, in_order
from lance_core.store.base import AheadReader, MappedReader, StampedReader, offers
from lance_core.store.io_coroutines import finished
from lance_core.store.range_reader import Deferred, WholeReader

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    import pyarrow as pa

    from lance_core.encoding.plans import Ranges, ReadPlan
    from lance_core.encoding.values import Int64s
    from lance_core.file.integrity import BlockChecks
    from lance_core.store.base import ObjectReader, PendingRead
    from lance_core.store.io_coroutines import IoCoroutine

_T = TypeVar("_T")

Answer: TypeAlias = "Callable[[Sequence[tuple[int, int] | ByteRanges]], list[Any]]"
"""Answers what `lance_core.encoding.plans.ReadPlan` ask for."""

_Bounds: TypeAlias = "tuple[Int64s, Int64s]"
_NOTHING: _Bounds = (np.empty(0, np.int64), np.empty(0, np.int64))


class FileBytes:
    """A file whose end is at hand.

    Args:
        source: The file.
        when: When checksums are looked at; as the environment says if None.
        is_announced: `announce_end` has asked for its end.

    Attributes:
        tail: The end of the file.
        content: The whole file if it has been read and is what was written; None otherwise.
    """

    def __init__(self, source: ObjectReader, *, when: Checking | None = None, is_announced: bool = False) -> None:
        self._source = source
        end = source.size
        self._tail_start = max(0, end - TAIL_SIZE)
        self._mapped = source if offers(source, MappedReader, "mapped") else None
        self._is_read = end <= TAIL_SIZE and isinstance(source, WholeReader)
        if self._mapped is not None and is_announced:
            self.tail: pa.Buffer = self._mapped.mapped.slice(self._tail_start)
        else:
            self.tail = self._source.read_ranges([(self._tail_start, end)])[0]
        self._checking = checking() if when is None else when
        self._checks: BlockChecks | None = None
        if self._checking is not Checking.OFF:
            self._checks = open_checks(memoryview(self.tail), end, self._fetch_one, is_whole=self._is_read)
        is_checked = self._checks is None or self._checks.is_done
        self.content: pa.Buffer | None = self.tail if self._is_read and is_checked else None

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self._source.size

    @property
    def end(self) -> pa.Buffer:
        """The end of the file as far as it has been read and is what was written; all of the file if that is so."""
        if self.content is not None:
            return self.content
        return self.tail if self._checks is None else self.tail.slice(self._checks.good_from - self._tail_start)

    @property
    def checks(self) -> BlockChecks | None:
        """The checksums; None if there are none, or nobody wants to know."""
        return self._checks

    @property
    def may_have_checks(self) -> bool:
        """Return whether there are checksums, or nobody has looked for them."""
        return self._checks is not None or self._checking is Checking.OFF

    @property
    def identity(self) -> Hashable | None:
        """The same as long as the content of the file is; None if nothing tells.

        What tells are the checksums in its end, and when it was changed: bytes that nobody reads again may be damaged.
        """
        if self._checks is None or not offers(self._source, StampedReader, "stamp"):
            return None
        return self._source.stamp, self._checks.content

    def fetch(self, ranges: Ranges) -> list[pa.Buffer]:
        """Ranges of the metadata, most of which came with the first read.

        Raises:
            CorruptDataError: They are not what was written.
        """
        content = self.content
        if content is not None:
            return [content.slice(start, end - start) for start, end in ranges]
        first, size = self._tail_start if self._checks is None else self._checks.good_from, self.size
        if all(first <= start <= end <= size for start, end in ranges):  # not of a file with very many columns
            return [self.tail.slice(start - self._tail_start, end - start) for start, end in ranges]
        return self._checked(ranges, self._fetch)

    def read(self, ranges: Ranges) -> list[pa.Buffer]:
        """Ranges of the data; errors as `fetch`."""
        return self._checked(ranges, self._source.read_ranges)

    def begin(self, ranges: Ranges, *, is_scan: bool = True) -> PendingRead[list[pa.Buffer]]:
        """Begin to read ranges of the data; errors as `fetch`.

        Args:
            ranges: Positions in the file.
            is_scan: False if single rows are wanted.
        """
        if self._mapped is not None:
            return Deferred(partial(self.read, ranges), is_at_hand=True)
        source, blocks = self._source, _Blocks(ranges, self._checks_of(is_scan=is_scan))
        if offers(source, AheadReader, "begin_ranges"):
            return _CheckedRead(blocks, source.begin_ranges(blocks.once))
        return _CheckedRead(blocks, Deferred(partial(source.read_ranges, blocks.once)))

    def announce(self, ranges: Ranges) -> None:
        """Ask for ranges of a mapped file that are about to be read."""
        if self._mapped is not None and ranges and not self._is_read:
            self._announce(self._mapped, ranges, self._checks)

    def copied(self) -> CopiedFile:
        """Return what ranges are copied of for single rows."""
        return CopiedFile(self._source, self._checks_of(is_scan=False))

    @property
    def is_mapped(self) -> bool:
        """Return whether the whole file is at hand, so that nothing has to be copied."""
        return self._mapped is not None

    def run(self, coroutine: ReadPlan[_T], *, is_scan: bool = True, answer: Answer | None = None) -> _T:
        """Read what a decoder asks for, until it has its result.

        Args:
            coroutine: The decoder.
            is_scan: False if it is after single rows.
            answer: Has the bytes, or fetches them; the file itself does if None.

        Raises:
            CorruptDataError: What was read is not what was written.
        """
        if answer is None:
            return finished(self.reading(coroutine, is_scan=is_scan))
        return result_of(coroutine, answer)

    def reading(self, coroutine: ReadPlan[_T], *, is_scan: bool) -> IoCoroutine[_T]:
        """As `run`, but stops where a mapped file was asked for something."""
        source, content = self._mapped, self.content
        try:
            wanted = next(coroutine)
            while True:
                if content is not None:
                    buffers = [self._part(content, request) for request in wanted]
                elif source is None:
                    buffers = self.answer(wanted, is_scan=is_scan)
                else:
                    checks = self._checks_of(is_scan=is_scan)
                    bounds = self._announce(source, wanted, checks)
                    yield
                    buffers = self._look(source, wanted, bounds, checks)
                wanted = coroutine.send(buffers)
        except StopIteration as stop:
            return stop.value

    def answer(self, wanted: Sequence[tuple[int, int] | ByteRanges], *, is_scan: bool) -> list[Any]:
        """Return buffers for ranges, and one memory for scattered ones; all are asked for at the same time.

        Args:
            wanted: What `lance_core.encoding.plans.ReadPlan` ask for.
            is_scan: False if single rows are wanted.

        Raises:
            CorruptDataError: A range lies beyond the end of the file, or is not what was written.
        """
        ranges = [request for request in wanted if not isinstance(request, ByteRanges)]
        scattered = [request for request in wanted if isinstance(request, ByteRanges)]
        reading = self.begin(ranges, is_scan=is_scan) if ranges else None
        copying = ScatteredRead(copied_ranges([self.copied()], *in_order(scattered))) if scattered else None
        buffers = iter(reading.result() if reading else [])
        copied = copying.result() if copying else None
        return [copied if isinstance(request, ByteRanges) else next(buffers) for request in wanted]

    def _fetch(self, ranges: Ranges) -> list[pa.Buffer]:
        missing = [bounds for bounds in ranges if bounds[0] < self._tail_start]
        read = iter(self._source.read_ranges(missing) if missing else [])
        return [
            next(read) if start < self._tail_start else self.tail.slice(start - self._tail_start, end - start)
            for start, end in ranges
        ]

    def _fetch_one(self, start: int, end: int) -> memoryview:
        return memoryview(self._source.read_ranges([(start, end)])[0])

    def _checked(self, ranges: Ranges, read: Callable[[Ranges], list[pa.Buffer]]) -> list[pa.Buffer]:
        checks = self._checks
        if checks is None or checks.is_done:
            return read(ranges)
        if self._mapped is not None:
            starts, ends = np.array(ranges, np.int64).reshape(-1, 2).T
            low, high = checks.spread(starts, ends)
            buffers = read(list(zip(low.tolist(), high.tolist(), strict=True)))
            checks.check(memoryview(self._mapped.mapped), starts, ends)
            inside = zip(buffers, (starts - low).tolist(), (ends - starts).tolist(), strict=True)
            return [buffer.slice(offset, size) for buffer, offset, size in inside]
        blocks = _Blocks(ranges, checks)
        return blocks.inside(read(blocks.once))

    def _checks_of(self, *, is_scan: bool) -> BlockChecks | None:
        return self._checks if is_scan or self._checking is Checking.ALL else None

    def _announce(
        self, source: MappedReader, wanted: Sequence[tuple[int, int] | ByteRanges], checks: BlockChecks | None
    ) -> tuple[_Bounds, _Bounds]:
        """Ask for what is wanted; return where the ranges begin and end."""
        ranges = [request for request in wanted if not isinstance(request, ByteRanges)]
        scattered = [request for request in wanted if isinstance(request, ByteRanges)]
        starts, ends = np.array(ranges, np.int64).T if ranges else _NOTHING
        bounds = (starts, ends), _joined(scattered)
        for (starts, ends), checks_of_range in zip(bounds, (self._checks, checks), strict=True):
            if not len(starts):
                continue
            self._check_bounds(starts, ends)
            # Whole blocks are looked at: what is not announced would be waited for, block after block.
            source.announce(*((starts, ends) if checks_of_range is None else checks_of_range.spread(starts, ends)))
        return bounds

    def _part(self, content: pa.Buffer, wanted: tuple[int, int] | ByteRanges) -> pa.Buffer | RangeBuffers:
        """Return what is wanted of the whole file."""
        if isinstance(wanted, ByteRanges):
            self._check_bounds(wanted.starts, wanted.ends)
            return RangeBuffers(np.frombuffer(content, np.uint8))
        return self._source.read_ranges([wanted])[0]

    def _check_bounds(self, starts: Int64s, ends: Int64s) -> None:
        if len(starts) and (starts.min() < 0 or ends.max() > self.size or (ends < starts).any()):
            raise CorruptDataError(f"a page reaches beyond the end of the file of {self.size} bytes")

    def _look(
        self,
        source: MappedReader,
        wanted: Sequence[tuple[int, int] | ByteRanges],
        bounds: tuple[_Bounds, _Bounds],
        checks: BlockChecks | None,
    ) -> list[Any]:
        """Return what is wanted; see `_announce`."""
        mapped = source.mapped
        for (starts, ends), checks_of_range in zip(bounds, (self._checks, checks), strict=True):
            if checks_of_range is not None and len(starts):
                checks_of_range.check(memoryview(mapped), starts, ends)
        whole_file = RangeBuffers(np.frombuffer(mapped, np.uint8))
        return [
            whole_file if isinstance(request, ByteRanges) else mapped.slice(request[0], request[1] - request[0])
            for request in wanted
        ]


class _Blocks:
    """The blocks that ranges touch, which are held against their checksums.

    Args:
        ranges: What is wanted.
        checks: The checksums; None if there are none.

    Attributes:
        once: Each block, or run of blocks, once: small ranges may lie in the same ones.
    """

    def __init__(self, ranges: Ranges, checks: BlockChecks | None) -> None:
        self._ranges = ranges
        self._checks = checks
        self._wide = ranges if checks is None else [checks.widened(start, end) for start, end in ranges]
        self.once = list(dict.fromkeys(self._wide))

    def inside(self, read: list[pa.Buffer]) -> list[pa.Buffer]:
        """Return the ranges out of the bytes of `once`."""
        buffers = dict(zip(self.once, read, strict=True))
        if self._checks is not None:
            for (start, end), buffer in buffers.items():
                self._checks.check(memoryview(buffer), np.array([start]), np.array([end]), at=start)
        return [
            buffers[whole] if asked == whole else buffers[whole].slice(asked[0] - whole[0], asked[1] - asked[0])
            for asked, whole in zip(self._ranges, self._wide, strict=True)
        ]


class _CheckedRead:
    """Blocks on their way; see `lance_core.store.base.PendingRead`."""

    def __init__(self, blocks: _Blocks, pending: PendingRead[list[pa.Buffer]]) -> None:
        self._blocks = blocks
        self._pending = pending

    def result(self) -> list[pa.Buffer]:
        """Wait for the ranges."""
        return self._blocks.inside(self._pending.result())

    def cancel(self) -> None:
        """Say that nobody wants the ranges."""
        self._pending.cancel()


def _joined(scattered: Sequence[ByteRanges]) -> _Bounds:
    if len(scattered) == 1:
        return scattered[0].starts, scattered[0].ends
    if not scattered:
        return _NOTHING
    return np.concatenate([ranges.starts for ranges in scattered]), np.concatenate(
        [ranges.ends for ranges in scattered]
    )


def read_end(source: ObjectReader, *, path: str, is_announced: bool = False) -> FileBytes:
    """Read the end of a file; arguments and errors as of `lance_core.file.read.reader.DataFileReader`."""
    with Blame(path):
        return FileBytes(source, is_announced=is_announced)


def announce_end(source: ObjectReader) -> bool:
    """Ask for the end of a file, which is read when it is opened; False if there is no need to."""
    size = source.size
    if isinstance(source, WholeReader) or not offers(source, MappedReader, "mapped"):
        return False
    source.announce(np.array([max(0, size - TAIL_SIZE)]), np.array([size]))
    return True


class CheckedReader:
    """A data file of which others want ranges, such as blobs; see `lance_core.store.base.ObjectReader`.

    Ranges are held against the checksums of the file, if it has some.

    Args:
        source: The file.
        path: Its name, for error messages.
    """

    def __init__(self, source: ObjectReader, *, path: str) -> None:
        self._source = source
        self._path = path
        self._file = FileBytes(source) if checking() is Checking.ALL else None

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self._source.size

    @property
    def file(self) -> FileBytes | None:
        """The file with its checksums; None if nobody wants to know."""
        return self._file

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        """Half-open ranges of the file.

        Raises:
            CorruptDataError: They are not what was written.
        """
        if self._file is None:
            return self._source.read_ranges(ranges)
        try:
            return self._file.read(list(ranges))
        except CorruptDataError as error:
            error.path = error.path or self._path
            raise

    def close(self) -> None:
        """Release the file."""
        self._source.close()
