"""Files around the data with bytes changed at random: manifests, transactions, deletion files, refs and zone maps.

What they are read for ends with an error of ours or with arrays that hold together.

Checksums are switched off, as in files of other writers: otherwise nothing of this would be reached. What reached new
lines is changed further; with LANCE_TESTS=deep for five minutes (LANCE_FUZZ_S seconds of processor), from a new seed.
"""

import json
import os
import random
import time
from itertools import count

import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import LanceError
from lance_core.format.transaction import decode_transaction
from lance_core.store.memory import memory_store
from lance_core.testing.garbage import Steps, mutate

IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"
FUZZ_S = float(os.environ.get("LANCE_FUZZ_S", "60" if IS_DEEP else "0"))
NUM_CHANGES = 60
MAX_ROWS, MAX_BYTES = 30_000, 256 << 20
"""Manifests that claim more rows are not read as a whole; what reading the others may allocate at worst."""
_NUMBERS = count()


@pytest.fixture(autouse=True)
def without_checksums(monkeypatch):
    monkeypatch.setenv("LANCE_CORE_CHECKSUMS", "off")
    for module in ("manifest", "transaction", "deletion"):
        monkeypatch.setattr(f"lance_core.format.{module}.check_section", lambda *_, **__: True)


def table():
    """A table with everything; its address and store."""
    uri = f"memory://garbage-{next(_NUMBERS)}"
    data = pa.table({"x": range(12_000), "s": [f"text {i % 90}" for i in range(12_000)]})
    dataset = lance_core.write_dataset(data, uri, enable_stable_row_ids=True, max_rows_per_file=6000)
    dataset.delete("x < 5500 or x = 7000")  # a bitmap, and an Arrow file
    dataset.update({"s": "'other'"}, where="x % 50 = 0")
    dataset.create_scalar_index("x", "ZONEMAP")
    dataset.tags.create("one", 1)
    dataset.create_branch("side")
    dataset.update_config({"key": "value"})
    dataset.add_columns({"y": "x + 1"})
    dataset.merge_insert("x").when_matched_update_all().execute(pa.table({"x": [7, 8000], "s": ["a", "b"]}))
    dataset.optimize.compact_files(target_rows_per_fragment=10)
    dataset.drop_columns(["y"])
    dataset.restore()
    store = memory_store(uri)
    for info in [*store.list("_refs")]:
        content = json.loads(store.get(info.path))
        store.put(info.path, json.dumps({name: one for name, one in content.items() if name != "checksum"}).encode())
    return uri, store


def refs(uri):
    dataset = lance_core.dataset(uri)
    yield dataset.tags.list
    yield dataset.branches.list
    yield lambda: lance_core.dataset(uri, version="one").version
    yield lambda: dataset.checkout_version(("side", None)).version


def rows(uri):
    dataset = lance_core.dataset(uri)
    if sum(one.physical_rows for one in dataset.get_fragments()) > MAX_ROWS:
        return
    yield lambda: dataset.to_table(columns=["s", "_rowid", "_row_created_at_version"]).validate(full=True)
    yield lambda: dataset.take([0, 5, 77]).validate(full=True)


def filters(uri):
    yield lambda: lance_core.dataset(uri).to_table(filter="x > 11000", columns=["x"]).validate(full=True)


def versions(uri):
    dataset = lance_core.dataset(uri)
    yield dataset.versions
    yield dataset.list_indices
    yield lambda: dataset.get_transactions(recent_transactions=5)
    yield from rows(uri)
    if dataset.count_rows() <= MAX_ROWS:
        yield from filters(uri)


def transactions(uri):
    """Manifests have a copy of their transaction; a file is asked for where the copy is missing."""
    store = memory_store(uri)
    for info in store.list("_transactions"):
        yield lambda path=info.path: decode_transaction(store.get(path))


WAYS = {"_versions": versions, "_transactions": transactions, "_deletions": rows, "_refs": refs, "_indices": filters}


def look(ways, note):
    """Look at a table in some ways; how they failed."""
    pool, failed = pa.default_memory_pool(), []
    before, most = pool.bytes_allocated(), pool.max_memory()
    while True:
        try:
            way = next(ways, None)
            if way is None:
                break
            way()
        except LanceError as error:
            failed.append(error)
        except BaseException as error:
            error.add_note(note)
            raise
    assert pool.max_memory() <= max(most, before + MAX_BYTES), note
    return failed


@pytest.mark.timeout(0 if FUZZ_S else 300)
@pytest.mark.parametrize("folder", WAYS)
def test_garbage(folder):
    seed = random.randrange(1 << 32) if FUZZ_S else 1
    rng = random.Random(seed)
    uri, store = table()
    paths = sorted(info.path for info in store.list(folder))
    originals = {path: store.get(path) for path in paths}
    with (steps := Steps()):
        assert look(WAYS[folder](uri), "original") == []
    known, num_known, corpus = steps.taken, len(steps.taken), [*originals.items()]
    failed, number, end = 0, 0, time.process_time() + FUZZ_S
    while number < NUM_CHANGES or time.process_time() < end:
        number += 1
        path, good = rng.choice(corpus[len(paths) :] or corpus) if rng.random() < 0.5 else rng.choice(corpus)
        data = bytearray(good)
        for _ in range(rng.choice([1, 1, 2])):
            if data:
                mutate(data, rng.randrange(len(data)), rng)
        store.put(path, bytes(data))
        with (steps := Steps()):
            failed += look(WAYS[folder](uri), f"file {number} of seed {seed}: {path}") != []
        store.put(path, originals[path])
        if not steps.taken <= known:
            known |= steps.taken
            corpus.append((path, bytes(data)))
    print(f"{folder}: {number} files, {failed} noticed, {num_known} steps and {len(known)}, {len(corpus)} kept")  # noqa: T201
    assert failed > number / 20
    assert len(known) > num_known
