"""Which rows of a fragment a filter may match, as far as zone maps and the statistics in its data files tell.

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
from lance_core.encoding.distinct import distinct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_core.file.read.v0_1 import BatchStatistics
    from lance_core.format.schema import Field, Schema
    from lance_core.scan.fragment_reader import FragmentReader
    from lance_core.scan.plan import ScanPlan
    from lance_core.sql.pruning import ColumnZones

_MAX_GAP = 1 << 12
"""Rows that are read and filtered faster than reading begins anew behind them."""


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
    return ranges if plan.zone_maps is None else plan.zone_maps.narrowed(reader, ranges)


def _by_statistics(reader: FragmentReader, plan: ScanPlan, start: int, end: int) -> list[tuple[int, int]]:
    whole = [(start, end)] if start < end else []
    if plan.predicate is None or plan.predicate.asks is None:
        return whole
    files = [(bounds, known) for bounds, known in reader.batch_statistics(plan.filter_projection) if known]
    if not files:
        return whole
    from lance_core.sql.pruning import may_match  # noqa: PLC0415 brings Arrow's kernels along

    bounds = distinct(np.concatenate([one for one, _ in files]))
    columns = _zones(plan.filter_projection, plan.predicate.columns, files, bounds)
    keep = may_match(plan.predicate.asks, columns, len(bounds) - 1)
    return kept_ranges(bounds, keep, start, end)


def _zones(
    schema: Schema,
    paths: Sequence[str],
    files: Sequence[tuple[npt.NDArray[np.int64], Mapping[int, BatchStatistics]]],
    bounds: npt.NDArray[np.int64],
) -> dict[str, ColumnZones]:
    """What is known of columns, in zones that are cut wherever a batch of any file ends."""
    found: dict[str, ColumnZones] = {}
    for path in paths:
        field = _leaf(schema, path)
        for first_rows, known in files:
            if field is None or field.id not in known:
                continue
            zones = _column(field, known[field.id], np.diff(first_rows))
            batches = np.searchsorted(first_rows, bounds[:-1], side="right") - 1
            if zones is not None and first_rows[-1] == bounds[-1]:
                found[path] = _picked(zones, batches)
    return found


def _leaf(schema: Schema, path: str) -> Field | None:
    """The field at a path of structs; None for others, and for names that are not in the table."""
    top = path.split(".", 1)[0]
    if path not in schema.names and top not in schema.names:
        return None
    field = schema.select([path]).fields[0]
    while field.logical_type == "struct" and len(field.children) == 1:
        field = field.children[0]
    return None if field.children else field


def _column(field: Field, known: BatchStatistics, num_rows: npt.NDArray[np.int64]) -> ColumnZones | None:
    """What the statistics say of the values that are read."""
    from lance_core.sql.pruning import ColumnZones  # noqa: PLC0415 as above

    kind = field.to_arrow().type
    if known.minimum.type != kind or known.maximum.type != kind or len(known.null_count) != len(num_rows):
        return None
    had_nulls = known.null_count != 0
    minimum, maximum = known.minimum, known.maximum
    if offset_dtype(kind) is not None and field.nullable:
        # Without a minimum there may be empty strings, which read as null.
        is_known = np.asarray(minimum.is_valid()) | (known.null_count == num_rows)
        null_count = np.where(is_known, known.null_count, -1)
    else:
        # Whatever was written in the place of nulls is read, and nothing tells what that was.
        null_count = np.zeros(len(num_rows), np.int64)
        minimum, maximum = (_without(bound, had_nulls) for bound in (minimum, maximum))
    return ColumnZones(num_rows=num_rows, null_count=null_count, minimum=minimum, maximum=maximum)


def _without(array: pa.Array, mask: npt.NDArray[np.bool_]) -> pa.Array:
    """The array with nulls where the mask is set."""
    places = pa.array(np.arange(len(array)), mask=mask)
    return array.take(places)


def _picked(zones: ColumnZones, batches: npt.NDArray[np.int64]) -> ColumnZones:
    from lance_core.sql.pruning import ColumnZones  # noqa: PLC0415 as above

    places = pa.array(batches)
    return ColumnZones(
        num_rows=zones.num_rows[batches],
        null_count=zones.null_count[batches],
        minimum=zones.minimum.take(places),
        maximum=zones.maximum.take(places),
    )


def kept_ranges(
    bounds: npt.NDArray[np.int64], keep: npt.NDArray[np.bool_], start: int, end: int
) -> list[tuple[int, int]]:
    """Neighbouring zones to keep as ranges inside of [start, end)."""
    found: list[tuple[int, int]] = []
    for zone in np.flatnonzero(keep).tolist():
        low, high = max(int(bounds[zone]), start), min(int(bounds[zone + 1]), end)
        if low >= high:
            continue
        if found and low - found[-1][1] <= _MAX_GAP:
            found[-1] = (found[-1][0], high)
        else:
            found.append((low, high))
    return found
