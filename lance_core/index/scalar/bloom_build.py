"""Build Bloom filters, or make them of others: to merge segments, or after rows moved.

A filter stays right for a part of its rows, and those of neighbours are joined bit by bit.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.format.index.bloom_filter import (
    BLOOM_SCHEMA,
    FILE_NAME,
    ITEMS_KEY,
    NULL_BITMAP_KEY,
    PROBABILITY,
    PROBABILITY_KEY,
    VERSION,
    filter_bytes,
    hash_values,
    is_crowded,
    make_filter,
    union,
)
from lance_core.format.index.row_sets import encode_row_set, merged_parts, parts_of
from lance_core.index.answer import ADDRESS_SHIFT, OFFSET_MASK
from lance_core.index.protocol import SegmentContent
from lance_core.index.scalar.zone_map_build import by_zone
from lance_core.index.scalar.zone_map_remap import first_of_groups

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lance_core.format.index.row_sets import Part
    from lance_core.index.files import SegmentFiles
    from lance_core.index.protocol import FragmentColumn

Int64s: TypeAlias = npt.NDArray[np.int64]
Zone: TypeAlias = "tuple[int, int, int, bool, bytes]"
"""A row of the file."""

_BATCH_BYTES = 16 << 20


@frozen(kw_only=True)
class MovedFilters:
    """Zones where their rows are now, in any order.

    Attributes:
        first: Shape (zones,), address of the first row of each.
        length: Shape (zones,).
        filters: The filter of each.
        nulls: Addresses of the null rows.
    """

    first: Int64s
    length: Int64s
    filters: Sequence[bytes]
    nulls: Int64s


def write_filters(files: SegmentFiles, fragments: Iterable[FragmentColumn], num_items: int) -> SegmentContent:
    """Write an index of Bloom filters.

    Args:
        files: Where it is written.
        fragments: The values; deleted rows count like others.
        num_items: Rows of a zone.
    """
    nulls: list[Part] = []
    return _write(files, _zones(fragments, num_items, nulls), nulls, num_items)


def rewrite_filters(files: SegmentFiles, parts: Sequence[MovedFilters], num_items: int) -> SegmentContent:
    """Write the filters of other segments where their rows are now.

    Args:
        files: Where they are written.
        parts: Filters of each segment.
        num_items: Rows of a zone at most.
    """
    first = np.concatenate([part.first for part in parts])
    length = np.concatenate([part.length for part in parts])
    nulls = np.sort(np.concatenate([part.nulls for part in parts]))
    filters = [data for part in parts for data in part.filters]
    order = np.argsort(first)
    zones = _joined(first[order], length[order], nulls, [filters[number] for number in order], num_items)
    return _write(files, zones, parts_of(nulls), num_items)


def _joined(first: Int64s, length: Int64s, nulls: Int64s, filters: list[bytes], num_items: int) -> Iterator[Zone]:
    """Return zones, those of neighbours as one if their filters together still leave values out."""
    groups = [*first_of_groups(first, length, num_items).tolist(), len(first)]
    for low, high in pairwise(groups):
        start, end, data = low, low + 1, filters[low]
        for number in range(low + 1, high):
            both = union(data, filters[number])
            if both is None or is_crowded(both):
                yield _zone(first, length, nulls, (start, end), data)
                start, both = number, filters[number]
            end, data = number + 1, both
        yield _zone(first, length, nulls, (start, end), data)


def _zone(first: Int64s, length: Int64s, nulls: Int64s, numbers: tuple[int, int], data: bytes) -> Zone:
    start, end = int(first[numbers[0]]), int(first[numbers[1] - 1] + length[numbers[1] - 1])
    low, high = np.searchsorted(nulls, (start, end))
    return start >> ADDRESS_SHIFT, start & OFFSET_MASK, end - start, bool(low < high), data


def _zones(fragments: Iterable[FragmentColumn], num_items: int, nulls: list[Part]) -> Iterator[Zone]:
    """Return the zones of some values, and put the null rows into a list."""
    size = filter_bytes(num_items)
    for fragment in fragments:
        start = 0
        for values in by_zone(fragment.arrays(), num_items):
            if values.null_count:
                first = (fragment.fragment_id << ADDRESS_SHIFT) + start
                nulls += parts_of(np.flatnonzero(np.asarray(values.is_null())) + first)
            data = make_filter(hash_values(values.drop_null()), size)
            yield fragment.fragment_id, start, len(values), values.null_count > 0, data
            start += len(values)
        nulls[:] = merged_parts(nulls)


def _write(files: SegmentFiles, zones: Iterable[Zone], nulls: Sequence[Part], num_items: int) -> SegmentContent:
    """Write zones, and then the null rows."""
    buffers: dict[str, bytes] = {}

    def batches() -> Iterator[pa.RecordBatch]:
        pending: list[Zone] = []
        for zone in zones:
            pending.append(zone)
            if len(zone[-1]) * len(pending) >= _BATCH_BYTES:
                yield _batch(pending)
                pending = []
        yield _batch(pending)
        buffers[NULL_BITMAP_KEY] = encode_row_set(nulls)

    metadata = {ITEMS_KEY: str(num_items), PROBABILITY_KEY: str(PROBABILITY)}
    files.write(FILE_NAME, BLOOM_SCHEMA, batches(), metadata=metadata, buffers=buffers)
    return SegmentContent(index_version=VERSION, details=b"")


def _batch(zones: list[Zone]) -> pa.RecordBatch:
    columns = list(zip(*zones, strict=True)) or [()] * len(BLOOM_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, BLOOM_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=BLOOM_SCHEMA)
