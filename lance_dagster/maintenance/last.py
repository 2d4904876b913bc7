"""Wait for the other steps of a run: a step comes last without depending on hundreds of assets."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from lance_dagster import _compat

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    import dagster as dg

LAST = {_compat.PRIORITY: "-100"}
"""Tags of a step that calls `wait_for_other_steps`."""
_POLL_S = 1.0
_MAX_WAIT_S = 6 * 3600.0


def wait_for_other_steps(context: dg.AssetExecutionContext) -> None:
    """Return when no other step of the run can run any more, except those that wait for this one.

    An executor that runs steps one after the other has run them already, because this one has the lowest priority.
    Executors with processes start this step while others are running; it then waits in its own process. Failed steps
    do not matter, unlike with a dependency. Steps of the same priority wait as this one does, so nobody waits for them.

    Args:
        context: Of the running step.
    """
    graph = _compat.step_graph(context)
    if graph is None:
        return
    last, upstream = graph
    deadline = time.monotonic() + _MAX_WAIT_S
    finished: dict[str, bool] = {}
    cursor: str | None = None
    while time.monotonic() < deadline:
        is_told = cursor is not None
        ended, cursor = _compat.finished_steps(context.instance, context.run.run_id, cursor=cursor)
        finished |= ended
        if ended or not is_told:
            waiting = pending_steps(last, upstream, finished)
            if not waiting:
                return
            if not is_told:
                context.log.info("Waiting for %d other steps of this run.", len(waiting))
        time.sleep(_POLL_S)
    context.log.warning("Other steps of this run did not end within %d hours.", _MAX_WAIT_S // 3600)


def pending_steps(last: Collection[str], upstream: Mapping[str, set[str]], finished: Mapping[str, bool]) -> set[str]:
    """Return the steps that run or will run, and that do not wait for one of the last.

    Args:
        last: Steps that come last, one's own among them.
        upstream: Steps that each step waits for.
        finished: Whether each step that ended succeeded.
    """
    never = {*last} | {step for step, succeeded in finished.items() if not succeeded}
    remaining = {step for step in upstream if step not in finished and step not in last}
    while True:
        blocked = {step for step in remaining if upstream[step] & never}
        if not blocked:
            return remaining
        never |= blocked
        remaining -= blocked
