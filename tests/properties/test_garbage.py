"""Files with bytes changed at random: an error of ours or arrays that hold together, in bounded memory; nothing else.

LANCE_MUTATIONS says how often per version.
"""

import os
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lance_core.errors import LanceError
from lance_core.file.reader import DataFileReader

NUM_MUTATIONS = int(os.environ.get("LANCE_MUTATIONS", "2000"))
FOLDER = Path(__file__).parent.parent / "golden"
VERSIONS = ("0.1", "2.0", "2.1", "2.2")
NUMBERS = [0, 1, 2, 7, 8, 127, 128, 255, 256, 4095, 65535, 1 << 20, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, -1]
VALUE_ERRORS = ("Invalid UTF8", "does not fit in precision", "whole number of days", "within the acceptable range")
MAX_BYTES = 256 << 20
"""What reading a file of less than a megabyte may allocate at worst."""


class Memory:
    """A file in memory that refuses to be read outside."""

    def __init__(self, data):
        self._buffer = pa.py_buffer(data)
        self.size = len(data)

    def read_ranges(self, ranges):
        assert all(0 <= start <= end <= self.size for start, end in ranges), "read outside the file"
        return [self._buffer.slice(start, end - start) for start, end in ranges]

    def close(self):
        pass


class Original:
    """A good file, and where its parts lie."""

    def __init__(self, path):
        self.data = path.read_bytes()
        reader = DataFileReader(Memory(self.data), path=path.name)
        outline = reader.outline()
        tops = {name.name: name for name in reader.schema.fields}
        self.metadata_start = outline.num_data_bytes
        self.places = {}
        for column in outline.columns:
            name = next(top for top in tops if column.path == top or column.path.startswith(f"{top}."))
            buffers = [one for page in column.pages for one in page.buffers if one[1]]
            self.places.setdefault(name, []).extend(buffers)


def mutate(data, at, rng):
    kind = rng.randrange(6)
    if kind == 0:
        data[at] ^= 1 << rng.randrange(8)
    elif kind == 1:
        width = rng.choice([1, 2, 4, 8])
        data[at : at + width] = (rng.choice(NUMBERS) & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    elif kind == 2:
        data[at : at + rng.randrange(1, 16)] = rng.randbytes(rng.randrange(1, 16))
    elif kind == 3:
        del data[at : at + rng.randrange(1, 64)]
    elif kind == 4:
        source = rng.randrange(len(data))
        data[at : at + 16] = data[source : source + 16]
    else:
        del data[max(at, 1) :]


def check(batch):
    """Buffers and offsets must hold together; changed characters and digits cannot be seen without checksums."""
    try:
        batch.validate(full=True)
    except pa.ArrowInvalid as error:
        if not any(text in str(error) for text in VALUE_ERRORS):
            raise


def read(data, names, num_rows):
    """Everything that may be asked of some columns of a file."""
    reader = DataFileReader(Memory(data), path="x.lance")
    reader.outline()
    known = [name for name in names if name in reader.schema.names]
    schema = reader.schema.select(known)
    end = min(reader.num_rows, 4 * num_rows)
    rows = 0
    for batch in reader.scan(schema, reader.column_numbers, start=0, end=end, batch_size=500):
        check(batch)
        rows += batch.num_rows
    assert rows == end
    if end:
        taken = reader.take(schema, reader.column_numbers, np.array([0, end // 2, end - 1]))
        check(taken)
        assert taken.num_rows == 3


@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", VERSIONS)
def test_garbage(version):
    rng = random.Random(version)
    originals = [Original(path) for path in sorted(FOLDER.glob(f"*/{version}/*.lance"))]
    outcomes = {"read": 0, "refused": 0, "nameless": 0}
    pool = pa.default_memory_pool()
    most = pool.max_memory()  # of other tests in this process
    for number in range(NUM_MUTATIONS):
        original = rng.choice(originals)
        names = rng.sample(sorted(original.places), min(2, len(original.places)))
        buffers = [one for name in names for one in original.places[name]]
        data = bytearray(original.data)
        for _ in range(rng.choice([1, 1, 1, 3])):
            if buffers and rng.random() < 0.6:
                start, size = rng.choice(buffers)
                at = min(start + rng.randrange(size), len(data) - 1)
            else:
                at = min(rng.randrange(original.metadata_start, len(original.data)), len(data) - 1)
            mutate(data, at, rng)
            if not data:
                break
        before = pool.bytes_allocated()
        try:
            read(bytes(data), names, 1100)
            outcomes["read"] += 1
        except LanceError as error:
            outcomes["refused" if error.path else "nameless"] += 1
        except BaseException as error:
            error.add_note(f"mutation {number} of version {version}, columns {names}")
            raise
        assert pool.max_memory() <= max(most, before + MAX_BYTES), f"mutation {number}, version {version}: {names}"
    assert not outcomes["nameless"], "an error must name the file"
    assert outcomes["refused"] > NUM_MUTATIONS / 10
    assert outcomes["read"] > NUM_MUTATIONS / 50
