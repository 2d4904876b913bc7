"""Read, write and size of tables of several engines, in one process; prints ratios and keeps what was measured.

Cells show the median of CPU time (all threads) and in brackets of wall time, divided by those of the anchor: below 1 is
cheaper. Works with a star open the table each time, "cold" after its files have left memory. `bytes` are those on disk,
`IO` the reads that an object store would see, `peak` is memory in a fresh process.
"""

from __future__ import annotations

import gc
import os
import shutil
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from data import DATA_SETS, load
from engines import ENGINES, READS, Questions, questions
from measure import Spent, bytes_on_disk, compare, peak_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

OPENED = ("scan", "take 1", "take 100", "head")
"""Works that are also measured with the table just opened."""

COUNTED = ("2 columns", "head", "take 1", "take 100")
"""Works whose requests are counted, first cold, then warm."""

WRITES = ("write", "append 1k")
MEMORY = ("peak stream", "peak scan", "peak write")
COLD = "take 100 cold"
WORKS = (*WRITES, "open", *READS, *(f"{name}*" for name in OPENED), COLD, "requests", *MEMORY)


def write_all(names: list[str], table: pa.Table, root: Path) -> dict[str, Path]:
    """The tables; engines that cannot write this one are left out."""
    folders: dict[str, Path] = {}
    for name in names:
        folder = root / name.replace("<", "-reads-")
        try:
            ENGINES[name].write(table, str(folder))
        except Exception as error:  # noqa: BLE001 - whatever an engine says about what it cannot do
            print(f"  {name} cannot write this: {str(error).splitlines()[0][:100]}")
            continue
        folders[name] = folder
    return folders


def calls_of(
    work: str, folders: dict[str, Path], table: pa.Table, asked: Questions, handles: dict[str, Any]
) -> dict[str, Callable[[], Any]]:
    """What each engine does for one work; engines that have no such work are left out."""
    if work == "write":
        return {name: partial(_write, name, table, folder) for name, folder in folders.items() if "<" not in name}
    if work == "append 1k":
        rows = table.slice(0, 1000)
        able = [name for name in folders if ENGINES[name].append]
        copies = {name: folders[name].with_name(f"{folders[name].name}-appended") for name in able}
        for name, folder in copies.items():
            ENGINES[name].write(rows, str(folder))
        return {name: partial(ENGINES[name].append or print, rows, str(copies[name])) for name in able}
    if work == "open":
        return {name: partial(ENGINES[name].open, str(folder)) for name, folder in folders.items()}
    if work == COLD:
        questions_ = {name: READS["take 100"](ENGINES[name], asked) for name in folders}
        copies = {name: _copy(folder) for name, folder in folders.items()}
        return {name: partial(_cold, name, copies[name], call) for name, call in questions_.items()}
    made = {name: READS[work.rstrip("*")](ENGINES[name], asked) for name in folders}
    if work.endswith("*"):
        return {name: partial(_opened, name, str(folders[name]), call) for name, call in made.items()}
    return {name: partial(call, handles[name]) for name, call in made.items()}


def _write(name: str, table: pa.Table, folder: Path) -> None:
    target = folder.with_name(f"{folder.name}-again")
    shutil.rmtree(target, ignore_errors=True)
    ENGINES[name].write(table, str(target))


def _copy(folder: Path) -> Path:
    """A copy that nobody has open, on disk."""
    target = folder.with_name(f"{folder.name}-cold")
    shutil.copytree(folder, target)
    for path in target.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
    return target


def _cold(name: str, folder: Path, call: Callable[[Any], Any]) -> None:
    gc.collect()  # what is mapped stays in memory
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    call(ENGINES[name].open(str(folder)))


def _opened(name: str, folder: str, call: Callable[[Any], Any]) -> None:
    call(ENGINES[name].open(folder))


def print_row(work: str, names: list[str], cells: dict[str, str], anchor: str) -> None:
    """One line of the report."""
    print(f"{work:12}" + "".join(f"{cells.get(name, '-'):>19}" for name in names) + f"{anchor:>14}", flush=True)


