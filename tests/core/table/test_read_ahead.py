"""Reading several fragments at the same time, where their store is far away."""

import sys
import threading
import time
from concurrent.futures import Future
from contextvars import ContextVar
from functools import partial

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.file.integrity import BlockChecks
from lance_core.scan import take
from lance_core.store import local
from lance_core.store.local_reader import LocalReader
from lance_core.store.memory import MemoryStore
from lance_core.store.open import open_store
from lance_core.store.range_reader import Deferred
from lance_core.store.tasks import blocking, wait_for
from lance_core.table import read_ahead
from lance_core.table.read_ahead import Work, chained, computed, each, in_turn
from lance_core.table.snapshot import open_snapshot

WAIT_S = 30
ROWS, FRAGMENTS = 100, 12


class FarStore(MemoryStore):
    """In memory, but says that it is far away."""

    at_once = 4


def _together(barrier, value):
    """Comes back only if as many others are at it as the barrier wants."""
    blocking(lambda: barrier.wait(WAIT_S))
    return value


def test_works_are_done_together_and_answer_in_order():
    barrier = threading.Barrier(4)
    assert list(each(FarStore(), (partial(_together, barrier, one) for one in range(12)))) == list(range(12))


def test_a_store_that_is_near_is_read_without_threads():
    here = threading.get_ident()
    assert set(each(MemoryStore(), [threading.get_ident] * 3)) == {here}
    assert set(chained(MemoryStore(), [Work(lambda: iter([threading.get_ident()]))] * 3)) == {here}


@pytest.mark.parametrize("is_at_hand", [False, True])
def test_bytes_at_hand_are_read_in_the_thread_of_the_tasks(is_at_hand):
    def read():
        reader = Deferred(threading.get_ident, is_at_hand=is_at_hand)
        return threading.get_ident() == reader.result()

    assert list(computed(FarStore(), [Work(read)] * 3)) == [is_at_hand] * 3


def test_the_first_failure_is_raised_and_nothing_much_later_is_begun():
    begun = []

    def work(number):
        begun.append(number)
        if number in (3, 4):
            raise CorruptDataError(f"work {number}")
        return number

    found = []
    with pytest.raises(CorruptDataError, match="work 3"):
        found.extend(each(FarStore(), (partial(work, number) for number in range(100))))
    assert found == [0, 1, 2]
    assert max(begun) <= 3 + FarStore.at_once + 1


def test_works_that_wait_let_the_next_one_ask():
    told = []

    def work(number):
        for step in ("end", "pages"):
            told.append((step, number))
            yield
        told.append(("decode", number))
        return number

    assert list(in_turn(MemoryStore(), (partial(work, number) for number in range(4)))) == [0, 1, 2, 3]
    for number in range(3):
        assert told.index(("end", number + 1)) < told.index(("pages", number))
        assert told.index(("pages", number + 1)) < told.index(("decode", number))
    for number in range(2):
        assert told.index(("decode", number)) < told.index(("pages", number + 2)), "none is begun long before its turn"


def test_of_works_that_wait_the_first_failure_is_raised():
    def work(number):
        if number == 3:
            raise CorruptDataError("work 3")
        yield
        yield
        if number == 2:
            raise CorruptDataError("work 2")
        return number

    for store in (MemoryStore(), FarStore()):
        found = []
        with pytest.raises(CorruptDataError, match="work 2"):
            found.extend(in_turn(store, (partial(work, number) for number in range(9))))
        assert found == [0, 1]


def test_works_that_wait_are_done_together_where_that_takes_long():
    barrier = threading.Barrier(4)

    def work(number):
        yield
        return _together(barrier, number)

    assert list(in_turn(FarStore(), (partial(work, one) for one in range(12)))) == list(range(12))


def test_streams_go_on_together_and_are_chained():
    barrier = threading.Barrier(4)

    def stream(number):
        yield _together(barrier, (number, 0))
        yield (number, 1)

    found = list(chained(FarStore(), (Work(partial(stream, number)) for number in range(8))))
    assert found == [(number, part) for number in range(8) for part in range(2)]


def test_streams_stay_few_results_ahead_and_end_with_their_reader():
    made = []

    def stream(number):
        for part in range(1000):
            made.append((number, part))
            yield number, part

    results = chained(FarStore(), (Work(partial(stream, number)) for number in range(1000)))
    assert [next(results) for _ in range(10)] == [(0, part) for part in range(10)]
    results.close()
    assert not [one for one in threading.enumerate() if one.name == "lance_core_tasks"]
    assert len({number for number, _ in made}) <= 4, "no other stream was begun"
    assert max(part for _, part in made) <= 10 + 2 + 1


