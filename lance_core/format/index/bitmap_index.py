"""Bitmap indices: the rows of each distinct value of a column, or of each item of a list column.

An index folder holds one Lance file, ``bitmap_page_lookup.lance``, with a row for each distinct value, ascending as in
B-trees; a key that is null comes first and has the null rows:

    keys       of the type of the column, or of the items of its lists
    bitmaps    binary, a set of rows as in `lance_core.format.index.row_sets`: by address; by row id where
               `lance_core.format.table.index_metadata.holds_row_ids` says so

Indices of lists have a row in the set of each of its items, once; a null item counts for the key null. Since version 1
their metadata has ``lance:label_list_nulls``: number of a global buffer with the set of rows whose list is null. The
metadata ``lance:index_stats`` is a JSON object with ``num_bitmaps``. Details are empty messages. Source: what pylance
14.0.2 writes.
"""

from __future__ import annotations

import pyarrow as pa

from lance_core.format.index.btree import has_btree

FILE_NAME = "bitmap_page_lookup.lance"
BITMAP_TYPE_URL = "/lance.table.BitmapIndexDetails"
LABEL_LIST_TYPE_URL = "/lance.table.LabelListIndexDetails"
BITMAP_VERSION, LABEL_LIST_VERSION = 0, 1
LABEL_LIST_VERSIONS = (0, 1)
NULL_LISTS_KEY = "lance:label_list_nulls"
STATISTICS_KEY = "lance:index_stats"


def bitmap_schema(kind: pa.DataType) -> pa.Schema:
    """Return the Arrow schema of the file for keys of a type."""
    return pa.schema([pa.field("keys", kind), pa.field("bitmaps", pa.binary())])


def item_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type of the items of lists that can be indexed; None for other types."""
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind)):
        return None
    item = kind.value_type
    return item if has_btree(item) else None
