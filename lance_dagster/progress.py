"""Progress of a running step in the run log: rows, bytes and rate, Spark's tasks, conflicts and retries."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from lance_core import telemetry
from lance_dagster.units import bytes_text, count_text, seconds_text

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from logging import Logger

    from lance_core.telemetry import OnEnd, Span

INTERVAL_S = 10.0
"""Seconds between two lines about the same step."""
_COMMIT = "commit"
_VERBS = {"write": "written", "compact": "rewritten", "scan": "read", "cleanup": "deleted"}


class Watch:
    """Watches a running step.

    Args:
        log: The run log.
        uri: The table; spans of other tables are left out.
        doing: What is being done, such as ``"Storing orders"``.

    Attributes:
        session: The Spark session whose tasks count, once it is known.
    """

    def __init__(self, log: Logger, uri: str, doing: str) -> None:
        self._log, self._uri, self._doing = log, uri, doing
        self._running: list[Span] = []
        self._elapsed_s = 0.0
        self.session: Any = None

    def takes(self, session: Any) -> Any:
        """Take note of the Spark session that computes; returns it."""
        self.session = session
        return session

    def begin(self, span: Span) -> OnEnd | None:
        """Take note of a span of this table."""
        if not (span.uri == self._uri or span.uri.startswith(f"{self._uri}/")):
            return None
        if span.name == _COMMIT:
            return self._end_commit
        if span.name not in _VERBS:
            return None
        self._running.append(span)
        return self._running.remove

    def _end_commit(self, span: Span) -> None:
        attempts = span.attributes.get("attempts")
        if span.error is not None:
            self._log.info("A commit to %s did not happen: %s", self._uri, span.error)
        elif isinstance(attempts, int) and attempts > 1:
            version = span.attributes["version"]
            self._log.info("Version %d of %s took %d attempts beside other writers.", version, self._uri, attempts)

    def tell(self, interval_s: float) -> None:
        """Write a line about what runs now."""
        self._elapsed_s += interval_s
        parts = [self._told(span) for span in list(self._running)]
        with suppress(Exception):  # a session that is stopping
            parts += spark_tasks(self.session)
        told = "; ".join(parts) or "nothing written yet"
        self._log.info("%s, %s so far: %s.", self._doing, seconds_text(self._elapsed_s), told)

    def _told(self, span: Span) -> str:
        rate = span.rows / max(span.elapsed_s, 1e-3)
        total = "" if span.total_rows is None else f" of {span.total_rows:,}"
        rows = f"{span.rows:,}{total} rows and {bytes_text(span.num_bytes)} {_VERBS[span.name]}, {rate:,.0f} rows/s"
        return rows if span.total_tasks is None else f"{span.tasks} of {count_text(span.total_tasks, 'task')}, {rows}"


class _Teller:
    """Writes the lines about all running steps, from one thread that ends when there are none.

    A thread for each step costs more than most steps of maintenance.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._due_s: dict[Watch, float] = {}
        self._wake_s = 0.0
        self._thread: threading.Thread | None = None

    def add(self, watch: Watch) -> None:
        """Tell of a step from now on."""
        with self._condition:
            self._due_s[watch] = time.monotonic() + INTERVAL_S
            if self._thread is None or not self._thread.is_alive():  # a process that was forked has none
                self._thread = threading.Thread(target=self._run, name="lance_dagster_progress", daemon=True)
                self._thread.start()
            if self._due_s[watch] < self._wake_s:
                self._condition.notify()

    def remove(self, watch: Watch) -> None:
        """Tell no more of a step; when this returns, its last line has been written."""
        with self._condition:
            del self._due_s[watch]

    def _run(self) -> None:
        with self._condition:
            was_woken = True
            while self._due_s or was_woken:
                self._wake_s = min(self._due_s.values(), default=time.monotonic() + INTERVAL_S)
                was_woken = self._condition.wait(max(self._wake_s - time.monotonic(), 0.0))
                for watch in [watch for watch, due_s in self._due_s.items() if due_s <= time.monotonic()]:
                    self._due_s[watch] = time.monotonic() + INTERVAL_S
                    with suppress(Exception):  # a run log that is gone
                        watch.tell(INTERVAL_S)
            self._thread = None


_TELLER = _Teller()


def spark_tasks(session: Any) -> list[str]:
    """Return how many tasks of Spark's running stages are done; nothing without a classic session."""
    context = None if session is None else getattr(session, "_sc", None)
    if context is None:
        return []
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return [
        f"Spark stage {stage.stageId}: {stage.numCompletedTasks} of {count_text(stage.numTasks, 'task')} done"
        for stage in stages
        if stage is not None
    ]


@contextmanager
def watched(log: Logger, uri: str, doing: str, *, session: Any = None) -> Generator[Watch]:
    """Tell the run log every ten seconds what becomes of a step, and of each conflict.

    Args:
        log: The run log.
        uri: The table.
        doing: What is being done.
        session: Spark session that computes, if there is one; `Watch.session` takes it later, too.
    """
    watch = Watch(log, uri, doing)
    watch.session = session
    remove: Callable[[], None] = telemetry.observe(watch.begin)
    with _connect_tasks(session, log, doing):
        _TELLER.add(watch)
        try:
            yield watch
        finally:
            remove()
            _TELLER.remove(watch)


@contextmanager
def _connect_tasks(session: Any, log: Logger, doing: str) -> Generator[None]:
    """Tell of the tasks of a Spark Connect session, whose server reports them."""
    register = None if getattr(session, "_sc", None) is not None else getattr(session, "registerProgressHandler", None)
    if register is None:
        yield
        return
    last = [0.0]

    def handle(stages: Any, inflight_tasks: int, operation_id: Any, done: bool) -> None:
        del inflight_tasks, operation_id
        if done or not stages or time.monotonic() - last[0] < INTERVAL_S:
            return
        last[0] = time.monotonic()
        tasks, completed = sum(stage.num_tasks for stage in stages), sum(stage.num_completed_tasks for stage in stages)
        log.info("%s: %d of %s of Spark done.", doing, completed, count_text(tasks, "task"))

    last[0] = time.monotonic()
    register(handle)
    try:
        yield
    finally:
        session.removeProgressHandler(handle)
