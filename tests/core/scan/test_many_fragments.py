"""Tables of more fragments than a process may open files."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import lance_core
from lance_core.store.local import LocalStore

pytestmark = pytest.mark.slow

FRAGMENTS = 240

PROGRAM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (MOST, MOST))
import pyarrow as pa
import lance_core

uri, rows = sys.argv[1], FRAGMENTS * 4
dataset = lance_core.dataset(uri)
table = dataset.to_table()
batches = list(dataset.to_batches())
assert table.num_rows == sum(batch.num_rows for batch in batches) == rows
streams = [iter(fragment.to_batches(batch_size=1)) for fragment in dataset.get_fragments()]
assert [next(stream).num_rows for stream in streams] == [1] * FRAGMENTS
assert dataset.take(list(range(0, rows, 3)))["id"].to_pylist() == list(range(0, rows, 3))
assert dataset.to_table(filter="id % 4 = 1").num_rows == FRAGMENTS
assert dataset.to_table(filter="id % 40 = 1", columns=["text"]).num_rows == FRAGMENTS // 10
assert dataset.count_rows("text = 'b'") == rows // 2
assert dataset.verify().is_ok
dataset.create_scalar_index("id", "ZONEMAP")
dataset.update({"text": "'c'"}, where="id % 8 = 5")
merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
merge.execute(pa.table({"id": [*range(0, rows, 8), rows], "text": ["m"] * (FRAGMENTS // 2 + 1)}))
dataset.delete("id % 16 = 1")
dataset.optimize.compact_files(num_threads=2)
table = dataset.to_table()
left = sorted([number for number in range(rows) if number % 16 != 1] + [rows])
assert sorted(table["id"].to_pylist()) == left
assert dataset.count_rows("text = 'm'") == FRAGMENTS // 2 + 1
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of descriptors as Linux has them")
def test_descriptors_are_bounded_whatever_the_number_of_fragments(tmp_path):
    uri, rows = str(tmp_path / "t"), FRAGMENTS * 4
    table = pa.table({"id": range(rows), "text": ["a", "b"] * (rows // 2)})
    lance_core.write_dataset(table, uri, max_rows_per_file=4)
    program = PROGRAM.replace("FRAGMENTS", str(FRAGMENTS)).replace("MOST", "180")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [sys.executable, "-c", program, uri], check=False, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_idle_descriptors_make_room_when_the_process_may_have_no_more(tmp_path):
    resource = pytest.importorskip("resource")
    paths = [tmp_path / str(number) for number in range(100)]
    for path in paths:
        path.write_bytes(b"abc")
    store = LocalStore(str(tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(list(Path("/proc/self/fd").iterdir())) + 20, hard))
    try:
        readers = [store.reader(path.name) for path in paths]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [reader.read_ranges([(1, 3)])[0].to_pybytes() for reader in readers] == [b"bc"] * len(paths)
