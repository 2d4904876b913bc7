"""Vector search beside pylance: exact, by index, and building indices.

    python benchmarks/vectors.py [--rows 20000] [--dimensions 128] [--partitions 64]
    python benchmarks/vectors.py --rows 1000000 --partitions 256 --publish      writes the figures into the docs, too

Both libraries search the same indices, that of pylance and that of lance_core. Prints milliseconds of CPU of both, the
median of some rounds, and the share of the nearest ten rows that they find. Memory of a build is what it adds to that
of a new process, without mapped files. numpy's OpenBLAS chooses its kernels by the processor: variables that make it
take others (OPENBLAS_CORETYPE, OPENBLAS_L2_SIZE) would slow down one side only, and are left out.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from functools import partial
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
from measure import added_memory, alone, compare
from report import PUBLISHED, publish

import lance_core

if TYPE_CHECKING:
    from collections.abc import Callable

K = 10
MANY = 100
COMPARED = 50
"""Queries whose rows are compared with those of an exact search."""
ROUNDS = 5
ENGINES = {"lance_core": lance_core, "pylance": lance}
KERNELS = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
PROBING = {"nprobes": 20, "refine_factor": 10}


def vectors(rows: int, dimensions: int, seed: int, clusters: int) -> np.ndarray:
    """Return vectors in clusters, as embeddings are; of one number of clusters they are always the same ones."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(0).normal(size=(clusters, dimensions))
    return (centers[rng.integers(0, clusters, rows)] + 0.7 * rng.normal(size=(rows, dimensions))).astype(np.float32)


def search(dataset: Any, query: np.ndarray, **options: Any) -> pa.Table:
    """Search one query or many."""
    nearest = {"column": "v", "q": query, "k": K, **options}
    return dataset.to_table(columns=["id", "_distance"], nearest=nearest)


def recall(dataset: Any, queries: np.ndarray, exact: list[set[int]], **options: Any) -> float:
    """Return the share of the nearest rows that a search finds."""
    hits = [
        len(wanted & set(search(dataset, query, **options)["id"].to_pylist()))
        for query, wanted in zip(queries, exact, strict=True)
    ]
    return sum(hits) / (K * len(exact))


class Figures:
    """Measures, and prints a line for each work."""

    def __init__(self) -> None:
        self.works: dict[str, dict[str, float]] = {}
        print(f"{'milliseconds of CPU':<48}{'lance_core':>12}{'pylance':>12}{'ratio':>8}")

    def measure(self, name: str, calls: dict[str, Callable[[], Any]], rounds: int = ROUNDS) -> None:
        """Measure CPU."""
        self.tell(name, {engine: spent.cpu * 1000 for engine, spent in compare(calls, rounds).items()})

    def tell(self, name: str, both: dict[str, float]) -> None:
        """Take in a figure of each library."""
        ours, theirs = (both[engine] for engine in ENGINES)
        print(f"{name:<48}{ours:>12.4g}{theirs:>12.4g}{ours / theirs:>8.2f}", flush=True)
        self.works[name] = both


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--dimensions", type=int, default=128)
    parser.add_argument("--partitions", type=int, default=64)
    parser.add_argument("--publish", action="store_true", help="rewrite the figures of docs/vector-search.md")
    chosen = parser.parse_args()
    load = os.getloadavg()[0]
    clusters = max(chosen.rows // 300, 1)
    rows = vectors(chosen.rows, chosen.dimensions, 1, clusters)
    queries = vectors(MANY, chosen.dimensions, 2, clusters)
    table = pa.table({"id": range(len(rows)), "v": pa.FixedSizeListArray.from_arrays(rows.ravel(), chosen.dimensions)})
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: f"{folder}/{name}" for name in ENGINES}
        for path in paths.values():
            lance.write_dataset(table, path)
        figures = measured(paths, queries, chosen.partitions)
    if chosen.publish:
        results = json.loads((PUBLISHED / "results.json").read_text())
        size = {"rows": len(rows), "dimensions": chosen.dimensions, "partitions": chosen.partitions, "load": load}
        together = results.setdefault("vectors", {})
        together[f"{len(rows)} x {chosen.dimensions}"] = {**size, "works": figures.works}
        print("published:", *(path.name for path in publish(results)))


def measured(paths: dict[str, str], queries: np.ndarray, partitions: int) -> Figures:
    """Measure searches without an index, and each kind of index."""
    figures = Figures()
    dimensions = queries.shape[1]
    both = {name: engine.dataset(paths["pylance"]) for name, engine in ENGINES.items()}
    for name, q in (("without an index, one query", queries[0]), (f"without an index, {MANY} queries", queries)):
        figures.measure(name, {engine: partial(search, opened, q) for engine, opened in both.items()})
    some = queries[:COMPARED]
    exact = [set(search(both["lance_core"], query, use_index=False)["id"].to_pylist()) for query in some]
    for kind, options in (("IVF_FLAT", {}), ("IVF_PQ", {"num_sub_vectors": dimensions // 8})):
        asked = {"num_partitions": partitions, "replace": True, **options}
        memory = {name: alone(build_memory, name, path, kind, asked) for name, path in paths.items()}
        figures.tell(f"{kind}, MiB of a build", memory)
        figures.measure(f"{kind}, build", {name: partial(build, name, paths[name], kind, asked) for name in ENGINES}, 1)
        for builder, path in paths.items():
            measure_searches(figures, f"{kind} of {builder}", path, queries, exact)
    return figures


def build(engine: str, path: str, kind: str, options: dict[str, Any]) -> None:
    """Build an index."""
    ENGINES[engine].dataset(path).create_index("v", kind, **options)


def build_memory(engine: str, path: str, kind: str, options: dict[str, Any]) -> float:
    """Return the MiB that a build adds to the memory of this process."""
    return added_memory(partial(build, engine, path, kind, options))


def measure_searches(figures: Figures, name: str, path: str, queries: np.ndarray, exact: list[set[int]]) -> None:
    """Measure searches in one index."""
    both = {engine: module.dataset(path) for engine, module in ENGINES.items()}
    for count, q in (("one query", queries[0]), (f"{MANY} queries", queries)):
        calls = {engine: partial(search, opened, q, **PROBING) for engine, opened in both.items()}
        figures.measure(f"{name}, {count}", calls)
    calls = {engine: partial(search_opened, engine, path, queries[0]) for engine in ENGINES}
    figures.measure(f"{name}, one query, just opened", calls)
    some = queries[: len(exact)]
    figures.tell(f"{name}, recall", {engine: recall(opened, some, exact, **PROBING) for engine, opened in both.items()})


def search_opened(engine: str, path: str, query: np.ndarray) -> None:
    """Open a table and search it."""
    search(ENGINES[engine].dataset(path), query, **PROBING)


if __name__ == "__main__":
    if any(name in os.environ for name in KERNELS):  # they count from the start of a process
        kept = {name: value for name, value in os.environ.items() if name not in KERNELS}
        os.execve(sys.executable, [sys.executable, *sys.argv], kept)  # noqa: S606 this program again
    main()
