"""Weeks of simulated days with and without maintenance: fragments, versions and bytes, day by day.

    python -m example_project.simulate                 four weeks; draws example_project/images/bounded.svg
    python -m example_project.simulate --days 14

Each day many small batches arrive, some rows are deleted and some of earlier days are corrected. Every night the job
of the maintenance assets runs, exactly as its schedule would run it. The same days are lived through a second time
without maintenance. The picture is SVG, a text that needs no library to write and that every browser shows.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import astuple, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import numpy as np
import pyarrow as pa

import lance_core
from lance_dagster import CleanupPolicy, CompactionPolicy, DeletionPolicy, LanceResource
from lance_dagster.maintenance import build_maintenance_definitions

if TYPE_CHECKING:
    from collections.abc import Sequence

PICTURE = Path(__file__).parents[2] / "images" / "bounded.svg"
BATCHES, ROWS = 12, 500
"""Commits in a day, and rows in each."""

QUIET = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}
COMPACTION = CompactionPolicy(target_rows_per_fragment=100_000, min_fragments=4)
DELETIONS = DeletionPolicy(threshold=0.05)
# Days pass within a second here, so that only the number of versions can decide.
CLEANUP = CleanupPolicy(older_than=timedelta(0), retain_versions=5, grace_period=timedelta(0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """The table at the end of a day.

    Attributes:
        fragments: Fragments of the newest version.
        versions: Versions that can be read.
        files: Files in the folder.
        megabytes: Bytes of all files in the folder, in millions.
    """

    fragments: int
    versions: int
    files: int
    megabytes: float


def live(uri: str, day: int) -> None:
    """Write, delete and correct as on one day."""
    rng = np.random.default_rng(day)
    for batch in range(BATCHES):
        first = (day * BATCHES + batch) * ROWS
        rows = pa.table(
            {
                "id": np.arange(first, first + ROWS),
                "day": np.full(ROWS, day),
                "amount": np.round(rng.gamma(2, 10, ROWS), 2),
                "store": pa.array([f"store {number}" for number in rng.integers(0, 40, ROWS)]),
            }
        )
        lance_core.write_dataset(rows, uri, mode="append" if first else "create")
    table = lance_core.dataset(uri)
    table.delete(f"day = {day} AND amount > {60 + day % 5}")
    late = int(rng.integers(max(day - 5, 0), day + 1))
    table.update({"amount": "amount * 1.1"}, where=f"day = {late} AND store = 'store {day % 40}'")


def measure(uri: str) -> Day:
    """Look at the table and its folder."""
    table = lance_core.dataset(uri)
    sizes = [path.stat().st_size for path in Path(uri).rglob("*") if path.is_file()]
    return Day(
        fragments=len(table.get_fragments()),
        versions=len(table.versions()),
        files=len(sizes),
        megabytes=sum(sizes) / 1e6,
    )


def simulate(root: str, days: int, *, maintained: bool) -> list[Day]:
    """Return the days, one after another; each ends with maintenance or without."""
    lance = LanceResource(root=root)
    upkeep = build_maintenance_definitions("sales", compaction=COMPACTION, deletions=DELETIONS, cleanup=CLEANUP)
    job = dg.Definitions.merge(upkeep, dg.Definitions(resources={"lance": lance})).resolve_job_def("lance_maintenance")
    history: list[Day] = []
    with dg.DagsterInstance.ephemeral() as instance:
        for day in range(days):
            live(lance.uri("sales"), day)
            if maintained:
                job.execute_in_process(instance=instance, run_config=QUIET)
            history.append(measure(lance.uri("sales")))
    return history


def draw(with_: Sequence[Day], without: Sequence[Day]) -> str:
    """Four small charts as SVG: one line with maintenance, one without."""
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 860 250" font-family="sans-serif" font-size="12">',
        '<rect width="860" height="250" fill="white"/>',
        '<text x="20" y="240" fill="#c0392b">without maintenance</text>',
        '<text x="160" y="240" fill="#1f6feb">with maintenance every night</text>',
    ]
    names = ("fragments", "versions", "files", "megabytes")
    for index, (name, ours, theirs) in enumerate(zip(names, _columns(with_), _columns(without), strict=True)):
        left, top, width, height = 50 + 210 * index, 40, 150, 160
        most = max(*ours, *theirs, 1e-9)
        parts += [
            f'<text x="{left}" y="22" font-weight="bold">{name}</text>',
            f'<path d="M{left} {top}v{height}h{width}" fill="none" stroke="#999"/>',
            f'<text x="{left - 5}" y="{top + 5}" text-anchor="end">{most:,.0f}</text>',
            f'<text x="{left - 5}" y="{top + height}" text-anchor="end">0</text>',
            f'<text x="{left + width}" y="{top + height + 16}" text-anchor="end">day {len(ours)}</text>',
        ]
        for values, color in ((theirs, "#c0392b"), (ours, "#1f6feb")):
            coordinates = " ".join(
                f"{left + width * (number + 1) / len(values):.1f},{top + height * (1 - value / most):.1f}"
                for number, value in enumerate(values)
            )
            parts.append(f'<polyline points="{coordinates}" fill="none" stroke="{color}" stroke-width="2"/>')
    return "\n".join([*parts, "</svg>\n"])


def _columns(days: Sequence[Day]) -> list[tuple[float, ...]]:
    return [*zip(*(astuple(day) for day in days), strict=True)]


def main(arguments: Sequence[str] | None = None) -> None:
    """Live through the days twice and draw what became of the table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--days", type=int, default=28)
    parser.add_argument("--picture", type=Path, default=PICTURE)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as root:
        with_ = simulate(f"{root}/with", options.days, maintained=True)
        without = simulate(f"{root}/without", options.days, maintained=False)
        same = _rows(f"{root}/with/sales.lance") == _rows(f"{root}/without/sales.lance")
    print(f"after {options.days} days   fragments  versions     files  megabytes")
    for title, days in (("maintained", with_), ("not maintained", without)):
        last = days[-1]
        print(f"{title:16}{last.fragments:>10,}{last.versions:>10,}{last.files:>10,}{last.megabytes:>11.1f}")
    print(f"both hold the same rows: {same}")
    options.picture.write_text(draw(with_, without))
    print(f"drawn: {options.picture}")


def _rows(uri: str) -> pa.Table:
    return lance_core.dataset(uri).to_table().sort_by("id")


if __name__ == "__main__":
    main()
