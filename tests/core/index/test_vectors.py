"""Kernels of vector search: compared with sorting all distances in double precision."""

from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lance_core
from lance_core.index.vector import distances, entries, segment
from lance_core.index.vector.candidates import CandidateRows
from lance_core.index.vector.comparisons import OpenedPartition, RunRows
from lance_core.index.vector.distances import computable, pair_distances, products
from lance_core.index.vector.entries import EntryComparison, squares_of
from lance_core.index.vector.kmeans import nearest_centroids, train_centroids
from lance_core.index.vector.top_rows import ExactSearch, TopRows
from lance_core.spark.functions.nearest import search_batches
from lance_core.vector import measure_recall


def nearest_of_all(queries, vectors, metric, k):
    """Rows by distance and number, each query for itself."""
    expected = []
    for number, query in enumerate(queries):
        distances = pair_distances(np.repeat(query[None], len(vectors), 0), vectors, metric)
        order = np.lexsort((np.arange(len(vectors)), distances))
        order = order[~np.isnan(distances[order])][:k]
        expected += [(number, distances[row], row) for row in order.tolist()]
    return expected


@given(
    seed=st.integers(0, 1000),
    metric=st.sampled_from(["l2", "cosine", "dot"]),
    k=st.sampled_from([1, 3, 50]),
    shift=st.sampled_from([0.0, 1e4]),
    dtype=st.sampled_from(["f2", "f4", "f8"]),
)
@settings(max_examples=40, deadline=None)
def test_the_nearest_rows_are_those_of_exact_distances(seed, metric, k, shift, dtype):
    rng = np.random.default_rng(seed)
    vectors = (rng.normal(size=(700, 5)) + shift).astype(dtype)
    vectors[rng.integers(0, 700, 30)] = vectors[rng.integers(0, 700, 30)]  # equal distances
    vectors[rng.integers(0, 700, 5)] = np.nan
    vectors[rng.integers(0, 700, 5)] = 0
    queries = (rng.normal(size=(3, 5)) + shift).astype(dtype)
    top = TopRows(3, k)
    search = ExactSearch(queries, metric, top)
    for start in range(0, 700, 333):
        search.add(vectors[start : start + 333], np.arange(start, min(start + 333, 700)))
    found = list(zip(*(column.tolist() for column in top.finish()), strict=True))
    assert found == nearest_of_all(queries, vectors, metric, k)


def test_rows_that_come_late_in_many_parts_are_ranked():
    rng = np.random.default_rng(0)
    distances = rng.random(20_000).round(3)
    top = TopRows(1, 7, lower=0.2, upper=0.9)
    for start in range(0, len(distances), 100):
        top.add(np.zeros(100, np.int64), distances[start : start + 100], np.arange(start, start + 100))
    inside = np.flatnonzero((distances >= 0.2) & (distances < 0.9))
    order = inside[np.lexsort((inside, distances[inside]))][:7]
    assert top.finish()[2].tolist() == order.tolist()


@given(
    seed=st.integers(0, 1000),
    metric=st.sampled_from(["l2", "dot"]),
    dtype=st.sampled_from(["f2", "f4", "f8"]),
    sizes=st.sampled_from([(4, 1, 1), (8, 1, 1), (8, 3, 3), (4, 3, 3), (8, 3, 1)]),
    scale=st.sampled_from([1.0, 1e-3, 1e18, 1e-20]),
)
@settings(max_examples=60, deadline=None)
def test_keys_of_entries_are_off_by_less_than_their_margins(seed, metric, dtype, sizes, scale):
    rng = np.random.default_rng(seed)
    num_bits, num_queries, num_compared = sizes
    scale = float(np.clip(scale, 1e-3, 10)) if dtype == "f2" else scale
    parts, size = 6, 3
    book = (rng.normal(size=(parts, 1 << num_bits, size)) * scale).astype(dtype)
    queries = (rng.normal(size=(num_queries, parts * size)) * scale).astype(dtype)
    computed = book.astype("f4") if dtype == "f2" else book
    comparison = EntryComparison(queries, computed, squares_of(computed), metric)
    members = np.arange(num_queries)[-num_compared:]
    partitions, expected = [], []
    for rows in (50, 1, 30):
        numbers = rng.integers(0, 1 << num_bits, (parts, rows))
        codes = numbers if num_bits == 8 else numbers[0::2] | numbers[1::2] << 4
        centroid = (rng.normal(size=parts * size) * scale).astype(dtype)
        partitions.append(OpenedPartition(codes=codes.astype(np.uint8), row_axis=1, centroid=centroid))
        stored = book[np.arange(parts)[:, None], numbers].transpose(1, 0, 2).reshape(rows, -1)
        residuals = queries - centroid if dtype == "f2" else queries.astype("f8") - centroid
        compared = queries if metric == "dot" else residuals
        expected.append([pair_distances(query[None], stored, metric) for query in compared[members]])
    exact = np.concatenate(expected, axis=1)
    few_keys, few_margins = comparison.keys(members, partitions, np.full(len(members), np.inf))
    assert not few_keys.any()
    assert np.isinf(few_margins).all()
    with mock.patch.object(entries, "_EXACT_ROWS", 0):
        for _ in range(2):  # later comparisons use what the first one leaves
            keys, margins = comparison.keys(members, partitions, np.full(len(members), np.inf))
            is_sure = np.isfinite(keys) & np.isfinite(margins)[:, None]
            assert is_sure.all() or scale == 1e18
            assert (np.abs(keys - exact)[is_sure] <= np.broadcast_to(margins[:, None], keys.shape)[is_sure]).all()
        limits = exact.min(axis=1) + abs(exact.min(axis=1)) * 0.01
        bounded, margins = comparison.keys(members, partitions, limits)
        is_near = keys <= (limits + margins)[:, None]
        assert (bounded == keys)[is_near].all()
    rows = RunRows(np.array([0, 2, 2]), np.array([49, 3, 29]))
    at = np.array([0, -1, 0])
    lines = {"queries": members[at], "rows": np.arange(3), "vectors": np.empty((3, 0))}
    found = CandidateRows(keys=np.zeros(3), margins=np.ones(3), **lines)
    better = comparison.candidates(found, partitions, rows)
    assert better.keys == pytest.approx(exact[at, np.array([0, 51, 51])[rows.owners] + rows.rows], rel=1e-12, abs=0)
    assert not better.margins.any()


