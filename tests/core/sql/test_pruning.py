import datetime as dt
import math
import os

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_core.errors import InvalidInputError
from lance_core.sql.predicate import make_predicate
from lance_core.sql.pruning import UNKNOWN, ColumnZones, Comparison, Not, judge, may_match

IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"

pytestmark = pytest.mark.slow

SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("d", pa.date32()),
        ("st", pa.struct([("x", pa.uint8())])),
    ]
)
PATHS = ("i", "f", "s", "b", "d", "st.x")
VALUES = {
    "i": st.integers(-4, 4),
    "f": st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 1.0, 2.5, math.inf, math.nan, -math.nan]),
    "s": st.text("ab%\x7f\U0010ffff", max_size=3),
    "b": st.booleans(),
    "d": st.integers(0, 3).map(lambda day: dt.date(2024, 1, 1 + day)),
    "st.x": st.integers(0, 3),
}


def _quoted(text):
    return "'" + text.replace("'", "''") + "'"


def _literal(path, value):
    if path == "s":
        return _quoted(value)
    return f"date '{value}'" if path == "d" else str(value)


@st.composite
def comparisons(draw, path):
    values = VALUES[path].filter(math.isfinite) if path == "f" else VALUES[path]
    literals = values.map(lambda value: _literal(path, value)) | st.just("NULL")
    one, other = draw(literals), draw(literals)
    several = ", ".join(draw(st.lists(literals, min_size=1, max_size=4)))
    operator = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
    choices = [f"{path} {operator} {one}", f"{one} {operator} {path}", f"{path} between {one} and {other}"]
    choices += [f"{path} in ({several})", f"{path} not in ({several})", f"{path} is null", f"{path} is not null"]
    choices += [f"{path} is distinct from {one}", f"{path} is not distinct from {one}"]
    if path == "s":
        pattern = _quoted(draw(st.text("ab%_\\", max_size=3)))
        choices += [f"s like {pattern}", f"s not like {pattern}", f"s ilike {pattern}", f"starts_with(s, {pattern})"]
    if path == "b":
        choices += ["b", "not b", "b is true", "b is not false", "b is false"]
    if path == "i":
        choices += ["i + 1 > 2", "cast(i as bigint) = 2", "i = st.x", "abs(i) < 3"]
    return draw(st.sampled_from(choices))


def conditions():
    single = st.sampled_from(PATHS).flatmap(comparisons)
    return st.recursive(
        single,
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda parts: f"({' '.join(parts)})"),
            inner.map(lambda one: f"not ({one})"),
            inner.map(lambda one: f"({one}) is not true"),
        ),
        max_leaves=4,
    )


@st.composite
def rows(draw):
    count = draw(st.integers(0, 4))
    drawn = {path: draw(st.lists(VALUES[path] | st.none(), min_size=count, max_size=count)) for path in PATHS}
    drawn["st"] = [None if draw(st.integers(0, 4)) == 0 else {"x": value} for value in drawn.pop("st.x")]
    return pa.RecordBatch.from_pydict(drawn, schema=SCHEMA)


def _known(draw, array):
    """Statistics of one zone: exact, looser, or unknown."""
    values = [value for value in array.to_pylist() if value is not None]
    has_order = values and all(value == value for value in values)  # noqa: PLR0124 NaN
    numbers = [value for value in values if value == value]  # noqa: PLR0124 NaN
    low, high = (min(numbers), max(numbers)) if numbers else (None, None)
    if draw(st.integers(0, 3)) == 0:
        low = None
    if draw(st.integers(0, 3)) == 0:
        high = None
    nan_count = len(values) - len(numbers) if draw(st.booleans()) or has_order else -1
    null_count = array.null_count if draw(st.integers(0, 3)) else -1
    return low, high, null_count, nan_count


def _zones(draw, path, batches):
    arrays = [_values(batch, path) for batch in batches]
    known = [_known(draw, array) for array in arrays]
    low, high, null_count, nan_count = zip(*known, strict=True)
    kind = arrays[0].type
    return ColumnZones(
        num_rows=np.array([len(array) for array in arrays], np.int64),
        null_count=np.array(null_count, np.int64),
        minimum=pa.array(low, kind),
        maximum=pa.array(high, kind),
        nan_count=np.array(nan_count, np.int64) if draw(st.booleans()) else None,
    )


def _values(batch, path):
    top, *rest = path.split(".")
    array = batch.column(top)
    for name in rest:
        array = pc.struct_field(array, name)
    return array


