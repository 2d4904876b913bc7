"""Compaction beside pylance's `compact_files`, on Spark beside in-process, and clean-up; prints ratios.

    python benchmarks/compact.py                            all of it, a few minutes
    python benchmarks/compact.py --parts local --scale 0.05 --rounds 5

`local`: 100 fragments of the taxi data become few, by lance_core (which copies pages as they are where they are large
enough), by lance_core decoding all rows, and by pylance; then scans and random rows of what each has made. `spark`: the
same, cut into 8 tasks, in Spark (local[1] and local[2], session started before) and in this process (one thread and
two): wall time, CPU of all processes, and how many times as fast two are. `cleanup`: 5,000 versions, 4,999 of which go,
with the calls that an object store would bill.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
from data import load
from measure import compare

import lance_core
from lance_core.format.table.manifest import encode_manifest_pieces
from lance_core.format.table.paths import ManifestNaming, manifest_path
from lance_core.maintenance.cleanup import cleanup_old_versions
from lance_core.store.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable

NUM_FRAGMENTS = 100
NUM_TASKS = 8
NUM_VERSIONS = 5_000
BILLED = 1000
"""Names that one call lists or deletes."""


def compaction(uri: str, engine: Any, *, num_threads: int = 2, **options: Any) -> Callable[[], None]:
    """Compacts a table in place."""
    return lambda: engine.dataset(uri).optimize.compact_files(num_threads=num_threads, **options)


WAYS: dict[str, Callable[[str], Callable[[], None]]] = {
    "lance_core": lambda uri: compaction(uri, lance_core),
    "decoding": lambda uri: compaction(uri, lance_core, compaction_mode="reencode"),
    "pylance": lambda uri: compaction(uri, lance),
}


def spend(
    source: Path,
    target: Path,
    make: Callable[[str], Callable[[], Any]],
    clock: Callable[[], float] = time.process_time,
) -> tuple[float, float]:
    """CPU, by a clock of it, and wall time of one compaction of a fresh copy."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)
    call = make(str(target))
    cpu, wall = clock(), time.perf_counter()
    call()
    return clock() - cpu, time.perf_counter() - wall


