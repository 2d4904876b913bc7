"""Values read one by one are those that a whole chunk decodes to; damage is named, never read beyond."""

from dataclasses import replace

import numpy as np
import pytest

from lance_core.encoding.layouts import mini_block, small_page
from lance_core.encoding.layouts.open_chunks import PageChunks
from lance_core.encoding.layouts.page import Decoded
from lance_core.encoding.layouts.scalar_values import scalar_reader
from lance_core.encoding.layouts.scattered_values import decode_values
from lance_core.encoding.options import PageOptions
from lance_core.encoding.repdef import Levels
from lance_core.encoding.values import FixedListValues, FixedValues, VariableValues
from lance_core.errors import CorruptDataError
from lance_core.format.file.encodings import Rle
from lance_core.format.file.page_layout import Layer

RNG = np.random.default_rng(6)
COUNT = 2500


def _strings(dtype):
    sizes = RNG.integers(0, 9, COUNT)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(dtype)
    return VariableValues(offsets, RNG.integers(0, 256, int(offsets[-1]), np.uint8))


VALUES = {
    **{f"flat u{n}": FixedValues(RNG.integers(0, 256, COUNT * n, np.uint8).view(f"<u{n}")) for n in (1, 2, 4, 8)},
    **{f"packed u{n}": FixedValues(RNG.integers(0, 50, COUNT).astype(f"<u{n}")) for n in (1, 2, 4, 8)},
    "wide packed": FixedValues(RNG.integers(0, 1 << 50, COUNT, np.uint64)),
    **{f"runs u{n}": FixedValues(np.arange(COUNT, dtype=f"<u{n}") // np.dtype(f"<u{n}").type(90)) for n in (2, 4, 8)},
    "bits": FixedValues(RNG.random(COUNT) < 0.5),
    "decimal": FixedValues(RNG.integers(0, 256, (COUNT, 16), np.uint8)),
    "strings": _strings(np.int32),
    "large strings": _strings(np.int64),
    "zstd": _strings(np.int32),
    "lz4": _strings(np.int32),
    "lists": FixedListValues(3, FixedValues(RNG.random(COUNT * 3).view(np.uint64)), None),
}


COMPRESSED = {"zstd": "zstd", "lz4": "lz4"}


def _page(values, definition, version="2.2", compression="none"):
    layers = (Layer.ALL_VALID_ITEM if definition is None else Layer.NULLABLE_ITEM,)
    decoded = Decoded(levels=Levels(layers, None, definition), values=values, num_slots=len(values))
    page = small_page.encode(decoded, PageOptions(version=version)) if compression == "none" else None
    page = page or mini_block.encode(decoded, None, PageOptions(version=version, compression=compression))
    table, data = [np.frombuffer(buffer, np.uint8) for buffer in page.buffers[:2]]
    words = table.view("<u4" if page.layout.has_large_chunk else "<u2").astype(np.int64)
    sizes = ((words >> 4) + 1) * 8
    counts = 1 << (words & 15)
    counts[-1] = len(values) - counts[:-1].sum()
    return page.layout, data, np.stack([np.cumsum(sizes) - sizes, sizes, counts])


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("has_nulls", [False, True])
@pytest.mark.parametrize("name", VALUES)
def test_same_as_whole_chunks(name, has_nulls, version):
    definition = (RNG.random(COUNT) < 0.3).astype(np.uint16) if has_nulls else None
    layout, data, chunks = _page(VALUES[name], definition, version, COMPRESSED.get(name, "none"))
    reader = scalar_reader(layout)
    assert reader is not None
    ((levels, expected),) = decode_values(data, [(PageChunks(layout, *chunks), None)])
    bounds = np.concatenate([[0], np.cumsum(chunks[2])])
    rows = np.unique(np.concatenate([[0, 1023, 1024, COUNT - 1], RNG.integers(0, COUNT, 60)]))
    chunk_of = np.searchsorted(bounds, rows, side="right") - 1
    found = [
        reader.read(reader.open(data.data, tuple(chunks[:, chunk].tolist())), int(row - bounds[chunk]))
        for row, chunk in zip(rows, chunk_of, strict=True)
    ]
    assert [level for level, _ in found] == ([0] * len(rows) if levels is None else levels[rows].tolist())
    assert [value for _, value in found] == _bytes_of(expected, rows)


def _bytes_of(values, rows):
    match values:
        case FixedValues(data):
            return [data[row].tobytes() for row in rows]
        case VariableValues(offsets, data):
            return [data[offsets[row] : offsets[row + 1]].tobytes() for row in rows]
        case FixedListValues(dimension, items, _):
            return [items.data[row * dimension : (row + 1) * dimension].tobytes() for row in rows]


@pytest.mark.parametrize("name", VALUES)
def test_damage_is_named(name):
    """Every byte of the first chunk's header and of what follows, changed: a value, or an error that says so."""
    layout, data, chunks = _page(
        VALUES[name], np.ones(COUNT, np.uint16) * (np.arange(COUNT) % 2 == 0), "2.2", COMPRESSED.get(name, "none")
    )
    reader = scalar_reader(layout)
    start, size, count = chunks[:, 0].tolist()
    refused = 0
    for position in (*range(start, start + 24), *RNG.integers(start, start + size, 60).tolist()):
        for value in (0, 0x7F, 0xFF):
            damaged = data[: start + size].copy()
            damaged[position] = value
            try:
                reader.read(reader.open(damaged.data, (start, size, count)), count - 1)
            except CorruptDataError:
                refused += 1
    assert refused
    for wrong in ((start, 4, count), (start, size, 5), (start, size + 8, count), (start, size, count)):
        with pytest.raises(CorruptDataError):
            reader.read(reader.open(data[: start + size].data, wrong), count)


def test_what_takes_more_than_a_look_is_left_to_others():
    runs = FixedValues(np.repeat(np.arange(50, dtype=np.uint32), 50))
    decoded = Decoded(levels=Levels((Layer.ALL_VALID_ITEM,), None, None), values=runs, num_slots=len(runs))
    layout = mini_block.encode(decoded, None, PageOptions()).layout
    assert layout.values == Rle(32, 8)
    assert scalar_reader(layout) is not None
    assert scalar_reader(replace(layout, values=Rle(32, 16))) is None
