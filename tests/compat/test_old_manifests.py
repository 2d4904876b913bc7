"""Manifests of old writers, and such as leave things out: pylance says what they mean."""

import struct
import zipfile
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_core
from lance_core._proto import table_pb2
from lance_core.errors import CorruptDataError

OLD_TABLE = Path(__file__).parent.parent / "golden" / "pylance-0.7.5" / "table.zip"
"""Two appends of 50 rows, a delete of 10, a compaction and a delete of 1; `mode="create"` made the first version."""

LINEAGE = ["x", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


def rows(count):
    return pa.table({"x": pa.array(range(count), pa.int64())})


def change_manifest(path, change, *, version):
    """Let a function change the message of a manifest that pylance wrote."""
    file = path / "_versions" / f"{2**64 - 1 - version:020d}.manifest"
    data = file.read_bytes()
    (position,) = struct.unpack_from("<q", data, len(data) - 16)
    (size,) = struct.unpack_from("<I", data, position)
    message = table_pb2.Manifest.FromString(data[position + 4 : position + 4 + size])
    change(message)
    encoded = message.SerializeToString()
    footer = struct.pack("<qHH4s", position, 0, 2, b"LANC")
    file.write_bytes(data[:position] + struct.pack("<I", len(encoded)) + encoded + footer)


def on_fragment(number, change):
    def changed(message):
        fragment = table_pb2.DataFragment.FromString(message.fragments[number])
        change(fragment)
        message.fragments[number] = fragment.SerializeToString()

    return changed


def without_writer(message):
    message.ClearField("writer_version")


@pytest.mark.parametrize("version", range(1, 6))
def test_a_table_of_2023(tmp_path, version):
    zipfile.ZipFile(OLD_TABLE).extractall(tmp_path)
    ours, theirs = lance_core.dataset(tmp_path, version=version), lance.dataset(tmp_path, version=version)
    assert ours.count_rows() == theirs.count_rows() == [50, 100, 90, 90, 89][version - 1]
    assert ours.count_rows("x < 40") == theirs.count_rows("x < 40")
    assert ours.to_table() == theirs.to_table()
    assert [one.physical_rows for one in ours.get_fragments()] == [one.physical_rows for one in theirs.get_fragments()]
    assert ours.take([0, 41])["x"] == theirs.take([0, 41])["x"]


def test_the_history_of_a_table_of_2023(tmp_path):
    zipfile.ZipFile(OLD_TABLE).extractall(tmp_path)
    ours, theirs = lance_core.dataset(tmp_path), lance.dataset(tmp_path)
    assert ours.verify(level="full").is_ok
    assert [one["metadata"] for one in ours.versions()] == [one["metadata"] for one in theirs.versions()]
    ours.update_config({"a": "b"})
    assert [one.physical_rows for one in lance.dataset(tmp_path).get_fragments()] == [90]
    assert lance.dataset(tmp_path).count_rows("x >= 0") == 89, "which pylance refuses where counts are left out"


@pytest.mark.parametrize("version", ["2.0", "2.2"])
@pytest.mark.parametrize(
    "change",
    [
        lambda fragment: setattr(fragment, "physical_rows", 42),
        lambda fragment: setattr(fragment, "physical_rows", 0),
        lambda fragment: setattr(fragment.deletion_file, "num_deleted_rows", 0),
    ],
)
@pytest.mark.parametrize("is_old", [True, False])
def test_row_counts(tmp_path, version, change, is_old):
    table = lance.write_dataset(rows(100), tmp_path, max_rows_per_file=50, data_storage_version=version)
    table.delete("x % 10 = 3")
    change_manifest(tmp_path, on_fragment(0, change), version=2)
    if is_old:
        change_manifest(tmp_path, without_writer, version=2)
    ours, theirs = lance_core.dataset(tmp_path), lance.dataset(tmp_path)
    assert ours.count_rows() == theirs.count_rows()
    if ours.count_rows() == 82:  # a count of a writer that says who it is counts; data shows it to be wrong
        with pytest.raises(CorruptDataError):
            ours.to_table()
        with pytest.raises(pa.ArrowInvalid):
            theirs.to_table()
        return
    assert ours.to_table() == theirs.to_table()
    assert ours.to_table().num_rows == 90


@pytest.fixture
def stable(tmp_path):
    table = lance.write_dataset(rows(8), tmp_path, enable_stable_row_ids=True, max_rows_per_file=4)
    table.update({"x": "x + 100"}, where="x in (1, 5)")
    return tmp_path


def test_fragments_without_row_ids_are_refused(stable):
    change_manifest(stable, on_fragment(1, lambda one: one.ClearField("row_id_sequence")), version=2)
    for library, error in ((lance, ValueError), (lance_core, CorruptDataError)):
        with pytest.raises(error, match=r"row ids"):
            library.dataset(stable)


def test_fragments_without_row_versions(stable):
    for name in ("created_at_version_sequence", "last_updated_at_version_sequence"):
        change_manifest(stable, on_fragment(1, lambda one, name=name: one.ClearField(name)), version=2)
    assert lance_core.dataset(stable).to_table(columns=LINEAGE) == lance.dataset(stable).to_table(columns=LINEAGE)
    lance_core.dataset(stable).update({"x": "x + 1000"}, where="x = 6")
    assert lance_core.dataset(stable).to_table(columns=LINEAGE) == lance.dataset(stable).to_table(columns=LINEAGE)


def test_ids_that_were_in_files_of_their_own_are_read_by_pylance_after_the_next_commit(stable):
    expected = lance.dataset(stable).to_table(columns=LINEAGE)

    def move_out(fragment):
        content = fragment.inline_row_ids
        (stable / "ids.bin").write_bytes(b"abc" + content)
        fragment.external_row_ids.CopyFrom(table_pb2.ExternalFile(path="ids.bin", offset=3, size=len(content)))

    change_manifest(stable, on_fragment(1, move_out), version=2)
    with pytest.raises(ValueError, match="row ids"):
        lance.dataset(stable)
    lance_core.dataset(stable).update_config({"a": "b"})
    assert lance.dataset(stable).to_table(columns=LINEAGE) == expected


def test_two_fragments_of_one_id(tmp_path):
    lance.write_dataset(rows(8), tmp_path, max_rows_per_file=4)
    lance.write_dataset(rows(1), tmp_path, mode="append")
    change_manifest(tmp_path, on_fragment(1, lambda one: setattr(one, "id", 0)), version=2)
    with pytest.raises(OSError, match="two fragments with id 0"):
        lance.write_dataset(rows(1), tmp_path, mode="append")
    with pytest.raises(CorruptDataError, match="2 fragments have the id 0"):
        lance_core.write_dataset(rows(1), tmp_path, mode="append")
    lance_core.dataset(tmp_path, version=1).restore()
    assert lance.write_dataset(rows(1), tmp_path, mode="append").count_rows() == 9


def test_columns_that_are_added_count_as_changes_of_rows_whose_versions_are_spilled(tmp_path):
    spill = {"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "0"}
    paths = tmp_path / "ours", tmp_path / "theirs"
    for path in paths:
        table = lance.write_dataset(rows(8), path, enable_stable_row_ids=True)
        table.update_config(spill)
        table.update({"x": "x + 100"}, where="x in (1, 5)")
        table.optimize.compact_files()
    assert lance_core.dataset(paths[0]).snapshot.manifest.reader_feature_flags & 2048
    lance_core.dataset(paths[0]).add_columns({"y": "x"})
    lance.dataset(paths[1]).add_columns({"y": "x"})
    expected = lance.dataset(paths[1]).to_table(columns=LINEAGE)
    assert lance.dataset(paths[0]).to_table(columns=LINEAGE) == expected
    assert lance_core.dataset(paths[0]).to_table(columns=LINEAGE) == expected
