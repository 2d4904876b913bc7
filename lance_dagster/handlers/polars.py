"""Polars frames, by way of Arrow, mostly without copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_dagster.handlers.arrow import load_table, write_batches

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_dagster.handlers.base import ReadRequest, WriteRequest


class PolarsHandler:
    """``polars.DataFrame`` and ``polars.LazyFrame`` (collected to be stored)."""

    def schema(self, obj: Any) -> pa.Schema:
        """Columns, as Arrow types."""
        import polars as pl  # noqa: PLC0415 - optional

        return pl.DataFrame(schema=obj.collect_schema()).to_arrow().schema

    def write(self, obj: Any, request: WriteRequest) -> int:
        """Write."""
        import polars as pl  # noqa: PLC0415 - optional

        table = (obj.collect() if isinstance(obj, pl.LazyFrame) else obj).to_arrow()
        return write_batches(table.schema, table.to_batches(), request)

    def load(self, request: ReadRequest) -> Any:
        """Read into memory."""
        import polars as pl  # noqa: PLC0415 - optional

        frame = pl.from_arrow(load_table(request))
        return frame.lazy() if issubclass(request.type, pl.LazyFrame) and isinstance(frame, pl.DataFrame) else frame
