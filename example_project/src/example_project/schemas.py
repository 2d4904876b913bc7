"""Columns of every table: name, Spark type, meaning.

They are shown in the Dagster UI and stored in the Lance tables. `vector(n)` stands for a list of exactly n floats.
"""

from __future__ import annotations

import dagster as dg


def table(**columns: tuple[str, str]) -> dg.TableSchema:
    """Make a schema from `name=(type, meaning)`."""
    return dg.TableSchema([dg.TableColumn(name, kind, meaning) for name, (kind, meaning) in columns.items()])


AIRLINES = table(
    carrier=("string", "Two-letter code of the airline"),
    name=("string", "Full name"),
)

AIRPORTS = table(
    faa=("string", "FAA code of the airport"),
    name=("string", "Usual name"),
    lat=("double", "Latitude in degrees"),
    lon=("double", "Longitude in degrees"),
    alt=("int", "Altitude in feet"),
    tz=("int", "Offset from UTC in hours"),
    dst=("string", "Daylight saving time: A as in the USA, U unknown, N none"),
    tzone=("string", "IANA time zone"),
)

PLANES = table(
    tailnum=("string", "Registration painted on the tail"),
    year=("int", "Year of manufacture"),
    type=("string", "Kind of aircraft"),
    manufacturer=("string", "Maker"),
    model=("string", "Model"),
    engines=("int", "Number of engines"),
    seats=("int", "Number of seats"),
    speed=("int", "Average cruising speed in mph, mostly unknown"),
    engine=("string", "Kind of engine"),
)

WEATHER = table(
    origin=("string", "FAA code of the airport with the station"),
    year=("int", "Year of the observation, local time"),
    month=("int", "Month"),
    day=("int", "Day"),
    hour=("int", "Hour"),
    temp=("double", "Temperature in degrees Fahrenheit"),
    dewp=("double", "Dew point in degrees Fahrenheit"),
    humid=("double", "Relative humidity in percent"),
    wind_dir=("int", "Direction of the wind in degrees"),
    wind_speed=("double", "Speed of the wind in mph"),
    wind_gust=("double", "Speed of gusts in mph"),
    precip=("double", "Precipitation in inches"),
    pressure=("double", "Sea level pressure in millibars"),
    visib=("double", "Visibility in miles"),
    time_hour=("timestamp", "Hour of the observation, UTC"),
)

# As in flights.csv; times are local and written as HHMM.
FLIGHTS_CSV = table(
    year=("int", "Year of departure"),
    month=("int", "Month of departure"),
    day=("int", "Day of departure"),
    dep_time=("int", "Actual departure, HHMM local time"),
    sched_dep_time=("int", "Scheduled departure, HHMM local time"),
    dep_delay=("int", "Delay of the departure in minutes, negative when early"),
    arr_time=("int", "Actual arrival, HHMM local time"),
    sched_arr_time=("int", "Scheduled arrival, HHMM local time"),
    arr_delay=("int", "Delay of the arrival in minutes, negative when early"),
    carrier=("string", "Two-letter code of the airline"),
    flight=("int", "Flight number"),
    tailnum=("string", "Registration of the plane"),
    origin=("string", "FAA code of the airport of departure"),
    dest=("string", "FAA code of the destination"),
    air_time=("int", "Time in the air in minutes"),
    distance=("int", "Distance in miles"),
    hour=("int", "Hour of the scheduled departure"),
    minute=("int", "Minute of the scheduled departure"),
    time_hour=("timestamp", "Hour of the scheduled departure, UTC"),
)

RAW_FLIGHTS = dg.TableSchema(
    [*FLIGHTS_CSV.columns, dg.TableColumn("flight_date", "date", "Day of the scheduled departure, local time")]
)

