"""Rows of several files at one go, a few or all of small files: what is encoded alike in all is decoded together.

Files of a remote store are asked at the same time, so that all of them together take as long as one. The bytes of local
files are copied into one memory, which for scattered rows and small files costs no more than to map them: a page fault
takes as long as to copy four blocks.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import NamedTuple
from lance_core.encoding.kernels import starts_of
from lance_core.encoding.plans import ByteRanges, RangeBuffers, join, range_buffers, result_of
from lance_core.errors import CorruptDataError
from lance_core.file.read import strategy
from lance_core.file.read.column_read import ColumnRead
from lance_core.file.read.field_reader import joined
from lance_core.file.read.plan import LeavesField, plan_files, plan_joined
from lance_core.file.read.wanted import Wanted
from lance_core.file.scattered import ScatteredRead, copied_ranges, in_order

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from lance_core.encoding.plans import Ranges
    from lance_core.file.read.alike_files import AlikeFiles
    from lance_core.file.read.cache import PageCache
    from lance_core.file.read.column import Column
    from lance_core.file.read.page_runs import PagesRead
    from lance_core.file.read.similar_files import SimilarFiles

_BASE_BITS = 44
"""Positions in the n-th file begin at n times 16 TiB."""
_NOTHING = RangeBuffers(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))


def can_be_joined(files: Sequence[Wanted | AlikeFiles | SimilarFiles]) -> bool:
    """Return whether rows of files can be read at one go; those that are alike can."""
    fields = [field for part in files if isinstance(part, Wanted) for field in part.opened.fields]
    are_small = all(file.size <= 1 << _BASE_BITS for part in files for file in part.files)
    return are_small and all(isinstance(field, LeavesField) for field in fields)


def take_joined(files: Sequence[Wanted | AlikeFiles | SimilarFiles]) -> list[pa.Array] | None:
    """Return the rows of all files, one after the other.

    Args:
        files: Those of one version of the format, with the same fields; see `can_be_joined`.

    Returns:
        An array for each field; None if that would need much memory.

    Raises:
        CorruptDataError: One of the files is damaged.
        UnsupportedError: A type or encoding that cannot be read.
    """
    fields = files[0].fields
    leaves: list[list[ColumnRead | PagesRead]] = [[] for field in fields for _ in field.leaves]
    with suppress(_TooLargeError), _blaming_bytes():
        numbers, first = [id(leaf) for leaf in leaves], 0
        for part in files:
            reads = part.reads(numbers=numbers, first=first, base_bits=_BASE_BITS)
            for leaf, more in zip(leaves, reads, strict=True):
                leaf.extend(more)
            first += len(part.contents)
        source = _SeveralFiles(files)
        return [joined(arrays) for arrays in result_of(plan_files(fields, leaves), source.answer)]
    return None


class FetchedColumn(NamedTuple):
    """All rows of a column of a file, as they are stored.

    Attributes:
        column: The column, and its cache entry.
        extents: Byte ranges of its pages.
        buffers: The bytes of each.
    """

    column: tuple[Column, PageCache]
    extents: Ranges
    buffers: list[pa.Buffer]


def fetch_column(wanted: Wanted) -> FetchedColumn | None:
    """Fetch all rows of the only field of a file, for `decode_columns`.

    Returns:
        None if they are many bytes, or not the values of one leaf with nothing around it.

    Raises:
        CorruptDataError: What was read is not what was written.
    """
    leaves = [leaf for field in wanted.fields for leaf in field.leaves]
    if len(wanted.opened.fields) != 1 or len(leaves) != 1:
        return None
    column, _ = leaves[0]
    extents = column.extents(range(column.num_rows))
    num_bytes = sum([end - start for start, end in extents])
    is_whole = column.is_plain and column.num_rows == len(wanted.rows)
    if not is_whole or not extents or num_bytes > strategy.MOST_FETCHED_BYTES or extents[-1][1] > 1 << _BASE_BITS:
        return None
    file = wanted.file
    return FetchedColumn(leaves[0], extents, file.read(extents) if file.is_mapped else file.begin(extents).result())


def decode_columns(files: Sequence[FetchedColumn]) -> list[Any]:
    """Decode the same column of several files of one version; pages that are alike at one go.

    Returns:
        Arrays that hold the rows of all files, one after the other; `DictionaryEncoded` ones among them.

    Raises:
        CorruptDataError: One of the files is damaged.
        UnsupportedError: A type or encoding that cannot be read.
    """
    bases = [at << _BASE_BITS for at in range(len(files))]
    reads = [
        ColumnRead(column, cached, range(column.num_rows), file=at, base=base)
        for at, (base, ((column, cached), _, _)) in enumerate(zip(bases, files, strict=True))
    ]
    extents = [(base + low, base + high) for base, file in zip(bases, files, strict=True) for low, high in file.extents]
    fetched = range_buffers(extents, [buffer for file in files for buffer in file.buffers])
    starts, ends = np.array(extents, np.int64).T

    def answer(wanted: Sequence[tuple[int, int] | ByteRanges]) -> list[Any]:
        for request in wanted:
            lows, highs = (request.starts, request.ends) if isinstance(request, ByteRanges) else request
            if not (highs <= ends[starts.searchsorted(lows, side="right") - 1]).all():
                raise CorruptDataError("a page lies across the end of its buffers")
        return [fetched if isinstance(request, ByteRanges) else fetched.part(*request) for request in wanted]

    with _blaming_bytes():
        return result_of(plan_joined(reads), answer)


class _TooLargeError(Exception):
    """Rows that take more bytes than are to be copied."""


@contextmanager
def _blaming_bytes() -> Generator[None]:
    """Call what garbage can lead to by its name."""
    try:
        yield
    except (ValueError, IndexError, OverflowError, MemoryError, pa.ArrowException) as error:
        raise CorruptDataError(f"a file is damaged: {error}") from error


class _SeveralFiles:
    """Files of which ranges are read as if they were one."""

    def __init__(self, files: Sequence[Wanted | AlikeFiles | SimilarFiles]) -> None:
        self._files = [file for part in files for file in part.files]
        contents = [content for part in files for content in part.contents]
        read = [content for content in contents if content is not None]
        self._contents = read if len(read) == len(contents) else None

    def answer(self, wanted: Sequence[tuple[int, int] | ByteRanges]) -> list[Any]:
        """Return buffers for ranges, and one memory for scattered ones; all files are asked at the same time."""
        ranges = [request for request in wanted if not isinstance(request, ByteRanges)]
        scattered = [request for request in wanted if isinstance(request, ByteRanges)]
        buffers = iter(self._read(ranges) if ranges else [])
        copied = self._copy(scattered) if scattered else None
        return [copied if isinstance(request, ByteRanges) else next(buffers) for request in wanted]

    def _read(self, ranges: Ranges) -> list[pa.Buffer]:
        owners = [start >> _BASE_BITS for start, _ in ranges]
        if self._contents is not None:
            return [
                _part(self._contents[owner], start - (owner << _BASE_BITS), end - start)
                for owner, (start, end) in zip(owners, ranges, strict=True)
            ]
        parts: list[Ranges] = [[] for _ in self._files]
        for owner, (start, end) in zip(owners, ranges, strict=True):
            base = owner << _BASE_BITS
            parts[owner].append((start - base, end - base))
        for file, file_ranges in zip(self._files, parts, strict=True):
            file.announce(file_ranges)
        reads = [file.begin(file_ranges) for file, file_ranges in zip(self._files, parts, strict=True)]
        buffers = [iter(read.result()) for read in reads]
        return [next(buffers[owner]) for owner in owners]

    def _copy(self, scattered: Sequence[ByteRanges]) -> RangeBuffers:
        if not any(len(ranges.starts) for ranges in scattered):
            return _NOTHING
        contents = self._contents
        if contents is not None:
            return _joined_contents(contents, scattered)
        files = [file.copied() for file in self._files]
        copies = copied_ranges(files, *in_order(scattered), file_span=1 << _BASE_BITS)
        if sum([copy.num_bytes for copy in copies]) > strategy.MOST_JOINED_BYTES:
            raise _TooLargeError
        return ScatteredRead(copies, file_span=1 << _BASE_BITS, read_ahead=strategy.READ_AHEAD).result()


def _part(content: pa.Buffer, start: int, size: int) -> pa.Buffer:
    if start + size > content.size:
        raise CorruptDataError(f"a page reaches beyond the end of the file of {content.size} bytes")
    return content.slice(start, size)


def _joined_contents(contents: Sequence[pa.Buffer], scattered: Sequence[ByteRanges]) -> RangeBuffers:
    """Return small files that have been read, one behind the other."""
    sizes = np.array([content.size for content in contents], np.int64)
    firsts = np.arange(len(contents)) << _BASE_BITS
    for ranges in scattered:
        owners = ranges.starts >> _BASE_BITS
        if (ranges.ends - firsts[owners] > sizes[owners]).any():
            raise CorruptDataError("a page reaches beyond the end of its file")
    return RangeBuffers(join(contents), firsts, starts_of(sizes)[:-1] - firsts)
