"""Small files whose metadata is the same but for numbers: the first is opened, and tells how to read the others.

Files that one writer made of as many rows differ in where buffers lie, in their sizes and in constants. Their ends,
from the metadata of columns on, are laid one below the other; a mask of the bits that have to be the same finds those
that are alike, and the numbers of all are taken out of the same places. Whatever is not alike in any other bit is left
to who opens files one by one, and so is what is damaged.
"""

from __future__ import annotations

import struct
from itertools import chain
from typing import TYPE_CHECKING, Protocol

import numpy as np

from lance_core.common.frozen import NamedTuple
from lance_core.encoding.layouts import constant
from lance_core.file.read.cache import Budget, PageCache
from lance_core.file.read.column_read import ColumnRead
from lance_core.file.read.constant_pages import constant_array
from lance_core.file.read.page_runs import PagesRead, run_layout
from lance_core.file.read.plan import LeavesField
from lance_core.format.file.checksums import is_intact
from lance_core.format.file.file_metadata import Page
from lance_core.format.file.footer import ENTRY_SIZE, FOOTER_SIZE
from lance_core.format.file.metadata_spans import page_spans
from lance_core.format.file.page_layout import ConstantLayout

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from lance_core.encoding.plans import Rows
    from lance_core.encoding.values import Bytes, Int64s
    from lance_core.file.container import Container
    from lance_core.file.integrity import BlockChecks
    from lance_core.file.read.column import Column
    from lance_core.file.read.wanted import Wanted
    from lance_core.file.source import FileBytes
    from lance_core.format.file.metadata_spans import PageSpans, Span

FEWEST = 4
"""Files of one size of metadata that are held against the first: to find out what they may differ in takes as long as
to open one."""

_FEWEST_ALIKE = 2
"""Where the first is like no other file, the others are taken to be as different from each other."""

_WORD = 8
_METADATA_START = struct.Struct("<Q")


class SmallFile(NamedTuple):
    """A file that has been read.

    Attributes:
        content: All of it.
        rows: Rows that are wanted: at least one, ascending.
    """

    content: pa.Buffer
    rows: Rows


class AlikeFiles:
    """Rows of files that match a pattern.

    Args:
        pattern: The pattern.
        files: The files, at least one.
        tails: Shape (n, bytes): their metadata of columns.
    """

    def __init__(self, pattern: Pattern, files: Sequence[SmallFile], tails: npt.NDArray[np.uint8]) -> None:
        self._pattern = pattern
        self._files = files
        self._tails = tails

    @property
    def files(self) -> list[FileBytes]:
        """None, since they have been read whole; see `lance_core.file.read.wanted.Wanted`."""
        return []

    @property
    def contents(self) -> list[pa.Buffer]:
        """All bytes of each file."""
        return [file.content for file in self._files]

    @property
    def fields(self) -> Sequence[LeavesField]:
        """The fields that are read."""
        return self._pattern.fields

    def reads(self, *, numbers: Sequence[int], first: int, base_bits: int) -> list[list[ColumnRead | PagesRead]]:
        """Return reads of each leaf in all files, in their order; constants are there already.

        Args:
            numbers: What stands for each of the leaves of all fields.
            first: Number of the first file.
            base_bits: Positions in the n-th file begin at n times two to the power of these.
        """
        return [
            self._reads(pattern, number, first, base_bits)
            for pattern, number in zip(self._pattern.leaves, numbers, strict=True)
        ]

    def _reads(self, pattern: LeafPattern, number: int, first: int, base_bits: int) -> list[ColumnRead | PagesRead]:
        files, tails = self._files, self._tails
        if pattern.value is not None:
            values = [tail.tobytes() for tail in tails[:, slice(*pattern.value)]]
            return [pattern.answered(files, values)]
        extents = [(_numbers(tails, page.positions), _numbers(tails, page.sizes)) for page in pattern.pages]
        if pattern.is_framed:
            starts, sizes = extents[0][0][:, 0].tolist(), extents[0][1][:, 0].tolist()
            frames = [file.content.slice(start, size) for file, start, size in zip(files, starts, sizes, strict=True)]
            return [pattern.answered(files, [pattern.value_in(frame) for frame in frames])]
        joined = np.array(extents[0]).swapaxes(1, 2)
        joined[0] += np.arange(first, first + len(files)) << base_bits
        layouts = [pattern.cached.layout(pattern.column, 0)] * len(files)
        read = PagesRead(pattern.column, pattern.cached, [file.rows for file in files], joined, layouts)
        if run_layout(read) is not None:
            return [read]
        pages = [np.stack(pair, axis=-1).tolist() for pair in extents]
        return [
            pattern.read(file.rows, [page[at] for page in pages], number, first + at, first + at << base_bits)
            for at, file in enumerate(files)
        ]


