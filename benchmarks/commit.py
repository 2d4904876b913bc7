"""Opening and committing at scale, beside pylance: long histories, many fragments, many writers at once.

    python benchmarks/commit.py                            all of it, about two minutes
    python benchmarks/commit.py --parts versions fragments --rounds 9

Prints medians over interleaved rounds and ratios to pylance (below 1 is cheaper). `versions`: opening the newest
version and committing an append to tables with 10 and 10,000 versions. `fragments`: the same with 100,000 fragments.
`writers`: 8 processes make 25 appends each, all of lance_core, all of pylance, and half of each; rows are counted
afterwards, so that a commit that got lost or counted twice shows.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
from measure import compare

import lance_core
from lance_core.format.fragment_list import FragmentList
from lance_core.format.manifest import encode_manifest_file
from lance_core.format.paths import LATEST_VERSION_HINT, ManifestNaming, manifest_path
from lance_core.store.local import LocalStore

if TYPE_CHECKING:
    from collections.abc import Callable

NUM_VERSIONS = (10, 10_000)
NUM_FRAGMENTS = 100_000
NUM_PROCESSES, NUM_COMMITS = 8, 25
ROW = pa.table({"x": pa.array([1], pa.int64())})
ENGINES: dict[str, Any] = {"lance_core": lance_core, "pylance": lance}


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
        store.put(manifest_path(manifest.version, ManifestNaming.V2), encode_manifest_file(manifest))
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


def race(root: Path, engines: list[str]) -> None:
    """Let processes append at the same time, and count what became of it."""
    path = root / f"race {'-'.join(sorted(set(engines)))}"
    lance_core.write_dataset(ROW.slice(0, 0), path)
    begin = time.time() + 6  # all have started by then
    processes = [
        subprocess.Popen([sys.executable, __file__, "--child", engine, str(path), str(number), str(begin)])
        for number, engine in enumerate(engines)
    ]
    failed = sum(process.wait() != 0 for process in processes)
    wall = time.time() - begin
    found = sorted(lance.dataset(str(path)).to_table()["x"].to_pylist())
    expected = sorted(1000 * process + commit for process in range(len(engines)) for commit in range(NUM_COMMITS))
    lost, doubled = len(set(expected) - set(found)), len(found) - len(set(found))
    print(
        f"{' + '.join(sorted(set(engines))):>20}: {len(found)} of {len(expected)} landed, {lost} lost, {doubled} "
        f"doubled, {failed} processes failed, {wall:.2f} s"
    )


def child(engine: str, path: str, number: int, begin: float) -> None:
    """Make the commits of one process."""
    write = ENGINES[engine].write_dataset
    time.sleep(max(begin - time.time(), 0))
    for commit in range(NUM_COMMITS):
        write(pa.table({"x": pa.array([1000 * number + commit], pa.int64())}), path, mode="append")


def main() -> None:
    """Measure what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", default=["versions", "fragments", "writers"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", nargs=4)
    arguments = parser.parse_args()
    if arguments.child:
        engine, path, number, begin = arguments.child
        child(engine, path, int(number), float(begin))
        return
    root = Path(tempfile.mkdtemp())
    try:
        if "versions" in arguments.parts:
            for number in NUM_VERSIONS:
                show(f"{number:,} versions", with_versions(root, number), arguments.rounds)
        if "fragments" in arguments.parts:
            show(f"{NUM_FRAGMENTS:,} fragments", with_fragments(root, NUM_FRAGMENTS), arguments.rounds)
        if "writers" in arguments.parts:
            half = NUM_PROCESSES // 2
            for engines in (["lance_core"] * NUM_PROCESSES, ["pylance"] * NUM_PROCESSES, [*ENGINES] * half):
                race(root, engines)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
