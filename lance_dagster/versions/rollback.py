"""Undo a bad run: tables go back to the version before it, as a commit.

No ``from __future__ import annotations`` here: Dagster reads the annotations of the op functions as types.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

import lance_core
from lance_core.errors import DatasetNotFoundError, InvalidInputError, RefNotFoundError, VersionNotFoundError
from lance_dagster.identity import RUN_ID
from lance_dagster.located import lance_of
from lance_dagster.maintenance.tables import Table, as_list, table_keys, table_metadata
from lance_dagster.metadata import storage_metadata
from lance_dagster.versions.history import data_changes

if TYPE_CHECKING:
    from lance_dagster.resource import LanceResource

ROLLED_BACK = "lance/rolled_back"
"""Transaction property and metadata key: the run that was undone."""
_LOOKBACK = 1000
_MIN_DIGITS = 8


class RollbackConfig(dg.Config):
    """Run configuration of the job that rolls a run back."""

    run_id: str = Field(description="Id of the run to undo, or at least its first 8 digits.", min_length=_MIN_DIGITS)
    tables: list[str] = Field(default_factory=list, description="Asset keys of tables; all tables of the job if empty.")
    dry_run: bool = Field(default=False, description="Say what would be done; change nothing.")
    force: bool = Field(default=False, description="Undo what later runs changed in these tables, too.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rollback:
    """One table that the run changed.

    Args:
        key: Its asset.
        dataset: Its newest version.
        run_id: Full id of the run.
        version: The version before the run.
        partitions: Partition keys that the run wrote; None alone for the whole asset.
        later: Newer versions with data of other writers.
    """

    key: dg.AssetKey
    dataset: "lance_core.LanceDataset"
    run_id: str
    version: int
    partitions: Sequence[str | None]
    later: Sequence[int]

    @property
    def problem(self) -> str | None:
        """The reason why the version before the run cannot be restored, or None."""
        name = self.key.to_user_string()
        if self.version == 0:
            return f"{name}: the run made the first version, so there is none to go back to; wipe its rows instead."
        try:
            self.dataset.checkout_version(self.version)
        except VersionNotFoundError:
            return f"{name}: clean-up deleted version {self.version}, the last before the run."
        return None


def build_rollback_job(
    tables: Table | Iterable[Table], *, resource_key: str = "lance", name: str = "roll_back_run"
) -> dg.JobDefinition:
    """Return a job that undoes a run: each table that it changed goes back to the version before it, as a new version.

    The run is given in the run configuration: ``ops: {roll_back_run: {config: {run_id: 4b0e5f2a}}}``. All tables are
    looked at first: if one cannot go back, or others changed it after the run (unless ``force: true``), nothing is
    changed. Each table that went back is materialized in Dagster, so that assets downstream become stale.

    Args:
        tables: Asset keys, assets or specs.
        resource_key: Where the ``LanceResource`` is; tables go back on its branch.
        name: Name of the job, and of its op.
    """
    tables = as_list(tables)
    keys, metadata = table_keys(tables), table_metadata(tables)

    def roll_back_run(context: dg.OpExecutionContext, config: RollbackConfig) -> None:
        lance = lance_of(context, resource_key, metadata)
        chosen = [dg.AssetKey.from_user_string(table) for table in config.tables] or keys
        unknown = [key.to_user_string() for key in chosen if key not in keys]
        if unknown:
            listed = ", ".join(key.to_user_string() for key in keys)
            raise InvalidInputError(f"The job has no tables {unknown}. Its tables are: {listed}.")
        _roll_back(context, list(_rollbacks(lance, chosen, config.run_id)), config)

    op = dg.op(name=name, required_resource_keys={resource_key}, description="Undo what a run changed.")(roll_back_run)
    graph = dg.GraphDefinition(name=f"{name}_graph", node_defs=[op])
    return graph.to_job(name=name, executor_def=dg.in_process_executor)


def _rollbacks(lance: "LanceResource", keys: Iterable[dg.AssetKey], run_id: str) -> Iterator[_Rollback]:
    """Look for the tables that a run changed."""
    for key in keys:
        try:
            dataset = lance.dataset(key, branch=lance.own_branch)
        except (DatasetNotFoundError, RefNotFoundError):
            continue
        changes = list(islice(data_changes(dataset, after=0), _LOOKBACK))
        made = [(version, texts) for version, texts in changes if texts.get(RUN_ID, "").startswith(run_id)]
        if not made:
            continue
        first, full_id = made[-1][0], made[-1][1][RUN_ID]
        later = sorted(version for version, texts in changes if version > first and texts.get(RUN_ID) != full_id)
        if any(texts.get(ROLLED_BACK) == full_id for version, texts in changes if version > made[0][0]):
            continue
        partitions = {part for _, texts in made for part in json.loads(texts.get("dagster/partitions", "[]"))}
        yield _Rollback(
            key=key,
            dataset=dataset,
            run_id=full_id,
            version=first - 1,
            partitions=sorted(partitions) or [None],
            later=later,
        )


def _roll_back(context: dg.OpExecutionContext, rollbacks: Sequence[_Rollback], config: RollbackConfig) -> None:
    problems = [table.problem for table in rollbacks if table.problem is not None]
    if not config.force:
        problems += [
            f"{table.key.to_user_string()}: versions {list(table.later)} of other writers are newer; 'force: true' "
            "undoes them, too."
            for table in rollbacks
            if table.later
        ]
    if problems:
        raise dg.Failure(description="Nothing was rolled back. " + " ".join(problems), allow_retries=False)
    if not rollbacks:
        context.log.info("No table has a change of the run %r that was not undone.", config.run_id)
    for table in rollbacks:
        name = table.key.to_user_string()
        if config.dry_run:
            context.log.info("Would take %s back to version %d.", name, table.version)
            continue
        made = _restore(table, context.run.run_id)
        for event in _events(table, made):
            context.log_event(event)
        context.log.info("%s is as in version %d again: version %d.", name, table.version, made.version)


def _restore(table: _Rollback, run_id: str) -> "lance_core.LanceDataset":
    """Commit the version before the run anew, unless somebody committed since the table was looked at."""
    properties = {ROLLED_BACK: table.run_id, RUN_ID: run_id}
    restore = lance_core.LanceOperation.Restore(table.version)
    transaction = lance_core.Transaction(table.dataset.version, restore, transaction_properties=properties)
    return lance_core.LanceDataset.commit(table.dataset, transaction, max_retries=0)


def _events(table: _Rollback, made: "lance_core.LanceDataset") -> list[dg.AssetMaterialization]:
    version = str(made.version) if made.branch is None else f"{made.branch}@{made.version}"
    metadata = {
        **storage_metadata(table.key, made.uri),
        "dagster/row_count": made.count_rows(),
        "lance/version": made.version,
        ROLLED_BACK: table.run_id,
    }
    tags = {"dagster/data_version": version}
    return [
        dg.AssetMaterialization(table.key, partition=partition, metadata=metadata, tags=tags)
        for partition in table.partitions
    ]
