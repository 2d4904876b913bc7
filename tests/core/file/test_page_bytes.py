"""A scan asks a store for whole pages, in few requests, and for no byte twice."""

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.encoding.plans import ByteRanges
from lance_core.file.read import page_bytes, strategy
from lance_core.file.read.page_bytes import PageBytes
from lance_core.store.coalesce import plan_reads
from lance_core.store.range_reader import Deferred
from lance_core.testing.counting_store import open_counting

FILE = np.random.default_rng(0).integers(0, 256, 100_000, np.uint8)
COLUMNS = [[(0, 9_000), (30_000, 41_000), (60_000, 90_000)], [(9_000, 9_500), (41_000, 60_000)], []]


class Asked:
    """Reads ranges of a file in memory, and remembers them."""

    def __init__(self):
        self.calls = []
        self.under_way = set()

    def begin(self, ranges):
        self.calls.append(list(ranges))
        self.under_way.add(number := len(self.calls))

        def read():
            self.under_way.discard(number)
            return [pa.py_buffer(FILE[start:end].tobytes()) for start, end in ranges]

        pending = Deferred(read)
        pending.cancel = lambda: self.under_way.discard(number)
        return pending

    def times_asked(self):
        times = np.zeros(len(FILE), np.int64)
        for start, end in (one for call in self.calls for one in call):
            times[start:end] += 1
        return times


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(strategy, "MOST_OF_A_COLUMN", 10_000)
    monkeypatch.setattr(strategy, "LEAST_OF_A_COLUMN", 1_000)


def content(found, start, end):
    place = int(found.in_memory(np.array([start]))[0])
    return bytes(found.memory[place : place + end - start])


@pytest.mark.usefixtures("small")
def test_ascending_ranges_are_answered_and_no_byte_is_asked_for_twice():
    asked = Asked()
    pages = PageBytes(asked.begin, COLUMNS)
    ends = [np.concatenate([np.arange(*page) for page in column]) for column in COLUMNS[:2]]
    held = []
    for window in range(20):
        cuts = [np.linspace(0, len(one), 21).astype(int) for one in ends]
        wanted = []
        for places, cut in zip(ends, cuts, strict=True):
            part = places[cut[window] : cut[window + 1]]
            breaks = np.flatnonzero(np.diff(part) > 1) + 1
            wanted.append([(int(one[0]), int(one[-1]) + 1) for one in np.split(part, breaks)])
        spots = ByteRanges(*np.array(wanted[0]).T)
        found, *buffers = pages.answer([spots, *wanted[1]])
        assert all(content(found, *one) == FILE[slice(*one)].tobytes() for one in wanted[0])
        assert all(b.to_pybytes() == FILE[slice(*one)].tobytes() for b, one in zip(buffers, wanted[1], strict=True))
        pages.next_window()
        coming = [end - start for call in asked.under_way for start, end in asked.calls[call - 1]]
        held.append(sum(one.size for one in pages._pieces.values()) + sum(coming))
    assert asked.times_asked()[:9_500].tolist() == [1] * 9_500
    assert asked.times_asked()[30_000:90_000].tolist() == [1] * 60_000
    assert asked.times_asked().sum() == 69_500
    assert len([one for call in asked.calls for one in call]) <= 10
    assert max(held) <= 40_000, "two columns, a run of each and the next one"


@pytest.mark.usefixtures("small")
def test_the_next_run_is_under_way_while_one_is_decoded():
    asked = Asked()
    pages = PageBytes(asked.begin, COLUMNS)
    pages.answer([(0, 10)])
    assert asked.calls == [[(0, 9_000), (9_000, 9_500)], [(30_000, 35_500)]]
    assert asked.under_way == {2}
    pages.answer([(30_000, 30_010)])
    assert asked.under_way == {3}
    pages.close()
    assert not asked.under_way


@pytest.mark.usefixtures("small")
def test_what_is_no_page_is_read_as_it_is_asked_for():
    asked = Asked()
    pages = PageBytes(asked.begin, COLUMNS)
    found, gap, nothing, other = pages.answer(
        [ByteRanges(np.array([9_400, 95_000]), np.array([9_500, 95_010])), (9_490, 9_510), (5, 5), (0, 10)]
    )
    assert content(found, 9_400, 9_500) == FILE[9_400:9_500].tobytes()
    assert content(found, 95_000, 95_010) == FILE[95_000:95_010].tobytes()
    assert gap.to_pybytes() == FILE[9_490:9_510].tobytes()
    assert (nothing.size, other.to_pybytes()) == (0, FILE[:10].tobytes())
    assert sorted(asked.calls[0]) == [(0, 9_000), (9_000, 9_500), (9_490, 9_510), (95_000, 95_010)]


