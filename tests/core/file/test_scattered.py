"""Scattered ranges of a file in one memory, whatever kind of store the file is in."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lance_core
from lance_core.encoding.plans import ByteRanges
from lance_core.errors import CorruptDataError
from lance_core.file.scattered import ScatteredRead, copied_ranges, in_order
from lance_core.file.source import FileBytes
from lance_core.store.local import LocalReader
from lance_core.store.range_reader import Deferred, RangeReader


class Plain:
    """A file that can only be read."""

    def __init__(self, data):
        self._data = data

    @property
    def size(self):
        return len(self._data)

    def read_ranges(self, ranges):
        return [pa.py_buffer(self._data[start:end]) for start, end in ranges]


def far(data):
    def fetch(ranges):
        return Deferred(lambda: [data[start:end] for start, end in ranges])

    return RangeReader(fetch, path="far", size=len(data), tail=data[-5000:])


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    root = tmp_path_factory.mktemp("scattered") / "t"
    values = np.random.default_rng(1).integers(0, 1 << 62, 60_000)
    dataset = lance_core.write_dataset(pa.table({"n": values}), root)
    (fragment,) = dataset.get_fragments()
    return root / "data" / fragment.metadata.files[0].path


RANGES = st.lists(st.tuples(st.integers(0, 470_000), st.integers(1, 9000)), min_size=1, max_size=12)


def read(file, ranges):
    starts, sizes = np.array(ranges).T
    asked = ByteRanges(starts, np.minimum(starts + sizes, 475_000))
    found = ScatteredRead(copied_ranges([file.copied()], *in_order([asked]))).result()
    places = found.in_memory(asked.starts)
    return [found.memory[at : at + size].tobytes() for at, size in zip(places, asked.ends - asked.starts, strict=True)]


@settings(max_examples=30)
@given(st.lists(RANGES, min_size=1, max_size=4), st.sampled_from([Plain, far, None]))
def test_ranges_read_again_and_again_are_those_of_the_file(path, reads, kind):
    data = path.read_bytes()
    file = FileBytes(LocalReader(str(path)) if kind is None else kind(data))
    assert file.checks is not None
    for ranges in reads:
        assert read(file, ranges) == [data[start : min(start + size, 475_000)] for start, size in ranges]


@pytest.mark.parametrize("kind", [Plain, far])
def test_what_was_checked_before_hides_no_damage_beside_it(path, kind):
    data = bytearray(path.read_bytes())
    file = FileBytes(kind(data))
    read(file, [(8192, 4096)])
    data[12_300] ^= 1
    assert read(file, [(9000, 100)]) == [bytes(data[9000:9100])]
    with pytest.raises(CorruptDataError, match="damaged: bytes 12288 and on"):
        read(file, [(9000, 100), (12_400, 10)])
