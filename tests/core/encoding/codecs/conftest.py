"""What the tests of the codecs share: pages to decode from, and comparison of values."""

from itertools import pairwise

import numpy as np
import pytest

from lance_core.encoding.values import Chunks, FixedListValues, FixedValues, VariableValues


def _as_page(chunks, gap=16, shift=0):
    """The buffers of each chunk side by side in one memory, behind a header, as in a page."""
    memory = bytearray(b"\xee" * shift)
    starts = np.zeros_like(chunks.starts)
    for chunk in range(len(chunks.counts)):
        memory += b"\xfe" * gap
        for index, buffer in enumerate(chunks.buffers):
            start, size = int(chunks.starts[index, chunk]), int(chunks.sizes[index, chunk])
            starts[index, chunk] = len(memory)
            memory += buffer[start : start + size].tobytes() + b"\xfe" * (-size % 8)
    page = np.frombuffer(bytes(memory), np.uint8)
    return Chunks(buffers=(page,) * len(chunks.buffers), starts=starts, sizes=chunks.sizes, counts=chunks.counts)


def _assert_same(left, right):
    assert type(left) is type(right)
    match left:
        case FixedValues():
            assert left.data.dtype == right.data.dtype
            assert np.array_equal(left.data, right.data)
        case VariableValues():
            assert left.offsets.dtype == right.offsets.dtype
            assert np.array_equal(left.offsets, right.offsets)
            end = int(left.offsets[-1])
            assert left.data[:end].tobytes() == right.data[:end].tobytes()
        case FixedListValues():
            assert left.dimension == right.dimension
            assert (left.validity is None) == (right.validity is None)
            if left.validity is not None:
                assert np.array_equal(left.validity, right.validity)
            _assert_same(left.items, right.items)


def _strings(items, dtype=np.int32):
    offsets = np.zeros(len(items) + 1, dtype)
    offsets[1:] = np.cumsum([len(item) for item in items])
    return VariableValues(offsets, np.frombuffer(b"".join(items), np.uint8))


def _items(values):
    data, bounds = values.data.tobytes(), values.offsets.tolist()
    return [data[start:end] for start, end in pairwise(bounds)]


def _chunks(pieces, counts):
    """Chunks of one buffer each from given bytes."""
    sizes = np.array([len(piece) for piece in pieces], np.int64)
    starts = np.cumsum(sizes) - sizes
    memory = np.frombuffer(b"".join(pieces), np.uint8)
    return Chunks(buffers=(memory,), starts=starts[None], sizes=sizes[None], counts=np.array(counts, np.int64))


@pytest.fixture(scope="session")
def as_page():
    return _as_page


@pytest.fixture(scope="session")
def assert_same():
    return _assert_same


@pytest.fixture(scope="session")
def strings():
    return _strings


@pytest.fixture(scope="session")
def items():
    return _items


@pytest.fixture(scope="session")
def chunks_of():
    return _chunks
