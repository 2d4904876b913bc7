"""Conditions of a chain that differ in their literals only are computed together, and mean the same."""

import datetime as dt
import os
import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_core.errors import InvalidInputError
from lance_core.sql import any_term as sql_any
from lance_core.sql import groups as sql_groups
from lance_core.sql import pruning
from lance_core.sql import split as sql_split
from lance_core.sql.predicate import make_predicate

IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"

NAN = float("nan")
SCHEMA = pa.schema(
    [
        ("i", pa.int64()),
        ("n", pa.int8()),
        ("u", pa.uint64()),
        ("f", pa.float64()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us")),
        ("b", pa.bool_()),
        ("st", pa.struct([("x", pa.float32())])),
    ]
)
_FIELDS = {
    "i": [0, 1, 2, 3, -1, 2**63 - 1, -(2**63), None],
    "n": [0, 1, 2, 127, -128, None],
    "u": [0, 1, 2, 2**64 - 1, None],
    "f": [0.0, -0.0, 1.0, 1.5, NAN, -NAN, float("inf"), None],
    "s": ["t0", "t1", "it's", "", None],
    "d": [dt.date(1970, 1, 1), dt.date(1970, 1, 3), None],
    "t": [dt.datetime(1970, 1, 1), dt.datetime(1970, 1, 2), None],  # noqa: DTZ001 it has no zone
    "b": [True, False, None],
    "st": [{"x": 0.0}, {"x": 1.5}, {"x": None}, None],
}
_RANDOM = np.random.default_rng(5)
ROWS = pa.record_batch(
    [
        pa.array(
            [_FIELDS[field.name][place] for place in _RANDOM.integers(0, len(_FIELDS[field.name]), 200)], field.type
        )
        for field in SCHEMA
    ],
    schema=SCHEMA,
)
NUMBERS = ("0", "1", "2", "-1", "3", "127", "9223372036854775807")
FLOATS = ("0.0", "-0.0", "1.5", "1", "-1.5", "1e300")
TEXTS = ("'t0'", "'t1'", "'it''s'", "''")
SIDES = {
    "i": NUMBERS,
    "f": FLOATS,
    "s": TEXTS,
    "d": ("date '1970-01-01'", "date '1970-01-03'"),
    "t": ("timestamp '1970-01-02'", "timestamp '1970-01-01 00:00:01'"),
    "st.x": ("0.0", "1.5", "-0.0"),
    "n": ("0", "1", "-128", "127"),
    "u": ("0", "1", "2"),
    "i + 1": NUMBERS[:5],
    "lower(s)": TEXTS,
}


@st.composite
def _chains(draw):
    """A chain of conditions of one or two shapes."""
    shapes = draw(st.lists(_shapes(), min_size=1, max_size=2))
    conditions = [
        " AND ".join(
            text.replace("?", draw(st.sampled_from(SIDES[column])), 1).replace(
                "?", draw(st.sampled_from(SIDES[column]))
            )
            for column, text in shape
        )
        for shape in shapes
        for _ in range(draw(st.integers(2, 6)))
    ]
    kind = draw(st.sampled_from(["or", "and not", "not"]))
    if kind == "and not":
        return " AND ".join(f"NOT ({one})" for one in conditions)
    chain = " OR ".join(f"({one})" for one in conditions)
    return chain if kind == "or" else f"NOT ({chain}) OR b"


@st.composite
def _shapes(draw):
    found = []
    for column in draw(st.lists(st.sampled_from(list(SIDES)), min_size=1, max_size=3)):
        operator = draw(st.sampled_from(["=", "=", "<", "<=", ">", ">=", "<>"]))
        forms = [
            f"{column} {operator} ?",
            f"? {operator} {column}",
            f"{column} BETWEEN ? AND ?",
            f"NOT {column} {operator} ?",
        ]
        found.append((column, draw(st.sampled_from(forms))))
    return found


def _answer(condition, many, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(sql_split, "LONG", 0)
        patch.setattr(sql_groups, "MANY", many)
        predicate = make_predicate(condition, SCHEMA)
        found = predicate.evaluate(ROWS)
        zones = pruning.may_match(predicate.asks, {}, 3)
        assert zones.all()
        return found.to_pylist() if isinstance(found, pa.Array) else [found.as_py()] * len(ROWS)


@pytest.mark.slow
@settings(max_examples=800 if IS_DEEP else 40, deadline=None)
@given(condition=_chains())
def test_groups_answer_as_single_conditions_do(condition):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sql_any, "_MOST_PAIRS", 64)
        assert _answer(condition, 2, patch) == _answer(condition, 1 << 30, patch)


def _chain(word, part, count):
    return f" {word} ".join(part.format(one, one + 1) for one in range(count))


LONG = {
    "two columns": _chain("OR", "(i = {0} AND s = 't{0}')", 5_000),
    "three columns": _chain("OR", "(i = {0} AND s = 't{0}' AND f >= {0}.5)", 5_000),
    "ranges": _chain("OR", "i BETWEEN {0} AND {1}", 5_000),
    "ranges of floats": _chain("OR", "f > {0}.5 AND f <= {1}.5", 5_000),
    "days": _chain("OR", "(d = date '1970-01-01' AND i = {0})", 5_000),
    "opposites": _chain("AND", "NOT (i = {0} AND s = 't{0}')", 5_000),
    "opposites without NOT": _chain("AND", "(i <> {0} OR s <> 't{0}')", 5_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_long_chains_have_few_terms(monkeypatch, name):
    """5,000 conditions take half a second; as single terms they took eight seconds."""
    calls = []
    compare = sql_any.apply
    monkeypatch.setattr(sql_any, "apply", lambda *args, **options: calls.append(1) or compare(*args, **options))
    began = time.process_time()
    predicate = make_predicate(LONG[name], SCHEMA)
    predicate.mask(ROWS)
    assert len(calls) == 1
    assert time.process_time() - began < 5


def test_zones_without_a_match_are_left_out():
    zones = pruning.ColumnZones(
        num_rows=np.full(4, 10),
        null_count=np.zeros(4, np.int64),
        minimum=pa.array([-9, 50, 500, 2000]),
        maximum=pa.array([-5, 200, 600, 3000]),
    )
    for condition in (_chain("OR", "i BETWEEN {0}0 AND {0}3", 55), _chain("OR", "(i = 5{0} AND s = 't{0}')", 100)):
        asks = make_predicate(condition, SCHEMA).asks
        assert pruning.may_match(asks, {"i": zones}, 4).tolist() == [False, True, True, False]


def test_literals_that_do_not_fit_are_refused():
    with pytest.raises(InvalidInputError, match="200"):
        make_predicate(_chain("OR", "(n = {0} AND i = 1)", 201), SCHEMA)