FLIGHTS = table(
    flight_date=("date", "Day of the scheduled departure, local time"),
    carrier=("string", "Two-letter code of the airline"),
    flight=("int", "Flight number"),
    tailnum=("string", "Registration of the plane"),
    origin=("string", "FAA code of the airport of departure"),
    dest=("string", "FAA code of the destination"),
    status=("string", "flown, cancelled or diverted"),
    scheduled_departure=("timestamp", "Scheduled departure, UTC"),
    departure=("timestamp", "Actual departure, UTC; null when cancelled"),
    departure_delay=("int", "Delay of the departure in minutes, negative when early"),
    arrival_delay=("int", "Delay of the arrival in minutes; null unless flown"),
    air_time=("int", "Time in the air in minutes; null unless flown"),
    distance=("int", "Distance in miles"),
)

ENRICHED_FLIGHTS = dg.TableSchema(
    [
        *FLIGHTS.columns,
        *table(
            airline=("string", "Name of the airline"),
            destination=(
                "struct<name: string, lat: double, lon: double>",
                "The airport of destination; null when unknown",
            ),
            plane=(
                "struct<manufacturer: string, model: string, seats: int, age: int>",
                "The plane and its age in years; null when unknown",
            ),
            weather=(
                "struct<temperature: double, wind_speed: double, precipitation: double, visibility: double>",
                "At the origin in the hour of departure: degrees Celsius, km/h, mm, km; null when not observed",
            ),
        ).columns,
    ]
)

DAILY_SUMMARY = table(
    flight_date=("date", "Day of the scheduled departures, local time"),
    origin=("string", "FAA code of the airport of departure"),
    scheduled=("int", "Number of scheduled flights"),
    cancelled=("int", "Number of cancelled flights"),
    diverted=("int", "Number of diverted flights"),
    mean_departure_delay=("double", "Mean delay of the departures in minutes"),
    late_share=("double", "Share of the departures that left over 15 minutes late"),
)

ROUTE_FEATURES = table(
    origin=("string", "FAA code of the airport of departure"),
    dest=("string", "FAA code of the destination"),
    flights=("int", "Number of flights in the table of enriched flights"),
    distance=("int", "Distance in miles"),
    carriers=("array<string>", "Codes of the airlines on this route, sorted"),
    delay_profile=("vector(24)", "Mean departure delay in minutes by scheduled local hour; 0 where nothing leaves"),
)

SIMILAR_ROUTES = table(
    origin=("string", "FAA code of the airport of departure"),
    dest=("string", "FAA code of the destination"),
    rank=("int", "1 for the most similar route"),
    similar_origin=("string", "Origin of the similar route"),
    similar_dest=("string", "Destination of the similar route"),
    similarity=("double", "Cosine of the two delay profiles"),
)

WEATHER_EMBEDDINGS = table(
    origin=("string", "FAA code of the airport with the station"),
    time_hour=("timestamp", "Last of the 24 hours, UTC"),
    embedding=("vector(32)", "Principal components of the observations, standardized"),
)

SIMILAR_WEATHER = table(
    time_hour=("timestamp", "Last of 24 hours at JFK, UTC"),
    rank=("int", "1 for the most similar weather"),
    similar_origin=("string", "Airport with the similar weather"),
    similar_hour=("timestamp", "Last of its 24 hours, UTC"),
    distance=("float", "Squared distance of the two vectors"),
)

WEATHER_RECALL = table(
    nprobes=("int", "Partitions of the index that are searched, of 32"),
    by_codes=("double", "Share of the ten nearest vectors that the codes find"),
    refined=("double", "The same, with ten times as many candidates compared by their vectors"),
)

PLANES_SEEN = table(
    tailnum=("string", "Registration painted on the tail"),
    model=("string", "Model; null when unknown"),
    flights=("int", "Number of flights in the table of enriched flights"),
    last_day=("date", "Day of the last of them"),
)

ROUTE_HISTORY = table(
    run=("string", "Run of Dagster that counted"),
    at=("timestamp[us, tz=UTC]", "When it did"),
    routes=("int64", "Number of routes"),
    flights=("int64", "Number of flights on them"),
)
