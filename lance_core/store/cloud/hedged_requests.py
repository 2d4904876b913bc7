"""Requests to an object store that overlap: sent again if the store is silent, and given up at a deadline.

Hundreds may be on their way, and one that is no longer wanted is cancelled, which closes its connection. A request has
no thread: obstore's threads bring the answers, and `lance_core.store.cloud.answers` takes them there. An event loop
would be woken up for each request and each answer, which takes longer than a request itself.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from concurrent.futures import CancelledError, Future
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lance_core.common.frozen import frozen
from lance_core.errors import StoreTimeoutError
from lance_core.store.cloud.answers import Asked
from lance_core.store.tasks import wait_for
from lance_core.telemetry import StoreCall

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextlib import AbstractContextManager

_T = TypeVar("_T")
_LOGGER = logging.getLogger("lance_core.store")

SLOW_DOWNLOAD, SLOW_UPLOAD = 4 << 20, 1 << 18
"""Bytes per second: a store is not called silent before so many could have come, or been sent. To send a large object
twice over a slow line would take longer than to wait."""

_HEDGES_OF_REQUEST, _HEDGES = 2, 16
"""How often one request is sent again, and how many such requests of a connection are on their way at the same time."""

_EXIT_PAUSE_S = 0.02
"""Threads of obstore still put away answers that were taken already. One that asks for the interpreter when that is
gone aborts the process, after all its work was done: one process in ten on a busy machine."""


@frozen(kw_only=True)
class RequestSettings:
    """Times after which requests to a store are sent again, and given up.

    Attributes:
        hedge_after: Seconds of silence after which a request is sent again, the first answer wins; 0 for never.
        deadline: Seconds that one request may take with all of its repetitions.
    """

    hedge_after: float = 3.0
    deadline: float = 180.0


class Pending(Generic[_T]):
    """An answer that is on its way; see `lance_core.store.base.PendingRead`.

    Args:
        call: What observers are told of; it has begun.
        join: Makes the answer of those of all requests.
        blame: Makes errors of this package of those that a request fails with.
    """

    def __init__(self, call: StoreCall, join: Callable[[list[Any]], _T], blame: AbstractContextManager[None]) -> None:
        self._call = call
        self._join = join
        self._blame = blame
        self._future: Future[_T] = Future()
        self._requests: Sequence[_Request] = ()
        self._answers: dict[int, Any] = {}
        self._lock = threading.RLock()
        self._has_ended = False

    def start(self, requests: Sequence[_Request]) -> None:
        """Send requests."""
        self._requests = requests
        for request in requests:
            request.start()

    def result(self) -> _T:
        """Wait for the answer, once; raises what the request failed with."""
        with self._blame:
            return self.outcome()

    def outcome(self) -> _T:
        """As `result`, but raises errors as obstore does."""
        try:
            return wait_for(self._future)
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Say that nobody wants the answer."""
        if self._future.cancel():
            self._end(CancelledError())

    def tell(self, request: _Request, answer: Any, error: BaseException | None) -> None:
        """Tell what came of one of the requests; called by any thread."""
        with self._lock:
            self._answers[id(request)] = answer
            is_last = len(self._answers) == len(self._requests)
        if error is not None or is_last:
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        with self._lock:
            if self._has_ended:
                return
            self._has_ended = True
        for request in self._requests:
            request.end()
        if error is None:
            self._call.add(num_bytes=sum([request.num_bytes for request in self._requests]))
        self._call.__exit__(None if error is None else type(error), error, None)
        if not self._future.set_running_or_notify_cancel():
            return
        if error is None:
            self._future.set_result(self._join([self._answers[id(request)] for request in self._requests]))
        else:
            self._future.set_exception(error)


