"""Health of all tables: the maintenance that each needs, and the reasons."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import dagster as dg

import lance_core
from lance_core.errors import DatasetNotFoundError, LanceError
from lance_dagster.index_numbers import index_numbers
from lance_dagster.maintenance.assets import Table, index_policy, table_keys_and_indices
from lance_dagster.maintenance.indices import INDICES, what_indices_need
from lance_dagster.maintenance.policies import (
    DEFAULT_CLEANUP,
    DEFAULT_COMPACTION,
    DEFAULT_DELETIONS,
    CleanupPolicy,
    CompactionPolicy,
    DeletionPolicy,
    IndexPolicy,
)
from lance_dagster.maintenance.tasks import num_fragments, plan_compaction, plan_materialization
from lance_dagster.metadata import table_numbers

if TYPE_CHECKING:
    from lance_dagster.resource import LanceResource

_HEADER = ("table", "rows", "fragments", "to merge", "deleted", "bytes", "not indexed", "versions", "tags", "needs")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableHealth:
    """One table at one moment.

    Args:
        table: Asset key, parts joined by ``/``.
        needs: What should be done and why, by the name of the maintenance asset; nothing for a healthy table.
        numbers: What is known of it, by metadata key.
        problem: Why it could not be looked at, or None.
    """

    table: str
    needs: Mapping[str, str]
    numbers: Mapping[str, Any]
    problem: str | None = None


def what_rewriting_needs(
    dataset: lance_core.LanceDataset,
    compaction: CompactionPolicy | None,
    deletions: DeletionPolicy | None,
    indices: IndexPolicy | None = None,
) -> dict[str, str]:
    """Return the reasons for compaction, materialization of deletions and upkeep of indices; reads the manifest."""
    needs: dict[str, str] = {}
    if compaction is not None:
        merged = num_fragments(plan_compaction(dataset, compaction))
        if merged >= max(compaction.min_fragments, 1):
            needs["compaction"] = f"{merged} small fragments can be merged"
    if deletions is not None:
        heavy = num_fragments(plan_materialization(dataset, deletions))
        if heavy:
            needs["materialize_deletions"] = f"{heavy} fragments have more than {deletions.threshold:.0%} deleted rows"
    reason = None if indices is None else what_indices_need(dataset, indices)
    if reason is not None:
        needs[INDICES] = reason
    return needs


def look_at(
    dataset: lance_core.LanceDataset,
    table: str,
    *,
    compaction: CompactionPolicy | None,
    deletions: DeletionPolicy | None,
    cleanup: CleanupPolicy | None,
    indices: IndexPolicy | None = None,
) -> TableHealth:
    """Look at one table; reads the manifests of its versions, and nothing else."""
    needs = what_rewriting_needs(dataset, compaction, deletions, indices)
    versions, tags = dataset.versions(), dataset.tags.list()
    if cleanup is not None:
        tagged = {tag["version"] for tag in tags.values() if tag["branch"] == dataset.branch}
        now = datetime.now(UTC)
        old = [
            version["version"]
            for version in versions[: -cleanup.retain_versions]
            if version["version"] not in tagged and now - version["timestamp"].astimezone(UTC) > cleanup.older_than
        ]
        if old:
            needs["cleanup"] = f"{len(old)} of {len(versions)} versions are older than {cleanup.older_than}"
    merged = num_fragments(plan_compaction(dataset, compaction)) if compaction is not None else 0
    numbers = {
        "lance/rows": dataset.count_rows(),
        **table_numbers(dataset),
        "lance/fragments_to_merge": merged,
        "lance/uncovered_rows": index_numbers(dataset)["lance/uncovered_rows"],
        "lance/versions": len(versions),
        "lance/tags": len(tags),
    }
    return TableHealth(table=table, needs=needs, numbers=numbers)


def health_markdown(tables: Sequence[TableHealth]) -> str:
    """All tables as a Markdown table, those that need something first."""
    lines = [f"| {' | '.join(_HEADER)} |", f"|---|{'---:|' * (len(_HEADER) - 2)}---|"]
    for health in sorted(tables, key=lambda table: (table.problem is None, not table.needs, table.table)):
        needs = health.problem or "; ".join(f"**{name}**: {why}" for name, why in health.needs.items()) or "nothing"
        cells = [f"`{health.table}`", *_cells(health.numbers), needs]
        lines.append(f"| {' | '.join(cells)} |")
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
    return [
        f"{numbers[f'lance/{key}']:.1%}" if key == "deleted_fraction" else f"{numbers[f'lance/{key}']:,}"
        for key in keys
    ]


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
    after: Iterable[dg.AssetsDefinition] = (),
    automation_condition: dg.AutomationCondition | None = None,
    branch: str | None = None,
) -> dg.AssetsDefinition:
    """One asset whose metadata say which tables need which maintenance, and why; it changes nothing.

    Args:
        tables: As in ``build_maintenance_assets``.
        compaction: What is judged by; None looks for nothing of this kind, as with the next two.
        deletions: Likewise.
        cleanup: Likewise.
        indices: Likewise; as in ``build_maintenance_assets``.
        resource_key: Where the ``LanceResource`` is.
        key: Key of the asset.
        group_name: Asset group.
        after: Maintenance assets that go first if they are in the same run.
        automation_condition: For example ``dg.AutomationCondition.on_cron("@hourly")``.
        branch: Look at this branch of the tables.
    """
    keys, declared = table_keys_and_indices(tables)

    def table_health(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        lance: LanceResource = getattr(context.resources, resource_key)
        results = [
            _look(
                lance,
                key,
                branch,
                compaction=compaction,
                deletions=deletions,
                cleanup=cleanup,
                indices=index_policy(indices, declared.get(key)),
            )
            for key in keys
        ]
        sick = [table for table in results if table.needs or table.problem]
        return dg.MaterializeResult(
            metadata={
                "lance/health": dg.MetadataValue.md(health_markdown(results)),
                "lance/needs": dg.MetadataValue.json(
                    {table.table: dict(table.needs) for table in results if table.needs}
                ),
                "lance/tables": len(results),
                "lance/tables_in_need": len(sick),
                **{f"lance/total_{name}": _total(results, name) for name in ("fragments", "table_bytes", "versions")},
            }
        )

    return dg.asset(
        key=[key] if isinstance(key, str) else list(key),
        deps=[*keys, *after],
        group_name=group_name,
        kinds={"lance"},
        description="Which tables need compaction, materialization of deletions or clean-up, and why.",
        required_resource_keys={resource_key},
        automation_condition=automation_condition,
    )(table_health)


def _total(tables: Iterable[TableHealth], name: str) -> int:
    return sum(table.numbers.get(f"lance/{name}", 0) for table in tables)


def _look(
    lance: "LanceResource",
    key: dg.AssetKey,
    branch: str | None,
    *,
    compaction: CompactionPolicy | None,
    deletions: DeletionPolicy | None,
    cleanup: CleanupPolicy | None,
    indices: IndexPolicy | None,
) -> TableHealth:
    name = key.to_user_string() if branch is None else f"{key.to_user_string()}@{branch}"
    try:
        dataset = lance.dataset(key, branch=branch)
        return look_at(dataset, name, compaction=compaction, deletions=deletions, cleanup=cleanup, indices=indices)
    except DatasetNotFoundError:
        return TableHealth(table=name, needs={}, numbers={}, problem="there is no table yet")
    except LanceError as error:
        return TableHealth(table=name, needs={}, numbers={}, problem=f"cannot be read: {error}")
