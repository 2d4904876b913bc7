"""Work on several fragments at the same time where their store is far away; results keep their order.

Of a store that answers at once nothing is read ahead: threads would only take turns.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Semaphore
from typing import TYPE_CHECKING, Generic, TypeVar

from lance_core.table.places import objects_at_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Future

    from lance_core.store.base import Store

_T = TypeVar("_T")

_STREAMS = 4
"""Streams that go on at the same time. Each holds what it decodes and `_WAITING` results."""
_WAITING = 2


def each(store: Store, works: Iterable[Callable[[], _T]]) -> Iterator[_T]:
    """What works come to, in their order.

    Args:
        store: What they read.
        works: May be done at the same time, in threads. None is begun long before its turn.

    Raises:
        Exception: Of the first work that fails; later ones may have been done.
    """
    at_once = objects_at_once(store)
    if at_once < 2:
        yield from (work() for work in works)
        return
    waiting: deque[Future[_T]] = deque()
    with ThreadPoolExecutor(at_once) as pool:
        try:
            for work in works:
                waiting.append(pool.submit(work))
                if len(waiting) > at_once:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for one in waiting:
                one.cancel()


def chained(store: Store, streams: Iterable[Callable[[], Iterator[_T]]]) -> Iterator[_T]:
    """All results of streams, one stream after the other.

    Args:
        store: What they read.
        streams: May go on at the same time, in threads, a few results ahead. None is begun long before its turn.

    Raises:
        Exception: Of the first stream that fails, after what it came to before.
    """
    at_once = min(_STREAMS, objects_at_once(store))
    if at_once < 2:
        for begin in streams:
            yield from begin()
        return
    going: deque[_Stream[_T]] = deque()
    with ThreadPoolExecutor(at_once) as pool:
        try:
            for begin in streams:
                going.append(_Stream(begin))
                pool.submit(going[-1].run)
                if len(going) == at_once:
                    yield from going[0].results()
                    going.popleft()
            while going:
                yield from going[0].results()
                going.popleft()
        finally:
            for one in going:
                one.stop()


@dataclass(slots=True)
class _Stream(Generic[_T]):
    """Results that a thread puts down, not many at a time, and their reader takes."""

    begin: Callable[[], Iterator[_T]]
    _found: SimpleQueue[tuple[_T] | BaseException | None] = field(default_factory=SimpleQueue)
    _room: Semaphore = field(default_factory=lambda: Semaphore(_WAITING))
    _is_wanted: bool = True

    def run(self) -> None:
        """Go through the stream, in a thread."""
        if not self._is_wanted:
            return
        try:
            for one in self.begin():
                self._room.acquire()
                if not self._is_wanted:
                    return
                self._found.put((one,))
        except BaseException as error:  # noqa: BLE001 - told to the reader
            self._found.put(error)
        else:
            self._found.put(None)

    def results(self) -> Iterator[_T]:
        """What the thread puts down, until the stream ends or fails."""
        while True:
            found = self._found.get()
            if found is None:
                return
            if isinstance(found, BaseException):
                raise found
            yield found[0]
            self._room.release()

    def stop(self) -> None:
        """Let the thread end at its next result."""
        self._is_wanted = False
        self._room.release()
