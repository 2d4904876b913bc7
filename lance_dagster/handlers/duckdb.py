"""DuckDB relations: streamed out, and scanned again whenever a query runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb

from lance_dagster.handlers.bridge import ArrowBridge
from lance_dagster.handlers.stream import load_table, projected

if TYPE_CHECKING:
    from lance_dagster.handlers.base import ReadRequest


def _load(request: ReadRequest) -> Any:
    # On the connection that `duckdb.sql` uses, so that relations of several inputs can be joined.
    if request.dataset is None or request.is_empty:
        return duckdb.from_arrow(load_table(request))
    return duckdb.from_arrow(request.dataset.scanner(columns=projected(request).names, filter=request.filter))


DUCKDB = ArrowBridge(
    types=("duckdb.DuckDBPyRelation",),
    schema=lambda obj: obj.limit(0).to_arrow_table().schema,
    to_arrow=lambda obj: obj.to_arrow_reader(),
    from_request=_load,
)
