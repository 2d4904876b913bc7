"""Files with bytes changed at random: an error of ours or arrays that hold together, in bounded memory; nothing else.

LANCE_MUTATIONS says how often per version. A part of them is guided: what reached new lines of the readers is changed
further: with LANCE_TESTS=deep for ten minutes in all (LANCE_FUZZ_S seconds for each version), and from a new seed.
"""

import os
import random
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lance_core.errors import LanceError
from lance_core.file.read.reader import DataFileReader
from lance_core.testing.garbage import LineTrace, mutate

NUM_MUTATIONS = int(os.environ.get("LANCE_MUTATIONS", "2000"))
FUZZ_S = float(os.environ.get("LANCE_FUZZ_S", "150" if os.environ.get("LANCE_TESTS") == "deep" else "0"))
FOLDER = Path(__file__).parent.parent / "golden"
VERSIONS = ("0.1", "2.0", "2.1", "2.2")
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
        layout = reader.file_layout()
        tops = {name.name: name for name in reader.schema.fields}
        self.metadata_start = layout.num_data_bytes
        self.buffers = {}
        for column in layout.columns:
            name = next(top for top in tops if column.path == top or column.path.startswith(f"{top}."))
            buffers = [one for page in column.pages for one in page.buffers if one[1]]
            self.buffers.setdefault(name, []).extend(buffers)


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
    reader.file_layout()
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


def originals_of(version):
    return [Original(path) for path in sorted(FOLDER.glob(f"*/{version}/*.lance"))]


def damaged(data, places, names, rng):
    """A copy with some bytes changed, most of them in what those columns need."""
    data = bytearray(data)
    buffers = [one for name in names for one in places.buffers[name]]
    for _ in range(rng.choice([1, 1, 1, 3])):
        if buffers and rng.random() < 0.6:
            start, size = rng.choice(buffers)
            at = start + rng.randrange(size)
        else:
            at = rng.randrange(places.metadata_start, len(places.data))
        if data:
            mutate(data, min(at, len(data) - 1), rng)
    return bytes(data)


class Judge:
    """Reads files, and counts how that ends."""

    def __init__(self):
        self.pool = pa.default_memory_pool()
        self.most = self.pool.max_memory()  # of other tests in this process
        self.outcomes = {"read": 0, "refused": 0, "nameless": 0}

    def read(self, data, names, note):
        before = self.pool.bytes_allocated()
        try:
            read(data, names, 1100)
            self.outcomes["read"] += 1
        except LanceError as error:
            self.outcomes["refused" if error.path else "nameless"] += 1
        except BaseException as error:
            error.add_note(f"{note}, columns {names}")
            raise
        assert self.pool.max_memory() <= max(self.most, before + MAX_BYTES), f"{note}: {names}"
        assert not self.outcomes["nameless"], "an error must name the file"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("version", VERSIONS)
def test_garbage(version):
    rng, judge = random.Random(version), Judge()
    originals = originals_of(version)
    for number in range(NUM_MUTATIONS):
        original = rng.choice(originals)
        names = rng.sample(sorted(original.buffers), min(2, len(original.buffers)))
        judge.read(damaged(original.data, original, names, rng), names, f"mutation {number} of version {version}")
    assert judge.outcomes["refused"] > NUM_MUTATIONS / 10
    assert judge.outcomes["read"] > NUM_MUTATIONS / 50


@pytest.mark.timeout(0 if FUZZ_S else 300)
@pytest.mark.parametrize("version", VERSIONS)
def test_garbage_that_is_guided_by_what_it_reaches(version):
    seed = random.randrange(1 << 32) if FUZZ_S else 1
    rng, judge, known = random.Random(seed), Judge(), set()
    columns = [(original, name) for original in originals_of(version) for name in original.buffers]
    corpus = []
    for original, name in columns if FUZZ_S else rng.sample(columns, min(len(columns), 25)):
        with (steps := LineTrace()):
            judge.read(original.data, [name], "original")
        known |= steps.taken
        corpus.append((original.data, original, [name]))
    of_originals, num_originals, end, number = len(known), len(corpus), time.process_time() + FUZZ_S, 0
    while number < 100 or time.process_time() < end:
        number += 1
        data, places, names = rng.choice(corpus[num_originals:] or corpus) if rng.random() < 0.5 else rng.choice(corpus)
        changed = damaged(data, places, names, rng)
        with (steps := LineTrace()):
            judge.read(changed, names, f"file {number} of seed {seed}, version {version}")
        if not steps.taken <= known:
            known |= steps.taken
            corpus.append((changed, places, names))
    found = len(corpus) - num_originals
    print(f"{version}: {number} files, {of_originals} steps and {len(known)}, {found} kept; {judge.outcomes}")  # noqa: T201
    assert len(known) > of_originals
