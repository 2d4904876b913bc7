"""Polars frames, by way of Arrow, mostly without copies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import polars as pl

from lance_core.common.signatures import with_options
from lance_core.scanner import ScanOptions
from lance_dagster.handlers.bridge import ArrowBridge
from lance_dagster.handlers.stream import load_table, projected

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    import lance_core
    from lance_dagster.handlers.base import ReadRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Scan:
    """The part of a pyarrow dataset that Polars uses: it reads the columns and rows of a query lazily.

    Args:
        dataset: The table.
        schema: Columns to hand out.
        filter: SQL predicate, or None.
    """

    dataset: lance_core.LanceDataset
    schema: pa.Schema
    filter: str | None

    @with_options(ScanOptions)
    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,  # noqa: A002 - pyarrow's name
        **options: Unpack[ScanOptions],
    ) -> Iterator[pa.RecordBatch]:
        """Batches of some columns, in Polars' order."""
        names = self.schema.names if columns is None else list(columns)
        return self.dataset.to_batches(columns=names, filter=self.filter if filter is None else filter, **options)


def _schema(obj: Any) -> pa.Schema:
    return pl.DataFrame(schema=obj.collect_schema()).to_arrow().schema


def _from_table(table: pa.Table) -> Any:
    return pl.from_arrow(table)


def _scan(request: ReadRequest) -> Any:
    if request.dataset is None or request.is_empty:
        frame: Any = pl.from_arrow(load_table(request))
        return frame.lazy()
    scan: Any = Scan(dataset=request.dataset, schema=projected(request), filter=request.filter)
    # A filter of ours and one that Polars pushes down have no common form; Polars then applies its own.
    return pl.scan_pyarrow_dataset(scan, allow_pyarrow_filter=request.filter is None)


POLARS = ArrowBridge(
    types=("polars.DataFrame",), schema=_schema, to_arrow=lambda obj: obj.to_arrow(), from_table=_from_table
)
POLARS_LAZY = ArrowBridge(
    types=("polars.LazyFrame",),
    schema=_schema,
    to_arrow=lambda obj: obj.collect().to_arrow(),
    from_request=_scan,
)
