"""Hold what is read of a data file against its checksums, each block once for as long as the file is open.

The environment variable ``LANCE_CORE_CHECKSUMS`` says when: ``all`` (the default) for all that is read; ``scan`` for
all metadata and what is read row after row, but not for rows here and there (takes, and the other columns of what a
filter found), which are many blocks for few bytes; ``off`` never.
"""

from __future__ import annotations

import os
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np

from lance_core.encoding.distinct import distinct
from lance_core.encoding.physical.memory import aranges
from lance_core.errors import CorruptDataError, InvalidInputError
from lance_core.format.checksums import TRAILER_SIZE, SumsBuffer, crc32, decode_tail_sums, decode_trailer, find_sums

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from lance_core.encoding.values import Int64s
    from lance_core.store.base import ObjectReader

    Fetch = Callable[[int, int], memoryview]

VARIABLE = "LANCE_CORE_CHECKSUMS"

TAIL_SIZE = 1 << 16
"""Bytes read first: footer, tables and, unless the file has very many columns, all metadata."""

_PART_BYTES = 1 << 25
_SPARSE = 64


class Checking(Enum):
    """When checksums are looked at."""

    OFF = "off"
    SCAN = "scan"
    ALL = "all"


def checking() -> Checking:
    """What the environment says.

    Raises:
        InvalidInputError: Something else.
    """
    text = os.environ.get(VARIABLE, Checking.ALL.value)
    try:
        return Checking(text)
    except ValueError:
        choices = ", ".join(one.value for one in Checking)
        raise InvalidInputError(f"{VARIABLE} is one of {choices}, not {text!r}") from None


