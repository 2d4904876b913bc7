"""lance_core beside pylance, Parquet and Arrow files: what is asked, what is reached; JSON and a picture.

    python benchmarks/run.py                    all that is asked, on full data, half an hour; into benchmarks/results
    python benchmarks/run.py --publish          the same, and the figures of the READMEs are rewritten
    python benchmarks/run.py --quick            3 minutes, smaller data: figures are rough
    python benchmarks/run.py --scale 1 --rounds 7 --data taxi --parts data
    python benchmarks/run.py --compare ../old --data text --works scan 'take 100'     fails if a row is 5 % slower
    python benchmarks/run.py --parts data --engines core-2.2 'core<pylance-2.1' pylance-2.1 --works 'take 100' scan

Engines: `core-2.2` is lance_core with files of version 2.2, `pylance-2.1` the official implementation,
`core<pylance-2.1` is lance_core reading what pylance wrote, `delta` needs the package deltalake. Rounds are interleaved
in changing order, so that a noisy machine disturbs all alike. Parts: `data` (writes, reads, sizes, requests,
memory of each data set), `scale` (import, open, commits, histories, tags), `fragments` (scans of many
small ones), `changes` (delete, compaction, clean-up, the same bytes again), `indices` (builds, look-ups, upserts,
remap, audit; 10 million rows), `queries` (counts, limits, orders, full text), `codecs` (text in each codec), `dagster`
(an asset from start to end), `spark` (a DataFrame written and read), `fresh` (works in new processes), `threads`
(scans at once). More: spark_read.py, spark_write.py, compact.py,
commit.py. Without --engines and --works each data set is asked what goals.py and picture.py need.
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
import checkouts
import fresh
import indices
import queries
from at_scale import imports, opening, small_fragments, tiny_fragments
from data import DATA_SETS
from engines import ENGINES
from figures import OfData
from goals import GOALS, table
from materialize import materialization, on_spark
from measure import alone, use_free_memory
from picture import ROWS, bars
from report import HERE, PUBLISHED, print_table, publish, renewed
from side_by_side import COLD, MEMORY, WORKS, Plan, run_data_set
from text_codecs import measure_codecs

if TYPE_CHECKING:
    from collections.abc import Iterator

PARTS = (
    *("data", "scale", "fragments", "changes", "indices", "queries", "codecs", "dagster", "spark", "fresh", "threads"),
)
PACKAGES = ("pylance", "pyarrow", "numpy", "deltalake")
EVERY = ["core-2.2", "core<pylance-2.1", "pylance-2.0", "pylance-2.1", "pylance-2.2", "parquet", "ipc"]
ELSEWHERE = ("far", "vectors", "texts", "spark_sql", "growth", "huge growth", "floors")
"""What other programs publish, which a whole run keeps."""
SELDOM = {"head", "head*", "scan*", "count all", "peak scan"}
"""Engines and works of data sets that no goal names."""
BOTH = ("core-2.2", "pylance-2.2")
ALSO = {"requests": ("taxi", "text", "nested", "wide"), "peak stream": ("taxi", "text", "embeddings")}
ALSO["peak write"] = ALSO["peak stream"]
"""Works that goals look up in all data sets, and those in which they are measured, with both engines."""
NUM_VERSIONS, NUM_FRAGMENTS = 10_000, 100_000
_LARGE_SCALE = 0.2
"""From here on works need as much memory as the state of the machine's matters."""


def all_asked() -> dict[str, dict[str, set[str]]]:
    """For each data set the works, and for each work the engines, that goals and picture need."""
    asked: dict[str, dict[str, set[str]]] = {}
    finders = [find for goal in GOALS for find in getattr(goal.find, "each", {"": goal.find}).values()]
    finders += [find for rows in ROWS.values() for row in rows for find in row[1:]]
    for find in finders:
        if isinstance(find, OfData):
            asked.setdefault(find.data, {}).setdefault(find.work, set()).update(find.engines)
    for work, names in ALSO.items():
        for name in names:
            asked[name][work] = set(BOTH)
    return {name: {work: works[work] for work in ("bytes", *WORKS) if work in works} for name, works in asked.items()}


def plan_of(name: str, options: argparse.Namespace) -> Plan:
    """What is measured on a data set."""
    works = all_asked().get(name, {}) if not options.works and not options.engines else {}
    if not works:
        every = [work for work in WORKS if work not in SELDOM]
        works = dict.fromkeys(options.works or every, options.engines or EVERY)
    return Plan(works=works, scale=options.scale, rounds=options.rounds)


def machine() -> dict[str, Any]:
    """Where the figures come from."""
    versions: dict[str, str] = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    load = round(os.getloadavg()[0], 2)
    return {"python": platform.python_version(), "cores": os.cpu_count(), "load": load, **versions}


def asked_again(options: argparse.Namespace) -> list[str]:
    """Return the arguments that ask another process for the same benchmarks, with engines of ours only."""
    parts = [part for part in options.parts if part != "data"]
    arguments = ["--scale", str(options.scale), "--parts", *parts, "--data", *options.data]
    engines = options.engines or ["core-2.2", "core<pylance-2.1"]
    arguments += ["--engines", *engines, *(["--works", *options.works] if options.works else [])]
    return [*arguments, *(["--folder", str(options.folder)] if options.folder else [])]


