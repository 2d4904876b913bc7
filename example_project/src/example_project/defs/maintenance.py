"""Upkeep of the tables that grow: fewer files, no deleted rows, no forgotten versions."""

from datetime import timedelta

import dagster as dg

from example_project.defs.flights import enriched_flights, flights, raw_flights
from example_project.defs.insights import daily_summary
from lance_dagster import CleanupPolicy, DeletionPolicy, build_maintenance_definitions

# So that the demo has something to do. Real tables should keep versions for days or weeks.
NOW = timedelta(0)


@dg.definitions
def maintenance() -> dg.Definitions:
    """Compaction, materialization of deletions and clean-up of each table, every night."""
    return build_maintenance_definitions(
        [raw_flights, flights, enriched_flights, daily_summary],
        deletions=DeletionPolicy(threshold=0.01),
        cleanup=CleanupPolicy(older_than=NOW, retain_versions=1, keep_runs=1, keep_runs_for=NOW),
        name="maintenance",
        cron_schedule="0 3 * * *",
    )
