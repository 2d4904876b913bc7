"""Tasks of one thread: while some wait for a store, another one computes.

Threads would do the same for more: each begins with fresh memory, and all contend for the interpreter. A task may not
hold a lock while it waits, since another task of its thread may want it.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from functools import lru_cache
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, TypeVar

from lance_core.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from greenlet import greenlet

_T = TypeVar("_T")

_MOST_BLOCKED = 64


def wait_for(future: Future[_T]) -> _T:
    """Return the result of a future; other tasks of this thread go on meanwhile."""
    task = _here.task
    if task is not None and not future.done():
        task.wait(future)
    return future.result()


def blocking(call: Callable[[], _T]) -> _T:
    """Make a call that blocks until a store has answered; other tasks of this thread go on meanwhile."""
    return call() if _here.task is None else wait_for(_threads(os.getpid()).submit(call))


def all_blocking(calls: Sequence[Callable[[], _T]]) -> list[_T]:
    """Make calls that block at the same time; as `blocking`.

    Raises:
        Exception: Of the first call that failed, when all have ended.
    """
    pool = _threads(os.getpid())
    futures = [pool.submit(call) for call in calls]
    for future in futures:
        with suppress(Exception):
            wait_for(future)
    return [future.result() for future in futures]


@lru_cache(maxsize=1)
def _threads(process: int) -> ThreadPoolExecutor:
    del process  # only part of the key: threads do not survive a fork
    return ThreadPoolExecutor(_MOST_BLOCKED, thread_name_prefix="lance_core_blocking")


class Tasks:
    """Runs tasks in a thread: first those that are about to ask a store, then in the order of their numbers.

    Args:
        num_ahead: Tasks that may compute their results before these are wanted; those behind them only ask. All may if
            None.

    Attributes:
        stack: Makes the stack of a task.

    Raises:
        UnsupportedError: greenlet is not installed.
    """

    def __init__(self, num_ahead: int | None = None) -> None:
        try:
            from greenlet import greenlet  # noqa: PLC0415 not needed for local files
        except ImportError as error:
            raise UnsupportedError(
                "fragments in a remote store are read with greenlet, which is not installed: pip install greenlet"
            ) from error
        self.stack: type[greenlet] = greenlet
        self._num_ahead = num_ahead
        self._num_finished = 0
        self._changed = threading.Condition()
        self._ready: list[tuple[tuple[bool, int], Task]] = []
        self._unfinished: dict[int, Task] = {}
        self._has_ended = False
        self._thread = threading.Thread(target=self._run, name="lance_core_tasks", daemon=True)

    def start(self, work: Callable[[], Any], *, number: int, num_asks: int) -> None:
        """Start a task.

        Args:
            work: What it does; tells others itself what came of it.
            number: In the order in which results are wanted.
            num_asks: How often it asks a store before it begins to compute.
        """
        if self._thread.ident is None:
            self._thread.start()
        task = self._unfinished[number] = Task(self, work, number, num_asks)
        self.wake(task)

    def wake(self, task: Task) -> None:
        """Let a task go on when it is its turn."""
        with self._changed:
            heappush(self._ready, ((task.num_asks <= 0, task.number), task))
            self._changed.notify()

    def advance(self) -> None:
        """Say that the results of the first task that had some left have been taken."""
        with self._changed:
            self._num_finished += 1
            self._changed.notify()

    def end(self) -> None:
        """End tasks that have not finished, at what they wait for."""
        with self._changed:
            self._has_ended = True
            self._changed.notify()
        # A collection of garbage may end them in their own thread.
        if self._thread.ident not in (None, threading.get_ident()):
            self._thread.join()

    def _run(self) -> None:
        while (task := self._next()) is not None:
            self._resume(task)
        while self._unfinished:
            _, task = self._unfinished.popitem()
            task.end()

    def _next(self) -> Task | None:
        with self._changed:
            while not self._has_ended:
                if self._ready and self._may_run(*self._ready[0][0]):
                    return heappop(self._ready)[1]
                self._changed.wait()
        return None

    def _may_run(self, computes: bool, number: int) -> bool:
        return not computes or self._num_ahead is None or number < self._num_finished + self._num_ahead

    def _resume(self, task: Task) -> None:
        if task.resume():
            self._unfinished.pop(task.number, None)


class Task:
    """A work that stops where it waits.

    Args:
        tasks: It and the others.
        work: What it does.
        number: As of `Tasks.start`; likewise the next one.
        num_asks: Left of those.
    """

    def __init__(self, tasks: Tasks, work: Callable[[], Any], number: int, num_asks: int) -> None:
        self.number = number
        self.num_asks = num_asks
        self._tasks = tasks
        self._work = work
        self._context = copy_context()
        self._stack: greenlet | None = None

    def __lt__(self, other: Task) -> bool:
        return self.number < other.number

    def resume(self) -> bool:
        """Go on to where it waits again; return whether it has finished."""
        if self._stack is None:
            self._stack = self._tasks.stack(self._work)
            self._stack.gr_context = self._context
        return self._switched(self._stack.switch)

    def end(self) -> None:
        """Raise an error where it waits."""
        if self._stack is not None:
            self._switched(self._stack.throw)

    def wait(self, future: Future[Any]) -> None:
        """Let others go on until a future is done; called by the task."""
        self.num_asks -= 1
        future.add_done_callback(self._wake)
        caller = None if self._stack is None else self._stack.parent
        assert caller is not None  # noqa: S101 for the type checker: the task runs
        caller.switch()

    def _wake(self, _: Future[Any]) -> None:
        self._tasks.wake(self)

    def _switched(self, switch: Callable[[], Any]) -> bool:
        _here.task = self
        try:
            switch()
        finally:
            _here.task = None
        return self._stack is None or self._stack.dead


class _Here(threading.local):
    task: Task | None = None


_here = _Here()
