"""Automation by need: a condition that is true while a table's manifest says that there is something to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from lance_core.errors import DatasetNotFoundError, RefNotFoundError
from lance_dagster.maintenance.assets import branch_path
from lance_dagster.maintenance.health import what_rewriting_needs

if TYPE_CHECKING:
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
    """

    def __init__(
        self,
        lance: LanceResource,
        *,
        compaction: CompactionPolicy | None,
        deletions: DeletionPolicy | None,
        indices: IndexPolicy | None = None,
        branch: str | None = None,
    ) -> None:
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
        table = path[: len(path) - len(branch_path(self._branch))]
        try:
            dataset = self._lance.dataset(table, branch=self._branch)
        except (DatasetNotFoundError, RefNotFoundError):
            needs = {}
        else:
            needs = what_rewriting_needs(dataset, self._compaction, self._deletions, self._indices)
        subset = context.candidate_subset if kind in needs else context.get_empty_subset()
        return dg.AutomationResult(context, true_subset=subset)


def maintenance_needed(
    lance: LanceResource,
    *,
    compaction: CompactionPolicy | None,
    deletions: DeletionPolicy | None,
    indices: IndexPolicy | None = None,
    retry_cron: str = "@hourly",
    branch: str | None = None,
) -> dg.AutomationCondition:
    """Request maintenance as soon as it is needed, once at a time; after a failure not before the next hour.

    Args:
        lance: Where the tables are.
        compaction: As in ``MaintenanceNeeded``.
        deletions: As in ``MaintenanceNeeded``.
        indices: As in ``MaintenanceNeeded``.
        retry_cron: When to try again what failed.
        branch: As for the assets.
    """
    condition = dg.AutomationCondition
    may_try = ~condition.execution_failed() | condition.cron_tick_passed(retry_cron)
    needed = MaintenanceNeeded(lance, compaction=compaction, deletions=deletions, indices=indices, branch=branch)
    return needed & ~condition.in_progress() & may_try