class HedgedRequests:
    """The requests of one connection.

    Args:
        settings: When they are sent again and given up.
        blame: Makes errors of this package; takes the address of an object.

    Attributes:
        settings: When they are sent again and given up.
        num_hedges: Repetitions that are on their way.
        lock: Of that, and of what changes about requests. All locks here may be taken twice, and none inside of
            another: a collection of garbage may find somebody who has stopped reading, and cancel requests, at any
            time.
    """

    def __init__(self, settings: RequestSettings, blame: Callable[[str], AbstractContextManager[None]]) -> None:
        self.settings = settings
        self.num_hedges = 0
        self.lock = threading.RLock()
        self._blame = blame

    def begin(
        self,
        ask: Callable[[], Awaitable[_T]],
        *,
        num_bytes: int,
        address: str,
        name: str = "store.get",
        is_repeatable: bool = True,
        slow_rate: int = SLOW_DOWNLOAD,
    ) -> Pending[_T]:
        """Begin a request.

        Args:
            ask: Sends it; called again to hedge it.
            num_bytes: Size of the request or its answer, as far as it is known.
            address: Of the object, for errors.
            name: Of the call, for observers.
            is_repeatable: False if it must not be on its way twice.
            slow_rate: Bytes per second that may be expected of any line.
        """
        call = StoreCall(name, address, is_scoped=False)
        return self._begin([(ask, num_bytes)], _only, call, is_repeatable=is_repeatable, slow_rate=slow_rate)

    def begin_all(
        self, asks: Sequence[tuple[Callable[[], Awaitable[list[_T]]], int]], *, address: str
    ) -> Pending[list[_T]]:
        """Begin several reads with several answers each, which are given one after the other; see `begin`."""
        call = StoreCall("store.get_ranges", address, is_scoped=False, requests=len(asks))
        return self._begin(asks, _joined, call)

    def _begin(
        self,
        asks: Sequence[tuple[Callable[[], Awaitable[Any]], int]],
        join: Callable[[list[Any]], Any],
        call: StoreCall,
        *,
        is_repeatable: bool = True,
        slow_rate: int = SLOW_DOWNLOAD,
    ) -> Pending[Any]:
        pending = Pending(call.__enter__(), join, self._blame(call.uri))
        hedge_after = self.settings.hedge_after
        most_asked = 1 + _HEDGES_OF_REQUEST if is_repeatable and hedge_after else 1
        requests: list[_Request] = []
        for ask, num_bytes in asks:
            patience = hedge_after + num_bytes / slow_rate
            requests.append(
                _Request(self, ask, num_bytes, pending, address=call.uri, most_asked=most_asked, patience=patience)
            )
        pending.start(requests)
        return pending


