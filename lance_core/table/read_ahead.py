"""Work on several fragments at the same time where their store is far away; results keep their order.

Of a store that answers at once nothing is read ahead by threads, which would only take turns. Works that stop where
they have asked for bytes let the next ones ask meanwhile, since files may not be in memory.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import field
from functools import partial
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lance_core.common.frozen import NamedTuple, mutable
from lance_core.store.io_coroutines import finished
from lance_core.store.tasks import Tasks, wait_for
from lance_core.table.locations import objects_at_once, waits_in_tasks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lance_core.store.base import Store
    from lance_core.store.io_coroutines import IoCoroutine

_T = TypeVar("_T")
_U = TypeVar("_U")

MOST_AHEAD = 1 << 28
"""Stored bytes of the streams and works that go on at the same time, as far as they hold them: 256 MiB. One may be
larger, and then goes on alone."""

_COMPUTED_AHEAD = 4
"""Streams that may compute at the same time, in turns; those behind them have only asked. Each holds what it decodes
and `_WAITING` results."""
_WAITING = 2


class Work(NamedTuple, Generic[_T]):
    """A work that reads and computes, in turns with others.

    Attributes:
        begin: Does it.
        num_bytes: Stored bytes that it holds at the same time, about.
    """

    begin: Callable[[], _T]
    num_bytes: int = 0


def each(store: Store, works: Iterable[Callable[[], _T]]) -> Iterator[_T]:
    """Yield the results of works in their order.

    Args:
        store: What they read.
        works: May be done at the same time, as tasks of one thread, or in threads if the store blocks them. None is
            begun long before its turn.

    Raises:
        Exception: Of the first work that fails; later ones may have been done.
    """
    at_once = objects_at_once(store)
    if at_once < 2:
        yield from (work() for work in works)
        return
    if waits_in_tasks(store):
        yield from computed(store, map(Work, works))
        return
    with ThreadPoolExecutor(at_once) as pool:
        yield from _each(lambda work, _: pool.submit(work.begin), at_once, map(Work, works))


def computed(store: Store, works: Iterable[Work[_T]], *, num_asks: int = 1) -> Iterator[_T]:
    """As `each`, of works that compute with what they read: they read at the same time, and compute in turns.

    Args:
        store: What they read.
        works: The works.
        num_asks: How often each asks the store before it has much to compute.
    """
    at_once = objects_at_once(store)
    if at_once < 2:
        yield from (work.begin() for work in works)
        return
    tasks = Tasks()  # results are small, and all may be computed ahead

    def begin(work: Work[_T], number: int) -> Future[_T]:
        result: Future[_T] = Future()
        tasks.start(partial(_tell, result, work), number=number, num_asks=num_asks)
        return result

    try:
        yield from _each(begin, at_once, works)
    finally:
        tasks.end()


def _tell(result: Future[_T], work: Work[_T]) -> None:
    """Do a work and tell its result, unless nobody wants it."""
    if not result.set_running_or_notify_cancel():
        return
    try:
        result.set_result(work.begin())
    except BaseException as error:  # noqa: BLE001 - told to the reader
        result.set_exception(error)


def _each(begin: Callable[[Work[_T], int], Future[_T]], at_once: int, works: Iterable[Work[_T]]) -> Iterator[_T]:
    going: deque[tuple[Future[_T], int]] = deque()
    try:
        for number, work in enumerate(works):
            while going and (len(going) >= at_once or _num_bytes(going) + work.num_bytes > MOST_AHEAD):
                yield wait_for(going.popleft()[0])
            going.append((begin(work, number), work.num_bytes))
        if going:
            # The last one ends last, as a rule: to be woken up by each would cost more than some results.
            with suppress(Exception):
                wait_for(going[-1][0])
        while going:
            yield wait_for(going.popleft()[0])
    finally:
        for result, _ in going:
            result.cancel()


def _num_bytes(going: Iterable[tuple[Any, int]]) -> int:
    return sum([num_bytes for _, num_bytes in going])


def in_turn(store: Store, works: Iterable[Callable[[], IoCoroutine[_T]]]) -> Iterator[_T]:
    """As `each`, of works that stop where they have asked for bytes: each is a step behind the one after it.

    So the last ones to begin have asked before the first is decoded, and the disk has something to do meanwhile.
    """
    if objects_at_once(store) > 1:
        yield from computed(store, (Work(partial(_whole, begin)) for begin in works), num_asks=3)
        return
    begun = iter(works)
    first, second = next(begun, None), next(begun, None)
    if first is not None and second is None:  # nobody else has anything to do meanwhile
        yield finished(first())
        return
    going: deque[_Going[_T]] = deque()
    for begin in chain((coroutine for coroutine in (first, second) if coroutine is not None), begun):
        going.append(_Going(begin()))
        yield from _stepped(going)
    while going:
        yield from _stepped(going)


def _whole(begin: Callable[[], IoCoroutine[_T]]) -> _T:
    return finished(begin())


def _stepped(going: deque[_Going[_T]]) -> Iterator[_T]:
    """Let each work take a step, the last one first; results of those that are done and have none before them."""
    for coroutine in reversed(going):
        coroutine.step()
    while going and going[0].is_done:
        yield going.popleft().result()


@mutable
class _Going(Generic[_T]):
    """A work that takes steps."""

    work: IoCoroutine[_T]
    is_done: bool = False
    _results: list[_T] = field(default_factory=list[_T])
    _error: Exception | None = None

    def step(self) -> None:
        """Go on to where it has to wait; what it fails with is told to who wants its result."""
        if self.is_done:
            return
        try:
            next(self.work)
        except StopIteration as stop:
            self.is_done = True
            self._results.append(stop.value)
        except Exception as error:  # noqa: BLE001 - raised by `result`
            self.is_done = True
            self._error = error

    def result(self) -> _T:
        """Return the result of the coroutine."""
        if self._error is not None:
            raise self._error
        return self._results[0]


def chained(store: Store, streams: Iterable[Work[Iterator[_T]]], *, num_asks: int = 2) -> Iterator[_T]:
    """Yield all results of streams, one stream after the other.

    Args:
        store: What they read.
        streams: May go on at the same time, in threads that compute in turns, a few results ahead. None is begun long
            before its turn.
        num_asks: How often each asks the store before it has much to compute.

    Raises:
        Exception: Of the first stream that fails, after what it came to before.
    """
    at_once = objects_at_once(store)
    if at_once < 2:
        for work in streams:
            yield from work.begin()
        return
    tasks = Tasks(min(at_once, _COMPUTED_AHEAD))
    going: deque[tuple[_Results[_T], int]] = deque()
    try:
        for number, work in enumerate(streams):
            while going and (len(going) >= at_once or _num_bytes(going) + work.num_bytes > MOST_AHEAD):
                yield from going.popleft()[0]
                tasks.advance()
            results: _Results[_T] = _Results()
            tasks.start(partial(results.put_all, work.begin), number=number, num_asks=num_asks)
            going.append((results, work.num_bytes))
        while going:
            yield from going.popleft()[0]
            tasks.advance()
    finally:
        tasks.end()


class _Results(Generic[_T]):
    """Results of a stream that a task puts down, not many at a time, and their reader takes."""

    def __init__(self) -> None:
        self._results: deque[tuple[_T] | BaseException | None] = deque()
        self._changed: Future[None] = Future()
        self._lock = Lock()

    def put_all(self, begin: Callable[[], Iterator[_T]]) -> None:
        """Go through the stream."""
        end: BaseException | None = None
        try:
            for result in begin():
                self._await(lambda: len(self._results) < _WAITING)
                self._change(lambda result=result: self._results.append((result,)))
        except BaseException as error:  # noqa: BLE001 - told to the reader
            end = error
        self._change(lambda: self._results.append(end))

    def __iter__(self) -> Iterator[_T]:
        """Yield the results until the stream ends or fails."""
        while True:
            self._await(lambda: len(self._results) > 0)
            result = self._change(self._results.popleft)
            if result is None:
                return
            if isinstance(result, BaseException):
                raise result
            yield result[0]

    def _await(self, is_so: Callable[[], bool]) -> None:
        while True:
            with self._lock:
                if is_so():
                    return
                changed = self._changed
            wait_for(changed)

    def _change(self, change: Callable[[], _U]) -> _U:
        with self._lock:
            answer = change()
            changed, self._changed = self._changed, Future()
        changed.set_result(None)
        return answer
