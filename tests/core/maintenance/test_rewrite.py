import pickle
from pathlib import Path

import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import CommitConflictError, CorruptDataError, InvalidInputError, UnsupportedError
from lance_core.maintenance import rewrite

ROWS = pa.table({"id": range(1000), "text": [f"row {i}" for i in range(1000)]})


@pytest.fixture
def dataset(tmp_path):
    return lance_core.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=100)


def shape(dataset):
    return [(one.fragment_id, one.physical_rows, one.num_deletions) for one in dataset.get_fragments()]


def data_files(dataset):
    return {path.name for path in Path(dataset.uri, "data").iterdir()}


def test_compaction_keeps_rows_and_order(dataset):
    metrics = dataset.optimize.compact_files()
    assert metrics == lance_core.CompactionMetrics(
        fragments_removed=10, fragments_added=1, files_removed=10, files_added=1
    )
    assert dataset.version == 2
    assert shape(dataset) == [(10, 1000, 0)]
    assert dataset.to_table().equals(ROWS)
    assert dataset.checkout_version(1).to_table().equals(ROWS)
    operation = dataset.read_transaction(2).operation
    assert [len(group.old_fragments) for group in operation.groups] == [10]
    assert operation.groups[0].new_fragments[0].id == 10


def test_with_nothing_to_do_no_version_is_made(dataset):
    dataset.optimize.compact_files()
    for _ in range(2):
        assert dataset.optimize.compact_files() == lance_core.CompactionMetrics()
        assert dataset.optimize.materialize_deletions() == lance_core.CompactionMetrics()
    assert dataset.latest_version == 2


def test_tasks_become_fragments_of_the_target_size(dataset):
    metrics = dataset.optimize.compact_files(target_rows_per_fragment=250, num_threads=2)
    assert metrics.fragments_added == 3
    assert shape(dataset) == [(10, 300, 0), (11, 300, 0), (12, 400, 0)]
    assert dataset.to_table().equals(ROWS)


def test_a_large_task_is_cut_evenly(tmp_path):
    dataset = lance_core.write_dataset(ROWS, tmp_path / "t")
    dataset.delete("id % 4 = 0")
    dataset.optimize.compact_files(target_rows_per_fragment=250)
    assert shape(dataset) == [(1, 250, 0), (2, 250, 0), (3, 250, 0)]


def test_compaction_drops_deleted_rows(dataset):
    dataset.delete("id % 2 = 0 or id < 200")
    metrics = dataset.optimize.compact_files()
    assert (metrics.fragments_removed, metrics.files_removed) == (8, 16)
    assert shape(dataset) == [(10, 400, 0)]
    assert dataset.to_table()["id"].to_pylist() == [i for i in range(200, 1000) if i % 2]


def test_compaction_of_nothing_but_deleted_rows(tmp_path):
    dataset = lance_core.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=500)
    dataset.delete("id >= 500 or id % 2 = 0")
    assert dataset.optimize.materialize_deletions().fragments_added == 1
    assert shape(dataset) == [(2, 250, 0)]


def test_materialization_touches_only_fragments_with_deleted_rows(dataset):
    dataset.delete("id in (0, 1, 250) or id between 500 and 579")
    before = dataset.to_table().sort_by("id")
    metrics = dataset.optimize.materialize_deletions(threshold=0.5)
    assert metrics == lance_core.CompactionMetrics(
        fragments_removed=1, fragments_added=1, files_removed=2, files_added=1
    )
    assert [one.fragment_id for one in dataset.get_fragments()] == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert dataset.optimize.materialize_deletions().fragments_removed == 2
    assert dataset.table_statistics()["num_deleted_rows"] == 0
    assert dataset.to_table().sort_by("id").equals(before)


def test_columns_that_a_fragment_lacks_are_filled_in(tmp_path):
    place = tmp_path / "t"
    lance_core.write_dataset(ROWS.slice(0, 3), place)
    lance_core.write_dataset(ROWS.slice(3, 3).select(["id"]), place, mode="append")
    dataset = lance_core.write_dataset(ROWS.slice(6, 3), place, mode="append")
    before = dataset.to_table()
    dataset.optimize.compact_files()
    assert dataset.to_table().equals(before)
    assert [len(file.fields) for file in dataset.get_fragments()[0].data_files()] == [2]


def test_options_come_from_the_table_and_unknown_ones_are_refused(dataset):
    with pytest.raises(TypeError, match="nonsense"):
        dataset.optimize.compact_files(nonsense=1)
    with pytest.raises(InvalidInputError, match="nonsense"):
        lance_core.Compaction.plan(dataset, {"nonsense": 1})
    with pytest.raises(UnsupportedError, match="binary_copy_read_batch_bytes"):
        dataset.optimize.compact_files(binary_copy_read_batch_bytes=1)
    with pytest.raises(InvalidInputError, match="num_threads"):
        dataset.optimize.compact_files(num_threads=0)
    assert dataset.optimize.compact_files(max_rows_per_group=3, max_source_fragments=4).fragments_removed == 0