class _Request:
    """A request and its repetitions. Several threads may tell it something at the same time.

    Args:
        requests: Those of its connection.
        ask: Sends it.
        num_bytes: As of `HedgedRequests.begin`.
        pending: Is told the answer, or what the last of the repetitions failed with.
        address: Of the object.
        most_asked: How often it may be sent.
        patience: Seconds of silence after which it is sent again.

    Attributes:
        num_bytes: Size of the request or its answer.
        due: Time of `time.monotonic` at which `look` is called, if it has no answer until then.
    """

    __slots__ = (
        "_address",
        "_ask",
        "_asked",
        "_deadline",
        "_has_ended",
        "_most_asked",
        "_num_asked",
        "_patience",
        "_pending",
        "_requests",
        "due",
        "num_bytes",
    )

    def __init__(
        self,
        requests: HedgedRequests,
        ask: Callable[[], Awaitable[Any]],
        num_bytes: int,
        pending: Pending[Any],
        *,
        address: str,
        most_asked: int,
        patience: float,
    ) -> None:
        self.num_bytes = num_bytes
        self._requests = requests
        self._ask = ask
        self._pending = pending
        self._address = address
        self._most_asked = most_asked
        self._patience = patience
        self._num_asked = 0
        self._asked: set[Asked] = set()
        self._has_ended = False
        now = time.monotonic()
        self._deadline = now + requests.settings.deadline
        self.due = min(self._deadline, now + patience) if most_asked > 1 else self._deadline

    def start(self) -> None:
        """Send it."""
        clock = _clock(os.getpid())
        clock.add(self)
        with self._requests.lock:
            asked = self._next()
        if asked is None:  # another one of the same answer has failed
            clock.remove(self)
        else:
            asked.start()

    def end(self) -> None:
        """Cancel what is on its way; nobody is told."""
        with self._requests.lock:
            if self._has_ended:
                return
            self._has_ended = True
            self._requests.num_hedges -= max(0, self._num_asked - 1)
            asked, self._asked = self._asked, set()
        _clock(os.getpid()).remove(self)
        for repetition in asked:
            repetition.cancel()

    def look(self, now: float) -> None:
        """Send it again or give it up: it has been silent for long."""
        asked = None
        with self._requests.lock:
            if now < self._deadline and self._num_asked < self._most_asked and self._requests.num_hedges < _HEDGES:
                asked = self._next()
                self._requests.num_hedges += asked is not None
            self.due = self._deadline
            if self._num_asked < self._most_asked:
                self.due = min(self._deadline, now + self._patience)
        if asked is not None:
            _LOGGER.info("no answer yet, asking again for %s (request %d)", self._address, self._num_asked)
            asked.start()
        elif now >= self._deadline:
            self._pending.tell(self, None, _too_late(self._requests.settings, self._address))

    def _next(self) -> Asked | None:
        """Return what sends it once more; None if it has ended. The caller holds the lock."""
        if self._has_ended:
            return None
        asked = Asked(self._ask, self._answered)
        self._num_asked += 1
        self._asked.add(asked)
        return asked

    def _answered(self, asked: Asked, answer: Any, error: BaseException | None) -> None:
        with self._requests.lock:
            self._asked.discard(asked)
            if self._has_ended or (error is not None and self._asked):
                return
        self.end()
        self._pending.tell(self, answer, error)


def _only(answers: list[_T]) -> _T:
    return answers[0]


def _joined(answers: list[list[_T]]) -> list[_T]:
    return answers[0] if len(answers) == 1 else [answer for some in answers for answer in some]


def _too_late(settings: RequestSettings, address: str) -> StoreTimeoutError:
    return StoreTimeoutError(
        f"the store did not answer within {settings.deadline:g} s; raise storage option 'client_retry_timeout' if the "
        "store or the network is slow",
        path=address,
    )


# --------------------------------------------------------------------------------------------------------------- clock


class _Clock:
    """Looks at requests that are due, in a thread of its own, which sleeps meanwhile."""

    def __init__(self) -> None:
        self._going: set[_Request] = set()
        self._changed = threading.Condition()
        self._wakes_at = float("inf")
        self._process = os.getpid()
        threading.Thread(target=self._run, name="lance_core_store", daemon=True).start()
        atexit.register(self._end)

    def add(self, request: _Request) -> None:
        """Look at a request when it is due."""
        with self._changed:
            self._going.add(request)
            if request.due < self._wakes_at:
                self._wakes_at = request.due
                self._changed.notify()

    def remove(self, request: _Request) -> None:
        """Forget a request."""
        with self._changed:
            self._going.discard(request)

    def _run(self) -> None:
        while True:
            self._look()

    def _look(self) -> None:
        for request in self._due():
            request.look(time.monotonic())

    def _due(self) -> list[_Request]:
        """Return the requests that are due; sleep until the first one will be if there are none."""
        with self._changed:
            now, going = time.monotonic(), list(self._going)
            due = [request for request in going if request.due <= now]
            if not due:
                first = min([request.due for request in going], default=float("inf"))
                del going  # they would keep their answers in memory
                self._wakes_at = first
                self._changed.wait(None if first == float("inf") else first - now)
        return due

    def _end(self) -> None:
        """Cancel what is on its way: an answer must not come when the interpreter is gone."""
        if os.getpid() != self._process:
            return
        with self._changed:
            going = list(self._going)
        for request in going:
            request.end()
        time.sleep(_EXIT_PAUSE_S)


@lru_cache(maxsize=1)
def _clock(process: int) -> _Clock:
    del process  # only part of the key
    return _Clock()
