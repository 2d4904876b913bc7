"""What all assets of the project have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

from example_project import settings
from lance_dagster import lance_asset_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping

KINDS = {"lance", "pyspark"}
OWNERS = ["team:flight-data"]
ROOT = str(settings.lake() / "tables")

MONTHS = dg.MonthlyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")
# A backfill of many months is one Spark job and one commit.
ONE_RUN = dg.BackfillPolicy.single_run()


def table(name: str, schema: dg.TableSchema, *, partition_expr: str | None = None) -> Mapping[str, Any]:
    """Metadata of an asset: where its table is, what its columns mean, which column tells the partition."""
    metadata = lance_asset_metadata(name, root=ROOT, partition_expr=partition_expr)
    return {**metadata, "dagster/column_schema": schema}
