"""Upkeep of the tables that grow: fewer files, no deleted rows, no forgotten versions."""

from datetime import timedelta

import dagster as dg

from example_project.defs.flights import enriched_flights, flights, raw_flights
from example_project.defs.insights import daily_summary
from lance_dagster import CleanupPolicy, build_maintenance_definitions

NOW = timedelta(0)  # so that the demo has something to clean; real tables should keep days or weeks


@dg.definitions
def maintenance() -> dg.Definitions:
    """Compaction, materialization of deletions and clean-up of each table, every night."""
    return build_maintenance_definitions(
        [raw_flights, flights, enriched_flights, daily_summary],
        cleanup=CleanupPolicy(older_than=NOW, retain_versions=3, keep_runs=3, keep_runs_for=NOW),
        name="maintenance",
        cron_schedule="0 3 * * *",
    )
