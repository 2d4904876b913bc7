"""Write, scan, filter and take beside pylance and Parquet in one run; prints ratios.

    python benchmarks/smoke.py [--rounds 5] [--data flights embeddings text]

Rounds are interleaved and their order rotates, so that a noisy machine disturbs all engines alike. A cell shows the
median of CPU seconds (all threads) divided by pylance's, and the same for wall time in brackets: below 1 is
cheaper than pylance. Bytes are ratios of bytes on disk.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
from data import DATA_SETS

import lance_core

if TYPE_CHECKING:
    from collections.abc import Callable

ANCHOR = "pylance"
FILTERS = {"flights": "dep_delay > 60", "embeddings": "id < 1000", "text": "line LIKE 'error%'"}


@dataclass(frozen=True)
class Engine:
    """How one engine writes a table and opens it again."""

    write: Callable[[pa.Table, str], Any]
    open: Callable[[str], Any]


def write_parquet(table: pa.Table, path: str) -> None:
    """One zstd Parquet file in a folder."""
    Path(path).mkdir(parents=True)
    pq.write_table(table, f"{path}/part.parquet", compression="zstd")


ENGINES = {
    "lance_core": Engine(lance_core.write_dataset, lance_core.dataset),
    "pylance": Engine(lance.write_dataset, lance.dataset),
    "parquet": Engine(write_parquet, pads.dataset),
}


def works(name: str, engine: Engine, table: pa.Table, folder: Path) -> dict[str, Callable[[], Any]]:
    """The timed calls of one engine on one data set; the table at ``folder/kept`` exists already."""
    kept = str(folder / "kept")
    rows = np.sort(np.random.default_rng(3).choice(len(table), 100, replace=False))
    first = table.column_names[:1]
    is_parquet = engine.open is pads.dataset

    def write() -> None:
        target = folder / "written"
        shutil.rmtree(target, ignore_errors=True)
        engine.write(table, str(target))

    def filtered() -> pa.Table:
        if is_parquet:
            return engine.open(kept).to_table(filter=PARQUET_FILTERS[name])
        return engine.open(kept).to_table(filter=FILTERS[name])

    warm = engine.open(kept)
    return {
        "write": write,
        "open": lambda: engine.open(kept),
        "scan": lambda: engine.open(kept).to_table(),
        "stream": lambda: sum(batch.num_rows for batch in engine.open(kept).to_batches()),
        "1 column": lambda: engine.open(kept).to_table(columns=first),
        "filter": filtered,
        "take 100": lambda: warm.take(pa.array(rows) if is_parquet else rows.tolist()),
    }


PARQUET_FILTERS = {
    "flights": pads.field("dep_delay") > 60,
    "embeddings": pads.field("id") < 1000,
    "text": pc.starts_with(pads.field("line"), "error"),
}


def measure(name: str, rounds: int, root: Path) -> dict[str, dict[str, tuple[float, float]]]:
    """Median (CPU, wall) seconds by work and engine."""
    table = DATA_SETS[name]()
    calls: dict[str, dict[str, Callable[[], Any]]] = {}
    for label, engine in ENGINES.items():
        folder = root / name / label
        folder.mkdir(parents=True)
        engine.write(table, str(folder / "kept"))
        calls[label] = works(name, engine, table, folder)
    times: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    labels = list(ENGINES)
    for work in calls[ANCHOR]:
        for turn in range(rounds + 1):
            for label in labels[turn % len(labels) :] + labels[: turn % len(labels)]:
                cpu, wall = time.process_time(), time.perf_counter()
                calls[label][work]()
                spent = (time.process_time() - cpu, time.perf_counter() - wall)
                if turn:  # the first round warms up
                    times[work][label].append(spent)
    return {
        work: {label: tuple(map(statistics.median, zip(*spans, strict=True))) for label, spans in by.items()}
        for work, by in times.items()
    }


def bytes_on_disk(folder: Path) -> int:
    """Sum of all file sizes below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def report(name: str, times: dict[str, dict[str, tuple[float, float]]], root: Path) -> None:
    """Print one data set as a table of ratios."""
    print(f"\n{name}: CPU ratio to {ANCHOR} (wall ratio)")
    print(f"{'':10}" + "".join(f"{label:>18}" for label in ENGINES) + f"{ANCHOR + ' CPU ms':>18}")
    for work, by in times.items():
        anchor = by[ANCHOR]
        cells = (f"{by[label][0] / anchor[0]:8.2f} ({by[label][1] / anchor[1]:5.2f})" for label in ENGINES)
        print(f"{work:10}" + "".join(f"{cell:>18}" for cell in cells) + f"{anchor[0] * 1e3:18.1f}")
    sizes = {label: bytes_on_disk(root / name / label / "kept") for label in ENGINES}
    print(f"{'bytes':10}" + "".join(f"{sizes[label] / sizes[ANCHOR]:18.2f}" for label in ENGINES))


def main() -> None:
    """Run the chosen data sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", nargs="+", choices=sorted(DATA_SETS), default=sorted(DATA_SETS))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.data:
            report(name, measure(name, arguments.rounds, Path(folder)), Path(folder))


if __name__ == "__main__":
    main()
