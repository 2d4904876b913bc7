"""What takes one table and leaves another: deletions, compaction, clean-up, tags, the same bytes again."""

from __future__ import annotations

import hashlib
import shutil
import statistics
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import lance
from commit import with_versions
from data import load

import lance_core

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NUM_FRAGMENTS, FRAGMENT_ROWS = 100, 10_000
NUM_TAGS = 10_000
SHARES = {"taxi": 0.2}
"""Least scale at which fragments have as many rows as they should."""
ENGINES: dict[str, Any] = {"lance_core": lance_core, "pylance": lance}

Spent = dict[str, tuple[float, float]]
"""CPU and wall seconds of each engine."""


def on_copies(source: Path, works: dict[str, Callable[[str], Any]], rounds: int) -> Spent:
    """Medians over interleaved rounds of works that change a table; each gets a fresh copy."""
    names, samples = list(works), {name: list[tuple[float, float]]() for name in works}
    for number in range(rounds + 1):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            target = source.with_name("copy")
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target)
            cpu, wall = time.process_time(), time.perf_counter()
            works[name](str(target))
            samples[name].append((time.process_time() - cpu, time.perf_counter() - wall))
    return {name: _medians(all_[1:]) for name, all_ in samples.items()}


def _medians(samples: list[tuple[float, float]]) -> tuple[float, float]:
    cpu, wall = zip(*samples, strict=True)
    return statistics.median(cpu), statistics.median(wall)


def deletions(root: Path, scale: float, rounds: int) -> dict[str, Spent]:
    """Delete 1 % of the rows, unsorted, by a number column."""
    found: dict[str, Spent] = {}
    for name, condition in (("taxi", "tip > 7.2 and tip < 7.6"), ("text", "took < 50")):
        path = root / name
        lance.write_dataset(load(name, scale), str(path), data_storage_version="2.1")
        works = {
            engine: lambda uri, made=made, condition=condition: made.dataset(uri).delete(condition)
            for engine, made in ENGINES.items()
        }
        found[f"delete 1% of {name}"] = on_copies(path, works, rounds)
        shutil.rmtree(path)
    return found


def compactions(root: Path, scale: float, rounds: int) -> dict[str, Spent]:
    """100 fragments of 10,000 rows become one, with and without deleted rows, by default and decoded."""
    found: dict[str, Spent] = {}
    works: dict[str, Callable[[str], Any]] = {
        "lance_core": lambda uri: lance_core.dataset(uri).optimize.compact_files(num_threads=2),
        "decoding": lambda uri: lance_core.dataset(uri).optimize.compact_files(
            num_threads=2, compaction_mode="reencode"
        ),
        "copying": lambda uri: lance_core.dataset(uri).optimize.compact_files(
            num_threads=2, compaction_mode="try_binary_copy"
        ),
        "pylance": lambda uri: lance.dataset(uri).optimize.compact_files(num_threads=2),
    }
    for name in ("taxi", "text"):
        full = load(name, max(scale, SHARES.get(name, 0)))
        table = full.slice(0, NUM_FRAGMENTS * FRAGMENT_ROWS)  # text: fewer rows at small scales
        rows = -(-table.num_rows // NUM_FRAGMENTS)
        for deleted in (False, True):
            path = root / "fragments"
            lance_core.write_dataset(table, path, max_rows_per_file=rows, data_storage_version="2.1")
            if deleted:
                lance.dataset(str(path)).delete("_rowid % 50 = 3")
            title = f"compact {name}{' with deletions' if deleted else ''}"
            found[title] = on_copies(path, works, rounds)
            shutil.rmtree(path)
    return found


def cleanups(root: Path, versions: int, rounds: int) -> dict[str, Spent]:
    """All versions but the newest go."""
    none = timedelta(0)
    works: dict[str, Callable[[str], Any]] = {
        "lance_core": lambda uri: lance_core.dataset(uri).cleanup_old_versions(older_than=none, retain_versions=1),
        "pylance": lambda uri: lance.dataset(uri).cleanup_old_versions(older_than=none),
    }
    folder = root / "history"
    folder.mkdir()
    return {"clean-up": on_copies(with_versions(folder, versions), works, min(rounds, 3))}


def tags(root: Path, number: int) -> dict[str, Spent]:
    """Create, resolve and list tags; each engine in a table of its own, by which nothing can be repeated."""
    found: dict[str, Spent] = {"create a tag": {}, "resolve a tag": {}, "list tags": {}}
    for name, engine in ENGINES.items():
        uri = str(root / f"tags {name}")
        dataset = engine.write_dataset(load("text", 0).slice(0, 1), uri)
        found["create a tag"][name] = _timed(lambda at, one=dataset: one.tags.create(f"run-{at}", 1), number)
        found["resolve a tag"][name] = _timed(
            lambda at, made=engine, path=uri: made.dataset(path, version=f"run-{at % number}"), 200
        )
        found["list tags"][name] = _timed(lambda _, one=dataset: one.tags.list(), 3)
    return found


def _timed(call: Callable[[int], Any], times: int) -> tuple[float, float]:
    cpu, wall = time.process_time(), time.perf_counter()
    for number in range(times):
        call(number)
    return (time.process_time() - cpu) / times, (time.perf_counter() - wall) / times


def same_bytes(root: Path, scale: float) -> dict[str, bool]:
    """Whether the same input makes the same data files."""
    found: dict[str, bool] = {}
    for name in ("taxi", "text", "nested"):
        table = load(name, scale)
        for version in ("2.0", "2.1", "2.2"):
            try:
                hashes = {_hash(table, root / f"{name} {version} {number}", version) for number in range(2)}
            except lance_core.LanceError:  # 2.0 has no nulls in structs
                continue
            found[f"{name} {version}"] = len(hashes) == 1
    return found


def _hash(table: Any, path: Path, version: str) -> str:
    lance_core.write_dataset(table, path, data_storage_version=version)
    digest = hashlib.sha256()
    for file in sorted((path / "data").iterdir(), key=lambda one: one.stat().st_mtime_ns):
        digest.update(file.read_bytes())
    shutil.rmtree(path)
    return digest.hexdigest()
