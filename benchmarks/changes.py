"""What takes one table and leaves another: deletions, compaction, clean-up, tags, the same bytes again."""

from __future__ import annotations

import hashlib
import os
import shutil
import statistics
import time
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
from commit import with_versions
from data import load

import lance_core

if TYPE_CHECKING:
    from collections.abc import Callable

NUM_FRAGMENTS, FRAGMENT_ROWS = 100, 10_000
SHARES = {"taxi": 0.2}
"""Least scale at which fragments have as many rows as they should."""
ENGINES: dict[str, Any] = {"lance_core": lance_core, "pylance": lance}

Spent = dict[str, tuple[float, float]]
"""CPU and wall seconds of each engine."""


def on_copies(works: dict[str, tuple[Path, Callable[[str], Any]]], rounds: int) -> Spent:
    """Medians over interleaved rounds of works that change a table; each gets a fresh copy of its table.

    Large files are links: nobody changes a file that is there.
    """
    names, samples = list(works), {name: list[tuple[float, float]]() for name in works}
    for number in range(rounds + 1):
        for name in names[number % len(names) :] + names[: number % len(names)]:
            source, work = works[name]
            target = source.with_name("copy")
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target, copy_function=_link_if_large)
            cpu, wall = time.process_time(), time.perf_counter()
            work(str(target))
            samples[name].append((time.process_time() - cpu, time.perf_counter() - wall))
    return {name: _medians(all_[1:]) for name, all_ in samples.items()}


def _link_if_large(source: str, target: str) -> None:
    (os.link if Path(source).stat().st_size > 1 << 16 else shutil.copyfile)(source, target)


def _medians(samples: list[tuple[float, float]]) -> tuple[float, float]:
    cpu, wall = zip(*samples, strict=True)
    return statistics.median(cpu), statistics.median(wall)


def deletions(root: Path, scale: float, rounds: int) -> dict[str, Spent]:
    """Delete 1 % of the rows, unsorted, by a number column: each engine in a table that it wrote."""
    found: dict[str, Spent] = {}
    for name, condition in (("taxi", "tip > 7.2 and tip < 7.6"), ("text", "took < 50")):
        folder = root / name
        tables = _written(folder, load(name, scale))
        found[f"delete 1% of {name}"] = on_copies(
            {
                one: (path, lambda uri, made=engine, condition=condition: made.dataset(uri).delete(condition))
                for one, (path, engine) in tables.items()
            },
            rounds,
        )
        shutil.rmtree(folder)
    return found


def compactions(root: Path, scale: float, rounds: int) -> dict[str, Spent]:
    """100 fragments of 10,000 rows become one, with and without deleted rows; "decoding" copies no pages."""
    found: dict[str, Spent] = {}
    for name in ("taxi", "text"):
        full = load(name, max(scale, SHARES.get(name, 0)))
        table = full.slice(0, NUM_FRAGMENTS * FRAGMENT_ROWS)  # text: fewer rows at small scales
        tables = _written(root / "fragments", table, max_rows_per_file=-(-table.num_rows // NUM_FRAGMENTS))
        tables["decoding"] = tables["lance_core"]
        for deleted in (False, True):
            works: dict[str, tuple[Path, Callable[[str], Any]]] = {}
            for one, (path, engine) in tables.items():
                if deleted and one != "decoding":
                    lance.dataset(str(path)).delete("_rowid % 50 = 3")
                options = {"compaction_mode": "reencode"} if one == "decoding" else {}
                works[one] = (path, partial(_compact, engine, options))
            found[f"compact {name}{' with deletions' if deleted else ''}"] = on_copies(works, rounds)
        shutil.rmtree(root / "fragments")
    return found


def _compact(engine: Any, options: dict[str, Any], uri: str) -> None:
    engine.dataset(uri).optimize.compact_files(num_threads=2, **options)


CHANGES: dict[str, Callable[[Any, pa.Table], Any]] = {
    "update 1 row": lambda table, _: table.update({"few": "7"}, where="id = 777"),
    "upsert 10 rows": lambda table, rows: (
        table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)
    ),
    "build BTREE": lambda table, _: table.create_scalar_index("few", "BTREE"),
    "add a column": lambda table, _: table.add_columns({"twice": "few * 2"}),
}
INDEXED_CHANGES: dict[str, Callable[[Any, pa.Table], Any]] = {
    "delete 1 row": lambda table, _: table.delete("id = 777"),
    "upsert 10 rows": CHANGES["upsert 10 rows"],
}


def small_fragments(root: Path, scale: float, rounds: int) -> dict[str, Spent]:
    """Change tables of up to 500 fragments of 100 rows, each engine those that it wrote, with and without an index."""
    num_rows = 100 * max(int(500 * min(scale, 1)), 50)
    numbers = range(num_rows)
    rows = pa.table(
        {
            "id": numbers,
            "name": [f"name {number * 7919 % num_rows}" for number in numbers],
            "few": [number % 97 for number in numbers],
            "part": [number / 8 for number in numbers],
        }
    )
    given = rows.slice(num_rows - 10).set_column(0, "id", pa.array(range(num_rows - 5, num_rows + 5)))
    tables = _written(root / "small fragments", rows, max_rows_per_file=100)
    found = _changed(tables, given, CHANGES, "small fragments", rounds)
    for path, engine in tables.values():
        engine.dataset(str(path)).create_scalar_index("id", "BTREE")
    return found | _changed(tables, given, INDEXED_CHANGES, "indexed small fragments", rounds)


def _changed(
    tables: dict[str, tuple[Path, Any]],
    given: pa.Table,
    works: dict[str, Callable[[Any, pa.Table], Any]],
    what: str,
    rounds: int,
) -> dict[str, Spent]:
    return {
        f"{name} of {what}": on_copies(
            {
                one: (path, lambda uri, made=engine, work=work: work(made.dataset(uri), given))
                for one, (path, engine) in tables.items()
            },
            min(rounds, 3),
        )
        for name, work in works.items()
    }


def _written(folder: Path, table: pa.Table, **options: Any) -> dict[str, tuple[Path, Any]]:
    """A table written by each engine, by pylance in all its file versions: where it is, and the engine."""
    made = {"lance_core": (lance_core, None), **{f"pylance-{one}": (lance, one) for one in ("2.0", "2.1", "2.2")}}
    found: dict[str, tuple[Path, Any]] = {}
    for name, (engine, version) in made.items():
        engine.write_dataset(table, str(folder / name), data_storage_version=version, **options)
        found[name] = folder / name, engine
    return found


def cleanups(root: Path, versions: int, rounds: int) -> dict[str, Spent]:
    """All versions but the newest go."""
    none = timedelta(0)
    calls: dict[str, Callable[[str], Any]] = {
        "lance_core": lambda uri: lance_core.dataset(uri).cleanup_old_versions(older_than=none, retain_versions=1),
        "pylance": lambda uri: lance.dataset(uri).cleanup_old_versions(older_than=none),
    }
    folder = root / "history"
    folder.mkdir()
    table = with_versions(folder, versions)
    return {"clean-up": on_copies({name: (table, call) for name, call in calls.items()}, min(rounds, 3))}


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
