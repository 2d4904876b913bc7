"""Blob columns of tables, by themselves."""

import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import CorruptDataError, InvalidInputError

FIELD = lance_core.blob_field("b", inline_size_threshold=4, dedicated_size_threshold=40, pack_file_size_threshold=30)
VALUES = [b"abc", None, b"", b"d" * 20, b"e" * 10, b"f" * 20, b"g" * 41]


def _table(values=VALUES, field=FIELD):
    return pa.table(
        [lance_core.blob_array(values), pa.array(range(len(values)))], schema=pa.schema([field, ("i", pa.int64())])
    )


@pytest.fixture
def dataset(tmp_path):
    return lance_core.write_dataset(_table(), tmp_path / "t")


def _blob_files(tmp_path):
    return sorted(path.stat().st_size for path in (tmp_path / "t" / "data").rglob("*.blob"))


def test_bytes_are_put_by_size(dataset, tmp_path):
    kinds = [one and one["kind"] for one in dataset.to_table()["b"].to_pylist()]
    assert kinds == [0, None, 0, 1, 1, 1, 2]
    assert _blob_files(tmp_path) == [20, 30, 41]
    assert dataset.to_table(blob_handling="all_binary")["b"].to_pylist() == VALUES


def test_filters_and_rows_that_are_left(dataset):
    dataset.delete("i in (0, 4)")
    table = dataset.to_table(columns=["b"], filter="i > 2", blob_handling="all_binary")
    assert table["b"].to_pylist() == [VALUES[3], VALUES[5], VALUES[6]]
    files = dataset.take_blobs("b", indices=[0, 2, 3])
    assert [one and one.read() for one in files] == [None, VALUES[3], VALUES[5]]
    assert dataset.to_table(columns=["i"], filter="b is null")["i"].to_pylist() == [1]


def test_parts_of_blobs(dataset):
    assert dataset.read_blob_ranges("b", [(3, 1, 2), (1, 0, 0), (2, 0, 0)], selector="indices") == [
        (0, 3, b"dd"),
        (1, 1, None),
        (2, 2, b""),
    ]
    with pytest.raises(InvalidInputError, match="20 bytes"):
        dataset.read_blob_ranges("b", [(3, 19, 2)], selector="indices")
    with pytest.raises(InvalidInputError, match="selector"):
        dataset.read_blob_ranges("b", [(3, 19, 2)], selector="rows")


def test_a_failed_write_leaves_nothing(tmp_path):
    def batches():
        yield from _table().to_batches()
        raise OSError("the source went away")

    with pytest.raises(OSError, match="went away"):
        lance_core.write_dataset(batches(), tmp_path / "t", schema=_table().schema)
    assert not list((tmp_path / "t").rglob("*.lance"))
    assert not _blob_files(tmp_path)


@pytest.mark.parametrize(("checks", "message"), [("all", "5 bytes instead of"), ("off", "blob ends at byte")])
def test_lost_bytes_are_told(dataset, tmp_path, monkeypatch, checks, message):
    monkeypatch.setenv("LANCE_CORE_CHECKSUMS", checks)
    for path in (tmp_path / "t" / "data").rglob("*.blob"):
        path.write_bytes(b"short")
    with pytest.raises(CorruptDataError, match=message):
        dataset.to_table(blob_handling="all_binary")


WAYS = {
    "scan": lambda dataset: dataset.to_table(blob_handling="all_binary")["b"].to_pylist(),
    "take": lambda dataset: dataset.take([3, 6], columns=["b"]),
    "whole": lambda dataset: [one and one.read() for one in dataset.take_blobs("b", indices=range(7))],
    "together": lambda dataset: dataset.read_blobs("b", indices=[3, 6]),
    "ranges": lambda dataset: dataset.read_blob_ranges("b", [(3, 1, 2), (6, 0, 1)], selector="indices"),
}


@pytest.mark.parametrize("way", [way for way in WAYS if way != "take"])  # which reads descriptions
@pytest.mark.parametrize("number", range(3))
def test_damaged_blob_files_are_told(dataset, tmp_path, monkeypatch, way, number):
    path = sorted((tmp_path / "t" / "data").rglob("*.blob"), key=lambda one: one.stat().st_size)[number]
    data = path.read_bytes()
    path.write_bytes(data[:-1] + b"?")
    if (way, number) in (("together", 0), ("ranges", 0)):  # the file of another row
        assert WAYS[way](dataset)
    else:
        with pytest.raises(CorruptDataError, match=path.name):
            WAYS[way](dataset)
    assert WAYS["take"](dataset).num_rows == 2
    problem, values = dataset.verify(level="full").problems
    assert (problem.kind, problem.path) == ("checksum", path.relative_to(tmp_path / "t").as_posix())
    assert values.kind == "values"
    monkeypatch.setenv("LANCE_CORE_CHECKSUMS", "off")
    assert WAYS[way](dataset.reopened())


