"""Checks: one step per table, most of them answered by Lance alone, without Spark."""

from collections.abc import Iterator

import dagster as dg

from example_project.defs.flights import enriched_flights, flights
from example_project.defs.history import planes_seen
from example_project.defs.insights import route_features
from example_project.defs.reference import airports, planes, weather
from lance_dagster import LanceResource, build_lance_checks

airports_checks = build_lance_checks(airports, min_rows=1_000, not_null=["lat", "lon"], unique=["faa"])
planes_checks = build_lance_checks(planes, min_rows=1_000, unique=["tailnum"], schema_change=True)
weather_checks = build_lance_checks(weather, min_rows=20_000, not_null=["origin", "time_hour"])
flights_checks = build_lance_checks(
    flights, min_rows=1, not_null=["flight_date", "origin", "dest", "status"], integrity="quick"
)
planes_seen_checks = build_lance_checks(planes_seen, min_rows=1, unique=["tailnum"], index_audit="sample")
enriched_checks = build_lance_checks(enriched_flights, min_rows=1, not_null=["flight_date", "origin", "dest", "status"])


@dg.multi_asset_check(
    specs=[
        dg.AssetCheckSpec("counts_every_flight", asset=route_features),
        dg.AssetCheckSpec("delays_are_plausible", asset=route_features),
    ]
)
def route_features_checks(lance: LanceResource) -> Iterator[dg.AssetCheckResult]:
    """The features count every flight, and no mean delay is beyond a day."""
    table = lance.dataset("route_features").to_table(columns=["flights", "delay_profile"])
    counted, flown = sum(table["flights"].to_pylist()), lance.dataset("enriched_flights").count_rows()
    yield dg.AssetCheckResult(
        check_name="counts_every_flight", passed=counted == flown, metadata={"counted": counted, "flights": flown}
    )
    delays = table["delay_profile"].combine_chunks().flatten().to_numpy()
    yield dg.AssetCheckResult(
        check_name="delays_are_plausible",
        passed=bool((abs(delays) < 24 * 60).all()),
        metadata={"smallest": float(delays.min()), "largest": float(delays.max())},
    )
