"""A job outside of Dagster: it knows dagster_pipes and lance_core only."""

import sys

import pyarrow as pa
from dagster_pipes import open_dagster_pipes

import lance_core
from lance_core.pipes import commit_properties, report_table

with open_dagster_pipes() as context:
    made = lance_core.write_dataset(
        pa.table({"order_id": ["2026-11-01-eu-0"], "amount": [12.5]}),
        context.get_extra("uri"),
        mode="append",
        transaction_properties=commit_properties(context),
    )
    # Somebody else commits before the report.
    made.update_config({"note": "not ours"})
    report_table(context, made.uri, metadata={"rows_refunded": 1})
    print("modules of dagster:", "dagster" in sys.modules or "lance_dagster" in sys.modules)  # noqa: T201
