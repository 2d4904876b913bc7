"""Blob columns against pylance, both ways: where the bytes are put, and every way to read them."""

import io
from datetime import timedelta

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.testing.counting_store import open_counting

VALUES = [b"abc", None, b"", b"x" * 70_000, b"y" * 5_000, b"z" * 5_000_000, b"w" * 66_000, b"end"]
SMALL = {"inline_size_threshold": 10, "dedicated_size_threshold": 100, "pack_file_size_threshold": 150}
OLD = {"lance-encoding:blob": "true"}


def _table(values, **thresholds):
    fields = [lance_core.blob_field("b", **thresholds), pa.field("i", pa.int64())]
    return pa.table([lance_core.blob_array(values), pa.array(range(len(values)))], schema=pa.schema(fields))


def _old_table(version):
    blobs = pa.array(VALUES, pa.large_binary())
    inner = pa.StructArray.from_arrays(
        [blobs, pa.array(range(len(VALUES)))],
        fields=[pa.field("b", pa.large_binary(), metadata=OLD), pa.field("i", pa.int64())],
        mask=pa.array([False, False, True, *[False] * 5]),
    )
    fields = [pa.field("b", pa.large_binary(), metadata=OLD), pa.field("s", inner.type)]
    columns = [blobs, inner]
    if version == "2.2":
        item = pa.field("item", pa.large_binary(), metadata=OLD)
        columns.append(pa.array([VALUES[:2], None, [], VALUES[2:4], [None], [b""], [], VALUES[4:]], pa.list_(item)))
        fields.append(pa.field("l", columns[-1].type))
    return pa.table(columns, schema=pa.schema(fields))


def _check_alike(path, **options):
    ours, theirs = lance_core.dataset(path, **options), lance.dataset(path)
    for handling in (None, "blobs_descriptions", "all_descriptions", "all_binary"):
        one, other = (dataset.to_table(blob_handling=handling) for dataset in (ours, theirs))
        assert one.schema.equals(other.schema, check_metadata=True)
        assert one.to_pylist() == other.to_pylist()
    return ours, theirs


@pytest.mark.parametrize("writer", [lance, lance_core])
@pytest.mark.parametrize("thresholds", [{}, SMALL], ids=["default", "small"])
def test_both_ways(tmp_path, writer, thresholds):
    path = str(tmp_path / "t")
    values = VALUES if not thresholds else [b"a" * size for size in (0, 9, 10, 11, 99, 100, 101, 90, 60, 30)] + [None]
    writer.write_dataset(_table(values, **thresholds), path, data_storage_version="2.2")
    ours, theirs = _check_alike(path)
    assert ours.to_table(blob_handling="all_binary")["b"].to_pylist() == values
    rows = [len(values) - 1, 0, 1, 3, 3]
    for by in ("indices", "ids", "addresses"):
        got = [one and one.read() for one in ours.take_blobs("b", **{by: rows})]
        assert got == [one and one.read() for one in theirs.take_blobs("b", **{by: rows})]
        assert ours.read_blobs("b", **{by: rows}) == theirs.read_blobs("b", **{by: rows})


def test_blobs_are_put_where_pylance_puts_them(tmp_path):
    values = [b"a" * size for size in (0, 65_536, 65_537, 9, 4 << 20, (4 << 20) + 1)]
    for module in (lance, lance_core):
        module.write_dataset(_table(values), str(tmp_path / module.__name__), data_storage_version="2.2")
    ours, theirs = (lance.dataset(str(tmp_path / module.__name__)) for module in (lance_core, lance))
    keep = ["kind", "size", "blob_id", "blob_uri"]
    assert [{key: one[key] for key in keep} for one in ours.to_table()["b"].to_pylist()] == [
        {key: one[key] for key in keep} for one in theirs.to_table()["b"].to_pylist()
    ]
    names = [sorted(one.name for one in (tmp_path / name / "data").rglob("*.blob")) for name in ("lance", "lance_core")]
    assert names[0] == names[1]
    assert len(names[0]) == 2


@pytest.mark.parametrize("writer", [lance, lance_core])
@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_blobs_of_old_tables(tmp_path, writer, version):
    path = str(tmp_path / "t")
    writer.write_dataset(_old_table(version), path, data_storage_version=version)
    ours, theirs = _check_alike(path)
    for column in ("b", "s.b"):
        got = [one and one.readall() for one in ours.take_blobs(column, indices=range(8))]
        assert got == [one and one.readall() for one in theirs.take_blobs(column, indices=list(range(8)))]
    for column in ("s", "s.i", *(["l"] if version == "2.2" else [])):
        with pytest.raises(InvalidInputError, match="no blob column"):
            ours.take_blobs(column, indices=[0])


