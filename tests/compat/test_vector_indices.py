"""Vector indices of pylance are searched: the same rows and distances, whatever happened to the table since."""

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.index.vector import entries
from lance_core.index.vector.candidates import Candidates

SIZE = 8
ROWS = 400
TYPES = {"f2": pa.float16(), "f4": pa.float32(), "f8": pa.float64(), "u1": pa.uint8()}
PARTS = {"num_sub_vectors": 4}
KINDS = [
    *(("IVF_FLAT", kind, {}) for kind in ("f2", "f4", "f8")),
    ("IVF_PQ", "f4", PARTS),
    ("IVF_PQ", "f2", {**PARTS, "num_bits": 4}),
    ("IVF_PQ", "f8", {**PARTS, "num_bits": 4}),
    *(("IVF_SQ", kind, {}) for kind in ("f2", "f4", "f8")),
    ("IVF_HNSW_FLAT", "f4", {}),
    ("IVF_HNSW_SQ", "f4", {}),
    ("IVF_HNSW_PQ", "f4", PARTS),
]


@pytest.fixture(autouse=True)
def few_rows_are_fewer(monkeypatch):
    """Tables are small: without this no codes of entries were looked up in tables."""
    monkeypatch.setattr(entries, "_EXACT_ROWS", 40)


def vectors(kind="f4", rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.integers(0, 256, (rows, SIZE)).astype(kind) if kind == "u1" else rng.normal(size=(rows, SIZE)).astype(kind)
    )


def table(rows, kind="f4", first=0):
    values = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1), TYPES[kind]), SIZE)
    return pa.table({"id": pa.array(range(first, first + len(rows))), "v": values})


def write(path, kind="f4", index_type="IVF_FLAT", metric="l2", stable=False, **options):
    dataset = lance.write_dataset(
        table(vectors(kind), kind), path, max_rows_per_file=ROWS // 2, enable_stable_row_ids=stable
    )
    dataset.create_index("v", index_type, metric=metric, num_partitions=4, **options)
    return dataset


def assert_same_search(path, q, k=10, condition=None, fast_search=None, **options):
    """Codes are coarse: rows whose distances are equal may come in either order, and either may be the last."""
    asked = {"columns": ["id"], "filter": condition, "prefilter": condition is not None, "fast_search": fast_search}
    nearest = {"column": "v", "q": q, "k": k, **options}
    theirs = lance.dataset(path).to_table(nearest=nearest, **asked)
    ours = lance_core.dataset(path).to_table(nearest=nearest, **asked)
    assert ours.schema == theirs.schema
    np.testing.assert_allclose(ours["_distance"], theirs["_distance"], rtol=1e-4, atol=1e-4)
    last = max(theirs["_distance"].to_pylist(), default=0) - 1e-4
    sure = {row["id"] for row in theirs.to_pylist() if row["_distance"] < last}
    assert sure <= set(ours["id"].to_pylist())
    return ours


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
@pytest.mark.parametrize(("index_type", "kind", "options"), KINDS)
def test_an_index_gives_the_same_rows_as_in_pylance(tmp_path, index_type, kind, options, metric):
    path = str(tmp_path / "t")
    dataset = write(path, kind, index_type, metric, **options)
    queries = vectors(kind, 3, seed=1)
    for probing in ({"nprobes": 2}, {"nprobes": 4, "refine_factor": 3}, {"nprobes": 4, "distance_range": (0.5, 6.0)}):
        assert_same_search(path, queries[0], **probing)
    assert_same_search(path, queries, nprobes=2)
    assert_same_search(path, queries[0], condition="id % 3 = 0", nprobes=4)
    dataset.delete("id % 4 = 1")
    lance.write_dataset(table(vectors(kind, 100, seed=2), kind, ROWS), path, mode="append")
    # All rows: of those whose codes are equally far either library takes others, whose exact distances differ.
    assert_same_search(path, queries[0], ROWS, nprobes=4)
    assert_same_search(path, queries[0], nprobes=4, fast_search=True)
    lance.dataset(path).optimize.optimize_indices(num_indices_to_merge=0)
    found = assert_same_search(path, queries[0], 100, nprobes=4)
    assert max(found["id"].to_pylist()) >= ROWS


def test_bits_are_searched_by_hamming_distance(tmp_path):
    path = str(tmp_path / "t")
    write(path, "u1", "IVF_FLAT", "hamming")
    assert_same_search(path, vectors("u1", 1, seed=1)[0], nprobes=2)


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize(("index_type", "options"), [("IVF_FLAT", {}), ("IVF_PQ", PARTS), ("IVF_SQ", {})])
def test_rows_that_changed_or_moved_are_found_as_in_pylance(tmp_path, stable, index_type, options):
    path = str(tmp_path / "t")
    dataset = write(path, index_type=index_type, stable=stable, **options)
    query = vectors(rows=1, seed=1)[0]
    dataset.delete("id < 50")
    dataset.merge_insert("id").when_matched_update_all().execute(table(vectors(rows=20, seed=3), first=100))
    assert_same_search(path, query, 60, nprobes=4)
    lance.dataset(path).optimize.compact_files()
    assert_same_search(path, query, 60, nprobes=4)
    lance_core.dataset(path).optimize.compact_files()
    assert_same_search(path, query, 60, nprobes=4)


