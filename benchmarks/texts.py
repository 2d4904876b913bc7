"""Full-text search beside pylance: builds, and searches in an open table and in one that was just opened.

    python benchmarks/texts.py [--rows 200000] [--queries 20] [--rounds 5]
    python benchmarks/texts.py --rows 1000000 --publish                   writes the figures into the docs, too

Texts of 5 to 15 words, which are as frequent as words of a language are; queries of three words that some thousandths
of the texts have. Both libraries search the same index, that of pylance and that of lance_core. Prints milliseconds of
CPU for one query, and their ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import lance.query
import numpy as np
import pyarrow as pa
from measure import compare
from report import PUBLISHED, publish

import lance_core
import lance_core.query

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

ENGINES = {"lance_core": lance_core, "pylance": lance}
K = 10
VOCABULARY = 50_000
RANKS = (20, 2_000)
"""Words of queries have these ranks by frequency: of 100 to 1 in 1,000 texts."""


def texts(rows: int) -> list[str]:
    """Return texts of random words."""
    rng = np.random.default_rng(1)
    share = 1 / np.arange(10, VOCABULARY + 10)
    words = np.array([f"w{number:x}" for number in range(VOCABULARY)])
    lengths = rng.integers(5, 16, rows)
    chosen = words[rng.choice(VOCABULARY, lengths.sum(), p=share / share.sum())].tolist()
    ends = np.cumsum(lengths).tolist()
    return [" ".join(chosen[end - length : end]) for end, length in zip(ends, lengths.tolist(), strict=True)]


def queries(count: int) -> list[str]:
    """Return queries of three words."""
    rng = np.random.default_rng(2)
    low, high = np.log(RANKS)
    ranks = np.exp(rng.uniform(low, high, (count, 3))).astype(int)
    return [" ".join(f"w{rank:x}" for rank in three) for three in ranks.tolist()]


def search(dataset: Any, query: Any) -> pa.Table:
    """Search one query."""
    return dataset.to_table(columns=["id", "_score"], full_text_query=query, limit=K)


def kinds(engine: Any, words: Sequence[str]) -> dict[str, list[Any]]:
    """Return queries of each kind."""
    asked = engine.query
    every = asked.FullTextOperator.AND
    return {
        "one of three words": list(words),
        "all of three words": [asked.MatchQuery(text, "text", operator=every) for text in words],
        "one word": [text.split()[0] for text in words],
    }


def search_all(open_dataset: Callable[[], Any], asked: Sequence[Any]) -> None:
    """Search some queries."""
    for query in asked:
        search(open_dataset(), query)


class Figures:
    """Measures, and prints a line for each work."""

    def __init__(self) -> None:
        self.works: dict[str, dict[str, float]] = {}
        print(f"{'milliseconds of CPU':<56}{'lance_core':>12}{'pylance':>12}{'ratio':>8}")

    def measure(self, name: str, calls: Mapping[str, Callable[[], Any]], rounds: int, count: int = 1) -> None:
        """Measure CPU of one of so many searches."""
        self.tell(name, {engine: spent.cpu * 1000 / count for engine, spent in compare(calls, rounds).items()})

    def tell(self, name: str, both: dict[str, float]) -> None:
        """Take in a figure of each library."""
        ours, theirs = (both[engine] for engine in ENGINES)
        print(f"{name:<56}{ours:>12.4g}{theirs:>12.4g}{ours / theirs:>8.2f}", flush=True)
        self.works[name] = both


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--publish", action="store_true", help="rewrite the figures of docs/full-text-search.md")
    chosen = parser.parse_args()
    load = os.getloadavg()[0]
    table = pa.table({"id": range(chosen.rows), "text": texts(chosen.rows)})
    figures = Figures()
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: str(Path(folder) / name) for name in ENGINES}
        for path in paths.values():
            lance.write_dataset(table, path)
        builds = {name: partial(build, engine, paths[name]) for name, engine in ENGINES.items()}
        figures.measure("build", builds, 1)
        figures.tell("MB of the index", {name: index_bytes(path) / 1e6 for name, path in paths.items()})
        for builder, path in paths.items():
            measure_searches(figures, f"index of {builder}", path, queries(chosen.queries), chosen.rounds)
    if chosen.publish:
        results = json.loads((PUBLISHED / "results.json").read_text())
        results["texts"] = {"rows": chosen.rows, "load": load, "works": figures.works}
        print("published:", *(path.name for path in publish(results)))


def build(engine: Any, path: str) -> None:
    """Build an index."""
    engine.dataset(path).create_scalar_index("text", "INVERTED", replace=True)


def index_bytes(path: str) -> int:
    """Return the size of the newest index."""
    newest = lance_core.dataset(path).describe_indices()[0].segments[0].uuid
    return sum(file.stat().st_size for file in Path(path, "_indices", newest).iterdir())


def measure_searches(figures: Figures, name: str, path: str, words: Sequence[str], rounds: int) -> None:
    """Measure searches in one index."""
    opened = {engine: module.dataset(path) for engine, module in ENGINES.items()}
    asked = {engine: kinds(module, words) for engine, module in ENGINES.items()}
    for kind in asked["lance_core"]:
        found = [[search(opened[engine], query)["_score"] for query in asked[engine][kind]] for engine in ENGINES]
        for ours, theirs in zip(*found, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-4)
        calls = {engine: partial(search_all, lambda one=opened[engine]: one, asked[engine][kind]) for engine in ENGINES}
        figures.measure(f"{name}, {kind}", calls, rounds, len(words))
    few = {engine: asked[engine]["one of three words"][:3] for engine in ENGINES}
    calls = {
        engine: partial(search_all, partial(module.dataset, path), few[engine]) for engine, module in ENGINES.items()
    }
    figures.measure(f"{name}, one of three words, just opened", calls, rounds, 3)


if __name__ == "__main__":
    main()
