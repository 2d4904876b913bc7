import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_core.encoding import kernels as memory
from lance_core.encoding.arrow_values import take_values, to_values
from lance_core.encoding.values import FixedValues
from lance_core.errors import CorruptDataError

DATA = np.arange(200, dtype=np.uint8)
ranges = st.lists(st.tuples(st.integers(0, 180), st.integers(0, 20)), max_size=12)


@pytest.fixture(autouse=True, scope="module", params=["few bytes", "few ranges", "many"])
def _ways_to_gather(request):
    """Few bytes, few ranges and many ranges take different ways; here all take each."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param != "few bytes":
            patch.setattr(memory, "_MOST_BYTES_ONE_BY_ONE", -1)
        if request.param == "many":
            patch.setattr(memory, "_MOST_RANGES_JOINED", 1)
        yield


def slow_gather(starts, sizes):
    return b"".join(DATA[s : s + n].tobytes() for s, n in zip(starts.tolist(), sizes.tolist(), strict=True))


@settings(derandomize=True, deadline=None)
@given(ranges, st.booleans())
def test_gather_takes_any_ranges(pairs, in_order):
    pairs = sorted(pairs) if in_order else pairs
    starts, sizes = np.array(pairs, np.int64).reshape(-1, 2).T
    assert memory.gather(DATA, starts, sizes).tobytes() == slow_gather(starts, sizes)


def test_so_much_is_done_before_kernels_are_imported_in_all(monkeypatch):
    """Not so much in each call: a stream would pay more than the import for every million rows."""
    monkeypatch.setattr(memory, "_KERNELS", "not imported")
    done = memory._BeforeImport(8)
    assert [done.allows(number) for number in (4, 4, 3, 2)] == [True, True, False, False]
    monkeypatch.setattr(memory, "_KERNELS", "sys")
    assert not memory._BeforeImport(8).allows(3)


@pytest.mark.parametrize("most", [0, 1 << 20])
@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.float16, np.float64])
def test_numbers_are_taken_by_numpy_and_by_kernels(monkeypatch, most, dtype):
    monkeypatch.setattr(memory, "_MOST_TAKEN_BY_NUMPY", most)
    numbers, rng = np.arange(200).astype(dtype), np.random.default_rng(3)
    for index_type in (np.uint8, np.uint16, np.int32, np.int64):
        for count in (0, 1, 900):
            indices = rng.integers(0, 100, count).astype(index_type)
            for some in (numbers, numbers[3:], numbers[::2]):
                taken = memory.take_numbers(some, indices)
                assert taken.dtype == dtype
                assert np.array_equal(taken, some[indices])


@pytest.mark.parametrize("step", [5, 7, 40])
def test_gather_of_even_ranges(step):
    starts = np.arange(4, dtype=np.int64) * step + 3
    sizes = np.full(4, 5)
    assert memory.gather(DATA, starts, sizes).tobytes() == slow_gather(starts, sizes)


def test_adjoining_ranges_are_a_view():
    data = np.zeros(1 << 15, np.uint8)
    assert np.shares_memory(memory.gather(data, np.array([10, 9010]), np.array([9000, 9000])), data)


@settings(derandomize=True, deadline=None)
@given(ranges.filter(len), st.booleans(), st.binary(min_size=1, max_size=9), st.binary(min_size=1, max_size=9))
def test_ranges_stand_between_other_bytes(pairs, in_order, head, tail):
    pairs = sorted(pairs) if in_order else pairs
    starts, sizes = np.array(pairs, np.int64).reshape(-1, 2).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "_MOST_RANGES_JOINED", 2)
        found = memory.gather_between(DATA, starts, sizes, head, tail)
    assert found.tobytes() == head + slow_gather(starts, sizes) + tail
    found[:] = 0  # it is nobody else's
    assert DATA[1] == 1


def test_many_ranges_between_other_bytes():
    starts = np.arange(0, 190, 5)
    sizes = 3 + starts % 2
    assert memory.gather_between(DATA, starts, sizes, b"abc", b"de").tobytes() == (
        b"abc" + slow_gather(starts, sizes) + b"de"
    )


@settings(derandomize=True, deadline=None)
@given(ranges)
def test_aranges(pairs):
    starts, sizes = np.array(pairs, np.int64).reshape(-1, 2).T
    assert memory.aranges(starts, sizes).tolist() == [p for s, n in pairs for p in range(s, s + n)]


def test_join_ranges_takes_turns():
    words = np.frombuffer(b"abcdef", np.uint8), np.array([0, 1, 1, 6])
    numbers = np.frombuffer(b"1234", np.uint8), np.array([0, 2, 3, 4])
    joined, bounds = memory.join_ranges(words, numbers)
    assert joined.tobytes() == b"a12" + b"3" + b"bcdef4"
    assert bounds.tolist() == [0, 3, 4, 10]


@pytest.mark.parametrize("count", [-1, 1 << 62])
def test_nobody_gets_impossible_amounts_of_memory(count):
    with pytest.raises(CorruptDataError, match="would need"):
        memory.empty(count, np.uint64)


def test_chunk_counts():
    assert memory.chunk_counts(0, 8).tolist() == []
    assert memory.chunk_counts(16, 8).tolist() == [8, 8]
    assert memory.chunk_counts(17, 8).tolist() == [8, 8, 1]


def test_fitting_count():
    assert memory.fitting_count(8, 64) == 8
    assert memory.fitting_count(9, 64) == 4
    assert memory.fitting_count(1000, 64) == 2
    assert memory.fitting_count(0.125, 1 << 20, most=4096) == 4096


@pytest.mark.parametrize("places", [[0, 3], [3], [2, 1, 5, 0]])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int64])
def test_places_beyond_the_values_are_found(places, dtype):
    with pytest.raises(CorruptDataError, match="beyond 3 values"):
        memory.check_places(np.array(places, dtype), 3)


def test_places_before_the_values_are_found():
    with pytest.raises(CorruptDataError, match="beyond 3 values"):
        memory.check_places(np.array([2, -1]), 3)


@pytest.mark.parametrize("places", [[], [0, 2, 2, 1]])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int64])
def test_places_inside_are_taken(places, dtype):
    values, wanted = pa.array(["x", None, "yz"]), np.array(places, dtype)
    memory.check_places(wanted, len(values))
    assert memory.take_inside(values, wanted).to_pylist() == [values[place].as_py() for place in places]


@pytest.mark.parametrize("count", [10, 1 << 16])
@pytest.mark.parametrize("values", [FixedValues(np.arange(3.0)), to_values(pa.array(["x", "", "yz"]))])
def test_values_are_only_taken_from_where_they_are(values, count):
    for wrong in (3, -1):
        places = np.zeros(count, np.int64)
        places[-1] = wrong
        with pytest.raises(CorruptDataError, match="beyond 3 values"):
            take_values(values, places)


@pytest.mark.parametrize("width", [0, 1, 2, 7, 8, 16, 100])
def test_windows_lie_anywhere(width):
    starts = np.array([0, 3, 4, 100, 200 - width, 4])
    windows = memory.gather_windows(DATA, starts, width)
    assert windows.shape == (6, width)
    assert windows.tolist() == [DATA[start : start + width].tolist() for start in starts.tolist()]
    assert memory.gather_windows(DATA, starts[:0], width).shape == (0, width)


def test_windows_do_not_leave_their_memory():
    with pytest.raises(IndexError):
        memory.gather_windows(DATA, np.array([0, 193]), 8)


@pytest.mark.parametrize("dtype", [np.uint8, np.bool_, np.int64])
def test_where_many_ranges_start_is_in_arrows_pool(dtype):
    """Numpy's memory of this size may be mapped anew for each call, which costs a page fault for every 4 KiB."""
    sizes = np.arange(100_000).astype(dtype)
    tracemalloc.start()
    try:
        starts = memory.starts_of(sizes)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 17
    assert starts.tolist() == [0, *np.cumsum(sizes, dtype=np.int64).tolist()]
