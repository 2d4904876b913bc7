"""Policies of maintenance: plain values and pure decisions."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from lance_core.errors import InvalidInputError
from lance_dagster.versions.tags import is_run_tag

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """Merge small fragments.

    Args:
        target_rows_per_fragment: Fragments with fewer rows are merged with their neighbours.
        min_fragments: Do nothing as long as fewer fragments would be merged.
        max_source_bytes: Rewrite at most so many bytes of files in one run, the oldest fragments first; None for all.
    """

    target_rows_per_fragment: int = 1024 * 1024
    min_fragments: int = 2
    max_source_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.target_rows_per_fragment < 1:
            msg = f"target_rows_per_fragment must be at least 1, not {self.target_rows_per_fragment}."
            raise InvalidInputError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionPolicy:
    """Rewrite fragments whose deleted rows are still in the files.

    Args:
        threshold: Fragments with a larger share of deleted rows are rewritten (0 .. 1).
    """

    threshold: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.threshold <= 1:
            msg = f"The threshold is a share of rows between 0 and 1, not {self.threshold}."
            raise InvalidInputError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanupPolicy:
    """Rules for the versions that stay. Other versions, and files that only they need, are deleted.

    A version stays if it is younger than ``older_than``, or one of the newest ``retain_versions``, or has a tag. Run
    tags (made by the IO manager) that are both older than ``keep_runs_for`` and beyond the newest ``keep_runs`` are
    deleted first; tags made by people are never touched, nor is what branches need.

    Whatever the rules say, these stay: versions that were the newest less than ``grace_period`` ago or at the start of
    a run that is still in progress (a reader may have opened them, a writer may commit what it made from them), and
    with ``keep_live_inputs`` the last version that changed data and those from which the newest materializations of
    assets downstream were made.

    Args:
        older_than: Age at which an untagged version may go.
        retain_versions: Newest versions that stay whatever their age.
        keep_runs: Newest run tags that stay whatever their age.
        keep_runs_for: Run tags younger than this stay.
        grace_period: Time that readers and writers which Dagster does not know may take.
        running_runs_for: Runs that began longer ago are taken for dead.
        keep_live_inputs: Keep versions that Dagster shows as data version of the table or of a live input.
    """

    older_than: timedelta = timedelta(days=7)
    retain_versions: int = 3
    keep_runs: int = 10
    keep_runs_for: timedelta = timedelta(days=14)
    grace_period: timedelta = timedelta(hours=1)
    running_runs_for: timedelta = timedelta(days=1)
    keep_live_inputs: bool = True

    def __post_init__(self) -> None:
        ages = (self.older_than, self.keep_runs_for, self.grace_period, self.running_runs_for)
        if min(ages) < timedelta(0) or self.keep_runs < 0 or self.retain_versions < 1:
            msg = "Ages and keep_runs must not be negative, and at least one version must stay."
            raise InvalidInputError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexPolicy:
    """Keep indices up to date.

    Args:
        indices: Indices that the table shall have: type (``"BTREE"``, ``"ZONEMAP"``, ...) by column. Indices that the
            table has besides are brought up to date as well.
        max_uncovered_fraction: Do nothing as long as no index misses a larger share of the rows (0 .. 1).
    """

    indices: Mapping[str, str] = field(default_factory=dict[str, str])
    max_uncovered_fraction: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.max_uncovered_fraction <= 1:
            msg = f"max_uncovered_fraction is a share of rows between 0 and 1, not {self.max_uncovered_fraction}."
            raise InvalidInputError(msg)


DEFAULT_COMPACTION = CompactionPolicy()
DEFAULT_DELETIONS = DeletionPolicy()
DEFAULT_CLEANUP = CleanupPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """A tag of a table.

    Args:
        name: Its name.
        version: What it names.
        created_at: When it was made; None if its maker left no time.
    """

    name: str
    version: int
    created_at: datetime | None


def expired_run_tags(tags: Iterable[Tag], policy: CleanupPolicy, *, now: datetime) -> list[Tag]:
    """Run tags that clean-up deletes, the oldest first; a tag without a time is kept.

    Args:
        tags: All tags of the table.
        policy: What to keep.
        now: The current time, with zone.
    """
    run_tags = sorted((tag for tag in tags if is_run_tag(tag.name)), key=lambda tag: tag.version)
    beyond = run_tags[: max(len(run_tags) - policy.keep_runs, 0)]
    return [
        tag for tag in beyond if tag.created_at is not None and now - _aware(tag.created_at) >= policy.keep_runs_for
    ]


def _aware(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