def test_pages_that_overlap_are_not_fetched_as_a_whole():
    asked = Asked()
    pages = PageBytes(asked.begin, [[(0, 9_000)], [(8_000, 10_000)]])
    assert pages.answer([(10, 20)])[0].to_pybytes() == FILE[10:20].tobytes()
    assert asked.calls == [[(10, 20)]]


ROWS = 300_000


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    """Three columns of some MB each; random, so that pages are as large as what is in them."""
    rng = np.random.default_rng(3)
    texts = pa.array([f"{one:x} of {two:x}" for one, two in rng.integers(0, 1 << 60, (ROWS, 2)).tolist()])
    sizes = rng.integers(0, 4, ROWS)
    lists = pa.ListArray.from_arrays(
        np.append(0, np.cumsum(sizes)).astype(np.int32), rng.integers(0, 1 << 60, int(sizes.sum()))
    )
    uri = tmp_path_factory.mktemp("pages") / "t"
    lance_core.write_dataset(pa.table({"number": rng.integers(0, 1 << 60, ROWS), "text": texts, "list": lists}), uri)
    return uri


def data_bytes(uri):
    return sum(one.stat().st_size for one in (uri / "data").iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("read", ["to_table", "to_batches"])
def test_a_scan_in_many_steps_asks_once_for_all_there_is(uri, monkeypatch, read):
    monkeypatch.setattr(strategy, "WINDOW_BYTES", 1 << 20)
    monkeypatch.setattr(strategy, "MOST_OF_A_COLUMN", 1 << 21)
    monkeypatch.setattr(strategy, "LEAST_OF_A_COLUMN", 1 << 21)
    table, counts = open_counting(uri)
    table.head(1)
    counts.clear()
    found = table.to_table() if read == "to_table" else pa.Table.from_batches(table.to_batches())
    assert found.equals(lance_core.dataset(uri).to_table())
    size = data_bytes(uri)
    assert counts.num_bytes <= size * 1.02, "blocks of checksums at the ends of runs are read with both"
    assert counts.num_requests <= size / (1 << 20)
    spans = [(span.start, span.end) for call in counts.calls for span in plan_reads(call).spans]
    times = np.zeros(size // 1024 + 1, np.int64)
    for start, end in spans:
        times[start // 1024 + 1 : end // 1024] += 1
    assert (times > 1).mean() < 0.02


def test_rows_that_touch_nearly_all_chunks_bring_pages_in_one_step(uri):
    table, counts = open_counting(uri)
    table.head(1, columns=["number"])
    counts.clear()
    rows = np.flatnonzero(np.random.default_rng(5).random(ROWS) < 0.02)
    found = table.take(rows, columns=["text", "list"])
    assert found.equals(lance_core.dataset(uri).take(rows, columns=["text", "list"]))
    assert len(counts.calls) == 1
    assert counts.num_bytes < data_bytes(uri) - 8 * ROWS + (1 << 17), "texts and lists, but no numbers"


def test_rows_that_touch_some_chunks_ask_where_they_are(uri):
    table, counts = open_counting(uri)
    table.head(1, columns=["number"])
    counts.clear()
    rows = np.arange(0, ROWS, ROWS // 50)
    assert table.take(rows, columns=["text"]).equals(lance_core.dataset(uri).take(rows, columns=["text"]))
    assert len(counts.calls) == 2
    assert counts.num_bytes < data_bytes(uri) / 10


def test_a_part_of_a_page_does_not_fetch_the_page(uri):
    table, counts = open_counting(uri)
    table.head(1)
    counts.clear()
    assert table.to_table(columns=["number"], offset=1000, limit=5000).num_rows == 5000
    assert counts.num_bytes < 5000 * 8 + (1 << 18)


def test_a_mapped_file_is_not_copied(uri, monkeypatch):
    def refuse(*_):
        raise AssertionError("pages of a mapped file are held")

    monkeypatch.setattr(page_bytes, "PageBytes", refuse)
    assert lance_core.dataset(uri).to_table().num_rows == ROWS
