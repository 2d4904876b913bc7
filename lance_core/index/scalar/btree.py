"""B-trees: the kind of index that finds rows by value, exactly.

A segment keeps the last value of each page in memory. A question about a value becomes a range of the sorted values:
the page that holds an end of the range is found among the last values, the end itself among the values of that page.
The layout of the files is described in `lance_core.format.index.btree`.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.common.limits import check_limit
from lance_core.encoding.kernels import distinct, numbers_array
from lance_core.errors import CorruptDataError
from lance_core.format.index.btree import (
    LOOKUP_FILE,
    PAGE_FILE,
    RANGE_PARTITIONED_KEY,
    ROWS_PER_PAGE_KEY,
    TYPE_URL,
    VERSION,
    VERSION_WITH_STABLE_ROW_IDS,
    has_btree,
    lookup_schema,
    page_schema,
)
from lance_core.format.index.row_sets import row_set_of
from lance_core.index import answer as answers
from lance_core.index.external_sort import DEFAULT_MEMORY, MEMORY_OPTION
from lance_core.index.files import check_columns, metadata_number, read_columns
from lance_core.index.order import Keys, num_bytes, sort_keys
from lance_core.index.protocol import RowCounts, UnreadSegment
from lance_core.index.row_sets import NO_ROWS, RowSets
from lance_core.index.scalar.btree_pages import MOST_BYTES, Page, PageCache, positions_in, row_numbers
from lance_core.index.scalar.ranges import question_ranges
from lance_core.sql.pruning import Comparison, IsNull, Prefix, Question
from lance_core.sql.ternary import FALSE, NULL
from lance_core.table.once import once

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyroaring import BitMap64

    from lance_core.file.read.reader import DataFileReader
    from lance_core.index.answer import RowAnswer
    from lance_core.index.column import IndexedColumn
    from lance_core.index.files import SegmentFiles
    from lance_core.index.protocol import FragmentColumn, Relocation, Segment, SegmentContent, SegmentTarget
    from lance_core.index.scalar.ranges import Side

Int64s: TypeAlias = npt.NDArray[np.int64]

_MOST_SHARE = 1 / 4
"""Share of the rows up to which an answer is worth its row addresses, since no column is read for a condition then. Of
4 % of the rows a scan without the index takes three times as long if they lie together, of 20 % twice as long; if they
are scattered 1.4 times and equally long, and of half of the rows less."""

_ALWAYS_WORTH = 1 << 14
"""Rows whose addresses are always worth reading."""

_LEAST_PAGES = 8
_MANY_PAGES = 256
_MOST_PAGES = 1 / 4
"""Pages that are always worth reading whole, pages that never are, and the share up to which more than few are: 94 of
489 pages took a third of a scan. From their second time on pages are read up to the second figure, whatever their
share, if all of them can stay: those of numbers take 8 MiB."""

_ROW_BYTES = 16
"""What a value in memory takes besides itself."""

_STRIDE = 1 << 6
"""Where many pages would be read, every 64th value is read first, and then those between two of them."""

_READ_ROWS = 1 << 14
"""Scattered values that are read at a time, since texts are decompressed with all that lies around them: an upsert of
1,000 texts into ten million takes 228 MiB, with twice as many 265. Fewer at a time ask remote stores more often."""
_COPIED_ROWS = 1 << 9
"""Scattered row numbers that are copied out of the file, as values always are: of an upsert of 1,000 texts into ten
million, 100 MiB of mapped pages would stay."""
_BATCH_ROWS, _LEAST_BATCH_ROWS = 1 << 20, 1 << 16
_NO_ROWS = np.empty(0, np.int64)


@frozen(kw_only=True)
class _Lookup:
    """Content of a lookup file.

    Attributes:
        last_keys: Key of the last value of each page, without those of pages of nulls.
        num_nulls: Nulls, which come first.
        rows_per_page: Rows in each page but the last.
        num_bytes: Bytes in memory, about.
    """

    last_keys: Keys
    num_nulls: int
    rows_per_page: int
    num_bytes: int


class BTreeSegment:
    """One B-tree, opened.

    Args:
        column: The column.
        pages: The sorted values and their rows.
        path: Name of that file, for errors.
        lookup: What is known of its pages.
    """

    _page_bytes = sys.maxsize
    """Bytes of a page in memory, about: not known before some of its values were read."""

    def __init__(self, column: IndexedColumn, pages: DataFileReader, path: str, lookup: _Lookup) -> None:
        self._type = column.type
        self._pages = pages
        self._path = path
        self._last_keys = lookup.last_keys
        self._num_nulls = num_nulls = lookup.num_nulls
        self._num_rows = pages.num_rows
        self._rows_per_page = rows_per_page = lookup.rows_per_page
        self._first_page = num_nulls // rows_per_page
        self._cache = PageCache(pages, path, num_nulls=num_nulls, rows_per_page=rows_per_page)
        self._most_rows = max(_ALWAYS_WORTH, int(self._num_rows * _MOST_SHARE))

    @property
    def options(self) -> Mapping[str, int]:
        """Options that it was built with: none."""
        return {}

    @property
    def statistics(self) -> Mapping[str, int]:
        """Number of pages."""
        return {"num_pages": -(-self._num_rows // self._rows_per_page)}

    def batches(self, batch_rows: int = _BATCH_ROWS) -> Iterator[tuple[pa.Array, Int64s]]:
        """Read all values in order and the row of each, some at a time."""
        for start in range(0, self._num_rows, batch_rows):
            values, ids = read_columns(self._pages, ["values", "ids"], start, min(start + batch_rows, self._num_rows))
            yield values, row_numbers(ids, self._path)

    def content(self) -> tuple[pa.Array, Int64s]:
        """Read all values in order, and the row of each."""
        values, ids = read_columns(self._pages, ["values", "ids"], 0, self._num_rows)
        return values, row_numbers(ids, self._path)

    def entries(self) -> Iterator[tuple[pa.Array, Int64s]]:
        """Read all values in order, and the row of each."""
        return self.batches()

    def expected_entries(self, values: pa.Array, rows: Int64s) -> Iterator[tuple[pa.Array, Int64s]]:
        """Return the value of each row."""
        yield values, rows

    def answer(self, question: Question, *, tells_null: bool) -> RowAnswer | None:
        """Look up the rows for which a question is true."""
        if isinstance(question, Comparison) and question.operator == "not_equal":
            equal = self.answer(Comparison(question.column, "equal", question.value), tells_null=tells_null)
            return answers.not_(equal) if equal is not None and tells_null else None
        ids = self._rows(question)
        if ids is None or isinstance(question, IsNull):
            return None if ids is None else answers.of_rows(true=ids)
        knows_nulls = tells_null and self._is_worth(self._num_nulls)
        null = self._ids(0, self._num_nulls) if knows_nulls else _NO_ROWS
        elsewhere = FALSE if knows_nulls or not self._num_nulls else FALSE | NULL
        if isinstance(question, Prefix) and not question.is_exact:
            return answers.of_rows(undecided=ids, null=null, elsewhere=elsewhere)
        return answers.of_rows(true=ids, null=null, elsewhere=elsewhere)

    def sets(self, question: Question) -> RowSets | None:
        """Return the rows for which a question is true or null."""
        if isinstance(question, Prefix) and not question.is_exact:
            return None
        ids = self._rows(question) if self._is_worth(self._num_nulls) else None
        if ids is None:
            return None
        return RowSets(row_set_of(ids), NO_ROWS if isinstance(question, IsNull) else self._null_set)

    @once
    def _null_set(self) -> BitMap64:
        return row_set_of(self._ids(0, self._num_nulls))

    def _rows(self, question: Question) -> Int64s | None:
        """Return the rows for which a question other than for inequality may be true; None if a scan is cheaper."""
        if isinstance(question, IsNull):
            return self._ids(0, self._num_nulls) if self._is_worth(self._num_nulls) else None
        positions = partial(self._positions, with_ids=True)
        ranges = question_ranges(question, self._type, positions, first=self._num_nulls, end=self._num_rows)
        if ranges is None or not self._is_worth(int((ranges[1] - ranges[0]).sum())):
            return None
        return self._ids_of(*ranges)

    def count_entries(self) -> int:
        """Count all rows, those with null included."""
        return self._num_rows

    def count(self, question: Question) -> RowCounts | None:
        """Count the rows for which a question is true, from where its values begin and end among all."""
        match question:
            case IsNull():
                return RowCounts(self._num_nulls)
            case Prefix(is_exact=False):
                return None
            case _:
                pass
        ranges = question_ranges(question, self._type, self._positions, first=self._num_nulls, end=self._num_rows)
        return None if ranges is None else RowCounts(int((ranges[1] - ranges[0]).clip(0).sum()), self._num_nulls)

    def find(self, values: pa.Array) -> tuple[Int64s, Int64s] | None:
        """Find the rows that have one of some values."""
        positions = self._positions(values, "left", "right", with_ids=True)
        if positions is None:
            return None
        order = np.argsort(positions[0], kind="stable")
        starts, ends = (side[order] for side in positions)
        counts = ends - starts
        return (np.repeat(order, counts), self._ids_of(starts, ends)) if self._is_worth(int(counts.sum())) else None

    def _is_worth(self, count: int) -> bool:
        return count <= self._most_rows

    # ------------------------------------------------------------------------------------------ places of sorted values

    def _positions(self, values: pa.Array, *sides: Side, with_ids: bool = False) -> list[Int64s] | None:
        """Return where values stand among all: the first row that is not less (left), or that is greater (right).

        Args:
            values: The values.
            sides: One of them or both.
            with_ids: See `PageCache.get`.

        Returns:
            Shape (values,) for each side; None if that takes so many pages that a scan is cheaper.
        """
        keys = sort_keys(values)
        numbers = [self._last_keys.searchsorted(keys, side) + self._first_page for side in sides]
        needed, behind = distinct(np.concatenate(numbers)), self._first_page + len(self._last_keys)
        needed = needed[needed < behind]
        if not len(needed):
            return [np.full(len(keys), self._num_rows) for _ in sides]
        is_searched = len(needed) > _LEAST_PAGES and self._cache.misses(needed.tolist()) > _LEAST_PAGES
        if len(needed) > max(_LEAST_PAGES, min(_MANY_PAGES, len(self._last_keys) * _MOST_PAGES)):
            if len(keys) * _STRIDE > self._num_rows * _MOST_PAGES:
                return None
            is_searched |= len(needed) > _MANY_PAGES or len(needed) * self._page_bytes > MOST_BYTES
        if is_searched:
            return self._searched(keys, numbers, sides)
        pages = self._cache.get(needed.tolist(), with_ids=with_ids)
        pages[behind] = Page(self._num_rows, values[:0], _NO_ROWS, first=self._last_keys[-1])
        positions: list[Int64s] = []
        of_sides = positions_in(pages, values, keys, numbers[0])
        for side, side_numbers in zip(sides, numbers, strict=True):
            rows = of_sides[side]
            elsewhere = (side_numbers != numbers[0]).nonzero()[0]  # values that end a page
            if len(elsewhere):
                others = values.take(numbers_array(elsewhere))
                rows[elsewhere] = positions_in(pages, others, keys[elsewhere], side_numbers[elsewhere])[side]
            positions.append(rows)
        return positions

    def _searched(self, keys: Keys, numbers: Sequence[Int64s], sides: Sequence[Side]) -> list[Int64s]:
        """Return where keys stand, from every 64th value of their pages and then the values between two of these.

        Values ascend over all pages, so that one search among the values read finds the places of all keys. Both sides
        share what is read: to unpack it takes most of the time.

        Args:
            keys: The keys.
            numbers: The page of each key, for each side; those behind the last one are the place of all that is larger.
            sides: As for `_positions`.
        """
        last = self._first_page + len(self._last_keys)
        pages = distinct(np.concatenate(numbers))
        starts, ends = self._edges(pages[pages < last])
        rows = _rows_of(starts, ends, step=_STRIDE)
        sampled = self._keys_at(rows)
        spans = [self._span(sampled, rows, keys, *pair) for pair in zip(numbers, sides, strict=True)]
        blocks, block = np.unique(np.concatenate([low for low, _ in spans]), return_inverse=True)
        block_ends = np.zeros(len(blocks), np.int64)
        np.maximum.at(block_ends, block, np.concatenate([high for _, high in spans]))
        between = _rows_of(blocks, block_ends)
        values = self._keys_at(between)
        positions: list[Int64s] = []
        for side, side_numbers, (lows, _) in zip(sides, numbers, spans, strict=True):
            ranks = np.searchsorted(values, keys, side=side) if len(values) else np.zeros(len(keys), np.int64)
            side_positions = lows + ranks - np.searchsorted(between, lows)
            positions.append(np.where(side_numbers < last, side_positions, self._num_rows))
        return positions

    def _edges(self, pages: Int64s) -> tuple[Int64s, Int64s]:
        """Return the first row of pages that is not null, and the row behind the last one."""
        starts = np.maximum(pages * self._rows_per_page, self._num_nulls)
        return starts, np.minimum((pages + 1) * self._rows_per_page, self._num_rows)

    def _span(self, sampled: Keys, rows: Int64s, keys: Keys, numbers: Int64s, side: Side) -> tuple[Int64s, Int64s]:
        """Return the rows between which keys stand, by some values and their rows."""
        starts, ends = self._edges(numbers)
        sample_indices = np.searchsorted(sampled, keys, side=side)
        # The value before is smaller and the value at the place is not: the key's place lies between the two.
        lows = np.maximum(np.where(sample_indices > 0, rows[sample_indices - 1] + 1, 0), starts)
        return lows, np.maximum(np.minimum(np.append(rows, self._num_rows)[sample_indices], ends), lows)

    def _keys_at(self, rows: Int64s) -> Keys:
        """Read the keys of some rows."""
        if not len(rows):
            return self._last_keys[:0]
        parts = [rows[start : start + _READ_ROWS] for start in range(0, len(rows), _READ_ROWS)]
        values = pa.concat_arrays([self._cache.take(["values"], part, copies=True)[0] for part in parts])
        if values.null_count:
            raise CorruptDataError("a page of the B-tree has nulls behind values", path=self._path)
        self._page_bytes = (values.nbytes // len(rows) + _ROW_BYTES) * self._rows_per_page
        return sort_keys(values)

    # ------------------------------------------------------------------------------------------------------ their rows

    def _ids(self, start: int, end: int) -> Int64s:
        if start == end:
            return _NO_ROWS
        (ids,) = read_columns(self._pages, ["ids"], start, end)
        return row_numbers(ids, self._path)

    def _ids_of(self, starts: Int64s, ends: Int64s) -> Int64s:
        filled = np.flatnonzero(starts < ends)
        if not len(filled):
            return _NO_ROWS
        cached = self._cache.ids(starts[filled], ends[filled])
        if cached is not None:
            return cached
        if len(filled) < 2:
            return self._ids(int(starts[filled[0]]), int(ends[filled[0]]))
        ordered = np.sort(_rows_of(starts[filled], ends[filled]))
        (ids,) = self._cache.take(["ids"], ordered, copies=len(ordered) >= _COPIED_ROWS)
        return row_numbers(ids, self._path)


class BTreeKind:
    """The kind ``BTREE``."""

    name = "BTREE"
    type_url = TYPE_URL
    index_versions = frozenset({VERSION, VERSION_WITH_STABLE_ROW_IDS})
    default_options: Mapping[str, int] = {MEMORY_OPTION: DEFAULT_MEMORY}

    def takes(self, kind: pa.DataType) -> bool:
        """Return whether values of a type have an order."""
        return has_btree(kind)

    def open(self, files: SegmentFiles, column: IndexedColumn) -> Segment:
        """Read the lookup file of a segment."""
        lookup, path = files.open(LOOKUP_FILE), files.path(LOOKUP_FILE)
        if lookup.schema.metadata.get(RANGE_PARTITIONED_KEY) == b"true":
            return UnreadSegment()
        pages = files.open(PAGE_FILE)
        check_columns(pages, page_schema(column.type), path=files.path(PAGE_FILE))
        num_rows = pages.num_rows
        content = lookup.derived(
            ("B-tree", column.type, num_rows),
            lambda: _read_lookup(lookup, column.type, num_rows, path),
            lambda content: content.num_bytes,
        )
        return BTreeSegment(column, pages, files.path(PAGE_FILE), content)

    def build(
        self, target: SegmentTarget, fragments: Iterable[FragmentColumn], options: Mapping[str, int]
    ) -> SegmentContent:
        """Read the column, sort it and write it."""
        from lance_core.index.scalar.btree_build import write_btree  # noqa: PLC0415 rarely needed

        parts = ((values, rows) for fragment in fragments for rows, values in fragment.batches())
        return write_btree(target, parts, max_memory_bytes=options[MEMORY_OPTION])

    def rewrite(self, target: SegmentTarget, segments: Sequence[tuple[Segment, Relocation]]) -> SegmentContent:
        """Merge the sorted values of segments and write the rows where they are now."""
        from lance_core.index.scalar.btree_build import merge_btrees  # noqa: PLC0415 as above

        trees = [(segment, relocate) for segment, relocate in segments if isinstance(segment, BTreeSegment)]
        batch_rows = max(_BATCH_ROWS // max(len(trees), 1), _LEAST_BATCH_ROWS)
        return merge_btrees(target, [(tree.batches(batch_rows), relocate) for tree, relocate in trees])


BTREE = BTreeKind()


def _read_lookup(lookup: DataFileReader, kind: pa.DataType, num_rows: int, path: str) -> _Lookup:
    """Read a lookup file.

    Raises:
        CorruptDataError: It does not fit a column of this type, or a page file of so many rows.
    """
    check_columns(lookup, lookup_schema(kind), path=path)
    check_limit("max_pages", lookup.num_rows, "pages of a B-tree", path=path)
    maximum, null_count, page_idx = read_columns(lookup, ["max", "null_count", "page_idx"], 0, lookup.num_rows)
    rows_per_page = metadata_number(lookup, ROWS_PER_PAGE_KEY) or 0
    counts = null_count.to_numpy().astype(np.int64)
    num_nulls = int(counts.sum())
    _check_pages(num_rows, rows_per_page, page_idx.to_numpy(), counts, path)
    last_values = maximum.slice(num_nulls // rows_per_page if num_nulls < num_rows else len(maximum))
    if last_values.null_count:
        raise CorruptDataError("the B-tree has pages without a largest value", path=path)
    last_keys = sort_keys(last_values).copy()  # no view of the mapped file
    if (last_keys[1:] < last_keys[:-1]).any():
        raise CorruptDataError("the pages of the B-tree are not in order", path=path)
    return _Lookup(
        last_keys=last_keys,
        num_nulls=num_nulls,
        rows_per_page=rows_per_page,
        num_bytes=num_bytes(last_keys),
    )


def _check_pages(
    num_rows: int, rows_per_page: int, numbers: npt.NDArray[np.uint32], null_counts: Int64s, path: str
) -> None:
    """Check that pages follow one another and that nulls come first.

    Raises:
        CorruptDataError: They do not.
    """
    num_pages = -(-num_rows // rows_per_page) if rows_per_page else -1
    if len(numbers) != num_pages or (numbers != np.arange(num_pages)).any():
        raise CorruptDataError(f"the B-tree's lookup has {len(numbers)} pages for {num_rows} rows", path=path)
    edges = np.minimum(np.arange(num_pages + 1) * rows_per_page, num_rows)
    expected = np.diff(np.minimum(edges, int(null_counts.sum())))
    if (null_counts != expected).any():
        raise CorruptDataError("the B-tree's nulls do not come first", path=path)


def _rows_of(starts: Int64s, ends: Int64s, *, step: int = 1) -> Int64s:
    """Return every ``step``-th row of some ranges, the first ones included."""
    counts = np.maximum(-(-(ends - starts) // step), 0)
    firsts = np.cumsum(counts) - counts
    return (np.arange(counts.sum()) - np.repeat(firsts, counts)) * step + np.repeat(starts, counts)
