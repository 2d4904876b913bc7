"""Jobs and their schedules."""

import dagster as dg

from example_project.defs.flights import enriched_flights, flight_corrections, flights, raw_flights
from example_project.defs.history import planes_seen, route_history
from example_project.defs.insights import daily_summary, route_features, similar_routes
from example_project.defs.retrieval import (
    similar_weather,
    weather_embeddings,
    weather_embeddings_recall,
    weather_recall,
)


@dg.definitions
def jobs() -> dg.Definitions:
    """Reference tables and what is found in them weekly, flights monthly, insights after them."""
    notes = dg.AssetSelection.checks_for_assets(dg.AssetKey("route_notes"))  # nothing to run, but to check
    vectors = dg.AssetSelection.assets(weather_embeddings).without_checks()  # they get their index at night
    reference = dg.define_asset_job("reference_tables", dg.AssetSelection.groups("reference") | notes | vectors)
    monthly = dg.define_asset_job(
        "monthly_flights", dg.AssetSelection.assets(raw_flights, flights, enriched_flights, daily_summary)
    )
    insights = dg.define_asset_job(
        "insights",
        dg.AssetSelection.assets(flight_corrections, route_features, similar_routes, planes_seen, route_history),
    )
    retrieval = dg.define_asset_job(
        "retrieval",
        dg.AssetSelection.assets(similar_weather, weather_recall) | dg.AssetSelection.checks(weather_embeddings_recall),
    )
    return dg.Definitions(
        jobs=[reference, monthly, insights, retrieval],
        schedules=[
            dg.ScheduleDefinition(job=reference, cron_schedule="0 1 * * 0"),
            dg.build_schedule_from_partitioned_job(monthly),
            dg.ScheduleDefinition(job=insights, cron_schedule="0 2 1 * *"),
            dg.ScheduleDefinition(job=retrieval, cron_schedule="0 4 * * 0"),
        ],
    )
