"""Threads that read and compute take turns at computing, so that they do not contend for the interpreter.

Who waits for a store lets others have its turn: `waiting`. Threads that take no turns are not affected.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Generator

_Waiting: TypeAlias = "tuple[tuple[bool, int], threading.Lock, Turn]"


class Turns:
    """Lets one thread compute at a time: first those that are about to ask a store, then in the order of their numbers.

    Args:
        num_ahead: Works that may compute their results before these are wanted; those behind them only ask. All may if
            None.
    """

    def __init__(self, num_ahead: int | None = None) -> None:
        self._num_ahead = num_ahead
        self._first = 0
        self._lock = threading.Lock()
        self._is_taken = False
        self._waiting: list[_Waiting] = []

    def advance(self) -> None:
        """Say that the results of the first work have been taken."""
        with self._lock:
            self._first += 1
            self._pass_on()

    def end(self) -> None:
        """Let all works compute, those too whose results nobody wants: they end sooner."""
        with self._lock:
            self._num_ahead = None
            self._pass_on()

    def take(self, turn: Turn) -> None:
        """Wait for a turn."""
        mine = threading.Lock()
        mine.acquire()
        with self._lock:
            heappush(self._waiting, ((turn.num_asks <= 0, turn.number), mine, turn))
            self._pass_on()
        mine.acquire()

    def give(self) -> None:
        """Let another one have the turn."""
        with self._lock:
            self._is_taken = False
            self._pass_on()

    def _pass_on(self) -> None:
        if self._is_taken or not self._waiting:
            return
        (computes, number), mine, _ = self._waiting[0]
        if not computes or self._num_ahead is None or number < self._first + self._num_ahead:
            heappop(self._waiting)
            self._is_taken = True
            mine.release()


@dataclass(slots=True, order=True)
class Turn:
    """The turns of one work.

    Attributes:
        turns: Those of all works.
        number: Of the work, in the order in which results are wanted.
        num_asks: How often it asks a store before it begins to compute.
    """

    turns: Turns = field(compare=False)
    number: int
    num_asks: int

    @contextmanager
    def taken(self) -> Generator[None]:
        """Compute in turns with others; for the thread of the work."""
        self.turns.take(self)
        _mine.turn = self
        try:
            yield
        finally:
            _mine.turn = None
            self.turns.give()


class _Mine(threading.local):
    turn: Turn | None = None


_mine = _Mine()


@contextmanager
def waiting() -> Generator[None]:
    """Wait for a store; others may compute meanwhile."""
    turn, _mine.turn = _mine.turn, None
    if turn is None:
        yield
        return
    turn.turns.give()
    try:
        yield
    finally:
        turn.num_asks -= 1
        turn.turns.take(turn)
        _mine.turn = turn
