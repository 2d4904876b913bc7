from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from lance_core.errors import CorruptDataError
from lance_core.format.file.checksums import MAGIC
from lance_core.format.table.deletion import bitmap_from_numpy, bitmap_to_numpy, decode_deletions, encode_deletions
from lance_core.format.table.fragment import DeletionFile, DeletionFileType

ARROW = DeletionFile(file_type=DeletionFileType.ARROW_ARRAY, read_version=1, id=1, num_deleted_rows=3)
ROWS = pa.field("row_id", pa.uint32(), nullable=False)


def ipc(values, field=ROWS, batches=1, compression=None):
    sink = pa.BufferOutputStream()
    schema = pa.schema([field])
    with pa.ipc.new_file(sink, schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        for _ in range(batches):
            writer.write_batch(pa.record_batch([pa.array(values, field.type)], schema=schema))
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("count", "expected"), [(1, "ARROW_ARRAY"), (4999, "ARROW_ARRAY"), (5000, "BITMAP"), (70000, "BITMAP")]
)
def test_round_trip(count, expected):
    rows = BitMap(range(7, 7 + 3 * count, 3))
    file_type, data = encode_deletions(rows)
    assert file_type.name == expected
    file = replace(ARROW, file_type=file_type, num_deleted_rows=count)
    assert decode_deletions(data, file, physical_rows=300_000) == rows


def test_arrow_file_is_what_readers_expect():
    _, data = encode_deletions(BitMap([5, 1]))
    reader = pa.ipc.open_file(pa.py_buffer(data))
    assert reader.schema.equals(pa.schema([ROWS]), check_metadata=True)
    assert reader.num_record_batches == 1
    assert reader.get_batch(0).column(0).to_pylist() == [1, 5]


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_compressed_files_are_read(compression):
    file = replace(ARROW, num_deleted_rows=1000)
    data = ipc(range(1000), compression=compression)
    assert decode_deletions(data, file, physical_rows=1000) == BitMap(range(1000))


def test_order_is_free_and_run_containers_are_read():
    assert decode_deletions(ipc([9, 2, 4]), ARROW, physical_rows=10) == BitMap([2, 4, 9])
    runs = BitMap(range(1000))
    runs.run_optimize()
    file = replace(ARROW, file_type=DeletionFileType.BITMAP, num_deleted_rows=1000)
    assert decode_deletions(runs.serialize(), file, physical_rows=2000) == BitMap(range(1000))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"garbage",
        ipc([1, 2, 3], pa.field("row_id", pa.int32(), nullable=False)),
        ipc([1, 2, 3], pa.field("row_id", pa.uint32())),
        ipc([1, 2, 3], pa.field("rows", pa.uint32(), nullable=False)),
        ipc([1, 2, 3], batches=2),
        ipc([1, 2]),
        ipc([1, 2, 2]),
        ipc([1, 2, 10]),
    ],
    ids=["empty", "garbage", "int32", "nullable", "name", "batches", "few", "twice", "outside"],
)
def test_anything_else_is_corrupt(data):
    with pytest.raises(CorruptDataError):
        decode_deletions(data, ARROW, physical_rows=10)


def test_a_batch_where_the_schema_should_be():
    """Arrow takes any message for a schema, and reads outside of memory."""
    data = encode_deletions(BitMap([1, 5, 9]))[1].replace(MAGIC, b"without!")
    schema, batch = (at for at in range(0, len(data), 8) if data[at : at + 4] == b"\xff\xff\xff\xff" and data[at + 4])
    with pytest.raises(CorruptDataError, match="no schema"):
        decode_deletions(data[:schema] + data[batch:], replace(ARROW, num_deleted_rows=3), physical_rows=10)


def test_damage_raises_our_error_only():
    rng = np.random.default_rng(5)
    for rows in (BitMap([1, 5, 9]), BitMap(range(0, 20_000, 3))):
        file_type, data = encode_deletions(rows)
        file = replace(ARROW, file_type=file_type, num_deleted_rows=len(rows))
        refused = 0
        pa.default_memory_pool().release_unused()
        most = pa.default_memory_pool().max_memory()
        for _ in range(400):
            damaged = bytearray(data)
            damaged[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
            cut = len(data) if rng.random() < 0.7 else int(rng.integers(len(data)))
            try:
                decode_deletions(bytes(damaged[:cut]), file, physical_rows=20_000)
            except CorruptDataError:
                refused += 1
        assert refused > 50
        assert pa.default_memory_pool().max_memory() < most + (64 << 20)


def test_arrays_and_bitmaps():
    offsets = np.array([0, 1 << 31, (1 << 32) - 1], np.int64)
    assert bitmap_to_numpy(bitmap_from_numpy(offsets)).tolist() == offsets.tolist()
    assert len(bitmap_from_numpy(np.empty(0, np.int64))) == 0
