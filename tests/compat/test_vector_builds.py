"""Vector indices that lance_core builds: pylance searches and extends them, and they find as much as its own."""

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import AlreadyExistsError, InvalidInputError, UnsupportedError

SIZE = 8
ROWS = 600
TYPES = {"f2": pa.float16(), "f4": pa.float32(), "f8": pa.float64(), "u1": pa.uint8()}
PARTS = {"num_sub_vectors": 4, "num_bits": 4}
METRICS, FLOATS = ("l2", "cosine", "dot"), ("f2", "f4", "f8")
KINDS = [
    ("IVF_FLAT", "u1", "hamming", {}),
    ("IVF_PQ", "f4", "cosine", {"num_sub_vectors": 4}),
    *(
        (index_type, kind, metric, options)
        for index_type, options in (("IVF_FLAT", {}), ("IVF_PQ", PARTS), ("IVF_SQ", {}))
        for kind in FLOATS
        for metric in METRICS
    ),
]


def vectors(kind="f4", rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.integers(0, 256, (rows, SIZE)).astype(kind) if kind == "u1" else rng.normal(size=(rows, SIZE)).astype(kind)
    )


def table(rows, kind="f4", first=0):
    values = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1), TYPES[kind]), SIZE)
    return pa.table({"id": pa.array(range(first, first + len(rows))), "v": values})


def search(dataset, query, **options):
    nearest = {"column": "v", "q": query, "k": 10, **options}
    return dataset.to_table(columns=["id", "_distance"], nearest=nearest)


def assert_both_find_the_same(path, query, **options):
    ours, theirs = search(lance_core.dataset(path), query, **options), search(lance.dataset(path), query, **options)
    np.testing.assert_allclose(ours["_distance"], theirs["_distance"], rtol=1e-4, atol=2e-4)
    return ours


def share_found(dataset, queries, metric, **options):
    """Of the nearest ten, by comparing all vectors, the share that an index finds."""
    shares = []
    for query in queries:
        exact = set(search(dataset, query, metric=metric, use_index=False)["id"].to_pylist())
        shares.append(len(exact & set(search(dataset, query, **options)["id"].to_pylist())) / len(exact))
    return np.mean(shares)


