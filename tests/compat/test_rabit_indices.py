"""RaBitQ indices (IVF_RQ) of pylance are searched: the same rows and distances, for all bits and rotations."""

import json

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.dataset import Index
from lance.file import LanceFileReader, LanceFileWriter

import lance_core
from lance_core._proto import vector_pb2
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.index.rabit import FAST_ROUNDS
from lance_core.format.table.index_metadata import index_fields
from lance_core.index.vector import rabit
from lance_core.index.vector.rabit import rotated_fast

ROWS, PARTITIONS = 700, 3
TYPES = {"f2": pa.float16(), "f4": pa.float32(), "f8": pa.float64()}


def vectors(size, rows=ROWS, seed=0, kind="f4"):
    return np.random.default_rng(seed).normal(0.2, size=(rows, size)).astype(kind)


def table(matrix, first=0):
    values = pa.array(matrix.reshape(-1), TYPES[matrix.dtype.str[1:]])
    column = pa.FixedSizeListArray.from_arrays(values, matrix.shape[1])
    return pa.table({"id": pa.array(range(first, first + len(matrix))), "v": column})


def write(path, matrix, metric="l2", stable=False, **options):
    dataset = lance.write_dataset(
        table(matrix), path, max_rows_per_file=-(-len(matrix) // 2), enable_stable_row_ids=stable
    )
    dataset.create_index("v", "IVF_RQ", metric=metric, num_partitions=PARTITIONS, **options)
    return dataset


def search(library, path, q, k, condition=None, **options):
    nearest = {"column": "v", "q": q, "k": k, "nprobes": PARTITIONS, **options}
    columns = ["id", "_distance"]
    return library.dataset(path).to_table(columns, nearest=nearest, filter=condition, prefilter=condition is not None)


def assert_same_search(path, q, k=20, condition=None, **options):
    """pylance leaves rows out whose estimate by the sign alone is bad, rarely even if it is asked for all rows."""
    ours = search(lance_core, path, q, k, condition, **options)
    theirs = search(lance, path, q, ROWS * 2, condition, **options)
    found, known = (dict(zip(*rows.to_pydict().values(), strict=True)) for rows in (ours, theirs))
    both = [row for row in found if row in known]
    assert len(found) >= min(k, len(known))
    assert len(both) >= len(found) - 1
    np.testing.assert_allclose([found[row] for row in both], [known[row] for row in both], rtol=1e-5, atol=1e-4)
    last = max(found.values(), default=0) - 2e-4
    assert {row for row, distance in known.items() if distance < last} <= set(found)
    return ours


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
@pytest.mark.parametrize(
    ("num_bits", "size"), [(1, 64), (1, 8), (2, 24), (3, 96), (4, 72), (5, 64), (6, 136), (7, 64), (8, 40), (9, 96)]
)
def test_rows_and_distances_are_those_of_pylance(tmp_path, metric, num_bits, size):
    path = str(tmp_path / "t")
    write(path, vectors(size), metric, num_bits=num_bits)
    queries = vectors(size, 2, seed=1)
    for k in (1, 20, ROWS):
        assert_same_search(path, queries[0], k)
    assert_same_search(path, queries[1], nprobes=1)
    assert_same_search(path, queries[0], condition="id % 7 = 3")
    together = search(lance_core, path, queries, 20)
    apart = [search(lance_core, path, query, 20) for query in queries]
    np.testing.assert_allclose(together["_distance"], np.concatenate([found["_distance"] for found in apart]), 1e-6)
    exact = search(lance_core, path, queries[0], 5, use_index=False, metric=metric)
    refined = search(lance_core, path, queries[0], 5, refine_factor=ROWS // 5)
    assert refined["id"].equals(exact["id"])
    np.testing.assert_allclose(refined["_distance"], exact["_distance"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
@pytest.mark.parametrize("kind", ["f2", "f8"])
def test_vectors_of_other_types_are_searched(tmp_path, kind, metric):
    path = str(tmp_path / "t")
    write(path, vectors(40, kind=kind), metric)
    assert_same_search(path, vectors(40, 1, seed=1, kind=kind)[0])


def test_rows_that_pylance_finds_are_never_nearer(tmp_path):
    """At k rows pylance drops some by an estimate; what it finds is never nearer than what is found here."""
    path = str(tmp_path / "t")
    write(path, vectors(64))
    for query in vectors(64, 20, seed=1):
        ours, theirs = (np.asarray(search(library, path, query, 10)["_distance"]) for library in (lance_core, lance))
        assert (ours <= theirs + 1e-3).all()


@pytest.mark.parametrize("metric", ["l2", "cosine", "dot"])
@pytest.mark.parametrize(("num_bits", "size"), [(1, 64), (2, 48), (5, 128), (9, 96)])
def test_rows_that_are_left_out_by_their_products_are_not_among_the_nearest(
    tmp_path, monkeypatch, metric, num_bits, size
):
    path = str(tmp_path / "t")
    rng = np.random.default_rng(2)
    matrix = (vectors(size, 40, seed=3)[rng.integers(0, 40, 8000)] * 2 + rng.normal(size=(8000, size))).astype("f4")
    write(path, matrix, metric, num_bits=num_bits)
    compared, keys, candidates = [], rabit.RabitComparison.keys, rabit.RabitComparison.candidates

    def counted(self, hits, opened, rows):
        compared.append(len(hits.keys))
        return candidates(self, hits, opened, rows)

    def unsure(self, members, opened, limits):
        found, margins = keys(self, members, opened, limits)
        return found, np.full_like(margins, np.inf)

    monkeypatch.setattr(rabit.RabitComparison, "candidates", counted)
    for condition in (None, "id % 3 > 0"):
        for query in matrix[::1000] + np.float32(0.1):
            found = search(lance_core, path, query, 15, condition)
            count = sum(compared)
            with monkeypatch.context() as patched:
                patched.setattr(rabit.RabitComparison, "keys", unsure)
                compared.clear()
                every = search(lance_core, path, query, 15, condition)
            assert found.equals(every)
            assert count < sum(compared)
            compared.clear()
            theirs = np.asarray(search(lance, path, query, 15, condition)["_distance"])
            assert (np.asarray(found["_distance"]) <= theirs + 1e-3).all()


def test_codes_that_were_not_put_in_blocks_are_searched(tmp_path):
    path = str(tmp_path / "t")
    write(path, vectors(64), skip_transpose=True)
    assert not details_of(path)["packed"]
    assert_same_search(path, vectors(64, 1, seed=1)[0])


def test_null_and_odd_vectors_are_left_out(tmp_path):
    rows = vectors(16, 300).tolist()
    rows[3], rows[5], rows[7] = None, [float("nan")] * 16, [0.0] * 16
    path = str(tmp_path / "t")
    column = pa.array(rows, pa.list_(pa.float32(), 16))
    dataset = lance.write_dataset(pa.table({"id": range(300), "v": column}), path)
    dataset.create_index("v", "IVF_RQ", num_partitions=2)
    found = assert_same_search(path, [0.1] * 16, 300)
    assert set(range(300)) - set(found["id"].to_pylist()) == {3, 5}
    assert lance_core.verify(path, level="indices").is_ok


@pytest.mark.parametrize("metric", ["l2", "dot"])
def test_odd_queries_find_what_they_find_in_pylance(tmp_path, metric):
    path = str(tmp_path / "t")
    write(path, vectors(16), metric)
    assert_same_search(path, np.zeros(16, np.float32))
    assert_same_search(path, np.ones(16, np.float32))
    assert len(search(lance_core, path, np.full(16, np.nan, np.float32), 5)) == 0


@pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")
@pytest.mark.parametrize("stable", [False, True])
def test_rows_are_found_through_the_life_of_a_table(tmp_path, stable):
    path = str(tmp_path / "t")
    dataset = write(path, vectors(24), stable=stable)
    query = vectors(24, 1, seed=1)[0]

    def check(has_old_vectors=False):
        if not has_old_vectors:  # all rows: those that an index found get exact distances if it does not cover some
            assert_same_search(path, query, 2 * ROWS)
        refined = search(lance_core, path, query, 30, refine_factor=ROWS // 20)
        assert refined.equals(search(lance_core, path, query, 30, use_index=False))

    dataset.delete("id < 50")
    dataset.merge_insert("id").when_matched_update_all().execute(table(vectors(24, 20, seed=3), first=100))
    check(has_old_vectors=stable)  # pylance 14.0.2 ranks vectors that rows had before an update among the nearest
    lance_core.dataset(path).insert(table(vectors(24, 60, seed=4), first=ROWS))
    check(has_old_vectors=stable)
    lance.dataset(path).optimize.optimize_indices(num_indices_to_merge=0)
    assert lance_core.dataset(path).index_statistics("v_idx")["num_indices"] == 2
    check(has_old_vectors=stable)
    lance.dataset(path).optimize.optimize_indices(num_indices_to_merge=2)
    check(has_old_vectors=stable)
    lance.dataset(path).optimize.compact_files()
    check(has_old_vectors=stable)
    lance_core.dataset(path).delete("id % 5 = 1")
    lance_core.dataset(path).optimize.compact_files()
    check(has_old_vectors=stable)
    assert lance_core.verify(path, level="indices").is_ok


def test_rows_are_found_after_a_compaction_that_defers_the_remap(tmp_path):
    path = str(tmp_path / "t")
    write(path, vectors(24)).delete("id % 6 = 2")
    lance_core.dataset(path).optimize.compact_files(defer_index_remap=True)
    query = vectors(24, 1, seed=1)[0]
    refined = search(lance_core, path, query, 30, refine_factor=ROWS // 30)
    assert refined.equals(search(lance_core, path, query, 30, use_index=False))
    assert len(search(lance_core, path, query, ROWS)) == lance_core.dataset(path).count_rows()


# ------------------------------------------------------------------------------------------------------ other layouts


def row_file(path):
    (index,) = lance_core.dataset(path).snapshot.manifest.indices
    return f"{path}/_indices/{index.uuid_text}/auxiliary.idx"


def details_of(path):
    return json.loads(json.loads(LanceFileReader(row_file(path)).metadata().schema.metadata[b"storage_metadata"])[0])


def rewrite(path, change, names=None, buffer=None):
    """Write the codes of an index anew, with other metadata, other names of columns or one more buffer."""
    name = row_file(path)
    reader = LanceFileReader(name)
    rows, metadata = reader.read_all().to_table(), dict(reader.metadata().schema.metadata)
    partitions = reader.read_global_buffer(int(metadata[b"lance:ivf"]))
    details = {**details_of(path), **change}
    schema = pa.schema([field.with_name((names or {}).get(field.name, field.name)) for field in rows.schema])
    with LanceFileWriter(name, schema) as writer:
        writer.write_batch(rows.rename_columns(schema.names))
        writer.add_schema_metadata("lance:ivf", str(writer.add_global_buffer(partitions)))
        if buffer is not None:
            details["rotate_mat_position"] = writer.add_global_buffer(buffer)
        writer.add_schema_metadata("distance_type", metadata[b"distance_type"].decode())
        writer.add_schema_metadata("storage_metadata", json.dumps([json.dumps(details)]))
    (entry,) = lance_core.dataset(path).snapshot.manifest.indices
    fields, made = index_fields(entry), lance.dataset(path)
    options = {"uuid": entry.uuid_text, "name": "v_idx", "fields": list(fields.fields), "index_version": 1}
    options |= {"dataset_version": made.version, "fragment_ids": set(entry.fragment_ids)}
    new = Index(**options, index_details=fields.details)  # without the size of the file, which has changed
    dropped = lance.LanceOperation.CreateIndex(new_indices=[], removed_indices=[new])
    version = lance.LanceDataset.commit(path, dropped, read_version=made.version).version
    lance.LanceDataset.commit(path, lance.LanceOperation.CreateIndex([new], []), read_version=version)


def test_a_rotation_by_a_matrix_is_searched(tmp_path):
    path = str(tmp_path / "t")
    write(path, vectors(24))
    query = vectors(24, 1, seed=1)[0]
    before = assert_same_search(path, query)
    signs = np.array(details_of(path)["fast_rotation_signs"], np.uint8).reshape(FAST_ROUNDS, -1)
    flips = np.unpackbits(signs, axis=1, bitorder="little").astype(np.bool_)
    matrix = np.ascontiguousarray(rotated_fast(np.eye(24, dtype=np.float32), flips).T.astype("<f4"))
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(24), atol=1e-6)
    tensor = vector_pb2.Tensor(data_type="FLOAT32", shape=matrix.shape, data=matrix.tobytes())
    rewrite(path, {"rotation_type": "matrix", "fast_rotation_signs": None}, buffer=tensor.SerializeToString())
    after = assert_same_search(path, query)
    np.testing.assert_allclose(after["_distance"], before["_distance"], rtol=1e-4)


@pytest.mark.parametrize(
    ("change", "names", "words"),
    [
        ({"query_estimator": "residual_query"}, {}, "another estimate"),
        ({}, {"__blocked_ex_codes": "__ex_codes"}, "another order"),
        ({"rotation_type": "slow"}, {}, "rotation 'slow'"),
    ],
)
def test_layouts_of_other_versions_are_refused_by_name(tmp_path, change, names, words):
    path = str(tmp_path / "t")
    write(path, vectors(16))
    rewrite(path, change, names)
    with pytest.raises(UnsupportedError, match=f"IVF_RQ index .*{words}.*build the index again.*use_index=False"):
        search(lance_core, path, [0.1] * 16, 5)
    assert len(search(lance_core, path, [0.1] * 16, 5, use_index=False)) == 5


@pytest.mark.parametrize(
    "change",
    [
        {"num_bits": 10},
        {"num_bits": 4},
        {"code_dim": 24},
        {"fast_rotation_signs": [1, 2]},
        {"fast_rotation_signs": [-1]},
    ],
)
def test_metadata_that_contradict_the_columns_are_damage(tmp_path, change):
    path = str(tmp_path / "t")
    write(path, vectors(16))
    rewrite(path, change)
    with pytest.raises(CorruptDataError):
        search(lance_core, path, [0.1] * 16, 5)
