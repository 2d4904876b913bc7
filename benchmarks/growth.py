"""Curves: CPU time per row and memory at one, three and ten times the size, beside pylance and Parquet.

    python benchmarks/growth.py                            a fiftieth of the sizes, a minute or two
    python benchmarks/growth.py --scale 1 --publish        20 minutes; writes the figures of README.md and the picture
    python benchmarks/growth.py --kinds taxi vectors       some of them
    python benchmarks/growth.py --huge --publish           two million vectors, a million rows of 1,000 columns, beside
                                                           a tenth of each; half an hour

The same rows come again and again, so that a row costs the same in each part of a table unless its size matters. Each
table is written, read and compacted by processes of their own. Memory is what a work adds to its process without mapped
pages of files, in the first call; time is the least of that call and of one or two that follow: the first may pay for
memory that a virtual machine gave back to its host, which is a matter of chance.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from data import DATA_SETS
from engines import ENGINES, READS, Questions, questions
from goals import table as goals_table
from growth_report import SIZES, Spent, growth_text
from measure import added_memory, alone, bytes_on_disk, use_memory
from report import PUBLISHED, publish

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

COMPARED = {"lance_core": "core-2.2", "pylance": "pylance-2.2", "Parquet": "parquet"}
READ_WORKS = ("stream", "filter 1%", "take 1,000", "scan")
"""In this order: the first is the one whose memory matters."""
HUGE = {"vectors": 2.0, "1,000 columns": 5.0}
"""Scale of each kind that is measured at ten times the size of the others."""
HUGE_SIZES = (1, 10)
NUM_TAKEN = 1_000
_LONG_S, _FEWEST_CALLS, _MOST_CALLS = 4, 2, 3
"""Calls that there are in any case, and those that there are unless they take so many seconds together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A data set that grows.

    Attributes:
        data: Name of the data set.
        rows: Rows at scale 1 of the smallest size.
        files: Files of the smallest size.
    """

    data: str
    rows: int
    files: int


KINDS = {
    "taxi": Kind(data="taxi", rows=4_000_000, files=16),
    "fragments of 100 rows": Kind(data="taxi", rows=100_000, files=1_000),
    "1,000 columns": Kind(data="columns 1000", rows=20_000, files=4),
    "vectors": Kind(data="embeddings", rows=100_000, files=4),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One engine, and a table of one size.

    Attributes:
        engine: Name of the engine.
        source: Arrow file with the rows.
        times: How often they come.
        rows_per_file: Rows of each file.
        target: Folder of the table.
        asked: What reads ask for.
    """

    engine: str
    source: str
    times: int
    rows_per_file: int
    target: str
    asked: Questions


def write(case: Case) -> None:
    """Write the table out of the mapped source, file by file."""
    with pa.memory_map(case.source) as file:
        rows = pa.ipc.open_file(file).read_all()
    files = (batch for _ in range(case.times) for batch in rows.to_batches())
    if case.engine == "parquet":
        Path(case.target).mkdir()
        for number, batch in enumerate(files):
            pq.write_table(pa.Table.from_batches([batch]), f"{case.target}/{number:05}.parquet", compression="zstd")
        return
    reader = pa.RecordBatchReader.from_batches(rows.schema, files)
    options = {"max_rows_per_file": case.rows_per_file, "data_storage_version": "2.2"}
    _module(case).write_dataset(reader, case.target, **options)


def _module(case: Case) -> Any:
    """Return the library of an engine, which others need not import."""
    return importlib.import_module("lance" if case.engine.startswith("pylance") else "lance_core")


def compact(case: Case) -> None:
    """Compact the table by default settings."""
    _module(case).dataset(case.target).optimize.compact_files()


def read(case: Case, work: str, handle: Any) -> None:
    """Do a read once; what it returns is given up."""
    engine = ENGINES[case.engine]
    if work.startswith("take"):
        handle.take(case.asked.rows(engine, NUM_TAKEN))
    else:
        READS[work](engine, case.asked)(handle)


def spend(call: Callable[[], Any], before: Callable[[], Any] | None = None) -> Spent:
    """CPU and wall seconds, the least of some calls, and the MiB that the first one adds.

    Args:
        call: The work.
        before: Makes a further call possible; None if nothing has to be done.
    """
    found: list[tuple[float, float]] = []

    def timed() -> None:
        cpu, wall = time.process_time(), time.perf_counter()
        call()
        found.append((time.process_time() - cpu, time.perf_counter() - wall))

    memory = added_memory(timed)
    while len(found) < _FEWEST_CALLS or (len(found) < _MOST_CALLS and sum(wall for _, wall in found) < _LONG_S):
        if before:
            before()
        timed()
    return min(cpu for cpu, _ in found), min(wall for _, wall in found), max(memory, 0.0)