@pytest.mark.parametrize("index_type", ["IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_HNSW_SQ"])
@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_null_and_odd_vectors_are_left_out_as_in_pylance(tmp_path, index_type, metric):
    rows = vectors().tolist()
    rows[3], rows[4], rows[5][0], rows[6] = None, [float("nan")] * SIZE, float("nan"), [0.0] * SIZE
    path = str(tmp_path / "t")
    dataset = lance.write_dataset(
        pa.table({"id": range(ROWS), "v": pa.array(rows, pa.list_(pa.float32(), SIZE))}), path
    )
    options = {**PARTS, "num_bits": 4} if index_type == "IVF_PQ" else {}
    dataset.create_index("v", index_type, metric=metric, num_partitions=4, **options)
    found = assert_same_search(path, vectors(rows=1, seed=1)[0], ROWS, nprobes=4)
    left_out = {3, 4, 5, 6} if metric == "cosine" else {3, 4, 5}
    assert set(range(ROWS)) - set(found["id"].to_pylist()) == left_out
    assert lance_core.verify(path, level="indices").is_ok


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize(
    ("index_type", "options"),
    [("IVF_FLAT", {}), ("IVF_PQ", PARTS), ("IVF_SQ", {}), ("IVF_RQ", {}), ("IVF_RQ", {"num_bits": 5})],
)
def test_a_filter_of_any_share_finds_the_nearest_of_its_rows(tmp_path, index_type, options, stable):
    path = str(tmp_path / "t")
    dataset = write(path, index_type=index_type, stable=stable, **options)
    dataset.delete("id % 5 = 2")
    queries = vectors(rows=3, seed=1)

    def found(query, k, condition=None, fragments=None, **probing):
        nearest = {"column": "v", "q": query, "k": k, "metric": "l2", **probing}
        ours = lance_core.dataset(path)
        chosen = None if fragments is None else [ours.get_fragment(number) for number in fragments]
        scanner = ours.scanner(nearest=nearest, filter=condition, prefilter=True, columns=["id"], fragments=chosen)
        # Sums of products of float32 depend on how many rows there are.
        return [(row["id"], pytest.approx(row["_distance"], rel=1e-5)) for row in scanner.to_table().to_pylist()]

    for query in queries:
        every = found(query, ROWS, nprobes=4)
        assert len(every) == ROWS * 4 // 5
        for condition, keeps in {
            "id IN (3, 210, 399)": lambda row: row in {3, 210, 399},
            "id % 40 = 1": lambda row: row % 40 == 1,
            "id < 60": lambda row: row < 60,
            "id % 3 = 0": lambda row: row % 3 == 0,
            "id >= 390 OR id < 380": lambda row: row >= 390 or row < 380,
            "id < 0": lambda row: row < 0,
        }.items():
            expected = [row for row in every if keeps(row[0])]
            assert found(query, 5, condition, nprobes=4) == expected[:5], condition
            assert found(query, ROWS, condition) == expected, condition
            second = [row for row in expected if row[0] >= ROWS // 2]
            assert found(query, 5, condition, [1], nprobes=4) == second[:5], condition
        assert found(query, 7, fragments=[0], nprobes=4) == [row for row in every if row[0] < ROWS // 2][:7]
    together = found(queries, 5, "id % 40 = 1", nprobes=4)
    assert together == [row for query in queries for row in found(query, 5, "id % 40 = 1", nprobes=4)]


def test_without_a_number_of_partitions_enough_rows_are_found(tmp_path):
    path = str(tmp_path / "t")
    write(path)
    query = vectors(rows=1, seed=1)[0]
    for k, condition in ((5, None), (ROWS, None), (50, "id % 7 = 0")):
        nearest = {"column": "v", "q": query, "k": k}
        found = lance_core.dataset(path).to_table(nearest=nearest, filter=condition, prefilter=True)
        assert len(found) == min(k, ROWS)
    nearest["maximum_nprobes"] = 1
    assert len(lance_core.dataset(path).to_table(nearest=nearest, filter="id % 7 = 0", prefilter=True)) < 50


def test_another_metric_than_the_index_has_compares_all_vectors(tmp_path):
    path = str(tmp_path / "t")
    write(path, index_type="IVF_PQ", **PARTS)
    query = vectors(rows=1, seed=1)[0]
    exact = assert_same_search(path, query, metric="dot")
    assert exact.equals(assert_same_search(path, query, metric="dot", use_index=False))


def test_an_index_of_too_few_vectors_to_train_is_no_damage(tmp_path):
    """pylance writes its entry, which covers nothing, and no files."""
    path = str(tmp_path / "t")
    lance.write_dataset(table(vectors(rows=60)), path)
    lance.dataset(path).create_index("v", "IVF_HNSW_PQ", num_partitions=2, **PARTS)
    assert not list((tmp_path / "t").glob("_indices/*/*"))
    assert lance_core.verify(path, level="indices").is_ok
    assert len(assert_same_search(path, vectors(rows=1, seed=1)[0])) == 10


@pytest.mark.parametrize(("index_type", "options"), [("IVF_FLAT", {}), ("IVF_PQ", PARTS)])
def test_ranges_of_distances_are_searched_partition_by_partition(tmp_path, index_type, options, monkeypatch):
    path = str(tmp_path / "t")
    write(path, index_type=index_type, **options)
    queries = vectors(rows=2, seed=1)
    held = []
    monkeypatch.setattr(Candidates, "_rank", watched(Candidates._rank, lambda self: held.append(self._num_pending)))
    for q in (queries[0], queries):
        for bounds in ((0.5, None), (2.0, 9.0)):
            assert_same_search(path, q, k=ROWS, distance_range=bounds, nprobes=4)
    largest = max(
        part["size"] for part in lance_core.dataset(path).index_statistics("v_idx")["indices"][0]["partitions"]
    )
    assert 0 < max(held) <= len(queries) * largest


def watched(function, tell):
    def call(self):
        tell(self)
        function(self)

    return call
