"""Batches of files of version 0.1 are skipped by their statistics, and never one too many."""

import datetime as dt
import decimal
import math
import os

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lance_core
from lance_core.errors import LanceError
from lance_core.file.read.reader import DataFileReader
from lance_core.scan import candidates
from lance_core.scan import fragments as scan
from lance_core.store.local import LocalStore

IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"

GROUP = 8
NUMBERS = st.integers(-3, 6)
DAYS = NUMBERS.map(lambda day: dt.date(2024, 1, 5) + dt.timedelta(day))
TEXTS = st.one_of(st.text("ab\x7f\U0010ffff", max_size=3), st.sampled_from(["a" * 64, "a" * 65, "\U0010ffff" * 17]))
COLUMNS = {
    "i": (pa.int16(), NUMBERS),
    "u": (pa.uint8(), st.integers(0, 6)),
    "f": (pa.float64(), st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 1.0, 3.0, math.inf, math.nan, -math.nan])),
    "b": (pa.bool_(), st.booleans()),
    "s": (pa.string(), TEXTS),
    "r": (pa.string(), TEXTS),
    "y": (pa.large_binary(), TEXTS.map(str.encode)),
    "d": (pa.date32(), DAYS),
    "c": (pa.decimal128(6, 1), NUMBERS.map(lambda one: decimal.Decimal(one) / 2)),
    "t": (pa.timestamp("us"), DAYS.map(lambda day: dt.datetime.combine(day, dt.time()))),
}
REQUIRED = {"r"}


def _literal(name, value):
    if name in {"s", "r"}:
        return "'" + value + "'"
    if name == "d":
        return f"date '{value}'"
    return f"timestamp '{value}'" if name == "t" else str(value)


@st.composite
def conditions(draw):
    name = draw(st.sampled_from([name for name in COLUMNS if name != "y"]))
    finite = COLUMNS[name][1].filter(lambda value: not isinstance(value, float) or math.isfinite(value))
    one, other = (_literal(name, draw(finite)) for _ in range(2))
    operator = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
    choices = [f"{name} {operator} {one}", f"{name} between {one} and {other}", f"{name} is null"]
    choices += [f"{name} in ({one}, {other})", f"{name} not in ({one})", f"{name} is not null"]
    if name in {"s", "r"}:
        choices += [f"{name} like 'a%'", f"{name} not like '{'a' * 64}%'"]
    condition = draw(st.sampled_from(choices))
    more = draw(st.sampled_from(["", f" or st.x = {draw(NUMBERS)}", f" and i >= {draw(NUMBERS)}"]))
    return condition + more


@st.composite
def tables(draw):
    count = draw(st.integers(1, 3)) * GROUP - draw(st.integers(0, 3))
    nulls = st.none() if draw(st.booleans()) else st.nothing()
    arrays, fields = [], []
    for name, (kind, values) in COLUMNS.items():
        few = draw(st.lists(values, min_size=1, max_size=3))
        one = st.sampled_from(few) if name in REQUIRED else st.one_of(nulls, st.sampled_from(few))
        arrays.append(pa.array(draw(st.lists(one, min_size=count, max_size=count)), kind))
        fields.append(pa.field(name, kind, nullable=name not in REQUIRED))
    xs = draw(st.lists(NUMBERS, min_size=count, max_size=count))
    arrays.append(pa.array([{"x": x} for x in xs], pa.struct([("x", pa.int32())])))
    return pa.table(arrays, schema=pa.schema([*fields, pa.field("st", arrays[-1].type)]))


@settings(max_examples=600 if IS_DEEP else 25, deadline=None, suppress_health_check=list(HealthCheck))
@given(table=tables(), wanted=st.lists(conditions(), min_size=5, max_size=5))
def test_no_row_is_lost(tmp_path_factory, table, wanted):
    place = tmp_path_factory.mktemp("legacy") / "t"
    lance.write_dataset(table, place, data_storage_version="legacy", max_rows_per_group=GROUP)
    dataset = lance_core.dataset(place)
    before, candidates._MAX_GAP = candidates._MAX_GAP, 0
    try:
        pruned = [dataset.to_table(filter=condition).to_pydict() for condition in wanted]
    finally:
        candidates._MAX_GAP = before
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan, "candidate_ranges", lambda _reader, _plan, start, end: [(start, end)])
        for condition, got in zip(wanted, pruned, strict=True):
            assert str(got) == str(dataset.to_table(filter=condition).to_pydict()), condition


def _ranges(dataset, condition, monkeypatch):
    seen = []

    def spy(*arguments):
        found = candidates.candidate_ranges(*arguments)
        seen.extend(found)
        return found

    monkeypatch.setattr(scan, "candidate_ranges", spy)
    monkeypatch.setattr(candidates, "_MAX_GAP", 0)
    return dataset.count_rows(condition), seen


