"""Which fragments the indices of pylance cover after lance_core has rewritten or moved their rows."""

import random
import shutil

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import IndexCoverageWarning
from lance_core.format.table.index_metadata import IndexFields, holds_row_ids, make_index

SCALAR = {
    "id": "BTREE",
    "tag": "BITMAP",
    "text": "INVERTED",
    "labels": "LABEL_LIST",
    "score": "ZONEMAP",
    "key": "BLOOMFILTER",
    "title": "NGRAM",
}


def rows(numbers):
    numbers = list(numbers)
    vectors = np.random.default_rng(numbers[0]).random((len(numbers), 8), np.float32)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "tag": [f"g{number % 5}" for number in numbers],
            "text": [f"word{number % 7} all" for number in numbers],
            "labels": [[f"a{number % 3}", "all"] for number in numbers],
            "score": pa.array(numbers, pa.float64()),
            "key": pa.array(numbers, pa.int64()),
            "title": [f"number {number}" for number in numbers],
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 8),
        }
    )


def make(path, *, stable=True):
    theirs = lance.write_dataset(rows(range(800)), path, max_rows_per_file=200, enable_stable_row_ids=stable)
    theirs.delete("id % 10 = 3")
    theirs.update({"score": "score + 0.5"}, where="id % 11 = 0")
    theirs = lance.dataset(path)
    for column, kind in SCALAR.items():
        theirs.create_scalar_index(column, kind)
    theirs.create_index("vector", "IVF_PQ", num_partitions=2, num_sub_vectors=4)
    return str(path)


def coverage(path):
    dataset = lance_core.dataset(path)
    return {one["name"]: set(one["fragment_ids"]) for one in dataset.list_indices()}


