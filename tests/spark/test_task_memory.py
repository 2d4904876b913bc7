"""Memory of tasks: what a write needs at most, page faults, and what the garbage collector looks at."""

import platform
import subprocess
import sys

import pyarrow as pa
import pytest

import lance_core

# A process that takes and frees 16 MiB again and again, in blocks as large as a batch, and prints its page faults.
PROGRAM = """
import resource, sys
from lance_core.spark.common.task_memory import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()
for number in range(6):
    if number == 1:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [bytearray(1 << 20) for _ in range(16)]
    del blocks
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how):
    answer = subprocess.run([sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True)
    return int(answer.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have rules of their own")
def test_freed_memory_is_used_again():
    assert faults("keep") < 200 < faults("give back")


# A process that plans or reads as Spark's do, and prints how many objects the garbage collector looks at, before and
# after.
READING = """
import gc, sys
from lance_core.spark.source import LanceDataSource

def objects():
    gc.collect()
    return len(gc.get_objects())

before = objects()
for _ in range(2):  # modules that the first one loads late are garbage for it only
    source = LanceDataSource({"path": sys.argv[1], "filter": "id > 0 AND id < 7"})
    if sys.argv[2] == "schema":
        source.schema()
    else:
        reader = source.reader(source.schema())
        if sys.argv[2] == "read":
            (part,) = reader.partitions()
            assert sum(batch.num_rows for batch in reader.read(part)) == 3
print(before, objects())
"""


@pytest.mark.parametrize("what", ["schema", "reader", "read"])
def test_modules_are_no_garbage(tmp_path, what):
    """Spark collects garbage after each plan and each task."""
    lance_core.write_dataset(pa.table({"id": [1, 2, 3]}), tmp_path / "t")
    arguments = [sys.executable, "-c", READING, str(tmp_path / "t"), what]
    answer = subprocess.run(arguments, capture_output=True, text=True, check=True)
    before, after = map(int, answer.stdout.split())
    assert after < before / 16


# A task that writes images in batches as Spark makes them, after one that writes a row; prints by how many MiB the
# peak of the process rises, and the commit's rows.
WRITING = """
import os, resource, sys
import numpy as np
import pyarrow as pa
from pyspark.sql.types import BinaryType, LongType, StructType
from lance_core.spark.writing.rows_writer import rows_writer

def batch(images):
    offsets = pa.py_buffer(np.arange(images + 1, dtype=np.int32) << 20)
    image = pa.Array.from_buffers(pa.binary(), images, [None, offsets, pa.py_buffer(os.urandom(images << 20))])
    ids = np.arange(images)
    return pa.record_batch([pa.array(ids), pa.array(ids * 2), image], names=["id", "k", "image"])

def peak(batches):
    schema = StructType().add("id", LongType()).add("k", LongType()).add("image", BinaryType())
    message = rows_writer({"path": sys.argv[1]}, schema, overwrite=True).write(batches)
    rows = sum(fragment.physical_rows for fragment in message.part.files)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024, rows

base, _ = peak(iter([batch(1)]))
most, rows = peak(batch(63) for _ in range(6))
print(most - base, rows)
"""


@pytest.mark.slow
def test_a_task_that_writes_images_has_its_memory_bounded(tmp_path):
    answer = subprocess.run(
        [sys.executable, "-c", WRITING, str(tmp_path / "t")], capture_output=True, text=True, check=True
    )
    megabytes, rows = map(int, answer.stdout.split())
    assert rows == 6 * 63
    assert megabytes <= 256 < rows