def test_external_blobs(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "f.bin").write_bytes(bytes(range(200)))
    uri = f"file://{tmp_path}/far/f.bin"
    values = [lance_core.Blob.from_uri(uri), uri, lance_core.Blob.from_uri(uri, 5, 10), None, b"near"]
    theirs = [lance.Blob.from_uri(uri), uri, lance.Blob.from_uri(uri, 5, 10), None, b"near"]
    with pytest.raises(InvalidInputError, match="allow_external_blob_outside_bases"):
        lance_core.write_dataset(_table(values), str(tmp_path / "ours"))
    lance_core.write_dataset(_table(values), str(tmp_path / "ours"), allow_external_blob_outside_bases=True)
    schema = pa.schema([lance.blob_field("b"), pa.field("i", pa.int64())])
    table = pa.table([lance.blob_array(theirs), pa.array(range(5))], schema=schema)
    lance.write_dataset(table, str(tmp_path / "theirs"), allow_external_blob_outside_bases=True)
    for name in ("ours", "theirs"):
        ours, _ = _check_alike(str(tmp_path / name), base_store_params={f"file://{tmp_path}/far": {}})
        whole = bytes(range(200))
        assert ours.to_table(blob_handling="all_binary")["b"].to_pylist() == [whole, whole, whole[5:15], None, b"near"]
        assert [one and one.size() for one in ours.take_blobs("b", indices=range(5))] == [200, 200, 10, None, 4]


def test_external_blobs_below_base_paths(tmp_path):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "f.bin").write_bytes(b"0123456789")
    uri = f"file://{tmp_path}/far/f.bin"
    for module in (lance, lance_core):
        path = str(tmp_path / module.__name__)
        base = module.DatasetBasePath(f"file://{tmp_path}/far", "far", False)  # noqa: FBT003 as in pylance
        table = _table([lance_core.Blob.from_uri(uri), lance_core.Blob.from_uri(uri, 2, 3)])
        module.write_dataset(table, path, initial_bases=[base], data_storage_version="2.2")
        ours, _ = _check_alike(path, base_store_params={f"{tmp_path}/far": {}})
        assert ours.to_table()["b"].to_pylist()[0]["blob_uri"] == "f.bin"
        assert [one.read() for one in ours.take_blobs("b", indices=[0, 1])] == [b"0123456789", b"234"]


def test_changes_keep_blobs(tmp_path):
    path = str(tmp_path / "t")
    (tmp_path / "f.bin").write_bytes(b"outside")
    values = [*VALUES, lance_core.Blob.from_uri(f"file://{tmp_path}/f.bin")]
    expected = [*VALUES, b"outside"]
    for _ in range(2):
        lance_core.write_dataset(_table(values), path, mode="append", allow_external_blob_outside_bases=True)
    dataset = lance_core.dataset(path)
    dataset.delete("i = 3")
    dataset.optimize.compact_files()
    del expected[3]
    ours, _ = _check_alike(path, base_store_params={tmp_path.as_uri(): {}})
    assert len(ours.get_fragments()) == 1
    assert ours.to_table(blob_handling="all_binary")["b"].to_pylist() == expected * 2
    kinds = [one["kind"] for one in ours.to_table()["b"].to_pylist() if one]
    assert kinds.count(3) == 2
    before = len(list((tmp_path / "t" / "data").rglob("*.blob")))
    ours.cleanup_old_versions(older_than=timedelta(0))
    assert len(list((tmp_path / "t" / "data").rglob("*.blob"))) < before
    assert ours.to_table(blob_handling="all_binary")["b"].to_pylist() == expected * 2
    lance.dataset(path).optimize.compact_files(num_threads=1)
    _check_alike(path, base_store_params={tmp_path.as_uri(): {}})


def test_files_of_blobs_are_like_pylances(tmp_path):
    path = str(tmp_path / "t")
    data = bytes(np.random.default_rng(1).integers(0, 256, 100_000, np.uint8))
    lance_core.write_dataset(_table([data, b""]), path)
    for buffer_size in (0, 1000, 1 << 20):
        ours, theirs = (
            module.dataset(path).take_blobs("b", indices=[0, 1], buffer_size=buffer_size)
            for module in (lance_core, lance)
        )
        assert ours[1].read() == theirs[1].read() == b""
        for one in (ours[0], theirs[0]):
            assert isinstance(one, io.BufferedIOBase)
            assert one.read(10) == data[:10]
            assert one.seek(-5, io.SEEK_END) == len(data) - 5
            assert one.read(100) == data[-5:]
            assert one.read(1) == b""
            assert one.seek(500) == 500
            assert one.read_range(7, 9) == data[7:16]
            assert one.read_ranges([(0, 1), (99_999, 1)]) == [data[:1], data[-1:]]
            assert one.tell() == 500
            target = bytearray(3000)
            assert one.readinto(target) == 3000
            assert bytes(target) == data[500:3500]
            assert one.readall() == data[3500:]
            assert one.seek(10**9) == 10**9
            assert one.read(5) == b""
            with pytest.raises(ValueError, match=r"."):
                one.seek(-1)
            one.close()
            with pytest.raises(ValueError, match="closed"):
                one.read()


