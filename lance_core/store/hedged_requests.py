"""Requests to an object store that overlap: sent again if the store is silent, and given up at a deadline.

They run on one event loop in a thread of its own: hundreds may be on their way, and one that is no longer wanted is
cancelled, which closes its connection. Coroutines and `asyncio.wait` would cost as much as a request itself, so each
request is a few callbacks.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import time
from collections import deque
from concurrent.futures import Future
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lance_core.errors import StoreTimeoutError
from lance_core.frozen import frozen
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

_EXIT_WAIT_S = 1.0

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

    def start(self, requests: Sequence[_Request]) -> None:
        """Send requests."""
        self._requests = requests
        for request in requests:
            _in_loop(request.start)

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
            _in_loop(partial(self._end, asyncio.CancelledError()))

    def tell(self, request: _Request, answer: Any, error: BaseException | None) -> None:
        """Tell what came of one of the requests; called in the event loop."""
        self._answers[id(request)] = answer
        if error is not None:
            self._end(error)
        elif len(self._answers) == len(self._requests):
            self._end(None)

    def _end(self, error: BaseException | None) -> None:
        if self._call.seconds is not None:
            return
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
    """

    def __init__(self, settings: RequestSettings, blame: Callable[[str], AbstractContextManager[None]]) -> None:
        self.settings = settings
        self.num_hedges = 0
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
    """A request and its repetitions. All of it runs in the event loop, so that nothing has to be locked.

    Args:
        requests: Those of its connection.
        ask: Sends it.
        num_bytes: As of `HedgedRequests.begin`.
        pending: Is told the answer, or what the last of the repetitions failed with.
        address: Of the object.
        most_asked: How often it may be sent.
        patience: Seconds of silence after which it is sent again.
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
        "_timer",
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
        self._deadline = 0.0
        self._num_asked = 0
        self._asked: set[asyncio.Future[Any]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._has_ended = False

    def start(self) -> None:
        """Send it."""
        if self._has_ended:
            return
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + self._requests.settings.deadline
        _GOING.add(self)
        self._send()
        self._wait(loop)

    def end(self) -> None:
        """Cancel what is on its way; nobody is told."""
        if self._has_ended:
            return
        self._has_ended = True
        self._requests.num_hedges -= max(0, self._num_asked - 1)
        _GOING.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        for asked in self._asked:
            asked.cancel()

    def _send(self) -> None:
        self._num_asked += 1
        try:
            asked = asyncio.ensure_future(self._ask())
        except Exception as error:  # noqa: BLE001 - told to who waits
            self._finish(None, error)
            return
        self._asked.add(asked)
        asked.add_done_callback(self._answered)

    def _wait(self, loop: asyncio.AbstractEventLoop) -> None:
        """Look after it again when it has been silent for long."""
        if self._has_ended:
            return
        left = self._deadline - loop.time()
        if self._num_asked < self._most_asked:
            left = min(left, self._patience)
        self._timer = loop.call_later(left, self._is_silent)

    def _is_silent(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() >= self._deadline:
            self._finish(None, _too_late(self._requests.settings, self._address))
            return
        if self._num_asked < self._most_asked and self._requests.num_hedges < _HEDGES:
            self._requests.num_hedges += 1
            _LOGGER.info("no answer yet, asking again for %s (request %d)", self._address, self._num_asked + 1)
            self._send()
        self._wait(loop)

    def _answered(self, asked: asyncio.Future[Any]) -> None:
        self._asked.discard(asked)
        if asked.cancelled():
            return
        error = asked.exception()
        if not self._has_ended and (error is None or not self._asked):
            self._finish(asked.result() if error is None else None, error)

    def _finish(self, answer: Any, error: BaseException | None) -> None:
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


# --------------------------------------------------------------------------------------------------------------- loop


_GOING: set[_Request] = set()
"""Requests that have no answer yet; only the event loop looks at it."""

_loop_lock = threading.Lock()


class _Loop:
    """An event loop that runs until the process ends, in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lance_core_store", daemon=True)
        self._calls: deque[Callable[[], None]] = deque()
        self._process = os.getpid()
        self._thread.start()
        atexit.register(self._end)

    def call(self, function: Callable[[], None]) -> None:
        """Call a function in the loop, which is woken up once for all that were given meanwhile."""
        self._calls.append(function)
        if len(self._calls) == 1:
            self._loop.call_soon_threadsafe(self._call_all)

    def _call_all(self) -> None:
        try:
            for _ in range(len(self._calls)):
                try:
                    self._calls[0]()  # it stays there meanwhile, so that nobody wakes the loop for others
                finally:
                    self._calls.popleft()
        finally:
            if self._calls:
                self._loop.call_soon(self._call_all)

    def _end(self) -> None:
        """Cancel what is on its way: an answer must not come when the interpreter is gone."""
        if os.getpid() != self._process:
            return

        def stop() -> None:
            for request in list(_GOING):
                request.end()
            self._loop.call_soon(self._loop.call_soon, self._loop.stop)  # the cancelled ones end first

        self._loop.call_soon_threadsafe(stop)
        self._thread.join(_EXIT_WAIT_S)
        time.sleep(_EXIT_PAUSE_S)


def _in_loop(function: Callable[[], None]) -> None:
    """Call a function in the event loop of this process, after those given before."""
    with _loop_lock:
        _loop(os.getpid()).call(function)


@lru_cache(maxsize=1)
def _loop(process: int) -> _Loop:
    del process  # only part of the key
    return _Loop()
