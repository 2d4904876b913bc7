"""Partition keys -> typed predicates."""

from __future__ import annotations

from datetime import UTC, date, datetime
from itertools import product
from zoneinfo import ZoneInfo

import dagster as dg
import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.expression import make_expression
from lance_dagster.partitioning.partitions import select_partitions
from lance_dagster.partitioning.predicate import count_by_key, partition_terms, typed

LETTERS = dg.StaticPartitionsDefinition(["a", "b", "c", "d"])
DAYS = dg.DailyPartitionsDefinition("2026-11-01", end_date="2026-11-30")
MULTI = dg.MultiPartitionsDefinition({"day": DAYS, "letter": LETTERS})
MULTI_EXPR = {"day": "day", "letter": "letter"}


def counted(selection, table):
    """Rows by key, by way of the terms that are to be read."""
    terms = partition_terms(selection, table.schema)
    values = [make_expression(sql, table.schema).evaluate(table.combine_chunks()) for sql in terms.values()]
    return count_by_key(selection, table.schema, pa.table(values, list(terms)))


def multi(*pairs):
    return [dg.MultiPartitionKey({"day": day, "letter": letter}) for day, letter in pairs]


def test_keys_are_sorted_and_distinct():
    assert select_partitions(LETTERS, ["c", "a", "c"], "x").keys == ("a", "c")


def test_one_key_is_an_equality():
    predicate = typed(select_partitions(LETTERS, ["b"], "x"), pa.schema({"x": pa.string()}))
    assert predicate.sql() == "((`x` = 'b'))"


def test_quotes_in_keys_and_columns_stay_data():
    definition = dg.StaticPartitionsDefinition(["o'clock"])
    predicate = typed(select_partitions(definition, ["o'clock"], "a`b"), pa.schema({"a`b": pa.string()}))
    assert predicate.sql() == "((`a``b` = 'o''clock'))"


def test_neighbouring_windows_are_one_range():
    selection = select_partitions(DAYS, ["2026-11-03", "2026-11-01", "2026-11-02", "2026-11-05"], "day")
    assert typed(selection, pa.schema({"day": pa.date32()})).any_of[0][0].ranges == (
        (date(2026, 11, 1), date(2026, 11, 4)),
        (date(2026, 11, 5), date(2026, 11, 6)),
    )


def test_many_hours_are_one_range():
    hours = dg.HourlyPartitionsDefinition("2024-01-01-00:00", end_date="2026-01-01-00:00")
    keys = hours.get_partition_keys()
    predicate = typed(select_partitions(hours, keys, "at"), pa.schema({"at": pa.timestamp("us", "UTC")}))
    assert predicate.any_of[0][0].ranges == ((datetime(2024, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)),)


def test_a_day_of_23_hours():
    definition = dg.DailyPartitionsDefinition("2026-03-01", timezone="America/New_York")
    selection = select_partitions(definition, ["2026-03-08"], "at")
    ((start, end),) = typed(selection, pa.schema({"at": pa.timestamp("us", "UTC")})).any_of[0][0].ranges
    assert (end - start).total_seconds() == 23 * 3600
    local = typed(selection, pa.schema({"at": pa.timestamp("us")})).any_of[0][0].ranges
    assert local == ((datetime(2026, 3, 8), datetime(2026, 3, 9)),)  # noqa: DTZ001 - wall clock is the point


def test_wall_clock_hours_that_happen_twice_are_refused():
    definition = dg.HourlyPartitionsDefinition("2026-10-31-00:00", timezone="America/New_York")
    keys = definition.get_partition_keys(current_time=datetime(2026, 11, 1, 12, tzinfo=ZoneInfo("America/New_York")))
    twice = [key for key in keys if key.startswith("2026-11-01-01")]
    with pytest.raises(InvalidInputError, match="clocks are changed"):
        typed(select_partitions(definition, twice[:1], "at"), pa.schema({"at": pa.timestamp("us")}))


def test_hours_cannot_live_in_a_date_column():
    hours = dg.HourlyPartitionsDefinition("2026-01-01-00:00")
    with pytest.raises(InvalidInputError, match="within a day"):
        typed(select_partitions(hours, ["2026-01-01-05:00"], "day"), pa.schema({"day": pa.date32()}))


