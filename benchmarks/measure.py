"""Measuring side by side: interleaved rounds, CPU and wall time, memory, bytes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_LEAST_S = 0.02
"""Short calls are repeated until they take so long together."""


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of one call.

    Attributes:
        cpu: Of all threads of this process.
        wall: On the clock.
    """

    cpu: float
    wall: float


def _spend(call: Callable[[], Any], times: int) -> Spent:
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(times):
        call()
    return Spent((time.process_time() - cpu) / times, (time.perf_counter() - wall) / times)


def compare(calls: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, Spent]:
    """Medians of each call over interleaved rounds, the order of which rotates; one more round warms up."""
    names = list(calls)
    times = {name: max(1, int(_LEAST_S / max(_spend(calls[name], 1).wall, 1e-6))) for name in names}
    samples: dict[str, list[Spent]] = defaultdict(list)
    for number in range(rounds):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            samples[name].append(_spend(calls[name], min(times[name], 50)))
    return {
        name: Spent(statistics.median(one.cpu for one in all_), statistics.median(one.wall for one in all_))
        for name, all_ in samples.items()
    }


def bytes_on_disk(folder: Path) -> int:
    """Sum of all file sizes below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def peak_memory(engine: str, path: Path, work: str) -> float:
    """MiB that a work adds to the memory of a fresh process that has opened the table.

    Mapped pages of files count: they stay as long as nobody else needs the memory.
    """
    command = [sys.executable, __file__, engine, str(path), work]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = json.loads(answer.splitlines()[-1])
    return (found["peak"] - found["before"]) / 1024


def _status(key: str) -> int:
    """KiB from the process's status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


def _anonymous() -> int:
    return _status("RssAnon")


def main() -> None:
    """Do one work in this process, and print its memory."""
    from engines import ENGINES  # noqa: PLC0415 - only the child needs it

    engine, path, work = sys.argv[1:]
    handle = ENGINES[engine].open(path)
    handle.head(1)
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before, most = _status("VmRSS"), 0
    if work == "stream":
        for _ in handle.to_batches():
            most = max(most, _anonymous())
    else:
        handle.to_table()
    print(json.dumps({"before": before, "peak": _status("VmHWM"), "anonymous": most}))


if __name__ == "__main__":
    main()
