"""Indices that pylance made stay right whatever we do; zone maps mean the same to both."""

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_core

pytestmark = pytest.mark.filterwarnings("ignore:The 'list_indices' method is deprecated:DeprecationWarning")

NUM_ROWS = 2000
CONDITIONS = {
    "BTREE": ["a < 100", "a = 777", "a >= 1900 OR a = 5", "a IN (3, 1500, 90000)", "a > 90000"],
    "BITMAP": ["b = 3", "b IN (1, 99)", "b IS NULL", "b <> 2"],
    "LABEL_LIST": ["array_has(l, 't2')", "array_has_any(l, ['t1', 'new'])"],
    "ZONEMAP": ["z < 100", "z > 1990", "z IS NULL", "z = 90001"],
    "BLOOMFILTER": ["c = 'word 3'", "c = 'new'"],
}
INDEXED = {"BTREE": "a", "BITMAP": "b", "LABEL_LIST": "l", "ZONEMAP": "z", "BLOOMFILTER": "c"}


def rows(numbers, label=None):
    numbers = list(numbers)
    vectors = np.random.default_rng(len(numbers)).random((len(numbers), 8), np.float32)
    return pa.table(
        {
            "a": pa.array(numbers, pa.int64()),
            "b": pa.array([None if number % 11 == 0 else number % 5 for number in numbers], pa.int64()),
            "c": [label or f"word {number % 100}" for number in numbers],
            "l": [[label or f"t{number % 4}", "all"] for number in numbers],
            "z": pa.array([None if number % 50 == 0 else number for number in numbers], pa.int64()),
            "text": [f"{label or 'old'} sentence {number % 10}" for number in numbers],
            "v": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 8),
        }
    )


@pytest.fixture(params=[False, True], ids=["addresses", "stable row ids"])
def table(request, tmp_path, copy_of):
    def make(uri):
        theirs = lance.write_dataset(
            rows(range(NUM_ROWS)), uri, max_rows_per_file=500, enable_stable_row_ids=request.param
        )
        for kind, column in INDEXED.items():
            theirs.create_scalar_index(column, kind)
        theirs.create_scalar_index("text", "INVERTED")
        theirs.create_index("v", "IVF_PQ", num_partitions=2, num_sub_vectors=2)

    return copy_of(request.param, make, str(tmp_path / "t"))


def ids(table):
    return sorted(table.column("a").to_pylist())


def check(uri, most=9):
    """Every query of pylance through its indices finds what a full scan finds, and what we find.

    Args:
        uri: The table.
        most: How many conditions of each kind of index to ask.
    """
    theirs, ours = lance.dataset(uri), lance_core.dataset(uri)
    for condition in (one for conditions in CONDITIONS.values() for one in conditions[:most]):
        full = theirs.to_table(columns=["a"], filter=condition, use_scalar_index=False)
        assert ids(theirs.to_table(columns=["a"], filter=condition)) == ids(full), condition
        if "array_has" not in condition:
            assert ids(ours.to_table(columns=["a"], filter=condition)) == ids(full), condition
    for word in ("old", "new"):
        found = ids(theirs.to_table(columns=["a"], full_text_query=word))
        assert found == ids(theirs.to_table(columns=["a"], filter=f"text LIKE '{word} %'")), word
    everything = theirs.to_table(columns=["a", "v"])
    if everything.num_rows:
        vector = np.array(everything.column("v")[everything.num_rows - 1].as_py(), np.float32)
        nearest = {"column": "v", "q": vector, "k": 3, "nprobes": 2, "refine_factor": 50}
        assert everything.column("a")[-1].as_py() in ids(theirs.to_table(columns=["a"], nearest=nearest))
    assert {one["name"] for one in ours.list_indices()} == {one["name"] for one in theirs.list_indices()}
    theirs.validate()


CHANGES = {
    "append": lambda ours: lance_core.write_dataset(rows(range(90_000, 90_010), "new"), ours, mode="append"),
    "delete": lambda ours: ours.delete("a < 50 OR a = 777 OR c = 'word 3'"),
    "delete fragment": lambda ours: ours.delete("a >= 500 AND a < 1000"),
    "replace": lambda ours: ours.replace_where("a < 600", rows(range(90_000, 90_020), "new")),
    "update": lambda ours: ours.update({"b": "99", "z": "90001", "c": "'new'"}, where="a % 10 = 3"),
    "merge": lambda ours: (
        ours.merge_insert("a")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute(rows([5, 777, 90_001], "new"))
    ),
    "merge columns": lambda ours: (
        ours.merge_insert("a")
        .when_matched_update_all()
        .execute(
            pa.table(
                {"a": [5, 777, 1500], "z": [90_001, 90_001, None]}, schema=pa.schema([("a", "int64"), ("z", "int64")])
            )
        )
    ),
    "compact": lambda ours: ours.optimize.compact_files(),
    "compact parts": lambda ours: (ours.delete("a < 400"), ours.optimize.compact_files(target_rows_per_fragment=500)),
    "overwrite": lambda ours: lance_core.write_dataset(rows(range(30), "new"), ours, mode="overwrite"),
    "rename": lambda ours: ours.alter_columns({"path": "text", "name": "text", "nullable": True}),
    "add column": lambda ours: ours.add_columns({"more": "a + 1"}),
    "zone map": lambda ours: (
        lance_core.write_dataset(rows(range(90_000, 90_010), "new"), ours, mode="append"),
        ours.checkout_latest(),
        ours.optimize.optimize_indices(),
    ),
}


@pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")
@pytest.mark.parametrize("change", CHANGES)
def test_queries_through_indices_after_our_changes(table, change):
    CHANGES[change](lance_core.dataset(table))
    if change == "overwrite":
        assert lance_core.dataset(table).list_indices() == lance.dataset(table).list_indices() == []
        return
    check(table)
    lance_core.dataset(table).delete("a = 1234")
    check(table, most=1)


@pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")
def test_pylance_goes_on(table):
    ours = lance_core.dataset(table)
    ours.delete("a < 400")
    ours.optimize.compact_files()
    lance_core.write_dataset(rows(range(90_000, 90_100), "new"), ours, mode="append")
    theirs = lance.dataset(table)
    theirs.optimize.optimize_indices()
    check(table)
    theirs.optimize.compact_files()
    check(table)
    for index in lance.dataset(table).list_indices():
        if index["name"] != "z_idx":
            lance_core.dataset(table).drop_index(index["name"])
    assert [one["name"] for one in lance.dataset(table).list_indices()] == ["z_idx"]
    for condition in CONDITIONS["ZONEMAP"]:
        theirs = lance.dataset(table)
        assert theirs.to_table(filter=condition) == theirs.to_table(filter=condition, use_scalar_index=False)


def test_dropping_an_indexed_column(table):
    lance_core.dataset(table).drop_columns(["b", "v"])
    theirs = lance.dataset(table)
    names = {"a_idx", "c_idx", "l_idx", "text_idx", "z_idx"}
    assert {one["name"] for one in theirs.list_indices()} == names
    assert {one.name for one in lance_core.dataset(table).describe_indices()} == names
    assert theirs.to_table(filter="a < 10").num_rows == 10


def test_descriptions_are_the_same(table):
    lance_core.dataset(table).delete("a < 5")
    ours, theirs = lance_core.dataset(table), lance.dataset(table)
    listed = {one["name"]: one for one in theirs.list_indices()}
    for mine in ours.list_indices():
        other = dict(listed.pop(mine["name"]), fragment_ids=frozenset(listed_ids(theirs, mine["name"])))
        assert mine == other
    assert not listed
    for mine, other in zip(ours.describe_indices(), theirs.describe_indices(), strict=True):
        assert (mine.name, mine.num_rows_indexed, mine.fields, mine.field_names, mine.total_size_bytes) == (
            other.name,
            other.num_rows_indexed,
            other.fields,
            other.field_names,
            other.total_size_bytes,
        )
        statistics, expected = ours.stats.index_stats(mine.name), theirs.stats.index_stats(mine.name)
        same = {key: value for key, value in expected.items() if key.startswith(("num_", "name", "updated"))}
        assert {key: statistics[key] for key in same} == same
    assert ours.index_statistics("z_idx") == theirs.stats.index_stats("z_idx")


def listed_ids(theirs, name):
    return next(one["fragment_ids"] for one in theirs.list_indices() if one["name"] == name)


# ---------------------------------------------------------------------------------------------------- zone maps


