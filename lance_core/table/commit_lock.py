"""Locks that callers bring along: held while the manifest of a version is created."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeAlias

from lance_core.store.trust import PlaceSettings
from lance_core.table.places import BasedStore

if TYPE_CHECKING:
    from lance_core.store.base import Store

CommitLock: TypeAlias = Callable[[int], AbstractContextManager[object]]
"""Takes the number of the version; its context manager holds the lock."""


def with_lock(store: Store, lock: CommitLock | None) -> Store:
    """Return a store whose manifests are created under a lock; None keeps the lock that the store has."""
    if lock is None:
        return store
    if isinstance(store, BasedStore):
        return BasedStore(store.branch_root, store.settings, store.bases, store.branch, lock)
    return BasedStore(store, PlaceSettings(), commit_lock=lock)


def lock_of(store: Store) -> CommitLock | None:
    """Return the lock under which manifests are created, if the caller gave one."""
    return store.commit_lock if isinstance(store, BasedStore) else None
