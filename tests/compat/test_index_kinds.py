"""Bitmap, list, trigram and Bloom filter indices of both libraries: both answer from them as from a scan."""

import os
import random
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

import lance_core

pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'list_indices' method is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning"),
]

NUM_SEEDS = 40 if os.environ.get("LANCE_TESTS") == "deep" else 1
KINDS = {
    "b": "BITMAP",
    "f": "BITMAP",
    "l": "LABEL_LIST",
    "li": "LABEL_LIST",
    "s": "NGRAM",
    "c": "BLOOMFILTER",
    "ci": "BLOOMFILTER",
}
LONG = "a longer text that has more than thirty two bytes for the hash"
WORDS = ["Héllo", "straße", "ÆON", "foo12", "bar", "e\u0301a", "x", "", "\ufb01ne", "ab cd ef", "\u2163ABC"]
WORDS += ["abc def", "\U0001d415\U0001d415abc", "\u0130stanbul", LONG]
CONDITIONS = [
    "b = 3",
    "b IN (1, 9)",
    "b IS NULL",
    "b <> 2",
    "NOT (b = 2)",
    "b <= 1 OR f > 1",
    "b BETWEEN 3 AND 4",
    "f = 1.5",
    "f = 0.0",
    "NOT (f > 1.0)",
    "(b = 3) IS NOT TRUE",
    "array_has(l, 't1')",
    "array_has_any(l, ['t1', 'none'])",
    "array_has_all(l, ['t1', 't2'])",
    "NOT array_has(l, 't1')",
    "l IS NULL",
    "array_has_all(li, [1, 2]) OR b = 1",
    "array_has_any(li, [1, 2])",
    "contains(s, 'foo12')",
    "contains(s, 'llo')",
    "contains(s, 'straße')",
    "contains(s, 'ö')",
    "NOT contains(s, 'bar')",
    "s IS NULL",
    "contains(s, '\u2163ABC')",
    "contains(s, 'stanbul')",
    "contains(s, 'e\u0301a')",
    "contains(s, '\U0001d415\U0001d415a')",
    "s LIKE '%longer%bytes%'",
    "s LIKE 'foo%ar' AND NOT (b = 1)",
    "starts_with(s, 'abc')",
    "c = 'bar'",
    "c IN ('x', 'none')",
    "c IS NULL",
    "NOT (c = 'bar')",
    f"c = '{LONG}'",
    "ci = 77",
    "ci IS NULL OR ci = 3",
]


def rows(rng, count, start=0):
    def some(make):
        return [None if rng.random() < 0.1 else make() for _ in range(count)]

    floats = [0.0, -0.0, 1.5, float("nan"), -2.5, float("inf")]
    return pa.table(
        {
            "row": range(start, start + count),
            "b": pa.array(some(lambda: rng.randrange(8)), pa.int64()),
            "f": pa.array(some(lambda: rng.choice(floats)), pa.float64()),
            "l": pa.array(
                some(lambda: [rng.choice([None, "t0", "t1", "t2"]) for _ in range(rng.randrange(4))]),
                pa.list_(pa.string()),
            ),
            "li": pa.array(some(lambda: [rng.randrange(5) for _ in range(rng.randrange(4))]), pa.list_(pa.int32())),
            "s": pa.array(some(lambda: " ".join(rng.choice(WORDS) for _ in range(rng.randrange(4)))), pa.string()),
            "c": pa.array(some(lambda: rng.choice(WORDS)), pa.string()),
            "ci": pa.array(some(lambda: rng.randrange(1000)), pa.int32()),
        }
    )


def check(uri, conditions):
    ours, theirs = lance_core.dataset(uri), lance.dataset(uri)
    for condition in conditions:
        expected = ours.to_table(columns=["row"], filter=condition, use_scalar_index=False)["row"].to_pylist()
        assert ours.to_table(columns=["row"], filter=condition)["row"].to_pylist() == expected, condition
        assert ours.count_rows(condition) == len(expected), condition
        assert sorted(theirs.to_table(columns=["row"], filter=condition)["row"].to_pylist()) == sorted(expected), (
            condition
        )


def append(uri, rng, start):
    lance_core.write_dataset(rows(rng, 30, start), uri, mode="append")


