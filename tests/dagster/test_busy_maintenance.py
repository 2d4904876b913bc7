"""Dagster's maintenance beside processes that never pause: nobody gives up, nothing is lost, nothing piles up.

LANCE_TESTS=deep lets them write for twenty minutes, LANCE_BUSY_S for another time; `-s` shows what was done when.
"""

import json
import os
import subprocess
import sys
import time
from datetime import timedelta

import dagster as dg
import lance
import pyarrow as pa
import pytest

import lance_core
from lance_dagster import CleanupPolicy, CompactionPolicy, LanceResource, build_maintenance_assets

IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"
SECONDS = float(os.environ.get("LANCE_BUSY_S", "1200" if IS_DEEP else "5"))
SAMPLES = 20
FIRST_ROWS = 1000

WRITER = """
import json, sys, time
import lance, pyarrow as pa
import lance_core

uri, kind, number = sys.argv[1], sys.argv[2], int(sys.argv[3])

def rows(ids, value):
    return pa.table({"id": pa.array(ids, pa.int64()), "value": pa.array([value] * len(ids), pa.int64())})

def step(turn):
    if kind == "append":
        lance_core.write_dataset(rows([number * 1_000_000 + turn], 0), uri, mode="append")
    elif kind == "pylance append":
        lance.write_dataset(rows([number * 1_000_000 + turn], 0), uri, mode="append")
    elif kind == "update":
        lance_core.dataset(uri).update({"value": "value + 1"}, where=f"id = {turn % 500}")
    else:
        merge = lance_core.dataset(uri).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        merge.execute(rows([500 + turn % 500, number * 1_000_000 + turn], 1))

turn, failed, seconds = 0, [], []
print("ready", flush=True)
end = float(input())
while time.time() < end:
    start = time.monotonic()
    try:
        step(turn)
        turn += 1
    except Exception as error:
        failed.append(f"{type(error).__name__}: {error}"[:300])
    seconds.append(time.monotonic() - start)
seconds.sort()
told = {"commits": turn, "failed": failed, "median_s": seconds[len(seconds) // 2], "slowest_s": seconds[-1]}
print(json.dumps(told))
"""


def rows(ids):
    return pa.table({"id": pa.array(ids, pa.int64()), "value": pa.array([0] * len(ids), pa.int64())})


def spawn(uri, kinds):
    """Let writers begin at once and write until the time is over."""
    commands = [[sys.executable, "-c", WRITER, uri, kind, str(number)] for number, kind in enumerate(kinds, 1)]
    writers = [subprocess.Popen(one, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for one in commands]
    for writer in writers:
        assert writer.stdout.readline() == "ready\n"
    end = time.time() + SECONDS
    for writer in writers:
        writer.stdin.write(f"{end}\n")
        writer.stdin.flush()
    return writers


def maintain(root, instance):
    """Run compaction and clean-up as a schedule would; return what they say."""
    assets = build_maintenance_assets(
        "t",
        compaction=CompactionPolicy(target_rows_per_fragment=5000),
        deletions=None,
        # What a writer reads must stay while it works; everything else goes.
        cleanup=CleanupPolicy(older_than=timedelta(seconds=30), retain_versions=1, grace_period=timedelta(seconds=30)),
    )
    result = dg.materialize(assets, instance=instance, resources={"lance": LanceResource(root=root)})
    told = {}
    for event in result.get_asset_materialization_events():
        metadata = event.step_materialization_data.materialization.metadata
        told[event.asset_key.path[-1]] = {name: value.value for name, value in metadata.items()}
    return told


def sample(started, told):
    compaction, cleanup = told["compaction"], told["cleanup"]
    return {
        "second": round(time.monotonic() - started),
        "version": cleanup["lance/version"],
        "versions": cleanup["lance/versions_kept"],
        "fragments_before": compaction.get("lance/fragments_before", compaction["lance/fragments"]),
        "fragments": compaction["lance/fragments"],
        "attempts": compaction["lance/attempts"],
        "compaction_s": round(compaction["lance/seconds"], 1),
        "cleanup_s": round(cleanup["lance/seconds"], 1),
    }


@pytest.mark.timeout(SECONDS + 300)
@pytest.mark.parametrize(
    "kinds",
    [
        ["append", "append", "update", "merge"],
        ["append", "update", "merge", "pylance append"],
    ],
    ids=["ours", "beside_pylance"],
)
def test_maintenance_beside_writers_that_never_pause(tmp_path, kinds):
    uri = str(tmp_path / "t.lance")
    lance_core.write_dataset(rows(range(FIRST_ROWS)), uri, max_rows_per_file=100)
    started, samples = time.monotonic(), []
    with dg.DagsterInstance.ephemeral() as instance:
        writers = spawn(uri, kinds)
        while not samples or any(writer.poll() is None for writer in writers):
            samples.append(sample(started, maintain(str(tmp_path), instance)))
        told = [json.loads(writer.communicate()[0]) for writer in writers]
        maintain(str(tmp_path), instance)
    report(samples, kinds, told)
    ours = [one for kind, one in zip(kinds, told, strict=True) if "pylance" not in kind]
    assert [one["failed"] for one in ours] == [[]] * len(ours)
    assert min(one["commits"] for one in told) > 0
    check_rows(uri, kinds, [one["commits"] for one in told])
    assert len(lance_core.dataset(uri).get_fragments()) <= 2 + sum(one["commits"] for one in told) // 5000


def report(samples, kinds, told):
    """Show the run, for the record."""
    lines = [str(one) for one in samples[:: max(len(samples) // SAMPLES, 1)]]
    most = {name: max(one[name] for one in samples) for name in samples[0]}
    lines.append(f"{len(samples)} rounds of maintenance, most: {most}")
    for kind, one in zip(kinds, told, strict=True):
        lines.append(f"{kind}: {one | {'failed': len(one['failed'])}} {one['failed'][:2]}")
    sys.stdout.write("\n".join(["", *lines, ""]))


def check_rows(uri, kinds, commits):
    """Compare the table with what was acknowledged: once each; of a failed pylance append nobody knows."""
    table = lance.dataset(uri).to_table()
    found = sorted(table["id"].to_pylist())
    assert len(found) == len(set(found))
    wanted = set(range(FIRST_ROWS))
    for number, count in enumerate(commits, 1):
        if kinds[number - 1] != "update":
            wanted |= set(range(number * 1_000_000, number * 1_000_000 + count))
    assert wanted == set(found)
    done = dict(zip(kinds, commits, strict=True))
    assert sum(table["value"].to_pylist()) == done["update"] + done["merge"] + min(done["merge"], 500)
    assert lance_core.dataset(uri).verify().is_ok
