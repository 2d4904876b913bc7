"""Reading in steps: works that stop where they have asked for bytes and would have to wait for them.

Who has several of them lets the next one ask meanwhile.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

_T = TypeVar("_T")

IoCoroutine: TypeAlias = Generator[None, None, _T]
"""Stops each time something was asked for; goes on with looking at it, and returns what it is after."""


def finished(work: IoCoroutine[_T]) -> _T:
    """Run the coroutine to completion."""
    try:
        while True:
            next(work)
    except StopIteration as stop:
        return stop.value
