"""Searches that indices answer decode the fragments of the rows that they return, and no others."""

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.format.table import fragment_list

FRAGMENTS, ROWS = 40, 10


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    count = FRAGMENTS * ROWS
    values = np.random.default_rng(0).normal(size=count * 4).astype(np.float32)
    rows = pa.table(
        {
            "id": range(count),
            "text": [f"word{row % 7} rare{row // 100}" for row in range(count)],
            "vector": pa.FixedSizeListArray.from_arrays(values, 4),
        }
    )
    path = str(tmp_path_factory.mktemp("tables") / "t")
    dataset = lance_core.write_dataset(rows, path, max_rows_per_file=ROWS)
    dataset.create_scalar_index("text", "INVERTED")
    dataset.create_index("vector", index_type="IVF_PQ", num_partitions=4, num_sub_vectors=2)
    dataset.insert(rows.slice(0, 2 * ROWS))
    return path


@pytest.fixture
def decoded(monkeypatch):
    """The ids of the fragments that were decoded."""
    ids, decode = [], fragment_list.decode_fragment

    def noted(record):
        fragment = decode(record)
        ids.append(fragment.id)
        return fragment

    monkeypatch.setattr(fragment_list, "decode_fragment", noted)
    return ids


SEARCHES = {
    "text": {"full_text_query": "rare2"},
    "vector": {"nearest": {"column": "vector", "q": [0.0, 0.0, 0.0, 0.0], "k": 3}},
}


@pytest.mark.parametrize("kind", SEARCHES)
def test_fragments_of_which_nothing_is_wanted_are_not_decoded(uri, decoded, kind):
    dataset = lance_core.dataset(uri)
    search = {"columns": ["id"], "with_row_address": True, "limit": 3, **SEARCHES[kind]}
    expected = dataset.to_table(**search)
    decoded.clear()
    found = dataset.to_table(**search)
    assert found.equals(expected)
    wanted = {address >> 32 for address in found["_rowaddr"].to_pylist()}
    not_indexed = {FRAGMENTS}
    assert set(decoded) <= wanted | not_indexed


@pytest.mark.parametrize("kind", SEARCHES)
def test_searches_of_some_fragments_are_those_of_all_without_the_others(uri, kind):
    dataset = lance_core.dataset(uri)
    search = {"columns": ["id"], "with_row_address": True, **SEARCHES[kind]}
    if kind == "vector":
        search["nearest"] = {**search["nearest"], "k": 1000, "nprobes": 4, "refine_factor": 1}
    every = dataset.to_table(**search)
    some = [fragment for fragment in dataset.get_fragments() if fragment.fragment_id in {25, 20, FRAGMENTS}]
    found = dataset.scanner(**search, fragments=some[::-1]).to_table()
    left = [row for row in every.to_pylist() if row["_rowaddr"] >> 32 in {25, 20, FRAGMENTS}]
    assert found.to_pylist() == left
    assert left
