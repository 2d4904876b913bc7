"""Works in a new process, as in each step of Dagster, and scans in threads of one process.

python benchmarks/run.py --parts fresh threads --scale 0.4
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import lance
from data import load
from measure import compare

import lance_core

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Spent = dict[str, tuple[float, float]]

WORKS = {
    "taxi": {
        "scan": "table.to_table()",
        "2 columns": "table.to_table(columns=['pickup', 'fare'])",
        "filter 1%": "table.to_table(filter='fare > 60')",
        "take 100": "table.take(rows)",
    },
    "text": {
        "scan": "table.to_table()",
        "2 columns": "table.to_table(columns=['url', 'took'])",
        "filter 1%": "table.to_table(filter='took < 50')",
        "take 100": "table.take(rows)",
    },
}
FILES = "50 files of taxi"
"""Half a million rows in files of 10,000, each of which is read for the first time in a new process."""

_DATA = {**WORKS, FILES: {**WORKS["taxi"], "stream": "[batch for batch in table.to_batches()]"}}
_ROWS_OF_A_FILE, _ROWS_OF_FILES = 10_000, 500_000
_PYLANCE = ("2.0", "2.1", "2.2")
NUM_THREADS = (2, 4)

# What the first call imports, learns and allocates is part of it; the whole process has started Python, imported the
# engine and opened the table, too.
_PROGRAM = """
import importlib, json, resource, sys, time
engine, uri, work = sys.argv[1:]
table = importlib.import_module(engine).dataset(uri)
count = table.count_rows()
rows = list(range(0, count, max(count // 100, 1)))[:100]
before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
exec(work)
wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
whole = after.ru_utime + after.ru_stime
print(json.dumps([whole - before.ru_utime - before.ru_stime, wall, whole]))
"""


def _written(root: Path, name: str, scale: float) -> dict[str, tuple[str, str]]:
    """Write a data set by each engine: its module and address by name."""
    table, options = load("taxi" if name == FILES else name, scale), {}
    if name == FILES:
        table, options = table.slice(0, _ROWS_OF_FILES), {"max_rows_per_file": _ROWS_OF_A_FILE}
    tables = {"lance_core": ("lance_core", str(root / f"{name} lance_core"))}
    lance_core.write_dataset(table, tables["lance_core"][1], **options)
    for version in _PYLANCE:
        uri = str(root / f"{name} {version}")
        lance.write_dataset(table, uri, data_storage_version=version, **options)
        tables[f"pylance-{version}"] = ("lance", uri)
    return tables


def processes(root: Path, scale: float, rounds: int) -> dict[str, Spent]:
    """CPU and wall seconds of a new process for each work, and of its first call: medians, in random order."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    found: dict[str, Spent] = {}
    order = random.Random(1)
    for data, works in _DATA.items():
        tables = _written(root, data, scale)
        for name, work in works.items():
            samples: dict[str, list[list[float]]] = {engine: [] for engine in tables}
            for _ in range(max(rounds, 3)):
                for engine in order.sample(list(tables), len(tables)):
                    command = [sys.executable, "-c", _PROGRAM, *tables[engine], work]
                    began = time.perf_counter()
                    answer = subprocess.run(command, check=True, capture_output=True, env=environment)
                    samples[engine].append([*json.loads(answer.stdout), time.perf_counter() - began])
            medians = {
                engine: [statistics.median(one) for one in zip(*all_, strict=True)] for engine, all_ in samples.items()
            }
            found[f"first {name} of {data}"] = {engine: (cpu, wall) for engine, (cpu, wall, _, _) in medians.items()}
            found[f"process: {name} of {data}"] = {engine: (cpu, wall) for engine, (_, _, cpu, wall) in medians.items()}
    return found


def threads(root: Path, scale: float, rounds: int) -> dict[str, Spent]:
    """CPU and wall seconds of a scan, of which some run at once in threads."""
    found: dict[str, Spent] = {}
    for data in WORKS:
        tables = {
            name: (lance if module == "lance" else lance_core).dataset(uri)
            for name, (module, uri) in _written(root, data, scale).items()
        }
        for number in NUM_THREADS:
            with ThreadPoolExecutor(number) as pool:
                calls = {name: partial(_scan_at_once, pool, number, table) for name, table in tables.items()}
                spent = compare(calls, rounds)
            found[f"{number} scans of {data} at once"] = {
                name: (one.cpu / number, one.wall / number) for name, one in spent.items()
            }
    return found


def _scan_at_once(pool: ThreadPoolExecutor, number: int, table: Any) -> None:
    for work in [pool.submit(table.to_table) for _ in range(number)]:
        work.result()


def again(root: Path, scale: float, rounds: int) -> dict[str, Spent]:
    """CPU and wall seconds of works on the files of 10,000 rows when they are repeated; all engines in turns."""
    return {
        f"{name} of {FILES}": {engine: (one.cpu, one.wall) for engine, one in compare(calls, rounds).items()}
        for name, calls in calls_of_files(root, scale).items()
    }


def calls_of_files(root: Path, scale: float) -> dict[str, dict[str, Callable[[], Any]]]:
    """For each work on the files of 10,000 rows what each engine does; tables are opened."""
    tables = {
        name: (lance if module == "lance" else lance_core).dataset(uri)
        for name, (module, uri) in _written(root, FILES, scale).items()
    }
    rows = list(range(0, count := min(table.count_rows() for table in tables.values()), max(count // 100, 1)))[:100]
    return {
        name: {
            engine: partial(eval, compile(work, FILES, "eval"), {"table": table, "rows": rows})  # a work of `_DATA`
            for engine, table in tables.items()
        }
        for name, work in _DATA[FILES].items()
    }
