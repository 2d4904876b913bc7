"""Chunks of pages of several columns are taken apart together as each for itself; damage is named."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_core.encoding.layouts import mini_block, small_page
from lance_core.encoding.layouts.open_chunks import PageChunks, open_chunks
from lance_core.encoding.layouts.page import Decoded
from lance_core.encoding.layouts.scattered_values import Scattered, decode_values
from lance_core.encoding.options import PageOptions
from lance_core.encoding.repdef import Levels
from lance_core.encoding.values import FixedValues, VariableValues
from lance_core.errors import CorruptDataError
from lance_core.format.file.page_layout import Layer

RNG = np.random.default_rng(3)
COUNT = 2_500
STRINGS = [b"%d" % (number * 7919 % 1009) for number in range(COUNT)]
VALUES = [
    FixedValues(RNG.integers(0, 200, COUNT).astype(np.uint64)),
    FixedValues(RNG.integers(0, 2**16, COUNT).astype(np.uint16)),
    FixedValues(RNG.random(COUNT) < 0.5),
    VariableValues(np.cumsum([0, *map(len, STRINGS)]).astype(np.int32), np.frombuffer(b"".join(STRINGS), np.uint8)),
]


def encoded(values, *, has_nulls, version, compression):
    """The bytes of a page's chunks, and the chunks."""
    definition = (RNG.random(COUNT) < 0.3).astype(np.uint16) if has_nulls else None
    layers = (Layer.NULLABLE_ITEM if has_nulls else Layer.ALL_VALID_ITEM,)
    decoded = Decoded(levels=Levels(layers, None, definition), values=values, num_slots=COUNT)
    page = small_page.encode(decoded, PageOptions(version=version)) if compression == "none" else None
    page = page or mini_block.encode(decoded, None, PageOptions(version=version, compression=compression))
    table, data = (np.frombuffer(buffer, np.uint8) for buffer in page.buffers[:2])
    words = table.view("<u4" if page.layout.has_large_chunk else "<u2").astype(np.int64)
    sizes, counts = ((words >> 4) + 1) * 8, 1 << (words & 15)
    counts[-1] = COUNT - counts[:-1].sum()
    return data, PageChunks(page.layout, np.cumsum(sizes) - sizes, sizes, counts)


PAGES = [
    encoded(values, has_nulls=has_nulls, version=version, compression=compression)
    for values in VALUES
    for has_nulls in (False, True)
    for version, compression in (("2.1", "none"), ("2.2", "none"), ("2.2", "lz4"))
]


def laid_end_to_end(pages):
    """One memory with the chunks of pages."""
    ends = np.cumsum([len(data) for data, _ in pages]).tolist()
    chunks = [
        page._replace(starts=page.starts + end - len(data)) for end, (data, page) in zip(ends, pages, strict=True)
    ]
    return np.concatenate([data for data, _ in pages]), chunks


def points_of(page, rows):
    firsts = np.cumsum(page.counts) - page.counts
    chunk_of = firsts.searchsorted(rows, side="right") - 1
    used, place = np.unique(chunk_of, return_inverse=True)
    chunks = np.stack([page.starts, page.sizes, page.counts])[:, used]
    return page._replace(starts=chunks[0], sizes=chunks[1], counts=chunks[2]), Scattered(
        chunks, place, rows - firsts[chunk_of]
    )


def plain(decoded):
    definition, values = decoded
    parts = (values.data,) if isinstance(values, FixedValues) else (values.offsets, values.data)
    return None if definition is None else definition.tolist(), *[part.tolist() for part in parts]


rows_of_page = st.sets(st.integers(0, COUNT - 1), min_size=1, max_size=60)


@given(st.lists(st.tuples(st.integers(0, len(PAGES) - 1), rows_of_page | st.none()), min_size=1, max_size=6))
def test_pages_are_decoded_together_as_each_alone(asked):
    memory, chunks = laid_end_to_end([PAGES[number] for number, _ in asked])
    wanted = [
        (page, None) if rows is None else points_of(page, np.array(sorted(rows)))
        for page, (_, rows) in zip(chunks, asked, strict=True)
    ]
    alone = [plain(decode_values(memory, [one])[0]) for one in wanted]
    assert [plain(decoded) for decoded in decode_values(memory, wanted)] == alone


def test_nothing_is_opened_of_nothing():
    assert open_chunks(np.empty(0, np.uint8), []) == []
    nothing = np.empty(0, np.int64)
    (opened,) = open_chunks(PAGES[0][0], [PageChunks(PAGES[0][1].layout, nothing, nothing, nothing)])
    assert len(opened.values.counts) == 0


@pytest.mark.parametrize(
    ("field", "by", "message"),
    [
        ("starts", -(1 << 20), "beyond the end of its page"),
        ("starts", 1 << 20, "beyond the end of its page"),
        ("starts", 1 << 62, "beyond the end of its page"),
        ("sizes", 1 << 20, "beyond the end of its page"),
        ("sizes", -(1 << 20), "beyond the end of its page"),
        ("counts", 1 << 33, "impossible number of values"),
        ("counts", -(1 << 33), "impossible number of values"),
        ("counts", 1, "another number of levels"),
    ],
)
def test_damage_of_one_page_is_found_among_others(field, by, message):
    memory, chunks = laid_end_to_end([PAGES[4], PAGES[4], PAGES[0]])
    damaged = getattr(chunks[1], field).copy()
    damaged[0] += by
    with pytest.raises(CorruptDataError, match=message):
        open_chunks(memory, [chunks[0], chunks[1]._replace(**{field: damaged}), chunks[2]])


def test_a_buffer_that_leaves_its_chunk_is_found_among_others():
    memory, chunks = laid_end_to_end([PAGES[0], PAGES[1]])
    damaged = memory.copy()
    at = int(chunks[1].starts[1])
    damaged[at + 2 : at + 4] = 0xFF
    with pytest.raises(CorruptDataError, match="beyond the end of its chunk"):
        open_chunks(damaged, chunks)