def special(count, version="2.2"):
    values = [None if n % 7 == 0 else float("nan") if n % 11 == 0 else float(n - count // 2) for n in range(count)]
    return pa.table(
        {
            "i": range(count),
            "f": pa.array(values, pa.float64()),
            "s": pa.array([None if n % 9 == 0 else f"{n:05d}" for n in range(count)]),
            "t": pa.array([None if n % 13 == 0 else n * 10**9 for n in range(count)], pa.timestamp("ns")),
            "st": pa.array([None if n % 10 == 0 and version != "2.0" else {"x": n} for n in range(count)]),
        }
    )


ASKED = [
    "f > 100",
    "f < -100",
    "f = 0",
    "NOT (f > 0)",
    "f IS NULL",
    "f IS NOT NULL AND i > 990",
    "s < '00100' OR i = 700",
    "s IS NULL",
    "s >= '00990'",
    "t < timestamp '1970-01-01 00:01:00'",
    "t IS NULL AND i < 100",
]


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize(
    ("maker", "version"), [(lance, "2.0"), (lance, "2.2"), (lance_core, "2.0"), (lance_core, "2.2")]
)
def test_zone_maps_of_both(tmp_path, maker, version, stable):
    uri = str(tmp_path / "t")
    lance.write_dataset(
        special(1000, version), uri, max_rows_per_file=400, data_storage_version=version, enable_stable_row_ids=stable
    )
    lance_core.dataset(uri).delete("i >= 100 AND i < 130 OR i = 0")
    dataset = maker.dataset(uri)
    for column in ("f", "s", "t", "st.x"):
        dataset.create_scalar_index(column, "ZONEMAP", rows_per_zone=64)
    lance_core.dataset(uri).delete("i % 100 = 50")
    ours, theirs = lance_core.dataset(uri), lance.dataset(uri)
    assert "ScalarIndexQuery" in theirs.scanner(filter="f > 100").explain_plan()
    for condition in [*ASKED, "st.x < 5", "st.x = 777"]:
        expected = theirs.to_table(filter=condition, use_scalar_index=False)
        assert theirs.to_table(filter=condition).column("i") == expected.column("i"), condition
        assert ours.to_table(filter=condition).column("i") == expected.column("i"), condition
        assert ours.count_rows(condition) == expected.num_rows, condition
    assert theirs.stats.index_stats("f_idx") == ours.index_statistics("f_idx")


def test_each_renews_what_the_other_made(tmp_path):
    uri = str(tmp_path / "t")
    lance.write_dataset(special(1000), uri, max_rows_per_file=400)
    lance.dataset(uri).create_scalar_index("f", "ZONEMAP")
    for package, other in ((lance_core, lance), (lance, lance_core)):
        other.write_dataset(special(300), uri, mode="append")
        dataset = package.dataset(uri)
        dataset.optimize.optimize_indices()
        for reader in (lance, lance_core):
            found = reader.dataset(uri)
            assert found.stats.index_stats("f_idx")["num_unindexed_fragments"] == 0
            full = found.to_table(filter="f > 100", use_scalar_index=False)
            assert found.to_table(filter="f > 100").column("i") == full.column("i")


def test_after_a_deferred_remap(tmp_path):
    """pylance compacts and leaves its indices for later: a map from old rows to new ones stands beside them."""
    uri = str(tmp_path / "t")
    theirs = lance.write_dataset(rows(range(NUM_ROWS)), uri, max_rows_per_file=200)
    theirs.create_scalar_index("a", "BTREE")
    theirs.create_scalar_index("b", "BITMAP")
    lance_core.dataset(uri).delete("a < 150")
    lance.dataset(uri).optimize.compact_files(target_rows_per_fragment=400, defer_index_remap=True)
    ours = lance_core.dataset(uri)
    assert [one.name for one in ours.describe_indices()] == ["a_idx", "b_idx"]
    for change in (
        lambda: ours.delete("a % 10 = 3"),
        lambda: lance_core.write_dataset(rows(range(90_000, 90_010), "new"), ours, mode="append"),
        lambda: ours.update({"b": "99"}, where="a = 1500"),
        lambda: ours.optimize.compact_files(),  # noqa: PLW0108 of the version there is by then
        lambda: lance.dataset(uri).optimize.optimize_indices(),  # noqa: PLW0108 likewise
    ):
        change()
        ours.checkout_latest()
        theirs = lance.dataset(uri)
        for condition in CONDITIONS["BTREE"] + CONDITIONS["BITMAP"]:
            full = ids(theirs.to_table(columns=["a"], filter=condition, use_scalar_index=False))
            assert ids(theirs.to_table(columns=["a"], filter=condition)) == full, condition
            assert ids(ours.to_table(columns=["a"], filter=condition)) == full, condition


@pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")
def test_pylance_looks_for_a_remapped_index_in_the_wrong_place(tmp_path):
    """Why test_state_machine has no compaction by pylance 14.0.2 where an index came with a branch or clone.

    It writes the new index into the clone, but lets its entry say that it is in the source. Ours stays right.
    """
    source = lance.write_dataset(pa.table({"k": range(100)}), tmp_path / "t", max_rows_per_file=20)
    source.create_scalar_index("k", "BTREE")
    for tool in (lance, lance_core):
        path = tmp_path / tool.__name__
        source.shallow_clone(str(path), 2)
        tool.dataset(path).optimize.compact_files()
        if tool is lance:
            with pytest.raises((OSError, ValueError), match="Not found"):
                tool.dataset(path).to_table(filter="k = 33")
            assert {one.kind for one in lance_core.verify(path).problems} == {"index"}
        else:
            assert lance.dataset(path).to_table(filter="k = 33").num_rows == 1
            assert lance_core.verify(path).is_ok