STEPS = [
    lambda uri, rng: append(uri, rng, 1000),
    lambda uri, _: lance_core.dataset(uri).delete("row % 5 = 1"),
    lambda uri, _: lance_core.dataset(uri).update({"b": "3", "c": "'bar'", "s": "'foo12'"}, where="row % 10 = 4"),
    lambda uri, _: lance_core.dataset(uri).optimize.optimize_indices(),
    lambda uri, rng: (append(uri, rng, 2000), lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)),
    lambda uri, _: lance.dataset(uri).optimize.compact_files(),
    lambda uri, rng: (append(uri, rng, 3000), lance_core.dataset(uri).optimize.compact_files()),
    lambda uri, _: lance_core.dataset(uri).optimize.optimize_indices(),
]


@pytest.mark.parametrize("seed", range(NUM_SEEDS))
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable row ids"])
@pytest.mark.parametrize("library", [lance_core, lance])
def test_answers_are_those_of_a_scan_after_every_change(tmp_path, library, stable, seed):
    rng, uri = random.Random(seed), str(tmp_path / "t")
    lance.write_dataset(rows(rng, 200), uri, max_rows_per_file=80, enable_stable_row_ids=stable)
    lance_core.dataset(uri).delete("row % 7 = 3")
    for column, kind in KINDS.items():
        library.dataset(uri).create_scalar_index(column, kind)
    check(uri, CONDITIONS)
    for step in STEPS:
        step(uri, rng)
        check(uri, rng.sample(CONDITIONS, 10))


def test_pylance_asks_our_indices(tmp_path):
    uri = str(tmp_path / "t")
    ours = lance_core.write_dataset(rows(random.Random(1), 100), uri)
    for column, kind in KINDS.items():
        ours.create_scalar_index(column, kind)
    theirs = lance.dataset(uri)
    asked = ["b = 3", "array_has(l, 't1')", "contains(s, 'foo12')", "c = 'bar'", "ci = 77"]
    for condition in asked:
        assert "ScalarIndexQuery" in theirs.scanner(filter=condition).explain_plan(), condition
        assert "index:" in ours.scanner(filter=condition).explain_plan(), condition
    types = {one["name"]: one["type"] for one in theirs.list_indices()}
    assert (types["b_idx"], types["l_idx"]) == ("Bitmap", "LabelList")
    assert ours.index_statistics("b_idx")["indices"][0]["num_bitmaps"] == 9


def test_files_are_those_of_pylance(tmp_path):
    """Keys, row sets, trigrams and filters are equal byte by byte."""
    data = rows(random.Random(2), 3000)
    found = []
    for library in (lance_core, lance):
        uri = str(tmp_path / library.__name__)
        lance.write_dataset(data, uri, max_rows_per_file=1200)
        for column, kind in KINDS.items():
            library.dataset(uri).create_scalar_index(column, kind)
        found.append(list(index_contents(uri)))
    assert found[0] == found[1]


def index_contents(uri):
    ours = lance_core.dataset(uri)
    for index in sorted(ours.describe_indices(), key=lambda one: one.name):
        segment = index.segments[0]
        for path in sorted(Path(uri, "_indices", segment.uuid).iterdir()):
            table = LanceFileReader(str(path)).read_all().to_table()
            yield index.name, path.name, table.schema, [repr(row) for row in table.to_pylist()]


@pytest.mark.parametrize("column", ["b", "l"])
def test_null_is_the_last_key_where_pylance_added_rows(tmp_path, column):
    uri = str(tmp_path / "t")
    values = {"b": [None, 1, 2, 3] * 10, "l": [[None, 1], [2], None, [3]] * 10}
    part = pa.table({"b": values["b"], "l": values["l"], "k": range(40)})
    lance.write_dataset(part, uri)
    lance.dataset(uri).create_scalar_index(column, {"b": "BITMAP", "l": "LABEL_LIST"}[column])
    lance.write_dataset(part, uri, mode="append")
    lance.dataset(uri).optimize.optimize_indices()
    conditions = {
        "b": ["b = 3", "b <> 3", "b > 1", "b <= 2", "b IS NULL", "NOT (b IN (1, 3))"],
        "l": ["array_has(l, 3)", "NOT array_has(l, 2)", "array_has_any(l, [1, 2])"],
    }[column]
    ours = lance_core.dataset(uri)
    for _ in range(2):
        for condition in conditions:
            assert "index:" in ours.scanner(filter=condition).explain_plan(), condition
            assert ours.count_rows(condition) == ours.scanner(filter=condition, use_scalar_index=False).count_rows()
        ours.optimize.optimize_indices(retrain=False, num_indices_to_merge=1)
        ours.delete("k = 1")
        ours.optimize.compact_files()
    assert lance_core.verify(uri, level="indices").is_ok
