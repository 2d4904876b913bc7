"""Progress bars on a terminal."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from tqdm import tqdm

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

_Item = TypeVar("_Item")


def each(items: Iterable[_Item], what: str) -> Iterable[_Item]:
    """Yield items, and show how many are done if standard error is a terminal."""
    return tqdm(items, desc=what, disable=None, leave=False)


@contextmanager
def step_bar() -> Generator[Callable[[str, int, int], None]]:
    """Yield a function that shows what is being done, how much of it is done, and how much there is."""
    with tqdm(disable=None, leave=False) as bar:

        def show(what: str, done: int, total: int) -> None:
            bar.set_description(what, refresh=False)
            bar.total, bar.n = total, done
            bar.refresh()

        yield show
