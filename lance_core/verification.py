"""Verification of a table: everything that its versions need is there and fits together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.dataset import dataset as open_dataset
from lance_core.index.column import find_column, path_of
from lance_core.index.kinds import kind_of_index
from lance_core.index.vector.kind import VECTOR
from lance_core.maintenance.verify import verify_table
from lance_core.maintenance.verify_report import VerifyProblem, VerifyReport
from lance_core.table.open_table import open_branch

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

__all__ = ["VerifyProblem", "VerifyReport", "repair", "verify"]


def verify(
    uri: str | os.PathLike[str],
    *,
    level: str = "quick",
    sample_rows: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> VerifyReport:
    """Look at a whole table and report what is wrong with it. Not in pylance. Nothing is written.

    Args:
        uri: Path or address of the table, or of a branch of it.
        level: ``quick`` looks at the manifests and transactions of all versions, at deletion files, row ids and tags,
            and whether all files are there in the right size; ``full`` also reads all values of the newest version;
            ``indices`` compares what its indices answer with what its columns hold.
        sample_rows: Rows to compare with each segment of an index, with level ``indices``; if None, all rows, and all
            entries of indices that have one for each row.
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
    return verify_table(open_branch(uri, storage_options), level=level, sample_rows=sample_rows, progress=progress)


def repair(uri: str | os.PathLike[str], *, storage_options: Mapping[str, str] | None = None) -> dict[str, str]:
    """Rebuild or drop the indices that `verify` finds to be wrong with level ``indices``. Not in pylance.

    Args:
        uri: Path or address of the table, or of a branch of it.
        storage_options: Settings of the storage service.

    Returns:
        ``"rebuilt"`` or ``"dropped"`` by name of the index. Indices of kinds that lance_core does not build are
        dropped.

    Raises:
        DatasetNotFoundError: There is no table.
        CommitConflictError: Other commits changed the same index each time.

    Examples:
        >>> lance_core.repair("cities.lance")
        {}
    """
    report = verify(uri, level="indices", storage_options=storage_options)
    names = {problem.index_name for problem in report.problems if problem.version == report.version}
    dataset = open_dataset(uri, storage_options=storage_options)
    outcome: dict[str, str] = {}
    for name in sorted(name for name in names if name):
        entries = [index for index in dataset.snapshot.manifest.indices if index.name == name]
        kind = kind_of_index(entries[0])
        column = find_column(
            dataset.snapshot.manifest.schema, path_of(dataset.snapshot.manifest.schema, *entries[0].fields[:1] or (-1,))
        )
        if kind is None or column is None or not kind.takes(column.type):
            dataset.drop_index(name)
            outcome[name] = "dropped"
        elif kind is VECTOR:
            dataset.optimize.optimize_indices(index_names=[name], retrain=True)
            outcome[name] = "rebuilt"
        else:
            dataset.create_scalar_index(column.path, kind.name, name=name)
            outcome[name] = "rebuilt"
    return outcome