def time_row(work: str, names: list[str], spent: dict[str, Spent], anchor: str) -> None:
    """Ratios of CPU and wall time."""
    base = spent.get(anchor) or next(iter(spent.values()))
    cells = {name: f"{one.cpu / base.cpu:.2f} ({one.wall / base.wall:.2f})" for name, one in spent.items()}
    print_row(work, names, cells, f"{base.cpu * 1e3:.2f} ms")


def request_rows(names: list[str], folders: dict[str, Path], asked: Questions, kept: dict[str, Any]) -> None:
    """Requests and KiB of some works: the table just opened, and asked for the second time."""
    for work in COUNTED:
        cells: dict[str, str] = {}
        for name, folder in folders.items():
            count = ENGINES[name].count_io
            if count is None:
                continue
            call = READS[work](ENGINES[name], asked)
            cold, warm = count(str(folder), lambda handle: handle, call), count(str(folder), call, call)
            cells[name] = f"{cold[0]} {cold[1] / 1024:.0f}K, {warm[0]} {warm[1] / 1024:.0f}K"
            kept[f"requests {work} {name}"] = [*cold, *warm]
        print_row(f"IO {work}", names, cells, "cold, warm")


def memory_of(work: str, names: list[str], folders: dict[str, Path], table: pa.Table) -> dict[str, tuple[float, float]]:
    """Memory of a work, by engine: see `peak_memory`."""
    if work != "write":
        return {one: peak_memory(one, folders[one], work) for one in names}
    root = folders[names[0]].parent
    source = root / "source.arrow"
    with pa.ipc.new_file(str(source), table.schema) as writer:
        writer.write_table(table, max_chunksize=1 << 16)
    found: dict[str, tuple[float, float]] = {}
    for one in names:
        if "<" not in one:
            target = root / f"written by {one}"
            found[one] = peak_memory(one, target, work, source)
            shutil.rmtree(target)
    source.unlink()
    return found


def able(calls: dict[str, Callable[[], Any]]) -> dict[str, Callable[[], Any]]:
    """The calls that work; whatever an engine says about what it cannot do is printed."""
    found: dict[str, Callable[[], Any]] = {}
    for name, call in calls.items():
        try:
            call()
        except Exception as error:  # noqa: BLE001 - of any engine
            print(f"  {name} cannot do this: {str(error).splitlines()[0][:100]}")
        else:
            found[name] = call
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured.

    Attributes:
        engines: Names of engines.
        works: Names of works.
        scale: Share of the real sizes.
        rounds: Rounds of each work.
    """

    engines: list[str]
    works: list[str]
    scale: float
    rounds: int


def run_data_set(name: str, plan: Plan, root: Path) -> dict[str, Any]:
    """All works on one data set.

    Returns:
        For each work, what each engine needed: (CPU seconds, wall seconds), or bytes, or MiB.
    """
    table = load(name, plan.scale)
    asked = questions(DATA_SETS[name], table)
    print(f"\n{name}: {table.num_rows:,} rows x {table.num_columns} columns, {table.nbytes / 1e6:.0f} MB")
    folders = write_all(plan.engines, table, root)
    names = [one for one in plan.engines if one in folders]
    anchor = next((one for one in names if one.startswith("pylance-")), names[0])
    print(f"{'':12}" + "".join(f"{one:>19}" for one in names) + f"   1 = {anchor}")
    handles = {one: ENGINES[one].open(str(folder)) for one, folder in folders.items()}
    kept: dict[str, Any] = {"rows": table.num_rows, "source_bytes": table.nbytes}
    sizes = {one: bytes_on_disk(folder) for one, folder in folders.items()}
    kept["bytes"] = sizes
    base = sizes[anchor]
    print_row("bytes", names, {one: f"{size / base:.2f}" for one, size in sizes.items()}, f"{base / 1e6:.1f} MB")
    for work in plan.works:
        if work == "requests":
            request_rows(names, folders, asked, kept)
        elif work in MEMORY:
            kept[work] = memory_of(work.split()[1], names, folders, table)
            cells = {one: f"+{peak:.0f} (+{anonymous:.0f})" for one, (peak, anonymous) in kept[work].items()}
            print_row(work, names, cells, "MiB (own)")
        else:
            spent = compare(able(calls_of(work, folders, table, asked, handles)), plan.rounds)
            time_row(work, names, spent, anchor)
            kept[work] = {one: (value.cpu, value.wall) for one, value in spent.items()}
    return kept
