"""Branches as environments: the branch of a deployment, and jobs that publish and drop it.

No ``from __future__ import annotations`` here: Dagster reads the annotations of the op functions as types.
"""

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from lance_core.errors import DatasetNotFoundError, InvalidInputError, LanceError, RefNotFoundError
from lance_dagster.located import lance_of
from lance_dagster.maintenance.tables import Table, as_list, table_keys, table_metadata
from lance_dagster.settings import MAIN
from lance_dagster.versions.history import data_changes
from lance_dagster.versions.publish import check_publishable, publish

if TYPE_CHECKING:
    from lance_dagster.resource import LanceResource

BRANCH_VARIABLE = "LANCE_BRANCH"
_IS_BRANCH_DEPLOYMENT = "DAGSTER_CLOUD_IS_BRANCH_DEPLOYMENT"
_GIT_BRANCH = "DAGSTER_CLOUD_GIT_BRANCH"


class BranchConfig(dg.Config):
    """Run configuration of the jobs that publish and drop a branch."""

    branch: str = Field(description="The branch.")
    tables: list[str] = Field(default_factory=list, description="Asset keys of tables; all tables of the job if empty.")
    dry_run: bool = Field(default=False, description="Say what would be done; change nothing.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """One table that has the branch.

    Args:
        key: Its asset.
        uri: Its address.
        changes: Number of versions of the branch that changed data.
    """

    key: dg.AssetKey
    uri: str
    changes: int


def deployment_branch(variable: str = BRANCH_VARIABLE) -> str | None:
    """Return the table branch of this environment, for ``branch=`` of the IO manager and the resource.

    It is what the environment variable says, else the git branch of a branch deployment of Dagster+, else None: the
    main branch. Characters that a branch of a table cannot have become ``-``.

    Args:
        variable: Name of the environment variable; the value ``main`` or an empty one is the main branch.

    Example:
        ``LanceIOManager(root="s3://lake", branch=deployment_branch())``
    """
    name = os.environ.get(variable, "")
    if not name and os.environ.get(_IS_BRANCH_DEPLOYMENT) == "1":
        name = os.environ.get(_GIT_BRANCH, "")
        if not name:
            raise InvalidInputError(
                f"This is a branch deployment without a branch: {_GIT_BRANCH} is empty. Set {variable} to the branch "
                "that it works on."
            )
    name = re.sub(r"[^A-Za-z0-9._/-]+", "-", name)
    name = re.sub(r"\.{2,}", ".", re.sub(r"/{2,}", "/", name)).strip("/.-").removesuffix(".lock")
    return None if name in ("", MAIN) else name


def build_branch_jobs(
    tables: Table | Iterable[Table],
    *,
    resource_key: str = "lance",
    publish_name: str = "publish_branch",
    drop_name: str = "drop_branch",
) -> list[dg.JobDefinition]:
    """Jobs that publish a branch of many tables to their main branches, and that drop it.

    The branch is given in the run configuration: ``ops: {publish_branch: {config: {branch: trial}}}``. Publishing looks
    at all tables first: if others changed a main branch since the branch began, nothing is published. Each published
    table is materialized in Dagster. Tables without the branch, or without changes on it, are left alone. Dropping
    removes the branch, its run tags and its files, never anything of the main branch.

    Args:
        tables: Asset keys, assets or specs.
        resource_key: Where the ``LanceResource`` is.
        publish_name: Name of the job that publishes, and of its op.
        drop_name: Name of the job that drops, and of its op.
    """
    tables = as_list(tables)
    keys, metadata = table_keys(tables), table_metadata(tables)

    def publish_branch(context: dg.OpExecutionContext, config: BranchConfig) -> None:
        lance = lance_of(context, resource_key, metadata)
        _publish_all(context, lance, _chosen(keys, config), config)

    def drop_branch(context: dg.OpExecutionContext, config: BranchConfig) -> None:
        lance = lance_of(context, resource_key, metadata)
        _drop_all(context, lance, _chosen(keys, config), config)

    return [
        _job(publish_name, publish_branch, resource_key, "Make what a branch holds the data of the main branch."),
        _job(drop_name, drop_branch, resource_key, "Remove a branch of all tables."),
    ]


def _job(name: str, function: Any, resource_key: str, description: str) -> dg.JobDefinition:
    op = dg.op(name=name, required_resource_keys={resource_key}, description=description)(function)
    # An op and a graph of one name would not load in one code location.
    graph = dg.GraphDefinition(name=f"{name}_graph", node_defs=[op], description=description)
    return graph.to_job(name=name, executor_def=dg.in_process_executor)


def _chosen(keys: list[dg.AssetKey], config: BranchConfig) -> list[dg.AssetKey]:
    if config.branch == MAIN:
        raise InvalidInputError("The main branch can be neither published nor dropped. Name another branch.")
    chosen = [dg.AssetKey.from_user_string(table) for table in config.tables]
    unknown = [key.to_user_string() for key in chosen if key not in keys]
    if unknown:
        raise InvalidInputError(f"The job has no tables {unknown}. Its tables are: {_listed(keys)}.")
    return chosen or keys


def _listed(keys: Iterable[dg.AssetKey]) -> str:
    return ", ".join(key.to_user_string() for key in keys) or "none"


def _with_branch(lance: "LanceResource", keys: Iterable[dg.AssetKey], branch: str) -> Iterator[_Work]:
    """Look for the tables that have the branch."""
    for key in keys:
        uri = lance.uri(key)
        try:
            dataset = lance.tables.open(uri, branch=branch)
        except (DatasetNotFoundError, RefNotFoundError):
            continue
        began = dataset.branches.list()[branch]["parent_version"]
        yield _Work(key=key, uri=uri, changes=sum(1 for _ in data_changes(dataset, after=began)))


def _publish_all(
    context: dg.OpExecutionContext, lance: "LanceResource", keys: list[dg.AssetKey], config: BranchConfig
) -> None:
    branch = config.branch
    works = [work for work in _with_branch(lance, keys, branch) if work.changes]
    problems: list[str] = []
    for work in works:
        try:
            check_publishable(lance.tables, work.uri, branch)
        except LanceError as error:
            problems.append(f"{work.key.to_user_string()}: {error.message}")
    if problems:
        raise dg.Failure(description="Nothing was published. " + " ".join(problems), allow_retries=False)
    names = _listed(work.key for work in works)
    if config.dry_run:
        context.log.info("Would publish the branch %r of: %s.", branch, names)
        return
    for work in works:
        dataset = publish(lance.tables, work.uri, branch, where=None)
        for event in lance.published_events(work.key, branch, dataset):
            context.log_event(event)
        context.log.info(
            "Published the branch %r of %s: version %d.", branch, work.key.to_user_string(), dataset.version
        )
    context.log.info("Published the branch %r of %d tables: %s.", branch, len(works), names)


def _drop_all(
    context: dg.OpExecutionContext, lance: "LanceResource", keys: list[dg.AssetKey], config: BranchConfig
) -> None:
    branch = config.branch
    works = list(_with_branch(lance, keys, branch))
    names = _listed(work.key for work in works)
    if config.dry_run:
        context.log.info("Would drop the branch %r of: %s.", branch, names)
        return
    for work in works:
        dataset = lance.tables.open(work.uri, allow_placeholder=True)
        for tag in [name for name, tag in dataset.tags.list().items() if tag["branch"] == branch]:
            dataset.tags.delete(tag)
        dataset.branches.delete(branch)
    context.log.info("Dropped the branch %r of %d tables: %s.", branch, len(works), names)
