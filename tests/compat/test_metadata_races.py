"""Our commits and pylance's on one table, from several processes at once."""

import multiprocessing
import uuid
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

import lance
import pyarrow as pa
import pytest

from lance_core.errors import CommitConflictError
from lance_core.format.table.deletion import bitmap_from_numpy
from lance_core.format.table.fragment import Fragment
from lance_core.format.table.operations import Append, Delete
from lance_core.format.table.transaction import Transaction
from lance_core.store.open import open_store
from lance_core.table.commit import commit
from lance_core.table.rebase import load_deletions, write_deletions
from lance_core.table.runtime import SYSTEM_RUNTIME
from lance_core.table.snapshot import list_versions, open_snapshot, read_transaction

CONTEXT = multiprocessing.get_context("forkserver")
COMMITS = 10


def append_ours(uri, writer):
    store = open_store(uri)
    for number in range(COMMITS):
        snapshot = open_snapshot(store)
        (staged,) = lance.fragment.write_fragments(pa.table({"a": [1000 * writer + number]}), uri)
        file = replace(
            snapshot.manifest.fragments[0].files[0],
            path=staged.files[0].path,
            file_size_bytes=staged.files[0].file_size_bytes,
        )
        operation = Append(fragments=(Fragment(id=0, files=(file,), physical_rows=1),))
        commit_ours(store, snapshot, operation)


def delete_ours(uri, values):
    """Rows of fragment 0, whose value is their offset."""
    store = open_store(uri)
    for value in values:
        while True:
            snapshot = open_snapshot(store)
            fragment = snapshot.manifest.fragments.find(0)
            rows = load_deletions(store, fragment) | bitmap_from_numpy([value])
            file, _ = write_deletions(store, 0, rows, read_version=snapshot.version, new_id=SYSTEM_RUNTIME.random_u63)
            try:
                commit_ours(store, snapshot, Delete(updated_fragments=(replace(fragment, deletion_file=file),)))
                break
            except CommitConflictError as error:
                assert error.is_retryable  # noqa: PT017 - the loop is what callers do


def commit_ours(store, snapshot, operation):
    transaction = Transaction(read_version=snapshot.version, uuid=str(uuid.uuid4()), operation=operation)
    commit(store, transaction, read=snapshot, max_retries=200)


def append_theirs(uri, writer):
    for number in range(COMMITS):
        lance.write_dataset(pa.table({"a": [1000 * writer + number]}), uri, mode="append")


def delete_theirs(uri, values):
    for value in values:
        lance.dataset(uri).delete(f"a = {value}")


@pytest.mark.parametrize(("stable", "pairs"), [(False, 3), (True, 1)], ids=["addresses", "stable ids"])
def test_nothing_is_lost_and_nothing_doubled(tmp_path, stable, pairs):
    uri = str(tmp_path / "race")
    lance.write_dataset(pa.table({"a": range(100)}), uri, enable_stable_row_ids=stable)
    with ProcessPoolExecutor(2 * pairs + 2, mp_context=CONTEXT) as pool:
        futures = [
            *(pool.submit(append_ours, uri, writer) for writer in range(1, pairs + 1)),
            *(pool.submit(append_theirs, uri, writer) for writer in range(pairs + 1, 2 * pairs + 1)),
            pool.submit(delete_ours, uri, range(0, 20, 2)),
            pool.submit(delete_theirs, uri, range(1, 20, 2)),
        ]
        for future in futures:
            future.result()
    appended = (1000 * writer + number for writer in range(1, 2 * pairs + 1) for number in range(COMMITS))
    expected = [*range(20, 100), *appended]
    table = lance.dataset(uri)
    table.validate()
    rows = table.to_table(with_row_id=True)
    assert sorted(rows["a"].to_pylist()) == expected
    assert len(set(rows["_rowid"].to_pylist())) == len(expected)
    store = open_store(uri)
    assert open_snapshot(store).manifest.num_rows == len(expected)
    versions = list_versions(store)
    assert versions == list(range(1, len(versions) + 1))
    assert len({read_transaction(store, version).uuid for version in versions}) == len(versions)
