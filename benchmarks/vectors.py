"""Vector search beside pylance: exact, by index, and building indices.

    python benchmarks/vectors.py [--rows 20000] [--dimensions 128] [--partitions 64]

Both libraries search the same indices, that of pylance and that of lance_core. Prints milliseconds of CPU of both, the
median of some rounds, and the share of the nearest ten rows that they find.
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from typing import TYPE_CHECKING, Any

import lance
import numpy as np
import pyarrow as pa
from measure import compare

import lance_core

if TYPE_CHECKING:
    from collections.abc import Callable

K = 10
MANY = 100
ROUNDS = 5
ENGINES = {"lance_core": lance_core, "pylance": lance}
PROBING = {"nprobes": 20, "refine_factor": 10}


def vectors(rows: int, dimensions: int, seed: int) -> np.ndarray:
    """Return vectors in clusters, as embeddings are."""
    rng = np.random.default_rng(seed)
    centers = np.random.default_rng(0).normal(size=(max(rows // 300, 1), dimensions))
    return (centers[rng.integers(0, len(centers), rows)] + 0.7 * rng.normal(size=(rows, dimensions))).astype(np.float32)


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


def show(name: str, calls: dict[str, Callable[[], Any]], rounds: int = ROUNDS, note: str = "") -> None:
    """Measure and print a line."""
    ours, theirs = (spent.cpu * 1000 for spent in compare(calls, rounds).values())
    print(f"{name:<44}{ours:>12.1f}{theirs:>12.1f}{ours / theirs:>8.2f}  {note}", flush=True)


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
        paths = {name: f"{folder}/{name}" for name in ENGINES}
        for path in paths.values():
            lance.write_dataset(table, path)
        print(f"{'milliseconds of CPU':<44}{'lance_core':>12}{'pylance':>12}{'ratio':>8}")
        both = {name: engine.dataset(paths["pylance"]) for name, engine in ENGINES.items()}
        for name, q in (("exact, one query", queries[0]), (f"exact, {MANY} queries", queries)):
            show(name, {engine: partial(search, one, q) for engine, one in both.items()})
        some = queries[:20]
        exact = [set(search(both["lance_core"], query, use_index=False)["id"].to_pylist()) for query in some]
        for kind, options in (("IVF_FLAT", {}), ("IVF_PQ", {"num_sub_vectors": chosen.dimensions // 8})):
            asked = {"num_partitions": chosen.partitions, "replace": True, **options}
            show(f"{kind}, build", {name: partial(build, name, path, kind, asked) for name, path in paths.items()}, 1)
            for builder, path in paths.items():
                measure_searches(f"{kind} of {builder}", path, queries, exact)


def build(engine: str, path: str, kind: str, options: dict[str, Any]) -> None:
    """Build an index."""
    ENGINES[engine].dataset(path).create_index("v", kind, **options)


def measure_searches(name: str, path: str, queries: np.ndarray, exact: list[set[int]]) -> None:
    """Measure searches in one index."""
    both = {engine: module.dataset(path) for engine, module in ENGINES.items()}
    found = [recall(one, queries[: len(exact)], exact, **PROBING) for one in both.values()]
    note = f"recall {found[0]:.3f}, {found[1]:.3f}"
    for count, q in (("one query", queries[0]), (f"{MANY} queries", queries)):
        show(
            f"{name}, {count}", {engine: partial(search, one, q, **PROBING) for engine, one in both.items()}, note=note
        )


if __name__ == "__main__":
    main()
