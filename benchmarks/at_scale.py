"""Start-up, opening and committing: little tables, long histories, many fragments."""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
from commit import with_fragments, with_versions
from measure import compare

import lance_core

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ENGINES: dict[str, Any] = {"lance_core": lance_core, "pylance": lance}
ROW = pa.table({"x": pa.array([1], pa.int64())})
_IMPORT = """
import json, resource, sys
__import__(sys.argv[1])
used = resource.getrusage(resource.RUSAGE_SELF)
status = open("/proc/self/status").read()  # getrusage remembers the memory of the process that started this one
peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
print(json.dumps([used.ru_utime + used.ru_stime, peak / 1024]))
"""

Spent = dict[str, tuple[float, float]]


def imports(rounds: int) -> dict[str, Spent]:
    """CPU seconds and MiB of a fresh process that imports one of them."""
    samples: dict[str, list[list[float]]] = {"lance_core": [], "lance": [], "pyarrow": []}
    for _ in range(rounds + 1):
        for name, all_ in samples.items():
            answer = subprocess.run([sys.executable, "-c", _IMPORT, name], check=True, capture_output=True, text=True)
            all_.append(json.loads(answer.stdout))
    found: Spent = {}
    for name, all_ in samples.items():
        cpu, memory = (statistics.median(column) for column in zip(*all_[1:], strict=True))
        found["pylance" if name == "lance" else name] = (cpu, memory)
    return {"import": found}


def opening(root: Path, *, versions: int, fragments: int, rounds: int) -> dict[str, Spent]:
    """Open, append to and list the versions of tables of three shapes."""
    found: dict[str, Spent] = {}
    small = root / "small"
    columns = pa.table({f"c{number}": range(1000) for number in range(6)})
    lance_core.write_dataset(columns, small)
    found["open"] = _both(lambda engine: engine.dataset(str(small)), rounds)
    found["append 1k"] = _both(lambda engine: engine.write_dataset(columns, str(small), mode="append"), rounds)
    wide = with_fragments(root, fragments)
    found["open with many fragments"] = _both(lambda engine: engine.dataset(str(wide)), rounds)
    found["append to many fragments"] = _both(
        lambda engine: engine.write_dataset(ROW, str(wide), mode="append"), min(rounds, 3)
    )
    shutil.rmtree(wide)
    few, long = with_versions(root, 10), with_versions(root, versions)
    found["open with many versions"] = _both(lambda engine: engine.dataset(str(long)), rounds)
    found["open with 10 versions"] = _both(lambda engine: engine.dataset(str(few)), rounds)
    found["versions"] = _both(lambda engine: list(engine.dataset(str(long)).versions()), min(rounds, 3))
    return found


def _both(work: Callable[[Any], Any], rounds: int) -> Spent:
    calls = {name: lambda engine=engine: work(engine) for name, engine in ENGINES.items()}
    return {name: (one.cpu, one.wall) for name, one in compare(calls, rounds).items()}
