"""Methods of `LanceDataset` that remove what is no longer needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import timedelta

    from lance_core.dataset import LanceDataset
    from lance_core.maintenance.cleanup import CleanupExplanation, CleanupStats
    from lance_core.maintenance.verify_report import VerifyReport


def cleanup_old_versions(
    dataset: LanceDataset,
    older_than: timedelta | None = None,
    retain_versions: int | None = None,
    *,
    versions: Sequence[int] | None = None,
    delete_unverified: bool = False,
    error_if_tagged_old_versions: bool = True,
) -> CleanupStats:
    """Delete old versions and the files that only they need.

    Args:
        older_than: Only versions committed longer ago; 14 days if no rule is given.
        retain_versions: Never the newest so many.
        versions: Only these.
        delete_unverified: Delete files of no version even if they are young; only safe while nobody writes.
        error_if_tagged_old_versions: Refuse if a tagged version would go, rather than keep it.

    Raises:
        InvalidInputError: A tagged version would go, or a rule makes no sense.
    """
    from lance_core.maintenance.cleanup import cleanup_old_versions as clean_up  # noqa: PLC0415 rarely needed

    return clean_up(
        dataset.snapshot.store,
        older_than=older_than,
        retain_versions=retain_versions,
        versions=versions,
        delete_unverified=delete_unverified,
        error_if_tagged_old_versions=error_if_tagged_old_versions,
    )


def explain_cleanup_old_versions(
    dataset: LanceDataset,
    older_than: timedelta | None = None,
    retain_versions: int | None = None,
    *,
    versions: Sequence[int] | None = None,
    delete_unverified: bool = False,
    error_if_tagged_old_versions: bool = True,
    without_tags: Collection[str] = (),
) -> CleanupExplanation:
    """What `cleanup_old_versions` would delete, if ``without_tags`` were deleted first; arguments as there."""
    from lance_core.maintenance.cleanup import explain_cleanup_old_versions as explain  # noqa: PLC0415 rarely needed

    return explain(
        dataset.snapshot.store,
        older_than=older_than,
        retain_versions=retain_versions,
        versions=versions,
        delete_unverified=delete_unverified,
        error_if_tagged_old_versions=error_if_tagged_old_versions,
        without_tags=without_tags,
    )


def verify(
    dataset: LanceDataset, *, level: str = "quick", progress: Callable[[str, int, int], None] | None = None
) -> VerifyReport:
    """Look at all versions of the table and report what is wrong; see `lance_core.verify`. Not in pylance."""
    from lance_core.maintenance.verify import verify_table  # noqa: PLC0415 rarely needed

    return verify_table(dataset.snapshot.store, level=level, progress=progress)
