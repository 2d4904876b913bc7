"""Zone maps: what is known of the values of one column in each run of rows of some fragments.

An index folder holds one Lance file, ``zonemap.lance``, with one row for each zone:

    min, max       of the column's type: smallest and largest value; null if there is none. Among floats, max is NaN
                   if any value is, and min ignores NaN
    null_count     uint32
    nan_count      uint32
    fragment_id    uint64
    zone_start     uint64, offset of the zone's first row in its fragment
    zone_length    uint64, rows, deleted ones in between included

Its schema metadata has ``rows_per_zone``, and ``null_bitmap``: number of a global buffer with the addresses of nulls as
in `lance_core.format.index.row_sets`. The index entry's details are a message of type
``/lance.table.ZoneMapIndexDetails``: 1 rows_per_zone, 2 use_seeds, 3 has_null_bitmap. Source: what pylance 14.0.2
writes. Its min and max of structs and its null counts of the null type are wrong, so that neither is used.
"""

from __future__ import annotations

import pyarrow as pa

from lance_core.format.wire import varint

FILE_NAME = "zonemap.lance"
TYPE_URL = "/lance.table.ZoneMapIndexDetails"
INDEX_VERSION = 0
DEFAULT_ROWS_PER_ZONE = 8192
ROWS_PER_ZONE_KEY = "rows_per_zone"
NULL_BITMAP_KEY = "null_bitmap"
COLUMNS = ("min", "max", "null_count", "nan_count", "fragment_id", "zone_start", "zone_length")


def zone_schema(kind: pa.DataType) -> pa.Schema:
    """Arrow schema of the file for a column of a type."""
    counts = [pa.field(name, pa.uint32(), nullable=False) for name in COLUMNS[2:4]]
    fields = [pa.field(name, pa.uint64(), nullable=False) for name in COLUMNS[4:]]
    return pa.schema([pa.field("min", kind), pa.field("max", kind), *counts, *fields])


def encode_details(*, rows_per_zone: int) -> bytes:
    """Return the message ``ZoneMapIndexDetails``."""
    return b"\x08" + varint(rows_per_zone) + b"\x10\x00\x18\x01"
