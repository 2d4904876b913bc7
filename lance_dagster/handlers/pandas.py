"""pandas frames, by way of Arrow; the index is not stored (reset it to keep it)."""

import pyarrow as pa

from lance_dagster.handlers.bridge import ArrowBridge

PANDAS = ArrowBridge(
    types=("pandas.DataFrame",),
    schema=lambda obj: pa.Schema.from_pandas(obj, preserve_index=False).remove_metadata(),
    to_arrow=lambda obj: pa.Table.from_pandas(obj, preserve_index=False).replace_schema_metadata(None),
    from_table=lambda table: table.to_pandas(),
)
