"""Observation of what lance_core does: loggers, spans, metrics hooks.

A span is a commit, the writing of files, a compaction, a cleanup, a scan or a call of an object store. Observers
see each begin and end, with its duration and counts; `lance_core.otel` turns them into OpenTelemetry spans and metrics.
Without observers a span costs about a microsecond. Calls of the local file system are no spans.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Self, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

LOGGERS = {
    "lance_core.commit": "INFO: versions that were committed, lost races, conflicts and repeated work",
    "lance_core.write": "INFO: files that a write finished; WARNING: staged files that could not be removed",
    "lance_core.compaction": "INFO: tasks that are done",
    "lance_core.cleanup": "INFO: what was deleted and kept; DEBUG: the reason for each version; WARNING: wrong clocks",
    "lance_core.scan": "DEBUG: rows, bytes and seconds of each scan",
    "lance_core.store": "WARNING: slow calls; INFO: reads that were sent again; DEBUG: each call of an object store",
    "lance_core.spark": "INFO: writes through Spark; WARNING: features that the session does not have",
}
"""Loggers and what they tell; all are below ``lance_core``."""

SLOW_CALL_VARIABLE = "LANCE_CORE_SLOW_STORE_CALL"
"""Environment variable: seconds from which a call of an object store is logged as slow."""
PROGRESS_VARIABLE = "LANCE_CORE_PROGRESS"
"""Environment variable: 0 shows no progress bars, 1 shows them wherever standard error is a terminal."""

_DEFAULT_SLOW_S = 5.0
_STORE_PREFIX = "store."
_STORE = logging.getLogger("lance_core.store")


class Span:
    """Work that runs or has ended; use it as a context manager.

    Args:
        name: ``commit``, ``write``, ``compact``, ``cleanup``, ``scan``, or ``store.`` and the kind of call.
        uri: Address of the table, or of the object that a store is asked for.
        total_rows: Rows that there will be, None if unknown.
        total_tasks: Tasks that there will be, None if unknown.
        is_scoped: The span ends in the thread and context that began it; scans may end elsewhere.
        has_bar: Show a progress bar on a terminal, if it takes long.
        **attributes: What else is known: str, int, float or bool.

    Attributes:
        attributes: Facts such as ``version``, ``operation`` and ``attempts``.
        rows: Rows done.
        num_bytes: Bytes done: of Arrow data for scans and writes, of objects for store calls.
        tasks: Tasks done.
        seconds: Duration; None while the operation runs.
        error: What the operation failed with, or None.
    """

    __slots__ = (
        "_bar",
        "_ends",
        "_started",
        "attributes",
        "error",
        "has_bar",
        "is_scoped",
        "name",
        "num_bytes",
        "rows",
        "seconds",
        "tasks",
        "total_rows",
        "total_tasks",
        "uri",
    )

    def __init__(
        self,
        name: str,
        uri: str,
        *,
        total_rows: int | None = None,
        total_tasks: int | None = None,
        is_scoped: bool = True,
        has_bar: bool = False,
        **attributes: object,
    ) -> None:
        self.name, self.uri, self.attributes = name, uri, attributes
        self.total_rows, self.total_tasks = total_rows, total_tasks
        self.is_scoped, self.has_bar = is_scoped, has_bar
        self.rows = self.num_bytes = self.tasks = 0
        self.seconds: float | None = None
        self.error: BaseException | None = None
        self._ends: list[OnEnd] = []
        self._bar: Any = None
        self._started = 0.0

    @property
    def elapsed_s(self) -> float:
        """Seconds since the operation began, or its duration."""
        return time.monotonic() - self._started if self.seconds is None else self.seconds

    @property
    def is_observed(self) -> bool:
        """True if somebody may read the counts; the bytes of a batch take 2 us for each column to count."""
        return bool(_OBSERVERS)

    def add(self, *, rows: int = 0, num_bytes: int = 0, tasks: int = 0) -> None:
        """Count what was done since the last call."""
        self.rows += rows
        self.num_bytes += num_bytes
        self.tasks += tasks
        if self._bar is not None:
            self._bar.update(tasks if self.total_tasks is not None else rows)

    def __enter__(self) -> Self:
        self._started = time.monotonic()
        for observer in tuple(_OBSERVERS):  # other threads add and remove observers
            end = _guarded(observer, self)
            if end is not None:
                self._ends.append(end)
        if self.has_bar and not _BARS and _shows_bars():
            self._bar = _bar(self)
            _BARS.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        self.seconds = time.monotonic() - self._started
        self.error = error
        if self._bar is not None:
            self._bar.close()
            _BARS.remove(self)
        for end in self._ends[::-1]:
            _guarded(end, self)


class StoreCall(Span):
    """A call of an object store; logged, as a warning if it took long."""

    __slots__ = ()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None:
        super().__exit__(kind, error, traceback)
        _log_call(self)


OnEnd: TypeAlias = "Callable[[Span], Any]"
"""Is told of an operation that has ended."""
Observer: TypeAlias = "Callable[[Span], OnEnd | None]"
"""Is told of an operation that begins; what it returns is told of its end."""

_OBSERVERS: list[Observer] = []
_BARS: list[Span] = []
"""The span that has a progress bar: those inside of it have none."""


def observe(observer: Observer) -> Callable[[], None]:
    """Let an observer see all operations of this process, from any thread.

    What the observer raises is logged and changes nothing.

    Args:
        observer: Is called when an operation begins. If it returns a function, that is called when the operation ends.

    Returns:
        A function that removes the observer.

    Examples:
        >>> seen = []
        >>> stop = lance_core.telemetry.observe(lambda span: seen.append)
        >>> new = lance_core.write_dataset(pa.table({"id": [1, 2]}), "observed.lance")
        >>> stop()
        >>> [(span.name, span.rows) for span in seen]
        [('write', 2), ('commit', 0)]
    """
    _OBSERVERS.append(observer)

    def remove() -> None:
        if observer in _OBSERVERS:
            _OBSERVERS.remove(observer)

    return remove


def is_observed() -> bool:
    """Return whether somebody sees spans, so that counting for them pays."""
    return bool(_OBSERVERS) or _shows_bars()


def on_end(hook: OnEnd) -> Callable[[], None]:
    """Let a metrics hook see each operation when it has ended; returns a function that removes the hook.

    Args:
        hook: Takes a `Span` with its ``seconds``, ``rows``, ``num_bytes``, ``attributes`` and ``error``.
    """
    return observe(lambda _: hook)


def _guarded(function: Callable[[Span], Any], span: Span) -> Any:
    try:
        return function(span)
    except Exception:
        logging.getLogger("lance_core").exception("an observer of the operation %r failed", span.name)
        return None


def _log_call(call: Span) -> None:
    seconds = call.seconds or 0.0
    if seconds >= _slow_call_s():
        _STORE.warning("slow: %s of %s took %.1f s", call.name.removeprefix(_STORE_PREFIX), call.uri, seconds)
    elif _STORE.isEnabledFor(logging.DEBUG):
        failed = "" if call.error is None else f", failed: {call.error}"
        name = call.name.removeprefix(_STORE_PREFIX)
        _STORE.debug("%s of %s took %.3f s%s", name, call.uri, seconds, failed)


def _slow_call_s() -> float:
    try:
        return float(os.environ.get(SLOW_CALL_VARIABLE) or _DEFAULT_SLOW_S)
    except ValueError:
        return _DEFAULT_SLOW_S


# --------------------------------------------------------------------------------------------------------------- bars

_BAR_DELAY_S = 1.0


def _shows_bars() -> bool:
    """Return whether somebody looks on: processes started by others have no terminal as standard input."""
    if not _is_terminal("stderr") or threading.current_thread() is not threading.main_thread():
        return False
    wish = os.environ.get(PROGRESS_VARIABLE)
    return wish == "1" or (wish != "0" and _is_terminal("stdin"))


_ASKED: dict[str, tuple[Any, bool]] = {}
"""Standard streams that were asked whether they are terminals, and their answers."""


def _is_terminal(name: str) -> bool:
    stream = getattr(sys, name)
    if name not in _ASKED or _ASKED[name][0] is not stream:
        try:
            _ASKED[name] = stream, stream is not None and stream.isatty()
        except ValueError:  # closed
            return False
    return _ASKED[name][1]


def _bar(span: Span) -> Any:
    from tqdm import tqdm  # noqa: PLC0415 most processes have no terminal

    by_tasks = span.total_tasks is not None
    return tqdm(
        desc=span.name,
        total=span.total_tasks if by_tasks else span.total_rows,
        unit=" tasks" if by_tasks else " rows",
        unit_scale=not by_tasks,
        delay=_BAR_DELAY_S,
        leave=False,
    )
