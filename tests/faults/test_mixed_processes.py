"""Real processes of both tools change one table at once; sums that no order of the changes may alter are the judge.

LANCE_TESTS=deep makes more of them, and compares the time that appends take with that of pylance alone.
"""

import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from datetime import timedelta

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_core
from lance_core.errors import CommitConflictError, CommitContentionError

IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"
CONTEXT = multiprocessing.get_context("forkserver")  # the pool's parent has threads
PATIENCE = {"conflict_retries": 1000, "retry_timeout": timedelta(minutes=10)}
PROCESSES = 8 if IS_DEEP else 6
TURNS = 30 if IS_DEEP else 4
ACCOUNTS, TRASH, KEEP_VERSIONS = 12, 40, 30
# pylance 14.0.2 looks for keys that others inserted meanwhile only where the schema declares them: of two merges of one
# new key from the same version, both by pylance, both land. (Ours look in any case.)
KEY = pa.field("k", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"})
SCHEMA = pa.schema([KEY, ("amount", pa.int64()), ("kind", pa.string())])


@pytest.fixture(scope="module")
def pool():
    with ProcessPoolExecutor(PROCESSES, mp_context=CONTEXT) as pool:
        list(pool.map(time.sleep, [0.2] * PROCESSES))  # all have begun
        yield pool


def tool_of(turn):
    return lance if turn % 2 else lance_core


def rows(keys, amount, kind):
    return pa.table([list(keys), [amount] * len(keys), [kind] * len(keys)], schema=SCHEMA)


# -------------------------------------------------------------------------------------------------------------- appends


def append_rows(uri, writer, count, tools, begin):
    """One row in each commit."""
    tool = {"lance": lance, "lance_core": lance_core}[tools[writer % len(tools)]]
    time.sleep(max(begin - time.time(), 0))
    for number in range(count):
        tool.write_dataset(pa.table({"x": pa.array([1000 * writer + number], pa.int64())}), uri, mode="append")
    return time.time()


def race_of_appends(pool, uri, tools, count):
    """Let them run; the seconds that it took."""
    lance_core.write_dataset(pa.table({"x": pa.array([], pa.int64())}), uri)
    begin = time.time() + 0.5
    futures = [pool.submit(append_rows, uri, writer, count, tools, begin) for writer in range(PROCESSES)]
    seconds = max(future.result() for future in futures) - begin
    for tool in (lance, lance_core):
        found = sorted(tool.dataset(uri).to_table()["x"].to_pylist())
        assert found == [1000 * writer + number for writer in range(PROCESSES) for number in range(count)]
    assert lance_core.dataset(uri).version == 1 + PROCESSES * count
    assert lance_core.verify(uri).is_ok
    return seconds


def test_appends_of_both_land_once(pool, tmp_path):
    race_of_appends(pool, str(tmp_path / "t"), ["lance_core", "lance"], 25 if IS_DEEP else 8)


@pytest.mark.skipif(not IS_DEEP, reason="a minute, and times are only worth something on a quiet machine")
def test_appends_take_at_most_twice_as_long_as_those_of_pylance(pool, tmp_path):
    spent = {
        " and ".join(tools): min(race_of_appends(pool, f"{tmp_path}/{'-'.join(tools)}{n}", tools, 25) for n in "123")
        for tools in (["lance"], ["lance_core"], ["lance_core", "lance"])
    }
    assert spent["lance_core"] <= 2 * spent["lance"], spent
    assert spent["lance_core and lance"] <= 2 * spent["lance"], spent


# --------------------------------------------------------------------------------------------------- all that changes


def transfer(uri, writer):
    """Moves money between two accounts in one commit; all of it is zero at any time."""
    for turn in range(TURNS):
        one = (3 * writer + turn) % (ACCOUNTS - 1)
        change = f"amount + (k * 2 - {2 * one + 1}) * {turn + 1}"  # one gets what the other one loses
        dataset = tool_of(turn + writer).dataset(uri)
        result = dataset.update({"amount": change}, where=f"k >= {one} AND k <= {one + 1}", **PATIENCE)
        assert result["num_rows_updated"] == 2


def deposit(uri, writer):
    """Merges a new key and a known one, which both lack or have; what was inserted is told."""
    inserted = 0
    for turn in range(TURNS):
        builder = tool_of(turn + writer).dataset(uri).merge_insert()
        builder.when_matched_update_all().when_not_matched_insert_all()
        builder.conflict_retries(PATIENCE["conflict_retries"]).retry_timeout(PATIENCE["retry_timeout"])
        inserted += builder.execute(rows([500 + turn, 501 + turn], 1, "merged"))["num_inserted_rows"]
    return inserted


def throw_away(uri, writer):
    """Deletes rows that others delete, too; each is deleted by one."""
    deleted = 0
    for turn in range(TURNS):
        low = 1000 + (7 * turn + writer) % TRASH
        dataset = tool_of(turn + writer).dataset(uri)
        deleted += dataset.delete(f"k >= {low} AND k < {low + 5}", **PATIENCE)["num_deleted_rows"]
    return deleted


def add(uri, writer):
    for turn in range(TURNS):
        data = rows([10_000 * (writer + 1) + turn], 1, "added")
        tool_of(turn + writer).write_dataset(data, uri, mode="append")


def keep_house(uri, writer):
    """Compacts and cleans up; what loses against others is tried again the next time."""
    done = 0
    for turn in range(2 * TURNS):
        dataset = tool_of(turn + writer).dataset(uri)
        with suppress(CommitConflictError, CommitContentionError, OSError):
            dataset.optimize.compact_files(target_rows_per_fragment=30)
            done += 1
        dataset.cleanup_old_versions(older_than=timedelta(0), retain_versions=KEEP_VERSIONS)
        time.sleep(0.05)
    return done


def look(uri, writer):
    """Whatever the others do, what is read adds up."""
    for turn in range(3 * TURNS):
        table = tool_of(turn + writer).dataset(uri).to_table()
        assert pc.sum(table.filter(pc.field("kind") == "account")["amount"]).as_py() == 0
        assert len(set(table["k"].to_pylist())) == table.num_rows
        time.sleep(0.02)


@pytest.mark.timeout(1200 if IS_DEEP else 300)
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable ids"])
def test_changes_of_both_add_up(pool, tmp_path, stable):
    uri = str(tmp_path / "t")
    lance_core.write_dataset(
        rows(range(ACCOUNTS), 0, "account"), uri, enable_stable_row_ids=stable, max_rows_per_file=5
    )
    lance_core.write_dataset(rows(range(1000, 1000 + TRASH + 5), 0, "trash"), uri, mode="append", max_rows_per_file=9)
    work = [transfer, deposit, throw_away, add, keep_house, look, *([transfer, deposit] if IS_DEEP else [])]
    futures = [(one, pool.submit(one, uri, writer)) for writer, one in enumerate(work)]
    results = [(one, future.result()) for one, future in futures]
    for tool in (lance, lance_core):
        check_sums(tool.dataset(uri), results)
    lance.dataset(uri).validate()
    report = lance_core.verify(uri, level="full")
    assert report.is_ok, str(report)


def check_sums(dataset, results):
    table = dataset.to_table(with_row_id=True)
    assert len(set(table["_rowid"].to_pylist())) == table.num_rows
    by_kind = {kind: table.filter(pc.field("kind") == kind) for kind in ("account", "trash", "merged", "added")}
    assert sorted(by_kind["account"]["k"].to_pylist()) == list(range(ACCOUNTS))
    assert pc.sum(by_kind["account"]["amount"]).as_py() == 0
    assert sorted(by_kind["merged"]["k"].to_pylist()) == list(range(500, 501 + TURNS))
    assert sum(count for one, count in results if one is deposit) == TURNS + 1
    assert sum(count for one, count in results if one is throw_away) == TRASH + 5 - by_kind["trash"].num_rows
    adders = [writer for writer, (one, _) in enumerate(results) if one is add]
    expected = [10_000 * (writer + 1) + turn for writer in adders for turn in range(TURNS)]
    assert sorted(by_kind["added"]["k"].to_pylist()) == expected
    assert sum(count for one, count in results if one is keep_house) > 0