def written(case: Case) -> Spent:
    """Measure the write."""
    write(replace(case, times=1, target=f"{case.target} warm"))
    shutil.rmtree(f"{case.target} warm")
    return spend(partial(write, case), partial(shutil.rmtree, case.target))


def reads(case: Case, works: Sequence[str]) -> dict[str, Spent]:
    """Measure reads of the table in one process."""
    handle = ENGINES[case.engine].open(case.target)
    handle.head(1)
    return {work: spend(partial(read, case, work, handle)) for work in works}


def compacted(case: Case) -> Spent:
    """Measure one compaction of a copy of the table, after one of a tiny table."""
    _module(case)
    copy = f"{case.target} copy"

    def renew() -> None:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(case.target, copy)
        use_memory(Path(case.target).parent, bytes_on_disk(Path(copy)))

    renew()
    return spend(partial(compact, replace(case, target=copy)), renew)


def measure(name: str, scale: float, root: Path, *, is_huge: bool) -> dict[str, Any]:
    """Measure a data set of all sizes by all engines.

    Args:
        name: The data set.
        scale: Share of the published sizes.
        root: Folder of the tables.
        is_huge: Leave out the middle size, and scans, which hold the whole table.

    Returns:
        Rows of the smallest size, and for each work and engine a list: for each size the nanoseconds of CPU and of wall
        time per row, and MiB.
    """
    kind = KINDS[name]
    rows_per_file = max(int(kind.rows * scale) // kind.files, 1)
    table = DATA_SETS[kind.data].make(kind.files * rows_per_file).combine_chunks()
    asked = questions(DATA_SETS[kind.data], table)
    source = str(root / "source.arrow")
    with pa.ipc.new_file(source, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows_per_file)
    rows = table.num_rows
    del table
    kept: dict[str, dict[str, list[Spent]]] = defaultdict(lambda: defaultdict(list))
    works = READ_WORKS[: READ_WORKS.index("scan")] if is_huge else READ_WORKS
    for times in HUGE_SIZES if is_huge else SIZES:
        for shown, engine in COMPARED.items():
            target = str(root / f"{engine} {times}")
            case = Case(engine=engine, source=source, times=times, rows_per_file=rows_per_file, target=target,
                        asked=replace(asked, num_rows=rows * times))  # fmt: skip
            spent = {"write": alone(written, case), **alone(reads, case, works)}
            if engine != "parquet":
                spent["compact"] = alone(compacted, case)
            for work, (cpu, wall, memory) in spent.items():
                divisor = (NUM_TAKEN if work.startswith("take") else rows * times) / 1e9
                kept[work][shown].append((round(cpu / divisor, 2), round(wall / divisor, 2), round(memory, 1)))
                print(f"{name}, {times} x {rows:,} rows, {work}: {shown} {kept[work][shown][-1]}", flush=True)
            for path in root.glob(f"{engine} {times}*"):
                shutil.rmtree(path)
    return {"rows": rows, "works": kept}


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=0.02, help="share of the published sizes; 0.02")
    parser.add_argument("--kinds", nargs="+", choices=list(KINDS))
    parser.add_argument("--huge", action="store_true", help=f"ten times the sizes of {' and '.join(HUGE)}")
    parser.add_argument("--folder", type=Path, help="where tables are written; a temporary folder by default")
    parser.add_argument("--publish", action="store_true", help="rewrite the figures of README.md and the picture")
    chosen = parser.parse_args()
    names = chosen.kinds or list(HUGE if chosen.huge else KINDS)
    if chosen.huge and not HUGE.keys() >= set(names):
        parser.error(f"--huge is of these kinds: {', '.join(HUGE)}")
    began, load_before = time.monotonic(), os.getloadavg()[0]
    kinds: dict[str, Any] = {}
    for name in names:
        scale = HUGE[name] if chosen.huge else chosen.scale
        with tempfile.TemporaryDirectory(dir=chosen.folder) as folder:
            kinds[name] = measure(name, scale, Path(folder), is_huge=chosen.huge)
    part = "huge growth" if chosen.huge else "growth"
    scale = 1 if chosen.huge else chosen.scale
    found = {"scale": scale, "load": load_before, "seconds": round(time.monotonic() - began), "kinds": kinds}
    print(f"\n{growth_text({part: found}, part)}")
    if chosen.publish:
        results = json.loads((PUBLISHED / "results.json").read_text())
        before = results.get(part, {})
        if before.get("scale") == scale:
            found["kinds"] = {**before["kinds"], **kinds}
        results[part] = found
        results["goals"] = goals_table(results)
        print("published:", *(path.name for path in publish(results)))


if __name__ == "__main__":
    main()
