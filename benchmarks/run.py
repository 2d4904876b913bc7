"""lance_core beside pylance, Parquet, Delta and Arrow files: what is asked, what is reached; JSON and a picture.

    python benchmarks/run.py                    about 15 minutes: results.json and bars.svg in benchmarks/results
    python benchmarks/run.py --quick            3 minutes, smaller data
    python benchmarks/run.py --scale 1 --rounds 7 --data taxi --parts data
    python benchmarks/run.py --parts data --engines core-2.2 'core<pylance-2.1' pylance-2.1 --works 'take 100' scan

Engines: `core-2.2` is lance_core with files of version 2.2, `pylance-2.1` the official implementation,
`core<pylance-2.1` is lance_core reading what pylance wrote, `delta` needs the package deltalake. Rounds are interleaved
and their order rotates, so that a noisy machine disturbs all alike. Parts: `data` (writes, reads, sizes, requests,
memory of each data set), `scale` (import, open, commits, histories, tags), `changes` (delete, compaction, clean-up,
the same bytes again). More: spark_read.py, spark_write.py, compact.py, commit.py.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import changes
from at_scale import imports, opening
from data import DATA_SETS
from engines import ENGINES, HAS_DELTA
from goals import print_table, table
from picture import bars
from side_by_side import WORKS, Plan, run_data_set

if TYPE_CHECKING:
    from collections.abc import Iterator

DATA = ["taxi", "text", "embeddings", "nested", "wide", "blobs"]
PARTS = ("data", "scale", "changes")
PACKAGES = ("pylance", "pyarrow", "numpy", "deltalake")
SELDOM = {"head", "head*", "scan*", "peak scan"}
"""Works that are measured only if they are asked for."""
QUICK = ["core-2.2", "core-2.0", "core<pylance-2.1", "pylance-2.0", "pylance-2.1", "pylance-2.2", "parquet"]
NUM_VERSIONS, NUM_FRAGMENTS = 10_000, 100_000


def default_engines() -> list[str]:
    """All that are there."""
    names = [
        name for name in ENGINES if name not in {"core<pylance-2.0", "core<pylance-2.2"} and "pylance<" not in name
    ]
    if not HAS_DELTA:
        print("deltalake is not installed: the engine delta is left out (pip install deltalake)")
        names.remove("delta")
    return names


def machine() -> dict[str, Any]:
    """Where the figures come from."""
    versions: dict[str, str] = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {"python": platform.python_version(), "cores": os.cpu_count(), "load": os.getloadavg()[0], **versions}


def steps(options: argparse.Namespace, root: Path, results: dict[str, Any]) -> Iterator[None]:
    """Measure one thing after the other into the results."""
    if "data" in options.parts:
        plan = Plan(engines=options.engines, works=options.works, scale=options.scale, rounds=options.rounds)
        for name in options.data:
            with tempfile.TemporaryDirectory(dir=root) as folder:
                results["data"][name] = run_data_set(name, plan, Path(folder))
            yield
    singles: dict[str, Any] = results["singles"]
    number = NUM_VERSIONS // 10 if options.quick else NUM_VERSIONS
    if "scale" in options.parts:
        print("\nimport, open, commit, tags ...", flush=True)
        singles |= imports(options.rounds)
        singles |= opening(root, versions=number, fragments=NUM_FRAGMENTS, rounds=options.rounds)
        yield
        singles |= changes.tags(root, number)
        yield
    if "changes" in options.parts:
        print("delete, compact, clean up ...", flush=True)
        rounds = min(options.rounds, 5)
        singles |= changes.deletions(root, options.scale, rounds)
        yield
        singles |= changes.compactions(root, options.scale, rounds)
        yield
        singles |= changes.cleanups(root, number, rounds)
        results["same_bytes"] = changes.same_bytes(root, min(options.scale, 0.05))
        yield


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small data, two rounds; figures are rough")
    parser.add_argument("--scale", type=float, help="share of the real sizes, e.g. of 5 million rows of taxi; 0.2")
    parser.add_argument("--rounds", type=int, help="5")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--data", nargs="+", choices=list(DATA_SETS), default=DATA)
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES))
    parser.add_argument("--works", nargs="+", choices=WORKS, default=[one for one in WORKS if one not in SELDOM])
    parser.add_argument("--folder", type=Path, help="where tables are written; a temporary folder by default")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results", help="folder of the results")
    options = parser.parse_args()
    options.scale = options.scale or (0.02 if options.quick else 0.2)
    options.rounds = options.rounds or (2 if options.quick else 5)
    options.engines = options.engines or (QUICK if options.quick else default_engines())
    results: dict[str, Any] = {
        "machine": machine(), "scale": options.scale, "rounds": options.rounds, "data": {}, "singles": {},
    }  # fmt: skip
    began = time.monotonic()
    name = options.out / ("quick" if options.quick else "results")
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        for _ in steps(options, Path(folder), results):
            results["seconds"] = round(time.monotonic() - began)
            results["goals"] = table(results)
            name.with_suffix(".json").write_text(json.dumps(results, indent=1) + "\n")
            name.with_suffix(".svg").write_text(bars(results))
    print_table(results["goals"])
    print(f"{results['seconds']} s; written to {name}.json and .svg")


if __name__ == "__main__":
    main()
