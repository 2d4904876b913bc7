"""CPU seconds of this process and everything below it, also of what has ended."""

from __future__ import annotations

import os
import threading
from functools import cache
from pathlib import Path

CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SAMPLES_PER_S = 2


@cache
def _meter() -> _CpuMeter:
    return _CpuMeter()


def cpu_seconds() -> float:
    """CPU seconds of this process and all its descendants since the first call, those that have ended included."""
    return _meter().seconds()


class _CpuMeter:
    """Sums up the CPU seconds of a tree of processes.

    Times that ended children hand to their parents cannot be relied on: Spark kills Python workers together with the
    process that would wait for them. So all processes are looked at again and again, and what was last seen of one that
    is gone counts on.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[int, int], float] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        pause = threading.Event()
        while not pause.wait(1 / SAMPLES_PER_S):
            self.seconds()

    def seconds(self) -> float:
        """So many until now."""
        with self._lock:
            for pid, started, spent in _family():
                self._seen[pid, started] = spent
            return sum(self._seen.values())


def _family() -> list[tuple[int, int, float]]:
    """Process id, time of its start and its own CPU seconds, for this process and all its descendants."""
    found: dict[int, tuple[int, int, float]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it ended meanwhile
        spent = int(fields[11]) + int(fields[12])
        found[int(path.parent.name)] = (int(fields[1]), int(fields[19]), spent / CLOCK_TICKS_PER_S)
    family = {os.getpid()}
    while grown := {pid for pid, (parent, _, _) in found.items() if parent in family} - family:
        family |= grown
    return [(pid, found[pid][1], found[pid][2]) for pid in family if pid in found]
