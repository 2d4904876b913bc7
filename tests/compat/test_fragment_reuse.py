"""Compaction that leaves indices for later: each library follows rows where the other's compactions moved them."""

from datetime import timedelta

import lance
import pyarrow as pa
import pytest

import lance_core
from lance_core.change.fragment_reuse import ReuseState
from lance_core.errors import CorruptDataError, UnsupportedError

pytestmark = pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")

PACKAGES = (lance, lance_core)
KINDS = {"k": "BTREE", "b": "BITMAP", "l": "LABEL_LIST", "t": "NGRAM", "z": "ZONEMAP", "f": "BLOOMFILTER"}
CONDITIONS = (
    "k = 555",
    "k IN (3, 250, 777, 1204)",
    "k BETWEEN 390 AND 420",
    "NOT (k > 10)",
    "k IS NULL",
    "b = 3",
    "b <> 3",
    "array_has(l, 'e2')",
    "contains(t, 'word7')",
    "z < 120",
    "f = 812",
)


def rows(start, count):
    numbers = range(start, start + count)
    return pa.table(
        {
            "k": [None if number % 50 == 7 else number for number in numbers],
            "b": [None if number % 90 == 1 else number % 7 for number in numbers],
            "l": [None if number % 80 == 2 else [f"e{number % 5}", "x"] for number in numbers],
            "t": [f"word{number % 11} tail" for number in numbers],
            "z": list(numbers),
            "f": list(numbers),
        }
    )


@pytest.fixture(params=PACKAGES, ids=lambda package: package.__name__)
def builder(request):
    return request.param


@pytest.fixture
def table(tmp_path, copy_of):
    """Make a table with indices by one of the libraries; some rows are deleted after that."""

    def make(uri, builder, kinds):
        lance.write_dataset(rows(0, 1000), uri, max_rows_per_file=100)
        for column, kind in kinds.items():
            builder.dataset(uri).create_scalar_index(column, kind)
        lance.dataset(uri).delete("z % 10 = 3 OR z BETWEEN 300 AND 399")

    def of(builder, kinds=KINDS):
        return copy_of((builder, tuple(kinds)), lambda uri: make(uri, builder, kinds), str(tmp_path / "t"))

    return of


def compact(package, uri, rows_per_fragment, *, defer=True):
    package.dataset(uri).optimize.compact_files(target_rows_per_fragment=rows_per_fragment, defer_index_remap=defer)


def check(uri, *, uses=CONDITIONS):
    theirs, ours = (package.dataset(uri) for package in PACKAGES)
    for condition in CONDITIONS:
        full = theirs.to_table(["z"], filter=condition, use_scalar_index=False)["z"].to_pylist()
        for dataset in (theirs, ours):
            found = dataset.to_table(["z"], filter=condition)["z"].to_pylist()
            assert sorted(found) == sorted(full), (type(dataset).__module__, condition)
    for condition in uses:
        assert "index:" in ours.scanner(filter=condition).explain_plan(), condition
        assert "ScalarIndexQuery" in theirs.scanner(filter=condition).explain_plan(), condition
    covered = [set(index.fragment_ids) for index in ours.snapshot.manifest.indices if index.fields]
    return {fragment.fragment_id for fragment in ours.get_fragments()} - set.intersection(*covered)


def recorded(uri):
    """Number of compactions in the fragment reuse index."""
    state = ReuseState.of(lance_core.dataset(uri).snapshot)
    return None if state is None else len(state.versions)


@pytest.mark.parametrize("second", PACKAGES, ids=lambda package: package.__name__)
@pytest.mark.parametrize("first", PACKAGES, ids=lambda package: package.__name__)
def test_both_follow_rows_through_two_compactions(table, builder, first, second):
    uri = table(builder)
    compact(first, uri, 250)
    assert check(uri) == set()
    lance_core.dataset(uri).delete("z % 100 = 55")
    compact(second, uri, 10_000)
    assert check(uri) == set()
    assert recorded(uri) == 2
    assert lance_core.verify(uri, level="indices").is_ok


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_indices_are_written_anew_and_compactions_forgotten(table, builder, package):
    uri = table(builder)
    compact(package, uri, 250)
    dataset = lance_core.dataset(uri)
    optimized = dataset.optimize.optimize_indices()
    assert sorted(optimized) == sorted(f"{column}_idx" for column in KINDS)
    assert recorded(uri) == 0
    assert check(uri) == set()
    version = dataset.version
    assert dataset.optimize.optimize_indices() == []
    assert dataset.version == version
    compact(lance, uri, 10_000)
    assert check(uri) == set()
    assert recorded(uri) == 1


def test_a_compaction_is_kept_for_the_index_that_still_needs_it(table):
    uri = table(lance)
    compact(lance_core, uri, 250)
    dataset = lance_core.dataset(uri)
    dataset.optimize.optimize_indices(index_names=["k_idx", "b_idx"])
    assert recorded(uri) == 1
    assert check(uri) == set()
    lance.dataset(uri).optimize.optimize_indices()
    assert check(uri) == set()


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_changes_after_a_deferred_remap(table, package):
    """Coverage follows changes in place and rewrites, though the files have the addresses from before."""
    uri = table(lance)
    compact(package, uri, 250)
    lance_core.dataset(uri).update({"k": "k + 5000", "t": "'word7'"}, where="z % 50 = 9")
    lance.write_dataset(rows(2000, 150), uri, mode="append")
    check(uri, uses=())
    ours = lance_core.dataset(uri)
    ours.merge_insert("z").when_matched_update_all().when_not_matched_insert_all().execute(rows(990, 30))
    check(uri, uses=())
    compact(lance_core, uri, 700, defer=False)
    check(uri, uses=())
    lance_core.dataset(uri).optimize.optimize_indices()
    assert check(uri) == set()
    assert recorded(uri) == 0


