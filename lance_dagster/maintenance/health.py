"""Health of all tables: the maintenance that each needs, and the reasons."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg

from lance_core.errors import DatasetNotFoundError, LanceError, RefNotFoundError
from lance_dagster import _compat
from lance_dagster.index_numbers import index_numbers
from lance_dagster.located import lance_of
from lance_dagster.maintenance.indices import INDICES, what_indices_need
from lance_dagster.maintenance.last import LAST, wait_for_other_steps
from lance_dagster.maintenance.live import current_data, versions_in_use
from lance_dagster.maintenance.partition_advice import manifest_advice, measured_advice
from lance_dagster.maintenance.policies import (
    DEFAULT_CLEANUP,
    DEFAULT_COMPACTION,
    DEFAULT_DELETIONS,
    CleanupPolicy,
    CompactionPolicy,
    DeletionPolicy,
    IndexPolicy,
)
from lance_dagster.maintenance.tables import Table, index_policy, table_keys_and_indices, table_partitions
from lance_dagster.maintenance.tasks import num_fragments, plan_compaction, plan_materialization
from lance_dagster.metadata import readable, readable_value, table_numbers
from lance_dagster.partitioning.partitions import TablePartitions
from lance_dagster.units import age_text, count_text
from lance_dagster.versions.tags import is_run_tag

if TYPE_CHECKING:
    import lance_core
    from lance_dagster.resource import LanceResource

_THREADS = 8
_MAX_TEXT = 300
_SHOWN_TABLES = 25
# What a table needs comes first: pages are narrower than all numbers together.
_HEADER = ("table", "needs", "rows", "fragments", "to merge", "deleted", "bytes", "not indexed", "versions", "tags")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHealth:
    """One table at one moment.

    Args:
        table: Asset key, parts joined by ``/``.
        needs: What should be done and why, by the name of the maintenance asset; nothing for a healthy table.
        numbers: What is known of it, by metadata key.
        problem: Why it could not be looked at, or None.
        blocking_tags: Tags and pins that keep versions which would go otherwise, with the versions.
        advice: What would make the table's partitions better, with numbers.
    """

    table: str
    needs: Mapping[str, str]
    numbers: Mapping[str, Any]
    problem: str | None = None
    blocking_tags: Mapping[str, int] = field(default_factory=dict[str, int])
    advice: Sequence[str] = ()


def fragments_to_merge(dataset: "lance_core.LanceDataset", compaction: CompactionPolicy | None) -> int:
    """Return the number of fragments that compaction would merge; reads the manifest."""
    return 0 if compaction is None else num_fragments(plan_compaction(dataset, compaction))


def what_rewriting_needs(
    dataset: "lance_core.LanceDataset",
    compaction: CompactionPolicy | None,
    deletions: DeletionPolicy | None,
    indices: IndexPolicy | None = None,
    *,
    merged: int | None = None,
) -> dict[str, str]:
    """Return the reasons for compaction, materialization of deletions and upkeep of indices; reads the manifest.

    Args:
        dataset: The table.
        compaction: When to merge fragments.
        deletions: When to rewrite fragments with deleted rows.
        indices: Indices to keep up to date.
        merged: From `fragments_to_merge`, if it is known already.
    """
    needs: dict[str, str] = {}
    merged = fragments_to_merge(dataset, compaction) if merged is None else merged
    if compaction is not None and merged >= max(compaction.min_fragments, 1):
        needs["compaction"] = f"{merged} small fragments can be merged"
    if deletions is not None:
        heavy = num_fragments(plan_materialization(dataset, deletions))
        if heavy:
            verb = "has" if heavy == 1 else "have"
            limit = f"{deletions.threshold:.0%}"
            needs["materialize_deletions"] = f"{count_text(heavy, 'fragment')} {verb} more than {limit} deleted rows"
    reason = None if indices is None else what_indices_need(dataset, indices)
    if reason is not None:
        needs[INDICES] = reason
    return needs


def look_at(
    dataset: "lance_core.LanceDataset",
    table: str,
    *,
    compaction: CompactionPolicy | None,
    deletions: DeletionPolicy | None,
    cleanup: CleanupPolicy | None,
    indices: IndexPolicy | None = None,
    in_use: "Callable[[lance_core.LanceDataset], Iterable[int]]" = current_data,
    advise: "Callable[[lance_core.LanceDataset], Sequence[str]]" = lambda _: (),
) -> TableHealth:
    """Look at one table; reads the manifests of its versions, and nothing else itself.

    Args:
        dataset: The table, newest version.
        table: Its name.
        compaction: What is judged by; None looks for nothing of this kind, as with the next three.
        deletions: Likewise.
        cleanup: Likewise.
        indices: Likewise.
        in_use: Returns the versions that clean-up keeps because of their data.
        advise: Returns advice about its partitions.
    """
    merged = fragments_to_merge(dataset, compaction)
    needs = what_rewriting_needs(dataset, compaction, deletions, indices, merged=merged)
    versions, tags = dataset.versions(), dataset.tags.list()
    blocking_tags: dict[str, int] = {}
    if cleanup is not None:
        branch_tags = {name: tag["version"] for name, tag in tags.items() if tag["branch"] == dataset.branch}
        now = datetime.now(UTC)
        outdated = {
            version["version"]
            for version in versions[: -cleanup.retain_versions]
            if now - version["timestamp"].astimezone(UTC) > cleanup.older_than
        }
        old = outdated.difference(branch_tags.values())
        if old and cleanup.keep_live_inputs:
            old = old.difference(in_use(dataset))
        # Clean-up expires run tags by itself.
        blocking_tags = {
            name: version for name, version in branch_tags.items() if version in outdated and not is_run_tag(name)
        }
        if old:
            needs["cleanup"] = f"{len(old)} of {len(versions)} versions are older than {age_text(cleanup.older_than)}"
    numbers = {
        "lance/rows": dataset.count_rows(),
        **table_numbers(dataset),
        "lance/fragments_to_merge": merged,
        "lance/uncovered_rows": index_numbers(dataset)["lance/uncovered_rows"],
        "lance/versions": len(versions),
        "lance/tags": len(tags),
        "lance/versions_held": len(set(blocking_tags.values())),
    }
    return TableHealth(table=table, needs=needs, numbers=numbers, blocking_tags=blocking_tags, advice=advise(dataset))


def health_markdown(tables: Sequence[TableHealth]) -> str:
    """Tables as a Markdown table, those that need something first; of many, the first ones."""
    lines = [f"| {' | '.join(_HEADER)} |", f"|---|---|{'---:|' * (len(_HEADER) - 2)}"]
    ordered = sorted(tables, key=lambda table: (table.problem is None, not table.needs, table.table))
    for health in ordered[:_SHOWN_TABLES]:
        needs = health.problem or "; ".join(f"**{name}**: {why}" for name, why in health.needs.items()) or "nothing"
        # Texts of advice would make the table wider than the page.
        needs += f"; *advice*: {len(health.advice)}, see `lance/advice`" if health.advice else ""
        cells = [f"`{health.table}`", needs, *_cells(health.numbers)]
        lines.append(f"| {' | '.join(cells)} |")
    if hidden := ordered[_SHOWN_TABLES:]:
        num_sick = sum(1 for table in hidden if table.needs or table.problem)
        text = f"{num_sick:,} of them need something, see `lance/needs`" if num_sick else "nothing"
        lines.append(f"| and {len(hidden):,} more | {text} |{' |' * (len(_HEADER) - 2)}")
    return "\n".join(lines)


def _cells(numbers: Mapping[str, Any]) -> list[str]:
    if not numbers:
        return [""] * (len(_HEADER) - 2)
    keys = (
        "rows",
        "fragments",
        "fragments_to_merge",
        "deleted_fraction",
        "table_bytes",
        "uncovered_rows",
        "versions",
        "tags",
    )
    return [readable_value(key, numbers[f"lance/{key}"]) for key in keys]


def build_table_health(
    tables: Table | Iterable[Table],
    *,
    compaction: CompactionPolicy | None = DEFAULT_COMPACTION,
    deletions: DeletionPolicy | None = DEFAULT_DELETIONS,
    cleanup: CleanupPolicy | None = DEFAULT_CLEANUP,
    indices: IndexPolicy | Mapping[str, str] | None = None,
    resource_key: str = "lance",
    key: Sequence[str] | str = ("maintenance", "table_health"),
    group_name: str = "maintenance",
    automation_condition: dg.AutomationCondition | None = None,
    branch: str | None = None,
    schedule: dg.ScheduleDefinition | None = None,
    measure_partitions: bool = False,
) -> dg.AssetsDefinition:
    """One asset whose metadata say which tables need which maintenance, and why; it changes nothing.

    It depends on no asset, so that a graph of many tables stays readable; in a run with maintenance it comes last, with
    every executor. For tables given as definitions with partitions there is advice: zone maps that are missing, outputs
    that touch many fragments, and with ``measure_partitions`` partitions that are too small, uneven or mixed. Its
    checks ``tables_in_need`` and ``versions_held`` warn: the first of tables that need maintenance or cannot be read,
    the second of old versions that clean-up must leave because of tags or pins.

    Args:
        tables: As in ``build_maintenance_assets``.
        compaction: What is judged by; None looks for nothing of this kind, as with the next two.
        deletions: Likewise.
        cleanup: Likewise.
        indices: Likewise; as in ``build_maintenance_assets``.
        resource_key: Where the ``LanceResource`` is.
        key: Key of the asset.
        group_name: Asset group.
        automation_condition: For example ``dg.AutomationCondition.on_cron("@hourly")``.
        branch: Look at this branch of the tables.
        schedule: Schedule of the maintenance; the metadata then say whether it is on.
        measure_partitions: Count the rows of each partition for the advice, which reads the partition columns of all
            rows of the tables with partitions.
    """
    keys, declared = table_keys_and_indices(tables)
    asset_key = dg.AssetKey([key] if isinstance(key, str) else list(key))
    policies = {table: index_policy(indices, declared.get(table)) for table in keys}
    partitions = table_partitions(tables)

    def table_health(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        wait_for_other_steps(context)
        lance = lance_of(context, resource_key)
        results = look_at_all(
            lance,
            policies,
            context.instance,
            branch=branch,
            compaction=compaction,
            deletions=deletions,
            cleanup=cleanup,
            partitions=partitions,
            measure_partitions=measure_partitions,
        )
        metadata = health_metadata(results)
        if schedule is not None:
            metadata["lance/schedule"] = schedule_text(context.instance, schedule)
        return dg.MaterializeResult(metadata=readable(metadata), check_results=health_checks(results, asset_key))

    return dg.asset(
        key=asset_key,
        group_name=group_name,
        kinds={"lance"},
        description="Which tables need compaction, materialization of deletions or clean-up, and why.",
        required_resource_keys={resource_key},
        automation_condition=automation_condition,
        check_specs=[
            dg.AssetCheckSpec(name, asset=asset_key, description=text) for name, text in HEALTH_CHECKS.items()
        ],
        dagster_type=_compat.NOTHING,
        op_tags=LAST,
    )(table_health)


def look_at_all(
    lance: "LanceResource",
    tables: Mapping[dg.AssetKey, IndexPolicy | None],
    instance: dg.DagsterInstance,
    *,
    branch: str | None,
    compaction: CompactionPolicy | None,
    deletions: DeletionPolicy | None,
    cleanup: CleanupPolicy | None,
    partitions: Mapping[dg.AssetKey, TablePartitions] | None = None,
    measure_partitions: bool = False,
) -> list[TableHealth]:
    """Look at tables, several at a time.

    Args:
        lance: Where the tables are.
        tables: Index policies by asset key.
        instance: Knows the versions that assets downstream were made from, which clean-up keeps.
        branch: The branch to look at; None for the resource's own.
        compaction: As in `look_at`.
        deletions: As in `look_at`.
        cleanup: As in `look_at`.
        partitions: Partitions of the tables that get advice about them.
        measure_partitions: Count the rows of each partition.
    """
    # In an environment of its own, maintenance never touches the main branch.
    branch = branch if branch is not None else lance.own_branch

    def advise(table: dg.AssetKey, dataset: "lance_core.LanceDataset") -> list[str]:
        division = (partitions or {}).get(table)
        if division is None:
            return []
        advice = manifest_advice(dataset, division)
        return [*advice, *measured_advice(dataset, division, instance)] if measure_partitions else advice

    def look(table: dg.AssetKey) -> TableHealth:
        name = table.to_user_string() if branch is None else f"{table.to_user_string()}@{branch}"
        try:
            return look_at(
                lance.dataset(table, branch=branch),
                name,
                compaction=compaction,
                deletions=deletions,
                cleanup=cleanup,
                indices=tables[table],
                in_use=lambda dataset: versions_in_use(instance, table, dataset),
                advise=lambda dataset: advise(table, dataset),
            )
        except DatasetNotFoundError:
            return TableHealth(table=name, needs={}, numbers={}, problem="there is no table yet")
        except RefNotFoundError:
            return TableHealth(table=name, needs={}, numbers={})
        except LanceError as error:
            return TableHealth(table=name, needs={}, numbers={}, problem=f"cannot be read: {error}")

    with ThreadPoolExecutor(_THREADS, thread_name_prefix="lance_health") as pool:
        return list(pool.map(look, tables))


def health_metadata(results: Sequence[TableHealth]) -> dict[str, Any]:
    """Return metadata that tell of all tables, the most important first."""
    sick = [table for table in results if table.needs or table.problem]
    verb = "needs" if len(sick) == 1 else "need"
    num_held = sum(table.numbers.get("lance/versions_held", 0) for table in results)
    suffix = f", tags and pins hold {count_text(num_held, 'old version')}" if num_held else ""
    return {
        "lance/summary": f"{len(sick):,} of {count_text(len(results), 'table')} {verb} maintenance{suffix}",
        "lance/health": dg.MetadataValue.md(health_markdown(results)),
        **_advice(results),
        "lance/tables": len(results),
        "lance/tables_in_need": len(sick),
        "lance/versions_held": num_held,
        **{f"lance/total_{name}": _total(results, name) for name in ("fragments", "table_bytes", "versions")},
        # Last: the UI shows each line of it.
        "lance/needs": dg.MetadataValue.json({table.table: dict(table.needs) for table in results if table.needs}),
    }


def _advice(results: Sequence[TableHealth]) -> dict[str, Any]:
    lines = [f"| `{table.table}` | {text} |" for table in results for text in table.advice]
    return (
        {"lance/advice": dg.MetadataValue.md("\n".join(["| table | advice |", "|---|---|", *lines]))} if lines else {}
    )


HEALTH_CHECKS = {
    "tables_in_need": "Warns of tables that need maintenance or cannot be read.",
    "versions_held": "Warns of old versions that clean-up must leave because of tags or pins.",
}
"""Checks of the asset, with what they do."""


def health_checks(results: Sequence[TableHealth], asset_key: dg.AssetKey) -> list[dg.AssetCheckResult]:
    """Return the results of the checks."""
    findings = {
        "tables_in_need": {
            table.table: table.problem or ", ".join(table.needs) for table in results if table.needs or table.problem
        },
        "versions_held": {
            table.table: ", ".join(f"{name} holds {version}" for name, version in table.blocking_tags.items())
            for table in results
            if table.blocking_tags
        },
    }
    return [
        dg.AssetCheckResult(
            passed=not subjects,
            check_name=name,
            asset_key=asset_key,
            severity=dg.AssetCheckSeverity.WARN,
            description="Nothing found."
            if not subjects
            else f"{count_text(len(subjects), 'table')}: {', '.join(subjects)}"[:_MAX_TEXT],
            metadata={"lance/tables": len(subjects), "lance/needs": dg.MetadataValue.json(subjects)},
        )
        for name, subjects in findings.items()
    ]


def schedule_text(instance: dg.DagsterInstance, schedule: dg.ScheduleDefinition) -> str:
    """Return whether a schedule is on, for people."""
    is_on = _compat.schedule_is_on(instance, schedule)
    advice = "is on" if is_on else "is OFF: turn it on under Automation, or pass default_status=RUNNING"
    return f"{schedule.name} ({schedule.cron_schedule}) {advice}"


def _total(tables: Iterable[TableHealth], name: str) -> int:
    return sum(table.numbers.get(f"lance/{name}", 0) for table in tables)