class BlockChecks:
    """The blocks of one file, and which of them are known to be good. May be shared by threads.

    Args:
        place: Where the checksums are.
        tail_sums: Those of the blocks of the tail.
        fetch: Reads a range of the file.
        size: Bytes in the file.
    """

    def __init__(self, place: SumsBuffer, tail_sums: npt.NDArray[np.uint32], fetch: Fetch, size: int) -> None:
        self._place = place
        self._fetch = fetch
        self._size = size
        self._tail_sums = tail_sums
        self._sums: npt.NDArray[np.uint32] | None = None
        self._is_good = np.zeros(place.num_blocks, np.bool_)
        self._is_good_tail = np.zeros(place.num_tail_blocks, np.bool_)

    def parts(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """What has checksums: all before them, and all behind them; each begins where a block does."""
        return (0, self._place.start), (self._place.tail_start, self._size)

    def widened(self, start: int, end: int) -> tuple[int, int]:
        """The range with all of the blocks that it touches; itself if they are known to be good."""
        place, width = self._place, self._place.block_size
        if start >= end:
            return start, end
        if end <= place.start:
            first, last = start // width, -(-end // width)
            return (start, end) if self._is_good[first:last].all() else (first * width, min(last * width, place.start))
        if start >= place.tail_start:
            base = place.tail_start
            first, last = (start - base) // width, -(-(end - base) // width)
            is_good = self._is_good_tail[first:last].all()
            return (start, end) if is_good else (base + first * width, min(base + last * width, self._size))
        if start >= place.start and end <= place.tail_start:
            return start, end  # the checksums themselves
        raise CorruptDataError("a part of the file lies across its checksums", offset=start)

    def check(self, data: memoryview, start: int) -> None:
        """Check consecutive blocks; what is known to be good is passed over.

        Args:
            data: They, from the beginning of the first to the end of the last.
            start: Where they are in the file.

        Raises:
            CorruptDataError: A block is not what was written.
        """
        place = self._place
        if not len(data) or place.start <= start < place.tail_start:
            return
        is_tail = start >= place.tail_start
        base = place.tail_start if is_tail else 0
        first = (start - base) // place.block_size
        blocks = np.arange(first, first + -(-len(data) // place.block_size))
        self._check(blocks, data, start - base, is_tail=is_tail)

    def check_spots(self, data: memoryview, starts: Int64s, ends: Int64s) -> None:
        """Check the blocks of many ranges.

        Args:
            data: The whole file.
            starts: Shape (n,), positions before the checksums.
            ends: Shape (n,).

        Raises:
            CorruptDataError: A block is not what was written.
        """
        place = self._place
        if len(starts) == 0:
            return
        if int(ends.max()) > place.start:
            raise CorruptDataError("a page reaches beyond the data of the file", offset=place.start)
        firsts = starts // place.block_size
        blocks = _union(firsts, np.maximum(-(-ends // place.block_size), firsts))
        self._check(blocks, data[: place.start], 0, is_tail=False)

    def _check(self, blocks: Int64s, data: memoryview, start: int, *, is_tail: bool) -> None:
        is_good = self._is_good_tail if is_tail else self._is_good
        blocks = blocks[~is_good[blocks]]
        if not len(blocks):
            return
        width, sums = self._place.block_size, self._tail_sums if is_tail else self._first_sums()
        places = (blocks * width - start).tolist()
        found = np.array([crc32(data[at : at + width]) for at in places], np.uint32)
        is_right = found == sums[blocks]
        if not is_right.all():
            base = self._place.tail_start if is_tail else 0
            at = base + int(blocks[np.flatnonzero(~is_right)[0]]) * width
            raise CorruptDataError(f"the file is damaged: bytes {at} and on do not match their checksum", offset=at)
        is_good[blocks] = True

    def _first_sums(self) -> npt.NDArray[np.uint32]:
        if self._sums is None:
            self._sums = self._place.decode_first(self._fetch(*self._place.first_range))
        return self._sums


def _union(starts: Int64s, ends: Int64s) -> Int64s:
    """The numbers in any of some ranges, ascending, each once."""
    low, high = int(starts.min()), int(ends.max())
    if len(starts) == 1:
        return np.arange(low, high)
    if high - low > _SPARSE * len(starts):
        return distinct(aranges(starts, ends - starts))
    depth = np.bincount(starts - low, minlength=high - low + 1) - np.bincount(ends - low, minlength=high - low + 1)
    return low + np.flatnonzero(np.cumsum(depth))


def open_checks(tail: memoryview, size: int, fetch: Fetch) -> BlockChecks | None:
    """Find the checksums of a file and check what was read of its tail.

    Args:
        tail: End of the file.
        size: Bytes in the file.
        fetch: Reads a range of the file.

    Returns:
        None if the file has no checksums.

    Raises:
        CorruptDataError: The tail is not what was written, or the checksums are damaged.
    """
    found = find_sums(tail, size)
    if found is None:
        return None
    tail_start = size - len(tail)

    def part(start: int, end: int) -> memoryview:
        return tail[start - tail_start : end - tail_start] if start >= tail_start else fetch(start, end)

    end = found[1]
    place = decode_trailer(part(end - TRAILER_SIZE, end), found, size)
    if place is None:
        return None
    tail_sums = decode_tail_sums(part(end - TRAILER_SIZE - 4 * place.num_tail_blocks, end), place)
    checks = BlockChecks(place, tail_sums, part, size)
    first = max(0, -(-(tail_start - place.tail_start) // place.block_size))
    known = place.tail_start + first * place.block_size
    checks.check(tail[known - tail_start :], known)
    return checks


def has_checksums(source: ObjectReader) -> bool:
    """Whether a data file has checksums; errors as in `check_file`."""
    return _open(source) is not None


def check_file(source: ObjectReader) -> bool:
    """Hold all bytes of a data file against its checksums, whatever the environment says.

    Args:
        source: The file.

    Returns:
        False if it has none.

    Raises:
        CorruptDataError: A byte is not what was written.
    """
    checks = _open(source)
    if checks is None:
        return False
    for start, end in checks.parts():
        for at in range(start, end, _PART_BYTES):
            stop = min(at + _PART_BYTES, end)
            checks.check(memoryview(source.read_ranges([(at, stop)])[0]), at)
    return True


def _open(source: ObjectReader) -> BlockChecks | None:
    def fetch(start: int, end: int) -> memoryview:
        return memoryview(source.read_ranges([(start, end)])[0])

    return open_checks(fetch(max(0, source.size - TAIL_SIZE), source.size), source.size, fetch)
