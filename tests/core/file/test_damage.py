"""Damaged files lead to our errors, never to others, and never to a crash; checksums, which see it first, are off."""

import numpy as np
import pyarrow as pa
import pytest

from lance_core.errors import CorruptDataError, LanceError, UnsupportedError
from lance_core.file.read.reader import DataFileReader

RNG = np.random.default_rng(11)
N = 600


class Bytes:
    """A file in memory."""

    def __init__(self, data):
        self._buffer = pa.py_buffer(data)

    @property
    def size(self):
        return self._buffer.size

    def read_ranges(self, ranges):
        return [self._buffer.slice(start, end - start) for start, end in ranges]

    def close(self):
        pass


def _read(data):
    reader = DataFileReader(Bytes(data), path="x.lance")
    columns = {leaf.id: index for index, leaf in enumerate(reader.schema.leaves())}
    num_rows = min(reader.num_rows, 10 * N)
    for batch in reader.scan(reader.schema, columns, start=0, end=num_rows, batch_size=250):
        batch.validate(full=True)
    reader.take(reader.schema, columns, np.array([0, 3, 500])).validate(full=True)


@pytest.fixture(autouse=True)
def _no_checksums(monkeypatch):
    monkeypatch.setenv("LANCE_CORE_CHECKSUMS", "off")


@pytest.fixture
def content(data_file):
    lists = [None if i % 7 == 0 else list(range(i % 4)) for i in range(N)]
    table = pa.table(
        {
            "packed": pa.array(RNG.integers(0, 100, N)),
            "flat": pa.array(RNG.random(N)),
            "runs": pa.array(np.arange(N) // 100),
            "nulls": pa.array([None if i % 3 else i for i in range(N)]),
            "bytes": pa.array([b"%d" % i * (i % 5) for i in range(N)]),
            "words": pa.array([b"kind %d" % (i % 4) for i in range(N)]),
            "large": pa.array([None if i % 9 == 0 else b"%d" % i * 100 for i in range(N)]),
            "lists": pa.array(lists),
            "deep": pa.array([{"l": None if one is None else [[one]]} for one in lists]),
            "large_lists": pa.array([None if one is None else [b"z" * 300] * len(one) for one in lists]),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(RNG.random(N * 70, np.float32)), 70),
            "same": pa.array([b"same"] * N),
            "nothing": pa.nulls(N, pa.int32()),
        }
    )
    data_file.write(table)
    return data_file.bytes()


def test_whole_file_is_fine(content):
    _read(content)


def test_truncated_files(content):
    for size in [*range(0, 200, 7), *RNG.integers(0, len(content), 100).tolist()]:
        with pytest.raises(CorruptDataError):
            _read(content[:size])


def _is_refused(data):
    """True if reading fails as it should; a changed value goes unnoticed, there are no checksums."""
    try:
        _read(data)
    except LanceError as error:
        return error.path == "x.lance"
    return False


def _flip(content, position):
    damaged = bytearray(content)
    damaged[position // 8] ^= 1 << position % 8
    return bytes(damaged)


def test_flipped_bits_anywhere(content):
    positions = RNG.integers(0, len(content) * 8, 200).tolist()
    assert any(_is_refused(_flip(content, position)) for position in positions)


@pytest.mark.slow
def test_flipped_bits_in_metadata(content):
    start = int.from_bytes(content[-40:-32], "little")
    positions = RNG.integers((start - 1500) * 8, len(content) * 8, 200).tolist()
    assert sum(_is_refused(_flip(content, position)) for position in positions) > 50


def test_zeroed_blocks(content):
    starts = RNG.integers(0, len(content) - 64, 60).tolist()
    assert any(_is_refused(content[:start] + bytes(64) + content[start + 64 :]) for start in starts)


def test_garbage():
    for size in (0, 1, 39, 40, 41, 1000):
        with pytest.raises(CorruptDataError):
            DataFileReader(Bytes(RNG.bytes(size)), path="x.lance")
        with pytest.raises(LanceError):
            _read(RNG.bytes(size) + b"\x02\x00\x02\x00LANC")


def _with_version(content, major, minor):
    return content[:-8] + major.to_bytes(2, "little") + minor.to_bytes(2, "little") + b"LANC"


def test_a_version_to_come_is_refused_by_name(content):
    with pytest.raises(UnsupportedError, match=r"2\.4"):
        _read(_with_version(content, 2, 4))
    with pytest.raises(UnsupportedError, match=r"9\.9"):
        _read(_with_version(content, 9, 9))


def test_end_of_another_version(content):
    with pytest.raises(CorruptDataError):
        _read(_with_version(content, 0, 2))


@pytest.mark.parametrize(("major", "minor"), [(0, 3), (2, 0)])
def test_pages_of_another_version(content, major, minor):
    reader = DataFileReader(Bytes(_with_version(content, major, minor)), path="x.lance")
    with pytest.raises(CorruptDataError, match=r"2\.0"):
        list(reader.scan(reader.schema.select(["packed"]), {0: 0}, start=0, end=N, batch_size=100))
