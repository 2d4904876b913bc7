"""Maintenance assets run beside writers of other processes, ours and pylance's: no row is lost, none comes back.

LANCE_TESTS=deep lets them work for five minutes.
"""

import multiprocessing
import os
from datetime import timedelta

import dagster as dg
import lance
import pyarrow as pa
import pytest

import lance_core
from lance_dagster import CleanupPolicy, CompactionPolicy, DeletionPolicy, LanceResource, build_maintenance_assets

CONTEXT = multiprocessing.get_context("forkserver")
IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"
TIMES, PAUSE_S = (100, 3) if IS_DEEP else (4, 0)

WRITER = """
import time
import lance, pyarrow as pa
import lance_core

def rows(ids, part, value):
    ids = pa.array(ids, pa.int64())
    return pa.table({"id": ids, "part": pa.array([part] * len(ids)), "value": pa.array([value] * len(ids), pa.int64())})

def step(number):
    if kind == "append":
        lance_core.write_dataset(rows([1000 + number], "append", 0), uri, mode="append")
    elif kind == "pylance append":
        lance.write_dataset(rows([2000 + number], "append", 0), uri, mode="append")
    elif kind == "delete":
        lance_core.dataset(uri).delete(f"id = {number}")
    elif kind == "pylance delete":
        lance.dataset(uri).delete(f"id = {100 + number}")
    elif kind == "update":
        lance_core.dataset(uri).update({"value": "value + 1"}, where="part = 'update'")
    elif kind == "merge":
        source = rows([300 + number, 3000 + number], "merge", number)
        lance_core.dataset(uri).merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(source)
    else:
        replacement = rows([4000 + number], "overwrite", number)
        lance_core.dataset(uri).replace_where("part = 'overwrite'", replacement)

for number in range(times):
    time.sleep(pause_s)
    for attempt in range(300):
        try:
            step(number)
            break
        except Exception as error:
            if "onflict" not in type(error).__name__ + str(error) or attempt == 299:
                raise
            time.sleep(0.02)
"""
KINDS = ("append", "pylance append", "delete", "pylance delete", "update", "merge", "overwrite")


def first_rows():
    part = ["delete"] * 200 + ["update"] * 100 + ["merge"] * 100 + ["overwrite"] * 100
    return pa.table({"id": pa.array(range(500), pa.int64()), "part": part, "value": pa.array([0] * 500, pa.int64())})


def expected():
    found = dict.fromkeys(range(400), 0)
    for number in range(TIMES):
        del found[number], found[100 + number]
        found |= {1000 + number: 0, 2000 + number: 0, 300 + number: number, 3000 + number: number}
    found |= dict.fromkeys(range(200, 300), TIMES)
    return found | {4000 + TIMES - 1: TIMES - 1}


def start_writer(uri, kind):
    """A process that imports no more than `WRITER` does: this module, which knows Dagster, stays outside."""
    settings = {"uri": uri, "kind": kind, "times": TIMES, "pause_s": PAUSE_S}
    writer = CONTEXT.Process(target=exec, args=(WRITER, settings))
    writer.start()
    return writer


@pytest.mark.timeout(0 if IS_DEEP else 300)
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.filterwarnings("ignore::dagster.BetaWarning")
def test_maintenance_beside_writers(tmp_path, stable):
    lance_core.write_dataset(
        first_rows(),
        tmp_path / "t.lance",
        max_rows_per_file=50,
        enable_stable_row_ids=stable,
        data_storage_version="2.1",
    )
    uri = str(tmp_path / "t.lance")
    now = timedelta(0)
    assets = build_maintenance_assets(
        "t",
        compaction=CompactionPolicy(target_rows_per_fragment=10_000),
        deletions=DeletionPolicy(threshold=0),
        # What a writer reads must stay while it works; everything else goes.
        cleanup=CleanupPolicy(older_than=now, retain_versions=1, grace_period=timedelta(seconds=20)),
        max_attempts=100,
    )
    writers = [start_writer(uri, kind) for kind in KINDS]
    rounds = 0
    with dg.DagsterInstance.ephemeral() as instance:

        def maintain():
            dg.materialize(assets, instance=instance, resources={"lance": LanceResource(root=str(tmp_path))})

        while rounds < 2 or any(writer.is_alive() for writer in writers):
            maintain()
            rounds += 1
        maintain()
        settled = lance_core.dataset(uri).version
        maintain()
    assert lance_core.dataset(uri).version == settled, "nothing is left to do"
    assert [writer.exitcode for writer in writers] == [0] * len(KINDS)
    for engine in (lance, lance_core):
        table = engine.dataset(uri).to_table()
        assert len(table) == len(expected())
        assert dict(zip(table["id"].to_pylist(), table["value"].to_pylist(), strict=True)) == expected()
    lance.dataset(uri).validate()
    assert lance_core.dataset(uri).verify(level="full").is_ok
