"""Damaged pages: values or one of our errors, never anything else."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_core.encoding import choose, registry
from lance_core.encoding.arrow_values import take_values
from lance_core.encoding.values import FixedListValues, FixedValues, VariableValues
from lance_core.errors import CorruptDataError, LanceError, UnsupportedError
from lance_core.format.file.encodings import (
    ByteStreamSplit,
    Compression,
    FixedSizeList,
    Flat,
    General,
    InlineBitpacking,
    OutOfLineBitpacking,
    Rle,
    Variable,
)

pytestmark = pytest.mark.slow


def places(counts, positions):
    """The chunk of each position, and which of its values it is."""
    bounds = np.append(0, np.cumsum(np.clip(counts, 0, 1 << 32)))
    chunk_of = np.clip(np.searchsorted(bounds, positions, side="right") - 1, 0, max(0, len(counts) - 1))
    return chunk_of, positions - bounds[chunk_of]


def sample_pages():
    rng = np.random.default_rng(0)
    words = rng.integers(0, 1000, 3000).astype("<u4")
    offsets = np.append(0, np.cumsum(rng.integers(0, 9, 300))).astype(np.int32)
    data = rng.integers(0, 4, int(offsets[-1])).astype(np.uint8)
    text = np.frombuffer(b"the same words again and again; " * 1250, np.uint8)
    many = VariableValues(np.arange(0, 40_001, 10, dtype=np.int32), text)
    yield choose.encode_chunks(FixedValues(words))
    yield choose.encode_chunks(FixedValues(words << 20))
    yield choose.encode_chunks(FixedValues(np.repeat(words[:100], 70)))
    yield choose.encode_chunks(FixedValues(words % 2 == 0))
    yield choose.encode_chunks(VariableValues(offsets, data))
    yield choose.encode_chunks(many)
    yield choose.encode_chunks(FixedListValues(3, FixedValues(words), words % 3 == 0))


PAGES = list(sample_pages())


def test_the_pages_are_of_all_kinds():
    kinds = [Rle, Flat, InlineBitpacking, Variable, General, FixedSizeList]
    assert {type(encoding) for encoding, _ in PAGES} == set(kinds)


def decode(encoding, chunks):
    """The values, or None if the page was found to be damaged."""
    try:
        return registry.decode_chunks(encoding, chunks)
    except (CorruptDataError, UnsupportedError):
        return None


def decode_points(encoding, chunks):
    """Some of the values, or None if they were found to be damaged."""
    total = max(1, int(np.clip(chunks.counts, 0, 1 << 32).sum()))
    try:
        return registry.decode_points(encoding, chunks, *places(chunks.counts, np.array([0, total // 2, total - 1])))
    except (CorruptDataError, UnsupportedError):
        return None


def check_some(encoding, chunks, values, assert_same):
    """Many of the values are found to be damaged if all of them are, else they are the same."""
    total = max(1, int(np.clip(chunks.counts, 0, 1 << 12).sum()))
    positions = np.flatnonzero(np.arange(total) % 5 < 3)
    if values is None:
        with pytest.raises((CorruptDataError, UnsupportedError)):
            registry.decode_some(encoding, chunks, positions)
    elif len(values) == total:
        assert_same(registry.decode_some(encoding, chunks, positions), take_values(values, positions))


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.data())
def test_changed_bytes(as_page, assert_same, data):
    encoding, chunks = data.draw(st.sampled_from(PAGES))
    page = as_page(chunks)
    memory = page.buffers[0].copy()
    for _ in range(data.draw(st.integers(1, 4))):
        memory[data.draw(st.integers(0, len(memory) - 1))] = data.draw(st.integers(0, 255))
    damaged = replace(page, buffers=(memory,) * len(page.buffers))
    values, points = decode(encoding, damaged), decode_points(encoding, damaged)
    assert values is None or len(values) == chunks.counts.sum()
    check_some(encoding, damaged, values, assert_same)
    assert points is None or len(points) == 3


@settings(derandomize=True, deadline=None, max_examples=300)
@given(st.data())
def test_changed_sizes_positions_and_counts(as_page, assert_same, data):
    encoding, chunks = data.draw(st.sampled_from(PAGES))
    page = as_page(chunks)
    name = data.draw(st.sampled_from(["starts", "sizes", "counts"]))
    numbers = getattr(page, name).copy()
    at = data.draw(st.integers(0, numbers.size - 1))
    numbers.reshape(-1)[at] = data.draw(st.sampled_from([-1, 0, 1, 3, 100, 4097, 1 << 40, (1 << 63) - 1]))
    damaged = replace(page, **{name: numbers})
    values, points = decode(encoding, damaged), decode_points(encoding, damaged)
    assert values is None or len(values) == damaged.counts.sum()
    check_some(encoding, damaged, values, assert_same)
    assert points is None or len(points) == 3


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.data())
def test_cut_pages(as_page, data):
    encoding, chunks = data.draw(st.sampled_from(PAGES))
    page = as_page(chunks)
    cut = page.buffers[0][: data.draw(st.integers(0, len(page.buffers[0]) - 9))]
    assert decode(encoding, replace(page, buffers=(cut,) * len(page.buffers))) is None


encodings = st.recursive(
    st.one_of(
        st.builds(Flat, st.sampled_from([0, 1, 3, 8, 16, 32, 64, 128])),
        st.builds(InlineBitpacking, st.sampled_from([0, 8, 16, 32, 64])),
        st.builds(OutOfLineBitpacking, st.sampled_from([8, 16, 64]), st.integers(-1, 65)),
        st.builds(Rle, st.sampled_from([7, 8, 64])),
        st.builds(ByteStreamSplit, st.sampled_from([32, 64])),
        st.builds(Variable, st.sampled_from([8, 32, 64])),
    ),
    lambda inner: st.one_of(
        st.builds(General, st.sampled_from(Compression), inner),
        st.builds(FixedSizeList, st.integers(0, 4), st.booleans(), inner),
    ),
    max_leaves=3,
)


@settings(derandomize=True, deadline=None, max_examples=400)
@given(encodings, st.binary(max_size=80), st.integers(0, 40))
def test_any_bytes_as_block_or_level(encoding, data, count):
    memory = np.frombuffer(data, np.uint8)
    try:
        values = registry.decode_block(encoding, memory, count)
    except LanceError:
        return
    assert len(values) == count


def test_levels_of_another_width(chunks_of):
    with pytest.raises(CorruptDataError, match="16 bits"):
        registry.decode_level_chunks(Flat(8), chunks_of([b"a"], [1]))


def test_zero_bits_do_not_stand_for_any_number_of_values(chunks_of):
    with pytest.raises(CorruptDataError, match="0 bits"):
        registry.decode_level_chunks(OutOfLineBitpacking(16, 0), chunks_of([b""], [1 << 32]))


def test_missing_buffers(chunks_of):
    with pytest.raises(CorruptDataError, match="value buffers"):
        registry.decode_chunks(Rle(8), chunks_of([b"a"], [1]))
