"""Build zone maps: look at the values of a column and write what is known of each run of rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.common.frozen import mutable
from lance_core.format.index.row_sets import encode_row_set, parts_of
from lance_core.format.index.zone_map import (
    FILE_NAME,
    INDEX_VERSION,
    NULL_BITMAP_KEY,
    ROWS_PER_ZONE_KEY,
    encode_details,
    zone_schema,
)
from lance_core.index.answer import ADDRESS_SHIFT, OFFSET_MASK
from lance_core.index.protocol import SegmentContent
from lance_core.index.scalar.zone_map_remap import joined, widened

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lance_core.index.column import IndexedColumn
    from lance_core.index.files import SegmentFiles
    from lance_core.index.protocol import FragmentColumn
    from lance_core.index.scalar.zone_map_remap import MovedZones


@mutable
class Zones:
    """Rows of the file that is being built, column by column.

    Attributes:
        minimum: Smallest value of each zone.
        maximum: Largest value of each zone.
        counts: Nulls, NaN, fragment id, first row and number of rows of each zone.
        nulls: Offsets of the null rows by fragment id.
    """

    minimum: list[pa.Scalar]
    maximum: list[pa.Scalar]
    counts: list[tuple[int, int, int, int, int]]
    nulls: dict[int, npt.NDArray[np.int64]]


def build_zones(fragments: Iterable[FragmentColumn], rows_per_zone: int) -> Zones:
    """Look at the values of a column; deleted rows count like others."""
    zones = Zones([], [], [], {})
    for fragment in fragments:
        zones.nulls[fragment.fragment_id] = _look(fragment, rows_per_zone, zones)
    return zones


def _look(fragment: FragmentColumn, rows_per_zone: int, zones: Zones) -> npt.NDArray[np.int64]:
    """Add the zones of a fragment and return the offsets of its null rows."""
    import pyarrow.compute as pc  # noqa: PLC0415 keeps `import lance_core` light

    kernels: Any = pc
    start = 0
    nulls: list[npt.NDArray[np.int64]] = []
    for values in by_zone(fragment.arrays(), rows_per_zone):
        low, high, nan_count = _extremes(kernels, values)
        zones.minimum.append(low)
        zones.maximum.append(high)
        zones.counts.append((values.null_count, nan_count, fragment.fragment_id, start, len(values)))
        if values.null_count:
            nulls.append(np.flatnonzero(np.asarray(values.is_null())) + start)
        start += len(values)
    return np.concatenate(nulls) if nulls else np.empty(0, np.int64)


def by_zone(arrays: Iterable[pa.Array], rows_per_zone: int) -> Iterator[pa.Array]:
    """Return the same values, cut so that each array is a zone."""
    pending: list[pa.Array] = []
    missing = rows_per_zone
    for array in arrays:
        position = 0
        while position < len(array):
            piece = array.slice(position, missing)
            pending.append(piece)
            position += len(piece)
            missing -= len(piece)
            if not missing:
                yield pa.concat_arrays(pending)
                pending, missing = [], rows_per_zone
    if pending:
        yield pa.concat_arrays(pending)


def _extremes(kernels: Any, values: pa.Array) -> tuple[pa.Scalar, pa.Scalar, int]:
    """Smallest and largest value, and how many are NaN."""
    kind = values.type
    if not pa.types.is_floating(kind):
        is_duration = pa.types.is_duration(kind)  # for which Arrow has no kernel
        bounds = kernels.min_max(values.cast(pa.int64()) if is_duration else values)
        return bounds["min"].cast(kind), bounds["max"].cast(kind), 0
    wide = values.cast(pa.float64()).drop_null().to_numpy(zero_copy_only=False)
    is_nan = np.isnan(wide)
    nans, numbers = wide[is_nan], wide[~is_nan]
    # Zeros of both signs are the same number, but others may order them.
    low, high = (float(numbers.min()) or -0.0, float(numbers.max()) or 0.0) if len(numbers) else (None, None)
    # NaN is larger than every number, as in pylance. Negative NaN is smaller; pylance finds neither it nor any number
    # in zones that begin with NaN, so these begin with -inf. Its own zone maps forget negative NaN.
    if len(nans):
        high = math.nan
        low = -math.inf if np.signbit(nans).any() else math.nan if low is None else low
    return (*(pa.scalar(bound, pa.float64()).cast(kind) for bound in (low, high)), len(nans))


def write_zones(files: SegmentFiles, column: IndexedColumn, zones: Zones, rows_per_zone: int) -> SegmentContent:
    """Write the file."""
    kind = column.type
    schema = zone_schema(kind)
    extremes = [_array(side, kind) for side in (zones.minimum, zones.maximum)]
    counts = np.array(zones.counts, np.uint64).reshape(-1, 5)
    numbers = [pa.array(counts[:, index]).cast(schema.field(index + 2).type) for index in range(5)]
    files.write(
        FILE_NAME,
        schema,
        [pa.RecordBatch.from_arrays([*extremes, *numbers], schema=schema)],
        metadata={ROWS_PER_ZONE_KEY: str(rows_per_zone)},
        buffers={NULL_BITMAP_KEY: encode_row_set(parts_of(_addresses(zones.nulls)))},
    )
    return SegmentContent(index_version=INDEX_VERSION, details=encode_details(rows_per_zone=rows_per_zone))


def rewrite_zones(
    files: SegmentFiles, column: IndexedColumn, parts: list[MovedZones], rows_per_zone: int
) -> SegmentContent:
    """Write zones of other segments as one file; small neighbours become one zone."""
    kind = column.type
    schema = zone_schema(kind)
    zones = widened(joined(parts, kind), rows_per_zone)
    owners, starts = zones.first >> ADDRESS_SHIFT, zones.first & OFFSET_MASK
    numbers = (zones.null_count, zones.nan_count, owners, starts, zones.length)
    counts = [pa.array(column).cast(schema.field(index + 2).type) for index, column in enumerate(numbers)]
    files.write(
        FILE_NAME,
        schema,
        [pa.RecordBatch.from_arrays([zones.minimum, zones.maximum, *counts], schema=schema)],
        metadata={ROWS_PER_ZONE_KEY: str(rows_per_zone)},
        buffers={NULL_BITMAP_KEY: encode_row_set(parts_of(zones.nulls))},
    )
    return SegmentContent(index_version=INDEX_VERSION, details=encode_details(rows_per_zone=rows_per_zone))


def _addresses(offsets: Mapping[int, npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    """Return the addresses of rows that are given by offset and fragment."""
    parts = [rows + (fragment_id << ADDRESS_SHIFT) for fragment_id, rows in offsets.items()]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _array(scalars: list[pa.Scalar], kind: pa.DataType) -> pa.Array:
    """One array of scalars, without a detour through Python's types, which hold less."""
    return pa.concat_arrays([pa.array([], kind), *(pa.repeat(scalar, 1).cast(kind) for scalar in scalars)])