def test_blob_files_are_not_mixed_up(tmp_path):
    dataset = lance_core.write_dataset(_table([b"one" * 20, b"two" * 20]), tmp_path / "t")
    one, two = (tmp_path / "t" / "data").rglob("*.blob")
    content = one.read_bytes(), two.read_bytes()
    one.write_bytes(content[1])
    two.write_bytes(content[0])
    with pytest.raises(CorruptDataError, match="checksum"):
        dataset.read_blobs("b", indices=[1])
    one.unlink()
    problems = dataset.verify(level="full").problems
    assert len({problem.path for problem in problems if problem.kind == "checksum"}) == 2


def test_parts_of_blobs_need_only_their_blocks(tmp_path):
    blob = bytes(range(256)) * 1200
    dataset = lance_core.write_dataset(_table([b"x" * 30, blob, blob]), tmp_path / "t")
    assert dataset.verify(level="full").num_checked_files == 4
    path = max((tmp_path / "t" / "data").rglob("*.blob"))
    data = bytearray(path.read_bytes())
    data[200_000] ^= 4
    path.write_bytes(data)
    files = dataset.take_blobs("b", indices=[1, 2])
    (bad,) = (one for one in files if _is_damaged(one.readall))
    assert bad.read_range(190, 300) == blob[190:490]
    assert bad.read_ranges([(262_144, 45_056), (131_000, 5)]) == [blob[262_144:], blob[131_000:131_005]]
    assert bad.seek(0, 2) == len(blob)
    assert bad.read_range(len(blob), 0) == b""
    assert _is_damaged(lambda: bad.read_range(199_000, 5))


def _is_damaged(read):
    try:
        read()
    except CorruptDataError:
        return True
    return False


def test_plain_bytes_fit_blob_columns(dataset):
    more = pa.table({"b": pa.array([b"plain", None]), "i": [7, 8]})
    lance_core.write_dataset(more, dataset, mode="append")
    table = dataset.reopened().to_table(blob_handling="all_binary", filter="i > 6")
    assert table["b"].to_pylist() == [b"plain", None]


def test_stable_row_ids_find_blobs(tmp_path):
    dataset = lance_core.write_dataset(_table(), tmp_path / "s", enable_stable_row_ids=True)
    lance_core.write_dataset(_table(), tmp_path / "s", mode="append")
    dataset = dataset.reopened()
    dataset.delete("i < 3")
    dataset.optimize.compact_files()
    ids = dataset.to_table(columns=["i"], with_row_id=True)
    wanted = [row["_rowid"] for row in ids.to_pylist() if row["i"] in (3, 6)]
    assert [one.read() for one in dataset.take_blobs("b", ids=wanted)] == [VALUES[3], VALUES[6]] * 2
    with pytest.raises(InvalidInputError, match="no row with id"):
        dataset.take_blobs("b", ids=[0])


@pytest.mark.parametrize(
    "wrong",
    [{"data": b"", "uri": "x"}, {}, {"uri": ""}, {"uri": "x", "position": 1}, {"data": b"1", "size": 1, "position": 1}],
)
def test_blobs_are_either_here_or_there(wrong):
    with pytest.raises(InvalidInputError):
        lance_core.Blob(**wrong)


def test_thresholds_are_numbers():
    with pytest.raises(InvalidInputError, match="inline"):
        lance_core.blob_field("b", inline_size_threshold=-1)
    with pytest.raises(InvalidInputError, match="dedicated"):
        lance_core.blob_field("b", dedicated_size_threshold=0)
    with pytest.raises(InvalidInputError, match="not int"):
        lance_core.blob_array([1])


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("checks", ["all", "off"])
def test_damaged_blobs_in_data_files_are_told(tmp_path, monkeypatch, version, checks):
    blob = b"not like any other bytes" * 50
    if version == "2.2":
        table = pa.table([lance_core.blob_array([blob])], schema=pa.schema([lance_core.blob_field("b")]))
    else:
        field = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
        table = pa.table([pa.array([blob], pa.large_binary())], schema=pa.schema([field]))
    dataset = lance_core.write_dataset(table, tmp_path / "t", data_storage_version=version)
    (path,) = (tmp_path / "t" / "data").glob("*.lance")
    data = path.read_bytes()
    path.write_bytes(data.replace(b"like any other", b"like any OTHER", 1))
    assert path.read_bytes() != data
    monkeypatch.setenv("LANCE_CORE_CHECKSUMS", checks)
    opened = lance_core.dataset(dataset.uri)
    if checks == "off":
        assert opened.take_blobs("b", indices=[0])[0].read() != blob
        return
    with pytest.raises(CorruptDataError, match="checksum") as error:
        opened.take_blobs("b", indices=[0])[0].read()
    assert error.value.path is not None
    with pytest.raises(CorruptDataError, match="checksum"):
        opened.to_table(blob_handling="all_binary")
