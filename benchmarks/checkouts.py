"""Another checkout of this project beside this one: the same works in turns, ratios of what both needed.

Works on data sets are done by two processes, one for each checkout, which stay: they call in turns, and the least time
of each counts, so that what else the machine does disturbs neither. Rows that look slower are measured once more in new
processes, because memory that lies otherwise may cost some per cent; those that do not are measured no further, so that
"faster" says less. Other parts of `run.py` run in pairs of processes.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping, Sequence

HERE = Path(__file__).resolve().parent
OURS = ("core", "lance_core")
"""How engines are called that run a checkout's code; others would run the same code twice."""
NOTICED = 1.05
"""Ratio of new to old from which a row is marked."""
ROUNDS, SCALE = 12, 0.1
"""Rounds at most, and the share of the real sizes, if nothing else is asked for."""
_INNER_ROUNDS = 3
"""Rounds within each process of the other parts."""
DATA = ("taxi", "text", "nested")
WORKS = ("write", "append 1k", "open", "scan", "stream", "2 columns", "filter 1%", "filter 50%", "take 1", "take 100",
         "take 10k", "take 100*")  # fmt: skip
"""What is compared if nothing else is asked for."""
_CLEAR, _LEAST_ROUNDS = 1.02, 4
"""Rows up to this ratio after so many rounds are not slower: they are measured no further."""
_MOST_S = 20
"""Seconds after which a row gets no more rounds, if it has the least number of them."""
_ENGINE = "core-2.2"

Figures = dict[str, tuple[float, ...]]
"""CPU and wall seconds, or bytes, or MiB, for each row."""


def compare_checkouts(old: Path, options: argparse.Namespace, arguments: Sequence[str]) -> int:
    """Measure the same with both checkouts, and print a row for each work. The benchmarks are those of this checkout.

    Args:
        old: Folder of the other checkout.
        options: Parts, data sets, works, scale and rounds.
        arguments: Options of `run.py` that ask another process for the other parts.

    Returns:
        The number of rows that are slower.
    """
    environments = {"old": _environment(old.resolve()), "new": _environment(HERE.parent)}
    rows: list[dict[str, Any]] = []
    if "data" in options.parts:
        engines = [name for name in options.engines or [_ENGINE] if name.startswith(OURS)]
        for data, engine in itertools.product(options.data, engines):
            rows += _compare_works(environments, data, engine, options)
    if set(options.parts) - {"data"}:
        rows += _compare_parts(environments, arguments, options.rounds)
    return print_rows(rows)


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


# ------------------------------------------------------------------------------------------------ works on data sets


class _Worker:
    """A process that does works on a data set with the code of one checkout, when told to."""

    def __init__(self, environment: Mapping[str, str], data: str, engine: str, scale: float, folder: Path) -> None:
        command = [sys.executable, __file__, data, engine, str(scale), str(folder)]
        self._process = subprocess.Popen(
            command, cwd=HERE, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, *what: Any) -> Any:
        """Send a line, and return what is answered."""
        assert self._process.stdin is not None  # noqa: S101 - both are pipes
        assert self._process.stdout is not None  # noqa: S101
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process that was asked for {what} has ended: {self._process.wait()}")
        return json.loads(answer)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def _compare_works(
    environments: Mapping[str, dict[str, str]], data: str, engine: str, options: Any
) -> list[dict[str, Any]]:
    """Rows of all works; what looks slower is looked at again, and the better one of both counts."""
    works = [work for work in options.works or WORKS if "<" not in engine or work not in ("write", "append 1k")]
    rows = _in_turns(environments, data, engine, works, options)
    suspects = {row["name"]: row for row in rows if row["ratios"][0][0] > NOTICED}
    works = [name.split(", ")[1] for name in suspects if not name.endswith(", bytes")]
    if works:
        print(f"{data}: once more in new processes: {', '.join(works)}", flush=True)
        again = {row["name"]: row for row in _in_turns(environments, data, engine, works, options)}
        rows = [min(row, again.get(row["name"], row), key=lambda one: one["ratios"][0][0]) for row in rows]
    return rows


def _in_turns(
    environments: Mapping[str, dict[str, str]], data: str, engine: str, works: Sequence[str], options: Any
) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(dir=options.folder) as root:
        folders = {name: Path(root) / name for name in ("old", "new")}
        made = [_Worker(environments[name], data, engine, options.scale, folder) for name, folder in folders.items()]
        title = data if engine == _ENGINE else f"{data} {engine}"
        with made[0] as old, made[1] as new:
            before, after = old.ask("bytes"), new.ask("bytes")
            rows = [{"name": f"{title}, bytes", "old": before, "ratios": [(after / before,) * 3]}]
            return rows + [_row_of_work(title, work, (old, new), options.rounds) for work in works]


