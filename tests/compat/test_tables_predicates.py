"""The same predicates, the same rows."""

import datetime as dt
from itertools import product

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_core
from lance_core.errors import InvalidInputError, UnsupportedError

DAYS = [dt.date(2020, 1, 1), None, dt.date(2021, 1, 1), dt.date(2022, 1, 1)]
TIMES = [dt.datetime(2020, 1, 1, 5), None, dt.datetime(2021, 1, 1), dt.datetime(2022, 1, 1)]  # noqa: DTZ001
ROWS = pa.table(
    {
        "n": [1, 2, 3, 4],
        "i": pa.array([1, 2, None, 4], pa.int32()),
        "u": pa.array([1, 2, 3, None], pa.uint8()),
        "f": [1.5, None, float("nan"), -0.0],
        "g": pa.array([1.1, float("nan"), None, 0.1], pa.float32()),
        "s": ["x", "yy", None, "a%b"],
        "b": [True, False, None, True],
        "d": pa.array(DAYS),
        "t": pa.array(TIMES, pa.timestamp("us")),
        "z": pa.array(TIMES, pa.timestamp("us", "UTC")),
        "ny": pa.array(TIMES, pa.timestamp("us", "America/New_York")),
        "seconds": pa.array([0, 1, 2, 3], pa.timestamp("s")),
        "st": [{"x": 1, "y": "p"}, {"x": None, "y": "q"}, None, {"x": 3, "y": None}],
        "l": [[1], [2, 3], None, []],
        "x y": [1, 2, 3, 4],
        "Mixed": [1, 2, 3, 4],
    }
)

SAME = """
i = 1 | i == 1 | 1 = i | i <> 1 | i != 1 | not (i = 1) | i < 2 | 2 > i | i >= 2 | i is null | i is not null
i in (1, 2) | i not in (1) | i not in (1, NULL) | i in (1, NULL) | i between 1 and 2 | i not between 1 and 2
i between 4 and 1 | i = NULL | not (i = NULL) | NULL or n = 1 | NULL and n = 1 | (i = 1) is null | i = -1 | -i = -1
i + 1 = 2 | i - 5 < 0 | i * 2 = 4 | i * 2.0 = 4.0 | i / 2 = 1 | i % 2 = 0 | -5 / 2 = -2 and -5 % 3 = -2 | i + 0.5 > 2
i = n | i = u | i = f | i < n | u + 1 = 2 | cast(i as double) / 4 = 0.5 | cast(i as string) = '1'
cast('3' as int) > i
i is distinct from 1 | i is not distinct from 1 | coalesce(i, 0) = 0 | abs(i) = 1 | 2 > 1 | 1 = 2 | true | false
n = 1 or i is null and b | (n = 1 or i is null) and not b | mixed = 1 | MIXED in (1, 3) | `x y` = 2 | `Mixed` = 2
f > 1 | f < 1 | f >= 1.5 | f <= 1.5 | f = f | f != f | f > 1e308 | f = 0.0 | f in (1.5) | f in (0.0, 1.5) | not f > 1
f not in (1.5) | isnan(f) | g = 1.1 | g > 1.0 | 1.0 < g | g < 1.1 | g = g | g >= f | f between 1 and 2 | f = 1
s = 'x' | s != '' | s > 'x'
s like 'a%' | s like '_' | s like 'a\\%b' | s not like 'x%' | s ilike 'X' | s in ('x', NULL)
s not in ('x') | starts_with(s, 'y') | ends_with(s, 'b') | contains(s, '%') | length(s) = 1 | lower(s) = 'x'
upper(s) = 'YY' | s like NULL | s = 'it''s' | s between 'a' and 'x'
b | not b | b is true | b is not true | b is false | b is not false | b = true | b != true | b in (true) | b > false
d = date '2020-01-01' | d > cast('2020-06-01' as date) | d in (date '2020-01-01', date '2021-01-01') | d = t
d >= timestamp '2021-01-01 00:00:01' | t = timestamp '2020-01-01 05:00:00' | t > date '2020-06-01'
t = timestamp '2020-01-01T05:00:00Z' | z >= timestamp '2021-01-01 00:00:00' | z >= date '2021-01-01'
z = timestamp '2020-01-01 05:00:00+00:00' | ny = timestamp '2020-01-01 00:00:00' | t < timestamp '2021-01-01'
seconds = timestamp '1970-01-01 00:00:01' | seconds > date '1970-01-01' | cast(seconds as date) = date '1970-01-01'
t between timestamp '2020-01-01 00:00:00' and timestamp '2021-01-01 00:00:00'
st.x = 1 | st['x'] = 1 | `st`.`y` like 'p%' | st.x is null | st is null | st is not null | l is null
s || 'z' = 'xz' | date_trunc('day', t) = timestamp '2020-01-01' | z = t | regexp_match(s, 'x') | s = "x" | "s" = 's'
array_has(l, 2) | l[1] = 1 | array_has(l, i) | array_length(l) = 0
regexp_like(s, '^[xy]') and not regexp_match(s, 'y')
f % 2 = 1.5 | lower(s) in ('x', 'yy') | (i + 1) > 2.5 | abs(i) between 1 and 3.5 | date_part('year', d) >= 2021
cast(i as decimal(10, 2)) / 4 = 0.25 | u = i | z > d | coalesce(st.y, 'none') = 'none' | nullif(i, 2) is null
_rowid = 1 | _rowaddr in (1, 2) | n = 1; | n = 1 -- a comment
"""

