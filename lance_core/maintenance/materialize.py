"""Materialization of deletions: rewrite fragments without their deleted rows, and touch no others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.maintenance.plan import plan_materialization
from lance_core.maintenance.rewrite import RewriteMetrics, RewriteResult, execute_tasks, rewrite

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_core.maintenance.plan import CompactionOptions
    from lance_core.table.snapshot import Snapshot


def materialize_deletions(
    snapshot: Snapshot,
    options: CompactionOptions,
    *,
    num_threads: int,
    conflict_retries: int | None,
    properties: Mapping[str, str] | None = None,
) -> tuple[Snapshot, RewriteMetrics]:
    """Rewrite the fragments whose share of deleted rows is above ``materialize_deletions_threshold``.

    One commit, or none if there is no such fragment; see `lance_core.maintenance.rewrite.rewrite`.
    """

    def make(snapshot: Snapshot) -> list[RewriteResult]:
        tasks = plan_materialization(snapshot.manifest, threshold=options.materialize_deletions_threshold)
        return execute_tasks(snapshot, tasks, options, num_threads=num_threads)

    return rewrite(
        snapshot,
        make,
        conflict_retries=conflict_retries,
        defers_remap=options.defer_index_remap,
        properties=properties,
    )
