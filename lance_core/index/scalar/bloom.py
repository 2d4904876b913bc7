"""Bloom filters: the kind of index that knows which values do not occur in a run of rows.

It tells which rows cannot match, so that scans skip them; the others are asked. The layout of the file is described in
`lance_core.format.index.bloom_filter`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.common.limits import check_limit
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.index.bloom_filter import (
    BLOCK_BYTES,
    BLOOM_SCHEMA,
    DEFAULT_ITEMS,
    FILE_NAME,
    ITEMS_KEY,
    MAX_FILTER_BYTES,
    NULL_BITMAP_KEY,
    TYPE_URL,
    VERSION,
    has_bloom_filter,
    hash_values,
    may_contain,
)
from lance_core.format.index.row_sets import decode_row_set, rows_of_treemap
from lance_core.index import answer as answers
from lance_core.index.answer import ADDRESS_SHIFT
from lance_core.index.files import check_columns, metadata_number, read_columns
from lance_core.index.scalar.ranges import fitting
from lance_core.index.scalar.zone_table import overlapping_fragments
from lance_core.sql.pruning import Comparison, IsNull, Membership, Question
from lance_core.sql.ternary import ANY, FALSE, NULL

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lance_core.file.read.reader import DataFileReader
    from lance_core.index.answer import RowAnswer
    from lance_core.index.column import IndexedColumn
    from lance_core.index.files import SegmentFiles
    from lance_core.index.protocol import FragmentColumn, Relocation, Segment, SegmentContent, SegmentTarget
    from lance_core.index.scalar.bloom_build import MovedFilters

Int64s: TypeAlias = npt.NDArray[np.int64]
NUMBER_OF_ITEMS = "number_of_items"
_MAX_FRAGMENT_ID = (1 << 31) - 1
_MAX_ROWS = 1 << 32
_MOST_VALUES = 1 << 10
"""Values of an ``IN`` up to which filters are asked; the more values, the fewer zones are left out."""


@frozen(kw_only=True)
class BloomZones:
    """Zones of one index, sorted by first row.

    Attributes:
        starts: Shape (zones,), address of each zone's first row.
        ends: Shape (zones,), behind the last one; greater than its start.
        has_null: Shape (zones,): a value may be null.
        file_rows: Shape (zones,), row of each zone in the file.
        ambiguous: Fragments with zones that overlap, some of them stale; their zones are left out.
    """

    starts: Int64s
    ends: Int64s
    has_null: npt.NDArray[np.bool_]
    file_rows: Int64s
    ambiguous: frozenset[int] = frozenset()


class BloomFilterSegment:
    """One index of Bloom filters, opened; filters are read when they are first needed, and kept.

    Args:
        reader: The file.
        path: Its name, for errors.
        column: The column.
        zones: Its zones.
        nulls: Addresses of null rows; None if the file does not tell.
    """

    def __init__(
        self, reader: DataFileReader, path: str, column: IndexedColumn, zones: BloomZones, nulls: Int64s | None
    ) -> None:
        self._reader = reader
        self._path = path
        self._type = column.type
        self._zones = zones
        self._nulls = nulls
        if nulls is not None and zones.ambiguous:
            self._nulls = nulls[~np.isin(nulls >> ADDRESS_SHIFT, np.array(sorted(zones.ambiguous)))]
        self._filters: list[bytes] | None = None

    @property
    def options(self) -> Mapping[str, int]:
        """Options that it was built with."""
        items = metadata_number(self._reader, ITEMS_KEY)
        return {} if items is None else {NUMBER_OF_ITEMS: items}

    @property
    def statistics(self) -> Mapping[str, int]:
        """Number of zones, and rows in each."""
        return {"num_zones": len(self._zones.starts), **self.options}

    @property
    def zones(self) -> tuple[Int64s, Int64s]:
        """Address of the first row of each zone, and of the row behind its last one."""
        return self._zones.starts, self._zones.ends

    @property
    def ambiguous(self) -> frozenset[int]:
        """Fragments with zones that overlap, of which nothing is answered."""
        return self._zones.ambiguous

    @property
    def misread(self) -> frozenset[int]:
        """No fragments: pylance reads all filters as they are."""
        return frozenset()

    def null_rows(self) -> Int64s | None:
        """Addresses of the rows that are null; None if the file does not tell."""
        return self._nulls

    def answer(self, question: Question, *, tells_null: bool) -> RowAnswer | None:
        """Ask the filter of each zone for the values of a question."""
        del tells_null
        match question:
            case IsNull():
                return self._null_answer()
            case Comparison(operator="equal"):
                values = fitting(pa.repeat(question.value, 1), self._type)
            case Membership():
                values = fitting(question.values, self._type)
            case _:
                return None
        if values is None or len(values) > _MOST_VALUES:
            return None
        hashes = hash_values(values)
        hits = np.array([bool(may_contain(data, hashes).any()) for data in self._all_filters()], np.bool_)
        codes = np.where(hits, ANY, np.where(self._zones.has_null, FALSE | NULL, FALSE)).astype(np.uint8)
        return answers.of_ranges(self._zones.starts, self._zones.ends, codes, elsewhere=ANY, is_exact=False)

    def _null_answer(self) -> RowAnswer | None:
        if self._nulls is None:
            return None
        zones = self._zones
        not_null = answers.of_ranges(
            zones.starts, zones.ends, np.full(len(zones.starts), FALSE, np.uint8), elsewhere=ANY
        )
        return answers.or_(not_null, answers.of_rows(true=self._nulls))

    def moved(self, relocate: Relocation) -> MovedFilters:
        """Return the zones where their rows are now.

        Raises:
            UnsupportedError: Zones overlap, or the file does not tell which rows are null.
        """
        from lance_core.index.scalar.bloom_build import MovedFilters  # noqa: PLC0415 rarely needed
        from lance_core.index.scalar.zone_map_remap import moved_runs  # noqa: PLC0415 as above

        if self.ambiguous or (self._nulls is None and self._zones.has_null.any()):
            raise UnsupportedError("the Bloom filters overlap, or do not tell which rows are null; build them again")
        zone, first, length = moved_runs(*self.zones, relocate)
        nulls = np.empty(0, np.int64) if self._nulls is None else relocate(self._nulls)
        filters = self._all_filters()
        return MovedFilters(
            first=first, length=length, filters=[filters[number] for number in zone], nulls=nulls[nulls >= 0]
        )

    def _all_filters(self) -> list[bytes]:
        if self._filters is None:
            (data,) = read_columns(self._reader, ["bloom_filter_data"], 0, self._reader.num_rows)
            filters = data.to_pylist()
            sizes = {len(data) for data in filters}
            if any(size < BLOCK_BYTES or size > MAX_FILTER_BYTES or size & (size - 1) for size in sizes):
                raise CorruptDataError("a Bloom filter has a size that is no power of two", path=self._path)
            self._filters = [filters[zone] for zone in self._zones.file_rows.tolist()]
        return self._filters


class BloomFilterKind:
    """The kind ``BLOOMFILTER``."""

    name = "BLOOMFILTER"
    counts_deleted_rows = True
    type_url = TYPE_URL
    index_versions = frozenset({VERSION})
    default_options: Mapping[str, int] = {NUMBER_OF_ITEMS: DEFAULT_ITEMS}

    def takes(self, kind: pa.DataType) -> bool:
        """Return whether filters are made of values of a type."""
        return has_bloom_filter(kind)

    def open(self, files: SegmentFiles, column: IndexedColumn) -> Segment:
        """Read the zones of a segment."""
        reader, path = files.open(FILE_NAME), files.path(FILE_NAME)
        check_columns(reader, BLOOM_SCHEMA, path=path)
        check_limit("max_zones", reader.num_rows, "zones of an index", path=path)
        names = ["fragment_id", "zone_start", "zone_length", "has_null"]
        columns = read_columns(reader, names, 0, reader.num_rows)
        number = metadata_number(reader, NULL_BITMAP_KEY)
        nulls = None if number is None else rows_of_treemap(decode_row_set(reader.global_buffer(number), path=path))
        return BloomFilterSegment(reader, path, column, _checked(columns, path), nulls)

    def build(
        self, target: SegmentTarget, fragments: Iterable[FragmentColumn], options: Mapping[str, int]
    ) -> SegmentContent:
        """Read the column and write a filter for each zone."""
        from lance_core.index.scalar.bloom_build import write_filters  # noqa: PLC0415 rarely needed

        return write_filters(target.files, fragments, options[NUMBER_OF_ITEMS])

    def rewrite(self, target: SegmentTarget, segments: Sequence[tuple[Segment, Relocation]]) -> SegmentContent:
        """Write the filters of segments where their rows are now.

        Raises:
            UnsupportedError: A segment does not tell which rows are null, or has zones that overlap.
        """
        from lance_core.index.scalar.bloom_build import rewrite_filters  # noqa: PLC0415 rarely needed

        filters = [(segment, relocate) for segment, relocate in segments if isinstance(segment, BloomFilterSegment)]
        num_items = max(segment.options.get(NUMBER_OF_ITEMS, DEFAULT_ITEMS) for segment, _ in filters)
        return rewrite_filters(target.files, [segment.moved(relocate) for segment, relocate in filters], num_items)


BLOOM_FILTER = BloomFilterKind()


def _checked(columns: list[pa.Array], path: str) -> BloomZones:
    if any(column.null_count for column in columns):
        raise CorruptDataError("an index of Bloom filters has zones that are null", path=path)
    numbers = [column.to_numpy(zero_copy_only=False) for column in columns[:3]]
    if any(
        data.max(initial=0) > limit
        for data, limit in zip(numbers, (_MAX_FRAGMENT_ID, _MAX_ROWS, _MAX_ROWS), strict=True)
    ):
        raise CorruptDataError("an index of Bloom filters has zones that cannot be", path=path)
    fragment_ids, offsets, lengths = (data.astype(np.int64) for data in numbers)
    starts = (fragment_ids << ADDRESS_SHIFT) + offsets
    file_rows = np.argsort(starts, kind="stable")
    file_rows = file_rows[lengths[file_rows] > 0]
    starts, ends = starts[file_rows], (starts + lengths)[file_rows]
    if ((offsets + lengths) > _MAX_ROWS).any():
        raise CorruptDataError("an index of Bloom filters has zones of too many rows", path=path)
    ambiguous = overlapping_fragments(fragment_ids[file_rows], starts, ends)
    if len(ambiguous):
        is_clear = ~np.isin(fragment_ids[file_rows], ambiguous)
        starts, ends, file_rows = starts[is_clear], ends[is_clear], file_rows[is_clear]
    return BloomZones(
        starts=starts,
        ends=ends,
        has_null=np.asarray(columns[3])[file_rows],
        file_rows=file_rows,
        ambiguous=frozenset(ambiguous.tolist()),
    )
