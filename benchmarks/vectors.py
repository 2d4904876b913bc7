"""Vector search beside pylance: exact, by index, and building indices.

    python benchmarks/vectors.py [--rows 20000] [--dimensions 128] [--partitions 64]

Prints milliseconds of both libraries, the best of some runs, and the share of the nearest ten rows that an index finds.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa

import lance_core

if TYPE_CHECKING:
    from collections.abc import Callable

K = 10
MANY = 100
RUNS = 3
PROBING = {"nprobes": 20, "refine_factor": 10}


def vectors(rows: int, dimensions: int, seed: int) -> np.ndarray:
    """Return vectors in clusters, as embeddings are."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(0).normal(size=(max(rows // 300, 1), dimensions))
    return (centers[rng.integers(0, len(centers), rows)] + 0.7 * rng.normal(size=(rows, dimensions))).astype(np.float32)


def milliseconds(work: Callable[[], Any], runs: int = RUNS) -> float:
    """Return the time of the fastest run."""
    times: list[float] = []
    for _ in range(runs):
        began = time.perf_counter()
        work()
        times.append((time.perf_counter() - began) * 1000)
    return min(times)


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


def report(name: str, ours: float, theirs: float, note: str = "") -> None:
    """Print a line."""
    print(f"{name:<34}{ours:>12.1f}{theirs:>12.1f}{ours / theirs:>8.2f}  {note}")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--dimensions", type=int, default=128)
    parser.add_argument("--partitions", type=int, default=64)
    chosen = parser.parse_args()
    rows = vectors(chosen.rows, chosen.dimensions, 1)
    queries = vectors(MANY, chosen.dimensions, 2)
    table = pa.table({"id": range(len(rows)), "v": pa.FixedSizeListArray.from_arrays(rows.ravel(), chosen.dimensions)})
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/ours.lance", f"{folder}/theirs.lance"]
        for path in paths:
            lance.write_dataset(table, path)
        print(f"{'milliseconds':<34}{'lance_core':>12}{'pylance':>12}{'ratio':>8}")
        compare(paths, queries, chosen.partitions, chosen.dimensions)


def compare(paths: list[str], queries: np.ndarray, partitions: int, dimensions: int) -> None:
    """Measure exact searches, and each index."""
    ours, theirs = lance_core.dataset(paths[0]), lance.dataset(paths[1])
    for name, asked in (("exact, one query", queries[0]), (f"exact, {MANY} queries", queries)):
        report(name, *(milliseconds(lambda one=one, q=asked: search(one, q)) for one in (ours, theirs)))
    some = queries[:20]
    exact = [set(search(ours, query, use_index=False)["id"].to_pylist()) for query in some]
    for kind, options in (("IVF_FLAT", {}), ("IVF_PQ", {"num_sub_vectors": dimensions // 8})):
        asked = {"num_partitions": partitions, "replace": True, **options}
        report(
            f"{kind}, build",
            *(
                milliseconds(lambda one=one, o=asked, k=kind: one.create_index("v", k, **o), 1)
                for one in (ours, theirs)
            ),
        )
        found = [recall(one, some, exact, **PROBING) for one in (ours, theirs)]
        note = f"recall {found[0]:.3f}, {found[1]:.3f}"
        for name, q in ((f"{kind}, one query", queries[0]), (f"{kind}, {MANY} queries", queries)):
            times = (milliseconds(lambda one=one, q=q: search(one, q, **PROBING)) for one in (ours, theirs))
            report(name, *times, note)


if __name__ == "__main__":
    main()
