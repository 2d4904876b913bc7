"""Build Bloom filters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.format.bloom_filter import (
    BLOOM_SCHEMA,
    FILE_NAME,
    ITEMS_KEY,
    NULL_BITMAP_KEY,
    PROBABILITY,
    PROBABILITY_KEY,
    VERSION,
    filter_bytes,
    hash_values,
    make_filter,
)
from lance_core.format.row_sets import encode_row_set, merged_parts, parts_of
from lance_core.index.answer import ADDRESS_SHIFT
from lance_core.index.protocol import SegmentContent
from lance_core.index.zone_map_build import by_zone

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lance_core.format.row_sets import Part
    from lance_core.index.files import SegmentFiles
    from lance_core.index.protocol import FragmentColumn

_BATCH_BYTES = 16 << 20


def write_filters(files: SegmentFiles, fragments: Iterable[FragmentColumn], num_items: int) -> SegmentContent:
    """Write an index of Bloom filters.

    Args:
        files: Where it is written.
        fragments: The values; deleted rows count like others.
        num_items: Rows of a zone.
    """
    buffers: dict[str, bytes] = {}
    metadata = {ITEMS_KEY: str(num_items), PROBABILITY_KEY: str(PROBABILITY)}
    files.write(FILE_NAME, BLOOM_SCHEMA, _batches(fragments, num_items, buffers), metadata=metadata, buffers=buffers)
    return SegmentContent(index_version=VERSION, details=b"")


def _batches(
    fragments: Iterable[FragmentColumn], num_items: int, buffers: dict[str, bytes]
) -> Iterator[pa.RecordBatch]:
    """Return the zones, and behind the last one put the null rows among the buffers."""
    size = filter_bytes(num_items)
    nulls: list[Part] = []
    zones: list[tuple[int, int, int, bool, bytes]] = []
    for fragment in fragments:
        start = 0
        for values in by_zone(fragment.arrays(), num_items):
            if values.null_count:
                first = (fragment.fragment_id << ADDRESS_SHIFT) + start
                nulls += parts_of(np.flatnonzero(np.asarray(values.is_null())) + first)
            data = make_filter(hash_values(values.drop_null()), size)
            zones.append((fragment.fragment_id, start, len(values), values.null_count > 0, data))
            start += len(values)
            if len(zones) * size >= _BATCH_BYTES:
                yield _batch(zones)
                zones = []
        nulls = merged_parts(nulls)
    yield _batch(zones)
    buffers[NULL_BITMAP_KEY] = encode_row_set(nulls)


def _batch(zones: list[tuple[int, int, int, bool, bytes]]) -> pa.RecordBatch:
    columns = list(zip(*zones, strict=True)) or [()] * len(BLOOM_SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, BLOOM_SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=BLOOM_SCHEMA)
