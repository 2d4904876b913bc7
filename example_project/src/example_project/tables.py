"""Settings that all assets of the project share."""

from __future__ import annotations

from typing import Any

import dagster as dg

from example_project import settings as project
from lance_dagster import lance_asset_metadata

KINDS = {"lance", "pyspark"}
OWNERS = ["team:flight-data"]
ROOT = str(project.lake() / "tables")

MONTHS = dg.MonthlyPartitionsDefinition(start_date="2013-01-01", end_date="2014-01-01")
# A backfill of many months is one Spark job and one commit.
ONE_RUN = dg.BackfillPolicy.single_run()


def table(name: str, schema: dg.TableSchema, **settings: Any) -> dict[str, Any]:
    """Metadata of an asset: where its table is, what its columns mean, and how it is written (`mode` and the like)."""
    return lance_asset_metadata(name, root=ROOT, schema=schema, **settings)
