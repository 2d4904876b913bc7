"""Compaction: merge small fragments and drop deleted rows from those that have many."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lance_core.maintenance.plan import plan_compaction
from lance_core.maintenance.rewrite import RewriteMetrics, rewrite

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
    return rewrite(
        snapshot,
        partial(plan_compaction, options=options),
        options,
        num_threads=num_threads,
        conflict_retries=conflict_retries,
        properties=properties,
    )
