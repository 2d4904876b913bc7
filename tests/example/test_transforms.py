"""The transformations of the example, judged by plain Python on real rows."""

import csv
import datetime as dt
import math
from collections import Counter, defaultdict
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from example_project import schemas, source, transforms

pytestmark = pytest.mark.spark

DAYS = [("2013", "1", "1"), ("2013", "3", "10"), ("2013", "11", "3")]  # the latter: clocks change
NEW_YORK = ZoneInfo("America/New_York")


@pytest.fixture(scope="module")
def rows():
    """The flights of three days as the csv module reads them."""
    with source.csv_path("flights").open(newline="") as file:
        return [row for row in csv.DictReader(file) if (row["year"], row["month"], row["day"]) in DAYS]


@pytest.fixture(scope="module")
def raw(spark):
    frame = source.read_csv(spark, "flights", schemas.FLIGHTS_CSV)
    days = F.concat_ws("-", "year", "month", "day").isin(["-".join(day) for day in DAYS])
    return frame.where(days).withColumn("flight_date", F.make_date("year", "month", "day")).cache()


@pytest.fixture(scope="module")
def flights(raw):
    return transforms.clean_flights(raw).cache()


@pytest.fixture(scope="module")
def reference(spark):
    names = ["weather", "planes", "airports", "airlines"]
    return [source.read_csv(spark, name, getattr(schemas, name.upper())).cache() for name in names]


def test_csv_reads_na_as_null(raw, rows):
    assert raw.count() == len(rows)
    assert raw.where("dep_delay is null").count() == sum(row["dep_delay"] == "NA" for row in rows) > 0


def test_status(flights, rows):
    def status(row):
        return "cancelled" if row["dep_delay"] == "NA" else "diverted" if row["arr_delay"] == "NA" else "flown"

    found = {row["status"]: row["count"] for row in flights.groupBy("status").count().collect()}
    assert found == Counter(map(status, rows))


def test_scheduled_departure_is_the_local_time_of_the_timetable(flights, rows):
    def utc(row):
        local = dt.datetime(int(row["year"]), int(row["month"]), int(row["day"]), tzinfo=NEW_YORK)
        return local.replace(hour=int(row["hour"]), minute=int(row["minute"])).astimezone(dt.UTC)

    found = flights.select("carrier", "flight", "origin", F.unix_timestamp("scheduled_departure")).collect()
    expected = [(row["carrier"], int(row["flight"]), row["origin"], int(utc(row).timestamp())) for row in rows]
    assert sorted(map(tuple, found)) == sorted(expected)


def test_enriching_keeps_every_flight_once(flights, reference):
    enriched = transforms.enrich_flights(flights, *reference)
    assert enriched.columns == [column.name for column in schemas.ENRICHED_FLIGHTS.columns]
    assert enriched.count() == flights.count()
    first = enriched.where("flight = 1545 and flight_date = '2013-01-01'").first()
    assert first.airline == "United Air Lines Inc."
    assert first.destination.name == "George Bush Intercontinental"
    assert (first.plane.manufacturer, first.plane.seats, first.plane.age) == ("BOEING", 149, 14)
    assert first.weather.temperature == pytest.approx((39.02 - 32) / 1.8, abs=0.05)


def test_daily_summary(flights, rows):
    summary = {(row.flight_date, row.origin): row for row in transforms.summarize_days(flights).collect()}
    mine = [row for row in rows if row["month"] == "1" and row["origin"] == "JFK"]
    delays = [int(row["dep_delay"]) for row in mine if row["dep_delay"] != "NA"]
    jfk = summary[dt.date(2013, 1, 1), "JFK"]
    assert len(summary) == len(DAYS) * 3
    assert (jfk.scheduled, jfk.cancelled) == (len(mine), len(mine) - len(delays))
    assert jfk.mean_departure_delay == pytest.approx(sum(delays) / len(delays))
    assert jfk.late_share == pytest.approx(sum(delay > 15 for delay in delays) / len(delays))


def test_route_features(flights, rows):
    features = transforms.route_features(flights.where("status = 'flown'"))
    delays, carriers = defaultdict(list), defaultdict(set)
    for row in rows:
        if row["arr_delay"] != "NA":
            delays[row["origin"], row["dest"], int(row["hour"])].append(int(row["dep_delay"]))
            carriers[row["origin"], row["dest"]].add(row["carrier"])
    found = features.collect()
    assert [(row.origin, row.dest) for row in found] == sorted(carriers)
    for row in found:
        hours = [delays[row.origin, row.dest, hour] for hour in range(24)]
        assert row.flights == sum(map(len, hours))
        assert row.carriers == sorted(carriers[row.origin, row.dest])
        assert row.delay_profile == pytest.approx([sum(h) / len(h) if h else 0.0 for h in hours], rel=1e-6)
    assert features.schema["delay_profile"].metadata["arrow.fixed-size-list.size"] == 24


def test_similar_routes(spark):
    def profile(*values):
        return [float(value) for value in values] + [0.0] * (24 - len(values))

    vectors = {"A": profile(1, 0), "B": profile(1, 1), "C": profile(0, 2), "D": profile(3, 1)}
    features = spark.createDataFrame([("NYC", d, 100, v) for d, v in vectors.items()] + [("NYC", "X", 99, profile(1))])
    found = transforms.similar_routes(features.toDF("origin", "dest", "flights", "delay_profile"), count=2).collect()
    ranking = {(row.dest, row.rank): row.similar_dest for row in found}
    assert ranking == {("A", 1): "D", ("A", 2): "B", ("B", 1): "D", ("B", 2): "A"} | {
        ("C", 1): "B", ("C", 2): "D", ("D", 1): "A", ("D", 2): "B"
    }  # fmt: skip
    similarity = next(row.similarity for row in found if row.dest == "A" and row.rank == 1)
    assert similarity == pytest.approx(3 / math.sqrt(10))