def test_entries_are_put_together_in_bounded_memory(monkeypatch):
    monkeypatch.setattr(entries, "_BLOCK_ITEMS", 64)
    monkeypatch.setattr(entries, "_EXACT_ROWS", 0)
    sizes = []
    monkeypatch.setattr(entries, "products", lambda left, right: sizes.append(left.size) or products(left, right))
    rng = np.random.default_rng(0)
    book, codes = rng.normal(size=(4, 256, 2)), rng.integers(0, 256, (4, 100)).astype(np.uint8)
    partition = OpenedPartition(codes=codes, row_axis=1, centroid=np.zeros(8))
    EntryComparison(rng.normal(size=(2, 8)), book, squares_of(book), "l2").keys(
        np.arange(2), [partition], np.full(2, np.inf)
    )
    assert sum(sizes) == 800
    assert max(sizes) <= 64


def test_half_floats_are_widened_as_numpy_does():
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    finite = every[np.isfinite(every)]
    for halves in (every, finite, np.concatenate([np.tile(finite, 2), every[::-1]])[::3], finite[:0]):
        assert computable(halves).dtype == np.float32
        np.testing.assert_array_equal(computable(halves), halves.astype(np.float32))


def test_bytes_are_multiplied_some_rows_at_a_time(monkeypatch):
    monkeypatch.setattr(distances, "_WIDENED_BYTES", 40)
    rng = np.random.default_rng(0)
    levels, factors = rng.integers(0, 256, (25, 8), np.uint8), rng.integers(0, 256, (3, 8)).astype(np.float32)
    assert (products(levels, factors) == levels.astype(int) @ factors.T.astype(int)).all()


@pytest.mark.parametrize("count", [1, 5, 70, 400])
def test_products_in_pieces_are_those_of_matrices(count):
    rng = np.random.default_rng(0)
    vectors, factors = rng.normal(size=(100, 700)), rng.normal(size=(count, 700))
    assert products(vectors, factors) == pytest.approx(vectors @ factors.T)


def test_centroids_are_means_of_clusters_and_none_is_empty():
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(6, 4)) * 100
    sample = (centers[rng.integers(0, 6, 5000)] + rng.normal(size=(5000, 4))).astype(np.float32)
    centroids, loss = train_centroids(sample, 6, max_rounds=50, rng=rng)
    numbers, _ = nearest_centroids(sample, centroids)
    assert len(np.unique(numbers)) == 6
    assert loss < 5000 * 4 * 4000
    few, loss = train_centroids(sample[:3], 5, max_rounds=5, rng=rng)
    assert few.shape == (5, 4)
    assert loss == 0


@pytest.fixture
def table(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(500, 8)).astype(np.float32)
    column = pa.FixedSizeListArray.from_arrays(vectors.ravel(), 8)
    return lance_core.write_dataset(pa.table({"id": range(500), "v": column}), tmp_path / "t")


def test_recall_is_the_share_that_an_index_finds(table):
    assert measure_recall(table, "v") == 1
    table.create_index("v", "IVF_FLAT", num_partitions=16)
    table.create_index("v", "IVF_FLAT", metric="cosine", num_partitions=16, replace=True)
    few, every = (measure_recall(table, "v", k=5, num_queries=20, nprobes=nprobes) for nprobes in (1, 16))
    assert few < 0.9 < every == 1


@pytest.mark.parametrize("index_type", ["IVF_FLAT", "IVF_PQ"])
def test_partitions_of_a_search_are_read_together(table, monkeypatch, index_type):
    options = {"num_sub_vectors": 4, "num_bits": 4} if index_type == "IVF_PQ" else {}
    table.create_index("v", index_type, num_partitions=16, **options)
    nearest = {"column": "v", "q": np.ones(8), "k": 20, "nprobes": 16}
    read_ranges, reads = segment.read_ranges, []
    monkeypatch.setattr(segment, "read_ranges", lambda *asked: reads.append(asked[2]) or read_ranges(*asked))

    def search(run_bytes):
        reads.clear()
        monkeypatch.setattr(segment, "_RUN_BYTES", run_bytes)
        return lance_core.dataset(table.uri).to_table(nearest=nearest)

    expected = search(1 << 20)
    assert [len(ranges) for ranges in reads] == [16]
    assert search(4000) == expected
    assert 1 < len(reads) < 16
    assert search(0) == expected
    assert len(reads) == 16


def test_tasks_join_queries_with_their_nearest_rows(table):
    vectors = table.to_table(columns=["v"])["v"].to_pylist()
    queries = pa.record_batch({"name": ["x", "none", "y"], "q": [vectors[3], None, vectors[9]]})
    (found,) = search_batches(
        iter([queries]),
        uri=table.uri,
        version=table.version,
        storage_options=None,
        query_column="q",
        columns=["id"],
        condition="id > 5",
        nearest={"column": "v", "k": 2},
    )
    assert found.schema.names == ["name", "q", "id", "_distance"]
    assert found["name"].to_pylist() == ["x", "x", "y", "y"]
    assert found["id"][2].as_py() == 9
    assert min(found["id"].to_pylist()) > 5
