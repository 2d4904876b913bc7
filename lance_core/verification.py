"""Verification of a table: everything that its versions need is there and fits together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.maintenance.verify import verify_table
from lance_core.maintenance.verify_report import VerifyProblem, VerifyReport
from lance_core.table.open_table import open_branch

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

__all__ = ["VerifyProblem", "VerifyReport", "verify"]


def verify(
    uri: str | os.PathLike[str],
    *,
    level: str = "quick",
    storage_options: Mapping[str, str] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> VerifyReport:
    """Look at a whole table and report what is wrong with it. Not in pylance. Nothing is written.

    Args:
        uri: Path or address of the table, or of a branch of it.
        level: ``quick`` looks at the manifests and transactions of all versions, at deletion files, row ids and tags,
            and whether all files are there in the right size; ``full`` also reads all values of the newest version.
        storage_options: Settings of the storage service.
        progress: Is told what is being looked at, how much of it is done, and how much there is.

    Returns:
        What was found; ``report.is_ok`` and ``str(report)`` say it shortly.

    Raises:
        DatasetNotFoundError: There is no table.
        InvalidInputError: There is no such level, or no such address.

    Examples:
        >>> lance_core.verify("cities.lance").is_ok
        True
    """
    return verify_table(open_branch(uri, storage_options), level=level, progress=progress)
