"""What kernels alone take of works that cost more than pylance's: the part that no Python in between can save.

    python benchmarks/floors.py                 on full data, three minutes
    python benchmarks/floors.py --publish       the same, and the table of explained.md is rewritten

Each work is done once while the calls of kernels are noted with their arguments; then these calls alone are repeated,
one after the other. Where they take as long as pylance's whole work, only another codec or more bytes would help;
where they take less, the rest of ours is steps of Python between them.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import fresh
import queries
from data import DATA_SETS, load
from engines import ENGINES, questions
from figures import OURS, PYLANCES
from measure import alone, compare
from report import PUBLISHED, floors_text, publish
from side_by_side import calls_of, write_all

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_CODECS = "lance_core.encoding.codecs"
KERNELS = {
    "codecs": (
        *(f"{_CODECS}.general:{name}" for name in ("_decode_lz4", "_decompress_zstd", "_compressor")),
        f"{_CODECS}.fsst:_expand",
    ),
    "bits": tuple(
        f"{_CODECS}.fastlanes:{name}"
        for name in ("unpack", "unpack_into", "unpack_blocks", "unpack_mixed", "unpack_points", "pack", "pack_into")
    ),
    "moves": (
        *(f"lance_core.encoding.kernels:{name}" for name in ("gather", "gather_between", "join_ranges", "take_inside")),
        *(f"numpy:{name}" for name in ("take", "concatenate", "repeat", "cumsum", "copyto")),
    ),
    "files": ("os:preadv",),
}
"""Functions that are one call of pyarrow, numpy, zstandard or the system for many values, or a few such calls."""

OF_DATA = {
    "text": {OURS: ("scan", "stream"), "core<pylance-2.1": ("scan",)},
    "orders": {OURS: ("write", "scan", "stream", "2 columns", "take 10k")},
    "unique in lists": {OURS: ("write", "scan", "stream", "filter 1%", "take 10k")},
    "long lists": {OURS: ("stream", "take 1", "take 100")},
    "columns 500": {OURS: ("scan", "stream")},
}
"""For each data set the engines of ours, and which of their works."""
OF_FILES = ("scan", "stream")
OF_QUERIES = ("1,000 rows at an offset", "first 100 by text", "LIKE '%x%'")

Calls = list[tuple[str, "Callable[..., Any]", tuple[Any, ...], dict[str, Any]]]
"""Kind of kernel, function, arguments."""


class _Notes(threading.local):
    """Whether a thread is within a kernel: what it calls in turn is part of it."""

    is_within = False


def _noting(kind: str, kernel: Callable[..., Any], calls: Calls, notes: _Notes) -> Callable[..., Any]:
    """Return a function that does the same and notes its calls."""

    @functools.wraps(kernel)
    def noted(*arguments: Any, **named: Any) -> Any:
        if notes.is_within:
            return kernel(*arguments, **named)
        notes.is_within = True
        try:
            made = kernel(*arguments, **named)
        finally:
            notes.is_within = False
        if callable(made):  # what compresses
            return _noting(kind, made, calls, notes)
        calls.append((kind, kernel, arguments, named))
        return made

    return noted


@contextmanager
def noted() -> Iterator[Calls]:
    """Calls of kernels by lance_core, wherever it imported them to, are noted meanwhile."""
    calls: Calls = []
    notes = _Notes()
    with ExitStack() as stack:
        for kind, names in KERNELS.items():
            for name in names:
                home, _, attribute = name.partition(":")
                kernel = getattr(importlib.import_module(home), attribute)
                noted = _noting(kind, kernel, calls, notes)
                modules = [module for path, module in list(sys.modules.items()) if path.startswith("lance_core.")]
                for module in {sys.modules[home], *modules}:
                    if vars(module).get(attribute) is kernel:
                        stack.enter_context(mock.patch.object(module, attribute, noted))
        yield calls


def alone_of(calls: Calls, rounds: int) -> dict[str, float]:
    """CPU seconds of the calls of each kind: the least of some rounds."""
    found: dict[str, float] = {}
    for kind in KERNELS:
        chosen = [call[1:] for call in calls if call[0] == kind]
        times: list[float] = []
        for _ in range(rounds):
            began = time.process_time()
            for kernel, arguments, named in chosen:
                kernel(*arguments, **named)
            times.append(time.process_time() - began)
        found[kind] = min(times)
    return found


def _floor(ours: str, works: dict[str, Callable[[], Any]], rounds: int) -> dict[str, Any]:
    """What a work costs by each engine, and what its kernels cost alone."""
    spent = compare(works, rounds)
    with noted() as calls:
        works[ours]()
    theirs = min((name for name in spent if name != ours), key=lambda name: spent[name].cpu)
    return {
        "lance_core": spent[ours].cpu,
        "pylance": spent[theirs].cpu,
        "version": theirs,
        "kernels": alone_of(calls, rounds),
    }


def of_data(name: str, root: Path, scale: float, rounds: int) -> dict[str, Any]:
    """Works on a data set."""
    found: dict[str, Any] = {}
    table = load(name, scale)
    asked = questions(DATA_SETS[name], table)
    for ours, works in OF_DATA[name].items():
        theirs = PYLANCES if ours == OURS else (ours.partition("<")[2],)
        folders = write_all([ours, *theirs], table, root / ours)
        handles = {one: ENGINES[one].open(str(folder)) for one, folder in folders.items()}
        for work in works:
            title = f"{work} of {name}" if ours == OURS else f"{work} of pylance's {name}"
            found[title] = _floor(ours, calls_of(work, folders, table, asked, handles), rounds)
    return found


def of_files(root: Path, scale: float, rounds: int) -> dict[str, Any]:
    """Works on fifty files of ten thousand rows."""
    works = fresh.calls_of_files(root, scale)
    return {f"{work} of {fresh.FILES}": _floor("lance_core", works[work], rounds) for work in OF_FILES}


def of_queries(root: Path, scale: float, rounds: int) -> dict[str, Any]:
    """Queries of a table without indices."""
    works = queries.plain_calls(root, scale)
    return {f"query: {work}": _floor("lance_core", works[work], rounds) for work in OF_QUERIES}


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--publish", action="store_true", help="rewrite the table of explained.md")
    parser.add_argument("--scale", type=float, default=1, help="share of the real sizes")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    steps = [partial(of_data, name) for name in OF_DATA]
    for step in [*steps, of_files, of_queries]:
        with tempfile.TemporaryDirectory() as folder:
            found |= alone(step, Path(folder), options.scale, options.rounds)
    results = json.loads((PUBLISHED / "results.json").read_text())
    results["floors"] = found
    print(floors_text(results))
    if options.publish:
        publish(results)


if __name__ == "__main__":
    main()
