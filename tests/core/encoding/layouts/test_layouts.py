"""Page layouts against bytes of the specification and slow references."""

import numpy as np
import pyarrow as pa
import pytest

from lance_core.encoding.layouts import chunk_table, constant, full_zip, mini_block
from lance_core.encoding.layouts.page import to_arrow
from lance_core.encoding.leaves import leaf_paths
from lance_core.errors import CorruptDataError
from lance_core.format.file.encodings import Flat, Variable
from lance_core.format.file.page_layout import ConstantLayout, FullZipLayout, Layer, MiniBlockLayout
from lance_core.format.schema import Schema


def _bytes(text):
    return np.frombuffer(bytes.fromhex(text), np.uint8)


def _path(kind):
    return leaf_paths(Schema.from_arrow(pa.schema([pa.field("c", kind)])).fields[0])[0]


def _pages(*pages):
    """Chunk words of pages, each given as arguments of `_table`."""
    words = [page["words"] for page in pages]
    indexes = [page.get("index") for page in pages]

    def numbers(name, default):
        return np.array([page[name] if name in page else default(page) for page in pages], np.int64)

    return chunk_table.PageWords(
        chunk_words=np.concatenate(words),
        word_bytes=np.array([len(one) for one in words]),
        is_large=pages[0]["is_large"],
        index=None if indexes[0] is None else np.concatenate(indexes),
        index_bytes=np.array([0 if index is None else len(index) for index in indexes]),
        num_items=numbers("num_items", None),
        num_rows=numbers("num_rows", lambda page: page["num_items"]),
        data_sizes=numbers("data_size", None),
        positions=numbers("position", lambda _: 0),
        first_rows=numbers("first_row", lambda _: 0),
    )


def _table(words, **more):
    return chunk_table.page_tables(_pages({"words": words, **more}))[0]


def _mini_block(words, chunks, *, layers, rep=None, values, num_items, is_large):
    layout = MiniBlockLayout(
        rep=rep,
        definition=Flat(16),
        values=values,
        dictionary=None,
        num_dictionary_items=0,
        layers=layers,
        num_buffers=1,
        has_repetition_index=rep is not None,
        num_items=num_items,
        has_large_chunk=is_large,
    )
    memory = _bytes(chunks)
    table = _table(_bytes(words), is_large=is_large, num_items=num_items, data_size=len(memory))
    run = mini_block.ChunkRun(
        layouts=(layout,),
        bounds=np.array([0, len(table.counts)]),
        starts=table.starts,
        sizes=table.sizes,
        counts=table.counts,
        is_cut=None,
        dictionary=None,
    )
    return mini_block.decode(memory, run, rows=None)


@pytest.mark.parametrize(
    ("words", "header", "is_large"),
    [("5000", "0400 0800 1c00 fefe", False), ("50000000", "0400 0800 1c000000", True)],
)
def test_strings_with_a_null(words, header, is_large):
    offsets = "14000000 15000000 17000000 17000000 1b000000"
    chunks = f"{header} 0000 0000 0100 0000 {offsets} 61 6262 64646464 48 fefefefe"
    decoded = _mini_block(
        words, chunks, layers=(Layer.NULLABLE_ITEM,), values=Variable(32), num_items=4, is_large=is_large
    )
    assert to_arrow(decoded, _path(pa.string()), pa.string(), 4).to_pylist() == ["a", "bb", None, "dddd"]


def test_lists_in_a_mini_block():
    chunks = (
        "0500 0a00 0a00 0c00 0100 0000 0100 0100 0100 fefefefefefe 0000 0000 0100 0200 0000 fefefefefefe"
        " 01000000 02000000 03000000 fefefefe"
    )
    decoded = _mini_block(
        "6000",
        chunks,
        layers=(Layer.ALL_VALID_ITEM, Layer.NULL_AND_EMPTY_LIST),
        rep=Flat(16),
        values=Flat(32),
        num_items=3,
        is_large=False,
    )
    array = to_arrow(decoded, _path(pa.list_(pa.int32())), pa.int32(), 4)
    assert array.to_pylist() == [[1, 2], None, [], [3]]


ZIPPED = "04 2c010000" + "61" * 300 + "06 07 04 02000000 6363 01"