@pytest.mark.parametrize(("index_type", "kind", "metric", "options"), KINDS)
def test_pylance_searches_an_index_and_it_finds_as_much_as_its_own(tmp_path, index_type, kind, metric, options):
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    for path in (ours, theirs):
        lance.write_dataset(table(vectors(kind), kind), path, max_rows_per_file=ROWS // 2)
    asked = {"metric": metric, "num_partitions": 4, **options}
    lance_core.dataset(ours).create_index("v", index_type, **asked)
    lance.dataset(theirs).create_index("v", index_type, **asked)
    (described,) = lance_core.dataset(ours).describe_indices()
    assert described.index_type == lance.dataset(ours).describe_indices()[0].index_type == index_type
    queries = vectors(kind, 10, seed=1)
    assert "ANNSubIndex" in lance.dataset(ours).scanner(nearest={"column": "v", "q": queries[0]}).explain_plan()
    for probing in ({"nprobes": 2}, {"nprobes": 4, "refine_factor": 4}):
        assert_both_find_the_same(ours, queries[0], **probing)
        share = share_found(lance_core.dataset(ours), queries, metric, **probing)
        assert share >= share_found(lance.dataset(theirs), queries, metric, **probing) - 0.25


@pytest.mark.parametrize(("index_type", "options"), [("IVF_FLAT", {}), ("IVF_PQ", PARTS), ("IVF_SQ", {})])
@pytest.mark.parametrize("stable", [False, True])
def test_an_index_is_extended_merged_moved_and_trained_anew(tmp_path, index_type, options, stable):
    path = str(tmp_path / "t")
    lance.write_dataset(table(vectors()), path, max_rows_per_file=ROWS // 2, enable_stable_row_ids=stable)
    query = vectors(rows=1, seed=1)[0]
    dataset = lance_core.dataset(path)
    dataset.create_index("v", index_type, num_partitions=4, **options)

    def check(segments, unindexed=0, has_dead_ids=False):
        statistics = lance.dataset(path).stats.index_stats("v_idx")
        assert (statistics["num_indices"], statistics["num_unindexed_rows"]) == (segments, unindexed)
        if not has_dead_ids:
            assert_both_find_the_same(path, query, nprobes=4)
        ours = search(lance_core.dataset(path), query, nprobes=4, refine_factor=20)
        assert ours.equals(search(lance_core.dataset(path), query, use_index=False))

    lance_core.write_dataset(table(vectors(rows=100, seed=2), first=ROWS), path, mode="append")
    check(1, 100)
    dataset = lance_core.dataset(path)
    dataset.optimize.optimize_indices(num_indices_to_merge=0)
    check(2)
    dataset.optimize.optimize_indices()
    check(1)
    dataset.delete("id % 3 = 0")
    dataset.update({"id": "id + 10000"}, where="id < 50")
    dataset.optimize.compact_files()
    dataset.optimize.optimize_indices()
    check(1, has_dead_ids=stable)  # pylance ranks them among the nearest, and finds fewer rows
    dataset.optimize.optimize_indices(retrain=True)
    check(1)
    lance_core.write_dataset(table(vectors(rows=50, seed=3), first=5000), path, mode="append")
    lance.dataset(path).optimize.optimize_indices()
    check(lance_core.dataset(path).index_statistics("v_idx")["num_indices"])


def test_given_centroids_and_codebook_are_used(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(table(vectors()), path)
    dataset = lance_core.dataset(path)
    centroids, book = vectors(rows=3, seed=5), vectors(rows=16, seed=6).reshape(4, 16, 2)
    dataset.create_index("v", "IVF_PQ", ivf_centroids=centroids, pq_codebook=book, **PARTS)
    segment = lance.dataset(path).stats.index_stats("v_idx")["indices"][0]
    np.testing.assert_allclose(segment["centroids"], centroids)
    assert_both_find_the_same(path, vectors(rows=1, seed=1)[0], nprobes=3)
    assert dataset.index_statistics("v_idx")["indices"][0]["num_partitions"] == 3


@pytest.mark.parametrize("index_type", ["IVF_FLAT", "IVF_PQ", "IVF_SQ"])
@pytest.mark.parametrize("metric", METRICS)
def test_null_and_odd_vectors_are_left_out(tmp_path, index_type, metric):
    path = str(tmp_path / "t")
    rows = vectors().tolist()
    rows[3], rows[4], rows[5][0], rows[6] = None, [float("nan")] * SIZE, float("inf"), [0.0] * SIZE
    column = pa.array(rows, pa.list_(pa.float32(), SIZE))
    lance.write_dataset(pa.table({"id": range(ROWS), "v": column}), path)
    options = PARTS if index_type == "IVF_PQ" else {}
    lance_core.dataset(path).create_index("v", index_type, metric=metric, num_partitions=2, **options)
    found = assert_both_find_the_same(path, vectors(rows=1, seed=1)[0], k=ROWS, nprobes=2)
    left_out = {3, 4, 5, 6} if metric == "cosine" else {3, 4, 5}
    assert set(range(ROWS)) - set(found["id"].to_pylist()) == left_out


def test_wrong_builds_are_refused(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(table(vectors(rows=50)), path)
    dataset = lance_core.dataset(path)
    for arguments, error in (
        (("v", "IVF_PQ"), InvalidInputError),
        (("v", "IVF_RQ"), UnsupportedError),
        (("v", "IVF_HNSW_SQ"), UnsupportedError),
        (("v", "IVF_XY"), InvalidInputError),
        (("id", "IVF_FLAT"), UnsupportedError),
        (("w", "IVF_FLAT"), InvalidInputError),
        (("v", "IVF_FLAT", "v_idx", "hamming"), InvalidInputError),
    ):
        with pytest.raises(error):
            dataset.create_index(*arguments)
    for name in ("num_partitions", "num_sub_vectors", "sample_rate", "max_iters"):
        with pytest.raises(InvalidInputError, match=f"'{name}' must be"):
            dataset.create_index("v", "IVF_PQ", **{"num_sub_vectors": 4, name: 0})
    with pytest.raises(InvalidInputError, match="divide"):
        dataset.create_index("v", "IVF_PQ", num_sub_vectors=3)
    dataset.create_index("v", "IVF_FLAT")
    with pytest.raises(AlreadyExistsError):
        dataset.create_index("v", "IVF_SQ")
    dataset.create_index("v", "IVF_SQ", replace=True)
    assert dataset.describe_indices()[0].index_type == "IVF_SQ"
    with pytest.raises(InvalidInputError, match="no vectors"):
        dataset.create_index("v", "IVF_FLAT", "empty", fragment_ids=[])


def test_an_audit_finds_rows_that_are_missing_or_too_many(tmp_path):
    path = str(tmp_path / "t")
    lance.write_dataset(table(vectors(rows=60)), path)
    dataset = lance_core.dataset(path)
    dataset.create_index("v", "IVF_FLAT", num_partitions=2)
    assert lance_core.verify(path, level="indices").is_ok
    (index,) = dataset.snapshot.manifest.indices
    folder = tmp_path / "t" / "_indices" / index.uuid_text
    other = str(tmp_path / "other")
    lance.write_dataset(pa.concat_tables([table(vectors(rows=59)), table(vectors(rows=59)[:1])]), other)
    lance_core.dataset(other).delete("id = 58")
    lance_core.dataset(other).create_index("v", "IVF_FLAT", num_partitions=2)
    (wrong,) = (tmp_path / "other" / "_indices").iterdir()
    for file in folder.iterdir():
        file.write_bytes((wrong / file.name).read_bytes())
    report = lance_core.verify(path, level="indices")
    assert any("no entries for 1 rows (offsets 58)" in problem.message for problem in report.problems)
    assert lance_core.repair(path) == {"v_idx": "rebuilt"}
    after = lance_core.verify(path, level="indices")
    assert [problem for problem in after.problems if problem.version == after.version] == []


@pytest.mark.parametrize("index_type", ["IVF_FLAT", "IVF_PQ", "IVF_SQ"])
@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
def test_vectors_of_infinite_length_are_left_out_as_in_pylance(tmp_path, index_type, metric):
    rows = vectors()
    rows[5], rows[6, 0], rows[7, :2] = np.inf, -np.inf, np.finfo(np.float32).max / 2
    path = str(tmp_path / "t")
    lance.write_dataset(table(rows), path)
    options = PARTS if index_type == "IVF_PQ" else {}
    built = lance_core.dataset(path).create_index("v", index_type, metric=metric, num_partitions=2, **options)
    every = {"k": ROWS, "nprobes": 2}
    ids = assert_both_find_the_same(path, rows[0], **every)["id"].to_pylist()
    assert sorted(ids) == sorted(set(range(ROWS)) - {5, 6, 7})
    refined = assert_both_find_the_same(path, rows[0], **every, refine_factor=2)
    exact = search(built, rows[0], k=ROWS, metric=metric, use_index=False)
    expected = dict(zip(exact["id"].to_pylist(), exact["_distance"].to_pylist(), strict=True))
    wanted = [expected[number] for number in refined["id"].to_pylist()]
    np.testing.assert_allclose(refined["_distance"], wanted, rtol=1e-5, atol=1e-5)
    assert built.verify(level="indices").is_ok
