"""Automation by need: a condition that is true while a table's manifest says that there is something to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from lance_core.errors import DatasetNotFoundError, RefNotFoundError
from lance_dagster import _compat
from lance_dagster.located import located
from lance_dagster.maintenance.assets import PLAN
from lance_dagster.maintenance.health import what_rewriting_needs
from lance_dagster.maintenance.tables import branch_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_dagster.maintenance.policies import CompactionPolicy, DeletionPolicy, IndexPolicy
    from lance_dagster.resource import LanceResource


class MaintenanceNeeded(dg.AutomationCondition):
    """True while compaction or materialization of deletions has something to do; one manifest is read to tell.

    It is for the assets of ``build_maintenance_assets``, whose key tells the table and the kind of maintenance, and
    must be evaluated by the code location itself (``use_user_code_server=True``), since Dagster's daemon does not know
    it.

    Args:
        lance: Where the tables are.
        compaction: When to merge fragments: ``min_fragments`` small ones.
        deletions: When to rewrite fragments: more than ``threshold`` of their rows are deleted.
        indices: When to bring indices up to date: more rows than its share are not covered.
        branch: As for the assets.
        tables: Keys of the tables, for the one asset of ``build_maintenance_assets(per="group")``.
    """

    def __init__(
        self,
        lance: LanceResource,
        *,
        compaction: CompactionPolicy | None,
        deletions: DeletionPolicy | None,
        indices: IndexPolicy | None = None,
        branch: str | None = None,
        tables: Sequence[Sequence[str]] = (),
    ) -> None:
        self._tables = tables
        self._lance, self._compaction, self._deletions, self._branch = lance, compaction, deletions, branch
        self._indices = indices

    @property
    def description(self) -> str:
        """Text that the UI shows."""
        return "The manifest of the table says that there is something to do"

    @property
    def name(self) -> str:
        """Different for different policies, because Dagster tells conditions apart by it."""
        line = "" if self._branch is None else f", {self._branch}"
        indices = "" if self._indices is None else f", {self._indices}"
        return f"maintenance_needed({self._compaction}, {self._deletions}{indices}{line})"

    def evaluate(self, context: dg.AutomationContext) -> dg.AutomationResult:
        """Look at the table of the asset."""
        *path, kind = context.key.path
        tables = self._tables or [path[: len(path) - len(branch_path(self._branch))]]
        lance = located(self._lance, _compat.asset_graphs(context))
        is_needed = any(self._needs(lance, table, kind) for table in tables)
        subset = context.candidate_subset if is_needed else context.get_empty_subset()
        return dg.AutomationResult(context, true_subset=subset)

    def _needs(self, lance: LanceResource, table: Sequence[str], kind: str) -> bool:
        """Return whether a table needs a kind of maintenance; an asset that does all kinds is for any of them."""
        try:
            # In an environment of its own, maintenance never touches the main branch.
            branch = self._branch if self._branch is not None else lance.own_branch
            dataset = lance.dataset(table, branch=branch)
        except (DatasetNotFoundError, RefNotFoundError):
            return False
        needs = what_rewriting_needs(dataset, self._compaction, self._deletions, self._indices)
        return kind in needs or (bool(needs) and (kind == PLAN or bool(self._tables)))


def maintenance_needed(
    lance: LanceResource,
    *,
    compaction: CompactionPolicy | None,
    deletions: DeletionPolicy | None,
    indices: IndexPolicy | None = None,
    retry_cron: str = "@hourly",
    branch: str | None = None,
    tables: Sequence[Sequence[str]] = (),
) -> dg.AutomationCondition:
    """Request maintenance as soon as it is needed, once at a time; after a failure not before the next hour.

    Args:
        lance: Where the tables are.
        compaction: As in ``MaintenanceNeeded``.
        deletions: As in ``MaintenanceNeeded``.
        indices: As in ``MaintenanceNeeded``.
        retry_cron: When to try again what failed.
        branch: As for the assets.
        tables: As in ``MaintenanceNeeded``.
    """
    condition = dg.AutomationCondition
    may_try = ~condition.execution_failed() | condition.cron_tick_passed(retry_cron)
    needed = MaintenanceNeeded(
        lance, compaction=compaction, deletions=deletions, indices=indices, branch=branch, tables=tables
    )
    return needed & ~condition.in_progress() & may_try