def test_wrong_uses_are_refused(tmp_path):
    path = str(tmp_path / "t")
    with pytest.raises(UnsupportedError, match=r"2\.2"):
        lance_core.write_dataset(_table([b"1"]), path, data_storage_version="2.1")
    dataset = lance_core.write_dataset(_table([b"1", None]), path)
    for wrong in ({}, {"ids": [0], "indices": [0]}, {"indices": [2]}, {"indices": [-1]}, {"addresses": [1 << 40]}):
        with pytest.raises(InvalidInputError):
            dataset.take_blobs("b", **wrong)
    with pytest.raises(InvalidInputError, match="blob_handling"):
        dataset.to_table(blob_handling="bytes")
    dataset.delete("i = 0")
    with pytest.raises(InvalidInputError, match="deleted"):
        dataset.take_blobs("b", addresses=[0])
    storage = pa.array(
        [{"data": b"1", "uri": "file:///x"}], pa.struct([("data", pa.large_binary()), ("uri", pa.string())])
    )
    both = pa.table({"b": pa.ExtensionArray.from_storage(lance_core.BlobType(storage.type), storage), "i": [1]})
    with pytest.raises(InvalidInputError, match="either data or a uri"):
        lance_core.write_dataset(both, path, mode="append")


def _shown(frame):
    """The values of a frame, blobs read."""

    def value(one):
        if isinstance(one, dict):
            return {key: value(inner) for key, inner in one.items()}
        if isinstance(one, np.ndarray):
            return [value(inner) for inner in one]
        return ("file", one.size(), one.read()) if hasattr(one, "read") else one

    return list(frame.columns), list(frame.index), [[value(one) for one in frame[name]] for name in frame.columns]


@pytest.fixture(scope="module")
def lazy_handles(tmp_path_factory):
    """Two fragments, a deleted row; blobs of all places, nulls and nothing, at the top and inside of a struct."""
    path = str(tmp_path_factory.mktemp("lazy") / "table")
    for first in (0, 6):
        blobs = [None if i % 4 == 1 else b"" if i % 4 == 2 else b"%d" % i * 50 for i in range(first, first + 6)]
        inner = lance_core.blob_array([b"i%d" % i if i % 3 else None for i in range(6)])
        fields = [lance_core.blob_field("b"), pa.field("x", pa.string())]
        arrays = [inner, pa.array([f"x{i}" for i in range(6)])]
        structs = pa.StructArray.from_arrays(arrays, fields=fields, mask=pa.array([i == 4 for i in range(6)]))
        columns = [pa.array(range(first, first + 6)), lance_core.blob_array(blobs), structs]
        top = [pa.field("i", pa.int64()), lance_core.blob_field("b", **SMALL), pa.field("s", pa.struct(fields))]
        table = pa.table(columns, schema=pa.schema(top))
        lance.write_dataset(table, path, mode="append" if first else "create", data_storage_version="2.2")
    lance.dataset(path).delete("i = 3")
    return lance_core.dataset(path), lance.dataset(path)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"blob_mode": "bytes", "columns": ["i", "b"]},
        {"blob_mode": "descriptions", "columns": ["i"]},
        {"columns": ["b"], "filter": "i > 4"},
        {"columns": {"z": "b", "y": "b", "k": "i + 1"}, "filter": "i > 2", "limit": 5, "offset": 1},
        {"columns": {"q": "s.b", "r": "s"}},
        {"columns": ["b", "i"], "order_by": ["i"], "limit": 3, "offset": 1},
        {"columns": ["i", "b"], "with_row_address": True, "with_row_id": True},
        {"columns": ["i"]},
        {"filter": "i > 100"},
    ],
    ids=str,
)
def test_pandas_gets_blobs_as_files_that_read_themselves(lazy_handles, options):
    mine, theirs = (handle.to_pandas(**options) for handle in lazy_handles)
    assert _shown(mine) == _shown(theirs)


def test_fragments_and_scanners_give_blobs_as_files_too(lazy_handles):
    mine, theirs = lazy_handles
    assert _shown(mine.get_fragment(1).to_pandas()) == _shown(theirs.get_fragment(1).to_pandas())
    assert _shown(mine.scanner(["b"]).to_pandas()) == _shown(theirs.scanner(["b"]).to_pandas())
    with pytest.raises(InvalidInputError, match="lazy, bytes, descriptions"):
        mine.to_pandas(blob_mode="all")


def test_lazy_blobs_are_read_when_they_are_asked_for(tmp_path):
    path = str(tmp_path / "table")
    lance_core.write_dataset(_table([b"x" * 300_000, b"y" * 300_000]), path)
    dataset, counts = open_counting(path)
    file = dataset.to_pandas()["b"][1]
    assert counts.num_bytes < 100_000
    assert file.read_range(0, 3) == b"yyy"


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_pandas_gets_blobs_of_old_tables_as_files(tmp_path, version):
    path = str(tmp_path / "table")
    lance.write_dataset(_old_table(version), path, data_storage_version=version)
    assert _shown(lance_core.dataset(path).to_pandas()) == _shown(lance.dataset(path).to_pandas())
