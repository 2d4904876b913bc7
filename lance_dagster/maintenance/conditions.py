"""Automation by need: a condition that is true while a table's manifest says that there is something to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from lance_core.errors import DatasetNotFoundError
from lance_dagster.maintenance.health import what_rewriting_needs

if TYPE_CHECKING:
    from lance_dagster.maintenance.policies import CompactionPolicy, DeletionPolicy
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
    """

    def __init__(
        self, lance: LanceResource, *, compaction: CompactionPolicy | None, deletions: DeletionPolicy | None
    ) -> None:
        self._lance, self._compaction, self._deletions = lance, compaction, deletions

    @property
    def description(self) -> str:
        """What the UI shows."""
        return "The manifest of the table says that there is something to do"

    @property
    def name(self) -> str:
        """Different for different policies, because Dagster tells conditions apart by it."""
        return f"maintenance_needed({self._compaction}, {self._deletions})"

    def evaluate(self, context: dg.AutomationContext) -> dg.AutomationResult:
        """Look at the table of the asset."""
        *table, kind = context.key.path
        try:
            dataset = self._lance.dataset(table)
        except DatasetNotFoundError:
            needs = {}
        else:
            needs = what_rewriting_needs(dataset, self._compaction, self._deletions)
        found = context.candidate_subset if kind in needs else context.get_empty_subset()
        return dg.AutomationResult(context, true_subset=found)


def maintenance_needed(
    lance: LanceResource,
    *,
    compaction: CompactionPolicy | None,
    deletions: DeletionPolicy | None,
    retry_cron: str = "@hourly",
) -> dg.AutomationCondition:
    """Request maintenance as soon as it is needed, once at a time; after a failure not before the next hour.

    Args:
        lance: Where the tables are.
        compaction: As in ``MaintenanceNeeded``.
        deletions: As in ``MaintenanceNeeded``.
        retry_cron: When to try again what failed.
    """
    condition = dg.AutomationCondition
    may_try = ~condition.execution_failed() | condition.cron_tick_passed(retry_cron)
    needed = MaintenanceNeeded(lance, compaction=compaction, deletions=deletions)
    return needed & ~condition.in_progress() & may_try
