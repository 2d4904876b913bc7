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

from lance_core.encoding.kernels import aranges, distinct, starts_of
from lance_core.errors import CorruptDataError, InvalidInputError
from lance_core.format.file.checksums import (
    TRAILER_SIZE,
    SumsBuffer,
    crc32,
    decode_tail_sums,
    decode_trailer,
    find_sums,
    join_sums,
)

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

_MAX_SCALAR_RANGES, _MAX_SCALAR_BLOCKS = 32, 64
"""Blocks of up to so many are looked up in plain numbers: an array operation costs as much as several."""

_MAX_SEPARATE_BLOCKS = 8
"""Up to so many blocks are checked one by one: an array operation costs as much as a checksum."""

_RUN_BYTES = 1 << 18
_MANY_RUNS = 8
"""From the blocks of so many runs on, runs are held against what the checksums of their blocks make together: one call
goes through 256 KiB half as fast again as many through 16 KiB. A run that does not fit is looked at block by block."""


class Checking(Enum):
    """Time at which checksums are verified."""

    OFF = "off"
    SCAN = "scan"
    ALL = "all"


def checking() -> Checking:
    """Return the time at which checksums are verified, from the environment.

    Raises:
        InvalidInputError: Something else.
    """
    text = os.environ.get(VARIABLE)
    mode = Checking.ALL if text is None else _MODES.get(text)
    if mode is None:
        raise InvalidInputError(f"{VARIABLE} is one of {', '.join(_MODES)}, not {text!r}")
    return mode


_MODES = {mode.value: mode for mode in Checking}