class WideStore(MemoryStore):
    """In memory, but says that it is far away and bears many requests."""

    at_once = 16


def _counted(running, number):
    """Ask the store twice, then compute; note how many others do the same."""

    def ask():
        with running.lock:
            running.asking.add(number)
            running.most_asking = max(running.most_asking, len(running.asking))
        time.sleep(0.005)

    for _ in range(2):
        blocking(ask)
    running.computed.append(number)
    running.computing += 1
    running.most_computing = max(running.most_computing, running.computing)
    time.sleep(0.002)
    running.computing -= 1
    yield number
    running.asking.discard(number)


class Running:
    """What streams are at."""

    def __init__(self):
        self.lock = threading.Lock()
        self.asking, self.most_asking = set(), 0
        self.computed, self.computing, self.most_computing = [], 0, 0


def test_streams_ask_together_and_compute_one_at_a_time():
    running = Running()
    assert list(chained(WideStore(), (Work(partial(_counted, running, one)) for one in range(40)))) == list(range(40))
    assert running.most_asking > 4
    assert running.most_computing == 1


def test_only_the_first_streams_compute_before_their_results_are_wanted():
    running = Running()
    results = chained(WideStore(), (Work(partial(_counted, running, one)) for one in range(40)))
    assert next(results) == 0
    time.sleep(0.1)
    assert set(running.computed) <= {0, 1, 2, 3}
    assert len(running.asking) > 4, "the others have asked"
    assert list(results) == list(range(1, 40))


@pytest.mark.parametrize("run", [chained, computed])
def test_stored_bytes_bound_what_is_read_ahead(monkeypatch, run):
    monkeypatch.setattr(read_ahead, "MOST_AHEAD", 100)
    running = Running()
    works = [Work(partial(_counted, running, one), 30 if one % 5 else 400) for one in range(20)]
    if run is computed:
        works = [Work(lambda begin=work.begin: next(iter([*begin()])), work.num_bytes) for work in works]
    assert list(run(WideStore(), works)) == list(range(20))
    assert running.most_asking <= 3, "three of 30 bytes, or one of 400 alone"


def test_a_stream_that_fails_answers_with_what_it_had_first():
    def stream(number):
        yield number
        if number == 2:
            raise CorruptDataError("stream 2")

    found = []
    with pytest.raises(CorruptDataError, match="stream 2"):
        found.extend(chained(FarStore(), (Work(partial(stream, number)) for number in range(9))))
    assert found == [0, 1, 2]


def test_a_task_may_read_ahead_itself():
    barrier = threading.Barrier(4)

    def work(number):
        inner = chained(FarStore(), [Work(partial(_parts, number, part)) for part in range(3)])
        return sum(inner) + _together(barrier, 0)

    assert list(computed(FarStore(), [Work(partial(work, number)) for number in range(4)])) == [3, 33, 63, 93]


def _parts(number, part):
    blocking(lambda: time.sleep(0.001))
    yield number * 10 + part


def test_a_read_that_nobody_wants_any_more_is_cancelled_and_what_is_open_is_closed():
    asked, closed = [], []

    def stream(number):
        try:
            yield number
            read = Future()
            asked.append(read)
            try:
                yield wait_for(read)
            except BaseException:
                read.cancel()
                raise
        finally:
            closed.append(number)

    results = chained(FarStore(), [Work(partial(stream, number)) for number in range(4)])
    assert next(results) == 0
    while len(asked) < 4:
        time.sleep(0.001)
    results.close()
    assert all(read.cancelled() for read in asked)
    assert sorted(closed) == [0, 1, 2, 3]


@pytest.mark.parametrize("run", [chained, computed])
def test_a_missing_greenlet_is_named(monkeypatch, run):
    monkeypatch.setitem(sys.modules, "greenlet", None)
    with pytest.raises(UnsupportedError, match="pip install greenlet"):
        list(run(FarStore(), [Work(lambda: iter([1]))]))


def test_tasks_see_the_context_of_their_reader():
    run = ContextVar("run", default="none")
    run.set("this one")
    assert list(computed(FarStore(), [Work(lambda: blocking(run.get)), Work(run.get)])) == ["none", "this one"]


# ------------------------------------------------------------------------------------------------------------- tables


