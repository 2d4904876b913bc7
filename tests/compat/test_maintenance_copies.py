"""Compaction copies pages or puts them together: pylance reads what became of its files; memory has a bound."""

import json
import subprocess
import sys

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_core

ENGINES = {"lance_core": lance_core, "pylance": lance}


def rows(number):
    rng = np.random.default_rng(number)
    words = pa.array(["north", "south", None, "west"]).take(pa.array(rng.integers(0, 4, number)))
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(number * 32, np.float32)), 32)
    return pa.table(
        {
            "id": pa.array(range(number), pa.int64()),
            "amount": pa.array(np.round(rng.gamma(2, 3, number), 2), mask=rng.random(number) < 0.1),
            "zone": pa.array(rng.integers(0, 265, number), pa.int32()),
            "flag": pa.array(rng.random(number) < 0.5),
            "same": pa.array([1.5] * number),
            "word": words,
            "text": pa.array([f"line {value:x}" for value in rng.integers(0, 1 << 60, number)]),
            "vector": vectors,
        }
    )


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("writer", ENGINES)
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("mode", ["force_binary_copy", "reencode"])
def test_pylance_reads_what_became_of_pages(tmp_path, writer, version, stable, mode):
    table = rows(12_000)
    options = {"data_storage_version": version, "enable_stable_row_ids": stable}
    ENGINES[writer].write_dataset(table, str(tmp_path), max_rows_per_file=2_000, **options)
    lance_core.dataset(tmp_path).optimize.compact_files(compaction_mode=mode)
    theirs = lance.dataset(str(tmp_path))
    theirs.validate()
    assert len(theirs.get_fragments()) == 1
    assert theirs.to_table() == table
    assert theirs.to_table(filter="zone = 7 and amount > 3") == table.filter(
        (pa.compute.field("zone") == 7) & (pa.compute.field("amount") > 3)
    )
    places = [11_999, 3, 2_000, 1_999]
    assert theirs.take(places) == table.take(places)
    theirs.delete("id % 3 = 0")
    lance_core.dataset(tmp_path).optimize.materialize_deletions()
    assert lance.dataset(str(tmp_path)).to_table()["id"].to_pylist() == [i for i in range(12_000) if i % 3]


CHILD = """
import json, sys
from pathlib import Path
import lance_core
def status(key):
    return next(int(l.split()[1]) for l in Path("/proc/self/status").read_text().splitlines() if l.startswith(key))
dataset = lance_core.dataset(sys.argv[1])
dataset.head(1)
before = most = status("RssAnon")
import threading, time
stop = threading.Event()
def watch():
    global most
    while not stop.wait(0.002):
        most = max(most, status("RssAnon"))
thread = threading.Thread(target=watch); thread.start()
dataset.optimize.compact_files(**json.loads(sys.argv[2]))
stop.set(); thread.join()
print(json.dumps((most - before) * 1024))
"""


@pytest.mark.parametrize("mode", ["reencode", "force_binary_copy"])
def test_memory_does_not_grow_with_the_fragments(tmp_path, mode):
    columns, number = 32, 250_000
    rng = np.random.default_rng(0)
    part = pa.table({f"c{i}": rng.random(number) for i in range(columns)})  # 64 MB
    for _ in range(3):
        lance_core.write_dataset(part, tmp_path, mode="append")
    options = {"compaction_mode": mode, "max_memory_bytes": 1 << 27, "target_rows_per_fragment": 2_000_000}
    command = [sys.executable, "-c", CHILD, str(tmp_path), json.dumps(options)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert len(lance_core.dataset(tmp_path).get_fragments()) == 1
    assert json.loads(answer) < 1 << 27