def test_a_vector_index_goes_on_finding_rows(tmp_path):
    uri = str(tmp_path / "t")
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([float(number % 97) for number in range(4000)]), 4)
    rows = pa.table({"z": range(1000), "v": vectors.cast(pa.list_(pa.float32(), 4))})
    lance.write_dataset(rows, uri, max_rows_per_file=100)
    lance.dataset(uri).create_index("v", "IVF_FLAT", num_partitions=2)
    query = {"column": "v", "q": vectors[500].as_py(), "k": 5, "nprobes": 2}
    before = lance.dataset(uri).to_table(["z"], nearest=query)["z"].to_pylist()
    metrics = lance_core.dataset(uri).optimize.compact_files(defer_index_remap=True)
    assert metrics.unindexed_rows == {}
    theirs = lance.dataset(uri)
    assert theirs.to_table(["z"], nearest=query)["z"].to_pylist() == before
    assert theirs.stats.index_stats("v_idx")["num_unindexed_rows"] == 0


def test_a_large_history_lies_in_a_file_that_cleanup_keeps(tmp_path, table, monkeypatch):
    monkeypatch.setattr("lance_core.change.fragment_reuse._MAX_INLINE_BYTES", 100)
    uri = table(lance, kinds={"k": "BTREE"})
    lance_core.dataset(uri).delete("z % 7 = 2")
    compact(lance_core, uri, 10_000)
    (details,) = (tmp_path / "t" / "_indices").glob("*/details.binpb")
    for package in PACKAGES:
        package.dataset(uri).cleanup_old_versions(older_than=timedelta(0))
        assert details.exists()
        for reader in PACKAGES:
            assert reader.dataset(uri).count_rows("k = 560") == 1
    assert lance_core.verify(uri, level="indices").is_ok
    details.write_bytes(details.read_bytes()[:-100])
    with pytest.raises(CorruptDataError, match="ends at byte"):
        lance_core.dataset(uri).count_rows("k = 555")


def test_stable_row_ids_are_refused_as_by_pylance(tmp_path):
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(0, 300), uri, max_rows_per_file=100, enable_stable_row_ids=True)
    with pytest.raises(OSError, match="stable row IDs"):
        compact(lance, uri, 1000)
    with pytest.raises(UnsupportedError, match="stable row ids"):
        compact(lance_core, uri, 1000)


def test_no_indices_leave_no_history(tmp_path):
    uri = str(tmp_path / "t")
    lance_core.write_dataset(rows(0, 300), uri, max_rows_per_file=100)
    compact(lance_core, uri, 1000)
    assert lance_core.dataset(uri).snapshot.manifest.indices == ()


def test_the_config_of_the_table_defers(table):
    uri = table(lance, kinds={"k": "BTREE"})
    dataset = lance_core.dataset(uri)
    dataset.update_config({"lance.compaction.defer_index_remap": "true"})
    plan = lance_core.Compaction.plan(dataset, {"target_rows_per_fragment": 300})
    lance_core.Compaction.commit(dataset, [task.execute(dataset) for task in plan.tasks])
    assert recorded(uri) == 1
    assert lance.dataset(uri).count_rows("k = 560") == 1


def test_compactions_side_by_side_are_both_recorded(table):
    uri = table(lance_core)
    writers = [lance_core.dataset(uri), lance_core.dataset(uri)]
    options = {"target_rows_per_fragment": 300, "defer_index_remap": True}
    staged = []
    for writer, chosen in zip(writers, (range(5), range(5, 10)), strict=True):
        plan = lance_core.Compaction.plan(writer, {**options, "excluded_fragment_ids": chosen})
        staged.append([task.execute(writer) for task in plan.tasks])
    for writer, results in zip(writers, staged, strict=True):
        lance_core.Compaction.commit(writer, results, options)
    assert recorded(uri) == 2
    assert check(uri) == set()


def test_an_audit_finds_what_pylance_loses_in_a_compaction_after_a_deferred_one(tmp_path):
    """pylance 14.0.2 remaps the addresses from before the deferred compaction, none of which it finds.

    Its index then covers the new fragment without any of its rows; ours goes through the map first.
    """
    for package in PACKAGES:
        uri = str(tmp_path / package.__name__)
        lance.write_dataset(pa.table({"k": range(200)}), uri, max_rows_per_file=100)
        lance.dataset(uri).create_scalar_index("k", "BTREE")
        compact(lance, uri, 1000)
        lance_core.dataset(uri).delete("k % 5 = 1")
        compact(package, uri, 1000, defer=False)
        is_right = package is lance_core
        assert lance.dataset(uri).count_rows("k = 55") == is_right
        assert lance_core.verify(uri, level="indices").is_ok == is_right
        lance_core.repair(uri)
        assert lance.dataset(uri).count_rows("k = 55") == lance_core.dataset(uri).count_rows("k = 55") == 1
