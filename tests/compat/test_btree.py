"""B-trees: each library answers from its own and from the other's as from a scan, after every kind of change."""

import datetime as dt
import math
import os

import lance
import pyarrow as pa
import pytest

import lance_core

pytestmark = pytest.mark.filterwarnings("ignore:The 'list_indices' method is deprecated:DeprecationWarning")

NUM_ROWS = 1000
IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"
CONDITIONS = [
    "k = 7",
    "k = 7 AND row > 100",
    "k IN (3, 8, 90000)",
    "k < 5",
    "k <= 5 OR k > 95",
    "k BETWEEN 20 AND 22",
    "k IS NULL",
    "k IS NOT NULL AND row < 20",
    "NOT (k = 7)",
    "NOT (k < 98 OR k IS NULL)",
    "k <> 7",
    "k = 7 OR s = 'text 12'",
    "s = 'text 12'",
    "s IN ('text 1', 'none')",
    "s LIKE 'text 9%'",
    "s LIKE 'text _1'",
    "NOT (s LIKE 'text%')",
    "s > 'text 98' AND NOT (k = 3)",
    "(k = 7) IS NOT TRUE",
    "(k = 7) IS NULL",
    "f > 9.8",
    "f = 0.0",
    "f >= 9.9 OR f < -9.9",
    "NOT (f < 9.9)",
]

FEW_CONDITIONS = [
    *CONDITIONS[:3],
    "k IS NULL",
    "NOT (k < 98 OR k IS NULL)",
    "k = 7 OR s = 'text 12'",
    "s LIKE 'text 9%'",
]


def rows(numbers):
    numbers = list(numbers)
    special = {3: math.nan, 4: -math.nan, 5: 0.0, 6: -0.0, 7: math.inf}
    return pa.table(
        {
            "row": pa.array(numbers, pa.int64()),
            "k": pa.array([None if row % 50 == 0 else row * 37 % 101 for row in numbers], pa.int64()),
            "s": pa.array([None if row % 33 == 0 else f"text {row * 7 % 100}" for row in numbers]),
            "f": pa.array([special.get(row % 40, (row * 13 % 2001) / 100 - 10) for row in numbers], pa.float64()),
        }
    )


def same_rows(found, expected):
    return sorted(found["row"].to_pylist()) == sorted(expected["row"].to_pylist())


def check(uri, conditions=CONDITIONS):
    ours, theirs = lance_core.dataset(uri), lance.dataset(uri)
    for condition in conditions:
        expected = ours.to_table(filter=condition, use_scalar_index=False)
        assert repr(ours.to_table(filter=condition).to_pylist()) == repr(expected.to_pylist()), condition
        assert ours.count_rows(condition) == len(expected), condition
        first = ours.to_table(filter=condition, columns=["row"], limit=3, offset=1)
        assert first["row"].to_pylist() == expected["row"].to_pylist()[1:4], condition
        assert same_rows(theirs.to_table(filter=condition), expected), condition
    theirs.validate()


@pytest.fixture(params=["ours", "theirs"])
def library(request):
    return lance_core if request.param == "ours" else lance


@pytest.fixture
def builder(library):
    return lambda uri, column: library.dataset(uri).create_scalar_index(column, "BTREE")


@pytest.fixture(params=[False, True], ids=["addresses", "stable row ids"])
def table(request, tmp_path, library, builder, copy_of):
    def make(uri):
        lance.write_dataset(rows(range(NUM_ROWS)), uri, max_rows_per_file=300, enable_stable_row_ids=request.param)
        for column in ("k", "s", "f"):
            builder(uri, column)

    return copy_of((library, request.param), make, str(tmp_path / "t"))


def append(ours):
    lance_core.write_dataset(rows(range(5000, 5050)), ours, mode="append")


CHANGES = {
    "append": append,
    "delete": lambda ours: ours.delete("k = 7 OR row < 320"),
    "delete by another column": lambda ours: ours.delete("row % 3 = 0"),
    "update": lambda ours: ours.update({"k": "7", "s": "'text 12'"}, where="row % 10 = 3"),
    "merge": lambda ours: (
        ours.merge_insert("row")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute(rows([5, 77, 9000]).set_column(1, "k", pa.array([7, None, 7])))
    ),
    "columns in place": lambda ours: (
        ours.merge_insert("row").when_matched_update_all().execute(pa.table({"row": [5, 400], "k": [7, 7]}))
    ),
    "compact": lambda ours: (ours.delete("row % 4 = 1"), ours.optimize.compact_files()),
    "extend": lambda ours: (append(ours), ours.checkout_latest(), ours.optimize.optimize_indices()),
    "extend after changes": lambda ours: (
        append(ours),
        ours.checkout_latest(),
        ours.delete("row < 310"),
        ours.update({"k": "7"}, where="row = 500"),
        ours.optimize.optimize_indices(),
    ),
    "restore": lambda ours: (ours.update({"k": "8"}, where="k = 7"), ours.checkout_version(2), ours.restore()),
}


def test_both_answer_from_the_index(table):
    check(table)
    plan = lance.dataset(table).scanner(filter="k = 7").explain_plan()
    assert "ScalarIndexQuery" in plan
    assert "index: k_idx, 8 of 1,000 rows match" in lance_core.dataset(table).scanner(filter="k = 7").explain_plan()
    assert [one["type"] for one in lance.dataset(table).list_indices()] == ["BTree"] * 3


# Each change meets both libraries and row ids of both kinds, in turns; all of their pairs in deep.
MADE = [("ours", False), ("theirs", False), ("theirs", True), ("ours", True)]
CASES = [(*made, change) for i, change in enumerate(CHANGES) for made in (MADE if IS_DEEP else MADE[i % 2 :: 2])]


@pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")
@pytest.mark.parametrize(("library", "table", "change"), CASES, indirect=["library", "table"])
def test_answers_stay_those_of_a_scan(table, change):
    CHANGES[change](lance_core.dataset(table))
    check(table, FEW_CONDITIONS)
    lance_core.dataset(table).delete("k IN (3, 4)")
    check(table, FEW_CONDITIONS[:4])


def test_pylance_goes_on_with_the_index(table):
    append(lance_core.dataset(table))
    theirs = lance.dataset(table)
    theirs.optimize.optimize_indices()
    check(table, FEW_CONDITIONS)
    theirs.delete("row % 5 = 0")
    theirs.optimize.compact_files()
    check(table, FEW_CONDITIONS)
    lance_core.dataset(table).optimize.optimize_indices()
    check(table, FEW_CONDITIONS)


def test_several_segments_answer_together(table):
    append(lance_core.dataset(table))
    theirs = lance.dataset(table)
    theirs.optimize.optimize_indices(num_indices_to_merge=0)
    assert len([one for one in theirs.list_indices() if one["name"] == "k_idx"]) == 2
    check(table, FEW_CONDITIONS)
    lance_core.dataset(table).optimize.optimize_indices()
    assert len(lance_core.dataset(table).list_indices()) == 3
    check(table, FEW_CONDITIONS)


def test_pages_of_thousands_of_rows(tmp_path, builder):
    """Values that fill several pages, pages of nulls only, and a page that begins with nulls."""
    uri = str(tmp_path / "t")
    numbers = range(30_000)
    data = pa.table(
        {
            "row": numbers,
            "k": pa.array([None if row < 6000 else row * 7919 % 3000 for row in numbers], pa.int64()),
            "s": [f"{row * 7919 % 30_000:05d}" for row in numbers],
        }
    )
    lance.write_dataset(data, uri, max_rows_per_file=20_000)
    for column in ("k", "s"):
        builder(uri, column)
    check(
        uri,
        [
            "k = 17",
            "k < 10",
            "k >= 2999",
            "k IN (1, 500, 1000, 1500, 2999, 3000)",
            "k IS NULL",
            "NOT (k >= 2 OR k IS NULL)",
            "s = '04095'",
            "s LIKE '0409%'",
            "s < '00003'",
            "s > '29996'",
            "s BETWEEN '04094' AND '04097'",
            "k > 5",
        ],
    )


def days(*numbers):
    return [None if number is None else dt.date(2020, 1, 1) + dt.timedelta(days=number) for number in numbers]


KINDS = {
    "int8": (pa.array([-5, None, 7, 7], pa.int8()), ["7", "-5"]),
    "uint64": (pa.array([2**64 - 1, None, 7, 0], pa.uint64()), ["7", "18446744073709551615"]),
    "bool": (pa.array([True, None, False, True]), ["true"]),
    "half": (pa.array([1.5, None, 2.5, -1.5], pa.float16()), ["1.5"]),
    "float": (pa.array([1.5, None, math.nan, -1.5], pa.float32()), ["1.5", "-1.5"]),
    "text": (pa.array(["", None, "ü", "z"]), ["''", "'ü'", "'a'"]),
    "large text": (pa.array(["", None, "𝄞", "z"], pa.large_string()), ["''", "'𝄞'"]),
    "binary": (pa.array([b"", None, b"\xff", b"a"], pa.large_binary()), ["x'ff'"]),
    "date": (pa.array(days(0, None, 5, -9000)), ["date '2020-01-06'"]),
    "timestamp": (pa.array([1, None, 2**60 + 1, 0], pa.timestamp("ns")), ["timestamp '1970-01-01 00:00:00'"]),
    "zone": (pa.array([1, None, 10**15, 0], pa.timestamp("us", "UTC")), ["timestamp '2001-09-09 01:46:40'"]),
    "all null": (pa.nulls(4, pa.int32()), ["1"]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_types(tmp_path, builder, kind):
    values, literals = KINDS[kind]
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"row": range(4), "k": values}), uri)
    builder(uri, "k")
    compared = [f"k {operator} {literal}" for operator in ("=", "<", ">=") for literal in literals]
    check(uri, [*compared, f"NOT ({compared[0]})", "k IS NULL", "k IS NOT NULL", f"k IN ({literals[0]})"])


def test_fields_of_structs(tmp_path, builder):
    structs = pa.array([{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}, {"x": 40, "y": None}])
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"row": range(4), "st": structs}), uri)
    builder(uri, "st.x")
    check(uri, ["st.x = 40", "st.x IS NULL", "NOT (st.x = 1)", "st.x < 5 OR st.x IS NULL"])


def test_an_empty_index_and_one_of_some_fragments(tmp_path):
    uri = str(tmp_path / "t")
    ours = lance_core.write_dataset(rows(range(100)), uri, max_rows_per_file=40)
    ours.create_scalar_index("k", "BTREE", train=False)
    check(uri, CONDITIONS[:8])
    ours.create_scalar_index("k", "BTREE", fragment_ids=[1], name="k_idx")
    check(uri, CONDITIONS[:8])
    assert ours.index_statistics("k_idx")["num_unindexed_fragments"] == 2
    assert ours.optimize.optimize_indices() == ["k_idx"]
    assert ours.index_statistics("k_idx")["num_unindexed_fragments"] == 0
    check(uri, CONDITIONS[:8])
    assert ours.index_statistics("k_idx")["indices"] == [{"num_pages": 1}]