class LeafPattern(NamedTuple):
    """A leaf in files that are alike.

    Attributes:
        column: The leaf in the first file.
        cached: Its cache entry there.
        pages: Places of numbers in the metadata of its pages.
        value: Place of the value that is all there is in the only page.
        is_framed: The only page has one value, in a buffer.
    """

    column: Column
    cached: PageCache
    pages: list[PageSpans]
    value: Span | None
    is_framed: bool

    def answered(self, files: Sequence[SmallFile], values: Sequence[bytes]) -> ColumnRead:
        """Return a read whose rows, of all files, are there."""
        read = ColumnRead(self.column, self.cached, files[0].rows)
        layout = self.cached.layout(self.column, 0)
        assert isinstance(layout, ConstantLayout)  # noqa: S101 for the type checker: else there is no value
        read.arrays.append(constant_array(self.column, layout.layers, values, [len(file.rows) for file in files]))
        return read

    def value_in(self, frame: pa.Buffer) -> bytes:
        """Return the value in the buffer of a page."""
        layout = self.cached.layout(self.column, 0)
        assert isinstance(layout, ConstantLayout)  # noqa: S101 likewise
        return constant.value_of(layout, [frame], self.column.kind) or b""

    def read(self, rows: Rows, buffers: Sequence[list[list[int]]], number: int, file: int, base: int) -> ColumnRead:
        """Return a read of one of the files, whose pages have their buffers elsewhere."""
        first = self.column
        pages = tuple(
            [
                Page(
                    buffers=tuple([(start, size) for start, size in extents]),
                    num_rows=page.num_rows,
                    first_row=page.first_row,
                    layout=page.layout,
                )
                for page, extents in zip(first.pages, buffers, strict=True)
            ]
        )
        shared = (self.cached.layouts, Budget(), self.cached.kinds, {})
        cached = PageCache(first.first_rows, *shared)
        return ColumnRead(first.in_other_file(pages), cached, rows, number=number, file=file, base=base)


