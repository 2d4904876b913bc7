"""Upkeep of the tables: fewer files, no deleted rows, no forgotten versions, indices that cover all rows."""

from datetime import timedelta

import dagster as dg

from example_project.defs.flights import enriched_flights, flights, raw_flights
from example_project.defs.history import planes_seen, route_history
from example_project.defs.insights import daily_summary, route_features, similar_routes
from example_project.defs.reference import airlines, airports, planes, weather
from example_project.defs.retrieval import similar_weather, weather_embeddings, weather_recall
from lance_dagster import CleanupPolicy, DeletionPolicy, build_maintenance_assets, build_maintenance_schedule

# So that the demo has something to do. Real tables should keep versions for days or weeks.
NOW = timedelta(0)
CLEANUP = CleanupPolicy(older_than=NOW, retain_versions=1, keep_runs=1, keep_runs_for=NOW, grace_period=NOW)


@dg.definitions
def maintenance() -> dg.Definitions:
    """Compaction, materialization of deletions, clean-up and upkeep of the declared indices, every night."""
    growing = build_maintenance_assets(
        [raw_flights, flights, enriched_flights, daily_summary, planes_seen, route_history],
        deletions=DeletionPolicy(threshold=0.01),
        cleanup=CLEANUP,
    )
    # Tables that every run replaces have one fragment and no deleted rows.
    replaced = build_maintenance_assets(
        [
            *(airlines, airports, planes, weather, route_features, similar_routes),
            *(weather_embeddings, similar_weather, weather_recall),
        ],
        compaction=None,
        deletions=None,
        cleanup=CLEANUP,
    )
    assets = [*growing, *replaced]
    schedule = build_maintenance_schedule(assets, name="maintenance", cron_schedule="0 3 * * *")
    return dg.Definitions(assets=assets, schedules=[schedule])
