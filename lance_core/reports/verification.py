"""Verification and repair of a table: everything that its versions need is there and fits together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.dataset import dataset as open_dataset
from lance_core.errors import InvalidInputError
from lance_core.index.column import find_column, path_of
from lance_core.index.kinds import kind_of_index
from lance_core.index.vector.kind import VECTOR
from lance_core.maintenance.diagnose import plan_repair as make_plan
from lance_core.maintenance.repair import execute_plan
from lance_core.maintenance.repair_plan import RepairPlan, RepairStep
from lance_core.maintenance.verify import verify_table
from lance_core.maintenance.verify_report import VerifyProblem, VerifyReport
from lance_core.table.open_table import open_branch

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from lance_core.dataset import LanceDataset

__all__ = ["RepairPlan", "RepairStep", "VerifyProblem", "VerifyReport", "plan_repair", "repair", "verify"]


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


def plan_repair(
    uri: str | os.PathLike[str],
    *,
    level: str = "quick",
    storage_options: Mapping[str, str] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> RepairPlan:
    """Tell what `repair` would do to a table, and what that would lose. Not in pylance. Nothing is written.

    Args:
        uri: Path or address of the table, or of a branch of it.
        level: ``quick`` finds files that are missing or have another size; ``full`` also holds all bytes of the newest
            version's data files against their checksums. Indices are always compared with the columns.
        storage_options: Settings of the storage service.
        progress: Is told what is being looked at, how much of it is done, and how much there is.

    Returns:
        The steps. ``str(plan)`` tells them to people, ``plan.asdict()`` to programs.

    Raises:
        DatasetNotFoundError: There is no table.
        InvalidInputError: There is no such level, or no such address.

    Examples:
        >>> lance_core.plan_repair("cities.lance").steps
        ()
    """
    return make_plan(open_branch(uri, storage_options), level=level, progress=progress)


def repair(
    uri: str | os.PathLike[str],
    *,
    level: str = "quick",
    allow_loss: bool = False,
    storage_options: Mapping[str, str] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, str]:
    """Repair a table: make it readable again, and its indices agree with its columns. Not in pylance.

    - A damaged manifest of the newest version is moved away. The version is committed again if the file of its
      transaction is there; otherwise the version before it is the newest.
    - Of a data file with changed bytes, which level ``full`` finds, the rows that can be read are written to a new one.
    - A fragment goes if the data file is lost that its rows were written with. Values of columns that were added later
      become null if the columns allow it.
    - A fragment whose deletion file is lost takes that of an older version.
    - Tags of versions that are not there, and what died work has left, go.
    - Indices are built again, or dropped if lance_core does not build their kind.

    Manifests, tags and branches are moved to the folder ``_damaged`` of the table. Nobody should write to the table
    meanwhile.

    Args:
        uri: Path or address of the table, or of a branch of it.
        level: As in `plan_repair`.
        allow_loss: Also do steps that lose rows, values or versions, or bring deleted rows back.
        storage_options: Settings of the storage service.
        progress: As in `plan_repair`.

    Returns:
        What was done, such as ``"rebuilt"``, ``"dropped"`` or ``"removed"``, by what it was done to: the name of an
        index, ``fragment 3``, ``version 7``, ``tag 'best'``.

    Raises:
        DatasetNotFoundError: There is no table.
        InvalidInputError: Something would be lost, and ``allow_loss`` is not given; nothing was done.
        CommitConflictError: Other commits changed the same fragments or indices.

    Examples:
        >>> lance_core.repair("cities.lance")
        {}
    """
    plan = plan_repair(uri, level=level, storage_options=storage_options, progress=progress)
    if not (plan.is_lossless or allow_loss):
        losses = "; ".join(step.loss for step in plan.steps if step.loss)
        message = f"a repair would lose something: {losses}. Pass allow_loss=True to accept this"
        raise InvalidInputError(message, path=plan.uri)
    outcome = execute_plan(open_branch(uri, storage_options), plan)
    for step in plan.steps:
        if step.kind == "index":
            outcome[step.target] = _repair_index(open_dataset(uri, storage_options=storage_options), step.target)
    return outcome


def _repair_index(dataset: LanceDataset, name: str) -> str:
    """Build an index again, or drop it."""
    schema = dataset.snapshot.manifest.schema
    entry = next(index for index in dataset.snapshot.manifest.indices if index.name == name)
    kind = kind_of_index(entry)
    field_id = entry.fields[0] if entry.fields else -1
    column = find_column(schema, path_of(schema, field_id))
    if kind is None or column is None or not kind.takes(column.type):
        dataset.drop_index(name)
        return "dropped"
    if kind is VECTOR:
        dataset.optimize.optimize_indices(index_names=[name], retrain=True)
    else:
        dataset.create_scalar_index(column.path, kind.name, name=name)
    return "rebuilt"