REFUSED_BY_BOTH = """
nope = 1 | st.nope = 1 | i = 'x' | i = 1.5 | i = 1.0 | i = 2147483648 | u = -1 | s = 1 | b = 1 | d = '2020-01-01'
t > '2020-01-01' | i in (1, 'x') | i | not s | n = 1 and 1 | i > 1 and | foo(i) = 1 | i in (select 1) | i & 1 = 1
i between symmetric 2 and 1 | exists (select 1) | n / 0 = 1 | cast(s as int) = 1 | (i, n) = (1, 1) | NULL
"""

# What pylance can and lance_core refuses by name, rather than give another answer.
ONLY_PYLANCE = """
t < now() | s like s | l = [1]
s like 'X' escape '!' | ny >= date '2021-01-01' | ny = timestamp '2020-01-01 05:00:00+00:00'
seconds = timestamp '1970-01-01 00:00:01.5'
"""


def listed(text):
    return [one.strip() for line in text.strip().splitlines() for one in line.split(" | ")]


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    place = str(tmp_path_factory.mktemp("predicates") / "t")
    lance_core.write_dataset(ROWS, place)
    return lance_core.dataset(place), lance.dataset(place)


@pytest.mark.parametrize("sql", listed(SAME))
def test_same_rows(tables, sql):
    ours, theirs = (one.to_table(columns=["n"], filter=sql)["n"].to_pylist() for one in tables)
    assert ours == theirs


@pytest.mark.parametrize("sql", listed(REFUSED_BY_BOTH))
def test_both_refuse(tables, sql):
    ours, theirs = tables
    with pytest.raises((ValueError, OSError)):
        theirs.to_table(filter=sql)
    with pytest.raises((InvalidInputError, UnsupportedError)):
        ours.to_table(filter=sql)


@pytest.mark.parametrize("sql", listed(ONLY_PYLANCE))
def test_never_another_answer(tables, sql):
    ours, theirs = tables
    theirs.to_table(filter=sql)
    with pytest.raises((InvalidInputError, UnsupportedError)):
        ours.to_table(filter=sql)


@pytest.mark.parametrize("number", range(4))
def test_expressions(tables, number):
    condition = [
        pc.field("i") > 1,
        pc.field("s").is_null(),
        (pc.field("b")) & (pc.field("n") < 4),
        pc.field("d") > DAYS[0],
    ]
    ours, theirs = (one.to_table(columns=["n"], filter=condition[number])["n"].to_pylist() for one in tables)
    assert ours == theirs


@pytest.mark.parametrize("operator", ["LIKE", "ILIKE"])
def test_wildcards_and_backslashes_wherever_they_stand(tmp_path, operator):
    texts = ["", "x", "\\", "x\\", "x\\\\", "\\\\", "X\\b", "%", "a%", "%x", "\\%", "\\x", "_", "x_", "a\nx", None]
    lance.write_dataset(pa.table({"s": texts}), tmp_path)
    ours, theirs = lance_core.dataset(tmp_path), lance.dataset(str(tmp_path))
    for pattern in map("".join, (symbols for size in (1, 2, 3) for symbols in product("x%\\_", repeat=size))):
        sql = f"s {operator} '{pattern}'"
        assert ours.to_table(filter=sql) == theirs.to_table(filter=sql), sql
