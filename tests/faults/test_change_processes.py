"""Real processes update, delete and merge rows of the same two fragments at once: no change is lost, no key is there
twice. LANCE_TESTS=deep makes more of them.
"""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta

import pyarrow as pa
import pytest

import lance_core

CONTEXT = multiprocessing.get_context("forkserver")  # the pool's parent has threads
IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"
WRITERS, TURNS = (8, 10) if IS_DEEP else (2, 6)
KEYS, OTHER_KEYS = 12, 1000
PATIENCE = {"conflict_retries": 500, "retry_timeout": timedelta(minutes=5)}


def rows(keys, count, writer=0):
    columns = {"k": keys, "count": [count] * len(keys), "writer": [writer] * len(keys)}
    return pa.table(columns, schema=pa.schema({"k": pa.int64(), "count": pa.int64(), "writer": pa.int64()}))


def count_up(uri, writer):
    """Adds one to some counters each turn, of which neighbours share half, and deletes a row of its own."""
    for turn in range(TURNS):
        low = (writer * 4 + turn) % KEYS
        dataset = lance_core.dataset(uri)
        dataset.update({"count": "count + 1"}, where=f"k >= {low} and k < {low + 4}", **PATIENCE)
        deleted = lance_core.dataset(uri).delete(f"k = {OTHER_KEYS + writer * TURNS + turn}", **PATIENCE)
        assert deleted["num_deleted_rows"] == 1


def insert_and_take_over(uri, writer):
    """Inserts keys that the others insert, too; who comes later updates."""
    inserted = 0
    for turn in range(TURNS):
        builder = lance_core.dataset(uri).merge_insert("k").when_matched_update_all().when_not_matched_insert_all()
        builder.conflict_retries(PATIENCE["conflict_retries"]).retry_timeout(PATIENCE["retry_timeout"])
        inserted += builder.execute(rows([100 + turn, 101 + turn], 0, writer))["num_inserted_rows"]
    return inserted


@pytest.mark.timeout(1200 if IS_DEEP else 300)
@pytest.mark.parametrize("stable", [False, True])
def test_every_change_counts_once(tmp_path, stable):
    uri = str(tmp_path / "t")
    half, others = KEYS // 2, range(OTHER_KEYS, OTHER_KEYS + WRITERS * TURNS + 2)  # two stay
    mixed = [*range(half), *others[::2], *range(half, KEYS), *others[1::2]]
    data = rows(mixed, 0)
    lance_core.write_dataset(data, uri, max_rows_per_file=len(mixed) // 2, enable_stable_row_ids=stable)
    with ProcessPoolExecutor(2 * WRITERS, mp_context=CONTEXT) as pool:
        counting = [pool.submit(count_up, uri, writer) for writer in range(WRITERS)]
        inserting = [pool.submit(insert_and_take_over, uri, writer) for writer in range(WRITERS)]
        for future in counting:
            future.result()
        inserted = sum(future.result() for future in inserting)
    dataset = lance_core.dataset(uri)
    found = dataset.to_table(with_row_id=True).to_pylist()
    keys = sorted(row["k"] for row in found)
    assert keys == [*range(KEYS), *range(100, 101 + TURNS), *others[-2:]]
    assert inserted == TURNS + 1
    expected = dict.fromkeys(range(KEYS), 0)
    for writer in range(WRITERS):
        for turn in range(TURNS):
            low = (writer * 4 + turn) % KEYS
            for key in range(low, min(low + 4, KEYS)):
                expected[key] += 1
    assert {row["k"]: row["count"] for row in found if row["k"] < KEYS} == expected
    assert len({row["_rowid"] for row in found}) == len(found)
    if stable:
        assert {row["_rowid"]: row["k"] for row in found if row["k"] < KEYS} == {mixed.index(k): k for k in range(KEYS)}
    assert dataset.version == 1 + 3 * WRITERS * TURNS
