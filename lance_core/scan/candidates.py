"""Rows of a fragment that a filter may match, as far as indices and the statistics in its data files tell.

Files of version 0.1 have statistics of each batch of rows. They were made of what was written, but what is read is
something else: nulls are not stored, so that numbers read as whatever lies in their place, and strings that are empty
read as null. pylance 14.0.2 skips batches regardless of this and loses rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.encoding.arrow_values import offset_dtype
from lance_core.encoding.kernels import distinct
from lance_core.format.table.fragment_list import FragmentList

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lance_core.file.read.v0_1 import BatchStatistics
    from lance_core.format.schema import Field, Schema
    from lance_core.format.table.fragment import Fragment
    from lance_core.index.answer import RowAnswer
    from lance_core.scan.deletions import Offsets
    from lance_core.scan.fragment_reader import FragmentReader
    from lance_core.scan.plan import ScanPlan
    from lance_core.sql.pruning import ColumnZones

_MAX_GAP = 1 << 12
"""Rows that are read and filtered faster than reading begins anew behind them."""

SPARSE_SHARE = 1 / 32
"""Up to this share of the rows, reading single rows is cheaper than decoding the range around them."""

_LONG_RUN = 1 << 7
"""Rows that lie together in so many on average are read as ranges, not row by row."""


def candidate_fragments(fragments: Iterable[Fragment], plan: ScanPlan) -> Iterable[Fragment]:
    """Return the fragments of which rows may match, as far as indices tell, in the same order."""
    return fragments if plan.index_answer is None else answered_fragments(fragments, plan.index_answer)


def answered_fragments(fragments: Iterable[Fragment], answer: RowAnswer) -> Iterable[Fragment]:
    """Return the fragments of which an answer of indices has rows that may match, in the same order."""
    if not isinstance(fragments, FragmentList):
        return fragments
    ids, num_rows = fragments.ids.astype(np.int64), fragments.physical_rows.astype(np.int64)
    positions = answer.may_match(ids, num_rows).nonzero()[0]
    return fragments if len(positions) == len(ids) else [fragments[position] for position in positions.tolist()]


def candidate_ranges(reader: FragmentReader, plan: ScanPlan, start: int, end: int) -> list[tuple[int, int]]:
    """Ranges of row offsets inside of [start, end), ascending and apart, that hold all rows that match.

    Args:
        reader: The fragment.
        plan: What to read, with a predicate.
        start: First row.
        end: Row behind the last one.

    Raises:
        CorruptDataError: A file is damaged.
    """
    ranges = _by_statistics(reader, plan, start, end)
    if plan.index_answer is None:
        return ranges
    return [cut for low, high in ranges for cut in indexed_ranges(reader.fragment, plan, low, high)]


def indexed_ranges(fragment: Fragment, plan: ScanPlan, start: int, end: int) -> list[tuple[int, int]]:
    """As `candidate_ranges`, as far as indices tell."""
    if plan.index_answer is None:
        return [(start, end)]
    answer = plan.index_answer.of_fragment(fragment.id, fragment.physical_rows)
    return kept_ranges(answer.bounds, answer.may_match, start, end)


def candidate_mask(reader: FragmentReader, plan: ScanPlan, start: int, end: int) -> npt.NDArray[np.bool_] | None:
    """Return which of the rows [start, end) are live and may match, as far as indices tell; None for all of them."""
    live = reader.live_mask(start, end)
    if plan.index_answer is None:
        return live
    mask = plan.index_answer.of_fragment(reader.fragment.id, reader.physical_rows).mask(start, end)
    return mask if live is None else mask & live


def residual_plan(reader: FragmentReader, plan: ScanPlan) -> ScanPlan | None:
    """Return a plan that asks what indices leave undecided in a fragment; None if they know the answer for each row."""
    if plan.index_answer is None:
        return plan
    if plan.index_answer.of_fragment(reader.fragment.id, reader.physical_rows).is_decided:
        return None
    return plan if plan.residuals is None else plan.residuals.plan(plan, reader.fragment.id)


def live_candidates(reader: FragmentReader, plan: ScanPlan, start: int, end: int) -> Offsets:
    """Return the live rows inside of [start, end) that may match, ascending; the plan has an answer of indices."""
    assert plan.index_answer is not None  # noqa: S101 for the type checker
    answer = plan.index_answer.of_fragment(reader.fragment.id, reader.physical_rows)
    return _live(reader, answer.candidates(), start, end)


def count_candidates(reader: FragmentReader, plan: ScanPlan) -> int:
    """Count the live rows that may match; the plan has an answer of indices."""
    assert plan.index_answer is not None  # noqa: S101 for the type checker
    answer = plan.index_answer.of_fragment(reader.fragment.id, reader.physical_rows)
    return answer.num_candidates - int(np.count_nonzero(answer.may_match_at(reader.deleted)))


def scattered_candidates(reader: FragmentReader, plan: ScanPlan, start: int, end: int) -> Offsets | None:
    """Return the live rows inside of [start, end) that may match, if they are few and far between; else None."""
    if plan.index_answer is None:
        return None
    answer = plan.index_answer.of_fragment(reader.fragment.id, reader.physical_rows)
    ranges = kept_ranges(answer.bounds, answer.may_match, 0, reader.physical_rows)
    is_scattered = _are_scattered(answer.num_candidates, ranges)
    return _live(reader, answer.candidates(), start, end) if is_scattered else None


def dense_ranges(offsets: Offsets) -> list[tuple[int, int]] | None:
    """Return ranges that hold some rows, ascending and apart; None if these are few and far between.

    Args:
        offsets: The rows, ascending.
    """
    ranges = _joined(offsets, offsets + 1)
    return None if _are_scattered(len(offsets), ranges) else ranges


def _are_scattered(count: int, ranges: Sequence[tuple[int, int]]) -> bool:
    """Return whether so many rows, which some ranges hold, are cheaper to read one by one."""
    num_rows = sum([end - start for start, end in ranges])
    return count <= num_rows * SPARSE_SHARE or count < len(ranges) * _LONG_RUN


def _live(reader: FragmentReader, offsets: Offsets, start: int, end: int) -> Offsets:
    low, high = offsets.searchsorted((start, end))
    inside = offsets[low:high]
    return inside[~np.isin(inside, reader.deleted)] if len(inside) and len(reader.deleted) else inside


def _by_statistics(reader: FragmentReader, plan: ScanPlan, start: int, end: int) -> list[tuple[int, int]]:
    whole = [(start, end)] if start < end else []
    if plan.predicate is None or plan.predicate.asks is None:
        return whole
    files = [
        (bounds, statistics) for bounds, statistics in reader.batch_statistics(plan.filter_projection) if statistics
    ]
    if not files:
        return whole
    from lance_core.sql.pruning import may_match  # noqa: PLC0415 brings Arrow's kernels along

    bounds = distinct(np.concatenate([first_rows for first_rows, _ in files]))
    columns = _zones(plan.filter_projection, plan.predicate.columns, files, bounds)
    keep = may_match(plan.predicate.asks, columns, len(bounds) - 1)
    return kept_ranges(bounds, keep, start, end)


def _zones(
    schema: Schema,
    paths: Sequence[str],
    files: Sequence[tuple[npt.NDArray[np.int64], Mapping[int, BatchStatistics]]],
    bounds: npt.NDArray[np.int64],
) -> dict[str, ColumnZones]:
    """Return statistics of columns, in zones that are cut wherever a batch of any file ends."""
    column_zones: dict[str, ColumnZones] = {}
    for path in paths:
        field = _leaf(schema, path)
        for first_rows, statistics in files:
            if field is None or field.id not in statistics:
                continue
            zones = _column(field, statistics[field.id], np.diff(first_rows))
            batches = np.searchsorted(first_rows, bounds[:-1], side="right") - 1
            if zones is not None and first_rows[-1] == bounds[-1]:
                column_zones[path] = _picked(zones, batches)
    return column_zones


def _leaf(schema: Schema, path: str) -> Field | None:
    """Return the field at a path of structs; None for others, and for names that are not in the table."""
    top = path.split(".", 1)[0]
    if path not in schema.names and top not in schema.names:
        return None
    field = schema.select([path]).fields[0]
    while field.logical_type == "struct" and len(field.children) == 1:
        field = field.children[0]
    return None if field.children else field


def _column(field: Field, statistics: BatchStatistics, num_rows: npt.NDArray[np.int64]) -> ColumnZones | None:
    """Return the statistics of the values that are read."""
    from lance_core.sql.pruning import ColumnZones  # noqa: PLC0415 as above

    kind = field.to_arrow().type
    if (
        statistics.minimum.type != kind
        or statistics.maximum.type != kind
        or len(statistics.null_count) != len(num_rows)
    ):
        return None
    had_nulls = statistics.null_count != 0
    minimum, maximum = statistics.minimum, statistics.maximum
    if offset_dtype(kind) is not None and field.nullable:
        # Without a minimum there may be empty strings, which read as null.
        is_known = np.asarray(minimum.is_valid()) | (statistics.null_count == num_rows)
        null_count = np.where(is_known, statistics.null_count, -1)
    else:
        # Whatever was written in the place of nulls is read, and nothing tells what that was.
        null_count = np.zeros(len(num_rows), np.int64)
        minimum, maximum = (_without(bound, had_nulls) for bound in (minimum, maximum))
    return ColumnZones(num_rows=num_rows, null_count=null_count, minimum=minimum, maximum=maximum)


def _without(array: pa.Array, mask: npt.NDArray[np.bool_]) -> pa.Array:
    """Return the array with nulls where the mask is set."""
    valid_indices = pa.array(np.arange(len(array)), mask=mask)
    return array.take(valid_indices)


def _picked(zones: ColumnZones, batches: npt.NDArray[np.int64]) -> ColumnZones:
    from lance_core.sql.pruning import ColumnZones  # noqa: PLC0415 as above

    batch_indices = pa.array(batches)
    return ColumnZones(
        num_rows=zones.num_rows[batches],
        null_count=zones.null_count[batches],
        minimum=zones.minimum.take(batch_indices),
        maximum=zones.maximum.take(batch_indices),
    )


def kept_ranges(
    bounds: npt.NDArray[np.int64], keep: npt.NDArray[np.bool_], start: int, end: int
) -> list[tuple[int, int]]:
    """Neighbouring zones to keep as ranges inside of [start, end)."""
    starts, ends = np.maximum(bounds[:-1][keep], start), np.minimum(bounds[1:][keep], end)
    is_inside = starts < ends
    return _joined(starts[is_inside], ends[is_inside])


def _joined(starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return ascending ranges with those between which few rows lie as one."""
    is_edge = np.ones(len(starts) + 1, np.bool_)
    np.greater(starts[1:] - ends[:-1], _MAX_GAP, out=is_edge[1:-1])
    return list(zip(starts[is_edge[:-1]].tolist(), ends[is_edge[1:]].tolist(), strict=True))
