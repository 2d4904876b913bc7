"""Processes that are forked after searches find the same rows, in the table that they got and in one they open."""

import multiprocessing

import numpy as np
import pyarrow as pa
import pytest

import lance_core

ROWS, SIZE = 500, 16


def searches(table, queries):
    nearest = {"column": "v", "q": queries, "k": 5, "nprobes": 4, "refine_factor": 4}
    found = [
        table.to_table(columns=["id"], nearest=nearest),
        table.to_table(columns=["id"], nearest={**nearest, "use_index": False}),
    ]
    found.append(table.to_table(columns=["id"], full_text_query="w1 w2 w3", limit=10))
    return [rows.to_pylist() for rows in found]


def search_and_answer(connection, table, queries):
    connection.send([searches(table, queries), searches(lance_core.dataset(table.uri), queries)])


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize(
    ("index_type", "options"),
    [("IVF_FLAT", {}), ("IVF_PQ", {"num_sub_vectors": 4, "num_bits": 4}), ("IVF_SQ", {})],
)
def test_forked_workers_search_as_their_parent(tmp_path, index_type, options):
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(ROWS, SIZE)).astype(np.float32)
    texts = [" ".join(f"w{number}" for number in numbers) for numbers in rng.integers(0, 40, (ROWS, 6)).tolist()]
    column = pa.FixedSizeListArray.from_arrays(vectors.ravel(), SIZE)
    table = lance_core.write_dataset(pa.table({"id": range(ROWS), "v": column, "t": texts}), tmp_path / "t")
    table.create_index("v", index_type, num_partitions=4, **options)
    table.create_scalar_index("t", "INVERTED")
    queries = vectors[:20]
    expected = searches(table, queries)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    worker = context.Process(target=search_and_answer, args=(sender, table, queries))
    worker.start()
    assert receiver.poll(60), "the worker hangs"
    assert receiver.recv() == [expected, expected]
    worker.join(10)
    assert worker.exitcode == 0
    assert searches(table, queries) == expected
