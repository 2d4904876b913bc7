"""Exact search for the nearest vectors: the same rows and distances as pylance, for types, metrics and odd values."""

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import InvalidInputError

SIZE = 8
ROWS = 300
TYPES = {"f2": pa.float16(), "f4": pa.float32(), "f8": pa.float64(), "u1": pa.uint8()}


def vectors(kind, rows=ROWS, seed=0):
    rng = np.random.default_rng(seed)
    return (
        rng.integers(0, 256, (rows, SIZE)).astype(kind) if kind == "u1" else rng.normal(size=(rows, SIZE)).astype(kind)
    )


def column(matrix, kind):
    return pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1), TYPES[kind]), matrix.shape[1])


def write(path, kind="f4", fragments=3):
    rows = vectors(kind)
    table = pa.table({"id": pa.array(range(len(rows))), "v": column(rows, kind)})
    lance.write_dataset(table, path, max_rows_per_file=-(-len(rows) // fragments))
    return rows


def assert_same_search(path, **asked):
    """Rows whose distances differ by less than a rounding error may come in either order."""
    theirs, ours = lance.dataset(path).to_table(**asked), lance_core.dataset(path).to_table(**asked)
    assert ours.schema.names == theirs.schema.names
    assert ours.schema.types == theirs.schema.types
    assert len(ours) == len(theirs)
    if "_distance" in ours.schema.names:
        np.testing.assert_allclose(ours["_distance"], theirs["_distance"], rtol=1e-4, atol=1e-4)
    differing = [name for name in ours.schema.names if name != "_distance"]
    assert sorted(map(repr, ours.select(differing).to_pylist())) == sorted(
        map(repr, theirs.select(differing).to_pylist())
    )
    return ours


@pytest.mark.parametrize(
    ("kind", "metric"),
    [*((kind, metric) for kind in ("f2", "f4", "f8") for metric in ("l2", "cosine", "dot")), ("u1", "hamming")],
)
def test_rows_and_distances_equal_those_of_pylance(tmp_path, kind, metric):
    rows = write(tmp_path / "t", kind)
    query = vectors(kind, 3, seed=1)
    for q in (rows[5], query[0], query):
        for k in (1, 10, ROWS + 1):
            nearest = {"column": "v", "q": q, "k": k, "metric": metric}
            found = assert_same_search(str(tmp_path / "t"), columns=["id"], nearest=nearest)
    assert found.schema.names == ["query_index", "id", "_distance"]


def test_odd_vectors_are_left_out_as_in_pylance(tmp_path):
    rows = vectors("f4", 20).tolist()
    rows[3] = None
    rows[5] = [float("nan")] * SIZE
    rows[7] = [0.0] * SIZE
    rows[8] = rows[9]
    rows[11][0], rows[12][0], rows[13][0] = float("nan"), float("inf"), None
    table = pa.table({"id": range(20), "v": pa.array(rows, pa.list_(pa.float32(), SIZE))})
    path = str(tmp_path / "t")
    lance.write_dataset(table, path)
    for metric in ("l2", "cosine", "dot"):
        nearest = {"column": "v", "q": [0.1] * SIZE, "k": 30, "metric": metric}
        found = assert_same_search(path, columns=["id"], nearest=nearest)
    assert found["id"].to_pylist()[0] == 12  # the infinite one
    nearest["q"] = [float("nan")] * SIZE
    assert not len(assert_same_search(path, columns=["id"], nearest=nearest))


def test_filters_limits_and_columns_are_those_of_pylance(tmp_path):
    write(tmp_path / "t")
    path = str(tmp_path / "t")
    lance.dataset(path).delete("id % 5 = 0")
    nearest = {"column": "v", "q": [0.2] * SIZE, "k": 12}
    for asked in (
        {},
        {"columns": []},
        {"columns": ["_distance", "id"]},
        {"columns": ["_rowid", "_distance", "_rowaddr", "_rowoffset"]},
        {"columns": {"next": "id + 1", "near": "_distance < 5"}},
        {"columns": ["id"], "with_row_id": True, "with_row_address": True},
        {"columns": ["id"], "filter": "id % 2 = 0"},
        {"columns": ["v"], "filter": "id % 2 = 0 AND _distance < 5"},
        {"columns": ["id"], "filter": "id % 2 = 0", "prefilter": True},
        {"columns": ["id"], "filter": "id > 5000", "prefilter": True},
        {"columns": ["id"], "limit": 4, "offset": 3},
        {"columns": ["id"], "order_by": ["id"]},
    ):
        assert_same_search(path, nearest=nearest, **asked)
    for bounds in ((1.0, 5.0), (None, 5.0), (5.0, None), (3.0, 1.0)):
        assert_same_search(path, columns=["id"], nearest={**nearest, "distance_range": bounds})


def test_lists_of_vectors_are_searched_by_their_best_ones(tmp_path):
    rows = vectors("f4")
    lists = [rows[at : at + 1 + at % 3].tolist() for at in range(0, ROWS, 3)]
    lists[4], lists[5] = [], None
    table = pa.table({"id": range(len(lists)), "v": pa.array(lists, pa.list_(pa.list_(pa.float32(), SIZE)))})
    lance.write_dataset(table, tmp_path / "t")
    for metric in ("l2", "cosine", "dot"):
        for q in (rows[3], rows[3:6]):
            nearest = {"column": "v", "q": q, "k": 7, "metric": metric}
            assert_same_search(str(tmp_path / "t"), columns=["id"], nearest=nearest)


def test_vectors_inside_of_structs_are_searched(tmp_path):
    inner = pa.StructArray.from_arrays([column(vectors("f4"), "f4")], ["v"])
    lance.write_dataset(pa.table({"id": range(ROWS), "s": inner}), tmp_path / "t")
    assert_same_search(str(tmp_path / "t"), columns=["id"], nearest={"column": "s.v", "q": [0.1] * SIZE, "k": 5})


@pytest.mark.parametrize(
    ("nearest", "words"),
    [
        ({"column": "v", "q": [1.0]}, "1 dimensions"),
        ({"column": "v", "q": "text"}, "vector of numbers"),
        ({"column": "v"}, "needs 'q'"),
        ({"column": "id", "q": [1.0] * SIZE}, "holds no vectors"),
        ({"column": "w", "q": [1.0] * SIZE}, "no column 'w'"),
        ({"column": "v", "q": [1.0] * SIZE, "k": 0}, "'k' must be"),
        ({"column": "v", "q": [1.0] * SIZE, "kk": 1}, "no option 'kk'"),
        ({"column": "v", "q": [1.0] * SIZE, "metric": "l3"}, "'l3'"),
        ({"column": "v", "q": [1.0] * SIZE, "metric": "hamming"}, "not by hamming"),
        ({"column": "v", "q": [1.0] * SIZE, "distance_range": 3}, "must be a pair"),
        ({"column": "v", "q": [1.0] * SIZE, "distance_range": (0, "far")}, "a pair of numbers"),
        ([1.0] * SIZE, "must be a dict .*, not list"),
        ({"column": "v", "q": [1.0] * SIZE, "minimum_nprobes": 3, "maximum_nprobes": 2}, "is more than"),
    ],
)
def test_wrong_searches_are_refused(tmp_path, nearest, words):
    write(tmp_path / "t")
    with pytest.raises(InvalidInputError, match=words):
        lance_core.dataset(tmp_path / "t").to_table(nearest=nearest)


@pytest.mark.parametrize("number", [256.0, -1.0])
def test_queries_outside_of_uint8_are_refused(tmp_path, number):
    """pylance 14.0.2 takes 0 instead."""
    write(tmp_path / "t", "u1")
    with pytest.raises(InvalidInputError, match="from 0 to 255"):
        lance_core.dataset(tmp_path / "t").to_table(nearest={"column": "v", "q": [number] * SIZE})
