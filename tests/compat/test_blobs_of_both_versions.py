"""Tables to which pylance appended files of another version, which have blobs of another version."""

import lance
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import UnsupportedError

BLOB = {"lance-encoding:blob": "true"}
SCHEMA = pa.schema([pa.field("n", pa.int64()), pa.field("b", pa.large_binary(), metadata=BLOB)])
VALUES = [b"a" * 10, None, b"", b"c" * 100_000]
ROWS = pa.table([pa.array(range(4), pa.int64()), pa.array(VALUES, pa.large_binary())], schema=SCHEMA)
FIRST = [lance, lance_core]


def write(place, first, versions):
    first.write_dataset(ROWS, place, data_storage_version=versions[0])
    for version in versions[1:]:
        lance.write_dataset(ROWS, place, mode="append", data_storage_version=version)


def check(place, values, numbers=None):
    """Both read these bytes in every way."""
    for package in (lance, lance_core):
        assert package.dataset(place).to_table(blob_handling="all_binary")["b"].to_pylist() == values
    ours, theirs = lance_core.dataset(place), lance.dataset(place)
    assert ours.to_table() == theirs.to_table()
    assert ours.count_rows(filter="b IS NULL") == values.count(None)
    present = [i for i, value in enumerate(values) if value is not None]
    assert [one.read() for one in ours.take_blobs("b", indices=present)] == [values[i] for i in present]
    assert ours.take([len(values) - 1, 0], columns=["b"]) == theirs.take([len(values) - 1, 0], columns=["b"])
    if numbers is not None:
        assert ours.to_table(columns=["n"])["n"].to_pylist() == numbers


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("versions", [("2.1", "2.2"), ("2.0", "2.2"), ("2.2", "2.1"), ("2.1", "2.2", "2.0", "2.1")])
def test_blobs_of_both_versions_are_read(tmp_path, first, versions):
    place = str(tmp_path / "t")
    write(place, first, versions)
    check(place, VALUES * len(versions))


@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_tables_with_blobs_of_both_versions_are_changed(tmp_path, version):
    """pylance 14.0.2 neither compacts nor updates them."""
    place = str(tmp_path / "t")
    write(place, lance, (version, "2.2"))
    lance_core.write_dataset(ROWS, place, mode="append")
    ours = lance_core.dataset(place)
    ours.delete("n = 0")
    ours.update({"n": "n + 10"}, where="n = 1")
    left = [value for value in VALUES * 3 if value not in (None, VALUES[0])] + [None] * 3
    check(place, left, [2, 3] * 3 + [11] * 3)
    ours.optimize.compact_files()
    assert len(ours.get_fragments()) == 1
    check(place, left, [2, 3] * 3 + [11] * 3)
    with pytest.raises(OSError, match="Blob v2"):
        lance.dataset(place).update({"n": "1"}, where="n = 2")


def test_blobs_inside_of_structs(tmp_path):
    place = str(tmp_path / "t")
    kind = pa.struct([SCHEMA.field("b"), ("o", pa.int8())])
    rows = pa.table({"s": pa.array([{"b": b"x", "o": 1}, None, {"b": None, "o": 2}], kind)})
    for version in ("2.1", "2.2"):
        lance.write_dataset(rows, place, mode="append", data_storage_version=version)
    assert lance_core.dataset(place).to_table() == lance.dataset(place).to_table()
    read = lance_core.dataset(place).to_table(blob_handling="all_binary")
    assert read["s"].to_pylist() == rows["s"].to_pylist() * 2


def test_files_of_2_0_hold_no_blobs_of_the_second_version(tmp_path):
    rows = pa.table([lance_core.blob_array([b"x"])], schema=pa.schema([lance_core.blob_field("b")]))
    for version in ("2.0", "2.1"):
        with pytest.raises(UnsupportedError, match=r"file version 2\.2"):
            lance_core.write_dataset(rows, tmp_path / "t", data_storage_version=version)
