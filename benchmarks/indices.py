"""Indices: builds, look-ups, upserts, the remap in compaction and the audit, each library with indices of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from changes import ENGINES, on_copies
from measure import compare

import lance_core

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NUM_ROWS = 10_000_000
"""Rows at scale 1, for which the targets are."""

NUM_FRAGMENTS, FRAGMENT_ROWS = 100, 10_000
NUM_KEYS, NUM_UPSERTED, AUDITED_ROWS = 100, 1_000, 20_000
KINDS = {"id": "BTREE", "text": "BTREE", "time": "BTREE", "few": "BITMAP", "thousand": "BITMAP"}
KEYS = ("id", "text", "time")
PACKAGES = {"lance_core": "lance_core", "pylance": "lance"}
FIRST_TIME_US = 1_700_000_000_000_000

Spent = dict[str, tuple[float, float]]
"""CPU and wall seconds of each engine."""

_WORK = """
import json, sys
import numpy, pyarrow, pyarrow.parquet
package, uri, work, column, source = sys.argv[1:]
table = __import__(package).dataset(uri)
if work == "build":
    table.create_scalar_index(column, "BTREE")
else:
    rows = pyarrow.parquet.read_table(source)
    table.merge_insert(column).when_matched_update_all().when_not_matched_insert_all().execute(rows)
