"""Files of indices with bytes changed at random: queries answer right, or tell which index is damaged and what to do.

With checksums every change is noticed before it can make an answer wrong. Without them, as in files of other writers,
whatever was changed ends with an error of ours or with arrays that hold together.
"""

import os
import random
from itertools import count

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import LanceError
from lance_core.store.memory import memory_store
from lance_core.testing.garbage import mutate

NUM_CHANGES = 2000 if os.environ.get("LANCE_TESTS") == "deep" else 30
ROWS = 600
_NUMBERS = count()

QUERIES = {
    "BTREE": ("s", {"filter": "s BETWEEN 'text 100' AND 'text 120' OR s IS NULL"}),
    "BITMAP": ("k", {"filter": "k = 3 OR k IS NULL"}),
    "LABEL_LIST": ("l", {"filter": "array_has(l, 'x3') OR l IS NULL"}),
    "NGRAM": ("s", {"filter": "contains(s, 'ext 22')"}),
    "BLOOMFILTER": ("k", {"filter": "k = 3"}),
    "ZONEMAP": ("k", {"filter": "k > 17 OR k IS NULL"}),
    "INVERTED": ("s", {"full_text_query": "22", "limit": 10}),
    "IVF_FLAT": ("v", {"nearest": {"q": [1.0] * 8, "column": "v", "k": 5, "nprobes": 4}}),
    "IVF_PQ": ("v", {"nearest": {"q": [1.0] * 8, "column": "v", "k": 5, "nprobes": 4}}),
    "IVF_SQ": ("v", {"nearest": {"q": [1.0] * 8, "column": "v", "k": 5, "nprobes": 4}}),
}
VECTORS = {"IVF_PQ": {"num_sub_vectors": 4, "num_bits": 4}}


def table(kind):
    """A table with one index; its address and store."""
    uri = f"memory://garbage-index-{next(_NUMBERS)}"
    numbers = range(ROWS)
    vectors = np.random.default_rng(0).normal(size=(ROWS, 8)).astype(np.float32)
    data = {
        "id": pa.array(numbers),
        "k": [None if i % 50 == 0 else i % 20 for i in numbers],
        "s": [None if i % 50 == 0 else f"text {i}" for i in numbers],
        "l": [None if i % 50 == 0 else [f"x{i % 7}", "y"] for i in numbers],
        "v": pa.FixedSizeListArray.from_arrays(vectors.ravel(), 8),
    }
    dataset = lance_core.write_dataset(pa.table(data), uri, max_rows_per_file=250)
    column = QUERIES[kind][0]
    if column == "v":
        dataset.create_index(column, kind, num_partitions=4, name="i", **VECTORS.get(kind, {}))
    else:
        dataset.create_scalar_index(column, kind, name="i")
    return uri, memory_store(uri)


def answer(uri, kind):
    found = lance_core.dataset(uri).to_table(columns=["id"], **QUERIES[kind][1])
    found.validate(full=True)
    return found["id"].to_pylist()


def failure(uri, kind, expected, note):
    """The error of a query; None if it has an answer, which must be the one expected if there is one."""
    try:
        found = answer(uri, kind)
    except LanceError as error:
        return str(error)
    except BaseException as error:
        error.add_note(note)
        raise
    assert expected is None or found == expected, note
    return None


def damages(store, seed):
    """Change files of the index, one at a time; each is put back."""
    rng = random.Random(seed)
    originals = {info.path: store.get(info.path) for info in store.list("_indices")}
    for number in range(NUM_CHANGES):
        path = rng.choice(sorted(originals))
        data = bytearray(originals[path])
        if number % 10 == 9:
            del data[rng.randrange(len(data)) :]
        else:
            mutate(data, rng.randrange(len(data)), rng)
        store.put(path, bytes(data))
        yield f"change {number} of {path}"
        store.put(path, originals[path])


@pytest.mark.parametrize("kind", QUERIES)
def test_changes_that_checksums_tell_make_no_answer_wrong(kind):
    uri, store = table(kind)
    expected, failed = answer(uri, kind), 0
    assert expected
    for note in damages(store, 1):
        text = failure(uri, kind, expected, note)
        if text is not None:
            failed += 1
            assert "index 'i' is damaged" in text, note
            assert "drop_index('i')" in text, note
    assert failed > NUM_CHANGES / 4


@pytest.mark.parametrize("kind", QUERIES)
def test_changes_that_nothing_tells_end_with_errors_of_ours(kind, monkeypatch):
    monkeypatch.setenv("LANCE_CORE_CHECKSUMS", "off")
    uri, store = table(kind)
    failed, most = 0, pa.default_memory_pool().max_memory()
    for note in damages(store, 2):
        text = failure(uri, kind, None, note)
        if text is not None:
            failed += 1
            assert "index 'i' " in text, note
    assert failed
    assert pa.default_memory_pool().max_memory() <= most + (256 << 20)


@pytest.mark.parametrize("kind", QUERIES)
def test_missing_files_are_told(kind):
    uri, store = table(kind)
    for info in list(store.list("_indices")):
        data = store.get(info.path)
        store.delete([info.path])
        assert "drop_index('i')" in (failure(uri, kind, None, info.path) or ""), info.path
        store.put(info.path, data)
    assert answer(uri, kind)