def steps(options: argparse.Namespace, root: Path, results: dict[str, Any]) -> Iterator[None]:
    """Measure one thing after the other into the results, each in a process of its own."""

    def begin() -> None:
        """Let each find the machine's memory as the first one does."""
        if options.scale >= _LARGE_SCALE:
            use_free_memory()

    if "data" in options.parts:
        for name in options.data:
            begin()
            with tempfile.TemporaryDirectory(dir=root) as folder:
                kept = alone(run_data_set, name, plan_of(name, options), Path(folder))
            results["data"][name] = kept
            if COLD in kept and not kept[COLD]:
                results["left_out"][COLD] = "files of the folder stay in memory: it is on no disk"
            yield
    singles: dict[str, Any] = results["singles"]
    number = NUM_VERSIONS // 10 if options.quick else NUM_VERSIONS
    if "scale" in options.parts:
        print("\nimport, open, commit, tags ...", flush=True)
        begin()
        singles |= imports(root, options.rounds)
        singles |= alone(opening, root, number, NUM_FRAGMENTS, options.rounds)
        yield
        singles |= alone(changes.tags, root, number)
        yield
    if "fragments" in options.parts:
        print("scan many small fragments ...", flush=True)
        begin()
        singles |= alone(small_fragments, root, options.scale, options.rounds)
        yield
        singles |= alone(fresh.again, root, options.scale, options.rounds)
        yield
        singles |= alone(tiny_fragments, root, options.scale, options.rounds)
        yield
    if "changes" in options.parts:
        print("delete, compact, clean up ...", flush=True)
        begin()
        rounds = min(options.rounds, 5)
        singles |= alone(changes.deletions, root, options.scale, rounds)
        yield
        singles |= alone(changes.compactions, root, options.scale, min(rounds, 3))
        yield
        singles |= alone(changes.small_fragments, root, options.scale, rounds)
        yield
        singles |= alone(changes.cleanups, root, number, rounds)
        results["same_bytes"] = changes.same_bytes(root, min(options.scale, 0.05))
        yield
    if "indices" in options.parts:
        print("build and use indices ...", flush=True)
        begin()
        singles |= alone(indices.indices, root, options.scale, options.rounds)
        yield
    if "queries" in options.parts:
        print("ask queries ...", flush=True)
        begin()
        singles |= alone(queries.queries, root, options.scale, options.rounds)
        yield
    if "codecs" in options.parts:
        begin()
        with tempfile.TemporaryDirectory(dir=root) as folder:
            results["codecs"] = alone(measure_codecs, Path(folder), options.scale, min(options.rounds, 3))
        yield
    if "dagster" in options.parts:
        print("materialize an asset ...", flush=True)
        begin()
        singles |= alone(materialization, root, options.scale, options.rounds)
        yield
    for part, measure in (("fresh", fresh.processes), ("threads", fresh.threads)):
        if part in options.parts:
            print(f"{part} ...", flush=True)
            begin()
            with tempfile.TemporaryDirectory(dir=root) as folder:
                singles |= alone(measure, Path(folder), options.scale, min(options.rounds, 5))
            yield
    if "spark" in options.parts:
        print("write and read with Spark ...", flush=True)
        begin()
        singles |= on_spark(root, options.scale, min(options.rounds, 3))
        yield


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small data, two rounds; figures are rough")
    parser.add_argument(
        "--publish", action="store_true", help="rewrite the figures of the READMEs, or what was measured"
    )
    parser.add_argument("--scale", type=float, help="share of the real sizes, e.g. of 5 million rows of taxi; 1")
    parser.add_argument("--rounds", type=int, help="5")
    parser.add_argument("--parts", nargs="+", choices=PARTS, help="all")
    parser.add_argument("--data", nargs="+", choices=list(DATA_SETS), help="all that goals need")
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES))
    parser.add_argument("--works", nargs="+", choices=WORKS, help="all that goals need")
    parser.add_argument("--folder", type=Path, help="where tables are written; a temporary folder by default")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder of the results")
    parser.add_argument(
        "--compare", type=Path, help="another checkout: ratios of this one to it; fails if a row is slower"
    )
    options = parser.parse_args()
    if options.compare:
        if unfit := {"requests", COLD, *MEMORY}.intersection(options.works or ()):
            parser.error(f"--compare calls works in turns, but not: {', '.join(sorted(unfit))}")
        options.parts, options.data = options.parts or ["data"], options.data or list(checkouts.DATA)
        options.scale, options.rounds = options.scale or checkouts.SCALE, options.rounds or checkouts.ROUNDS
        raise SystemExit(checkouts.compare_checkouts(options.compare, options, asked_again(options)) > 0)
    options.parts, options.data = options.parts or list(PARTS), options.data or list(all_asked())
    options.scale = options.scale or (0.02 if options.quick else 1)
    options.rounds = options.rounds or (2 if options.quick else 5)
    results: dict[str, Any] = {
        "machine": machine(), "scale": options.scale, "rounds": options.rounds, "data": {}, "singles": {},
        "left_out": {},
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
    if options.publish:
        before = json.loads((PUBLISHED / "results.json").read_text())
        if options.works or set(options.parts) < set(PARTS) or set(options.data) < set(all_asked()):
            results = renewed(before, results)
        results = {**{name: before[name] for name in ELSEWHERE if name in before}, **results}
        print("published:", *(str(path.relative_to(HERE.parent)) for path in publish(results)))


if __name__ == "__main__":
    main()
