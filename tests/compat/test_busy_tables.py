"""Writers and maintenance of one busy table, ours and pylance's: nobody fails, nothing is lost."""

import time
from concurrent.futures import ThreadPoolExecutor

import lance
import pyarrow as pa
import pytest

import lance_core
from lance_core.maintenance.plan import CompactionOptions, plan_materialization
from lance_core.maintenance.rewrite import execute_tasks, rewrite

SECONDS = 4.0


def rows(ids, value=0):
    return pa.table({"id": pa.array(ids, pa.int64()), "value": pa.array([value] * len(ids), pa.int64())})


def until(deadline, work):
    """Do some work again and again; return how often."""
    times = 0
    while time.monotonic() < deadline:
        work(times)
        times += 1
    return times


@pytest.mark.parametrize("package", [lance_core, lance], ids=["ours", "beside pylance"])
def test_three_writers_and_a_compaction_in_a_loop(tmp_path, package):
    uri, seconds = str(tmp_path / "t"), SECONDS
    lance_core.write_dataset(rows(range(1000)), uri, max_rows_per_file=100)

    def append(turn):
        lance_core.write_dataset(rows([10_000 + turn]), uri, mode="append")

    def append_beside(turn):
        package.write_dataset(rows([1_000_000 + turn]), uri, mode="append")

    def merge(turn):
        merge = lance_core.dataset(uri).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(rows([turn % 1000, 100_000 + turn], 1))

    def compact(_):
        lance_core.dataset(uri).optimize.compact_files(target_rows_per_fragment=200, num_threads=1)

    deadline = time.monotonic() + seconds
    with ThreadPoolExecutor(4) as pool:
        works = [pool.submit(until, deadline, work) for work in (append, append_beside, merge, compact)]
    appended, beside, merged, compacted = (work.result() for work in works)
    assert min(appended, beside, merged, compacted) > 0
    found = lance.dataset(uri).to_table()
    wanted = [*range(1000), *range(10_000, 10_000 + appended), *range(100_000, 100_000 + merged)]
    assert sorted(found["id"].to_pylist()) == [*wanted, *range(1_000_000, 1_000_000 + beside)]
    assert sum(found["value"].to_pylist()) == min(merged, 1000) + merged
    assert lance_core.dataset(uri).verify().is_ok


def test_groups_that_nobody_touched_are_committed_after_a_conflict(tmp_path):
    uri = str(tmp_path / "t")
    lance_core.write_dataset(rows(range(40)), uri, max_rows_per_file=10)
    lance_core.dataset(uri).delete("id % 10 = 0")
    dataset, planned = lance_core.dataset(uri), []

    def make(snapshot):
        tasks = plan_materialization(snapshot.manifest)
        planned.append([fragment.id for task in tasks for fragment in task.fragments])
        if len(planned) == 1:
            lance_core.dataset(uri).delete("id = 15")
        return execute_tasks(snapshot, tasks, CompactionOptions(), num_threads=1)

    snapshot, metrics = rewrite(dataset.snapshot, make, conflict_retries=None)
    assert planned == [[0, 1, 2, 3], [1]]
    assert (metrics.fragments_removed, metrics.fragments_added) == (4, 4)
    assert snapshot.version == 5
    found = lance.dataset(uri)
    found.validate()
    assert sorted(found.to_table()["id"].to_pylist()) == [one for one in range(40) if one % 10 and one != 15]
    assert len(list((tmp_path / "t" / "data").iterdir())) == 8
