"""Tell where an error happened."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from lance_core.errors import LanceError

if TYPE_CHECKING:
    from collections.abc import Generator

    from lance_core.store.base import Store


@contextmanager
def naming(store: Store) -> Generator[None]:
    """Put the dataset's address on errors that name no place."""
    try:
        yield
    except LanceError as error:
        error.path = error.path or store.uri
        raise
