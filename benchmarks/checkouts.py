"""Another checkout of this project beside this one: `run.py` in turns with each, ratios of what both measured."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

HERE = Path(__file__).resolve().parent
OURS = ("core", "lance_core")
"""How engines are called that run a checkout's code; others would run the same code twice."""
NOTICED = 1.05
"""Ratio of new to old from which a row is marked."""
ROUNDS = 3
"""Rounds within each process."""

Figures = dict[str, tuple[float, ...]]
"""CPU and wall seconds, or bytes, or MiB, for each row."""


def compare_checkouts(old: Path, arguments: Sequence[str], pairs: int) -> list[dict[str, Any]]:
    """Run the same benchmarks with both checkouts, and print a row for each that both measured.

    Each run has a process of its own. Old and new take turns, and the first of a pair is the second of the next: what
    the machine does meanwhile disturbs both alike. The benchmarks are always those of this checkout.

    Args:
        old: Folder of the other checkout.
        arguments: Options of `run.py` that say what is measured.
        pairs: Runs of each checkout.

    Returns:
        For each row its name, and for each figure the median and the least and greatest ratio of new to old.
    """
    environments = {"old": _environment(old.resolve()), "new": _environment(HERE.parent)}
    samples: dict[str, list[Figures]] = {"old": [], "new": []}
    for pair in range(pairs):
        for name in ("old", "new") if pair % 2 == 0 else ("new", "old"):
            print(f"pair {pair + 1} of {pairs}: {name}", flush=True)
            samples[name].append(_measure(environments[name], arguments))
    names = [name for name in samples["new"][0] if all(name in run for runs in samples.values() for run in runs)]
    rows = [_row(name, samples) for name in names]
    print_rows(rows)
    return rows


def _environment(checkout: Path) -> dict[str, str]:
    """Return the environment of a process that imports the lance_core of a checkout.

    Raises:
        RuntimeError: It imports another one.
    """
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-c", "import lance_core; print(lance_core.__file__)"]
    done = subprocess.run(command, cwd=HERE, env=environment, capture_output=True, text=True, check=True)
    if Path(done.stdout.strip()).parents[1] != checkout:
        raise RuntimeError(f"{done.stdout.strip()} would be measured, not the lance_core of {checkout}")
    return environment


def _measure(environment: Mapping[str, str], arguments: Sequence[str]) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(HERE / "run.py"), *arguments, "--rounds", str(ROUNDS), "--out", folder]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"The benchmarks fail with {environment['PYTHONPATH']}: {done.stderr}")
        results = json.loads((Path(folder) / "results.json").read_text())
    parts = {**results["data"], **results["singles"], **results.get("codecs", {})}
    return dict(figures_of(parts, ()))


def figures_of(results: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Yield the name and the figures of each row of nested results that an engine of ours has."""
    for key, value in results.items():
        if isinstance(value, dict):
            yield from figures_of(value, (*path, key))
        elif key.startswith(OURS):
            figures = tuple(value) if isinstance(value, list) else (value,)
            if len(figures) <= 2 and all(isinstance(figure, int | float) and figure > 0 for figure in figures):
                yield ", ".join((*path, key)), figures


def _row(name: str, samples: Mapping[str, Sequence[Figures]]) -> dict[str, Any]:
    pairs = zip(samples["old"], samples["new"], strict=True)
    runs = [[after / before for before, after in zip(old[name], new[name], strict=True)] for old, new in pairs]
    ratios = [(statistics.median(column), min(column), max(column)) for column in zip(*runs, strict=True)]
    return {"name": name, "old": statistics.median(run[name][0] for run in samples["old"]), "ratios": ratios}


def verdict(row: Mapping[str, Any]) -> str:
    """Return what the first figure of a row says; what one of the pairs contradicts may be noise."""
    median, least, most = row["ratios"][0]
    if median > NOTICED:
        return "SLOWER" if least > 1 else "slower?"
    if median < 1 / NOTICED:
        return "faster" if most < 1 else "faster?"
    return ""


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of ratios."""
    print(f"\n{'new / old':60}{'CPU':>22}{'wall':>22}  old")
    for row in rows:
        cells = [f"{median:.3f} ({least:.2f}-{most:.2f})" for median, least, most in row["ratios"]]
        cells += [""] * (2 - len(cells))
        print(f"{row['name'][:59]:60}{cells[0]:>22}{cells[1]:>22}  {row['old']:.4g} {verdict(row)}")
    print(f"{sum(verdict(row) == 'SLOWER' for row in rows)} of {len(rows)} rows are slower by more than 5 %")
