"""Answers of obstore, taken in the threads that bring them.

obstore's asynchronous functions belong to an event loop of asyncio: they ask the one that runs in this thread for a
future, and tell it the answer by `call_soon_threadsafe`. `_Here` is as much of a loop as that needs. It has no thread
and no queue, so that neither has to be woken up for each answer: a request costs .4 ms of processor time less than with
a loop in a thread.

asyncio has no documented way to be found as a loop without running one; its two functions for it have been there, and
named in `asyncio.events.__all__`, since Python 3.7. Where they do not do what this module needs, a loop in a thread
answers.
"""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator


class _Answer(Future[Any]):
    """An answer of obstore, for which a coroutine may wait."""

    def __await__(self) -> Generator[_Answer, None, Any]:
        if not self.done():
            yield self
        return self.result()

    def set_result(self, result: Any) -> None:
        """Tell the answer, unless nobody wants it any more."""
        with suppress(InvalidStateError):
            super().set_result(result)

    def set_exception(self, exception: BaseException | None) -> None:
        """Tell an error; otherwise as `set_result`."""
        with suppress(InvalidStateError):
            super().set_exception(exception)


class _Here:
    """The event loop that obstore finds. What it is told happens at once, in the thread that tells it."""

    def create_future(self) -> _Answer:
        return _Answer()

    def call_soon_threadsafe(self, callback: Callable[..., Any], *arguments: Any, context: Any = None) -> None:
        del context
        callback(*arguments)


_HERE: Any = _Here()


@lru_cache(maxsize=1)
def answers_here() -> bool:
    """Return whether obstore finds `_Here` in this version of Python."""
    try:
        others = asyncio._get_running_loop()  # noqa: SLF001 - public to event loops, and likewise the next one
        asyncio._set_running_loop(_HERE)  # noqa: SLF001
        try:
            return asyncio.get_running_loop() is _HERE
        finally:
            asyncio._set_running_loop(others)  # noqa: SLF001
    except (AttributeError, RuntimeError, TypeError):
        return False


@lru_cache(maxsize=1)
def _loop_in_thread(process: int) -> asyncio.AbstractEventLoop:
    del process  # only part of the key: threads do not survive a fork
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="lance_core_answers", daemon=True).start()
    return loop


class Asked:
    """A request that was sent once. It goes on in the threads that bring what it waits for.

    Args:
        ask: Sends it: a coroutine function that waits for nothing but obstore, or a function of obstore.
        tell: Is called once with this object, the answer and the error, unless it is cancelled before.
    """

    __slots__ = ("_ask", "_coroutine", "_is_unwanted", "_tell", "_waits_for")

    def __init__(
        self, ask: Callable[[], Awaitable[Any]], tell: Callable[[Asked, Any, BaseException | None], None]
    ) -> None:
        self._ask = ask
        self._tell = tell
        self._coroutine: Any = None
        self._waits_for: Future[Any] | None = None
        self._is_unwanted = False

    def start(self) -> None:
        """Send it."""
        if answers_here():
            self._go_on()
        elif not self._is_unwanted:
            self._waits_for = asyncio.run_coroutine_threadsafe(self._whole(), _loop_in_thread(os.getpid()))
            self._waits_for.add_done_callback(self._tell_all)

    def cancel(self) -> None:
        """Say that nobody wants the answer."""
        self._is_unwanted = True
        waits_for = self._waits_for
        if waits_for is not None:
            waits_for.cancel()

    async def _whole(self) -> Any:
        return await self._ask()

    def _tell_all(self, future: Future[Any]) -> None:
        """Tell what came of a request that a loop in a thread has sent."""
        if future.cancelled():
            return
        failure = future.exception()
        self._tell(self, None if failure is not None else future.result(), failure)

    def _go_on(self, _: object = None) -> None:
        """Go on until it waits again. If it is cancelled meanwhile, one of both threads sees what the other did."""
        if self._is_unwanted:
            return
        answer: Any = None
        failure: BaseException | None = None
        others = asyncio._get_running_loop()  # noqa: SLF001
        asyncio._set_running_loop(_HERE)  # noqa: SLF001
        try:
            if self._coroutine is None:
                self._coroutine = self._ask().__await__()
            self._waits_for = self._coroutine.send(None)
        except StopIteration as stop:
            self._waits_for, answer = None, stop.value
        except BaseException as error:  # noqa: BLE001 - told to who waits
            self._waits_for, failure = None, error
        finally:
            asyncio._set_running_loop(others)  # noqa: SLF001
        if self._waits_for is None:
            self._tell(self, answer, failure)
            return
        if self._is_unwanted:
            self._waits_for.cancel()
        self._waits_for.add_done_callback(self._go_on)
