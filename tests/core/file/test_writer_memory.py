"""How much a writer keeps in memory, and how large it says its file is."""

import io
import tracemalloc
from itertools import chain

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.file.write.writer import DataFileWriter
from lance_core.format.schema import Schema
from lance_core.store.local import LocalStore

pytestmark = pytest.mark.slow

VERSIONS = ["2.0", "2.1", "2.2"]


def batches_from_a_pipe(batch, count):
    """The batch so many times, each in one buffer of its own, as Spark's workers get them."""
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, batch.schema) as writer:
        for _ in range(count):
            writer.write_batch(batch)
    stream.seek(0)
    reader = pa.ipc.open_stream(pa.PythonFile(stream, mode="r"))
    yield from reader


@pytest.mark.parametrize("version", VERSIONS)
def test_narrow_columns_do_not_keep_the_wide_ones_in_memory(version, tmp_path):
    rng = np.random.default_rng(1)
    batch = pa.record_batch({"id": pa.array(range(4)), "image": [rng.bytes(1 << 20) for _ in range(4)]})
    writer = DataFileWriter(
        LocalStore(str(tmp_path)).writer("data/a.lance"), Schema.from_arrow(batch.schema), version=version
    )
    batches = batches_from_a_pipe(batch, 20)
    first = next(batches)  # the stream itself is made here
    tracemalloc.start()
    try:
        for received in chain((first,), batches):
            writer.write(received)
        del received
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 16 << 20  # all batches together have 80 MiB
    assert writer.finish().num_rows == 80


@pytest.mark.parametrize("version", VERSIONS)
def test_columns_that_are_nearly_full_are_not_copied_because_another_one_is(version, tmp_path):
    """What they keep in memory beside themselves is one column of nine."""
    numbers = {f"number {i}": np.random.default_rng(i).integers(0, 1 << 40, 1000) for i in range(8)}
    batch = pa.record_batch({**numbers, "name": [f"name {i:05}" for i in range(1000)]})
    sink = LocalStore(str(tmp_path)).writer("data/a.lance")
    writer = DataFileWriter(sink, Schema.from_arrow(batch.schema), version=version, page_bytes=1 << 16)
    batches = list(batches_from_a_pipe(batch, 4))
    before = pa.total_allocated_bytes()
    for received in batches:
        writer.write(received)
    assert writer.bytes_written  # of names only: four batches have 56,000 bytes of them
    assert pa.total_allocated_bytes() - before < batch["number 0"].nbytes
    assert writer.finish().num_rows == 4000


@pytest.mark.parametrize("version", VERSIONS)
def test_copied_columns_are_written_as_they_were(version, tmp_path):
    rng = np.random.default_rng(2)
    batch = pa.record_batch(
        {
            "id": pa.array(rng.integers(0, 1 << 40, 500)),
            "name": pa.array([None if i % 7 == 0 else f"name-{i}" for i in range(500)]),
            "tags": pa.array([[f"tag-{j}" for j in range(i % 4)] for i in range(500)]),
            "text": [rng.bytes(20_000) for _ in range(500)],
        }
    )
    batches = list(batches_from_a_pipe(batch, 6))
    lance_core.write_dataset(
        pa.RecordBatchReader.from_batches(batch.schema, batches), tmp_path / "t", data_storage_version=version
    )
    assert lance_core.dataset(tmp_path / "t").to_table() == pa.Table.from_batches(batches)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("limit", [1 << 16, 1 << 18])
def test_files_have_about_as_many_encoded_bytes_as_the_limit_says(tmp_path, version, limit):
    rng = np.random.default_rng(3)
    rows = pa.table({f"c{i}": rng.integers(0, 200, 300_000) for i in range(4)})  # packs to about an eighth
    dataset = lance_core.write_dataset(
        rows.to_batches(max_chunksize=2_000),
        tmp_path / "t",
        schema=rows.schema,
        max_bytes_per_file=limit,
        data_storage_version=version,
    )
    sizes = [fragment.metadata.files[0].file_size_bytes for fragment in dataset.get_fragments()]
    batch_bytes = 2_000 * 4 * 8
    assert len(sizes) > 1
    assert all(0.7 * limit <= size <= 1.3 * limit + batch_bytes for size in sizes[:-1])
    assert dataset.to_table() == rows
