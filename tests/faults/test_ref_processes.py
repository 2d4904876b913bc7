"""Real processes that fight for branches, tags and detached versions: one wins, nothing is lost, nothing is doubled."""

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress

import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import AlreadyExistsError, InvalidInputError, NotFoundError

NUM_PROCESSES = 3


def rows(*values):
    return pa.table({"x": pa.array(values, pa.int64())})


@pytest.fixture
def table(tmp_path):
    return lance_core.write_dataset(rows(*range(10)), tmp_path / "t").uri


@pytest.fixture(scope="module")
def race():
    """Lets each process do the same work at the same time; the answers of each."""
    with ProcessPoolExecutor(NUM_PROCESSES, multiprocessing.get_context("forkserver")) as pool:

        def run(work, *arguments, rounds):
            begin = time.time() + 0.5
            futures = [pool.submit(_run, begin, rounds, work, number, *arguments) for number in range(NUM_PROCESSES)]
            return [future.result(timeout=120) for future in futures]

        run(_nothing, rounds=1)  # all have imported what they need
        yield run


def _nothing(_number, _turn):
    time.sleep(0.2)


def _run(begin, rounds, work, number, *arguments):
    time.sleep(max(begin - time.time(), 0))
    return [work(number, turn, *arguments) for turn in range(rounds)]


def make_branch(number, turn, uri):
    try:
        branch = lance_core.dataset(uri).create_branch(f"b{turn}")
    except AlreadyExistsError:
        return 0
    lance_core.write_dataset(rows(100 + number), branch, mode="append")
    return 1


def test_one_process_makes_a_branch(race, table):
    won = race(make_branch, table, rounds=5)
    assert [sum(turn) for turn in zip(*won, strict=True)] == [1] * 5
    for turn in range(5):
        (winner,) = [number for number in range(NUM_PROCESSES) if won[number][turn]]
        values = lance_core.dataset(table, branch=f"b{turn}").to_table()["x"].to_pylist()
        assert values == [*range(10), 100 + winner]
    assert lance_core.dataset(table).version == 1


def append_to_branch(number, turn, uri):
    return lance_core.write_dataset(rows(1000 * (number + 1) + turn), uri, mode="append", branch="a").version


def test_all_appends_to_a_branch_land(race, table):
    lance_core.dataset(table).create_branch("a")
    versions = race(append_to_branch, table, rounds=6)
    assert sorted(version for one in versions for version in one) == list(range(2, 2 + 6 * NUM_PROCESSES))
    values = lance_core.dataset(table, branch="a").to_table()["x"].to_pylist()
    added = [1000 * (number + 1) + turn for number in range(NUM_PROCESSES) for turn in range(6)]
    assert sorted(values) == [*range(10), *added]
    assert lance_core.dataset(table).count_rows() == 10


def make_and_delete(number, turn, uri):
    dataset = lance_core.dataset(uri)
    try:
        if (number + turn) % 2:
            dataset.create_branch("shared")
            return "made"
        dataset.branches.delete("shared")
    except (AlreadyExistsError, NotFoundError, InvalidInputError):
        return "lost"
    return "deleted"


def test_a_branch_is_whole_or_gone_while_it_is_made_and_deleted(race, table):
    race(make_and_delete, table, rounds=10)
    dataset = lance_core.dataset(table)
    if "shared" in dataset.branches.list():
        try:
            assert lance_core.dataset(table, branch="shared").count_rows() == 10
        except NotFoundError:  # deleted by one process after another had made its file, which says so
            dataset.branches.delete("shared")
    else:
        with suppress(NotFoundError):
            dataset.branches.delete("shared")  # what a deletion left for the next one
    assert dataset.create_branch("once-more").count_rows() == 10
    assert dataset.count_rows() == 10


def make_tag(_number, turn, uri):
    try:
        lance_core.dataset(uri).tags.create(f"t{turn}", 1)
    except AlreadyExistsError:
        return 0
    return 1


def test_one_process_makes_a_tag(race, table):
    won = race(make_tag, table, rounds=10)
    assert [sum(turn) for turn in zip(*won, strict=True)] == [1] * 10
    assert {tag["version"] for tag in lance_core.dataset(table).tags.list().values()} == {1}


def commit_once(_number, turn, uri):
    key = f"job {turn}"
    return lance_core.write_dataset(rows(100 + turn), uri, mode="append", idempotency_key=key).version


def test_a_key_counts_once_however_many_processes_use_it(race, table):
    versions = race(commit_once, table, rounds=5)
    assert len({tuple(one) for one in versions}) == 1, "all learn the version that one of them made"
    values = lance_core.dataset(table).to_table()["x"].to_pylist()
    assert sorted(values) == [*range(10), *range(100, 105)]
