"""Reads of an object store that overlap: asked again if the store is silent, and given up at a deadline.

They run on one event loop in a thread of its own: hundreds may be on their way, and one that is no longer wanted is
cancelled, which closes its connection.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import threading
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from lance_core.errors import StoreTimeoutError
from lance_core.frozen import frozen
from lance_core.store.tasks import wait_for
from lance_core.telemetry import StoreCall

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

_T = TypeVar("_T")
_LOGGER = logging.getLogger("lance_core.store")

_SLOW_RATE = 4 << 20
"""Bytes per second: an answer is not called silent before so many of its bytes could have come."""

_HEDGES_OF_READ, _HEDGES = 2, 16
"""How often one read is asked again, and how many such requests of a connection are on their way at the same time."""

_EXIT_WAIT_S = 1.0

_EXIT_PAUSE_S = 0.02
"""Threads of obstore still put away answers that were taken already. One that asks for the interpreter when that is
gone aborts the process, after all its work was done: one process in ten on a busy machine."""


@frozen(kw_only=True)
class ReadSettings:
    """Times after which reads of a store are sent again, and given up.

    Attributes:
        hedge_after: Seconds of silence after which a read is asked again, the first answer wins; 0 for never.
        deadline: Seconds that one read may take with all of its repetitions.
    """

    hedge_after: float = 3.0
    deadline: float = 180.0


class Pending(Generic[_T]):
    """An answer that is on its way; see `lance_core.store.base.PendingRead`.

    Args:
        future: The read.
        blame: Makes errors of this package of those that the read fails with.
    """

    def __init__(self, future: Future[_T], blame: AbstractContextManager[None]) -> None:
        self._future = future
        self._blame = blame

    def result(self) -> _T:
        """Wait for the answer, once; raises what the read failed with."""
        with self._blame:
            try:
                return wait_for(self._future)
            except BaseException:
                self._future.cancel()
                raise

    def cancel(self) -> None:
        """Say that nobody wants the answer."""
        self._future.cancel()


class HedgedReads:
    """The reads of one connection.

    Args:
        settings: When they are asked again and given up.
        blame: Makes errors of this package; takes the address of an object.
    """

    def __init__(self, settings: ReadSettings, blame: Callable[[str], AbstractContextManager[None]]) -> None:
        self._settings = settings
        self._blame = blame
        self._num_hedges = 0

    def begin(
        self, ask: Callable[[], Awaitable[_T]], *, num_bytes: int, address: str, name: str = "store.get"
    ) -> Pending[_T]:
        """Begin a read.

        Args:
            ask: Sends the request; called again to hedge it.
            num_bytes: Size of the answer, as far as it is known.
            address: Of the object, for errors.
            name: Of the call, for observers.
        """

        async def read() -> _T:
            with StoreCall(name, address) as span:
                answer = await self._read(ask, num_bytes, address)
                span.add(num_bytes=num_bytes)
            return answer

        return Pending(_in_loop(read()), self._blame(address))

    def begin_all(
        self, asks: Sequence[tuple[Callable[[], Awaitable[list[_T]]], int]], *, address: str
    ) -> Pending[list[_T]]:
        """Begin several reads with several answers each, which are given one after the other; see `begin`."""

        async def read() -> list[_T]:
            with StoreCall("store.get_ranges", address, requests=len(asks)) as span:
                answers = await read_all()
                span.add(num_bytes=sum(num_bytes for _, num_bytes in asks))
            return answers

        async def read_all() -> list[_T]:
            reads = [self._read(ask, num_bytes, address) for ask, num_bytes in asks]
            if len(reads) == 1:
                return await reads[0]
            return [answer for answers in await asyncio.gather(*reads) for answer in answers]

        return Pending(_in_loop(read()), self._blame(address))

    async def _read(self, ask: Callable[[], Awaitable[_T]], num_bytes: int, address: str) -> _T:
        settings, loop = self._settings, asyncio.get_running_loop()
        end = loop.time() + settings.deadline
        patience = settings.hedge_after + num_bytes / _SLOW_RATE if settings.hedge_after else settings.deadline
        waiting_for = {asyncio.ensure_future(ask())}
        num_asked = 1
        try:
            while True:
                left = end - loop.time()
                if left <= 0:
                    raise _too_late(settings, address)
                is_patient = num_asked > _HEDGES_OF_READ
                done, going = await asyncio.wait(
                    waiting_for,
                    timeout=left if is_patient else min(left, patience),
                    return_when=asyncio.FIRST_COMPLETED,
                )
                answered = [task for task in done if task.exception() is None]
                if answered or (done and not going):
                    return (answered or list(done))[0].result()
                waiting_for = going
                if not done and not is_patient and self._num_hedges < _HEDGES and loop.time() < end:
                    waiting_for.add(asyncio.ensure_future(ask()))
                    num_asked += 1
                    self._num_hedges += 1
                    _LOGGER.info("no answer yet, asking again for %s (request %d)", address, num_asked)
        finally:
            self._num_hedges -= num_asked - 1
            for task in waiting_for:
                task.cancel()


def _too_late(settings: ReadSettings, address: str) -> StoreTimeoutError:
    return StoreTimeoutError(
        f"the store did not answer a read within {settings.deadline:g} s; raise storage option "
        "'client_retry_timeout' if the store or the network is slow",
        path=address,
    )


# --------------------------------------------------------------------------------------------------------------- loop


_loop_lock = threading.Lock()


def _in_loop(read: Coroutine[Any, Any, _T]) -> Future[_T]:
    with _loop_lock:
        loop = _loop(os.getpid())
    return asyncio.run_coroutine_threadsafe(read, loop)


@lru_cache(maxsize=1)
def _loop(process: int) -> asyncio.AbstractEventLoop:
    """Return the event loop of this process, which runs until the process ends."""
    del process  # only part of the key
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="lance_core_store", daemon=True)
    thread.start()
    atexit.register(_end, loop, thread, os.getpid())
    return loop


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread, process: int) -> None:
    """Cancel what is on its way: an answer must not come when the interpreter is gone."""
    if os.getpid() != process:
        return

    def stop() -> None:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.call_soon(loop.call_soon, loop.stop)  # the cancelled ones end first

    loop.call_soon_threadsafe(stop)
    thread.join(_EXIT_WAIT_S)
    time.sleep(_EXIT_PAUSE_S)
