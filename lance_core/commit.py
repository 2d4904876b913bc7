"""Locks around commits, and what a commit raises. Names as in pylance."""

from __future__ import annotations

from lance_core.errors import CommitConflictError
from lance_core.table.commit_lock import CommitLock

__all__ = ["CommitConflictError", "CommitLock"]