@pytest.mark.parametrize("repeat", [1, 10])
def test_lists_in_a_full_zip_page(repeat):
    # The entries of few rows are walked one by one, those of many all at once.
    layout = FullZipLayout(
        bits_rep=1,
        bits_def=2,
        bits_per_value=None,
        bits_per_offset=32,
        num_items=5 * repeat,
        num_visible_items=3 * repeat,
        values=Variable(32),
        layers=(Layer.NULLABLE_ITEM, Layer.NULL_AND_EMPTY_LIST),
    )
    memory = _bytes(ZIPPED * repeat)
    size = len(memory) // repeat
    starts = np.concatenate([np.array([0, 0x131, 0x132, 0x133]) + size * i for i in range(repeat)])
    ends = np.append(starts[1:], len(memory))
    decoded = full_zip.decode_rows(layout, memory, starts, ends)
    array = to_arrow(decoded, _path(pa.list_(pa.binary())), pa.binary(), 4 * repeat)
    assert array.to_pylist() == [[b"a" * 300], None, [], [b"cc", None]] * repeat
    for wrong in (ends - 1, np.append(ends[:-1], len(memory) + 1), starts):
        with pytest.raises(CorruptDataError):
            full_zip.decode_rows(layout, memory, starts, wrong)


def test_all_null_with_structure():
    layout = ConstantLayout(layers=(Layer.NULLABLE_ITEM, Layer.NULL_AND_EMPTY_LIST))
    buffers = [_bytes("0100 0100 0100"), _bytes("0100 0200 0300")]
    decoded = constant.decode(layout, buffers, pa.int32(), num_rows=3, rows=range(3))
    path = _path(pa.list_(pa.int32()))
    assert to_arrow(decoded, path, pa.int32(), 3).to_pylist() == [[None], None, []]
    decoded = constant.decode(layout, buffers, pa.int32(), num_rows=3, rows=range(1, 3))
    assert to_arrow(decoded, path, pa.int32(), 2).to_pylist() == [None, []]


def test_one_string_for_all():
    layout = ConstantLayout(layers=(Layer.ALL_VALID_ITEM, Layer.NULLABLE_LIST))
    buffers = [
        _bytes("02000000 08000000 01000000 00000000 01000000 6b"),
        _bytes("0100 0000 0100"),
        _bytes("000000000100"),
    ]
    decoded = constant.decode(layout, buffers, pa.string(), num_rows=2, rows=range(2))
    assert to_arrow(decoded, _path(pa.list_(pa.string())), pa.string(), 2).to_pylist() == [["k", "k"], None]


