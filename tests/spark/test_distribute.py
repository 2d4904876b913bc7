from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import CommitConflictError
from lance_core.spark import compact_lance, run_tasks
from lance_core.spark.functions import distribute

pytestmark = pytest.mark.spark

TABLE = pa.table({"id": pa.array(range(100))})


def test_each_text_gets_a_task_of_its_own(spark):
    def run(text):
        from pyspark import TaskContext  # noqa: PLC0415 runs in a worker

        return f"{text} in {TaskContext.get().partitionId()}"

    assert run_tasks(spark, run, ["a", "b", "c"]) == ["a in 0", "b in 1", "c in 2"]
    assert run_tasks(spark, run, []) == []


def test_compaction_is_one_version(spark, uri):
    lance_core.write_dataset(TABLE, uri, max_rows_per_file=10)
    metrics = compact_lance(
        spark, uri, target_rows_per_fragment=20, max_source_fragments=None, transaction_properties={"why": "small"}
    )
    dataset = lance_core.dataset(uri)
    assert (metrics.fragments_removed, metrics.fragments_added) == (10, 5)
    assert (dataset.version, len(dataset.get_fragments())) == (2, 5)
    assert dataset.read_transaction(2).transaction_properties == {"why": "small"}
    assert sorted(dataset.to_table()["id"].to_pylist()) == list(range(100))


def test_deleted_rows_are_dropped_and_nothing_else_is_touched(spark, uri):
    lance_core.write_dataset(TABLE, uri, max_rows_per_file=50)
    lance_core.dataset(uri).delete("id = 3")
    metrics = compact_lance(spark, uri, only_deletions=True)
    dataset = lance_core.dataset(uri)
    assert (metrics.fragments_removed, metrics.fragments_added) == (1, 1)
    assert sorted(one.num_deletions for one in dataset.get_fragments()) == [0, 0]
    assert dataset.count_rows() == 99


def test_nothing_to_do_makes_no_version(spark, uri):
    lance_core.write_dataset(TABLE, uri)
    assert compact_lance(spark, uri).fragments_removed == 0
    assert lance_core.dataset(uri).version == 1


def files(uri):
    return sorted(Path(uri, "data").iterdir())


def test_a_task_that_fails_leaves_nothing(spark, uri):
    lance_core.write_dataset(TABLE, uri, max_rows_per_file=10)
    files(uri)[3].write_bytes(b"damaged")
    before = files(uri)
    with pytest.raises(Exception, match="CorruptDataError"):
        compact_lance(spark, uri, target_rows_per_fragment=20)
    # Spark kills the processes of the other tasks; what one of them was just writing is for a clean-up to remove.
    assert [file for file in files(uri) if not file.name.startswith(".tmp_")] == before
    table = lance_core.dataset(uri)
    assert table.version == 1
    table.cleanup_old_versions(timedelta(0), delete_unverified=True, force=True)
    assert files(uri) == before


def test_a_conflict_is_planned_anew(spark, uri, monkeypatch):
    lance_core.write_dataset(TABLE, uri, max_rows_per_file=10)
    inner = distribute.execute_plan

    def late(dataset, plan, **options):
        results = inner(dataset, plan, **options)
        if dataset.version == 1:
            lance_core.dataset(uri).delete("id = 5")
        return results

    monkeypatch.setattr(distribute, "execute_plan", late)
    metrics = compact_lance(spark, uri)
    assert (metrics.fragments_removed, lance_core.dataset(uri).version) == (10, 3)
    assert lance_core.dataset(uri).to_table()["id"].to_pylist() == [i for i in range(100) if i != 5]
    assert len(files(uri)) == 11


def test_conflicts_end_when_told(spark, uri, monkeypatch):
    lance_core.write_dataset(TABLE, uri, max_rows_per_file=10)
    inner = distribute.execute_plan

    def late(dataset, plan, **options):
        results = inner(dataset, plan, **options)
        lance_core.dataset(uri).delete(f"id = {dataset.version}")
        return results

    monkeypatch.setattr(distribute, "execute_plan", late)
    with pytest.raises(CommitConflictError):
        compact_lance(spark, uri, conflict_retries=1)
    assert lance_core.dataset(uri).version == 3
    assert len(files(uri)) == 10
