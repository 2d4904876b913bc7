"""Fail store call k while columns change: afterwards the table is old or new, and no file is left that nobody knows."""

import pyarrow as pa
import pytest

import lance_core
from lance_core.change.retries import new_transaction
from lance_core.change.stage import FileLimits, stage_data
from lance_core.errors import CommitOutcomeUnknownError, LanceError
from lance_core.format.table.operations import Overwrite
from lance_core.store.memory import MemoryStore
from lance_core.table.commit import commit
from lance_core.table.snapshot import Snapshot, open_snapshot
from lance_core.testing.faulty_store import FaultyStore, InjectedError

N = 30
ROWS = pa.table({"n": range(N), "s": [str(i) for i in range(N)]})


def prepared():
    store = MemoryStore()
    limits = FileLimits(max_rows_per_file=10, max_bytes_per_file=1 << 30)
    fragments, schema = stage_data(store, ROWS, None, table=None, limits=limits, data_storage_version="2.2")
    operation = Overwrite(fragments=fragments, schema=schema)
    commit(store, new_transaction(0, operation, properties=None, message=None))
    return store


def opened(store):
    return lance_core.LanceDataset("memory", snapshot=open_snapshot(store))


def add(dataset):
    dataset.add_columns({"q": "n * 2"}, batch_size=4)


def add_data(dataset):
    dataset.add_columns(pa.table({"q": range(N)}))


def cast(dataset):
    dataset.alter_columns({"path": "n", "data_type": pa.int32(), "name": "m"})


def drop(dataset):
    dataset.drop_columns(["s"])


CHANGES = [add, add_data, cast, drop]


def known_files(store):
    return {
        f"data/{file.path}"
        for version in (1, 2)
        for fragment in (_fragments(store, version) or ())
        for file in fragment.files
    }


def _fragments(store, version):
    try:
        return open_snapshot(store, version).manifest.fragments
    except LanceError:
        return None


def through(faulty):
    """The dataset whose later calls are counted; opening it is not."""
    manifest = open_snapshot(faulty.inner).manifest
    return lance_core.LanceDataset("memory", snapshot=Snapshot(store=faulty, manifest=manifest))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("effect", ["before", "after"])
def test_columns_change_as_a_whole_or_not_at_all(change, effect):
    reference = opened(prepared())
    change(reference)
    new = reference.to_table()
    number, passed = 0, False
    while not passed:
        number += 1
        store = prepared()
        faulty = FaultyStore(inner=store, fail_at=number, effect=effect)
        dataset = through(faulty)
        is_unknown = False
        try:
            change(dataset)
            passed = len(faulty.calls) < number
        except CommitOutcomeUnknownError:
            is_unknown = True
        except (LanceError, InjectedError):
            pass
        after = opened(store)
        assert after.to_table() == (new if after.version == 2 else ROWS)
        assert after.version == 2 or not passed
        # What could not be deleted is left for the clean-up; nothing else is.
        deletes = [path for method, path in faulty.calls if method == "delete"]
        left = {f"data/{name}" for name in store.names("data")} - known_files(store)
        assert is_unknown or left <= set(deletes)
        if effect == "after" and not is_unknown:
            assert not left or faulty.calls[number - 1][0] in {"delete", "names"}
