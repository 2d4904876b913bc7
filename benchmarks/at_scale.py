"""Start-up, opening and committing: little tables, long histories, many fragments."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
from commit import with_fragments, with_versions
from data import load
from measure import bytes_on_disk, compare, use_memory

import lance_core

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ENGINES: dict[str, Any] = {"lance_core": lance_core, "pylance": lance}
ROW = pa.table({"x": pa.array([1], pa.int64())})
_IMPORT = """
import json, resource, sys, time
began = time.perf_counter()
module = __import__(sys.argv[1])
getattr(module, "dataset", None)  # lance_core imports what opens, reads and writes tables when it is asked for
wall = time.perf_counter() - began
used = resource.getrusage(resource.RUSAGE_SELF)
status = open("/proc/self/status").read()  # getrusage remembers the memory of the process that started this one
peak = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
print(json.dumps([used.ru_utime + used.ru_stime, wall, peak / 1024]))
"""

Spent = dict[str, tuple[float, float]]


def imports(root: Path, rounds: int) -> dict[str, Any]:
    """CPU and wall seconds, and MiB, of a fresh process that imports one of them to open tables; CPU with Python.

    All are compiled by the first round, as installed packages are.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = str(root / "compiled")
    samples: dict[str, list[list[float]]] = {"lance_core": [], "lance": [], "pyarrow": []}
    for _ in range(rounds + 1):
        for name, all_ in samples.items():
            command = [sys.executable, "-c", _IMPORT, name]
            answer = subprocess.run(command, check=True, capture_output=True, env=environment)
            all_.append(json.loads(answer.stdout))
    times: Spent = {}
    memory: dict[str, float] = {}
    for name, all_ in samples.items():
        cpu, wall, peak = (statistics.median(column) for column in zip(*all_[1:], strict=True))
        told = "pylance" if name == "lance" else name
        times[told], memory[told] = (cpu, wall), peak
    return {"import": times, "import memory": memory}


def opening(root: Path, versions: int, fragments: int, rounds: int) -> dict[str, Spent]:
    """Open, append to and list the versions of tables of three shapes."""
    found: dict[str, Spent] = {}
    small = root / "small"
    columns = pa.table({f"c{number}": range(1000) for number in range(6)})
    lance_core.write_dataset(columns, small)
    found["open"] = _both(lambda engine: engine.dataset(str(small)), rounds)
    found["append 1k"] = _appends(root, columns, rounds)
    wide = with_fragments(root, fragments)
    found["open with many fragments"] = _both(lambda engine: engine.dataset(str(wide)), rounds)
    use_memory(root, 6 * rounds * bytes_on_disk(wide))
    found["append to many fragments"] = _both(
        lambda engine: engine.write_dataset(ROW, str(wide), mode="append"), min(rounds, 3)
    )
    shutil.rmtree(wide)
    few, long = with_versions(root, 10), with_versions(root, versions)
    # In turns: who lists 10,000 names leaves nothing in the caches of the processor to whom comes next.
    tables = {"open with many versions": long, "open with 10 versions": few}
    spent = _pairs(
        {
            f"{work}, {name}": partial(engine.dataset, str(path))
            for work, path in tables.items()
            for name, engine in ENGINES.items()
        },
        rounds,
    )
    found |= {work: {name: spent[f"{work}, {name}"] for name in ENGINES} for work in tables}
    found["versions"] = _both(lambda engine: list(engine.dataset(str(long)).versions()), min(rounds, 3))
    return found


def small_fragments(root: Path, scale: float, rounds: int) -> dict[str, Spent]:
    """Open and scan a table of fragments of 2,500 rows, up to 500 of them, written by pylance."""
    path = str(root / "small fragments")
    taxi = load("taxi", scale).slice(0, 500 * 2500)
    lance.write_dataset(taxi, path, max_rows_per_file=2500, data_storage_version="2.2")
    works: dict[str, Callable[[Any], Any]] = {
        "scan": lambda table: table.to_table(),
        "1 column": lambda table: table.to_table(columns=["fare"]),
        "filter 10%": lambda table: table.to_table(filter="fare > 25"),
        "filter 0%": lambda table: table.to_table(filter="fare > 1e9"),
        "count": lambda table: table.count_rows("fare > 25"),
    }
    return {
        f"{name} of small fragments": _both(lambda engine, work=work: work(engine.dataset(path)), rounds)
        for name, work in works.items()
    }


def tiny_fragments(root: Path, scale: float, rounds: int) -> dict[str, Spent]:
    """Open and read tables of up to 2,000 and 20,000 fragments of one row, each a file of three columns."""
    found: dict[str, Spent] = {}
    for number in (2_000, 20_000):
        count = max(int(number * min(scale, 1)), 100)
        places = list(range(0, count, 2))[:10_000]
        columns = {"id": range(count), "x": [place / 8 for place in range(count)]}
        path = str(root / f"{number} tiny fragments")
        rows = pa.table({**columns, "s": [f"name {place % 100}" for place in range(count)]})
        lance_core.write_dataset(rows, path, max_rows_per_file=1)
        works: dict[str, Callable[[Any], Any]] = {
            "filter": lambda table: table.to_table(filter="x > 10"),
            "scan": lambda table: table.to_table(),
            "stream": lambda table: sum(batch.num_rows for batch in table.to_batches()),
            "take": lambda table, places=places: table.take(places),
        }
        for name, work in works.items():
            found[f"{name} of {number:,} fragments of one row"] = _both(
                lambda engine, work=work, path=path: work(engine.dataset(path)), min(rounds, 3)
            )
    return found


def _appends(root: Path, rows: pa.Table, rounds: int) -> Spent:
    """Append to tables that grow alike; pylance in all its file versions."""
    calls: dict[str, Callable[[], Any]] = {}
    for name, version in (("lance_core", None), *((f"pylance-{one}", one) for one in ("2.0", "2.1", "2.2"))):
        write, uri = ENGINES[name.partition("-")[0]].write_dataset, str(root / f"grows {name}")
        write(rows, uri, data_storage_version=version)
        calls[name] = partial(write, rows, uri, mode="append")
    return _pairs(calls, rounds)


def _both(work: Callable[[Any], Any], rounds: int) -> Spent:
    return _pairs({name: partial(work, engine) for name, engine in ENGINES.items()}, rounds)


def _pairs(calls: dict[str, Callable[[], Any]], rounds: int) -> Spent:
    return {name: (one.cpu, one.wall) for name, one in compare(calls, rounds).items()}
