"""Locks that callers bring along: held while the manifest of a version is created."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeAlias

CommitLock: TypeAlias = Callable[[int], AbstractContextManager[object]]
"""Takes the number of the version; its context manager holds the lock."""
