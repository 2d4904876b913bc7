"""Gathering many ranges: what comes out, and how often Arrow makes room for it."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_core.encoding.arrow_values import take_values
from lance_core.encoding.codecs import variable
from lance_core.encoding.kernels import check_places, chunk_counts, gather, gather_between, leading_words
from lance_core.encoding.values import VariableValues
from lance_core.errors import CorruptDataError
from lance_core.format.file.encodings import Variable

_SIZE = 500
_COUNT = 300
_MEMORY = np.arange(_SIZE * _COUNT, dtype=np.uint32).astype(np.uint8)


def _ranges(gap):
    starts = np.arange(_COUNT, dtype=np.int64) * _SIZE + gap
    return starts, np.full(_COUNT, _SIZE - gap, np.int64)


def _expected(starts, sizes):
    return b"".join(_MEMORY[start : start + size].tobytes() for start, size in zip(starts, sizes, strict=True))


@pytest.mark.parametrize("gap", [1, 8, 249, 400])
def test_ranges_come_end_to_end(gap):
    starts, sizes = _ranges(gap)
    assert gather(_MEMORY, starts, sizes).tobytes() == _expected(starts, sizes)
    assert gather_between(_MEMORY, starts, sizes, b"head", b"t").tobytes() == b"head" + _expected(starts, sizes) + b"t"


def test_ranges_may_come_in_any_order_and_overlap():
    starts = np.random.default_rng(1).permutation(_COUNT).astype(np.int64) * (_SIZE // 2)
    sizes = np.full(_COUNT, _SIZE, np.int64)
    assert gather(_MEMORY, starts, sizes).tobytes() == _expected(starts, sizes)


def _allocations(call):
    pool = pa.default_memory_pool()
    before = pool.num_allocations()
    result = call()
    return pool.num_allocations() - before, result


@pytest.mark.skipif(not hasattr(pa.MemoryPool, "num_allocations"), reason="this pyarrow does not count allocations")
def test_room_for_ranges_is_made_once():
    assert (
        _allocations(lambda: gather(_MEMORY, *_ranges(8)))[0] == _allocations(lambda: gather(_MEMORY, *_ranges(400)))[0]
    )


@pytest.mark.skipif(not hasattr(pa.MemoryPool, "num_allocations"), reason="this pyarrow does not count allocations")
def test_gaps_between_ranges_need_no_room():
    memory, (starts, sizes) = np.zeros(1 << 24, np.uint8), _ranges(8)
    starts[_COUNT // 2 :] += len(memory) - len(_MEMORY)
    pool = pa.default_memory_pool()
    before = pool.total_bytes_allocated()
    gathered = gather(memory, starts, sizes)
    assert pool.total_bytes_allocated() - before < 2 * len(gathered)


@pytest.mark.skipif(not hasattr(pa.MemoryPool, "num_allocations"), reason="this pyarrow does not count allocations")
def test_room_for_scattered_strings_is_made_once():
    positions = np.arange(0, 3200, 2)

    def allocations(length):
        offsets = np.arange(3201, dtype=np.int32) * length
        values = VariableValues(offsets, np.arange(offsets[-1], dtype=np.uint32).astype(np.uint8))
        chunks = variable.encode_chunks(values, chunk_counts(3200, 32))
        count, decoded = _allocations(lambda: variable.decode_some(Variable(32), chunks, positions))
        assert decoded.offsets.tolist() == (np.arange(len(positions) + 1) * length).tolist()
        assert decoded.data.tobytes() == values.data.reshape(3200, length)[::2].tobytes()
        return count

    assert allocations(200) == allocations(10)  # of long strings a chunk holds more bytes than of offsets


@pytest.mark.skipif(not hasattr(pa.MemoryPool, "num_allocations"), reason="this pyarrow does not count allocations")
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_room_for_strings_that_repeat_is_made_once(dtype):
    """Whether it is the short ones that repeat, for which Arrow makes room enough, or the long ones."""
    words = [b"no", b"", b"a word of some length", b"yes"]
    items = VariableValues(np.cumsum([0, *map(len, words)]).astype(dtype), np.frombuffer(b"".join(words), np.uint8))

    def allocations(often):
        indices = np.random.default_rng(3).choice(len(words), 50_000, p=np.where(np.arange(4) == often, 0.7, 0.1))
        count, taken = _allocations(lambda: take_values(items, indices.astype(np.uint8)))
        assert taken.offsets.dtype == dtype
        assert taken.data.tobytes() == b"".join([words[index] for index in indices.tolist()])
        assert np.diff(taken.offsets).tolist() == [len(words[index]) for index in indices.tolist()]
        return count

    assert allocations(2) == allocations(1)


@given(st.lists(st.binary(max_size=12), max_size=8), st.binary(max_size=9))
def test_leading_words_are_zero_behind_the_end_of_a_piece(pieces, rest):
    memory = np.frombuffer(b"".join(pieces) + rest, np.uint8)
    sizes = np.array([len(piece) for piece in pieces], np.int64)
    expected = [int.from_bytes(piece[:8], "little") for piece in pieces]
    assert leading_words(memory, np.cumsum(sizes) - sizes, sizes).tolist() == expected


@pytest.mark.parametrize("kind", [np.int8, np.uint16, np.int64])
def test_indices_beyond_the_values_are_damage(kind):
    check_places(np.array([0, 2], kind), 3)
    check_places(np.array([], kind), 0)
    for index in (3, -1):
        with pytest.raises(CorruptDataError, match="beyond 3 values"):
            check_places(np.array([0, index]).astype(kind), 3)