def _row_of_work(title: str, work: str, workers: tuple[_Worker, _Worker], rounds: int) -> dict[str, Any]:
    """The ratios of the least times, and how far those of the first and second half of the rounds are apart."""
    times = max(worker.ask("prepare", work) for worker in workers)
    samples: tuple[list[list[float]], list[list[float]]] = ([], [])
    began = time.monotonic()
    for number in range(max(rounds, _LEAST_ROUNDS)):
        for place in (0, 1) if number % 2 == 0 else (1, 0):
            samples[place].append(workers[place].ask("call", times))
        clear = _least_ratio(samples, 0) <= _CLEAR or time.monotonic() - began > _MOST_S
        if number + 1 >= _LEAST_ROUNDS and clear:
            break
    ratios = [_ratios(samples, column) for column in (0, 1)]
    return {"name": f"{title}, {work}", "old": min(cpu for cpu, _ in samples[0]), "ratios": ratios}


def _least_ratio(samples: tuple[list[list[float]], list[list[float]]], column: int, part: slice = slice(None)) -> float:
    old, new = (min(sample[column] for sample in side[part]) for side in samples)
    return new / max(old, 1e-9)


def _ratios(samples: tuple[list[list[float]], list[list[float]]], column: int) -> tuple[float, float, float]:
    middle = len(samples[0]) // 2
    halves = [_least_ratio(samples, column, part) for part in (slice(middle), slice(middle, None))]
    whole = _least_ratio(samples, column)
    return whole, min(whole, *halves), max(whole, *halves)


def serve(data: str, engine_name: str, scale: float, folder: Path) -> None:
    """Do what is asked on standard input: "bytes", "prepare" a work, "call" it so many times."""
    from data import DATA_SETS, load  # noqa: PLC0415 - the parent needs none of these
    from engines import ENGINES, questions  # noqa: PLC0415
    from measure import bytes_on_disk  # noqa: PLC0415
    from side_by_side import calls_of  # noqa: PLC0415

    table, engine, uri = load(data, scale), ENGINES[engine_name], folder / "table"
    engine.write(table, str(uri))
    asked, handles = questions(DATA_SETS[data], table), {engine_name: engine.open(str(uri))}
    call: Callable[[], Any] = print
    for line in sys.stdin:
        what, *more = json.loads(line)
        answer: Any = None
        if what == "bytes":
            answer = bytes_on_disk(uri)
        elif what == "prepare":
            call = calls_of(more[0], {engine_name: uri}, table, asked, handles)[engine_name]
            call()
            answer = max(1, min(200, int(0.05 / max(_spent(call, 1)[1], 1e-6))))
        else:
            answer = _spent(call, more[0])
        print(json.dumps(answer), flush=True)


def _spent(call: Callable[[], Any], times: int) -> list[float]:
    cpu, wall = time.process_time(), time.perf_counter()
    for _ in range(times):
        call()
    return [(time.process_time() - cpu) / times, (time.perf_counter() - wall) / times]


# ------------------------------------------------------------------------------------------------ other parts


def _compare_parts(
    environments: Mapping[str, dict[str, str]], arguments: Sequence[str], pairs: int
) -> list[dict[str, Any]]:
    """Each run has a process of its own; old and new take turns, and the first of a pair is the second of the next."""
    samples: dict[str, list[Figures]] = {"old": [], "new": []}
    for pair in range(pairs):
        for name in ("old", "new") if pair % 2 == 0 else ("new", "old"):
            print(f"pair {pair + 1} of {pairs}: {name}", flush=True)
            samples[name].append(_measure(environments[name], arguments))
    names = [name for name in samples["new"][0] if all(name in run for runs in samples.values() for run in runs)]
    return [_row(name, samples) for name in names]


def _measure(environment: Mapping[str, str], arguments: Sequence[str]) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(HERE / "run.py"), *arguments, "--rounds", str(_INNER_ROUNDS), "--out", folder]
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


def print_rows(rows: Sequence[Mapping[str, Any]]) -> int:
    """Print a table of ratios; return the number of rows that are slower."""
    print(f"\n{'new / old':60}{'CPU':>22}{'wall':>22}  old")
    for row in rows:
        cells = [f"{middle:.3f} ({least:.2f}-{most:.2f})" for middle, least, most in row["ratios"]]
        cells += [""] * (2 - len(cells))
        print(f"{row['name'][:59]:60}{cells[0]:>22}{cells[1]:>22}  {row['old']:.4g} {verdict(row)}")
    slower = sum(verdict(row) == "SLOWER" for row in rows)
    print(f"{slower} of {len(rows)} rows are slower by more than 5 %")
    return slower


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2], float(sys.argv[3]), Path(sys.argv[4]))
