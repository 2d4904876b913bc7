"""lance_core beside pylance on object storage: seconds, CPU, requests, rounds of requests and bytes.

    python benchmarks/far.py                           5 million rows, 30 ms, 90 MB/s for each connection
    python benchmarks/far.py --rows 500000 --rounds 3 --works 'take 100' append
    python benchmarks/far.py --publish                 writes the figures into README.md, too
    python benchmarks/far.py --rows 500000 --faults    2 % of the answers are 503, 1 % dropped, 1 % stalled for 10 s

The service is `far_server.py`, in a process of its own on this machine. Each engine works on tables that it wrote, with
its defaults and files of version 2.2. Rounds of the two engines are interleaved; each opens a copy of the dataset in a
process that has used the service before, but has read none of its files ("open" is in a new process). A round of
requests ends before the next begins: 30 ms times the rounds is the least that a work can take.

With faults each work is done once by each engine, with the same faults of the service for both, and its result is
compared with what it has to be; then 200 appends have to leave 200 rows, each once.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import Request, urlopen

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from data import load
from report import PUBLISHED, publish

import lance_core

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

ENGINES: dict[str, Any] = {"lance_core": lance_core, "pylance": lance}
LATENCY_S, RATE = 0.03, 90e6
FAULTS = {"unavailable": 0.02, "dropped": 0.01, "stalled": 0.01, "stall_s": 10.0}
NO_FAULTS = dict.fromkeys(FAULTS, 0.0)
NUM_APPENDS = 200
NUM_FRAGMENTS, NUM_VERSIONS, NUM_KEYS = 50, 1000, 1_000_000
CONDITION = "tip > 7.2 and tip < 7.6"
_NUMBERS = itertools.count()
_OPEN = "import sys, {0}; {0}.dataset(sys.argv[1], storage_options=dict(one.split('=', 1) for one in sys.argv[2:]))"


class Service:
    """The service, and how to talk to it.

    Args:
        endpoint: Its address.
    """

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self.options = {
            "aws_access_key_id": "name",
            "aws_secret_access_key": "key",
            "aws_endpoint": endpoint,
            "aws_region": "us-east-1",
            "allow_http": "true",
        }

    def tell(self, **wishes: Any) -> dict[str, Any]:
        """Change what the service does, or ask what it was asked; see `far_server.py`."""
        request = Request(f"{self._endpoint}/_far", data=json.dumps(wishes).encode(), method="POST")  # noqa: S310 - ours
        with urlopen(request) as answer:  # noqa: S310 - likewise
            return json.loads(answer.read())


@contextmanager
def serving() -> Generator[Service]:
    """Run the service."""
    command = [sys.executable, str(Path(__file__).with_name("far_server.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline() if process.stdout else ""
        yield Service(address.strip())
        process.communicate()


def _write(service: Service, engine: Any, name: str, rows: int, tables: set[str]) -> None:
    """Write the tables that an engine is asked about."""
    trips = load("taxi", rows / 5_000_000)

    def write(table: pa.Table, place: str, **more: Any) -> None:
        uri = f"s3://bucket/{name}/{place}"
        engine.write_dataset(table, uri, data_storage_version="2.2", storage_options=service.options, **more)

    if "50" in tables:
        write(trips, "50", max_rows_per_file=-(-trips.num_rows // NUM_FRAGMENTS))
    if "1" in tables:
        write(trips, "1")
    if "keys" in tables:
        write(pa.table({"id": np.arange(NUM_KEYS), "v": np.arange(NUM_KEYS)}), "keys")
    for number in range(NUM_VERSIONS if "versions" in tables else 0):
        write(pa.table({"a": [number]}), "versions", mode="append" if number else "create")


def _merge(dataset: Any) -> None:
    rows = pa.table({"id": np.arange(0, NUM_KEYS, NUM_KEYS // 1000), "v": np.arange(1000)})
    dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)


def _restore(dataset: Any) -> None:
    dataset.checkout_version(NUM_VERSIONS // 2).restore()


def _tag(dataset: Any) -> None:
    for number in range(5):
        dataset.tags.create(f"tag{number}", 1)
    dataset.tags.list()


def _works(rows: int) -> dict[str, tuple[str, Callable[[Any], Any]]]:
    """Return the works by name: the table that each needs, and what is done with it."""
    chosen = np.sort(np.random.default_rng(3).choice(rows, 100, replace=False)).tolist()
    reads: dict[str, Callable[[Any], Any]] = {
        "take 100": lambda dataset: dataset.take(chosen),
        "scan": lambda dataset: dataset.to_table(),
        "2 columns": lambda dataset: dataset.to_table(columns=["fare", "company"]),
        "filter 1%": lambda dataset: dataset.to_table(filter=CONDITION),
        "count 1%": lambda dataset: dataset.count_rows(CONDITION),
        "delete 1%": lambda dataset: dataset.delete(CONDITION),
    }
    works = {f"{work}, {table} fragments": (table, read) for table in ("50", "1") for work, read in reads.items()}
    some = load("taxi", 1000 / 5_000_000)
    return works | {
        "append 1,000 rows": ("1", lambda dataset: dataset.insert(some)),
        "merge 1,000 keys": ("keys", _merge),
        "build BTREE, 50 fragments": ("50", lambda dataset: dataset.create_scalar_index("fare", "BTREE")),
        "restore": ("versions", _restore),
        "5 tags and list": ("1", _tag),
        "clean-up": ("versions", lambda dataset: dataset.cleanup_old_versions(older_than=timedelta(0))),
        "compact": ("50", lambda dataset: dataset.optimize.compact_files(target_rows_per_fragment=1 << 30)),
    }


def _measure(service: Service, name: str, table: str, work: Callable[[Any], Any]) -> dict[str, float]:
    """Do a work on a fresh copy of a table, which lies where the process has read no file before."""
    service.tell(forget=f"bucket/{name}/copy")
    place = f"bucket/{name}/copy{next(_NUMBERS)}/"
    service.tell(copy=[f"bucket/{name}/{table}/", place])
    service.tell(stats=True)
    cpu, wall = time.process_time(), time.perf_counter()
    work(ENGINES[name].dataset(f"s3://{place[:-1]}", storage_options=service.options))
    spent = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}
    return spent | service.tell(stats=True)


def _faulty_works(rows: int) -> dict[str, tuple[str, Callable[[Any], Any], Callable[[Any], Any]]]:
    """Return the works that faults are tried on: name, table, what is done, and what tells the result."""
    works = _works(rows)

    def num_rows(dataset: Any) -> int:
        return dataset.count_rows()

    tried = {name: (*works[f"{name}, 50 fragments"], None) for name in ("take 100", "scan", "filter 1%")}
    written = {"delete 1%": "delete 1%, 50 fragments", "append": "append 1,000 rows", "compact": "compact"}
    return tried | {name: (*works[work], num_rows) for name, work in written.items()}


def _try_faults(service: Service, rows: int, rounds: int) -> None:
    """Do works while the service fails; print how long they take and whether their results are right."""
    for work, (table, do, told) in _faulty_works(rows).items():
        times: dict[str, list[float]] = {name: [] for name in ENGINES}
        wrong = dict.fromkeys(ENGINES, 0)
        failed: dict[str, list[str]] = {name: [] for name in ENGINES}
        for number in range(rounds):
            for name, engine in ENGINES.items():
                place = f"bucket/{name}/copy/"
                service.tell(settings=NO_FAULTS, forget=place)
                service.tell(copy=[f"bucket/{name}/{table}/", place])

                def opened(engine: Any = engine, place: str = place) -> Any:
                    return engine.dataset(f"s3://{place[:-1]}", storage_options=service.options)

                expected = None if told else do(opened())
                service.tell(settings=FAULTS | {"seed": number})
                wall = time.perf_counter()
                try:
                    found = do(opened())
                except Exception as error:  # noqa: BLE001 - counted
                    failed[name].append(type(error).__name__)
                    continue
                times[name].append(time.perf_counter() - wall)
                service.tell(settings=NO_FAULTS)
                wrong[name] += found != expected if told is None else told(opened()) != _rows_after(work, rows)
        for name, walls in times.items():
            median, most = (statistics.median(walls), max(walls)) if walls else (float("nan"), float("nan"))
            print(
                f"{work:12} {name:12} {median:7.2f} s in the middle {most:7.2f} s at most "
                f"{len(walls)} done {wrong[name]} wrong {len(failed[name])} failed {sorted(set(failed[name]))}",
                flush=True,
            )


def _rows_after(work: str, rows: int) -> int:
    """Return the rows that a table has to have after a work."""
    trips = load("taxi", rows / 5_000_000)
    deleted = int(pc.sum(pc.and_(pc.greater(trips["tip"], 7.2), pc.less(trips["tip"], 7.6))).as_py())
    return {"delete 1%": rows - deleted, "append": rows + load("taxi", 1000 / 5_000_000).num_rows}.get(work, rows)


def _try_appends(service: Service) -> None:
    """Append while answers get lost, and count what is there afterwards."""
    for name, engine in ENGINES.items():
        uri = f"s3://bucket/{name}/appends"
        service.tell(settings=NO_FAULTS)
        engine.write_dataset(pa.table({"a": [0]}), uri, storage_options=service.options)
        service.tell(settings=FAULTS | {"stalled": 0.0, "dropped": 0.03})
        wall, failed = time.perf_counter(), 0
        for number in range(1, NUM_APPENDS + 1):
            try:
                engine.write_dataset(pa.table({"a": [number]}), uri, mode="append", storage_options=service.options)
            except Exception:  # noqa: BLE001 - counted
                failed += 1
        wall = time.perf_counter() - wall
        service.tell(settings=NO_FAULTS)
        numbers = engine.dataset(uri, storage_options=service.options).to_table()["a"].to_pylist()
        twice = len(numbers) - len(set(numbers))
        print(
            f"appends      {name:12} {wall:7.2f} s {len(numbers) - 1} rows of {NUM_APPENDS} appends, {twice} twice, "
            f"{failed} said that they failed",
            flush=True,
        )


def _open(service: Service, name: str) -> dict[str, float]:
    """Open a dataset in a new process, from its start to its end."""
    settings = [f"{key}={value}" for key, value in service.options.items()]
    command = [sys.executable, "-c", _OPEN.format(ENGINES[name].__name__), f"s3://bucket/{name}/1", *settings]
    service.tell(stats=True)
    cpu, wall = _cpu_of_children(), time.perf_counter()
    subprocess.run(command, check=True)
    return {"wall": time.perf_counter() - wall, "cpu": _cpu_of_children() - cpu} | service.tell(stats=True)


def _cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _print(work: str, medians: dict[str, dict[str, float]]) -> None:
    ours, theirs = medians.values()
    print(f"{work:24} {ours['wall'] / theirs['wall']:5.2f} of the wall, {ours['cpu'] / theirs['cpu']:5.2f} of the CPU")
    for name, found in medians.items():
        print(
            f"  {name:12} {found['wall']:7.2f} s {found['cpu']:7.2f} s CPU {found['requests']:6.0f} requests "
            f"{found['rounds']:4.0f} rounds {found['bytes'] / 1e6:8.1f} MB",
            flush=True,
        )


def _publish(medians: dict[str, dict[str, dict[str, float]]], options: argparse.Namespace) -> None:
    """Put works that were measured among the published results."""
    results = json.loads((PUBLISHED / "results.json").read_text())
    works = results.get("far", {}).get("works", {}) | medians
    results["far"] = {"rows": options.rows, "rounds": options.rounds, "load": options.load, "works": works}
    print("published:", *(path.name for path in publish(results)))


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000, help="of the table with 1 and with 50 fragments")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--works", nargs="+", help="beginnings of the names of works; all by default")
    parser.add_argument("--publish", action="store_true", help="rewrite the figures of README.md")
    parser.add_argument("--faults", action="store_true", help="try works on a service that fails")
    options = parser.parse_args()
    options.load = os.getloadavg()[0]
    chosen = _works(options.rows)
    if options.works:
        chosen = {work: how for work, how in chosen.items() if work.startswith(tuple(options.works))}
    tables = {"1", "50"} if options.faults else {"1"} | {table for table, _ in chosen.values()}
    with serving() as service:
        for name, engine in ENGINES.items():
            _write(service, engine, name, options.rows, tables)
        service.tell(settings={"latency_s": LATENCY_S, "rate": RATE})
        if options.faults:
            _try_faults(service, options.rows, options.rounds)
            _try_appends(service)
            return
        works = {"open": lambda name: _open(service, name)} | {
            work: lambda name, table=table, do=do: _measure(service, name, table, do)
            for work, (table, do) in chosen.items()
        }
        medians: dict[str, dict[str, dict[str, float]]] = {}
        for work, measure in works.items():
            if options.works and not work.startswith(tuple(options.works)):
                continue
            samples: dict[str, list[dict[str, float]]] = {name: [] for name in ENGINES}
            for number in range(options.rounds + 1):
                for name in list(ENGINES)[:: -1 if number % 2 else 1]:
                    samples[name].append(measure(name))
            medians[work] = {
                name: {key: statistics.median(sample[key] for sample in each[1:]) for key in each[0]}
                for name, each in samples.items()
            }
            _print(work, medians[work])
        if options.publish:
            _publish(medians, options)


if __name__ == "__main__":
    main()
