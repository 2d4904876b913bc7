"""Only the parts of a conjunction that indices leave undecided are evaluated, and only their columns are read."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lance_core
from lance_core.scan import candidates, fragment_run
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.fragment_run import FragmentRun
from lance_core.sql.predicate import Predicate

NUM_ROWS = 6_000


def _rows(seed, count=NUM_ROWS):
    rng = np.random.default_rng(seed)

    def some(values, share=0.1):
        return pa.array(values, mask=rng.random(count) < share)

    return pa.table(
        {
            "id": np.arange(count) + seed * count,
            "tree": some(rng.integers(0, 400, count)),
            "clustered": some(np.arange(count) // 3),
            "few": some(rng.integers(0, 6, count)),
            "flag": some(rng.random(count) < 0.3),
            "zones": some(np.sort(rng.integers(0, 500, count))),
            "word": some(np.array([f"word {number}" for number in range(50)])[rng.integers(0, 50, count)]),
            "plain": some(rng.integers(0, 20, count), 0.3),
        }
    )


_INDICES = {
    "tree": "BTREE",
    "clustered": "BTREE",
    "few": "BITMAP",
    "flag": "BITMAP",
    "zones": "ZONEMAP",
    "word": "NGRAM",
}


@pytest.fixture(scope="module", params=["whole", "deleted", "uncovered", "row ids"])
def table(request, tmp_path_factory):
    kind = request.param
    path = tmp_path_factory.mktemp("residuals") / "t"
    options = {"max_rows_per_file": 2_000, "enable_stable_row_ids": kind == "row ids"}
    table = lance_core.write_dataset(_rows(0), path, **options)
    for column, index in _INDICES.items():
        table.create_scalar_index(column, index)
    if kind in ("uncovered", "row ids"):
        table = lance_core.write_dataset(_rows(1, 2_500), path, mode="append", max_rows_per_file=2_000)
        table.create_scalar_index("few", "BITMAP")  # covers what was appended, other indices do not
    if kind != "whole":
        table.delete("id % 5 = 2 OR (id > 4_000 AND id < 4_400)".replace("_", ""))
        table = lance_core.dataset(path)
    return table


def _comparison(column, low, high):
    operator = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
    return st.builds(lambda sign, number: f"{column} {sign} {number}", operator, st.integers(low, high))


_CONDITIONS = st.one_of(
    _comparison("tree", -1, 400),
    _comparison("clustered", 0, 2_000),
    st.builds(
        lambda low, width: f"clustered BETWEEN {low} AND {low + width}", st.integers(0, 2_000), st.integers(0, 300)
    ),
    _comparison("few", -1, 6),
    st.builds(lambda numbers: f"few IN ({', '.join(map(str, numbers))})", st.lists(st.integers(0, 7), min_size=1)),
    st.builds(lambda numbers: f"tree IN ({', '.join(map(str, numbers))})", st.lists(st.integers(0, 400), min_size=1)),
    st.sampled_from(["flag", "NOT flag", "flag IS NULL", "flag IS NOT TRUE", "few IS NOT NULL", "tree IS NULL"]),
    _comparison("zones", 0, 500),
    st.builds(lambda number: f"word LIKE '%ord {number}%'", st.integers(0, 60)),
    _comparison("plain", 0, 20),
    st.sampled_from(["plain IS NULL", "id % 3 = 1", "tree < plain * 20", "few + plain = 7", "_rowaddr % 2 = 0"]),
    st.sampled_from(["TRUE", "FALSE", "NULL", "1 = 1"]),
)
_PREDICATES = st.recursive(
    _CONDITIONS,
    lambda inner: st.one_of(
        st.builds(lambda parts: " AND ".join(f"({part})" for part in parts), st.lists(inner, min_size=2, max_size=5)),
        st.builds(lambda parts: " OR ".join(f"({part})" for part in parts), st.lists(inner, min_size=2, max_size=3)),
        st.builds(lambda part: f"NOT ({part})", inner),
    ),
    max_leaves=8,
)
_CONJUNCTIONS = st.builds(" AND ".join, st.lists(st.one_of(_CONDITIONS, _PREDICATES.map("({})".format)), min_size=2))


@pytest.mark.slow
@given(
    condition=_CONJUNCTIONS,
    columns=st.lists(st.sampled_from(["id", "tree", "few", "plain", "_rowid"]), unique=True, min_size=1),
    limit=st.none() | st.integers(0, 500),
    bounds=st.tuples(
        st.sampled_from([0, 50, candidates._MAX_GAP]), st.sampled_from([0, fragment_run._SMALL_FILE_ROWS])
    ),
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_rows_are_those_of_a_scan_without_indices(table, condition, columns, limit, bounds):
    options = {"columns": columns, "filter": condition, "limit": limit, "offset": None if limit is None else limit // 2}
    wanted = table.to_table(**options, use_scalar_index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(candidates, "_MAX_GAP", bounds[0])
        patch.setattr(fragment_run, "_SMALL_FILE_ROWS", bounds[1])
        assert table.to_table(**options).equals(wanted)
        if limit is None:
            assert table.count_rows(condition) == wanted.num_rows


@pytest.fixture
def asked(monkeypatch):
    """The columns that are read for a condition, and those that it is asked of."""
    monkeypatch.setattr(fragment_run, "_SMALL_FILE_ROWS", 0)
    columns, mask, take, scan = set(), Predicate.mask, FragmentReader.take, FragmentReader.scan
    take_run = FragmentRun.take

    def told(names):
        columns.update(name for name in names if name != "_rowaddr")

    monkeypatch.setattr(Predicate, "mask", lambda self, batch: told(batch.schema.names) or mask(self, batch))
    monkeypatch.setattr(
        FragmentRun, "take", lambda self, schema, *rest: told(schema.names) or take_run(self, schema, *rest)
    )
    monkeypatch.setattr(
        FragmentReader, "take", lambda self, schema, *rest: told(schema.names) or take(self, schema, *rest)
    )
    monkeypatch.setattr(
        FragmentReader, "scan", lambda self, schema, **rest: told(schema.names) or scan(self, schema, **rest)
    )
    return columns


@pytest.fixture
def covered(tmp_path):
    table = lance_core.write_dataset(_rows(0), tmp_path / "t", max_rows_per_file=2_000)
    for column, index in _INDICES.items():
        table.create_scalar_index(column, index)
    return table


@pytest.mark.parametrize(
    ("condition", "columns"),
    [
        ("few = 3 AND flag AND plain > 3", {"plain"}),
        ("few = 3 AND (flag AND (plain > 3))", {"plain"}),
        ("clustered > 700 AND plain > 3 AND clustered < 800", {"plain"}),
        ("tree = 7 AND plain > 3 AND id % 3 = 1", {"plain", "id"}),
        ("few = 3 AND (flag OR plain > 3)", {"flag", "plain"}),
        ("few = 3 AND NOT (flag AND plain > 3)", {"flag", "plain"}),
        ("zones < 20 AND few = 3", {"zones"}),
        ("few = 3 AND few + plain = 7", {"few", "plain"}),
        ("few = 3 AND flag", set()),
    ],
)
def test_only_columns_of_undecided_parts_are_read(covered, asked, condition, columns):
    count = covered.count_rows(condition)
    assert asked == columns
    assert count == covered.to_table(["id"], filter=condition, use_scalar_index=False).num_rows > 0


def test_fragments_that_an_index_does_not_cover_are_asked_all(covered, asked):
    lance_core.write_dataset(_rows(1), covered.uri, mode="append", max_rows_per_file=6_000)
    table = lance_core.dataset(covered.uri)
    by_fragment = {fragment.fragment_id: set() for fragment in table.get_fragments()}
    condition = "few = 3 AND plain > 3"
    for fragment in table.get_fragments():
        asked.clear()
        fragment.to_table(["id"], filter=condition)
        by_fragment[fragment.fragment_id] |= asked - {"id"}
    assert list(by_fragment.values()) == [{"plain"}] * 3 + [{"few", "plain"}]


def test_changes_ask_what_is_left(covered, asked):
    condition = "few = 3 AND flag AND plain > 3"
    rows = covered.to_table(["id"], filter=condition, use_scalar_index=False)["id"].to_pylist()
    asked.clear()
    assert covered.delete(condition)["num_deleted_rows"] == len(rows)
    assert asked == {"plain"}
    assert covered.count_rows(condition) == 0


def test_searches_ask_what_is_left(tmp_path, asked):
    rows = _rows(0)
    vectors = np.random.default_rng(5).random((NUM_ROWS, 4), np.float32)
    rows = rows.append_column("vector", pa.FixedSizeListArray.from_arrays(vectors.ravel(), 4))
    table = lance_core.write_dataset(rows, tmp_path / "t", max_rows_per_file=2_000)
    table.create_scalar_index("few", "BITMAP")
    nearest = {"column": "vector", "q": vectors[0], "k": 20}
    options = {"columns": ["id"], "filter": "few = 3 AND plain > 3", "nearest": nearest, "prefilter": True}
    wanted = table.to_table(**options, use_scalar_index=False)
    asked.clear()
    assert table.to_table(**options).equals(wanted)
    assert "few" not in asked
    assert "plain" in asked


def test_rows_in_order_ask_what_is_left(covered):
    condition = "few = 3 AND flag AND plain > 3"
    for columns, order in itertools.product((["id"], ["plain", "word"]), (["tree"], ["plain"])):
        options = {"columns": columns, "filter": condition, "order_by": order, "limit": 30}
        assert covered.to_table(**options).equals(covered.to_table(**options, use_scalar_index=False))


@pytest.mark.parametrize("condition", ["tree = 7", "tree = 7 AND plain > 3", "tree IN (3, 7, 9) AND id % 3 = 1"])
def test_few_rows_of_several_fragments_are_read_together(covered, monkeypatch, condition):
    monkeypatch.setattr(fragment_run, "_SMALL_FILE_ROWS", 0)
    wanted = covered.to_table(["id", "plain"], filter=condition, with_row_id=True, use_scalar_index=False)
    owners, take = [], FragmentRun.take
    monkeypatch.setattr(
        FragmentRun, "take", lambda self, schema, rows: owners.append(len(self.readers)) or take(self, schema, rows)
    )
    assert covered.to_table(["id", "plain"], filter=condition, with_row_id=True).equals(wanted)
    assert covered.count_rows(condition) == wanted.num_rows
    assert set(owners) == {3}
