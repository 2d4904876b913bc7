# Plain strings and os: pathlib costs microseconds per call on the path of every read.
# ruff: noqa: PTH116
"""Files on the local file system, mapped into memory."""

from __future__ import annotations

import errno
import os
import stat
from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.errors import CorruptDataError, NotFoundError
from lance_core.store.memory import copy_ranges
from lance_core.store.range_reader import WholeReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    Int64s = npt.NDArray[np.int64]
    Stamp = tuple[int, int, int, int]

_CAN_ADVISE = hasattr(os, "posix_fadvise")
_CAN_COPY = hasattr(os, "preadv")
_CAN_ASK = hasattr(os, "RWF_NOWAIT")
_NEAR = 1 << 12
"""Ranges with no more between them are announced to the kernel as one: more pages cost more than another request."""
_MANY, _SAMPLE = 64, 16
"""Of so many ranges some are looked for, which takes a tenth of the time that it takes to announce all of them."""
_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_READ_ONLY = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)  # does not wait for a FIFO
_MAX_PLAIN_RANGES = 32
"""So few are put together in plain numbers, which takes a quarter to half of the time."""


class _Descriptors:
    """Files whose descriptors are open and idle; the least recently used are closed when there are too many.

    A mapping outlives its descriptor, which only serves to announce and to copy ranges. Who uses a file pops it from
    ``idle``, so that nobody closes it meanwhile, and puts it back; without it there is still the mapping. Single calls
    of OrderedDict are atomic in CPython: a lock could be asked for again by a garbage collection inside of it.

    Args:
        capacity: Descriptors to keep open in this process; each thread that uses one may add one more.

    Attributes:
        idle: Files by the ``id`` of their reader.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self.idle: OrderedDict[int, pa.MemoryMappedFile] = OrderedDict()

    def open(self, path: str) -> pa.MemoryMappedFile:
        """Map a file; if the process may have no more descriptors, close the idle ones first."""
        self._shrink(self._capacity - 1)
        try:
            return pa.memory_map(path)
        except OSError as error:
            if error.errno not in {errno.EMFILE, errno.ENFILE} or not self.idle:
                raise
            self._shrink(0)
            return pa.memory_map(path)

    def _shrink(self, capacity: int) -> None:
        while len(self.idle) > capacity:
            try:
                _, oldest = self.idle.popitem(last=False)
            except KeyError:  # another thread took the last one
                return
            oldest.close()


_DESCRIPTORS = _Descriptors(128)
"""Twice the files that a dataset keeps open; many systems allow a process 256 or 1,024 descriptors."""
_IDLE = _DESCRIPTORS.idle


class LocalReader:
    """A file mapped into memory: what is read is a view, not a copy. May be shared by threads.

    The number of open descriptors does not grow with the number of readers; see `_Descriptors`.

    Args:
        path: Absolute path.

    Raises:
        NotFoundError: There is no such file.
        CorruptDataError: A directory, FIFO, socket or device is in its place.
    """

    def __init__(self, path: str) -> None:
        self._key = 0  # of no reader, in case that this one is not made
        try:
            check_regular(os.stat(path).st_mode, path)  # to open a FIFO would wait for who writes to it
            # Arrow's mapping, not Python's: its views live on when the file is closed, without a descriptor each.
            file = _DESCRIPTORS.open(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFoundError("there is no such file", path=path) from error
        self._size: int = file.size()
        self._path = path
        self._mapped = _whole(file, self._size)
        self._stamp = _stamp_of(os.fstat(file.fileno()))
        self._key = id(self)
        _IDLE[self._key] = file

    def __del__(self) -> None:
        self.close()

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self._size

    @property
    def mapped(self) -> pa.Buffer:
        """The whole file."""
        return self._mapped

    @property
    def stamp(self) -> Stamp:
        """Identity and time of the last change of the file."""
        return self._stamp

    def announce(self, starts: Int64s, ends: Int64s, /) -> None:
        """Let the kernel fetch ranges, without waiting."""
        file = _IDLE.pop(self._key, None) if len(starts) else None
        if file is None:
            return
        try:
            descriptor, ranges = file.fileno(), _merged(starts, ends)
            if len(ranges) < _MANY or not _seem_present(descriptor, ranges):
                _will_need(descriptor, ranges)
        finally:
            _IDLE[self._key] = file

    def copy_present(self, into: memoryview, ranges: Sequence[tuple[int, int]], /) -> int:
        """Copy ranges that are in memory, one behind the other, as far as the first that is not; how many."""
        file = _IDLE.pop(self._key, None) if _CAN_ASK else None
        if file is None:
            return 0
        try:
            return _copy_present(file.fileno(), into, ranges)
        finally:
            _IDLE[self._key] = file

    def copy(self, into: memoryview, ranges: Sequence[tuple[int, int]], /) -> None:
        """Copy ranges, one behind the other.

        Raises:
            NotFoundError: The file ends before that.
        """
        file = _IDLE.pop(self._key, None) if _CAN_COPY else None
        if file is None:
            copy_ranges(self._mapped, into, ranges)
            return
        try:
            at = 0
            for start, end in ranges:
                stop = at + end - start
                if not _filled(file.fileno(), into[at:stop], start):
                    raise NotFoundError(f"the file of {self._size} bytes ends before byte {end}", path=self._path)
                at = stop
        finally:
            _IDLE[self._key] = file

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        """Views of half-open byte ranges.

        Raises:
            NotFoundError: A range lies beyond the end of the file.
        """
        for start, end in ranges:
            if not 0 <= start <= end <= self._size:
                raise NotFoundError(
                    f"bytes {start} to {end} are not in the file of {self._size} bytes", path=self._path
                )
        file = _IDLE.pop(self._key, None)
        if file is not None:
            try:
                _will_need(file.fileno(), ranges)
            finally:
                _IDLE[self._key] = file
        return [self._mapped.slice(start, end - start) for start, end in ranges]

    def close(self) -> None:
        """Let go of the file; it stays mapped as long as views of it exist."""
        file = _IDLE.pop(self._key, None)
        if file is not None:
            file.close()


class SmallFile(WholeReader):
    """A small file that was read whole, which takes a quarter of the time of mapping it. May be shared by threads.

    Args:
        data: Its content.
        path: Absolute path.
        stamp: Identity and time of the last change of the file.
    """

    def __init__(self, data: bytes, path: str, stamp: Stamp) -> None:
        super().__init__(data, path)
        self.stamp = stamp


def read_small(path: str, most_bytes: int) -> SmallFile | LocalReader:
    """Read a file of at most ``most_bytes`` whole; one that is larger is mapped, or whatever else is in its place.

    Args:
        path: Absolute path.
        most_bytes: Bytes that are read.

    Raises:
        NotFoundError, CorruptDataError: As `LocalReader`.
    """
    try:
        descriptor = os.open(path, _READ_ONLY)
    except OSError:  # no such file, or too many open ones
        return LocalReader(path)
    try:
        status = os.fstat(descriptor)
        size = status.st_size
        data = os.read(descriptor, size) if stat.S_ISREG(status.st_mode) and size <= most_bytes else None
    finally:
        os.close(descriptor)
    return LocalReader(path) if data is None or len(data) < size else SmallFile(data, path, _stamp_of(status))


def _stamp_of(status: os.stat_result) -> Stamp:
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def _whole(file: pa.MemoryMappedFile, size: int) -> pa.Buffer:
    if not size:
        return pa.py_buffer(b"")
    # Arrow asks the kernel to fetch all that it gives out, so it gives out one byte, which keeps the mapping alive.
    file.seek(0)
    first = file.read_buffer(1)
    return pa.foreign_buffer(first.address, size, base=first)


def check_regular(mode: int, path: str) -> None:
    """Refuse what is no regular file.

    Args:
        mode: What the system says of it.
        path: Its path, for the error.

    Raises:
        CorruptDataError: A directory, FIFO, socket or device.
    """
    if not stat.S_ISREG(mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "something else")
        raise CorruptDataError(f"expected a file, found {kind}", path=path)


def _will_need(descriptor: int, ranges: Iterable[tuple[int, int]]) -> None:
    """Ask the kernel to fetch half-open ranges; where it cannot be asked, they come when they are looked at."""
    if not _CAN_ADVISE:
        return
    advise, fetch = os.posix_fadvise, os.POSIX_FADV_WILLNEED  # looked up once: there may be thousands of ranges
    for start, end in ranges:
        if end > start:  # no size would mean all that follows
            advise(descriptor, start, end - start, fetch)


def _seem_present(descriptor: int, ranges: Sequence[tuple[int, int]]) -> bool:
    """Return whether some of many ranges are in memory, as far as the system tells."""
    if not _CAN_ASK:
        return False
    read, flags, into = os.preadv, os.RWF_NOWAIT, (bytearray(1),)
    try:
        return all(read(descriptor, into, start, flags) for start, _ in ranges[:: len(ranges) // _SAMPLE])
    except OSError:
        return False


def _copy_present(descriptor: int, into: memoryview, ranges: Sequence[tuple[int, int]]) -> int:
    read, flags, at = os.preadv, os.RWF_NOWAIT, 0  # looked up once: there may be thousands of ranges
    for number, (start, end) in enumerate(ranges):
        stop = at + end - start
        try:
            count = read(descriptor, (into[at:stop],), start, flags)
        except OSError:  # not there, or a file system that cannot tell; who waits for it is told of errors
            return number
        if count < end - start:
            return number
        at = stop
    return len(ranges)


def _filled(descriptor: int, into: memoryview, start: int) -> bool:
    """Fill memory from a file; False if it ends before."""
    left = into
    while left:
        count = os.preadv(descriptor, (left,), start)
        if not count:
            return False
        left, start = left[count:], start + count
    return True


def _merged(starts: Int64s, ends: Int64s) -> list[tuple[int, int]]:
    """Ranges that lie close together as one; at least one."""
    if len(starts) <= _MAX_PLAIN_RANGES:
        (low, high), *others = sorted(zip(starts.tolist(), ends.tolist(), strict=True))
        merged: list[tuple[int, int]] = []
        for start, end in others:
            if start - high > _NEAR:
                merged.append((low, high))
                low, high = start, end
            high = max(high, end)
        return [*merged, (low, high)]
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    breaks = np.flatnonzero(starts[1:] - reach[:-1] > _NEAR) + 1
    low, high = starts[np.append(0, breaks)], reach[np.append(breaks - 1, len(reach) - 1)]
    return list(zip(low.tolist(), high.tolist(), strict=True))
