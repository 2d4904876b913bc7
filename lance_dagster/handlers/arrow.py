"""pyarrow's tables and streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_dagster.handlers.bridge import ArrowBridge
from lance_dagster.handlers.stream import load_reader, load_table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_dagster.handlers.base import ReadRequest


def _to_arrow(obj: Any) -> pa.Table | Iterable[pa.RecordBatch]:
    if isinstance(obj, pa.RecordBatch):
        return pa.Table.from_batches([obj])
    return obj if isinstance(obj, (pa.Table, pa.RecordBatchReader)) else obj.to_batches()


def _load(request: ReadRequest) -> Any:
    if issubclass(request.type, pa.RecordBatchReader):
        return load_reader(request)
    table = load_table(request)
    if issubclass(request.type, pa.RecordBatch):
        batches = table.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)
    return table


ARROW = ArrowBridge(
    types=("pyarrow.Table", "pyarrow.RecordBatch", "pyarrow.RecordBatchReader", "pyarrow.Dataset"),
    schema=lambda obj: obj.schema,
    to_arrow=_to_arrow,
    from_request=_load,
)
