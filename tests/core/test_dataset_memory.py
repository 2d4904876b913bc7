"""Large tables go through small memory. Each case runs in a process of its own, whose Arrow memory is counted."""

import subprocess
import sys

import pytest

MIB = 1 << 20
SCRIPT = """
import sys
import numpy as np
import pyarrow as pa
import lance_core

place, action = sys.argv[1:]
random = np.random.default_rng(0)
width = 1 << 16


def batches():
    for _ in range(96):  # of one MiB
        yield pa.record_batch({"a": random.integers(0, 1 << 62, width), "b": random.random(width)})


pool = pa.default_memory_pool()
if action == "write":
    schema = pa.schema({"a": pa.int64(), "b": pa.float64()})
    lance_core.write_dataset(batches(), place, schema, max_rows_per_file=width * 20)
dataset = lance_core.dataset(place)
if action == "scan":
    assert sum(batch.num_rows for batch in dataset.to_batches()) == 96 * width
if action == "filter":
    assert 0 < sum(batch.num_rows for batch in dataset.to_batches(filter="b < 0.9")) < 96 * width
if action == "compact":
    dataset.optimize.compact_files(target_rows_per_fragment=1 << 30, num_threads=1)
if action == "delete":
    dataset.delete("b < 0.5")
print(pool.max_memory())
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("memory") / "t")
    return path, run(path, "write")


def run(path, action):
    command = [sys.executable, "-c", SCRIPT, path, action]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_writing_a_stream(place):
    assert place[1] < 40 * MIB


@pytest.mark.parametrize("action", ["scan", "filter", "delete", "compact"])
def test_reading_and_rewriting(place, action):
    assert run(place[0], action) < 80 * MIB
