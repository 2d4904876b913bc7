"""Fail store call k while indices are built, remapped or extended: they answer as a scan, and no file is left.

`LANCE_TESTS=deep` fails each call of each change for all kinds of indices, before and after its effect; else every
fifth call of the changes of two kinds, and every 29th of others.
"""

import functools
import itertools
import os

import pyarrow as pa
import pytest

import lance_core
from lance_core.change.retries import new_transaction
from lance_core.change.stage import FileLimits, stage_data
from lance_core.errors import CommitOutcomeUnknownError, LanceError
from lance_core.format.table.operations import Append, Overwrite
from lance_core.store.memory import MemoryStore
from lance_core.table.commit import commit
from lance_core.table.snapshot import Snapshot, list_versions, open_snapshot
from lance_core.testing.faulty_store import FaultyStore, InjectedError

pytestmark = pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")
IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"
LIMITS = FileLimits(max_rows_per_file=10, max_bytes_per_file=1 << 30)
NUM_LEFT = 45


KINDS = {"n": "BTREE", "z": "ZONEMAP", "b": "BITMAP", "l": "LABEL_LIST", "s": "NGRAM", "c": "BLOOMFILTER"}
KINDS |= {"t": "INVERTED", "v": "IVF_FLAT"}
CONDITIONS = {
    "n": ("n = 7", "n in (3, 40, 5)", "not (n > 12)"),
    "z": ("z > 20 and z < 45",),
    "b": ("b = 2", "not (b <> 2)"),
    "l": ("array_has(l, 'x2')", "not array_has(l, 'x2')"),
    "s": ("contains(s, 'text2')",),
    "c": ("c = 31",),
}


def rows(start):
    numbers = range(start, start + 30)
    lists = pa.array([[f"x{number % 3}"] for number in numbers], pa.list_(pa.string()))
    texts = [f"text{number % 3}" for number in numbers]
    few = [number % 3 for number in numbers]
    vectors = pa.array([[number, number % 7] for number in numbers], pa.list_(pa.float32(), 2))
    columns = {"n": numbers, "z": numbers, "b": few, "l": lists, "s": texts, "c": numbers}
    return pa.table({**columns, "t": texts, "v": vectors})


def stage(store, start, make):
    fragments, schema = stage_data(store, rows(start), None, table=None, limits=LIMITS, data_storage_version="2.2")
    version = list_versions(store)[-1] if list_versions(store) else 0
    commit(store, new_transaction(version, make(fragments, schema), properties=None, message=None))


@functools.cache
def prepared(name, columns):
    """A table with indices, rows that they do not know, and deleted rows, before a change; to be copied."""
    store = MemoryStore()
    stage(store, 0, lambda fragments, schema: Overwrite(fragments=fragments, schema=schema))
    dataset = opened(store)
    for column in columns:
        create(dataset, column)
    stage(store, 30, lambda fragments, _: Append(fragments=fragments))
    opened(store).delete("n % 4 = 1")
    if name == "forget moves":
        CHANGES["defer"](opened(store))
    return store


def create(dataset, column):
    if KINDS[column].startswith("IVF"):
        dataset.create_index(column, KINDS[column], num_partitions=2, replace=True)
    else:
        dataset.create_scalar_index(column, KINDS[column])


def opened(store):
    return lance_core.LanceDataset("memory", snapshot=open_snapshot(store))


def build(dataset):
    for index in dataset.describe_indices():
        (column,) = index.field_names
        create(dataset, column)


CHANGES = {
    "compact": lambda dataset: dataset.optimize.compact_files(num_threads=1, conflict_retries=0),
    "materialize": lambda dataset: dataset.optimize.materialize_deletions(num_threads=1, conflict_retries=0),
    "defer": lambda dataset: dataset.optimize.compact_files(num_threads=1, conflict_retries=0, defer_index_remap=True),
    "forget moves": lambda dataset: dataset.optimize.optimize_indices(conflict_retries=0),
    "optimize": lambda dataset: dataset.optimize.optimize_indices(conflict_retries=0),
    "build": build,
    "retrain": lambda dataset: dataset.optimize.optimize_indices(retrain=True, conflict_retries=0),
}


def queries(columns, *, by_index):
    """What is asked of these columns."""
    for column in columns:
        for condition in CONDITIONS.get(column, ()):
            yield {"filter": condition, "use_scalar_index": by_index}
        if column == "t":
            yield {"full_text_query": "text2"} if by_index else {"filter": "t = 'text2'"}
        if column == "v":
            yield {"nearest": {"column": "v", "q": [20, 4], "k": 5, "nprobes": 2, "use_index": by_index}}


def answers(store, columns, *, by_index):
    """The rows of each question about these columns."""
    dataset = opened(store)
    return [
        sorted(dataset.scanner(columns=["n"], **query).to_table()["n"].to_pylist())
        for query in queries(columns, by_index=by_index)
    ]


@functools.cache
def expected(columns):
    """What a scan answers; no change of this module changes rows."""
    return answers(prepared("", columns), columns, by_index=False)


def check(store, columns):
    assert answers(store, columns, by_index=True) == expected(columns)
    assert opened(store).count_rows() == NUM_LEFT


def left_over(store):
    """Folders of indices that no version has."""
    entries = {
        index.uuid_text for version in list_versions(store) for index in open_snapshot(store, version).manifest.indices
    }
    return {info.path.split("/")[1] for info in store.list("_indices")} - entries


LONG = {"build", "defer", "forget moves"}
FAST = [(name, effect, "nz") for name in CHANGES if name not in LONG for effect in ("before", "after")]
FAST += [(name, "after", columns) for name in ("build", "compact") for columns in ("bl", "sc")]
FAST += [("build", "before", "tv"), ("forget moves", "after", "bl")]
DEEP = list(itertools.product(CHANGES, ("before", "after"), ("nz", "bl", "sc", "tv")))


@pytest.mark.parametrize(("name", "effect", "columns"), DEEP if IS_DEEP else FAST)
def test_indices_change_as_a_whole_or_not_at_all(name, effect, columns):
    step = 1 if IS_DEEP else 5 if columns == "nz" else 29
    number, passed = 1 - step, False
    while not passed:
        number += step
        store = prepared(name, columns).copied()
        faulty = FaultyStore(inner=store, fail_at=number, effect=effect)
        dataset = lance_core.LanceDataset(
            "memory", snapshot=Snapshot(store=faulty, manifest=open_snapshot(store).manifest)
        )
        may_leave = False
        try:
            CHANGES[name](dataset)
            passed = len(faulty.calls) < number
        except CommitOutcomeUnknownError:
            may_leave = True
        except (InjectedError, LanceError, OSError):
            may_leave = faulty.calls[number - 1][0] == "delete"
        check(store, columns)
        assert may_leave or not left_over(store), faulty.calls[number - 1]
        CHANGES[name](opened(store))
        check(store, columns)
        assert opened(store).index_statistics(f"{columns[0]}_idx")["num_indexed_rows"] >= 22
    assert number > 10