class Slow:
    """A store that is far away: who opens a data file waits for others who do."""

    at_once = 4

    def __init__(self, inner):
        self._inner = inner
        self._lock, self._others, self._now = threading.Lock(), threading.Event(), 0
        self.opened = []
        self.most = 0

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def sized_reader(self, path, _size, /, **_options):
        return self.reader(path)

    def reader(self, path, /):
        return blocking(lambda: self._reader(path))

    def _reader(self, path):
        with self._lock:
            self.opened.append(path)
            self._now += 1
            self.most = max(self.most, self._now)
            if self._now > 1:
                self._others.set()
        self._others.wait(2)
        try:
            return self._inner.reader(path)
        finally:
            with self._lock:
                self._now -= 1


@pytest.fixture
def table():
    return pa.table({"n": np.arange(ROWS * FRAGMENTS), "s": [f"text {n % 7}" for n in range(ROWS * FRAGMENTS)]})


@pytest.fixture
def far(tmp_path, table):
    uri = str(tmp_path / "t.lance")
    lance_core.write_dataset(table, uri, max_rows_per_file=ROWS).delete("n % 50 = 7")
    store = Slow(open_store(uri))
    dataset = lance_core.LanceDataset(uri, snapshot=open_snapshot(store))
    store.opened.clear()
    return dataset, store


@pytest.mark.parametrize(
    "ask",
    [
        lambda found: found.to_table(),
        lambda found: found.to_table(filter="n % 3 = 1"),
        lambda found: found.take(list(range(0, 1000, 37))[::-1]),
        lambda found: pa.table({"n": [found.count_rows("s = 'text 3'")]}),
        lambda found: found.to_table(limit=700, offset=210),
        lambda found: found.scanner(order_by=["s", "n"], limit=450).to_table(),
    ],
)
def test_answers_are_those_of_a_near_table(far, ask):
    dataset, store = far
    assert ask(dataset) == ask(lance_core.dataset(dataset.uri))
    assert store.most > 1


def test_marks_of_a_delete_are_found_together(far):
    dataset, store = far
    before = dataset.count_rows()
    assert dataset.delete("s = 'text 3'")["num_deleted_rows"] == before - dataset.count_rows()
    assert store.most > 1
    assert not lance_core.dataset(dataset.uri).count_rows("s = 'text 3'")


def test_a_limit_opens_no_more_files_than_it_needs(far):
    dataset, store = far
    assert dataset.to_table(limit=98 * 2).num_rows == 98 * 2
    assert len(set(store.opened)) == 2
    store.opened.clear()
    assert dataset.to_table(filter="n >= 400", limit=1).num_rows == 1
    assert len(set(store.opened)) <= 3, "of what comes behind a match nothing is read"


def test_rows_of_the_next_fragment_are_asked_for_before_those_of_one_are_looked_at(tmp_path, table, monkeypatch):
    """Files may not be in memory: the disk is to have something to do while rows are decoded."""
    monkeypatch.setattr(take, "pays_together", lambda *_, **_named: False)
    monkeypatch.setattr(local, "_SMALL_FILE", 0)
    uri = str(tmp_path / "t.lance")
    lance_core.write_dataset(table, uri, max_rows_per_file=ROWS * FRAGMENTS // 3)
    told = []
    announce, check = LocalReader.announce, BlockChecks.check

    def announced(reader, starts, ends):
        told.append(("end" if int(ends[-1]) == reader.size else "rows", reader._path))
        announce(reader, starts, ends)

    def checked(checks, data, starts, ends, *, at=0):
        told.append(("checked", None))
        check(checks, data, starts, ends, at=at)

    monkeypatch.setattr(LocalReader, "announce", announced)
    monkeypatch.setattr(BlockChecks, "check", checked)
    wanted = list(range(0, ROWS * FRAGMENTS, 97))
    assert lance_core.dataset(uri).take(wanted).equals(table.take(wanted))
    told.clear()
    assert lance_core.dataset(uri).take(wanted).equals(table.take(wanted))
    steps = [step for step, _ in told]
    assert steps[:2] == ["end", "end"], "of two files before the first is opened"
    firsts = [at for at, step in enumerate(steps) if step == "rows"]
    assert len(firsts) == 3
    assert len({told[at][1] for at in firsts}) == 3
    # The end of the second file is checked in between, no rows of the first are.
    assert steps[firsts[0] : firsts[1]].count("checked") == 1
