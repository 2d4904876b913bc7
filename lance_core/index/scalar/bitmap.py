"""Bitmap indices: the kinds that keep the rows of each distinct value, or of each item of lists.

All keys are in memory, sorted; the sets of rows of those that a question is about are read. The layout of the file is
described in `lance_core.format.index.bitmap_index`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from lance_core.common.frozen import frozen
from lance_core.common.limits import check_limit
from lance_core.encoding.arrow_values import as_mask
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.index.bitmap_index import (
    BITMAP_TYPE_URL,
    BITMAP_VERSION,
    FILE_NAME,
    LABEL_LIST_TYPE_URL,
    LABEL_LIST_VERSION,
    LABEL_LIST_VERSIONS,
    NULL_LISTS_KEY,
    bitmap_schema,
    item_type,
)
from lance_core.format.index.btree import has_btree
from lance_core.format.index.row_sets import decode_row_set, rows_of_treemap
from lance_core.index import answer as answers
from lance_core.index.cache import BoundedCache
from lance_core.index.external_sort import DEFAULT_MEMORY, MEMORY_OPTION
from lance_core.index.files import check_columns, metadata_number, read_columns
from lance_core.index.order import Keys, num_bytes, sort_keys
from lance_core.index.protocol import RowCounts
from lance_core.index.row_sets import RowSets, union
from lance_core.index.scalar.ranges import fitting, question_ranges
from lance_core.sql.pruning import Comparison, HasItems, IsNull, Prefix, Question
from lance_core.sql.ternary import FALSE, NULL

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lance_core.file.read.reader import DataFileReader
    from lance_core.index.answer import RowAnswer
    from lance_core.index.column import IndexedColumn
    from lance_core.index.files import SegmentFiles
    from lance_core.index.protocol import FragmentColumn, Relocation, Segment, SegmentContent, SegmentTarget
    from lance_core.index.scalar.bitmap_build import Content
    from lance_core.index.scalar.ranges import Side

Int64s: TypeAlias = npt.NDArray[np.int64]

_MOST_KEYS = 1 << 12
"""Keys whose sets of rows are read for one question; a scan is cheaper than more."""

_MOST_BYTES, _SET_BYTES = 32 << 20, 256
"""Bytes of the sets that are kept for one segment, and what each takes besides those it has in the file."""

_NO_ROWS = np.empty(0, np.int64)


@frozen(kw_only=True)
class _Keys:
    """The keys of a file.

    Attributes:
        keys: Those that are not null, ascending.
        num_nulls: 1 if there is also null, else 0.
        first: Number of the first key that is not null.
        num_bytes: Bytes in memory, about.
    """

    keys: Keys
    num_nulls: int
    first: int
    num_bytes: int


class Bitmaps:
    """The keys of a bitmap index, and their sets of rows.

    Args:
        reader: The file.
        kind: Type of the keys.
        path: Name of the file, for errors.
    """

    def __init__(self, reader: DataFileReader, kind: pa.DataType, path: str) -> None:
        content = reader.derived(("keys", kind), lambda: _read_keys(reader, kind, path), lambda read: read.num_bytes)
        self.kind = kind
        self.path = path
        self.reader = reader
        self.num_nulls = content.num_nulls
        """1 if a key is null, else 0."""
        self.num_keys = reader.num_rows
        self.first = content.first
        """Number of the first key that is not null; null comes first, or last where pylance added rows to an index."""
        self.end = self.first + self.num_keys - self.num_nulls
        """Number behind the last key that is not null."""
        self._keys = content.keys
        self._counts = np.full(self.num_keys, -1, np.int64)
        self._cache: BoundedCache[int, BitMap64] = BoundedCache(_MOST_BYTES)

    def positions(self, values: pa.Array, *sides: Side) -> list[Int64s]:
        """Find values among the keys; see `lance_core.index.scalar.ranges.Positions`."""
        wanted = sort_keys(values)
        return [np.searchsorted(self._keys, wanted, side=side) + self.first for side in sides]

    def sets(self, numbers: Int64s) -> list[BitMap64]:
        """Return the rows of some keys, ascending and distinct; what was read once is kept, and must not be changed."""
        sets = {number: self._cache.get(number) for number in numbers.tolist()}
        lacking = [number for number, rows in sets.items() if rows is None]
        if lacking:
            projection = self.reader.schema.select(["bitmaps"])
            wanted = np.array(lacking, np.int64)
            column = self.reader.take(projection, self.reader.column_numbers, wanted).column(0)
            for number, data in zip(lacking, column.to_pylist(), strict=True):
                sets[number] = rows = decode_row_set(data or b"", path=self.path)
                self._cache.put(number, rows, len(data or b"") + _SET_BYTES)
        return [rows for rows in sets.values() if rows is not None]

    def rows_of_any(self, numbers: Int64s, among: BitMap64 | None = None) -> BitMap64:
        """Return the rows, or which of some rows, that have any of some keys, which ascend and are distinct."""
        return union(self.sets(numbers), among)

    def counts(self, numbers: Int64s) -> Int64s:
        """Return how many rows have each of some keys, ascending and distinct."""
        lacking = numbers[self._counts[numbers] < 0]
        self._counts[lacking] = [len(rows) for rows in self.sets(lacking)]
        return self._counts[numbers]

    @property
    def null_key(self) -> Int64s:
        """Number of the key null, if there is one: shape (1,) or (0,)."""
        return np.arange(self.num_nulls) if self.first else np.arange(self.end, self.num_keys)

    def content(self) -> Iterable[tuple[pa.Array, list[Int64s]]]:
        """Read all keys, in batches, and the rows of each."""
        for start in range(0, self.num_keys, _MOST_KEYS):
            end = min(start + _MOST_KEYS, self.num_keys)
            keys, sets = read_columns(self.reader, ["keys", "bitmaps"], start, end)
            yield keys, [rows_of_treemap(decode_row_set(data or b"", path=self.path)) for data in sets.to_pylist()]

    def entries(self) -> Iterator[tuple[pa.Array, Int64s]]:
        """Read all keys, one for each of its rows."""
        for keys, sets in self.content():
            counts = np.array([len(rows) for rows in sets], np.int64)
            yield keys.take(np.repeat(np.arange(len(keys)), counts)), np.concatenate([_NO_ROWS, *sets])


class _KeySegment:
    """One index of keys, opened.

    Args:
        bitmaps: Its keys and rows.
    """

    def __init__(self, bitmaps: Bitmaps) -> None:
        self.bitmaps = bitmaps

    @property
    def options(self) -> Mapping[str, int]:
        """Options that it was built with: none."""
        return {}

    @property
    def statistics(self) -> Mapping[str, int]:
        """Number of distinct keys."""
        return {"num_bitmaps": self.bitmaps.num_keys}

    def entries(self) -> Iterator[tuple[pa.Array, Int64s]]:
        """Read all keys and the rows of each."""
        return self.bitmaps.entries()


class BitmapSegment(_KeySegment):
    """One bitmap index, opened: the keys are the values of the column."""

    def expected_entries(self, values: pa.Array, rows: Int64s) -> Iterator[tuple[pa.Array, Int64s]]:
        """Return the value of each row."""
        yield values, rows

    def answer(self, question: Question, *, tells_null: bool) -> RowAnswer | None:
        """Look up the rows for which a question is true."""
        return self._answer(question, None, tells_null=tells_null)

    def answer_among(self, question: Question, rows: BitMap64, *, tells_null: bool) -> RowAnswer | None:
        """Look up which of some rows a question is true for."""
        return self._answer(question, rows, tells_null=tells_null)

    def _answer(self, question: Question, among: BitMap64 | None, *, tells_null: bool) -> RowAnswer | None:
        if isinstance(question, Comparison) and question.operator == "not_equal":
            equal = self._answer(Comparison(question.column, "equal", question.value), among, tells_null=True)
            return None if equal is None else answers.not_(equal)
        sets = self._sets(question, among)
        if sets is None:
            return None
        if isinstance(question, Prefix) and not question.is_exact:
            null = rows_of_treemap(sets.null) if tells_null else _NO_ROWS
            elsewhere = FALSE if tells_null or not sets.null else FALSE | NULL
            return answers.of_rows(undecided=rows_of_treemap(sets.true), null=null, elsewhere=elsewhere)
        return sets.answer(tells_null=tells_null)

    def sets(self, question: Question) -> RowSets | None:
        """Return the rows for which a question is true or null."""
        return None if isinstance(question, Prefix) and not question.is_exact else self._sets(question)

    def _sets(self, question: Question, among: BitMap64 | None = None) -> RowSets | None:
        """As `sets`, or for some rows only; of a prefix that is not exact the rows that may match."""
        bitmaps = self.bitmaps
        if isinstance(question, IsNull):
            return RowSets(bitmaps.rows_of_any(bitmaps.null_key, among))
        numbers = self._keys_of(question)
        if numbers is None:
            return None
        every = np.union1d(numbers, bitmaps.null_key)  # one read for both
        sets = dict(zip(every.tolist(), bitmaps.sets(every), strict=True))
        null = union((sets[number] for number in bitmaps.null_key.tolist()), among)
        return RowSets(union((sets[number] for number in numbers.tolist()), among), null)

    def count_entries(self) -> int:
        """Count all rows, those with null included."""
        return int(self.bitmaps.counts(np.arange(self.bitmaps.num_keys)).sum())

    def count(self, question: Question) -> RowCounts | None:
        """Count the rows for which a question is true, from the sizes of sets."""
        num_nulls = int(self.bitmaps.counts(self.bitmaps.null_key).sum())
        match question:
            case IsNull():
                return RowCounts(num_nulls)
            case Prefix(is_exact=False):
                return None
            case _:
                numbers = self._keys_of(question)
                return None if numbers is None else RowCounts(int(self.bitmaps.counts(numbers).sum()), num_nulls)

    def _keys_of(self, question: Question) -> Int64s | None:
        """Return the numbers of the keys for which a question is true; None if it is not answered, or by too many."""
        bitmaps = self.bitmaps
        ranges = question_ranges(question, bitmaps.kind, bitmaps.positions, first=bitmaps.first, end=bitmaps.end)
        if ranges is None or int((ranges[1] - ranges[0]).clip(0).sum()) > _MOST_KEYS:
            return None
        return np.unique(np.concatenate([_NO_ROWS, *(np.arange(*pair) for pair in zip(*ranges, strict=True))]))


class LabelListSegment(_KeySegment):
    """One index of list items, opened.

    Args:
        bitmaps: The items and the rows of the lists that have them.
        null_lists: Rows whose list is null; None if the file does not tell.
    """

    def __init__(self, bitmaps: Bitmaps, null_lists: Int64s | None) -> None:
        super().__init__(bitmaps)
        self.null_lists = null_lists

    def expected_entries(self, values: pa.Array, rows: Int64s) -> Iterator[tuple[pa.Array, Int64s]]:
        """Return the distinct items of each list."""
        from lance_core.index.scalar.bitmap_build import distinct_items  # noqa: PLC0415 rarely needed

        yield distinct_items(values, rows)

    def answer(self, question: Question, *, tells_null: bool) -> RowAnswer | None:
        """Look up the lists with some items."""
        del tells_null
        return self._answer(question, None)

    def answer_among(self, question: Question, rows: BitMap64, *, tells_null: bool) -> RowAnswer | None:
        """Look up which of some lists have some items."""
        del tells_null
        return self._answer(question, rows)

    def _answer(self, question: Question, among: BitMap64 | None) -> RowAnswer | None:
        null = self.null_lists
        if null is not None and among is not None:
            null = np.intersect1d(null, rows_of_treemap(among), assume_unique=True)
        match question:
            case IsNull():
                return None if null is None else answers.of_rows(true=null)
            case HasItems():
                rows = self._rows_with(question, among)
            case _:
                return None
        if rows is None:
            return None
        if null is None:
            return answers.of_rows(true=rows, elsewhere=FALSE | NULL)
        return answers.of_rows(true=rows, null=null)

    def _rows_with(self, question: HasItems, among: BitMap64 | None) -> Int64s | None:
        items = fitting(question.items, self.bitmaps.kind)
        if items is None:
            return None
        items = items.unique()
        starts, ends = self.bitmaps.positions(items, "left", "right")
        is_there = starts < ends
        if question.needs_all and not is_there.all():
            return _NO_ROWS
        numbers = np.sort(starts[is_there])
        if not len(numbers):
            return _NO_ROWS
        if question.needs_all:
            sets = self.bitmaps.sets(numbers)
            return rows_of_treemap(BitMap64.intersection(*sets, *([] if among is None else [among])))
        return rows_of_treemap(self.bitmaps.rows_of_any(numbers, among))


class BitmapKind:
    """The kind ``BITMAP``."""

    name = "BITMAP"
    type_url = BITMAP_TYPE_URL
    index_versions = frozenset({BITMAP_VERSION})
    default_options: Mapping[str, int] = {MEMORY_OPTION: DEFAULT_MEMORY}

    def takes(self, kind: pa.DataType) -> bool:
        """Return whether values of a type have an order."""
        return has_btree(kind)

    def open(self, files: SegmentFiles, column: IndexedColumn) -> Segment:
        """Read the keys of a segment."""
        return BitmapSegment(Bitmaps(files.open(FILE_NAME), column.type, files.path(FILE_NAME)))

    def build(
        self, target: SegmentTarget, fragments: Iterable[FragmentColumn], options: Mapping[str, int]
    ) -> SegmentContent:
        """Read the column and write the rows of each value."""
        from lance_core.index.scalar.bitmap_build import write_bitmaps  # noqa: PLC0415 rarely needed

        batches = (pair for fragment in fragments for pair in fragment.batches(by_row_id=target.with_stable_row_ids))
        pairs = ((values, rows) for rows, values in batches)
        return write_bitmaps(
            target.files, target.column.type, options[MEMORY_OPTION], version=BITMAP_VERSION, pairs=pairs
        )

    def rewrite(self, target: SegmentTarget, segments: Sequence[tuple[Segment, Relocation]]) -> SegmentContent:
        """Merge the rows of each value and write them where they are now."""
        from lance_core.index.scalar.bitmap_build import relocated, write_bitmaps  # noqa: PLC0415 rarely needed

        parts = [
            (segment.bitmaps.content(), relocate)
            for segment, relocate in segments
            if isinstance(segment, BitmapSegment)
        ]
        return write_bitmaps(
            target.files, target.column.type, DEFAULT_MEMORY, version=BITMAP_VERSION, sets=relocated(parts)
        )


class LabelListKind:
    """The kind ``LABEL_LIST``."""

    name = "LABEL_LIST"
    type_url = LABEL_LIST_TYPE_URL
    index_versions = frozenset(LABEL_LIST_VERSIONS)
    default_options: Mapping[str, int] = {MEMORY_OPTION: DEFAULT_MEMORY}

    def takes(self, kind: pa.DataType) -> bool:
        """Return whether values are lists of items that have an order."""
        return item_type(kind) is not None

    def open(self, files: SegmentFiles, column: IndexedColumn) -> Segment:
        """Read the items of a segment, and the rows of null lists."""
        reader, path = files.open(FILE_NAME), files.path(FILE_NAME)
        number = metadata_number(reader, NULL_LISTS_KEY)
        nulls = None if number is None else rows_of_treemap(decode_row_set(reader.global_buffer(number), path=path))
        kind = item_type(column.type)
        assert kind is not None  # noqa: S101 for the type checker: the kind takes the column
        return LabelListSegment(Bitmaps(reader, kind, path), nulls)

    def build(
        self, target: SegmentTarget, fragments: Iterable[FragmentColumn], options: Mapping[str, int]
    ) -> SegmentContent:
        """Read the column and write the rows of each item."""
        from lance_core.index.scalar.bitmap_build import NullLists, write_bitmaps  # noqa: PLC0415 rarely needed

        nulls = NullLists()
        batches = (pair for fragment in fragments for pair in fragment.batches(by_row_id=target.with_stable_row_ids))
        items = (nulls.items(lists, rows) for rows, lists in batches)
        kind = item_type(target.column.type)
        assert kind is not None  # noqa: S101 as above
        return write_bitmaps(
            target.files, kind, options[MEMORY_OPTION], version=LABEL_LIST_VERSION, pairs=items, nulls=nulls
        )

    def rewrite(self, target: SegmentTarget, segments: Sequence[tuple[Segment, Relocation]]) -> SegmentContent:
        """Merge the rows of each item and write them where they are now.

        Raises:
            UnsupportedError: A segment does not tell which lists are null; build the index anew.
        """
        from lance_core.index.scalar.bitmap_build import NullLists, relocated, write_bitmaps  # noqa: PLC0415 rarely needed

        nulls = NullLists()
        parts: list[tuple[Content, Relocation]] = []
        for segment, relocate in segments:
            if not isinstance(segment, LabelListSegment) or segment.null_lists is None:
                raise UnsupportedError("a segment does not tell which lists are null; create the index anew")
            moved = relocate(segment.null_lists)
            nulls.add(moved[moved >= 0])
            parts.append((segment.bitmaps.content(), relocate))
        kind = item_type(target.column.type)
        assert kind is not None  # noqa: S101 as above
        return write_bitmaps(
            target.files, kind, DEFAULT_MEMORY, version=LABEL_LIST_VERSION, sets=relocated(parts), nulls=nulls
        )


def _read_keys(reader: DataFileReader, kind: pa.DataType, path: str) -> _Keys:
    """Read the keys of a file.

    Raises:
        CorruptDataError: They are of another type, or not in order.
    """
    check_columns(reader, bitmap_schema(kind), path=path)
    check_limit("max_zones", reader.num_rows, "keys of a bitmap index", path=path)
    (values,) = read_columns(reader, ["keys"], 0, reader.num_rows)
    num_nulls = values.null_count
    is_null = as_mask(values.is_null())
    first = int(num_nulls and is_null[0])
    keys = sort_keys(values.drop_null()).copy()  # no view of the mapped file
    is_misplaced = is_null[first : first + len(values) - num_nulls].any()
    if num_nulls > 1 or is_misplaced or (keys[1:] <= keys[:-1]).any():
        raise CorruptDataError("the keys of a bitmap index are not in order", path=path)
    return _Keys(keys=keys, num_nulls=num_nulls, first=first, num_bytes=num_bytes(keys))


BITMAP = BitmapKind()
LABEL_LIST = LabelListKind()
