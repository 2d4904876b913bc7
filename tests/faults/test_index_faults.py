"""Fail store call k while indices are remapped or brought up to date: they answer as a scan, and no file is left."""

import functools
import itertools
import os

import pyarrow as pa
import pytest

import lance_core
from lance_core.change.retries import new_transaction
from lance_core.change.stage import FileLimits, stage_data
from lance_core.errors import CommitOutcomeUnknownError, LanceError
from lance_core.format.operations import Append, Overwrite
from lance_core.store.memory import MemoryStore
from lance_core.table.commit import commit
from lance_core.table.snapshot import Snapshot, list_versions, open_snapshot
from lance_core.testing.faulty_store import FaultyStore, InjectedError

pytestmark = pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")
IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"
LIMITS = FileLimits(max_rows_per_file=10, max_bytes_per_file=1 << 30)
NUM_LEFT = 45


KINDS = {"n": "BTREE", "z": "ZONEMAP", "b": "BITMAP", "l": "LABEL_LIST", "s": "NGRAM", "c": "BLOOMFILTER"}
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
    return pa.table(
        {"n": numbers, "z": numbers, "b": [number % 3 for number in numbers], "l": lists, "s": texts, "c": numbers}
    )


def stage(store, start, make):
    fragments, schema = stage_data(store, rows(start), None, table=None, limits=LIMITS, data_storage_version="2.2")
    version = list_versions(store)[-1] if list_versions(store) else 0
    commit(store, new_transaction(version, make(fragments, schema), properties=None, message=None))


@functools.cache
def prepared(columns):
    """A table with indices, rows that they do not know, and deleted rows; to be copied."""
    store = MemoryStore()
    stage(store, 0, lambda fragments, schema: Overwrite(fragments=fragments, schema=schema))
    dataset = opened(store)
    for column in columns:
        dataset.create_scalar_index(column, KINDS[column])
    stage(store, 30, lambda fragments, _: Append(fragments=fragments))
    opened(store).delete("n % 4 = 1")
    return store


def opened(store):
    return lance_core.LanceDataset("memory", snapshot=open_snapshot(store))


def build(dataset):
    for index in dataset.describe_indices():
        (column,) = index.field_names
        dataset.create_scalar_index(column, KINDS[column], replace=True)


CHANGES = {
    "compact": lambda dataset: dataset.optimize.compact_files(num_threads=1, conflict_retries=0),
    "materialize": lambda dataset: dataset.optimize.materialize_deletions(num_threads=1, conflict_retries=0),
    "optimize": lambda dataset: dataset.optimize.optimize_indices(conflict_retries=0),
    "build": build,
    "retrain": lambda dataset: dataset.optimize.optimize_indices(retrain=True, conflict_retries=0),
}


def answers(store, columns, *, by_index):
    """The rows of each condition on these columns."""
    dataset = opened(store)
    conditions = [condition for column in columns for condition in CONDITIONS[column]]
    scanners = [dataset.scanner(filter=condition, use_scalar_index=by_index) for condition in conditions]
    return [sorted(scanner.to_table()["n"].to_pylist()) for scanner in scanners]


@functools.cache
def expected(columns):
    """What a scan answers; no change of this module changes rows."""
    return answers(prepared(columns), columns, by_index=False)


def check(store, columns):
    assert answers(store, columns, by_index=True) == expected(columns)
    assert opened(store).count_rows() == NUM_LEFT


def left_over(store):
    """Folders of indices that no version has."""
    entries = {
        index.uuid_text for version in list_versions(store) for index in open_snapshot(store, version).manifest.indices
    }
    return {info.path.split("/")[1] for info in store.list("_indices")} - entries


FAST = [(name, effect, "nz") for name in CHANGES if name != "build" for effect in ("before", "after")]
FAST += [(name, "after", columns) for name in ("build", "compact") for columns in ("bl", "sc")]
DEEP = list(itertools.product(CHANGES, ("before", "after"), ("nz", "bl", "sc")))


@pytest.mark.parametrize(("name", "effect", "columns"), DEEP if IS_DEEP else FAST)
def test_indices_change_as_a_whole_or_not_at_all(name, effect, columns):
    step = 1 if IS_DEEP else 5 if columns == "nz" else 29
    number, passed = 1 - step, False
    while not passed:
        number += step
        store = prepared(columns).copied()
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
