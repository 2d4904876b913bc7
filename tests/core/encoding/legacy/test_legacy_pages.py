"""Pages of version 0.1, byte by byte."""

import numpy as np
import pyarrow as pa
import pytest

from lance_core.encoding.legacy.pages import read_list_page, read_page
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.legacy_file import decode_legacy_footer, decode_legacy_metadata, decode_page_table


def run(steps, memory):
    try:
        ranges = next(steps)
        while True:
            ranges = steps.send([pa.py_buffer(memory[start:end]) for start, end in ranges])
    except StopIteration as stop:
        return stop.value


# a: int32 [1, 2, null], s: string ["x", null, "zz"]: plain values, bytes, absolute positions of the bytes
MEMORY = np.array([1, 2, 0], "<i4").tobytes() + b"xzz" + np.array([12, 13, 13, 15], "<i8").tobytes()
NUMBERS, TEXTS = ((0, len(MEMORY)),), ((15, len(MEMORY) - 15),)


def _read(buffers, rows, kind, *, nullable=True):
    return run(read_page(buffers, rows, kind, nullable=nullable), MEMORY).to_pylist()


def test_values():
    assert _read(NUMBERS, range(3), pa.int32()) == [1, 2, 0]
    assert _read(NUMBERS, np.array([0, 2]), pa.int32()) == [1, 0]
    assert _read(NUMBERS, range(1), pa.list_(pa.int32(), 3)) == [[1, 2, 0]]
    assert _read(NUMBERS, range(10), pa.bool_()) == [True, *[False] * 9]
    assert _read(NUMBERS, range(2), pa.null()) == [None, None]
    with pytest.raises(CorruptDataError):
        _read(NUMBERS, range(100), pa.int32())
    with pytest.raises(UnsupportedError, match="struct"):
        _read(NUMBERS, range(1), pa.struct([("a", pa.int32())]))


def test_strings_that_are_empty_may_be_null():
    assert _read(TEXTS, range(3), pa.string()) == ["x", None, "zz"]
    assert _read(TEXTS, range(1, 3), pa.large_string(), nullable=False) == ["", "zz"]
    assert _read(TEXTS, np.array([0, 2]), pa.binary()) == [b"x", b"zz"]
    with pytest.raises(CorruptDataError):
        _read(((0, len(MEMORY)),), range(2), pa.string())


def test_lists():
    offsets = np.array([0, 2, 2, 5])
    for dtype in ("<i4", "<i8"):
        data = offsets.astype(dtype).tobytes()
        buffers = ((0, len(data)),)
        spans = run(read_list_page(buffers, range(3), is_large=dtype == "<i8"), data)
        assert (spans.starts.tolist(), spans.ends.tolist()) == ([0, 2, 2], [2, 2, 5])
        spans = run(read_list_page(buffers, np.array([0, 2]), is_large=dtype == "<i8"), data)
        assert (spans.starts.tolist(), spans.ends.tolist()) == ([0, 2], [2, 5])
    with pytest.raises(CorruptDataError, match="ascend"):
        run(read_list_page(((0, 12),), range(2), is_large=False), np.array([0, 3, 1], "<i4").tobytes())


def test_metadata():
    footer = (20).to_bytes(8, "little") + b"\0\0\2\0LANC"
    assert decode_legacy_footer(b"x" * 30 + footer, 46) == 20
    with pytest.raises(CorruptDataError):
        decode_legacy_footer(footer, 16)
    metadata = decode_legacy_metadata(bytes.fromhex("088a02 1203000305 182f".replace(" ", "")))
    assert (metadata.schema_position, metadata.page_table_position) == (266, 47)
    assert metadata.batch_offsets.tolist() == [0, 3, 5]
    assert metadata.table_range(1) == (47 + 32, 47 + 64)
    with pytest.raises(CorruptDataError, match="ascend"):
        decode_legacy_metadata(bytes.fromhex("1203000503"))
    table = np.array([0, 3, 15, 3], "<i8").tobytes()
    assert decode_page_table(table, limit=15).tolist() == [[0, 3], [15, 3]]
    with pytest.raises(CorruptDataError):
        decode_page_table(table, limit=14)
