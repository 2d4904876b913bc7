"""What is copied of several files for scattered ranges is found for all of them at one go."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_core.errors import CorruptDataError
from lance_core.file.scattered import CopiedFile, ScatteredRead, copied_ranges

SPAN, SIZE = 1 << 20, 9_000


class File:
    """A file in memory, of which what is there can be copied."""

    def __init__(self, data):
        self.data = data
        self.copied = []

    size = SIZE

    def copy_present(self, into, ranges):
        self.copied += ranges
        into[:] = b"".join(self.data[start:end] for start, end in ranges)
        return len(ranges)


class Plain:
    """A file that can only be read."""

    size = SIZE

    def __init__(self, data):
        self.data = data

    def read_ranges(self, ranges):
        return [pa.py_buffer(self.data[start:end]) for start, end in ranges]


DATA = [np.random.default_rng(seed).bytes(SIZE) for seed in range(4)]
RANGES = st.lists(st.tuples(st.integers(0, SIZE - 1), st.integers(0, 3_000)), max_size=5)


def told(ranges_of_files):
    """Return ranges of several files as positions of all."""
    pairs = sorted(
        (at * SPAN + start, at * SPAN + min(start + size, SIZE))
        for at, ranges in enumerate(ranges_of_files)
        for start, size in ranges
    )
    return np.array(pairs, np.int64).reshape(-1, 2).T


@given(ranges=st.lists(RANGES, min_size=1, max_size=4), kind=st.sampled_from([File, Plain]))
def test_ranges_of_files_are_those_of_each(ranges, kind):
    starts, ends = told(ranges)
    files = [kind(data) for data in DATA[: len(ranges)]]
    copies = copied_ranges([CopiedFile(file, None) for file in files], starts, ends, file_span=SPAN)
    assert len(copies) == len(files)
    if not len(starts):
        return
    found = ScatteredRead(copies, file_span=SPAN).result()
    for start, end, place in zip(starts.tolist(), ends.tolist(), found.in_memory(starts).tolist(), strict=True):
        at, low = divmod(start, SPAN)
        assert found.memory[place : place + end - start].tobytes() == DATA[at][low : low + end - start]


def test_ranges_that_lie_close_are_copied_together_but_not_those_of_two_files():
    files = [File(data) for data in DATA[:3]]
    starts, ends = told([[(10, 20), (100, 50), (8_000, 1_000)], [], [(0, 5)]])
    copies = copied_ranges([CopiedFile(file, None) for file in files], starts, ends, file_span=SPAN)
    ScatteredRead(copies, file_span=SPAN).result()
    assert [file.copied for file in files] == [[(10, 150), (8_000, 9_000)], [], [(0, 5)]]
    assert [copy.num_bytes for copy in copies] == [1_140, 0, 5]


@pytest.mark.parametrize("bounds", [(SIZE - 5, SIZE + 1), (SPAN + 7, SPAN + 6), (-1, 4)])
def test_ranges_beyond_a_file_are_refused(bounds):
    starts, ends = np.array([bounds]).T
    files = [CopiedFile(File(data), None) for data in DATA]
    with pytest.raises(CorruptDataError, match="beyond the end"):
        copied_ranges(files, starts, ends, file_span=SPAN)
