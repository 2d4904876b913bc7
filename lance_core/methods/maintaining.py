"""Methods of `LanceDataset` that remove what is no longer needed."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from lance_core.common.unsupported import refuse_given
from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from lance_core.maintenance.cleanup import CleanupExplanation, CleanupStats
    from lance_core.maintenance.verify_report import VerifyReport
    from lance_core.methods.protocols import OpenDataset

_NO_TIME = timedelta(0)


def cleanup_old_versions(
    dataset: OpenDataset,
    older_than: timedelta | None = None,
    retain_versions: int | None = None,
    *,
    versions: Sequence[int] | None = None,
    delete_unverified: bool = False,
    force: bool = False,
    error_if_tagged_old_versions: bool = True,
    keep_versions: Collection[int] = (),
    grace_period: timedelta = _NO_TIME,
    delete_rate_limit: int | None = None,
    delete_concurrency: int | None = None,
) -> CleanupStats:
    """Delete old versions and the files that only they need.

    Args:
        older_than: Only versions committed longer ago; 14 days if no rule is given.
        retain_versions: Never the newest so many.
        versions: Only these.
        delete_unverified: Delete data and index files of no version before they are 7 days old. Refused unless the
            newest version and all files are older than a day, since a writer may be about to commit them; pylance
            deletes them all the same.
        force: With ``delete_unverified``: nobody writes to the table, so files of any age may go. Not in pylance.
        error_if_tagged_old_versions: Refuse if a tagged version would go, rather than keep it.
        keep_versions: Never these. Not in pylance.
        grace_period: Never versions that were the newest less than so long ago: who opened the table then may still
            read them, or commit what was made from them. Not in pylance.
        delete_rate_limit: Not supported, like ``delete_concurrency``.
        delete_concurrency: Not supported.

    Raises:
        InvalidInputError: A tagged version would go, a rule makes no sense, or ``delete_unverified`` meets a table that
            somebody wrote to within the last day.

    Examples:
        >>> table.delete("id = 1")
        {'num_deleted_rows': 1}
        >>> stats = table.cleanup_old_versions(retain_versions=1)
        >>> stats.old_versions, len(table.versions())
        (1, 1)
    """
    from lance_core.maintenance.cleanup import cleanup_old_versions as clean_up  # noqa: PLC0415 rarely needed

    refuse_given("cleanup_old_versions", delete_rate_limit=delete_rate_limit, delete_concurrency=delete_concurrency)
    return clean_up(
        dataset.snapshot.store,
        older_than=older_than,
        retain_versions=retain_versions,
        versions=versions,
        delete_unverified=delete_unverified,
        force=force,
        error_if_tagged_old_versions=error_if_tagged_old_versions,
        keep_versions=keep_versions,
        grace_period=grace_period,
    )


def explain_cleanup_old_versions(
    dataset: OpenDataset,
    older_than: timedelta | None = None,
    retain_versions: int | None = None,
    *,
    versions: Sequence[int] | None = None,
    delete_unverified: bool = False,
    force: bool = False,
    error_if_tagged_old_versions: bool = True,
    keep_versions: Collection[int] = (),
    grace_period: timedelta = _NO_TIME,
    without_tags: Collection[str] = (),
    delete_rate_limit: int | None = None,
    include_files: bool = False,
    max_files: int | None = 1000,
) -> CleanupExplanation:
    """Return what `cleanup_old_versions` would delete; arguments as there, and these.

    Args:
        without_tags: As if these tags were deleted first. Not in pylance.
        delete_rate_limit: Not supported, like the following: all files are told.
        include_files: Not supported.
        max_files: Not supported.
    """
    from lance_core.maintenance.cleanup import explain_cleanup_old_versions as explain  # noqa: PLC0415 rarely needed

    refuse_given(
        "explain_cleanup_old_versions",
        delete_rate_limit=delete_rate_limit,
        include_files=include_files,
        max_files=max_files,
    )
    return explain(
        dataset.snapshot.store,
        older_than=older_than,
        retain_versions=retain_versions,
        versions=versions,
        delete_unverified=delete_unverified,
        force=force,
        error_if_tagged_old_versions=error_if_tagged_old_versions,
        keep_versions=keep_versions,
        grace_period=grace_period,
        without_tags=without_tags,
    )


def validate(dataset: OpenDataset) -> None:
    """Check the table as `verify` does, level ``quick``, for those who expect an error.

    Raises:
        CorruptDataError: Something is wrong; the message tells all of it.
    """
    report = verify(dataset)
    if not report.is_ok:
        raise CorruptDataError(str(report), path=dataset.uri)


def verify(
    dataset: OpenDataset,
    *,
    level: str = "quick",
    sample_rows: int | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> VerifyReport:
    """Look at all versions of the table and report what is wrong; see `lance_core.verify`. Not in pylance.

    Examples:
        >>> table.verify(level="full").is_ok
        True
    """
    from lance_core.maintenance.verify import verify_table  # noqa: PLC0415 rarely needed

    return verify_table(dataset.snapshot.store, level=level, sample_rows=sample_rows, progress=progress)
