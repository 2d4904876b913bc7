"""Updates and merges on a store of which call k fails; afterwards the table is old or new, and no file is left over."""

from dataclasses import replace
from functools import cache

import pyarrow as pa
import pytest

from lance_core.change.ingest import read_input
from lance_core.change.merging.merge import MergeWork
from lance_core.change.merging.merge_plan import MergeOptions, WhenMatched, WriteMode
from lance_core.change.retries import CommitOptions, commit_work
from lance_core.change.stage import FileLimits, stage_data
from lance_core.change.update import UpdateWork
from lance_core.errors import LanceError
from lance_core.format.table.operations import Append, Overwrite
from lance_core.format.table.transaction import Transaction
from lance_core.scan.fragments import scan_fragments
from lance_core.scan.open_files import OpenFiles
from lance_core.scan.plan import plan_scan
from lance_core.store.memory import MemoryStore
from lance_core.table.commit import commit
from lance_core.table.snapshot import list_versions, open_snapshot
from lance_core.testing.faulty_store import FaultyStore, InjectedError

LIMITS = FileLimits(max_rows_per_file=4, max_bytes_per_file=1 << 40)
FILES = {"limits": LIMITS, "data_storage_version": "2.2"}
START = dict.fromkeys(range(10), "old")
ONCE = CommitOptions(conflict_retries=2)


def rows_of(texts):
    return pa.table({"id": pa.array(texts, pa.int64()), "text": list(texts.values()), "more": [0] * len(texts)})


def stage(store, texts, table=None):
    return stage_data(store, rows_of(texts), None, table=table, **FILES)


def prepared(*, stable=False):
    store = MemoryStore()
    fragments, schema = stage(store, START)
    create = Transaction(read_version=0, uuid="create", operation=Overwrite(fragments=fragments, schema=schema))
    commit(store, create, enable_stable_row_ids=stable)
    return store


def append(store, texts):
    snapshot = open_snapshot(store)
    fragments, _ = stage(store, texts, snapshot.manifest.schema)
    operation = Append(fragments=fragments)
    commit(store, Transaction(read_version=snapshot.version, uuid=f"append {texts}", operation=operation))


def read(store):
    snapshot = open_snapshot(store)
    plan = plan_scan(
        snapshot.manifest.schema,
        columns=["id", "text"],
        filter=None,
        batch_size=None,
        with_row_id=False,
        with_row_address=False,
    )
    batches = scan_fragments(OpenFiles(store), snapshot.manifest.fragments, plan)
    found = [(row["id"], row["text"]) for batch in batches for row in batch.to_pylist()]
    assert len(found) == len(dict(found)), "no row is there twice"
    return dict(found)


def unused_files(store):
    """Data and deletion files that no version knows."""
    known = set()
    for version in list_versions(store):
        for fragment in open_snapshot(store, version).manifest.fragments:
            known |= {f"data/{file.path}" for file in fragment.files}
            if fragment.deletion_file is not None:
                known.add(f"{fragment.id}-{fragment.deletion_file.read_version}-{fragment.deletion_file.id}")
    found = [info.path for folder in ("data", "_deletions") for info in store.list(folder)]
    names = [path if path.startswith("data/") else path.removeprefix("_deletions/").split(".")[0] for path in found]
    return [name for name in names if name not in known]


def make_update():
    return UpdateWork(updates={"text": "'new'"}, condition="id in (1, 5) or id > 7", **FILES), {
        **START,
        **dict.fromkeys([1, 5, 8, 9], "new"),
    }


def merge(texts, **options):
    return MergeWork(options=MergeOptions(on=("id",), **options), stream=read_input(rows_of(texts)), **FILES)


def make_upsert():
    texts = {2: "new", 3: "new", 50: "new"}
    return merge(texts, matched=WhenMatched.UPDATE, inserts=True), {**START, **texts}


def make_replacement():
    texts = {2: "new", 50: "new"}
    kept = {key: text for key, text in START.items() if key >= 5}
    options = {"matched": WhenMatched.UPDATE, "inserts": True, "deletes_others": True, "delete_condition": "id < 5"}
    return merge(texts, **options), {**kept, **texts}


def make_columns():
    source = rows_of({2: "new", 7: "new"}).select(["id", "text"])
    options = MergeOptions(on=("id",), matched=WhenMatched.UPDATE, write_mode=WriteMode.REWRITE_COLUMNS)
    return MergeWork(options=options, stream=read_input(source), **FILES), {**START, 2: "new", 7: "new"}


MAKERS = [make_update, make_upsert, make_replacement, make_columns]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(("effect", "stable"), [("before", True), ("after", False)])
def test_changes_are_all_or_nothing(make, effect, stable):
    number, passed = 0, False
    while not passed:
        number += 1
        store = prepared(stable=stable)
        faulty = FaultyStore(inner=store, fail_at=number, effect=effect)
        work, after = make()
        try:
            done = commit_work(open_snapshot(faulty), work, ONCE)
        except (LanceError, InjectedError):
            done = None
        passed = len(faulty.calls) < number
        landed = list_versions(store)[-1] == 2
        assert read(store) == (after if landed else START)
        assert landed or done is None, "what was acknowledged is there"
        failed_delete = not passed and faulty.calls[number - 1][0] == "delete"
        if not failed_delete:
            assert not unused_files(store)
    assert number > 10


@pytest.mark.parametrize(("make", "stable"), [*zip(MAKERS, [False, True] * 2, strict=True)])
def test_another_change_gets_in_at_every_call(make, stable):
    """Whatever another writer does between two calls, both changes count in one order or the other."""
    number, passed = 0, False
    while not passed:
        number += 1
        store = prepared(stable=stable)
        done = []

        def other(_method, _path, store=store, done=done, number=number):
            done.append(None)
            if len(done) == number:
                work = merge({2: "other", 50: "other", 60: "other"}, matched=WhenMatched.UPDATE, inserts=True)
                commit_work(open_snapshot(store), work, ONCE)

        work, _ = make()
        faulty = FaultyStore(inner=store, on_call=other)
        commit_work(open_snapshot(faulty), work, ONCE)
        passed = len(done) < number
        if not passed:
            assert read(store) in (serially(make, other_first=True), serially(make, other_first=False))
        assert not unused_files(store)
    assert number > 10


@cache
def serially(make, *, other_first):
    store = prepared()
    works = [merge({2: "other", 50: "other", 60: "other"}, matched=WhenMatched.UPDATE, inserts=True), make()[0]]
    for work in works if other_first else works[::-1]:
        commit_work(open_snapshot(store), work, ONCE)
    return read(store)


@pytest.mark.parametrize("stable", [False, True])
def test_rows_that_are_still_right_are_not_written_again(stable):
    store = prepared(stable=stable)
    stale = open_snapshot(store)
    append(store, {100: "other"})
    faulty = FaultyStore(inner=store)
    work = merge({2: "new", 50: "new"}, matched=WhenMatched.UPDATE, inserts=True)
    commit_work(replace(stale, store=faulty), work, ONCE)
    data_files = {path for method, path in faulty.calls if method == "writer"}
    assert len(data_files) == 1
    assert read(store) == {**START, 100: "other", 2: "new", 50: "new"}
