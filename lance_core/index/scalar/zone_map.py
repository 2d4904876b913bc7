"""Zone maps: the kind of index that knows smallest and largest value, nulls and NaN of each run of rows.

It tells which rows cannot match, so that scans skip them; the others are asked. The layout of the file is described in
`lance_core.format.index.zone_map`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.common.limits import check_limit
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.arrow_kinds import is_ordered
from lance_core.format.index.row_sets import decode_row_set, rows_of_treemap
from lance_core.format.index.zone_map import (
    COLUMNS,
    DEFAULT_ROWS_PER_ZONE,
    FILE_NAME,
    INDEX_VERSION,
    NULL_BITMAP_KEY,
    ROWS_PER_ZONE_KEY,
    TYPE_URL,
    zone_schema,
)
from lance_core.index.answer import ADDRESS_SHIFT, RowAnswer, of_ranges
from lance_core.index.files import check_columns, metadata_number, read_columns
from lance_core.index.scalar.zone_table import ZoneTable, overlapping_fragments
from lance_core.sql.pruning import ColumnZones, Question, judge_column
from lance_core.sql.ternary import ANY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lance_core.index.column import IndexedColumn
    from lance_core.index.files import SegmentFiles
    from lance_core.index.protocol import FragmentColumn, Relocation, Segment, SegmentContent, SegmentTarget

Int64s: TypeAlias = npt.NDArray[np.int64]
_MAX_ROWS = 1 << 32
_MAX_FRAGMENT_ID = (1 << 31) - 1
_ROWS_PER_ZONE = "rows_per_zone"


class ZoneMapSegment:
    """One zone map, opened: all of it is in memory.

    Args:
        column: The column.
        table: What the file says.
        rows_per_zone: Rows in each zone but the last of a fragment, if the file tells.
        null_rows: Reads the addresses of the null rows, ascending; None if the file does not tell.
    """

    def __init__(
        self,
        column: IndexedColumn,
        table: ZoneTable,
        rows_per_zone: int | None,
        null_rows: Callable[[], Int64s | None],
    ) -> None:
        self.table = table
        self._read_nulls = null_rows
        self._is_nested = column.is_nested
        self._rows_per_zone = rows_per_zone
        first = table.fragment_ids << ADDRESS_SHIFT
        self._starts, self._ends = first + table.starts, first + table.ends

    @property
    def options(self) -> Mapping[str, int]:
        """Options that it was built with."""
        return {} if self._rows_per_zone is None else {_ROWS_PER_ZONE: self._rows_per_zone}

    @property
    def statistics(self) -> Mapping[str, int]:
        """Number of zones, and rows in each."""
        return {"num_zones": len(self._starts), **self.options}

    @property
    def zones(self) -> tuple[Int64s, Int64s]:
        """Address of the first row of each zone, and of the row behind its last one."""
        return self._starts, self._ends

    @property
    def ambiguous(self) -> frozenset[int]:
        """Fragments with zones that overlap, of which nothing is answered."""
        return self.table.ambiguous

    @property
    def misread(self) -> frozenset[int]:
        """Fragments with zones of NaN without a smallest value, as pylance writes them and answers wrongly from."""
        return self.table.misread

    def null_rows(self) -> Int64s | None:
        """Read the addresses of the rows that are null; None if the file does not tell."""
        return self._read_nulls()

    def answer(self, question: Question, *, tells_null: bool) -> RowAnswer:
        """Judge each zone by its smallest and largest value and its counts."""
        del tells_null
        table = self.table
        zones = ColumnZones(
            num_rows=table.ends - table.starts,
            # Where the struct around the column is null, the column is null too, which the counts leave out.
            null_count=np.full(len(table.starts), -1) if self._is_nested else table.null_count,
            nan_count=table.nan_count,
            minimum=table.minimum,
            maximum=table.maximum,
        )
        codes = judge_column(question, zones).codes
        return of_ranges(self._starts, self._ends, codes, elsewhere=ANY, is_exact=False)


class ZoneMapKind:
    """The kind ``ZONEMAP``."""

    name = "ZONEMAP"
    counts_deleted_rows = True
    type_url = TYPE_URL
    index_versions = frozenset({INDEX_VERSION})
    default_options: Mapping[str, int] = {_ROWS_PER_ZONE: DEFAULT_ROWS_PER_ZONE}

    def takes(self, kind: pa.DataType) -> bool:
        """Return whether values of a type have an order."""
        return is_ordered(kind)

    def open(self, files: SegmentFiles, column: IndexedColumn) -> ZoneMapSegment:
        """Read the zone map of a segment."""
        reader, path = files.open(FILE_NAME), files.path(FILE_NAME)
        check_columns(reader, zone_schema(column.type), path=path)
        check_limit("max_zones", reader.num_rows, "zones of a zone map", path=path)
        columns = read_columns(reader, COLUMNS, 0, reader.num_rows)
        nulls_at = metadata_number(reader, NULL_BITMAP_KEY)

        def null_rows() -> Int64s | None:
            data = None if nulls_at is None else reader.global_buffer(nulls_at)
            return None if data is None else rows_of_treemap(decode_row_set(data, path=path))

        table = _checked(columns, path)
        return ZoneMapSegment(column, table, metadata_number(reader, ROWS_PER_ZONE_KEY), null_rows)

    def build(
        self, target: SegmentTarget, fragments: Iterable[FragmentColumn], options: Mapping[str, int]
    ) -> SegmentContent:
        """Read the column and write its zones."""
        from lance_core.index.scalar.zone_map_build import build_zones, write_zones  # noqa: PLC0415 rarely needed

        rows_per_zone = options[_ROWS_PER_ZONE]
        return write_zones(target.files, target.column, build_zones(fragments, rows_per_zone), rows_per_zone)

    def rewrite(self, target: SegmentTarget, segments: Sequence[tuple[Segment, Relocation]]) -> SegmentContent:
        """Write the zones of segments where their rows are now.

        Raises:
            UnsupportedError: Nulls or NaN cannot be counted without reading the column, or zones overlap.
        """
        from lance_core.index.scalar.zone_map_build import rewrite_zones  # noqa: PLC0415 rarely needed
        from lance_core.index.scalar.zone_map_remap import moved_zones  # noqa: PLC0415 as above

        maps = [(segment, relocate) for segment, relocate in segments if isinstance(segment, ZoneMapSegment)]
        if any(segment.ambiguous for segment, _ in maps):
            raise UnsupportedError("the zone map has zones that overlap; build it again")
        parts = [moved_zones(segment.table, segment.null_rows(), relocate) for segment, relocate in maps]
        rows_per_zone = max(segment.options.get(_ROWS_PER_ZONE, DEFAULT_ROWS_PER_ZONE) for segment, _ in maps)
        return rewrite_zones(target.files, target.column, parts, rows_per_zone)


ZONE_MAP = ZoneMapKind()


def _checked(columns: Sequence[pa.Array], path: str) -> ZoneTable:
    minimum, maximum = columns[:2]
    counts = [column.to_numpy(zero_copy_only=False) for column in columns[2:]]
    if any(column.null_count for column in columns[2:]) or any(
        numbers.max(initial=0) > _MAX_ROWS for numbers in counts
    ):
        raise CorruptDataError("a zone map has counts that cannot be", path=path)
    nulls, nans, fragment_ids, starts, lengths = (numbers.astype(np.int64) for numbers in counts)
    if fragment_ids.max(initial=0) > _MAX_FRAGMENT_ID:
        raise UnsupportedError(f"a zone map of fragments with ids above {_MAX_FRAGMENT_ID}", path=path)
    order = np.lexsort((starts, fragment_ids))
    order = order[lengths[order] > 0]
    fragment_ids, starts, ends = fragment_ids[order], starts[order], (starts + lengths)[order]
    if (nulls > lengths).any() or (nans > lengths).any() or (ends > _MAX_ROWS).any():
        raise CorruptDataError("the zones of a zone map have more nulls than rows", path=path)
    ambiguous = overlapping_fragments(fragment_ids, starts, ends)
    if len(ambiguous):
        is_clear = ~np.isin(fragment_ids, ambiguous)
        order, fragment_ids, starts, ends = (values[is_clear] for values in (order, fragment_ids, starts, ends))
    positions = pa.array(order)
    minimum = minimum.take(positions)
    has_only_nan = (nans[order] > 0) & np.asarray(minimum.is_null())
    if has_only_nan.any():
        numbers = minimum.fill_null(pa.scalar(math.nan, minimum.type))
        minimum = pa.array(np.asarray(numbers), minimum.type, mask=np.asarray(minimum.is_null()) & ~has_only_nan)
    return ZoneTable(
        fragment_ids=fragment_ids,
        starts=starts,
        ends=ends,
        null_count=nulls[order],
        nan_count=nans[order],
        minimum=minimum,
        maximum=maximum.take(positions),
        ambiguous=frozenset(ambiguous.tolist()),
        misread=frozenset(fragment_ids[has_only_nan].tolist()),
    )
