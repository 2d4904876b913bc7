"""B-tree indices: all values of a column, sorted, with the address of each row.

An index folder holds two Lance files. ``page_data.lance`` has a row for each live row of the covered fragments, sorted
by value; nulls come first, floats are in total order, the order of equal values is free:

    values    of the column's type
    ids       uint64, row address; row id where `lance_core.format.table.index_metadata.holds_row_ids` says so

``page_lookup.lance`` has a row for each page of ``batch_size`` rows, in order; ``batch_size`` is in its metadata:

    min, max      first and last value of the page as stored: null if that is null
    null_count    uint32
    page_idx      uint32, number of the page

The details are an empty message of type ``/lance.table.BTreeIndexDetails``. Version 1 is written to tables with stable
row ids and says that ``ids`` are addresses there as well. ``range_partitioned`` in the metadata is ``true`` for indices
of several page files, which are not read. Source: what pylance 14.0.2 writes.
"""

from __future__ import annotations

import pyarrow as pa

from lance_core.format.arrow_kinds import is_ordered

PAGE_FILE = "page_data.lance"
LOOKUP_FILE = "page_lookup.lance"
TYPE_URL = "/lance.table.BTreeIndexDetails"
VERSION, VERSION_WITH_STABLE_ROW_IDS = 0, 1
ROWS_PER_PAGE = 4096
ROWS_PER_PAGE_KEY = "batch_size"
RANGE_PARTITIONED_KEY = "range_partitioned"


def page_schema(kind: pa.DataType) -> pa.Schema:
    """Return the Arrow schema of the page file for a column of a type."""
    # A look-up unpacks the values of a page, text twice as fast as under zstd; the file is as large as pylance's.
    values = pa.field("values", kind, metadata={"lance-encoding:compression": "lz4"})
    return pa.schema([values, pa.field("ids", pa.uint64(), nullable=False)])


def lookup_schema(kind: pa.DataType) -> pa.Schema:
    """Return the Arrow schema of the lookup file for a column of a type."""
    counts = [pa.field(name, pa.uint32(), nullable=False) for name in ("null_count", "page_idx")]
    return pa.schema([pa.field("min", kind), pa.field("max", kind), *counts])


def has_btree(kind: pa.DataType) -> bool:
    """Return whether values of a type have an order that B-trees are built for."""
    return is_ordered(kind) or pa.types.is_fixed_size_binary(kind)
