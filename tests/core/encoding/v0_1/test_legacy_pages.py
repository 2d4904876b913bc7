"""Pages of version 0.1, byte by byte."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from lance_core.encoding.plans import ByteRanges, bridge, range_buffers
from lance_core.encoding.v0_1.pages import cut_rows, read_spans, read_values
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.file.scattered import in_order
from lance_core.format.file.legacy_file import decode_legacy_footer, decode_legacy_metadata, decode_page_table


def run(steps, memory):
    """What a store would do, with the whole file in memory."""
    try:
        wanted = next(steps)
        while True:
            for one in wanted:
                assert isinstance(one, ByteRanges)
                assert one.starts.min() >= 0
                assert one.ends.max() <= len(memory)
            ranges = [bridge(*in_order([one])) for one in wanted]
            buffers = [[pa.py_buffer(memory[start:end]) for start, end in one] for one in ranges]
            wanted = steps.send([range_buffers(one, read) for one, read in zip(ranges, buffers, strict=True)])
    except StopIteration as stop:
        return stop.value


# a: int32 [1, 2, null], s: string ["x", null, "zz"]: plain values, bytes, absolute positions of the bytes
MEMORY = np.array([1, 2, 0], "<i4").tobytes() + b"xzz" + np.array([12, 13, 13, 15], "<i8").tobytes()
NUMBERS, TEXTS = 0, 15


def _page(position, rows):
    return cut_rows(np.array([0, 1000]), np.array([position]), rows)


def _read(position, rows, kind, *, nullable=True):
    array = run(read_values(_page(position, rows), kind, nullable=nullable, limit=len(MEMORY)), MEMORY)
    array.validate(full=True)
    return array.to_pylist()


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
        _read(0, range(2), pa.string())


def test_lists():
    offsets = np.array([0, 2, 2, 5])
    for dtype in ("<i4", "<i8"):
        data = offsets.astype(dtype).tobytes()
        for rows, starts, ends in ((range(3), [0, 2, 2], [2, 2, 5]), (np.array([0, 2]), [0, 2], [2, 5])):
            spans = run(read_spans(_page(0, rows), is_large=dtype == "<i8", limit=len(data)), data)
            assert (spans.starts.tolist(), spans.ends.tolist()) == (starts, ends)
    descending = np.array([0, 3, 1], "<i4").tobytes()
    with pytest.raises(CorruptDataError, match="ascend"):
        run(read_spans(_page(0, range(2)), is_large=False, limit=12), descending)


def _layout(pages):
    """Pages with something between them, their positions and first rows."""
    memory, positions = b"", []
    for page in pages:
        memory += b"in front"
        positions.append(len(memory))
        memory += page
    return memory, np.array(positions)


ROWS = [range(23), range(3, 19), range(9, 10), np.array([0, 1, 2, 9, 10, 11, 22]), np.array([5]), np.arange(0, 23, 2)]


@pytest.mark.parametrize("rows", ROWS, ids=str)
def test_rows_of_many_pages_at_one_go(rows):
    first_rows = np.array([0, 10, 10, 13, 23])
    bounds = list(itertools.pairwise(first_rows.tolist()))
    numbers = np.arange(23, dtype="<i2") * 100
    memory, positions = _layout([numbers[low:high].tobytes() for low, high in bounds])
    pieces = cut_rows(first_rows, positions, rows)
    assert len(pieces) == len(rows)
    array = run(read_values(pieces, pa.int16(), nullable=True, limit=len(memory)), memory)
    assert array.to_pylist() == numbers[np.asarray(rows)].tolist()

    vectors = np.random.default_rng(1).random((23, 3)) < 0.5
    packed = [np.packbits(vectors[low:high], bitorder="little").tobytes() for low, high in bounds]
    memory, positions = _layout(packed)
    kind = pa.list_(pa.bool_(), 3)
    array = run(read_values(cut_rows(first_rows, positions, rows), kind, nullable=True, limit=len(memory)), memory)
    assert array.to_pylist() == vectors[np.asarray(rows)].tolist()

    texts = ["x" * (one % 4) for one in range(23)]
    memory, positions = b"", []
    for low, high in bounds:
        ends = np.cumsum([len(memory)] + [len(text) for text in texts[low:high]])
        memory += "".join(texts[low:high]).encode()
        positions.append(len(memory))
        memory += ends.astype("<i8").tobytes()
    pieces = cut_rows(first_rows, np.array(positions), rows)
    array = run(read_values(pieces, pa.string(), nullable=False, limit=len(memory)), memory)
    array.validate(full=True)
    assert array.to_pylist() == [texts[row] for row in rows]


def test_numbers_that_overflow_are_refused():
    with pytest.raises(CorruptDataError, match="beyond"):
        run(
            read_values(_page(0, range(900, 901)), pa.list_(pa.decimal256(9, 2), 2**31 - 1), nullable=True, limit=99),
            b"",
        )


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