def make_table(root: Path, scale: float, writer: Any, version: str) -> Path:
    """The taxi data in 100 fragments."""
    table = load("taxi", scale)
    path = root / "source"
    shutil.rmtree(path, ignore_errors=True)
    rows = -(-table.num_rows // NUM_FRAGMENTS)
    writer.write_dataset(table, str(path), max_rows_per_file=rows, data_storage_version=version)
    print(f"\n{table.num_rows:,} rows in {NUM_FRAGMENTS} fragments, written by {writer.__name__}, version {version}")
    return path


def local(root: Path, scale: float, rounds: int) -> None:
    """In this process, for tables of both writers."""
    for writer in (lance_core, lance):
        source = make_table(root, scale, writer, "2.1")
        spent: dict[str, list[tuple[float, float]]] = {name: [] for name in WAYS}
        for number in range(rounds + 1):
            names = [*WAYS][number % 3 :] + [*WAYS][: number % 3]
            for name in names:
                spent[name].append(spend(source, root / name, WAYS[name]))
        medians = {
            name: [statistics.median(column) for column in zip(*all_[1:], strict=True)] for name, all_ in spent.items()
        }
        base = medians["pylance"]
        for name, (cpu, wall) in medians.items():
            size = sum(file.stat().st_size for file in (root / name / "data").iterdir() if file.stat().st_size) / 1e6
            ratios = f"CPU {cpu:7.3f} s ({cpu / base[0]:.2f}), wall {wall:7.3f} s ({wall / base[1]:.2f})"
            print(f"{name:>12}: {ratios}, folder {size:.0f} MB")
        read_after(root, rounds)


def read_after(root: Path, rounds: int) -> None:
    """Scans and random rows of the compacted tables, by both engines."""
    count = lance_core.dataset(root / "pylance").count_rows()
    rows = np.sort(np.random.default_rng(0).choice(count, 100, replace=False)).tolist()
    works: dict[str, Callable[[Any], Any]] = {
        "scan": lambda dataset: dataset.to_table(),
        "2 columns": lambda dataset: dataset.to_table(columns=["pickup", "fare"]),
        "take 100": lambda dataset: dataset.take(rows),
    }
    for engine in (lance_core, lance):
        for work, call in works.items():
            calls = {
                name: partial(lambda work, one, path: work(one.dataset(path)), call, engine, str(root / name))
                for name in WAYS
            }
            spent = compare(calls, rounds)
            base = spent["pylance"].cpu
            cells = ", ".join(f"{name} {one.cpu / base:.2f}" for name, one in spent.items())
            print(f"{work:>12} by {engine.__name__} of what was made by {cells}")


def on_spark(root: Path, scale: float, rounds: int) -> None:
    """In Spark's tasks and in this process, one at a time and two at a time."""
    from cpu import cpu_seconds  # noqa: PLC0415 - looks at processes for as long as this one lives
    from spark_rounds import start_spark  # noqa: PLC0415 - Java is needed for this part only

    from lance_core.spark import compact_lance  # noqa: PLC0415

    source = make_table(root, scale, lance_core, "2.1")
    target = -(-lance_core.dataset(source).count_rows() // NUM_TASKS)
    medians: dict[tuple[str, str, int], list[float]] = {}
    for cores in (1, 2):
        spark = start_spark(cores)
        for mode in ("default", "reencode"):
            options = {"target_rows_per_fragment": target, "compaction_mode": None if mode == "default" else mode}
            ways: dict[str, Callable[[str], Callable[[], Any]]] = {
                "in-process": partial(compaction, engine=lance_core, num_threads=cores, **options),
                "Spark": partial(partial, partial(compact_lance, spark, **options)),
            }
            spent: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
            for _ in range(rounds + 1):
                for name, make in ways.items():
                    spent[name].append(spend(source, root / name, make, cpu_seconds))
            for name, all_ in spent.items():
                medians[mode, name, cores] = [statistics.median(column) for column in zip(*all_[1:], strict=True)]
        spark.stop()
    for mode, name in ((mode, name) for mode in ("default", "reencode") for name in ("in-process", "Spark")):
        (cpu, wall), (more_cpu, less_wall) = medians[mode, name, 1], medians[mode, name, 2]
        cells = f"1 core {wall:.2f} s (CPU {cpu:.2f} s), 2 cores {less_wall:.2f} s (CPU {more_cpu:.2f} s)"
        print(f"{mode:>10}, {name:>10}: {cells}, {wall / less_wall:.2f} times as fast")


class Bill:
    """Passes calls on to a store and counts them."""

    def __init__(self, inner: Any) -> None:
        self.uri, self._inner, self.calls = inner.uri, inner, Counter[str]()

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            found = getattr(self._inner, name)(*arguments)
            if name in {"list", "names"}:
                found = [*found]
            things = len(arguments[0]) if name == "delete" else len(found) if name in {"list", "names"} else 1
            self.calls[name] += max(1, -(-things // BILLED))
            return iter(found) if name == "list" else found

        return call


def cleanup(root: Path, _scale: float, _rounds: int) -> None:
    """A long history of small commits goes."""
    path = root / "history"
    dataset = lance_core.write_dataset(load("taxi", 0), path)
    first, store = dataset.snapshot.manifest, LocalStore(str(path))
    for version in range(2, NUM_VERSIONS + 1):
        manifest = replace(first, version=version, transaction_file="")
        store.put(manifest_path(version, ManifestNaming.V2), b"".join(encode_manifest_pieces(manifest)))
    bill = Bill(store)
    began = time.perf_counter()
    stats = cleanup_old_versions(bill, older_than=timedelta(0), retain_versions=1)
    seconds = time.perf_counter() - began
    told = f"{sum(bill.calls.values()):,} calls: {dict(bill.calls)}"
    print(f"\nclean-up: {stats.old_versions:,} versions in {seconds:.1f} s, {told}")


PARTS = {"local": local, "spark": on_spark, "cleanup": cleanup}


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--scale", type=float, default=0.5, help="share of 5 million rows")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for part in options.parts:
        with tempfile.TemporaryDirectory() as folder:
            PARTS[part](Path(folder), options.scale, options.rounds)


if __name__ == "__main__":
    main()
