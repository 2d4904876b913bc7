"""Blobs that Spark writes, and blobs that it leaves alone while it changes what is beside them."""

import uuid
from functools import partial

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.change.stage import data_file_name
from lance_core.errors import UnsupportedError
from lance_core.spark import merge_lance, read_lance, update_lance, write_lance
from lance_core.spark.common.task_names import TaskNames, remove_data_files
from lance_core.spark.common.task_version import TaskVersion
from lance_core.spark.writing import blob_columns as blob_module
from lance_core.spark.writing.blob_columns import KeptBlobs
from lance_core.store.open import open_store
from lance_core.table.open_table import BranchAddress, open_version

pytestmark = pytest.mark.spark

MARK = {"lance-encoding:blob": "true"}
SIZES = [0, 3, None, 100_000, 70_000, 5_000_000]
"""Inline, packed and, since version 2.2, in a file of its own."""


def blob(i):
    size = SIZES[i % len(SIZES)]
    return None if size is None else bytes([65 + i]) * size


@pytest.fixture(params=["2.1", "2.2", "stable ids"])
def table(request, uri):
    """Ids 0 to 23 in three fragments, each with a blob, two of them deleted."""
    columns = {"id": range(24), "v": range(24), "b": [blob(i) for i in range(24)]}
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64()), pa.field("b", pa.large_binary(), metadata=MARK)])
    version = "2.2" if request.param == "stable ids" else request.param
    made = lance_core.write_dataset(
        pa.table(columns, schema),
        uri,
        max_rows_per_file=9,
        data_storage_version=version,
        enable_stable_row_ids=request.param == "stable ids",
    )
    made.delete("id in (4, 20)")
    return made


def contents(uri, open_dataset=lance_core.dataset):
    rows = open_dataset(uri).to_table(blob_handling="all_binary").to_pylist()
    return {row["id"]: (row["v"], row["b"]) for row in rows}


def test_a_merge_keeps_the_blobs_of_the_table_and_brings_new_ones(spark, table):
    expected = contents(table.uri)
    source = spark.createDataFrame(
        [(i, 100 + i, b"new") for i in (0, 3, 5, 9, 10, 11, 30)], "id long, v long, b binary"
    )
    done = (
        merge_lance(source, table.uri, "id")
        .when_matched_update_all("source.id % 5 = 0")
        .when_matched_update({"v": "source.v"})
        .when_not_matched_insert_all()
        .when_not_matched_by_source_update({"v": "-1"}, "target.id > 15 and target.id < 18")
        .when_not_matched_by_source_delete("target.id = 1")
        .execute()
    )
    for i in (0, 3, 5, 9, 10, 11, 30):
        expected[i] = (100 + i, b"new" if i % 5 == 0 else expected[i][1])
    expected |= {i: (-1, expected[i][1]) for i in (16, 17)}
    del expected[1]
    assert contents(table.uri) == expected
    assert contents(table.uri, lance.dataset) == expected
    assert (done.num_updated_rows, done.num_inserted_rows, done.num_deleted_rows) == (8, 1, 1)
    with pytest.raises(UnsupportedError, match=r"read blob columns of the table \(b\)"):
        merge_lance(source, table.uri, "id").when_matched_delete("target.b is null").execute()


def test_a_merge_of_a_source_without_blobs(spark, table):
    expected = contents(table.uri)
    source = spark.createDataFrame([(23, 1), (2, 2), (40, 3)], "id long, v long")
    merge_lance(source, table.uri, "id").when_matched_update_all().when_not_matched_insert_all().execute()
    changed = {23: (1, expected[23][1]), 2: (2, expected[2][1]), 40: (3, None)}
    assert contents(table.uri) == expected | changed