status = open("/proc/self/status").read()
print(json.dumps(next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))))
"""


def indices(root: Path, scale: float, rounds: int) -> dict[str, Any]:
    """Measure all works on a table of unsorted keys."""
    num_rows = max(int(NUM_ROWS * scale), 20_000)
    table = _rows(num_rows)
    folder = root / "indices"
    plain = folder / "plain"
    lance.write_dataset(table, str(plain), max_rows_per_file=-(-num_rows // 4))
    found: dict[str, Any] = {
        f"build {kind} of {column}": on_copies(
            {name: (plain, partial(_build, engine, column, kind)) for name, engine in ENGINES.items()}, min(rounds, 3)
        )
        for column, kind in KINDS.items()
    }
    indexed: dict[str, Path] = {}
    for name, engine in ENGINES.items():
        indexed[name] = folder / name
        shutil.copytree(plain, indexed[name])
        for column, kind in KINDS.items():
            _build(engine, column, kind, str(indexed[name]))
    for work, condition in _conditions(num_rows).items():
        found |= _look_ups(indexed, work, condition, rounds)
    source = _rows(num_rows + NUM_UPSERTED // 2).slice(0, NUM_UPSERTED)
    for column in KEYS:
        found[f"upsert 1,000 rows by {column}"] = on_copies(
            {name: (path, partial(_upsert, ENGINES[name], source, column)) for name, path in indexed.items()},
            min(rounds, 3),
        )
    found["audit of indices by sampling"] = _audit(str(indexed["lance_core"]), rounds)
    found["compact 100 fragments with an index"] = _compaction(folder, table, min(rounds, 3))
    found |= _memory(plain, indexed, source)
    shutil.rmtree(folder)
    return found


def _rows(count: int) -> pa.Table:
    rng = np.random.default_rng(7)
    ids = rng.permutation(count)
    return pa.table(
        {
            "id": ids,
            "text": pa.array([f"key-{number:010d}" for number in ids.tolist()]),
            "time": pa.array(FIRST_TIME_US + ids * 1_000_000, pa.timestamp("us")),
            "few": rng.integers(0, 100, count),
            "thousand": rng.integers(0, 1000, count),
            "value": rng.random(count),
        }
    )


def _conditions(num_rows: int) -> dict[str, str]:
    numbers = np.random.default_rng(8).choice(num_rows, NUM_KEYS, replace=False).tolist()

    def texts(chosen: list[int]) -> list[str]:
        return [f"'key-{number:010d}'" for number in chosen]

    def times(chosen: list[int]) -> list[str]:
        return [f"timestamp '{np.datetime64(FIRST_TIME_US + number * 1_000_000, 'us')}'" for number in chosen]

    conditions: dict[str, str] = {}
    for column, literals in (("id", list(map(str, numbers))), ("text", texts(numbers)), ("time", times(numbers))):
        conditions[f"{column} = key"] = f"{column} = {literals[0]}"
        conditions[f"{column} IN 100 keys"] = f"{column} IN ({', '.join(literals)})"
    low = num_rows // 2
    ends = [low, low + max(num_rows // 1000, 1)]
    for column, (start, end) in (("id", map(str, ends)), ("text", texts(ends)), ("time", times(ends))):
        conditions[f"range of 0.1 % of {column}"] = f"{column} >= {start} AND {column} < {end}"
    conditions["BITMAP = 1 %"] = "few = 7"
    return conditions


def _look_ups(indexed: dict[str, Path], work: str, condition: str, rounds: int) -> dict[str, Spent]:
    """Rows of one column by a condition: with a dataset that stays open, and opened each time."""
    datasets = {name: ENGINES[name].dataset(str(path)) for name, path in indexed.items()}

    def read(dataset: Any) -> pa.Table:
        return dataset.to_table(columns=["value"], filter=condition)

    def opened(name: str) -> pa.Table:
        return read(ENGINES[name].dataset(str(indexed[name])))

    return {
        f"look up: {work}": _pairs({name: partial(read, dataset) for name, dataset in datasets.items()}, rounds),
        f"open, look up: {work}": _pairs({name: partial(opened, name) for name in indexed}, rounds),
    }


def _build(engine: Any, column: str, kind: str, uri: str) -> None:
    engine.dataset(uri).create_scalar_index(column, kind)


def _upsert(engine: Any, source: pa.Table, column: str, uri: str) -> None:
    builder = engine.dataset(uri).merge_insert(column)
    builder.when_matched_update_all().when_not_matched_insert_all().execute(source)


def _memory(plain: Path, indexed: dict[str, Path], source: pa.Table) -> dict[str, dict[str, float]]:
    """Most MiB of a fresh process that builds an index, or upserts; with all libraries that it imports."""
    file = plain.with_name("source.parquet")
    pq.write_table(source, file)
    found: dict[str, dict[str, float]] = {}
    for column in KEYS:
        for work, title in (("build", f"memory: build BTREE of {column}"), ("upsert", f"memory: upsert by {column}")):
            found[title] = {}
            for name, package in PACKAGES.items():
                target = plain.with_name("copy")
                shutil.rmtree(target, ignore_errors=True)
                shutil.copytree(plain if work == "build" else indexed[name], target)
                command = [sys.executable, "-c", _WORK, package, str(target), work, column, str(file)]
                answer = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                found[title][name] = json.loads(answer) / 1024
    return found


def _audit(uri: str, rounds: int) -> Spent:
    """A sampling audit of all indices beside a scan of their columns."""
    calls: dict[str, Callable[[], Any]] = {
        "lance_core": partial(lance_core.verify, uri, level="indices", sample_rows=AUDITED_ROWS),
        "scan": lambda: lance_core.dataset(uri).to_table(columns=list(KINDS)),
    }
    return _pairs(calls, min(rounds, 3))


def _compaction(folder: Path, table: pa.Table, rounds: int) -> Spent:
    """100 fragments become one: both libraries with a B-tree, ours also without, and leaving it for later."""
    table = table.slice(0, NUM_FRAGMENTS * FRAGMENT_ROWS)
    works: dict[str, tuple[Path, Callable[[str], Any]]] = {}
    for name, engine in (*ENGINES.items(), ("without", lance_core), ("deferred", lance_core)):
        path = folder / f"fragments {name}"
        lance.write_dataset(table, str(path), max_rows_per_file=-(-table.num_rows // NUM_FRAGMENTS))
        if name != "without":
            _build(engine, "id", "BTREE", str(path))
        works[name] = path, partial(_compact, engine, defer_index_remap=name == "deferred")
    return on_copies(works, rounds)


def _compact(engine: Any, uri: str, **options: Any) -> None:
    engine.dataset(uri).optimize.compact_files(num_threads=2, **options)


def _pairs(calls: dict[str, Callable[[], Any]], rounds: int) -> Spent:
    return {name: (one.cpu, one.wall) for name, one in compare(calls, rounds).items()}
