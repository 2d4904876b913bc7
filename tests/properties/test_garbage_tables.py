"""Files around the data with bytes changed at random: manifests, transactions, deletion files, refs and zone maps.

What they are read for ends with an error of ours or with arrays that hold together.

Checksums are switched off, as in files of other writers: otherwise nothing of this would be reached. What reached new
lines is changed further; with LANCE_TESTS=deep for five minutes (LANCE_FUZZ_S seconds of processor), from a new seed.
"""

import json
import os
import random
import struct
import time
from itertools import count

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError

import lance_core
from lance_core._proto.transaction_pb2 import Transaction
from lance_core.errors import LanceError
from lance_core.format.table.paths import parse_version
from lance_core.format.table.transaction import decode_transaction
from lance_core.store.memory import memory_store
from lance_core.testing.garbage import LineTrace, mutate, mutate_message

pytestmark = pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")

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
        monkeypatch.setattr(f"lance_core.format.table.{module}.check_section", lambda *_, **__: True)


def table():
    """A table with everything; its address and store."""
    uri = f"memory://garbage-{next(_NUMBERS)}"
    data = pa.table({"x": range(12_000), "s": [f"text {i % 90}" for i in range(12_000)]})
    dataset = lance_core.write_dataset(data, uri, enable_stable_row_ids=True, max_rows_per_file=6000)
    dataset.delete("x < 5500 or x = 7000")  # a bitmap, and an Arrow file
    dataset.update({"s": "'other'"}, where="x % 50 = 0")
    dataset.create_scalar_index("x", "ZONEMAP")
    dataset.create_scalar_index("x", "BTREE", name="sorted")
    dataset.tags.create("one", 1)
    dataset.create_branch("side")
    dataset.update_config({"key": "value"})
    dataset.add_columns({"y": "x + 1"})
    dataset.merge_insert("x").when_matched_update_all().execute(pa.table({"x": [7, 8000], "s": ["a", "b"]}))
    dataset.optimize.compact_files(target_rows_per_fragment=250)
    dataset.drop_columns(["y"])
    dataset.restore()
    store = memory_store(uri)
    for info in [*store.list("_refs")]:
        content = json.loads(store.get(info.path))
        store.put(info.path, json.dumps({name: one for name, one in content.items() if name != "checksum"}).encode())
    return uri, store


def refs(uri, _path):
    dataset = lance_core.dataset(uri)
    yield dataset.tags.list
    yield dataset.branches.list
    yield lambda: lance_core.dataset(uri, version="one").version
    yield lambda: dataset.checkout_version(("side", None)).version


def rows(uri, _path):
    yield from rows_of(lance_core.dataset(uri))


def rows_of(dataset):
    if sum(one.physical_rows for one in dataset.get_fragments()) <= MAX_ROWS:
        yield lambda: dataset.to_table(columns=["s", "_rowid", "_row_created_at_version"]).validate(full=True)
        yield lambda: dataset.take([0, 5, 77]).validate(full=True)


def filters(uri, _path):
    yield from filters_of(lance_core.dataset(uri))


def filters_of(dataset):
    yield lambda: dataset.to_table(filter="x > 11000", columns=["x"]).validate(full=True)


def versions(uri, path):
    """The version whose manifest was changed, so that each change is looked at closely."""
    dataset = lance_core.dataset(uri, version=parse_version(path.removeprefix("_versions/")))
    yield dataset.versions
    yield dataset.list_indices
    yield lambda: dataset.get_transactions(recent_transactions=5)
    yield from rows_of(dataset)
    if dataset.count_rows() <= MAX_ROWS:
        yield from filters_of(dataset)


def transactions(uri, path):
    """Manifests have a copy of their transaction; a file is asked for where the copy is missing."""
    yield lambda: decode_transaction(memory_store(uri).get(path))


def change_bytes(good, rng):
    data = bytearray(good)
    for _ in range(rng.choice([1, 1, 2])):
        if data:
            mutate(data, rng.randrange(len(data)), rng)
    return bytes(data)


def change_manifest(good, rng):
    """Three of four times a field of its message, so that more than the framing of messages is put to the test."""
    end = len(good) - FOOTER.size
    if end < 4 or rng.random() < 0.25:
        return change_bytes(good, rng)
    at, *_ = FOOTER.unpack(good[end:])
    if not at < end - 4:
        return change_bytes(good, rng)
    message = mutate_message(good[at + 4 : end], rng)
    return good[:at] + struct.pack("<I", len(message)) + message + good[end:]


def change_transaction(good, rng):
    return change_bytes(good, rng) if rng.random() < 0.25 else mutate_message(good, rng)


FOOTER = struct.Struct("<QHH4s")
CHANGES = {"_versions": change_manifest, "_transactions": change_transaction}
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
    with (steps := LineTrace()):
        for path in paths:
            assert look(WAYS[folder](uri, path), "original") == []
    known, num_known, corpus = steps.taken, len(steps.taken), [*originals.items()]
    failed, number, end = 0, 0, time.process_time() + FUZZ_S
    while number < NUM_CHANGES or time.process_time() < end:
        number += 1
        path, good = rng.choice(corpus[len(paths) :] or corpus) if rng.random() < 0.5 else rng.choice(corpus)
        data = CHANGES.get(folder, change_bytes)(good, rng)
        store.put(path, data)
        with (steps := LineTrace()):
            failed += look(WAYS[folder](uri, path), f"file {number} of seed {seed}: {path}") != []
        store.put(path, originals[path])
        if not steps.taken <= known:
            known |= steps.taken
            corpus.append((path, data))
    print(f"{folder}: {number} files, {failed} noticed, {num_known} steps and {len(known)}, {len(corpus)} kept")  # noqa: T201
    assert failed > number / 20
    assert len(known) > num_known


def test_changed_messages_are_messages_still():
    """Lengths of what is around a change stay right; only texts that are none stop the decoder."""
    _, store = table()
    message = store.get(min(info.path for info in store.list("_transactions")))
    changed = [mutate_message(message, random.Random(seed)) for seed in range(200)]
    assert sum(one != message for one in changed) > 160
    assert sum(is_message(one) for one in changed) > 160


def is_message(data):
    try:
        Transaction.FromString(data)
    except DecodeError:
        return False
    return True
