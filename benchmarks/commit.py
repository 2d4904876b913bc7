"""Opening and committing at scale, beside pylance: long histories, many fragments, many writers at once.

    python benchmarks/commit.py                            all of it, about two minutes
    python benchmarks/commit.py --parts versions fragments --rounds 9

Prints medians over interleaved rounds and ratios to pylance (below 1 is cheaper). `versions`: opening the newest
version and committing an append to tables with 10 and 10,000 versions. `fragments`: the same with 100,000 fragments.
`writers`: 8 processes make 25 appends each, all by lance_core, all by pylance, and half by each, in turns; a commit
that got lost or counted twice ends it. Wall times of races depend on what else the machine does, so each round has a
ratio.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
from measure import bytes_on_disk, compare, use_memory

import lance_core
from lance_core.format.table.fragment_list import FragmentList
from lance_core.format.table.manifest import encode_manifest_pieces
from lance_core.format.table.paths import LATEST_VERSION_HINT, ManifestNaming, manifest_path
from lance_core.store.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NUM_VERSIONS = (10, 10_000)
NUM_FRAGMENTS = 100_000
NUM_PROCESSES, NUM_COMMITS = 8, 25
ROW = pa.table({"x": pa.array([1], pa.int64())})
ENGINES: dict[str, Any] = {"lance_core": lance_core, "pylance": lance}


@dataclass(frozen=True, slots=True)
class Race:
    """Seconds from the start of all to the end of the last, and CPU seconds of all together."""

    wall: float
    cpu: float


def with_versions(root: Path, number: int) -> Path:
    """A table with so many versions, which are copies of the first."""
    path = root / f"versions {number}"
    first = lance_core.write_dataset(ROW, path).snapshot.manifest
    return _with_copies(path, [replace(first, version=version) for version in range(2, number + 1)])


def with_fragments(root: Path, number: int) -> Path:
    """A table with so many fragments, which share a data file."""
    path = root / f"fragments {number}"
    first = lance_core.write_dataset(ROW, path).snapshot.manifest
    fragments = FragmentList.of(replace(first.fragments[0], id=one) for one in range(number))
    return _with_copies(path, [replace(first, version=2, fragments=fragments, max_fragment_id=number - 1)])


def _with_copies(path: Path, manifests: list[Any]) -> Path:
    store = LocalStore(str(path))
    for manifest in manifests:
        store.put(manifest_path(manifest.version, ManifestNaming.V2), b"".join(encode_manifest_pieces(manifest)))
    store.put(LATEST_VERSION_HINT, b'{"version":%d}' % manifests[-1].version)
    return path


def calls(path: Path) -> dict[str, Callable[[], Any]]:
    """Opening and appending, by each engine."""
    uri = str(path)
    works: dict[str, Callable[[], Any]] = {}
    for name, engine in ENGINES.items():
        works[f"{name} open"] = lambda engine=engine: engine.dataset(uri)
        works[f"{name} append"] = lambda engine=engine: engine.write_dataset(ROW, uri, mode="append")
    return works


def show(title: str, path: Path, rounds: int) -> None:
    """Measure and print one table."""
    spent = compare(calls(path), rounds)
    for work in ("open", "append"):
        ours, theirs = spent[f"lance_core {work}"], spent[f"pylance {work}"]
        print(
            f"{title:>20} {work:>7}: {ours.wall * 1e3:9.2f} ms, pylance {theirs.wall * 1e3:9.2f} ms, "
            f"ratio {ours.wall / theirs.wall:.3f} (CPU {ours.cpu / theirs.cpu:.3f})"
        )


def race(path: Path, engines: Sequence[str], pool: ProcessPoolExecutor) -> Race:
    """Let processes append at the same time, and count what became of it."""
    lance_core.write_dataset(ROW.slice(0, 0), path)
    begin = time.time() + 0.3  # all are waiting by then
    jobs = [pool.submit(append, engine, str(path), number, begin) for number, engine in enumerate(engines)]
    spent = [job.result() for job in jobs]
    found = sorted(lance.dataset(str(path)).to_table()["x"].to_pylist())
    expected = [1000 * process + commit for process in range(len(engines)) for commit in range(NUM_COMMITS)]
    if found != expected:
        raise AssertionError(f"{engines}: {len(found)} rows, {len(set(found))} different, {len(expected)} expected")
    return Race(wall=max(end for end, _ in spent) - begin, cpu=sum(cpu for _, cpu in spent))


def append(engine: str, path: str, number: int, begin: float) -> tuple[float, float]:
    """Make the commits of one process; when it was done, and its CPU time."""
    write = ENGINES[engine].write_dataset
    tables = [pa.table({"x": pa.array([1000 * number + commit], pa.int64())}) for commit in range(NUM_COMMITS)]
    time.sleep(max(begin - time.time(), 0))
    cpu = time.process_time()
    for table in tables:
        write(table, path, mode="append")
    return time.time(), time.process_time() - cpu


def races(root: Path, rounds: int) -> None:
    """Measure and print races of one engine, of the other, and of both, in turns."""
    half = NUM_PROCESSES // 2
    kinds = {
        "lance_core": ["lance_core"] * NUM_PROCESSES,
        "pylance": ["pylance"] * NUM_PROCESSES,
        "half of each": [*ENGINES] * half,
    }
    spent: dict[str, list[Race]] = {kind: [] for kind in kinds}
    with ProcessPoolExecutor(NUM_PROCESSES, mp_context=multiprocessing.get_context("spawn")) as pool:
        for number in range(-1, rounds):  # one more round warms up
            order = list(kinds)[number % len(kinds) :] + list(kinds)[: number % len(kinds)]
            for kind in order:
                done = race(root / f"race {number} {kind}", kinds[kind], pool)
                if number >= 0:
                    spent[kind].append(done)
    theirs = statistics.median(one.wall for one in spent["pylance"])
    for kind, all_ in spent.items():
        walls, cpu = sorted(one.wall for one in all_), statistics.median(one.cpu for one in all_)
        ratios = sorted(one.wall / other.wall for one, other in zip(all_, spent["pylance"], strict=True))
        print(
            f"{kind:>20}: wall {walls[0]:.2f} to {walls[-1]:.2f}, median {statistics.median(walls):.2f} s "
            f"({statistics.median(walls) / theirs:.2f} of pylance's; by round {ratios[0]:.2f} to {ratios[-1]:.2f}, "
            f"median {statistics.median(ratios):.2f}), CPU {cpu:.2f} s"
        )


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=["versions", "fragments", "writers"])
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp())
    try:
        if "versions" in arguments.parts:
            for number in NUM_VERSIONS:
                show(f"{number:,} versions", with_versions(root, number), arguments.rounds)
        if "fragments" in arguments.parts:
            path = with_fragments(root, NUM_FRAGMENTS)
            use_memory(root, 6 * arguments.rounds * bytes_on_disk(path))
            show(f"{NUM_FRAGMENTS:,} fragments", path, arguments.rounds)
        if "writers" in arguments.parts:
            races(root, arguments.rounds)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
