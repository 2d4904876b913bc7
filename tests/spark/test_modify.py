"""Deletes, updates, new columns and indices that Spark's tasks work out; nothing is left behind when they fail."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

import lance_core
from lance_core.errors import CommitConflictError, InvalidInputError, UnsupportedError
from lance_core.spark import (
    add_columns_lance,
    create_index_lance,
    create_zone_map_lance,
    delete_lance,
    read_lance,
    update_lance,
)
from lance_core.spark.functions import fragment_work

pytestmark = pytest.mark.spark


@pytest.fixture(params=[False, True], ids=["addresses", "stable ids"])
def table(request, uri):
    """Four fragments of 25 rows, of which row 30 is gone."""
    rows = pa.table({"id": range(100), "s": [f"{i % 7}" for i in range(100)]})
    made = lance_core.write_dataset(rows, uri, max_rows_per_file=25, enable_stable_row_ids=request.param)
    made.delete("id = 30")
    return made


@pytest.fixture
def all_files(uri):
    def names():
        return sorted(str(path.relative_to(uri)) for path in Path(uri).rglob("*") if path.is_file())

    return names


def newest(table):
    return lance_core.dataset(table.uri)


def test_a_delete_over_several_tasks_is_one_version(spark, table):
    done = delete_lance(spark, table.uri, "id < 27 or s = '3'", commit_message="gone", idempotency_key="k")
    now = newest(table)
    assert (done.version, now.version) == (3, 3)
    assert now.count_rows() == 100 - 1 - done.num_deleted_rows
    assert now.count_rows("id < 27 or s = '3'") == 0
    assert now.read_transaction(3).transaction_properties["__lance_commit_message"] == "gone"
    assert len(now.get_fragments()) == 3
    again = delete_lance(spark, table.uri, "id > 0", idempotency_key="k")
    assert (again.version, again.written, newest(table).version) == (3, False, 3)


def test_an_update_moves_rows_and_keeps_their_ids(spark, table):
    before = table.to_table(with_row_id=True)
    done = update_lance(spark, table.uri, {"s": "concat(s, '!')"}, "id % 10 = 0")
    now = newest(table).to_table(with_row_id=True)
    assert (done.num_updated_rows, done.num_rows, done.num_fragments) == (9, 9, done.num_files)
    assert sorted(now["id"].to_pylist()) == sorted(before["id"].to_pylist())
    assert all(
        s.endswith("!") == (i % 10 == 0) for i, s in zip(*map(pa.ChunkedArray.to_pylist, now.columns[:2]), strict=True)
    )
    if table.has_stable_row_ids:
        ids = [dict(zip(t["id"].to_pylist(), t["_rowid"].to_pylist(), strict=True)) for t in (before, now)]
        assert ids[0] == ids[1]


def test_conditions_that_do_not_fit_are_refused_before_any_task_runs(spark, table, all_files):
    before = all_files()
    with pytest.raises(InvalidInputError, match="idd"):
        delete_lance(spark, table.uri, "idd = 1")
    with pytest.raises(InvalidInputError, match="nope"):
        update_lance(spark, table.uri, {"nope": "1"})
    with pytest.raises(TypeError, match=r"delete_lance\(\) got an unexpected keyword argument 'colour'"):
        delete_lance(spark, table.uri, "id = 1", colour="red")
    assert all_files() == before


def test_values_that_fail_in_a_task_leave_nothing_behind(spark, table, all_files):
    before = all_files()
    with pytest.raises(InvalidInputError, match=r"cast|fails|convert"):
        update_lance(spark, table.uri, {"id": "cast(concat(s, 'x') as bigint)"}, "id > 60")
    assert all_files() == before
    assert newest(table).version == 2


def test_tasks_that_die_leave_nothing_behind(spark, table, all_files, monkeypatch):
    before = all_files()

    def dying(predicate, snapshot, ids):
        work = original(predicate, snapshot, ids)

        class Dying:
            def prepare(self, part):
                work.prepare(part)
                if any(one.id == 3 for one in part.manifest.fragments):
                    raise OSError("disk full")
                return work.prepare(part)

            def forget(self):
                pass  # as if the process was killed

        return Dying()

    from lance_core.spark.functions import modify  # noqa: PLC0415 only here

    original = modify._deleting
    monkeypatch.setattr(modify, "_deleting", dying)
    with pytest.raises(Exception, match="disk full"):
        delete_lance(spark, table.uri, "id % 2 = 0")
    assert all_files() == before


def test_a_change_is_worked_out_again_where_another_commit_was(spark, table, monkeypatch):
    """An update of one fragment comes in between: only its task runs again, and both changes count."""
    original, looked_at = fragment_work.run_pickled, []

    def run(session, function, tasks):
        looked_at.append([one.id for task in tasks for one in task.fragments])
        answers = original(session, function, tasks)
        if len(looked_at) == 1:
            newest(table).update({"s": "'x'"}, where="id = 60")
        return answers

    monkeypatch.setattr(fragment_work, "run_pickled", run)
    done = update_lance(spark, table.uri, {"s": "concat(s, '!')"}, "id in (10, 60)")
    now = newest(table)
    assert (done.version, done.attempts) == (4, 2)
    assert set(looked_at[1]) < set(looked_at[0]) | {4}
    assert {row["id"]: row["s"] for row in now.to_table(filter="s like '%!'").to_pylist()} == {10: "3!", 60: "x!"}
    assert now.count_rows() == 99


def test_a_change_gives_up_after_so_many_conflicts(spark, table, all_files, monkeypatch):
    original = fragment_work.run_pickled

    def run(session, function, tasks):
        answers = original(session, function, tasks)
        newest(table).update({"s": "'x'"}, where="id = 60")
        return answers

    monkeypatch.setattr(fragment_work, "run_pickled", run)
    with pytest.raises(CommitConflictError):
        update_lance(spark, table.uri, {"s": "'y'"}, "id = 60", conflict_retries=1)
    now = newest(table)
    assert now.to_table(filter="id = 60")["s"].to_pylist() == ["x"]
    referenced = {
        f.path
        for v in range(1, now.version + 1)
        for one in lance_core.dataset(table.uri, v).get_fragments()
        for f in one.data_files()
    }
    assert {name.removeprefix("data/") for name in all_files() if name.startswith("data/")} == referenced


def test_columns_from_sql_are_made_fragment_by_fragment(spark, table):
    done = add_columns_lance(spark, table.uri, {"double": "id * 2", "t": "concat(s, '-')"})
    now = newest(table)
    assert (done.version, done.num_files, now.count_rows()) == (3, 4, 99)
    assert now.count_rows("double = id * 2 and t = concat(s, '-')") == 99
    assert read_lance(spark, table.uri, columns=["double"]).agg(F.sum("double")).first()[0] == sum(range(100)) * 2 - 60


def test_columns_from_a_function(spark, table):
    def half(batch):
        return pa.record_batch({"half": pa.array([value / 2 for value in batch["id"].to_pylist()])})

    add_columns_lance(spark, table.uri, half, read_columns=["id"])
    assert newest(table).count_rows("half = id / 2.0") == 99


def test_columns_from_a_frame_by_key(spark, table):
    source = spark.range(0, 200).filter("id % 3 = 0").selectExpr("cast(id as bigint) id", "id * 1.5 v", "array(id) l")
    done = add_columns_lance(spark, table.uri, source, on="id")
    rows = newest(table).to_table().to_pylist()
    assert [row["v"] for row in rows] == [None if row["id"] % 3 else row["id"] * 1.5 for row in rows]
    assert [row["l"] for row in rows] == [None if row["id"] % 3 else [row["id"]] for row in rows]
    assert (done.version, len(rows), done.num_files) == (3, 99, 4)


def test_a_key_that_occurs_twice_is_refused(spark, table, all_files):
    before = all_files()
    source = spark.createDataFrame([(5, "a"), (5, "b")], "id bigint, v string")
    with pytest.raises(Exception, match="several rows of the DataFrame have the key"):
        add_columns_lance(spark, table.uri, source, on=["id"])
    with pytest.raises(InvalidInputError, match="key"):
        add_columns_lance(spark, table.uri, source, on="key")
    assert all_files() == before


def test_rows_that_are_added_meanwhile_get_the_new_column_too(spark, table, monkeypatch):
    original, runs = fragment_work.run_pickled, []

    def run(session, function, tasks):
        answers = original(session, function, tasks)
        runs.append(len(tasks))
        if len(runs) == 1:
            lance_core.write_dataset(pa.table({"id": [1000], "s": ["z"]}), table.uri, mode="append")
        return answers

    monkeypatch.setattr(fragment_work, "run_pickled", run)
    add_columns_lance(spark, table.uri, {"double": "id * 2"})
    assert runs == [4, 1]
    assert newest(table).count_rows("double = id * 2") == 100


def test_a_zone_map_has_a_segment_for_each_task(spark, table):
    done = create_zone_map_lance(spark, table.uri, "id", rows_per_zone=10)
    now = newest(table)
    assert {one["name"] for one in now.list_indices()} == {"id_idx"}
    covered = sorted(number for one in now.list_indices() for number in one["fragment_ids"])
    assert covered == [0, 1, 2, 3]
    assert (done.version, now.to_table(filter="id = 77")["id"].to_pylist()) == (3, [77])
    create_zone_map_lance(spark, table.uri, "id")
    assert sorted(n for one in newest(table).list_indices() for n in one["fragment_ids"]) == [0, 1, 2, 3]


def test_a_b_tree_of_many_segments_finds_rows_and_merges(spark, table):
    create_index_lance(spark, table.uri, "id", "BTREE")
    now = newest(table)
    assert len(now.list_indices()) > 1
    assert "4 of 100 rows match" in now.scanner(filter="id IN (1, 29, 55, 99)").explain_plan()
    assert now.to_table(filter="id IN (1, 29, 30, 55, 99)")["id"].to_pylist() == [1, 29, 55, 99]
    assert read_lance(spark, table.uri, filter="id = 77").count() == 1
    assert delete_lance(spark, table.uri, "id = 77").num_deleted_rows == 1
    now = newest(table)
    assert now.optimize.optimize_indices() == ["id_idx"]
    assert len(now.list_indices()) == 1
    assert now.count_rows("id >= 76 AND id < 80") == 3
    with pytest.raises(UnsupportedError, match="BITSET"):
        create_index_lance(spark, table.uri, "id", "BITSET")
