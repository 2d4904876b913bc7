"""Helpers of the tests that take one safeguard away at a time.

A gate is a small piece of the other tests, which holds as long as nothing is taken away. A mutation is the dotted name
of a safeguard, what to put in its place (made from the original), and the gate that must notice.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from lance_core.store.memory import MemoryStore
from lance_core.table.commit import commit
from lance_core.table.runtime import Runtime
from lance_core.testing.actions import ACTIONS, History, prepared
from lance_core.testing.scheduler import EPOCH, explore
from lance_core.testing.tables import create

if TYPE_CHECKING:
    from collections.abc import Callable


@cache
def base() -> MemoryStore:
    """Return the table of `lance_core.testing.actions`; to be copied."""
    return prepared()


def toy() -> MemoryStore:
    """Return a table of which nothing but the metadata can be read: one version with four rows."""
    store = MemoryStore(now=lambda: EPOCH)
    commit(store, create(store, range(4)), runtime=Runtime(now=lambda: EPOCH))
    return store


def walk(*names: str, preemptions: int = 1) -> None:
    """The gate of all interleavings of some actions, by name."""
    actions = [ACTIONS[name] for name in names]
    programs = [action.program(number) for number, action in enumerate(actions)]
    explore(base().copied, programs, History(actions=actions).check, preemptions=preemptions)


def no(*_arguments: object, **_options: object) -> None:
    """Does nothing."""


def always(value: object) -> Callable[[Any], Callable[..., Any]]:
    """Return a mutation after which a function always returns the same."""
    return lambda _original: lambda *_arguments, **_options: value


def mutated(target: str, mutate: Callable[[Any], Any]) -> tuple[Any, str, Any]:
    """Return the change that takes a safeguard away: the object that has it, the attribute's name, and its new value.

    Args:
        target: Dotted name of the safeguard: module, class if there is one, attribute.
        mutate: Makes the new value from the original.
    """
    path, _, name = target.rpartition(".")
    owner = _owner(path)
    return owner, name, mutate(getattr(owner, name))


def _owner(path: str) -> Any:
    with suppress(ImportError):
        return __import__(path, fromlist=["_"])
    module, _, kind = path.rpartition(".")
    return getattr(__import__(module, fromlist=["_"]), kind)
