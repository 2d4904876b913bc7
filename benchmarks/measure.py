"""Measuring side by side: interleaved rounds, CPU and wall time, memory, bytes."""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

_SAMPLE_S = 0.002
_LEAST_S, _SHORT_S = 0.02, 0.5
"""Short calls are repeated until they take so long together; what takes this long at first may be short later."""
_SHARE_USED, _MOST_USED = 0.9, 32 << 30
"""Of free memory, and bytes, that are used before works that need a lot."""
_LEAST_ROUNDS, _MOST_S = 3, 8
"""Rounds that there are in any case, and seconds after which there are no more."""


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
    """Medians of each call over interleaved rounds, see `_turns` for their order; one more round warms up.

    Long rounds are not repeated for ever: after eight seconds three are enough.
    """
    return compare_warm(calls, {name: _warm_up(call) for name, call in calls.items()}, rounds)


def _warm_up(call: Callable[[], Any]) -> float:
    """Seconds that a call takes: who learns something in the first one must not be repeated less often for that."""
    first = _spend(call, 1).wall
    return first if first > _SHORT_S else _spend(call, 1).wall


def able(calls: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """Call each: seconds of those that work; whatever an engine says about what it cannot do is printed."""
    found: dict[str, float] = {}
    for name, call in calls.items():
        try:
            found[name] = _warm_up(call)
        except Exception as error:  # noqa: BLE001 - of any engine
            print(f"  {name} cannot do this: {str(error).splitlines()[0][:100]}")
    return found


def compare_warm(
    calls: Mapping[str, Callable[[], Any]],
    seconds: Mapping[str, float],
    rounds: int,
    before: Callable[[str], Any] | None = None,
) -> dict[str, Spent]:
    """As `compare`, of those that were called before and took so many seconds.

    What is done before a call costs nothing; such calls are not repeated within a round.
    """
    names = list(seconds)
    times = {name: 1 if before else max(1, int(_LEAST_S / max(seconds[name], 1e-6))) for name in names}
    samples: dict[str, list[Spent]] = defaultdict(list)
    began = time.monotonic()
    for number in range(rounds):
        if number >= _LEAST_ROUNDS and time.monotonic() - began > _MOST_S:
            break
        for name in _turns(names, number):
            if before:
                before(name)
            samples[name].append(_spend(calls[name], min(times[name], 50)))
    return {
        name: Spent(statistics.median(one.cpu for one in all_), statistics.median(one.wall for one in all_))
        for name, all_ in samples.items()
    }


def _turns(names: list[str], number: int) -> list[str]:
    """The order of one round, such that over the rounds all follow all others alike.

    Who comes after a reader of Parquet finds neither processor caches nor mapped memory: 20 ms instead of 8 for a
    filter. If orders were only rotated, the same engine would bear that in nearly each round.
    """
    size = len(names)
    zigzag = [place // 2 if place % 2 == 0 else size - 1 - place // 2 for place in range(size)]
    order = [names[(place + number // 2) % size] for place in zigzag]
    return order[::-1] if number % 2 else order


def forget(folder: Path) -> float:
    """Let all files of a folder leave the page cache; the share of their pages that stays."""
    gc.collect()  # what is mapped cannot leave
    stays = pages = 0
    for path in folder.rglob("*"):
        if path.is_file() and path.stat().st_size:
            with path.open("rb") as file:
                os.fsync(file.fileno())  # nor what is not written yet
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                found = _resident(file.fileno())
                stays, pages = stays + int(found.sum()), pages + len(found)
    return stays / max(pages, 1)


def _resident(file: int) -> Any:
    """For each page of a file, whether it is in memory."""
    with mmap.mmap(file, 0, prot=mmap.PROT_READ) as mapped:
        start = np.frombuffer(mapped, np.uint8)
        found = np.zeros(-(-len(start) // mmap.PAGESIZE), np.uint8)
        failed = ctypes.CDLL(None).mincore(
            ctypes.c_void_p(start.ctypes.data), ctypes.c_size_t(len(start)), ctypes.c_void_p(found.ctypes.data)
        )
        del start  # else the map cannot be closed
    return np.ones_like(found) if failed else found & 1


def alone(call: Callable[..., T], *arguments: Any) -> T:
    """What a call returns in a new process: memory, threads and caches that others left are not its own.

    A clean-up of 10,000 versions took two fifths more CPU after ten minutes of other works in the same process.
    """
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as process:
        return process.submit(call, *arguments).result()


def use_memory(root: Path, size: int) -> None:
    """Let so many bytes of the machine's memory have been used a moment ago, by a file that comes and goes.

    A virtual machine pays ten times for each page that it never touched, or that it gave back. Every commit to a large
    table needs as many new pages as its manifest has. Without this they are of one kind or the other by chance, and the
    ratio says more about them than about the engines.
    """
    path, block = root / "used", bytes(1 << 24)
    with path.open("wb", buffering=0) as file:
        for _ in range(-(-size // len(block))):
            file.write(block)
    path.unlink()


def use_free_memory() -> None:
    """Let another process use free memory once, for works that need a lot; see `use_memory`."""
    child = multiprocessing.get_context("spawn").Process(target=_use_pages)
    child.start()
    child.join()
    if child.exitcode:  # others needed the memory, or less is allowed here than there is
        print("free memory could not be used before: figures of large works may be rough")


def _use_pages() -> None:
    """Nobody else shall go short: if memory ends, it is this process that ends with it."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    size = min(int(os.sysconf("SC_AVPHYS_PAGES") * _SHARE_USED) * mmap.PAGESIZE, _MOST_USED)
    np.frombuffer(mmap.mmap(-1, size), np.uint8)[:: mmap.PAGESIZE] = 1


def bytes_on_disk(folder: Path) -> int:
    """Sum of all file sizes below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def peak_memory(engine: str, path: Path, work: str, source: Path | None = None) -> tuple[float, float]:
    """MiB that a work adds to the memory of a fresh process.

    Args:
        engine: Its name.
        path: The table; for "write" where it shall be.
        work: "stream", "scan" or "write".
        source: Arrow file that is written; it is mapped.

    Returns:
        All memory, with mapped pages of files, which stay as long as nobody else needs it; and that without them.
    """
    command = [sys.executable, __file__, engine, str(path), work, str(source)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = json.loads(answer.splitlines()[-1])
    return found["peak"] / 1024, found["anonymous"] / 1024


def _status(key: str) -> int:
    """KiB from the process's status."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:"))


class _Sampler(Thread):
    """Looks at memory all the time."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = 0
        self._done = Event()

    def run(self) -> None:
        while not self._done.wait(_SAMPLE_S):
            self.most = max(self.most, _status("RssAnon"))

    def stop(self) -> int:
        self._done.set()
        self.join()
        return max(self.most, _status("RssAnon"))


def added_memory(call: Callable[[], Any]) -> float:
    """MiB that a call adds to the memory of this process, without mapped pages of files."""
    before = _status("RssAnon")
    sampler = _Sampler()
    sampler.start()
    try:
        call()
    finally:
        most = sampler.stop()
    return (most - before) / 1024


def main() -> None:
    """Do one work in this process, and print its memory."""
    import pyarrow as pa  # noqa: PLC0415 - only the child needs it
    from engines import ENGINES  # noqa: PLC0415 - likewise

    engine, path, work, source = sys.argv[1:]
    handle: Any = None
    if work == "write":
        with pa.memory_map(source) as file:
            handle = pa.ipc.open_file(file).read_all()
        ENGINES[engine].write(handle.slice(0, 10), f"{path}-warm")
    else:
        handle = ENGINES[engine].open(path)
        handle.head(1)
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before, anonymous = _status("VmRSS"), _status("RssAnon")
    sampler = _Sampler()
    sampler.start()
    if work == "write":
        ENGINES[engine].write(handle, path)
    elif work == "stream":
        for _ in handle.to_batches():
            pass
    else:
        handle.to_table()
    most = sampler.stop()
    print(json.dumps({"peak": _status("VmHWM") - before, "anonymous": most - anonymous}))


if __name__ == "__main__":
    main()
