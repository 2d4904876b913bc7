"""Four weeks of writes and upkeep on a simulated clock: indices cover the rows and answer as scans, also in pylance."""

import random
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import lance
import pyarrow as pa
import pytest

import lance_core
from lance_core.change.retries import new_transaction
from lance_core.change.stage import FileLimits, stage_data
from lance_core.format.table.operations import Overwrite
from lance_core.store.memory import MemoryStore
from lance_core.table.commit import commit
from lance_core.table.snapshot import open_snapshot
from lance_dagster import CleanupPolicy, CompactionPolicy, DeletionPolicy, IndexPolicy
from lance_dagster.index_numbers import index_numbers
from lance_dagster.maintenance.health import what_rewriting_needs
from lance_dagster.maintenance.indices import indexing
from lance_dagster.maintenance.tasks import Order, cleanup, compaction, materialization

pytestmark = pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")

START = datetime(2026, 1, 5, tzinfo=UTC)
DAYS, WRITES_A_DAY = 28, 3
FIRST_ROWS = 3_000
ORDER = Order(dry_run=False, properties={}, grace_period=timedelta(hours=1))
COMPACTION = CompactionPolicy(target_rows_per_fragment=2_000, min_fragments=4)
DELETIONS = DeletionPolicy(threshold=0.1)
INDICES = IndexPolicy(
    indices={"id": "BTREE", "kind": "BITMAP", "day": "ZONEMAP(rows_per_zone=256)", "text": "NGRAM"},
    max_uncovered_fraction=0.01,
)
STEPS = {
    "compaction": compaction(COMPACTION),
    "materialize_deletions": materialization(DELETIONS),
    "indices": indexing(INDICES),
}
CLEANUP = cleanup(CleanupPolicy(older_than=timedelta(days=2)))
CONDITIONS = ["id IN (3, 700, 2900, 3100)", "kind = 'b' AND day > 20", "day BETWEEN 3 AND 9", "contains(text, 'ord77')"]
FOLDERS = ("data", "_indices", "_deletions", "_transactions", "_versions")


class Clock:
    """Time that passes when it is told to."""

    def __init__(self):
        self.time = START

    def now(self, _zone=UTC):
        return self.time


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr("lance_core.table.runtime.datetime", clock)
    return clock


def rows(ids, day):
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "kind": ["abc"[number % 3] for number in ids],
            "day": pa.array([day] * len(ids), pa.int64()),
            "text": [f"word{number}" for number in ids],
        }
    )


def create(store, *, stable):
    table = rows(range(FIRST_ROWS), 0)
    limits = FileLimits(max_rows_per_file=1_000, max_bytes_per_file=1 << 30)
    fragments, schema = stage_data(store, table, None, table=None, limits=limits, data_storage_version="2.2")
    operation = Overwrite(fragments=fragments, schema=schema)
    transaction = new_transaction(0, operation, properties=None, message=None)
    commit(store, transaction, enable_stable_row_ids=stable)


def write(dataset, rng, state, day):
    """Change up to 20 rows in one of four ways."""
    kind, some = rng.choice(["append", "update", "delete", "merge"]), rng.randrange(state.next_id)
    if kind == "update":
        dataset.update({"kind": "'c'", "text": "text || '!'"}, where=f"id >= {some} AND id < {some + 20}")
    elif kind == "delete":
        dataset.delete(f"id >= {some} AND id < {some + 10}")
    else:
        new = [*range(state.next_id, state.next_id + 15)]
        state.next_id += 15
        given = rows(new if kind == "append" else [*range(some, min(some + 5, new[0])), *new], day)
        if kind == "append":
            lance_core.write_dataset(given, dataset, mode="append")
        else:
            dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(given)


@pytest.mark.slow
@pytest.mark.parametrize("stable", [False, True], ids=["addresses", "stable ids"])
def test_at_most_one_percent_of_the_rows_is_ever_uncovered(tmp_path, clock, stable):
    """A sensor does after each write what the manifest asks for; a schedule does all of it each night."""
    store = MemoryStore(now=clock.now)
    create(store, stable=stable)
    rng, state, most = random.Random(0), SimpleNamespace(next_id=FIRST_ROWS), 0

    def opened():
        return lance_core.LanceDataset("memory", snapshot=open_snapshot(store))

    def uncovered():
        numbers = index_numbers(opened())
        assert numbers["lance/indices_count"] == len(INDICES.indices)
        return 1 - numbers["lance/index_coverage"]

    STEPS["indices"](opened(), ORDER)
    for day in range(1, DAYS + 1):
        for _ in range(WRITES_A_DAY):
            clock.time += timedelta(days=1) / WRITES_A_DAY
            write(opened(), rng, state, day)
            while needs := what_rewriting_needs(opened(), COMPACTION, DELETIONS, INDICES):
                for name in needs:
                    assert STEPS[name](opened(), ORDER).skipped is None
            most = max(most, uncovered())
        for step in (*STEPS.values(), CLEANUP):
            assert step(opened(), ORDER).warning is None
        assert uncovered() <= 0.01
        assert len(opened().versions()) <= 8 * WRITES_A_DAY
        if day % 7 == 0:
            check(store, opened(), tmp_path / f"day {day}")
    assert 0 < most <= 0.01
    assert opened().version > DAYS * WRITES_A_DAY


def check(store, dataset, folder):
    """Compare what indices answer with scans, in both libraries."""
    for path in (info.path for name in FOLDERS for info in store.list(name)):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(store.get(path))
    theirs = lance.dataset(str(folder))
    for condition in CONDITIONS:
        scanned = dataset.to_table(["id"], filter=condition, use_scalar_index=False)["id"].to_pylist()
        assert dataset.to_table(["id"], filter=condition)["id"].to_pylist() == scanned
        assert theirs.to_table(["id"], filter=condition)["id"].to_pylist() == scanned
        assert "no index is used" not in dataset.scanner(filter=condition).explain_plan()
    assert dataset.verify(level="indices").is_ok