@pytest.mark.parametrize(
    ("type_", "message"),
    [(pa.int64(), "no value of column"), (pa.bool_(), "no value of column"), (pa.date32(), "no value of column")],
)
def test_keys_that_do_not_fit_the_type_are_refused(type_, message):
    with pytest.raises(InvalidInputError, match=message):
        typed(select_partitions(LETTERS, ["a"], "x"), pa.schema({"x": type_}))


@pytest.mark.parametrize("type_", [pa.float64(), pa.decimal128(5, 2), pa.list_(pa.int8()), pa.binary()])
def test_types_that_hold_no_keys_are_refused_by_name(type_):
    with pytest.raises(UnsupportedError, match="partition column of type"):
        typed(select_partitions(LETTERS, ["a"], "x"), pa.schema({"x": type_}))


def test_numbers_out_of_range_are_refused():
    with pytest.raises(InvalidInputError):
        typed(select_partitions(dg.StaticPartitionsDefinition(["300"]), ["300"], "x"), pa.schema({"x": pa.int8()}))


def test_two_keys_of_one_value_are_refused():
    definition = dg.StaticPartitionsDefinition(["1", "01"])
    with pytest.raises(InvalidInputError, match="same value"):
        typed(select_partitions(definition, ["1", "01"], "x"), pa.schema({"x": pa.int64()}))


def test_a_missing_column_is_refused():
    with pytest.raises(InvalidInputError, match="not among the columns"):
        typed(select_partitions(LETTERS, ["a"], "y"), pa.schema({"x": pa.string()}))


@pytest.mark.parametrize("expr", [None, "", {}, {"day": "d"}, {"day": "d", "other": "x"}, "day"])
def test_an_expression_that_does_not_fit_the_dimensions_is_refused(expr):
    with pytest.raises(InvalidInputError, match="partition_expr"):
        select_partitions(MULTI, [], expr)


def test_a_product_is_one_product():
    keys = multi(*product(["2026-11-01", "2026-11-02"], ["a", "c"]))
    assert len(select_partitions(MULTI, keys, MULTI_EXPR).products) == 1


# Every subset of a 3 x 3 grid would be 512 cases; these have the shapes that grouping by dimension gets wrong.
SHAPES = [
    [(0, 0)],
    [(0, 0), (1, 1)],
    [(0, 0), (1, 1), (2, 2)],
    [(0, 0), (0, 1), (1, 0)],
    [(0, 0), (0, 1), (1, 0), (1, 1)],
    [(0, 0), (0, 2), (2, 0), (2, 2), (1, 1)],
    [(0, 0), (1, 0), (2, 0), (2, 1), (2, 2)],
    [(a, b) for a in range(3) for b in range(3) if (a, b) != (1, 1)],
    [(a, b) for a in range(3) for b in range(3)],
    [],
]


@pytest.mark.parametrize("shape", SHAPES)
def test_the_predicate_selects_exactly_the_keys(shape):
    days, letters = ["2026-11-01", "2026-11-02", "2026-11-04"], ["a", "b", "d"]
    keys = multi(*[(days[a], letters[b]) for a, b in shape])
    rows = [(day, letter) for day in [*days, "2026-11-03", None] for letter in [*letters, "c", None]]
    table = pa.table(
        {
            "day": pa.array([day and date.fromisoformat(day) for day, _ in rows], pa.date32()),
            "letter": pa.array([letter for _, letter in rows]),
        }
    )
    selection = select_partitions(MULTI, keys, MULTI_EXPR)
    mask = typed(selection, table.schema).mask(table)
    selected = {row for row, hit in zip(rows, mask, strict=True) if hit}
    assert selected == {(days[a], letters[b]) for a, b in shape}
    assert counted(selection, table) == {str(key): 1 for key in keys}


