"""pandas frames, by way of Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_dagster.handlers.arrow import load_table, write_batches

if TYPE_CHECKING:
    from lance_dagster.handlers.base import ReadRequest, WriteRequest


class PandasHandler:
    """``pandas.DataFrame``; the index is not stored (reset it to keep it)."""

    def schema(self, obj: Any) -> pa.Schema:
        """Columns, as Arrow types."""
        return pa.Schema.from_pandas(obj, preserve_index=False).remove_metadata()

    def write(self, obj: Any, request: WriteRequest) -> int:
        """Write."""
        table = pa.Table.from_pandas(obj, preserve_index=False).replace_schema_metadata(None)
        return write_batches(table.schema, table.to_batches(), request)

    def load(self, request: ReadRequest) -> Any:
        """Read into memory."""
        return load_table(request).to_pandas()