def test_planned_here_executed_there_committed_once(dataset):
    plan = lance_core.Compaction.plan(dataset, {"target_rows_per_fragment": 250})
    assert (plan.read_version, plan.num_tasks()) == (1, 3)
    lance_core.write_dataset(ROWS.slice(0, 1), dataset, mode="append")
    results = []
    for number, task in enumerate(plan.tasks):
        travelled = lance_core.CompactionTask.from_json(task.json()) if number else pickle.loads(pickle.dumps(task))  # noqa: S301
        assert travelled == task
        result = travelled.execute(lance_core.dataset(dataset.uri))
        assert lance_core.RewriteResult.from_json(result.json()) == result
        assert result.metrics.fragments_added == 1
        results.append(pickle.loads(pickle.dumps(result)))  # noqa: S301
    metrics = lance_core.Compaction.commit(dataset, results, transaction_properties={"run": "7"})
    assert (metrics.fragments_removed, metrics.fragments_added, dataset.version) == (10, 3, 3)
    assert dataset.read_transaction(3).transaction_properties == {"run": "7"}
    assert dataset.count_rows() == 1001
    assert lance_core.Compaction.commit(dataset, []) == lance_core.CompactionMetrics()
    assert dataset.latest_version == 3


def test_part_of_the_results_is_enough(dataset):
    plan = lance_core.Compaction.plan(dataset, {"target_rows_per_fragment": 250})
    lance_core.Compaction.commit(dataset, [plan.tasks[1].execute(dataset)])
    assert [one.physical_rows for one in dataset.get_fragments()] == [100] * 7 + [300]
    assert dataset.to_table().sort_by("id").equals(ROWS)


def test_a_plan_for_materialization(dataset):
    dataset.delete("id = 150")
    plan = lance_core.Compaction.plan_materialization(dataset)
    assert [[one.id for one in task.fragments] for task in plan.tasks] == [[1]]
    lance_core.Compaction.commit(dataset, [task.execute(dataset) for task in plan.tasks])
    assert dataset.get_fragment(10).physical_rows == 99


def test_a_conflict_removes_the_new_files(dataset):
    plan = lance_core.Compaction.plan(dataset)
    results = [task.execute(dataset) for task in plan.tasks]
    lance_core.dataset(dataset.uri).delete("id = 5")
    files = data_files(dataset)
    with pytest.raises(CommitConflictError) as caught:
        lance_core.Compaction.commit(dataset, results)
    assert caught.value.is_retryable
    assert len(data_files(dataset)) == len(files) - 1
    assert dataset.checkout_version(2).to_table()["id"].to_pylist() == [i for i in range(1000) if i != 5]


def test_compaction_plans_anew_after_a_conflict(dataset, monkeypatch):
    real = rewrite.commit
    others = iter(["id = 5", "id = 6"])

    def racing(*args, **kwargs):
        other = next(others, None)
        if other is not None:
            lance_core.dataset(dataset.uri).delete(other)
        return real(*args, **kwargs)

    monkeypatch.setattr(rewrite, "commit", racing)
    assert dataset.optimize.compact_files(conflict_retries=2).fragments_removed == 10
    assert dataset.version == 4
    assert dataset.to_table()["id"].to_pylist() == [i for i in range(1000) if i not in (5, 6)]
    assert len(data_files(dataset)) == 11


def test_what_others_leave_alone_is_committed_however_often_they_touch_the_rest(dataset, monkeypatch):
    """Each time before the rest is published, another of five groups of fragments is changed."""
    real, asked = rewrite.commit, []

    def racing(*args, **kwargs):
        if len(asked) < 4:
            asked.append(lance_core.dataset(dataset.uri).delete(f"id = {len(asked) * 200}"))
        return real(*args, **kwargs)

    monkeypatch.setattr(rewrite, "commit", racing)
    metrics = dataset.optimize.compact_files(target_rows_per_fragment=200, conflict_retries=0)
    assert metrics.fragments_removed == 2
    assert shape(dataset)[-1][1:] == (200, 0)
    assert dataset.to_table()["id"].to_pylist() == [i for i in range(1000) if i not in (0, 200, 400, 600)]
    assert len(data_files(dataset)) == 11


def test_a_damaged_file_fails_the_whole_compaction(dataset):
    damaged = dataset.get_fragment(4).data_files()[0].path
    with Path(dataset.uri, "data", damaged).open("r+b") as file:
        file.truncate(50)
    files = data_files(dataset)
    with pytest.raises(CorruptDataError, match=damaged):
        dataset.optimize.compact_files(target_rows_per_fragment=250, num_threads=2)
    assert data_files(dataset) == files
    assert dataset.latest_version == 1


class Interrupted(BaseException):
    pass


@pytest.mark.parametrize("error", [Interrupted, OSError])
@pytest.mark.parametrize("num_threads", [1, 3])
def test_whatever_stops_it_nothing_is_left(dataset, monkeypatch, error, num_threads):
    plan = lance_core.Compaction.plan(dataset, {"target_rows_per_fragment": 200})
    assert plan.num_tasks() == 5
    before = data_files(dataset)
    inner, calls = rewrite.execute_task, []

    def execute(*arguments):
        calls.append(arguments)
        if len(calls) == 4:
            raise error
        return inner(*arguments)

    monkeypatch.setattr(rewrite, "execute_task", execute)
    with pytest.raises(error):
        lance_core.Compaction.run(dataset, plan, num_threads=num_threads)
    assert data_files(dataset) == before


def test_a_plan_is_executed_here(dataset):
    plan = lance_core.Compaction.plan(dataset, {"target_rows_per_fragment": 200})
    dataset.delete("id = 999")  # the plan stays one of its version
    results = lance_core.Compaction.run(dataset, plan, num_threads=2)
    assert [result.read_version for result in results] == [1] * 5
    assert lance_core.Compaction.run(dataset, lance_core.CompactionPlan(read_version=2, tasks=())) == ()