@pytest.mark.parametrize(
    "type_",
    [pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("ns"), pa.timestamp("us", "UTC")],
)
def test_masks_of_windows(type_):
    moments = [datetime(2026, 11, day) for day in range(1, 8)]  # noqa: DTZ001 - zone comes with the type
    column = pa.chunked_array([pa.array(moments, pa.timestamp("us")).cast(type_), pa.nulls(2, type_)])
    keys = ["2026-11-02", "2026-11-03", "2026-11-06"]
    selection = select_partitions(DAYS, keys, "t")
    table = pa.table({"t": column})
    assert typed(selection, table.schema).mask(table).nonzero()[0].tolist() == [1, 2, 5]
    assert counted(selection, table) == dict.fromkeys(keys, 1)


def test_masks_of_dictionaries():
    table = pa.table({"x": pa.array(["a", None, "b", "d"]).dictionary_encode()})
    mask = typed(select_partitions(LETTERS, ["b", "d"], "x"), table.schema).mask(table)
    assert mask.tolist() == [False, False, True, True]


def test_counting_no_rows():
    selection = select_partitions(LETTERS, ["a", "b"], "x")
    assert counted(selection, pa.table({"x": pa.array([], pa.string())})) == {"a": 0, "b": 0}


FLOAT_CONDITIONS = [
    *(f"x {operator} 0.0" for operator in ("=", "<>", "<", "<=", ">", ">=")),
    "x > 1.5",
    "x < -1.5",
    "x = CAST('NaN' AS DOUBLE)",
    "x IN (0.0, CAST('NaN' AS DOUBLE))",
    "x NOT IN (1.5, CAST('NaN' AS DOUBLE))",
    "x BETWEEN -1.5 AND 1.5",
    "x NOT BETWEEN -1.5 AND 1.5",
    "x IS NULL",
    "x IS NOT NULL",
]


@pytest.mark.parametrize("condition", FLOAT_CONDITIONS)
def test_partitions_by_conditions_on_floats_have_the_same_rows_in_every_form(tmp_path, condition):
    """As the text that tables are read by, as the mask that rows are checked by, and as counts; pylance judges."""
    values = np.array([-np.nan, -np.inf, -1.5, -0.0, 0.0, 1.5, np.inf, np.nan, 0.0])
    rows = pa.table({"i": range(9), "x": pa.array(values, mask=np.arange(9) == 8)})
    theirs = lance.write_dataset(rows, tmp_path / "t")
    ours = lance_core.dataset(str(tmp_path / "t"))
    for key in ("true", "false"):
        selection = select_partitions(dg.StaticPartitionsDefinition(["false", "true"]), [key], condition)
        predicate = typed(selection, rows.schema)
        expected = theirs.to_table(columns=["i"], filter=predicate.sql())["i"].to_pylist()
        assert ours.to_table(columns=["i"], filter=predicate.sql())["i"].to_pylist() == expected
        (batch,) = rows.to_batches()
        assert np.flatnonzero(predicate.mask(batch)).tolist() == expected
        terms = ours.to_table(columns=partition_terms(selection, rows.schema))
        assert count_by_key(selection, rows.schema, terms) == {key: len(expected)}


@pytest.mark.parametrize("fmt", ["%d-%m-%Y", "%m/%d/%Y", "%Y-%m-%d"])
def test_rows_of_time_windows_are_counted_whatever_the_order_of_keys_as_text(fmt):
    days = dg.DailyPartitionsDefinition(datetime(2025, 12, 28), end_date=datetime(2026, 3, 5), fmt=fmt)  # noqa: DTZ001 - dates
    chosen = [date(2025, 12, 31), date(2026, 1, 2), date(2026, 2, 1), date(2026, 2, 28), date(2026, 3, 1)]
    rows = [day for times, day in enumerate(chosen, 1) for _ in range(times)]
    table = pa.table({"day": pa.array([*rows, None, date(2025, 12, 30), date(2026, 3, 2), date(2026, 1, 15)])})
    selection = select_partitions(days, [day.strftime(fmt) for day in chosen], "day")
    assert counted(selection, table) == {day.strftime(fmt): times for times, day in enumerate(chosen, 1)}
    (batch,) = table.to_batches()
    assert typed(selection, table.schema).mask(batch).sum() == len(rows)


def test_floats_are_no_partition_keys():
    selection = select_partitions(dg.StaticPartitionsDefinition(["nan"]), ["nan"], "x")
    with pytest.raises(UnsupportedError, match="partition column of type double"):
        typed(selection, pa.schema({"x": pa.float64()}))