@given(st.data(), conditions(), st.lists(rows(), min_size=1, max_size=4))
@settings(max_examples=2000 if IS_DEEP else 70, deadline=None)
def test_no_answer_is_left_out(data, condition, batches):
    predicate = make_predicate(condition, SCHEMA)
    paths = data.draw(st.sets(st.sampled_from(PATHS)))
    zones = {path: _zones(data.draw, path, batches) for path in paths}
    answers = judge(predicate.asks, zones, len(batches))
    for number, batch in enumerate(batches):
        answer = predicate.evaluate(batch)
        given_answers = [answer.as_py()] * len(batch) if isinstance(answer, pa.Scalar) else answer.to_pylist()
        assert not any(one is True for one in given_answers) or answers.true[number]
        assert not any(one is False for one in given_answers) or answers.false[number]
        assert not any(one is None for one in given_answers) or answers.null[number]


def _column(low, high, kind, *, nulls=0, rows=10, nan=None):
    one = np.array([rows], np.int64)
    nan_count = None if nan is None else np.array([nan], np.int64)
    return ColumnZones(
        num_rows=one,
        null_count=np.array([nulls], np.int64),
        minimum=pa.array([low], kind),
        maximum=pa.array([high], kind),
        nan_count=nan_count,
    )


ZONE = {
    "i": _column(10, 20, pa.int32()),
    "f": _column(-0.0, 5.0, pa.float64()),
    "s": _column("m", "mz", pa.string(), nulls=2),
    "b": _column(True, True, pa.bool_()),  # noqa: FBT003 a value
    "d": _column(None, None, pa.date32(), nulls=10),
    "st.x": _column(0, 3, pa.uint8(), nulls=-1),
}


@pytest.mark.parametrize(
    "condition",
    [
        "i < 10",
        "i > 20",
        "i = 9",
        "i is null",
        "i between 1 and 9",
        "i in (1, 5, 30)",
        "not (i >= 10)",
        "i < 10 or i > 20",
        "i = 15 and st.x = 9",
        "i = NULL",
        "i not between 0 and 30",
        "f = 6",
        "f in (-1, 7.5)",
        "s < 'm'",
        "s like 'n%'",
        "s like 'lz_a'",
        "s not like 'm%'",
        "starts_with(s, 'ma%') and s like 'x'",
        "not b",
        "b is false",
        "d = date '2024-01-01'",
        "d is not null",
        "d <> date '2024-01-01'",
        "i is not distinct from NULL",
    ],
)
def test_zones_that_are_skipped(condition):
    assert not may_match(make_predicate(condition, SCHEMA).asks, ZONE, 1)[0]


@pytest.mark.parametrize(
    "condition", ["f > 6", "f >= 6", "f <> 1", "not (f <= 5)", "f < -1", "f <= -1", "not (f >= 0)"]
)
def test_nan_is_never_lost(condition):
    asks = make_predicate(condition, SCHEMA).asks
    assert may_match(asks, ZONE, 1)[0]
    assert may_match(asks, ZONE | {"f": _column(None, None, pa.float64(), nan=10)}, 1)[0]
    if condition != "f <> 1":
        assert not may_match(asks, ZONE | {"f": _column(-0.0, 5.0, pa.float64(), nan=0)}, 1)[0]


def test_long_lists_are_judged_by_their_neighbours():
    predicate = make_predicate(f"i in ({', '.join(str(10 * one) for one in range(1000))})", SCHEMA)
    starts = range(-100, 12000, 7)
    zones = ColumnZones(
        num_rows=np.full(len(starts), 5),
        null_count=np.zeros(len(starts), np.int64),
        minimum=pa.array([one + 1 for one in starts], pa.int32()),
        maximum=pa.array([one + 5 for one in starts], pa.int32()),
    )
    found = may_match(predicate.asks, {"i": zones}, len(starts))
    wanted = np.array(
        [any(0 <= value < 10000 and value % 10 == 0 for value in range(one + 1, one + 6)) for one in starts]
    )
    assert not (wanted & ~found).any()
    assert 0 < found.sum() < len(starts)


def test_what_is_not_known_may_match():
    wrong_type = ZONE | {"i": _column("x", "y", pa.string())}
    assert may_match(make_predicate("i > 30", SCHEMA).asks, wrong_type, 1)[0]
    assert may_match(Not(UNKNOWN), {}, 3).tolist() == [True] * 3
    assert make_predicate(pc.negate(pc.field("i")) > 3, SCHEMA).asks == UNKNOWN


def test_wrong_shapes_are_refused():
    with pytest.raises(InvalidInputError, match="zones"):
        may_match(Comparison("i", "less", pa.scalar(1)), ZONE, 2)
    with pytest.raises(InvalidInputError, match="zones"):
        ColumnZones(
            num_rows=np.ones(2, np.int64), null_count=np.ones(1, np.int64), minimum=pa.nulls(2), maximum=pa.nulls(2)
        )
    with pytest.raises(InvalidInputError, match="like"):
        may_match(Comparison("i", "like", pa.scalar(1, pa.int32())), ZONE, 1)
