"""When maintenance has something to do, and how much: plain values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """Merge small fragments.

    Args:
        target_rows_per_fragment: Fragments with fewer rows are merged with their neighbours.
        min_fragments: Do nothing as long as the table has fewer fragments.
    """

    target_rows_per_fragment: int = 1024 * 1024
    min_fragments: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionPolicy:
    """Rewrite fragments whose deleted rows are still in the files.

    Args:
        threshold: Fragments with a larger fraction of deleted rows are rewritten (0 .. 1).
    """

    threshold: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupPolicy:
    """Which versions stay. Everything else, and every file only they need, is deleted.

    A version stays if it is younger than ``older_than``, or one of the newest ``retain_versions``, or has a tag. Run
    tags (made by the IO manager) older than ``keep_runs_for`` and beyond the newest ``keep_runs`` are deleted first;
    tags made by people are never touched.

    Args:
        older_than: Age at which an untagged version may go.
        retain_versions: Newest versions that stay whatever their age.
        keep_runs: Newest run tags that stay.
        keep_runs_for: Run tags younger than this stay.
    """

    older_than: timedelta = timedelta(days=7)
    retain_versions: int = 3
    keep_runs: int = 10
    keep_runs_for: timedelta = timedelta(days=14)


DEFAULT_COMPACTION = CompactionPolicy()
DEFAULT_DELETIONS = DeletionPolicy()
DEFAULT_CLEANUP = CleanupPolicy()
