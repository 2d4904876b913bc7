"""Compaction into files of another version."""

import lance
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import InvalidInputError, UnsupportedError


def rows(first, count=10):
    numbers = range(first, first + count)
    return pa.table({"a": pa.array(numbers, pa.int64()), "s": [None if one % 3 == 0 else f"s{one}" for one in numbers]})


def make(uri, version, fragments=4):
    lance.write_dataset(rows(0, 10 * fragments), uri, max_rows_per_file=10, data_storage_version=version)
    return lance_core.dataset(uri)


def versions_of(dataset):
    files = [file for one in dataset.get_fragments() for file in one.metadata.files]
    return [f"{file.file_major_version}.{file.file_minor_version}".replace("0.3", "2.0") for file in files]


@pytest.mark.parametrize(("old", "new"), [("2.0", "2.2"), ("2.0", "2.1"), ("2.1", "2.2"), ("2.2", "2.0")])
def test_a_table_is_migrated_a_few_fragments_at_a_time(tmp_path, old, new):
    uri = str(tmp_path / "t")
    dataset = make(uri, old)
    dataset.delete("a = 5")
    options = {"data_storage_version": new, "target_rows_per_fragment": 10, "max_source_fragments": 2}
    for moved in (2, 4):
        dataset.optimize.compact_files(**options)
        assert versions_of(dataset).count(old) == 4 - moved
        assert set(versions_of(dataset)) <= {old, new}
        theirs = lance.dataset(uri)
        theirs.validate()
        expected = rows(0, 40).filter(pa.compute.not_equal(rows(0, 40)["a"], 5))
        assert theirs.to_table().sort_by("a") == expected
        assert dataset.to_table().sort_by("a") == expected
    version = dataset.version
    dataset.optimize.compact_files(**options)
    assert dataset.version == version
    assert dataset.data_storage_version == theirs.data_storage_version == old
    assert dataset.verify().is_ok


def test_the_result_is_what_pylance_makes(tmp_path):
    ours, theirs = make(str(tmp_path / "ours"), "2.0"), make(str(tmp_path / "theirs"), "2.0")
    lance.dataset(theirs.uri).optimize.compact_files(data_storage_version="2.2")
    theirs.checkout_latest()
    ours.optimize.compact_files(data_storage_version="2.2")
    for one in (ours, theirs):
        assert versions_of(one) == ["2.2"]
        assert one.snapshot.manifest.reader_feature_flags == 256
        assert one.data_storage_version == "2.0"


def test_stable_row_ids_survive(tmp_path):
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(0, 40), uri, max_rows_per_file=10, data_storage_version="2.1", enable_stable_row_ids=True)
    before = lance.dataset(uri).to_table(with_row_id=True).sort_by("a")
    lance_core.dataset(uri).optimize.compact_files(data_storage_version="2.2")
    assert lance.dataset(uri).to_table(with_row_id=True).sort_by("a") == before


def test_tables_of_version_0_1_are_told_what_works(tmp_path):
    uri = str(tmp_path / "t")
    dataset = make(uri, "0.1")
    with pytest.raises(UnsupportedError, match=r'mode="overwrite", data_storage_version="2\.2"'):
        dataset.optimize.compact_files(data_storage_version="2.2")
    assert dataset.optimize.compact_files(data_storage_version="legacy").fragments_added == 1
    assert lance.dataset(uri).to_table() == dataset.to_table()
    newer = make(str(tmp_path / "newer"), "2.0")
    with pytest.raises(UnsupportedError, match=r'2\.0 into version 0\.1.*data_storage_version="0\.1"'):
        newer.optimize.compact_files(data_storage_version="0.1")
    with pytest.raises(InvalidInputError, match="mode overwrite"):
        lance_core.write_dataset(rows(100), uri, mode="append", data_storage_version="2.2")
    lance_core.write_dataset(dataset.scanner().to_reader(), uri, mode="overwrite", data_storage_version="2.2")
    assert lance.dataset(uri).to_table() == lance_core.dataset(uri).to_table()
    assert lance.dataset(uri).count_rows() == 40
    assert versions_of(lance_core.dataset(uri)) == ["2.2"]


def test_versions_that_cannot_be_written_are_refused(tmp_path):
    dataset = make(str(tmp_path / "t"), "2.0")
    with pytest.raises(InvalidInputError, match="9"):
        dataset.optimize.compact_files(data_storage_version="9")
    with pytest.raises(UnsupportedError):
        dataset.optimize.compact_files(data_storage_version="2.3")
    with pytest.raises(UnsupportedError, match="cannot copy pages"):
        dataset.optimize.compact_files(data_storage_version="2.2", compaction_mode="force_binary_copy")