def test_an_update_keeps_blobs(spark, table):
    expected = contents(table.uri)
    update_lance(spark, table.uri, {"v": "v + 1000"}, "id > 20")
    assert contents(table.uri) == {i: (v + 1000 if i > 20 else v, b) for i, (v, b) in expected.items()}


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_spark_makes_tables_with_blobs_and_appends_to_them(spark, uri, version):
    rows = spark.createDataFrame([(1, b"x" * 200_000), (2, None)], "id long, b binary")
    write_lance(rows.withMetadata("b", MARK), uri, data_storage_version=version)
    write_lance(rows.selectExpr("id + 2 id", "b"), uri)
    made = lance.dataset(uri)
    assert [one.read() for one in made.take_blobs("b", indices=[0, 2])] == [b"x" * 200_000] * 2
    described = read_lance(spark, uri).selectExpr("id", "b.size size").toArrow().sort_by("id")
    assert described["size"].to_pylist() in ([200_000, None] * 2, [200_000, 0] * 2)
    read = read_lance(spark, uri, blob_handling="all_binary").toArrow().sort_by("id")
    assert read["b"].to_pylist() == [b"x" * 200_000, None] * 2


def test_addresses_of_external_blobs_are_kept(spark, uri, tmp_path):
    (tmp_path / "far").write_bytes(b"far away")
    blobs = lance_core.blob_array([f"file://{tmp_path}/far", b"near"])
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64()), lance_core.blob_field("b")])
    lance_core.write_dataset(pa.table([[1, 2], [0, 0], blobs], schema), uri, allow_external_blob_outside_bases=True)
    merge_lance(spark.sql("select 1L id, 5L v"), uri, "id").when_matched_update_all().execute()
    trusted = partial(lance_core.dataset, base_store_params={str(tmp_path): {}})
    assert contents(uri, trusted) == {1: (5, b"far away"), 2: (0, b"near")}
    with pytest.raises(Exception, match="base_store_params"):
        read_lance(spark, uri, blob_handling="all_binary").toArrow()
    read = read_lance(spark, uri, blob_handling="all_binary", base_store_params={str(tmp_path): {}}).toArrow()
    assert dict(zip(read["id"].to_pylist(), read["b"].to_pylist(), strict=True)) == {1: b"far away", 2: b"near"}
    described = {row["id"]: row["b"]["kind"] for row in lance_core.dataset(uri).to_table().to_pylist()}
    assert described == {1: 3, 2: 0}


def test_kept_blobs_are_fetched_piece_by_piece(table, monkeypatch):
    """Rows in any order, some more than once; never more bytes at a time than allowed, but at least a row."""
    monkeypatch.setattr(blob_module, "BATCH_BYTES", 150_000)
    snapshot = open_version(open_store(table.uri), table.version)
    expected = contents(table.uri)
    address = {row["id"]: row["_rowaddr"] for row in table.to_table(["id"], with_row_address=True).to_pylist()}
    ids = np.random.default_rng(5).permutation([*expected, 9, 9]).tolist()
    rows = {
        "id": ids,
        "_rowaddr": pa.array([address[i] for i in ids], pa.int64()),
        "_clause": [i % 3 for i in ids],
        "b": pa.array([b"own" if i % 3 == 1 else None for i in ids], pa.binary()),
    }
    (field,) = snapshot.manifest.schema.select(["b"]).fields
    version = TaskVersion.whole(BranchAddress.of(snapshot.store, None), snapshot)
    parts = list(KeptBlobs(columns=((field, (0, 2)),), version=version).put_in([pa.record_batch(rows)]))
    found = [row for part in parts for row in part.to_pylist()]
    assert [row["id"] for row in found] == ids
    wanted = [b"own" if i % 3 == 1 else expected[i][1] for i in ids]
    assert [row["b"]["data"] if isinstance(row["b"], dict) else row["b"] for row in found] == wanted
    kept = [[len(expected[row["id"]][1] or b"") for row in part.to_pylist() if row["_clause"] != 1] for part in parts]
    assert all(sum(sizes) <= 150_000 or len(sizes) == 1 or sum(size > 0 for size in sizes) == 1 for sizes in kept)
    assert len(parts) > 5


def test_blob_files_of_an_attempt_that_never_answered_are_removed(tmp_path):
    store = open_store(str(tmp_path / "t"))
    job = uuid.uuid4()
    names = [data_file_name(one) for _, one in zip(range(3), TaskNames(job=job, task=1, attempt=0).data_files())]  # noqa: B905
    store.put(f"data/{names[0]}", b"data")
    for name in (names[0], names[1]):  # the second data file was not finished
        store.put(f"data/{name.removesuffix('.lance')}/0001.blob", b"blob")
    remove_data_files(store, job, 1, range(2))
    assert [path for path in (tmp_path / "t").rglob("*") if path.is_file()] == []
