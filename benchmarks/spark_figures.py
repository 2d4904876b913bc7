"""What plain SQL in Spark costs beside Parquet, as a table: targets, and how far they are reached."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any

from goals import SLACK

if TYPE_CHECKING:
    from collections.abc import Mapping

MEAN, MEMORY = "queries, geometric mean", "memory of a task that writes images"
OF_A_QUERY = 1.8
"""Target of each single query."""
TARGETS = {
    MEAN: 1.3,
    "count(*)": 1.0,
    "2 of 300 columns": OF_A_QUERY,
    "one key": 0.5,
    "write lineitem": 1.2,
    "write orders": 1.2,
    "write vectors": 1.0,
    "write wide": 1.0,
    "write events": 1.0,
    "merge": 0.8,
}
"""Largest ratio of CPU time; queries that are not named here are those of TPC-H."""
TARGET_MEMORY = 256


def with_mean(works: Mapping[str, Mapping[str, float]]) -> dict[str, Mapping[str, float]]:
    """Add the geometric mean of the queries, in front of what is no query."""
    queries = {title: work for title, work in works.items() if title not in TARGETS}
    others = {title: work for title, work in works.items() if title in TARGETS}
    if queries:
        mean = {
            name: math.exp(statistics.mean(math.log(work[name]) for work in queries.values()))
            for name in ("cpu", "wall")
        }
        queries[MEAN] = mean
    return queries | others


def spark_text(results: Mapping[str, Any]) -> str:
    """Return the table of one run."""
    measured = results.get("spark_sql")
    if measured is None:
        return "Not measured yet."
    where = (
        f"{measured['cores']} cores, load {measured['load']:.1f} at the start; {measured['seconds'] / 60:.0f} minutes"
    )
    lines = [
        f"Scale {measured['scale']:g}, {measured['rounds']} rounds, pyspark {measured['pyspark']}; {where}.",
        "",
        "| | target | CPU / Parquet | wall / Parquet | reached | Parquet, s of CPU |",
        "|---|---:|---:|---:|---|---:|",
    ]
    for title, work in with_mean(measured["works"]).items():
        target = TARGETS.get(title, OF_A_QUERY)
        seconds = f"{work['seconds']:.2f}" if "seconds" in work else ""
        ratios = f"{work['cpu']:.2f} | {work['wall']:.2f}"
        lines.append(f"| {title} | {target:g} | {ratios} | {_reached(work['cpu'], target)} | {seconds} |")
    if "megabytes" in measured:
        megabytes = measured["megabytes"]
        reached = _reached(megabytes, TARGET_MEMORY)
        lines.append(f"| {MEMORY} | {TARGET_MEMORY} MB | {megabytes:.0f} MB | | {reached} | |")
    return "\n".join(lines)


def _reached(figure: float, target: float) -> str:
    if figure <= target:
        return "target"
    return "close" if figure <= target * SLACK else "**missed**"
