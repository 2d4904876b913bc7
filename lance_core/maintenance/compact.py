"""Compaction: merge small fragments and drop deleted rows from those that have many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.maintenance.plan import plan_compaction
from lance_core.maintenance.rewrite import RewriteMetrics, RewriteResult, execute_tasks, rewrite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_core.maintenance.plan import CompactionOptions
    from lance_core.table.snapshot import Snapshot


def compact(
    snapshot: Snapshot,
    options: CompactionOptions,
    *,
    num_threads: int,
    conflict_retries: int | None,
    properties: Mapping[str, str] | None = None,
) -> tuple[Snapshot, RewriteMetrics]:
    """Compact a table in one commit, or none if nothing is worth it; see `lance_core.maintenance.rewrite.rewrite`."""

    def make(snapshot: Snapshot) -> list[RewriteResult]:
        tasks = plan_compaction(snapshot.manifest, options)
        return execute_tasks(snapshot, tasks, options, num_threads=num_threads)

    return rewrite(
        snapshot,
        make,
        conflict_retries=conflict_retries,
        defers_remap=options.defer_index_remap,
        properties=properties,
    )