@pytest.fixture
def place(tmp_path):
    n = 1000
    floats = np.arange(n) / 10
    floats[550] = np.nan
    columns = {
        "id": pa.array(range(n)),
        "f": pa.array(floats),
        "s": pa.array([None if one < 100 else f"{one:04d}" for one in range(n)]),
        "st": pa.array([{"a": -one, "l": [one]} for one in range(n)]),
        "n": pa.array([None if one < 100 else one for one in range(n)]),
    }
    lance.write_dataset(pa.table(columns), tmp_path / "t", data_storage_version="legacy", max_rows_per_group=100)
    return tmp_path / "t"


@pytest.mark.parametrize(
    ("condition", "ranges"),
    [
        ("id = 250", [(200, 300)]),
        ("id in (1, 999)", [(0, 100), (900, 1000)]),
        ("id < 0", []),
        ("f > 95", [(0, 1000)]),
        ("f < 5", [(0, 1000)]),
        ("s like '025%'", [(200, 300)]),
        ("s is null", [(0, 100)]),
        ("st.a <= -950", [(900, 1000)]),
        ("n < 50", [(0, 100)]),
        ("n is null", []),
        ("id >= 950 or f is null", [(900, 1000)]),
        ("st.l is not null and id = 7", [(0, 100)]),
        ("id + 1 = 7", [(0, 1000)]),
    ],
)
def test_what_is_read(place, monkeypatch, condition, ranges):
    count, seen = _ranges(lance_core.dataset(place), condition, monkeypatch)
    merged = seen[:1]
    for low, high in seen[1:]:
        merged = [*merged[:-1], (merged[-1][0], high)] if merged[-1][1] == low else [*merged, (low, high)]
    assert merged == ranges
    if "st.l" not in condition:
        assert count == lance.dataset(place).scanner(filter=condition, use_stats=False).to_table().num_rows


def test_nan_is_found_where_pylance_loses_it(place):
    theirs = lance.dataset(place)
    assert lance_core.dataset(place).to_table(filter="f > 99.95")["id"].to_pylist() == [550]
    assert theirs.scanner(filter="f > 99.95", use_stats=False).to_table()["id"].to_pylist() == [550]


def test_negative_nan_is_found_where_pylance_loses_it(tmp_path):
    rows = pa.table({"f": np.array([5.0, -math.nan, 7.0])})
    theirs = lance.write_dataset(rows, tmp_path / "t", data_storage_version="legacy")
    assert lance_core.dataset(tmp_path / "t").count_rows("f < 1") == 1
    assert theirs.scanner(filter="f < 1", use_stats=False).to_table().num_rows == 1


def test_deletions_and_columns_of_a_second_file(place, monkeypatch):
    lance.dataset(place).add_columns({"twice": "id * 2"})
    lance.dataset(place).delete("id % 2 = 0")
    dataset = lance_core.dataset(place)
    assert _ranges(dataset, "twice > 1900 and f < 99", monkeypatch) == (20, [(900, 1000)])
    assert dataset.to_table(filter="twice = 246 or id = 401", columns=["id"])["id"].to_pylist() == [123, 401]
    dataset.delete("id > 900")
    assert lance.dataset(place).count_rows() == 450


def test_statistics_are_those_of_the_values(place):
    path = next((place / "data").iterdir())
    reader = DataFileReader(LocalStore(str(path.parent)).reader(path.name), path=path.name)
    bounds, known = reader.batch_statistics([field.id for field in reader.schema.walk()])
    assert bounds.tolist() == list(range(0, 1001, 100))
    names = {field.id: field.name for field in reader.schema.walk()}
    assert sorted(names[one] for one in known) == ["a", "f", "id", "n", "s"]
    by_name = {names[one]: statistics for one, statistics in known.items()}
    assert by_name["id"].maximum.to_pylist() == list(range(99, 1000, 100))
    assert by_name["s"].null_count.tolist() == by_name["n"].null_count.tolist() == [100] + [0] * 9
    assert by_name["s"].minimum.to_pylist() == [None, *(f"{one:04d}" for one in range(100, 1000, 100))]
    assert pc.is_nan(by_name["f"].maximum).to_pylist() == [False] * 10


def test_damaged_statistics_raise_only_our_errors(place):
    path = next((place / "data").iterdir())
    content = path.read_bytes()
    refused = 0
    for position in np.random.default_rng(5).integers((len(content) - 6000) * 8, len(content) * 8, 300).tolist():
        damaged = bytearray(content)
        damaged[position // 8] ^= 1 << position % 8
        path.write_bytes(bytes(damaged))
        try:
            lance_core.dataset(place).count_rows("id = 250 and s > 'x' and f < 7 and st.a = 2")
        except LanceError:
            refused += 1
    assert refused > 10