def check(path):
    """pylance finds through its indices what full scans find."""
    theirs = lance.dataset(path)
    theirs.validate()
    table = theirs.to_table(use_scalar_index=False)
    everything = table.to_pylist()
    for condition, matches in [
        ("id = 53", lambda row: row["id"] == 53),
        ("id >= 195 AND id < 410", lambda row: 195 <= row["id"] < 410),
        ("tag = 'g2'", lambda row: row["tag"] == "g2"),
        ("tag = 'new'", lambda row: row["tag"] == "new"),
        ("array_has(labels, 'a1')", lambda row: "a1" in row["labels"]),
        ("score > 600.25", lambda row: row["score"] > 600.25),
        ("key = 77", lambda row: row["key"] == 77),
        ("contains(title, 'number 77')", lambda row: "number 77" in row["title"]),
    ]:
        found = theirs.to_table(columns=["id"], filter=condition)["id"].to_pylist()
        assert sorted(found) == sorted(row["id"] for row in everything if matches(row)), condition
    for word in ("word3", "new"):
        found = theirs.to_table(columns=["id"], full_text_query=word)["id"].to_pylist()
        assert sorted(found) == sorted(row["id"] for row in everything if word in row["text"].split()), word
    for place in range(0, table.num_rows, table.num_rows // 5):
        probe = np.array(everything[place]["vector"], np.float32)
        nearest = {"column": "vector", "q": probe, "k": 1, "nprobes": 2, "refine_factor": 100}
        assert everything[place]["id"] in theirs.to_table(columns=["id"], nearest=nearest)["id"].to_pylist()


@pytest.mark.parametrize("target", [400, 1 << 20])
def test_compaction_keeps_coverage_by_row_ids_as_pylance_does(tmp_path, target):
    ours, theirs = make(tmp_path / "ours"), str(tmp_path / "theirs")
    shutil.copytree(ours, theirs)
    metrics = lance_core.dataset(ours).optimize.compact_files(target_rows_per_fragment=target)
    lance.dataset(theirs).optimize.compact_files(target_rows_per_fragment=target)
    before, after = coverage(theirs), coverage(ours)
    for name in after:
        assert after[name] == (before[name] or after["id_idx"]) != set(), name
        assert lance.dataset(ours).stats.index_stats(name)["num_unindexed_rows"] == 0
    assert metrics.unindexed_rows == {}
    check(ours)
    lance.dataset(ours).optimize.optimize_indices()
    check(ours)


def test_materialization_keeps_coverage_by_row_ids(tmp_path):
    path = make(tmp_path / "t")
    lance_core.dataset(path).delete("id < 50")
    dataset = lance_core.dataset(path)
    metrics = dataset.optimize.materialize_deletions(threshold=0.2)
    assert metrics.fragments_removed == 1
    live = {one.fragment_id for one in dataset.get_fragments()}
    assert all(covered == live for covered in coverage(path).values())
    assert metrics.unindexed_rows == {}
    check(path)


def test_compaction_tells_what_tables_without_stable_row_ids_lose(tmp_path):
    path = make(tmp_path / "t", stable=False)
    lance.dataset(path).create_index("vector", "IVF_HNSW_SQ", name="graph_idx", num_partitions=1)
    lance_core.write_dataset(rows(range(1000, 1100)), path, mode="append")
    dataset = lance_core.dataset(path)
    plan = lance_core.Compaction.plan(dataset)
    with pytest.warns(IndexCoverageWarning, match=r"720 of 'graph_idx'.*optimize_indices"):
        metrics = lance_core.Compaction.commit(dataset, lance_core.Compaction.run(dataset, plan))
    assert metrics.unindexed_rows == {"graph_idx": 720}
    assert all((ids == set()) == (name == "graph_idx") for name, ids in coverage(path).items())
    check(path)


def test_coverage_is_lost_if_an_index_did_not_cover_all_old_fragments(tmp_path):
    path = make(tmp_path / "t")
    lance_core.write_dataset(rows(range(1000, 1100)), path, mode="append")
    dataset = lance_core.dataset(path)
    fragments = [one.metadata for one in dataset.get_fragments()]
    plan = lance_core.Compaction.plan(dataset)
    task = lance_core.CompactionTask(
        read_version=dataset.version, fragments=tuple(fragments), options=plan.tasks[0].options
    )
    with pytest.warns(IndexCoverageWarning):
        lance_core.Compaction.commit(dataset, [task.execute(dataset)])
    assert all(ids == set() for ids in coverage(path).values())
    check(path)


@pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")
def test_updated_rows_stay_covered_by_indices_of_other_columns(tmp_path):
    ours, theirs = make(tmp_path / "ours"), str(tmp_path / "theirs")
    shutil.copytree(ours, theirs)
    for path, package in ((ours, lance_core), (theirs, lance)):
        package.dataset(path).update({"tag": "'new'"}, where="id < 150")
    assert coverage(ours) == coverage(theirs)
    moved = {one.fragment_id for one in lance_core.dataset(ours).get_fragments()} - coverage(ours)["tag_idx"]
    assert len(moved) == 1
    assert moved < coverage(ours)["vector_idx"]
    assert not moved & coverage(ours)["id_idx"]
    check(ours)
    lance_core.dataset(ours).optimize.compact_files()
    check(ours)


def test_merged_rows_stay_covered_by_indices_of_columns_that_the_source_lacks(tmp_path):
    path = make(tmp_path / "t")
    source = rows(range(100, 300)).select(["id", "tag", "text"]).set_column(1, "tag", [["new"] * 200])
    lance_core.dataset(path).merge_insert("id").when_matched_update_all().execute(source)
    live, after = {one.fragment_id for one in lance_core.dataset(path).get_fragments()}, coverage(path)
    assert live <= after["vector_idx"] == after["labels_idx"] == after["title_idx"]
    assert len(live - after["tag_idx"]) == len(live - after["text_idx"]) == len(live - after["id_idx"]) == 1
    check(path)


def test_inserted_rows_are_not_covered(tmp_path):
    path = make(tmp_path / "t")
    before = coverage(path)
    merge = lance_core.dataset(path).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    merge.execute(rows(range(790, 820)))
    assert coverage(path) == before
    check(path)


@pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")
@pytest.mark.parametrize("seed", range(2))
def test_indices_stay_right_over_random_changes_of_both(tmp_path, seed):
    path, chance, next_id = make(tmp_path / "t"), random.Random(seed), 1000
    for _ in range(8):
        dataset = chance.choice([lance_core, lance_core, lance]).dataset(path)
        number = chance.randrange(7)
        match chance.choice(["compact", "compact", "update", "update key", "merge", "upsert", "delete", "index"]):
            case "compact":
                dataset.optimize.compact_files(target_rows_per_fragment=chance.choice([300, 1 << 20]))
            case "update":
                dataset.update({"score": "score + 1"}, where=f"id % 7 = {number}")
            case "update key":
                dataset.update({"tag": "'new'", "text": "'new word3'"}, where=f"id % 17 = {number}")
            case "merge":
                source = rows(range(number * 100, number * 100 + 60)).select(["id", "score", "tag"])
                dataset.merge_insert("id").when_matched_update_all().execute(source)
            case "upsert":
                merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
                merge.execute(rows(range(next_id - 10, next_id + 10)))
                next_id += 10
            case "delete":
                dataset.delete(f"id % 31 = {number}")
            case _:
                lance.dataset(path).optimize.optimize_indices()
        check(path)


@pytest.mark.parametrize(
    ("kind", "version", "expected"),
    [
        ("BTree", 0, True),
        ("BTree", 1, False),
        ("Vector", 2, True),
        ("Vector", 3, False),
        ("ZoneMap", 0, False),
        ("FM", 10, False),
        ("Unheard", 0, False),
    ],
)
def test_only_known_kinds_and_versions_count_as_holding_row_ids(kind, version, expected):
    details = (f"/lance.table.{kind}IndexDetails", b"")
    fields = IndexFields(uuid=bytes(16), name="i", fields=(0,), dataset_version=1, index_version=version)
    assert holds_row_ids(make_index(fields)) is False
    with_details = IndexFields(
        uuid=bytes(16), name="i", fields=(0,), dataset_version=1, index_version=version, details=details
    )
    assert holds_row_ids(make_index(with_details)) is expected
