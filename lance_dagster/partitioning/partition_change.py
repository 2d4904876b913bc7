"""A job for changed partitions: what is there is reported, what is outside may be renamed or deleted.

No ``from __future__ import annotations`` here: Dagster reads the annotations of the op functions as types.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from lance_core.errors import InvalidInputError
from lance_dagster.located import lance_of
from lance_dagster.metadata import storage_metadata
from lance_dagster.partitioning.partition_counts import existing_keys, outside_filter
from lance_dagster.partitioning.partition_plan import PartitionPlan, plan_partition_change
from lance_dagster.partitioning.partition_scheme import PartitionScheme
from lance_dagster.partitioning.partitions import TablePartitions, columns_of, dimension_definitions
from lance_dagster.partitioning.predicate import literal, quote
from lance_dagster.versions.history import data_version

if TYPE_CHECKING:
    import lance_core
    from lance_dagster.resource import LanceResource


class PartitionChangeConfig(dg.Config):
    """Run configuration of the job for changed partitions."""

    dry_run: bool = Field(default=False, description="Show the plan; change nothing.")
    report_partial: bool = Field(
        default=False, description="Report partitions, too, of which only a part is known to be in the table."
    )
    rename: dict[str, str] = Field(
        default_factory=dict, description="Old key -> new key, for keys that are texts: the rows get the new key."
    )
    delete_outside: bool = Field(default=False, description="Delete rows outside of every partition, in one commit.")


def build_partition_change_job(
    asset: dg.AssetsDefinition,
    *,
    former: dg.PartitionsDefinition | None = None,
    former_expr: str | Mapping[str, str] | None = None,
    resource_key: str = "lance",
) -> dg.JobDefinition:
    """Return a job ``<table>__change_partitions`` that adapts a table and Dagster's records to changed partitions.

    It is for a new start date, other time windows, another column, other dimensions, static partitions that became
    dynamic, and renamed keys. The job shows a plan: partitions that are complete, that are in the table and not
    recorded, that are there in part, that are missing, and rows outside of every partition. Then it reports the second
    ones to Dagster as materialized, with the table's version; no data is read again or written. ``dry_run: true`` only
    shows the plan. ``rename: {eu: europe}`` renames keys in the table, ``delete_outside: true`` deletes rows outside of
    every partition; rows of the near future never count as outside.

    Each commit of the IO manager records the partitions, so the job knows the former ones. For tables that were written
    by an older release, or by others, ``former`` tells.

    Args:
        asset: The asset, with its present partitions and the metadata ``partition_expr``.
        former: The former partitions.
        former_expr: The former ``partition_expr``; None for the present one.
        resource_key: Where the ``LanceResource`` is.

    Raises:
        InvalidInputError: The asset has no partitions.
    """
    partitions, name = TablePartitions.of(asset), "__".join([*asset.key.path, "change_partitions"])
    scheme = None if former is None else PartitionScheme.of(former, former_expr or partitions.partition_expr)

    def change_partitions(context: dg.OpExecutionContext, config: PartitionChangeConfig) -> None:
        lance = lance_of(context, resource_key, asset.metadata_by_key)
        if config.rename and not config.dry_run:
            _rename(context, lance, asset.key, partitions, config.rename)
        dataset = lance.dataset(asset.key)
        plan = plan_partition_change(
            dataset, asset.key, partitions, context.instance, former=scheme, renamed=config.rename
        )
        context.log.info("%s\n%s", plan.summary, plan.markdown())
        context.add_output_metadata(
            {"lance/summary": plan.summary, "lance/partition_plan": dg.MetadataValue.md(plan.markdown())}
        )
        if config.dry_run:
            return
        if config.delete_outside and plan.counts.num_outside:
            dataset = _delete_outside(context, lance, asset.key, partitions)
        if dataset.branch is not None:
            context.log.info("The table is on the branch %r: nothing is reported to Dagster.", dataset.branch)
            return
        reported = [*plan.to_report, *(plan.partial if config.report_partial else ())]
        for event in _events(asset.key, dataset, plan, reported):
            context.log_event(event)
        context.log.info("Reported %d partitions of %s.", len(reported), plan.table)

    op = dg.op(name=name, required_resource_keys={resource_key})(change_partitions)
    # An op and a graph of one name would not load in one code location.
    graph = dg.GraphDefinition(name=f"{name}_graph", node_defs=[op])
    return graph.to_job(name=name, executor_def=dg.in_process_executor)


def _rename(
    context: dg.OpExecutionContext,
    lance: "LanceResource",
    key: dg.AssetKey,
    partitions: TablePartitions,
    renamed: Mapping[str, str],
) -> None:
    """Give rows the new keys, in one commit."""
    definitions = dimension_definitions(partitions.definition)
    (column, definition), *more = zip(
        columns_of(tuple(definitions), partitions.partition_expr), definitions.values(), strict=True
    )
    dataset = lance.writable(key)
    if more or isinstance(definition, dg.TimeWindowPartitionsDefinition) or column not in dataset.schema.names:
        raise InvalidInputError("'rename' is for partitions of one dimension without time, whose keys a column holds.")
    existing = set(existing_keys(partitions.definition, context.instance)[0])
    unknown = sorted(set(renamed.values()) - existing)
    if unknown:
        raise InvalidInputError(f"'rename' names keys that are no partitions of {key.to_user_string()}: {unknown}.")
    term = quote(column)
    cases = " ".join(f"WHEN {term} = {literal(old)} THEN {literal(new)}" for old, new in renamed.items())
    where = f"{term} IN ({', '.join(map(literal, renamed))})"
    rows = dataset.count_rows(filter=where)
    if rows:
        dataset.update({column: f"CASE {cases} END"}, where=where, transaction_properties=_properties(context))
        context.log.info("Renamed the keys of %s rows: version %d.", f"{rows:,}", dataset.version)


def _delete_outside(
    context: dg.OpExecutionContext, lance: "LanceResource", key: dg.AssetKey, partitions: TablePartitions
) -> "lance_core.LanceDataset":
    """Delete rows outside of every partition, in one commit."""
    dataset = lance.writable(key)
    definition, expression = partitions.definition, partitions.partition_expr
    where = outside_filter(dataset, definition, expression, keys=existing_keys(definition, context.instance))
    rows = dataset.count_rows(filter=where)
    dataset.delete(where, transaction_properties=_properties(context))
    context.log.info("Deleted %s rows outside of every partition: version %d.", f"{rows:,}", dataset.version)
    return dataset


def _properties(context: dg.OpExecutionContext) -> dict[str, str]:
    return {"dagster/run_id": context.run.run_id}


def _events(
    key: dg.AssetKey, dataset: "lance_core.LanceDataset", plan: PartitionPlan, reported: Sequence[str]
) -> list[dg.AssetMaterialization]:
    """Materializations of partitions whose rows are in the table already."""
    version = data_version(dataset)
    metadata = {
        **storage_metadata(key, dataset.uri),
        "lance/version": version,
        "lance/reason": "the rows were in the table when the partitions changed",
    }
    return [
        dg.AssetMaterialization(
            key,
            partition=partition,
            metadata={"dagster/partition_row_count": plan.counts.rows.get(partition, 0), **metadata},
            tags={"dagster/data_version": str(version)},
        )
        for partition in reported
    ]