@pytest.mark.parametrize("kind", [pa.int8(), pa.float64(), pa.bool_(), pa.decimal128(20), pa.string()])
@pytest.mark.parametrize("counts", [(20_000,), (10_000, 0, 7_000), (3, 1)])
def test_constants_are_repeated_as_often_as_told(kind, counts):
    width = 0 if pa.types.is_string(kind) else max(1, kind.bit_width // 8)
    values = [bytes([1 - number % 2]) * (width or number) for number in range(len(counts))]
    repeated = constant.repeat_each(values, counts, kind)
    expected = [constant.repeat_each([value], [1], kind) for value in values]
    assert len(repeated) == sum(counts)
    assert bytes(repeated.data) == b"".join(
        bytes(one.data) * count for one, count in zip(expected, counts, strict=True)
    )


def test_long_runs_of_a_constant_are_in_the_memory_of_the_pool():
    before = pa.total_allocated_bytes()
    repeated = constant.repeat_each([bytes(8)], [100_000], pa.float64())
    assert pa.total_allocated_bytes() - before >= repeated.data.nbytes == 800_000


def _slow_repetition_index(rep, bounds, new_row):
    """The writer's rule as the specification words it."""
    rows, left = [], []
    for chunk in range(len(bounds) - 1):
        part = rep[bounds[chunk] : bounds[chunk + 1]]
        starts = [index for index, level in enumerate(part) if level == new_row]
        if part[0] == new_row and chunk and left[-1]:
            rows[-1] += 1
            left[-1] = 0
        rows.append(sum(level == new_row for level in part[1:]))
        left.append(len(part) - starts[-1] if starts else len(part))
    rows[-1] += 1
    left[-1] = 0
    return rows, left


@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
def test_repetition_index_and_selection(share):
    rng = np.random.default_rng(3)
    for _ in range(30):
        rep = (rng.random(200) < share).astype(np.uint16)
        rep[0] = 1
        bounds = np.append(0, np.unique(np.append(rng.integers(1, 200, 9), 200)))
        index = chunk_table.encode_repetition_index(rep, bounds, 1)
        rows, left = _slow_repetition_index(rep.tolist(), bounds.tolist(), 1)
        assert index.view("<u8").reshape(-1, 2).tolist() == [list(pair) for pair in zip(rows, left, strict=True)]
        starts = np.flatnonzero(rep)
        words = chunk_table.encode_words(np.diff(bounds) * 8, np.ones(len(rows), np.int64), is_large=True)
        page = {"is_large": True, "num_items": len(rows), "data_size": 1600, "index": index, "num_rows": len(starts)}
        table = _table(words, **page)
        assert table.starts.tolist() == (bounds[:-1] * 8).tolist()
        assert table.first_rows.tolist() == [int((starts < bound).sum()) for bound in bounds[:-1]]
        for bad in ({"num_rows": len(starts) + 1}, {"index": index[8:]}):
            with pytest.raises(CorruptDataError):
                _table(words, **page | bad)
        _check_selection(table, rep, bounds, np.unique(rng.integers(0, len(starts), 4)))
        low = int(rng.integers(0, len(starts)))
        _check_selection(table, rep, bounds, range(low, int(rng.integers(low, len(starts))) + 1))


def _check_selection(table, rep, bounds, rows):
    """The chunks selected hold the levels of the wanted rows, whole and at the places told."""
    selection = chunk_table.select_rows(table, rows)
    numbers = np.cumsum(rep == 1) - 1
    levels = []
    for chunk, is_cut in zip(selection.chunks.tolist(), selection.is_cut.tolist(), strict=True):
        part = [
            [level, row]
            for level, row in zip(rep[bounds[chunk] : bounds[chunk + 1]], numbers[bounds[chunk] :], strict=False)
        ]
        if is_cut:
            part[0][0] = 1
        levels += part
    held = np.cumsum([level for level, _ in levels]) - 1
    assert held[-1] + 1 == selection.num_rows
    for row, place in zip(rows, selection.rows, strict=True):
        found = [number for (_, number), at in zip(levels, held, strict=True) if at == place]
        assert found == [row] * int((numbers == row).sum())


@pytest.mark.parametrize(("is_large", "largest"), [(True, 1 << 20), (False, 1 << 15)])
def test_chunk_words_of_both_sizes(is_large, largest):
    sizes, counts = np.array([16, largest, 8]), np.array([2, 4096, 7])
    words = chunk_table.encode_words(sizes, counts, is_large=is_large)
    assert len(words) == (12 if is_large else 6)
    table = _table(words, is_large=is_large, num_items=4105, data_size=1 << 21)
    assert table.sizes.tolist() == sizes.tolist()
    assert table.starts.tolist() == [0, 16, 16 + largest]
    assert table.counts.tolist() == table.num_rows.tolist() == counts.tolist()
    for bad in ({"num_items": 4000, "data_size": 1 << 21}, {"num_items": 4105, "data_size": 100}):
        with pytest.raises(CorruptDataError):
            _table(words, is_large=is_large, **bad)
    with pytest.raises(CorruptDataError):
        _table(words[:5], is_large=is_large, num_items=3, data_size=1 << 21)
    with pytest.raises(CorruptDataError):
        _table(words, is_large=is_large, num_items=4105, data_size=1 << 21, num_rows=4104)


def test_pages_are_decoded_as_if_each_were_alone():
    rng = np.random.default_rng(4)
    pages = []
    for number in range(20):
        num_chunks = int(rng.integers(0, 4))
        counts = 1 << rng.integers(1, 12, num_chunks)
        words = chunk_table.encode_words(rng.integers(1, 100, num_chunks) * 8, counts, is_large=True)
        num_items = int(counts[:-1].sum()) + 3 if num_chunks else 0
        place = {"position": int(rng.integers(0, 1 << 40)), "first_row": 1000 * number}
        pages.append({"words": words, "is_large": True, "num_items": num_items, "data_size": 1 << 20, **place})
    tables = chunk_table.split_table(*chunk_table.page_tables(_pages(*pages)))
    for page, table in zip(pages, tables, strict=True):
        assert (table.grid == _table(**page).grid).all()
        assert int(table.counts.sum()) == page["num_items"]
        is_there = table.starts[:1].tolist() == [page["position"]] and table.first_rows[:1].tolist() == [
            page["first_row"]
        ]
        assert is_there or not len(table.counts)
