"""Read, write and size of Lance tables beside pylance, Parquet and Arrow files, in one process; prints ratios.

    python benchmarks/run.py                                      a quick run, about a minute
    python benchmarks/run.py --scale 1 --rounds 7 --data taxi     the real sizes
    python benchmarks/run.py --engines core-2.2 'core<pylance-2.1' pylance-2.1 --works 'take 100' scan

Engines: `core-2.2` is lance_core with files of version 2.2, `pylance-2.1` the official implementation,
`core<pylance-2.1` is lance_core reading what pylance wrote. Rounds are interleaved and their order rotates, so that a
noisy machine disturbs all alike. Cells show the median of CPU time (all threads) and in brackets of wall time, divided
by those of the anchor: below 1 is cheaper. The anchor is the first pylance in the run. Works with a star open the table
each time. `bytes` are those on disk, `requests` the reads that an object store would see, `peak` is memory in a fresh
process (mapped pages of files included).
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from data import DATA_SETS, load
from engines import ENGINES, READS, Questions, questions
from measure import Spent, bytes_on_disk, compare, peak_memory

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

DEFAULT_ENGINES = ["core-2.2", "core<pylance-2.2", "pylance-2.2", "parquet"]
OPENED = ("scan", "take 1", "take 100", "head")
"""Works that are also measured with the table just opened."""

COUNTED = ("2 columns", "head", "take 1", "take 100")
"""Works whose requests are counted, first cold, then warm."""

WRITES = ("write", "append 1k")
MEMORY = ("peak stream", "peak scan")
WORKS = (*WRITES, "open", *READS, *(f"{name}*" for name in OPENED), "requests", *MEMORY)


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
    made = {name: READS[work.rstrip("*")](ENGINES[name], asked) for name in folders}
    if work.endswith("*"):
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


def run_data_set(name: str, options: argparse.Namespace, root: Path) -> dict[str, Any]:
    """All works on one data set; what was measured."""
    table = load(name, options.scale)
    asked = questions(DATA_SETS[name], table)
    print(f"\n{name}: {table.num_rows:,} rows x {table.num_columns} columns, {table.nbytes / 1e6:.0f} MB")
    folders = write_all(options.engines, table, root)
    names = [one for one in options.engines if one in folders]
    anchor = options.anchor or next((one for one in names if one.startswith("pylance-")), names[0])
    print(f"{'':12}" + "".join(f"{one:>19}" for one in names) + f"   1 = {anchor}")
    handles = {one: ENGINES[one].open(str(folder)) for one, folder in folders.items()}
    kept: dict[str, Any] = {}
    sizes = {one: bytes_on_disk(folder) for one, folder in folders.items()}
    kept["bytes"] = sizes
    base = sizes[anchor]
    print_row("bytes", names, {one: f"{size / base:.2f}" for one, size in sizes.items()}, f"{base / 1e6:.1f} MB")
    for work in options.works:
        if work == "requests":
            request_rows(names, folders, asked, kept)
        elif work in MEMORY:
            found = {one: peak_memory(one, folders[one], work.split()[1]) for one in names}
            print_row(work, names, {one: f"+{peak:.0f} MiB" for one, peak in found.items()}, "")
            kept[work] = found
        else:
            spent = compare(calls_of(work, folders, table, asked, handles), options.rounds)
            time_row(work, names, spent, anchor)
            kept[work] = {one: (value.cpu, value.wall) for one, value in spent.items()}
    return kept


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.02, help="share of the real sizes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", nargs="+", choices=list(DATA_SETS), default=[*DATA_SETS][:-1])
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=DEFAULT_ENGINES)
    parser.add_argument("--works", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--anchor", choices=list(ENGINES))
    parser.add_argument("--folder", type=Path, help="where tables are written; a temporary folder by default")
    parser.add_argument("--json", type=Path, help="also write what was measured to this file")
    options = parser.parse_args()
    results: dict[str, Any] = {}
    for name in options.data:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            results[name] = run_data_set(name, options, Path(folder))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
