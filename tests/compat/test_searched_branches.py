"""Searches for vectors and texts on a branch, which shares segments of indices with main and has others of its own."""

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_core

ROWS, SIZE = 200, 8
NEAREST = {"column": "v", "q": [0.3] * SIZE, "k": 20, "nprobes": 4, "refine_factor": 20}


def rows(first, count):
    """Return rows, some without a vector or with one that is no number, some without a text."""
    rng = np.random.default_rng(first)
    vectors = rng.normal(size=(count, SIZE)).astype(np.float32).tolist()
    texts = [" ".join(f"w{number}" for number in rng.integers(0, 20, 6)) for _ in range(count)]
    vectors[3], vectors[7], texts[5] = None, [float("nan")] * SIZE, None
    columns = {"id": range(first, first + count), "v": pa.array(vectors, pa.list_(pa.float32(), SIZE)), "t": texts}
    return pa.table(columns)


def assert_same(ours, theirs):
    """Searches by index are those of pylance, and those without an index."""
    near, expected = (dataset.to_table(columns=["id"], nearest=NEAREST) for dataset in (ours, theirs))
    assert near["id"].to_pylist() == expected["id"].to_pylist()
    exact = ours.to_table(columns=["id"], nearest={**NEAREST, "use_index": False})
    assert near["id"].to_pylist() == exact["id"].to_pylist()
    scores = [
        {row["id"]: row["_score"] for row in dataset.to_table(["id", "_score"], full_text_query="w3 w9").to_pylist()}
        for dataset in (ours, theirs)
    ]
    assert len(scores[0]) > ROWS // 4
    assert scores[0] == pytest.approx(scores[1], abs=3e-5)


@pytest.mark.parametrize("builder", [lance, lance_core])
def test_indices_go_on_on_a_branch(tmp_path, builder):
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(0, ROWS), uri, max_rows_per_file=100)
    builder.dataset(uri).create_index("v", "IVF_SQ", num_partitions=4)
    builder.dataset(uri).create_scalar_index("t", "INVERTED")
    lance_core.dataset(uri).create_branch("other")

    def opened(library):
        return library.dataset(uri).checkout_version(("other", None))

    assert_same(opened(lance_core), opened(lance))
    opened(lance_core).insert(rows(1000, 60))
    opened(lance).delete("id % 9 = 2")
    assert_same(opened(lance_core), opened(lance))
    opened(builder).optimize.optimize_indices(num_indices_to_merge=0)
    assert {index.base_id for index in opened(lance_core).snapshot.manifest.indices} == {0, None}
    assert_same(opened(lance_core), opened(lance))
    opened(lance_core).optimize.compact_files()
    assert_same(opened(lance_core), opened(lance))
    assert_same(lance_core.dataset(uri), lance.dataset(uri))
    assert lance_core.dataset(uri).count_rows() == ROWS