class BlockChecks:
    """The blocks of one file, and which of them are known to be good. May be shared by threads.

    Blocks are numbered from the first before the checksums to the last behind them.

    Args:
        place: Where the checksums are.
        tail_sums: Those of the blocks of the tail.
        fetch: Reads a range of the file.
        size: Bytes in the file.

    Attributes:
        is_done: All blocks are known to be good.
        good_from: Position from which on the file was good when it was opened.
    """

    def __init__(self, section: SumsBuffer, tail_sums: npt.NDArray[np.uint32], fetch: Fetch, size: int) -> None:
        self._section = section
        self._fetch = fetch
        self._size = size
        self._tail_sums = tail_sums
        self._checksums: npt.NDArray[np.uint32] | None = None
        self._shift = section.tail_start - section.num_blocks * section.block_size
        self._is_good = np.zeros(section.num_blocks + section.num_tail_blocks, np.bool_)
        self.is_done = False
        self.good_from = size

    @property
    def content(self) -> tuple[int, int, int, bytes]:
        """Return the identity of the file's content: its size, the location and checksum of its checksums, its tail."""
        return self._size, self._section.start, self._section.first_sum, self._tail_sums.tobytes()

    def parts(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Return the two parts that have checksums: before them, and behind them; each begins where a block does."""
        return (0, self._section.start), (self._section.tail_start, self._size)

    def check_all(self, data: memoryview) -> None:
        """Check all blocks of a file that is at hand; nothing is known of any if one of them is damaged."""
        section, width = self._section, self._section.block_size
        expected = [*section.decode_first(self._fetch(*section.first_range)).tolist(), *self._tail_sums.tolist()]
        starts = [*range(0, section.start, width), *range(section.tail_start, self._size, width)]
        ends = [min(start + width, section.start if start < section.start else self._size) for start in starts]
        actual = [crc32(data[start:end]) for start, end in zip(starts, ends, strict=True)]
        self.is_done = actual == expected
        self._is_good[:] = self.is_done

    def widened(self, start: int, end: int) -> tuple[int, int]:
        """Return the range with all of the blocks that it touches; itself if they are known to be good."""
        section, width = self._section, self._section.block_size
        if start >= end or (start >= section.start and end <= section.tail_start):
            return start, end  # nothing, or the checksums themselves
        shift, limit = (self._shift, self._size) if start >= section.tail_start else (0, section.start)
        if end > limit:
            raise self._not_covered(start)
        first, last = (start - shift) // width, -(-(end - shift) // width)
        if self._is_good[first:last].all():
            return start, end
        return first * width + shift, min(last * width + shift, limit)

    def spread(self, starts: Int64s, ends: Int64s) -> tuple[Int64s, Int64s]:
        """Return the ranges that `check` will read, widened to whole blocks, and their offsets before the checksums.

        Args:
            starts: Shape (n,), positions in the file.
            ends: Shape (n,).
        """
        width, limit = self._section.block_size, self._section.start
        is_before = ends <= limit
        return (
            np.where(is_before, starts // width * width, starts),
            np.where(is_before, np.minimum(-(-ends // width) * width, limit), ends),
        )

    def spread_unknown(self, starts: Int64s, ends: Int64s) -> tuple[Int64s, Int64s]:
        """As `spread`, but ranges all of whose blocks are known to be good stay as they are."""
        low, high = self.spread(starts, ends)
        if not len(starts) or not self._is_good.any():
            return low, high
        width = self._section.block_size
        firsts, lasts = low // width, -(-high // width)
        base, end = int(firsts.min()), int(lasts.max())
        num_good = starts_of(self._is_good[base:end])
        is_good = num_good[lasts - base] - num_good[firsts - base] == lasts - firsts
        return np.where(is_good, starts, low), np.where(is_good, ends, high)

    def check(self, data: memoryview, starts: Int64s, ends: Int64s, *, at: int = 0) -> None:
        """Check all blocks that some ranges touch; what is known to be good is passed over.

        Args:
            data: Holds these blocks.
            starts: Shape (n,), positions in the file.
            ends: Shape (n,).
            at: Where in the file ``data`` begins.

        Raises:
            CorruptDataError: A block is not what was written, or a range lies elsewhere.
        """
        if len(starts) <= _MAX_SCALAR_RANGES:
            blocks_touched = self._touched(starts.tolist(), ends.tolist())
            if blocks_touched is not None:
                self._check_few(blocks_touched, data, at)
                return
        section = self._section
        if int(ends.max()) > section.start:  # of the tail, or of the checksums themselves
            is_tail, is_sums = starts >= section.tail_start, (starts >= section.start) & (ends <= section.tail_start)
            limits = np.where(is_tail, self._size, section.start)
            is_wrong = (ends > limits) & ~is_sums
            if is_wrong.any():
                raise self._not_covered(int(starts[is_wrong][0]))
            shifts = np.where(is_tail, self._shift, 0)
            starts, ends = (starts - shifts)[~is_sums], (ends - shifts)[~is_sums]
            if not len(starts):
                return
        firsts = starts // section.block_size
        blocks = _union(firsts, np.where(ends > starts, -(-ends // section.block_size), firsts))
        blocks = blocks[~self._is_good[blocks]]
        if len(blocks):
            self._check_blocks(blocks, data, at)

    def check_copies(self, data: memoryview, starts: Int64s, ends: Int64s) -> None:
        """Check the blocks of ranges that were copied, one behind the other.

        Args:
            data: The copies.
            starts: Shape (n,), positions in the file: ascending, and from `spread` or `spread_unknown`; a range that
                does not begin or end with a block begins or ends in one that is known to be good.
            ends: Shape (n,).

        Raises:
            CorruptDataError: A block is not what was written, or a range lies elsewhere.
        """
        section, width = self._section, self._section.block_size
        if not len(starts):
            return
        if int(ends[-1]) > section.start:
            raise self._not_covered(int(starts[-1]))
        counts = -(-(ends - starts) // width)
        blocks = aranges(starts // width, counts)
        begins = blocks * width + np.repeat(starts_of(ends - starts)[:-1] - starts, counts)  # where the copies are
        is_good = self._is_good[blocks]
        if is_good.any():
            blocks, begins = blocks[~is_good], begins[~is_good]
        if not len(blocks):
            return
        is_wrong = self._differ(blocks, begins, begins + np.minimum(width, section.start - blocks * width), data)
        if is_wrong.any():
            raise _damaged(int(blocks[is_wrong][0]) * width)
        self._is_good[blocks] = True

    def _touched(self, starts: list[int], ends: list[int]) -> list[int] | None:
        """Blocks that a few ranges touch and that are not known to be good, ascending; None if they touch many."""
        section, width = self._section, self._section.block_size
        blocks: list[int] = []
        for start, end in zip(starts, ends, strict=True):
            shift, limit = (self._shift, self._size) if start >= section.tail_start else (0, section.start)
            if end > limit:
                if start >= section.start and end <= section.tail_start:
                    continue  # the checksums themselves
                raise self._not_covered(start)
            if start < end:
                last = -(-(end - shift) // width)
                blocks += range((start - shift) // width, last)
            if len(blocks) > _MAX_SCALAR_BLOCKS:
                return None
        is_good = self._is_good
        return sorted({block for block in blocks if not is_good[block]})

    def _check_few(self, blocks: list[int], data: memoryview, at: int) -> None:
        if len(blocks) > _MAX_SEPARATE_BLOCKS:
            self._check_blocks(np.array(blocks), data, at)
            return
        for block in blocks:
            self._check_block(block, data, at)

    def _check_block(self, block: int, data: memoryview, at: int) -> None:
        section = self._section
        begin = block * section.block_size + (0 if block < section.num_blocks else self._shift)
        end = min(begin + section.block_size, section.start if begin < section.start else self._size)
        if crc32(data[begin - at : end - at]) != int(self._sums_of(np.array([block]))[0]):
            raise _damaged(begin)
        self._is_good[block] = True

    def _check_blocks(self, blocks: Int64s, data: memoryview, at: int) -> None:
        section, width = self._section, self._section.block_size
        begins = np.where(blocks < section.num_blocks, blocks * width, blocks * width + self._shift)
        limits = np.where(begins < section.start, section.start, self._size)
        is_wrong = self._differ(blocks, begins - at, np.minimum(begins + width, limits) - at, data)
        if is_wrong.any():
            raise _damaged(int(begins[is_wrong][0]))
        self._is_good[blocks] = True

    def _differ(self, blocks: Int64s, starts: Int64s, ends: Int64s, data: memoryview) -> npt.NDArray[np.bool_]:
        """Return a mask of the blocks that do not match their checksums.

        Args:
            blocks: Shape (n,), ascending.
            starts: Shape (n,), where they begin in ``data``: consecutive whole blocks follow one another there.
            ends: Shape (n,).
            data: Holds them.
        """
        checksums, width = self._sums_of(blocks), self._section.block_size
        is_single = np.ones(len(blocks), np.bool_)
        num_whole = int(blocks.searchsorted(self._section.start // width))
        run = _blocks_of_run(width)
        if num_whole >= _MANY_RUNS * run > _MANY_RUNS:
            firsts = _runs(blocks[:num_whole], run)
            if len(firsts):  # scattered rows have none
                runs = firsts[:, None] + np.arange(run)
                joined = _sums_in(data, starts[firsts], starts[firsts] + run * width)
                is_single[runs[joined == join_sums(checksums[runs], width)]] = False
        is_wrong = np.zeros(len(blocks), np.bool_)
        is_wrong[is_single] = _sums_in(data, starts[is_single], ends[is_single]) != checksums[is_single]
        return is_wrong

    def _sums_of(self, blocks: Int64s) -> npt.NDArray[np.uint32]:
        num_blocks = self._section.num_blocks
        if int(blocks[0]) >= num_blocks:
            return self._tail_sums[blocks - num_blocks]
        if self._checksums is None:
            first = self._section.decode_first(self._fetch(*self._section.first_range))
            self._checksums = np.concatenate([first, self._tail_sums])
        return self._checksums[blocks]

    def _not_covered(self, start: int) -> CorruptDataError:
        return CorruptDataError("a part of the file lies across its checksums, or behind its end", offset=start)


def _damaged(begin: int) -> CorruptDataError:
    return CorruptDataError(f"the file is damaged: bytes {begin} and on do not match their checksum", offset=begin)


def _sums_in(data: memoryview, starts: Int64s, ends: Int64s) -> npt.NDArray[np.uint32]:
    pairs = zip(starts.tolist(), ends.tolist(), strict=True)
    return np.array([crc32(data[start:end]) for start, end in pairs], np.uint32)


def _blocks_of_run(block_size: int) -> int:
    """Return a power of two."""
    return 1 << max(0, (_RUN_BYTES // block_size).bit_length() - 1)


def _runs(blocks: Int64s, run: int) -> Int64s:
    """Return the starts of runs of so many consecutive numbers; no two runs overlap."""
    if not (blocks[run - 1 :] - blocks[: 1 - run] == run - 1).any():
        return blocks[:0]
    is_first = np.append(True, blocks[1:] - blocks[:-1] != 1)
    begins = np.flatnonzero(is_first)
    sizes = np.append(begins[1:], len(blocks)) - begins
    inside = np.arange(len(blocks)) - np.repeat(begins, sizes)
    return np.flatnonzero((inside % run == 0) & (inside + run <= np.repeat(sizes, sizes)))


def _union(starts: Int64s, ends: Int64s) -> Int64s:
    """Return the numbers in any of some ranges, ascending, each once."""
    return distinct(aranges(starts, ends - starts))


def open_checks(tail: memoryview, size: int, fetch: Fetch, *, is_whole: bool = False) -> BlockChecks | None:
    """Find the checksums of a file and check what was read of its tail.

    Args:
        tail: End of the file.
        size: Bytes in the file.
        fetch: Reads a range of the file.
        is_whole: ``tail`` is the whole file, all of which is checked.

    Returns:
        None if the file has no checksums.

    Raises:
        CorruptDataError: The tail is not what was written, or the checksums are damaged.
    """
    location = find_sums(tail, size)
    if location is None:
        return None
    tail_start = size - len(tail)

    def part(start: int, end: int) -> memoryview:
        return tail[start - tail_start : end - tail_start] if start >= tail_start else fetch(start, end)

    end = location[1]
    section = decode_trailer(part(end - TRAILER_SIZE, end), location, size)
    if section is None:
        return None
    tail_sums = decode_tail_sums(part(end - TRAILER_SIZE - 4 * section.num_tail_blocks, end), section)
    checks = BlockChecks(section, tail_sums, part, size)
    if is_whole:
        checks.check_all(tail)
        if checks.is_done:
            return checks
    first = max(0, -(-(tail_start - section.tail_start) // section.block_size))
    end_of_known = min(section.tail_start + first * section.block_size, size)
    checks.check(tail, np.array([end_of_known]), np.array([size]), at=tail_start)
    checks.good_from = end_of_known
    return checks


def has_checksums(source: ObjectReader) -> bool:
    """Return whether a data file has checksums; errors as in `check_file`."""
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
            data = memoryview(source.read_ranges([(at, stop)])[0])
            checks.check(data, np.array([at]), np.array([stop]), at=at)
    return True


def _open(source: ObjectReader) -> BlockChecks | None:
    def fetch(start: int, end: int) -> memoryview:
        return memoryview(source.read_ranges([(start, end)])[0])

    return open_checks(fetch(max(0, source.size - TAIL_SIZE), source.size), source.size, fetch)
