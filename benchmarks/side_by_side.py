"""Read, write and size of tables of several engines, in one process; prints ratios and keeps what was measured.

Cells show the median of CPU time (all threads) and in brackets of wall time, divided by those of the anchor: below 1 is
cheaper. Works with a star open the table each time, "cold" after its files have left memory. `bytes` are those on disk,
`IO` the reads that an object store would see, `peak` is memory in a fresh process.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from data import DATA_SETS, load
from engines import ENGINES, READS, Questions, questions
from measure import Spent, able, bytes_on_disk, compare_warm, forget, peak_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

OPENED = ("scan", "count all", "take 1", "take 100", "head")
"""Works that are also measured with the table just opened."""

COUNTED = ("scan", "2 columns", "head", "take 1", "take 100")
"""Works whose requests are counted, first cold, then warm."""

WRITES = ("write", "append 1k")
MEMORY = ("peak stream", "peak scan", "peak write")
COLD = "take 100 cold"
_MOST_THAT_STAYS = 0.01
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
    made = {name: READS[work.rstrip("*").removesuffix(" cold")](ENGINES[name], asked) for name in folders}
    if work.endswith(("*", " cold")):
        return {name: partial(_opened, name, str(folders[name]), call) for name, call in made.items()}
    return {name: partial(call, handles[name]) for name, call in made.items()}


def _write(name: str, table: pa.Table, folder: Path) -> None:
    target = folder.with_name(f"{folder.name}-again")
    shutil.rmtree(target, ignore_errors=True)
    ENGINES[name].write(table, str(target))


def _opened(name: str, folder: str, call: Callable[[Any], Any]) -> None:
    call(ENGINES[name].open(folder))


def print_row(work: str, names: list[str], cells: dict[str, str], anchor: str) -> None:
    """One line of the report."""
    print(f"{work:12}" + "".join(f"{cells.get(name, '-'):>19}" for name in names) + f"{anchor:>14}", flush=True)


def time_row(work: str, names: list[str], spent: dict[str, Spent], anchor: str) -> None:
    """Ratios of CPU and wall time."""
    if not spent:
        return
    base = spent.get(anchor) or next(iter(spent.values()))
    cells = {name: f"{one.cpu / base.cpu:.2f} ({one.wall / base.wall:.2f})" for name, one in spent.items()}
    print_row(work, names, cells, f"{base.cpu * 1e3:.2f} ms")


def request_rows(folders: dict[str, Path], names: list[str], asked: Questions) -> dict[str, Any]:
    """Requests and bytes of some works: the table just opened, and asked for the second time."""
    kept: dict[str, Any] = {}
    for work in COUNTED:
        counts: dict[str, list[int]] = {}
        for name, folder in folders.items():
            count = ENGINES[name].count_io
            if count is None:
                continue
            call = READS[work](ENGINES[name], asked)
            counts[name] = [*count(str(folder), lambda handle: handle, call), *count(str(folder), call, call)]
        cells = {
            name: f"{first} {size / 1024:.0f}K, {again} {more / 1024:.0f}K"
            for name, (first, size, again, more) in counts.items()
        }
        print_row(f"IO {work}", names, cells, "first, again")
        kept[work] = counts
    return kept


def memory_of(work: str, folders: dict[str, Path], table: pa.Table) -> dict[str, tuple[float, float]]:
    """Memory of a work, by engine: see `peak_memory`."""
    if work != "write":
        return {one: peak_memory(one, folder, work) for one, folder in folders.items()}
    root = next(iter(folders.values())).parent
    source = root / "source.arrow"
    with pa.ipc.new_file(str(source), table.schema) as writer:
        writer.write_table(table, max_chunksize=1 << 16)
    found: dict[str, tuple[float, float]] = {}
    for one in folders:
        if "<" not in one:
            target = root / f"written by {one}"
            found[one] = peak_memory(one, target, work, source)
            shutil.rmtree(target)
    source.unlink()
    return found


def time_cold(
    calls: dict[str, Callable[[], Any]], folders: dict[str, Path], handles: dict[str, Any], rounds: int
) -> dict[str, Spent]:
    """Calls that find nothing of their files in memory; none where files cannot be forgotten.

    A handle may have its file mapped, and what is mapped stays: all are given up before, and made anew by who asks.
    """
    handles.clear()
    stays = max(forget(folders[name]) for name in calls)
    if stays > _MOST_THAT_STAYS:
        print(f"  files stay in memory ({stays:.0%}): is this folder on a disk?")
        return {}
    return compare_warm(calls, able(calls), rounds, before=lambda name: forget(folders[name]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured.

    Attributes:
        works: For each work the names of engines.
        scale: Share of the real sizes.
        rounds: Rounds of each work.
    """

    works: Mapping[str, Collection[str]]
    scale: float
    rounds: int

    @property
    def engines(self) -> list[str]:
        """All engines, in the order in which they are shown."""
        return [name for name in ENGINES if any(name in engines for engines in self.works.values())]


def run_data_set(name: str, plan: Plan, root: Path) -> dict[str, Any]:
    """All works on one data set.

    Returns:
        For each work, what each engine needed: (CPU seconds, wall seconds), or bytes, or MiB, or numbers of requests.
    """
    table = load(name, plan.scale)
    asked = questions(DATA_SETS[name], table)
    print(f"\n{name}: {table.num_rows:,} rows x {table.num_columns} columns, {table.nbytes / 1e6:.0f} MB")
    all_folders = write_all(plan.engines, table, root)
    names = list(all_folders)
    fewer = {one for one in names if len(ENGINES[one].open(str(all_folders[one])).schema.names) < table.num_columns}
    if fewer:
        print(f"  tables without maps, which ratios cannot be read from: {', '.join(sorted(fewer))}")
    anchor = next((one for one in names if one.startswith("pylance-") and one not in fewer), names[0])
    print(f"{'':12}" + "".join(f"{one:>19}" for one in names) + f"   1 = {anchor}")
    handles: dict[str, Any] = {}
    kept: dict[str, Any] = {"rows": table.num_rows, "source_bytes": table.nbytes}
    sizes = {one: bytes_on_disk(folder) for one, folder in all_folders.items()}
    kept["bytes"] = sizes
    base = sizes[anchor]
    print_row("bytes", names, {one: f"{size / base:.2f}" for one, size in sizes.items()}, f"{base / 1e6:.1f} MB")
    for work, engines in plan.works.items():
        folders = {one: folder for one, folder in all_folders.items() if one in engines}
        if work == "requests":
            kept[work] = request_rows(folders, names, asked)
        elif work in MEMORY:
            kept[work] = memory_of(work.split()[1], folders, table)
            cells = {one: f"+{peak:.0f} (+{anonymous:.0f})" for one, (peak, anonymous) in kept[work].items()}
            print_row(work, names, cells, "MiB (own)")
        elif work != "bytes":
            for one in folders.keys() - handles.keys():
                handles[one] = ENGINES[one].open(str(folders[one]))
            calls = calls_of(work, folders, table, asked, handles)
            cold = work.endswith("cold")
            spent = (
                time_cold(calls, folders, handles, plan.rounds)
                if cold
                else compare_warm(calls, able(calls), plan.rounds)
            )
            time_row(work, names, spent, anchor)
            kept[work] = {one: (value.cpu, value.wall) for one, value in spent.items()}
    return kept