class Pattern:
    """Parts of a small file that others have, too, if they can be read like it.

    Args:
        container: Metadata of that file.
        content: All of it.
        fields: The fields that are read of it.
        checks: Its checksums, which hold; None if nobody looks at them, or it has none.
    """

    def __init__(
        self, container: Container, content: pa.Buffer, fields: Sequence[LeavesField], checks: BlockChecks | None
    ) -> None:
        self.fields = fields
        footer, columns, global_buffers = container.frame
        self._start = footer.column_metadata_start
        self._tail = np.frombuffer(content, np.uint8)[self._start :]
        self._table = footer.column_table_start - self._start
        self._num_columns = len(columns)
        self._has_checks = checks is not None
        schema_at, schema_size = global_buffers[0]
        self._descriptor = content.slice(schema_at, schema_size).to_pybytes()
        self.num_rows = container.descriptor()[1]
        self._fixed = np.zeros(self._table, np.uint8)
        self.leaves = [
            self._leaf(column, cached, columns[column.number], content)
            for field in fields
            for column, cached in field.leaves
        ]

    def reads_pages(self, rows: Rows) -> bool:
        """Return whether rows are read page by page: constants, and pages that are decoded as one, are not."""
        leaves = [leaf for leaf in self.leaves if leaf.value is None and not leaf.is_framed]
        return any(run_layout(ColumnRead(leaf.column, leaf.cached, rows)) is None for leaf in leaves)

    @staticmethod
    def of(container: Container, wanted: Wanted) -> Pattern | None:
        """Return the pattern of a file that has been read whole; None if it is laid out in an uncommon way."""
        footer, columns, global_buffers = container.frame
        file = wanted.file
        tables = ENTRY_SIZE * (len(columns) + len(global_buffers))
        is_common = (
            footer.column_table_start + ENTRY_SIZE * len(columns) == footer.global_table_start
            and footer.column_table_start + tables + FOOTER_SIZE == file.size
            and len(global_buffers) <= (2 if file.may_have_checks else 1)
        )
        fields = [field for field in wanted.opened.fields if isinstance(field, LeavesField)]
        if not is_common or file.content is None or len(fields) < len(wanted.opened.fields):
            return None
        return Pattern(container, file.content, fields, file.checks)

    def matching(self, files: Sequence[SmallFile], numbers: Sequence[int]) -> tuple[AlikeFiles, list[int], list[int]]:
        """Find the files that match.

        Args:
            files: Some files, with as many bytes of metadata.
            numbers: Which of them are asked about.

        Returns:
            Those that match, their numbers, and those of the others.
        """
        views = [memoryview(files[number].content) for number in numbers]
        size = len(self._tail)
        ends = np.frombuffer(b"".join([view[-size:] for view in views]), np.uint8).reshape(-1, size)
        tails = ends[:, : self._table]
        is_alike = ~((tails ^ self._tail[: self._table]) & self._fixed).any(axis=1)
        sizes = np.array([len(view) for view in views], np.int64)
        tables = np.ascontiguousarray(ends[:, self._table :]).view("<i8")
        is_alike &= self._fit_tables(tables, sizes - size - self._start)
        is_alike &= self._fit_buffers(tails, sizes - size)
        global_buffers = tables[:, 2 * self._num_columns : -(FOOTER_SIZE // _WORD)].tolist()
        last_rows = [int(files[number].rows[-1]) for number in numbers]
        for at in np.flatnonzero(is_alike).tolist():
            is_alike[at] = last_rows[at] < self.num_rows and self._fits(views[at], global_buffers[at])
        alike = np.flatnonzero(is_alike)
        matching = [numbers[at] for at in alike.tolist()]
        others = [numbers[at] for at in np.flatnonzero(~is_alike).tolist()]
        return AlikeFiles(self, [files[number] for number in matching], tails[alike]), matching, others

    def _leaf(self, column: Column, cached: PageCache, entry: tuple[int, int], content: pa.Buffer) -> LeafPattern:
        """Find the bits of the metadata of a column in which files may differ."""
        start = entry[0] - self._start
        data = content.slice(*entry).to_pybytes()
        fixed = self._fixed[start : start + entry[1]]
        fixed.fill(0xFF)
        pages = page_spans(data)
        for page in pages:
            for low, high in chain(page.positions, page.sizes):
                fixed[low:high] = 0x80  # as many bytes
        value, is_framed = None, False
        if len(column.pages) == 1 and column.is_simple:
            layout, extents = cached.layout(column, 0), column.pages[0].buffers
            if isinstance(layout, ConstantLayout):
                buffers = [content.slice(at, size) for at, size in extents]
                is_single = constant.value_of(layout, buffers, column.kind) is not None
                is_framed = is_single and len(buffers) == 1
                span = pages[0].value if is_single and not buffers else None
                if span is not None and data[slice(*span)] == layout.inline_value:
                    fixed[slice(*span)] = 0
                    value = span
        return LeafPattern(
            column, cached, [_moved(page, start) for page in pages], _span_moved(value, start), is_framed
        )

    def _fit_tables(self, tables: Int64s, shifts: Int64s) -> npt.NDArray[np.bool_]:
        """Return which files have the same tables and footer, but for where things begin.

        Args:
            tables: Shape (n, m).
            shifts: Shape (n,): bytes by which the metadata of columns begins later.
        """
        expected = self._tail[self._table :].copy().view("<i8")
        num_columns, end = 2 * self._num_columns, tables.shape[1]
        moved = [*range(0, num_columns, 2), *range(end - FOOTER_SIZE // _WORD, end - 2)]
        free = range(num_columns, end - FOOTER_SIZE // _WORD, 2)
        same = sorted(set(range(end)) - set(moved) - set(free))
        is_moved = (tables[:, moved] - expected[moved] == shifts[:, None]).all(axis=1)
        return is_moved & (tables[:, same] == expected[same]).all(axis=1)

    def _fit_buffers(self, tails: npt.NDArray[np.uint8], limits: Int64s) -> npt.NDArray[np.bool_]:
        """Return which files have all buffers of pages before their metadata."""
        fits = np.ones(len(tails), np.bool_)
        for leaf in self.leaves:
            for page in leaf.pages:
                if page.positions:
                    ends = _numbers(tails, page.positions) + _numbers(tails, page.sizes)
                    fits &= (ends <= limits[:, None]).all(axis=1) & (ends >= 0).all(axis=1)
        return fits

    def _fits(self, content: memoryview, global_buffers: Sequence[int]) -> bool:
        """Return whether a file has the same schema and number of rows, and the bytes that its checksums tell."""
        at, size = global_buffers[:2]
        if bytes(content[at : at + size]) != self._descriptor:
            return False
        return not self._has_checks or is_intact(content, global_buffers[2], sum(global_buffers[2:]))


class Opener(Protocol):
    """Opens some of the files that are read together, by number."""

    def is_open(self, number: int, /) -> bool:
        """Return whether a file has been opened before, or is better opened."""
        ...

    def note(self, numbers: Sequence[int], /) -> None:
        """Take note of files that are read without having been opened, so that nothing is kept of their pages."""
        ...

    def open(self, number: int, /) -> Wanted:
        """Return the rows that are wanted of a file."""
        ...

    def pattern(self, number: int, /) -> Pattern | None:
        """Return the pattern of a file; it is opened for that."""
        ...


def open_alike(
    files: Sequence[SmallFile], num_rows: Sequence[int], opener: Opener
) -> tuple[list[Wanted | AlikeFiles], list[int]]:
    """Open small files; of those that are alike only one.

    Args:
        files: The files.
        num_rows: Rows in each of them, says the manifest.
        opener: Opens them.

    Returns:
        The files in another order, and their numbers in that.
    """
    groups: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
    for number, (file, rows) in enumerate(zip(files, num_rows, strict=True)):
        key = (_tail_size(file.content), rows)
        groups.setdefault(key, ([], []))[opener.is_open(number)].append(number)
    opened: list[Wanted | AlikeFiles] = []
    order: list[int] = []
    for left, seeds in groups.values():
        waiting, others = iter(seeds), left
        while len(others) >= FEWEST:
            pattern = opener.pattern(next(waiting, others[0]))
            if pattern is None:
                break
            alike, matching, others = pattern.matching(files, others)
            if matching:
                opened.append(alike)
                order += matching
                if pattern.reads_pages(files[matching[0]].rows):
                    opener.note(matching)
            if len(matching) < _FEWEST_ALIKE:
                break
        order += (alone := [*seeds, *others])
        opened += map(opener.open, alone)
    return opened, order


def _tail_size(content: pa.Buffer) -> int:
    """Return the bytes from where the metadata of columns begins; some number if that is damaged."""
    if content.size < FOOTER_SIZE:
        return 0
    return content.size - _METADATA_START.unpack_from(content, content.size - FOOTER_SIZE)[0]


def _numbers(tails: Bytes, spans: Sequence[Span]) -> Int64s:
    """Return varints, shape (files, spans), that have the same places in all files."""
    numbers = np.zeros((len(tails), len(spans)), np.int64)
    for column, (start, end) in enumerate(spans):
        for at in range(start, end):
            numbers[:, column] |= (tails[:, at].astype(np.int64) & 0x7F) << 7 * (at - start)
    return numbers


def _moved(page: PageSpans, by: int) -> PageSpans:
    positions, sizes = ([(start + by, end + by) for start, end in spans] for spans in page[:2])
    return page._replace(positions=positions, sizes=sizes, value=_span_moved(page.value, by))


def _span_moved(span: Span | None, by: int) -> Span | None:
    return None if span is None else (span[0] + by, span[1] + by)
