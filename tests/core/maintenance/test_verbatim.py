"""Pages that are copied as they are: the rows, and when it is done."""

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import CorruptDataError, InvalidInputError, UnsupportedError
from lance_core.maintenance import verbatim
from lance_core.store.open import open_store

ROWS = 900
COPY = "try_binary_copy"


def flat(rows=ROWS):
    rng = np.random.default_rng(3)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(rows * 4, np.float32)), 4)
    words = pa.array(["a", "bb", None, "dddd"]).take(pa.array(rng.integers(0, 4, rows)))
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "score": pa.array(rng.random(rows), mask=rng.random(rows) < 0.2),
            "same": pa.array([7] * rows, pa.int32()),
            "none": pa.nulls(rows, pa.string()),
            "flag": pa.array(rng.random(rows) < 0.5),
            "word": words,
            "long": pa.array([b"x" * size for size in rng.integers(0, 900, rows)], pa.large_binary()),
            "vector": vectors,
            "at": pa.array(rng.integers(0, 1 << 50, rows), pa.timestamp("us", "UTC")),
        }
    )


def pages(dataset):
    """Pages of each column of the only data file."""
    (fragment,) = dataset.get_fragments()
    (file,) = fragment.metadata.files
    reader = lance_core.file.LanceFileReader(f"{dataset.uri}/data/{file.path}")
    return {len(column.pages) for column in reader.metadata().columns}


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("stable", [False, True])
def test_rows_stay_as_they_are(tmp_path, version, stable):
    table = flat()
    lance_core.write_dataset(
        table, tmp_path, max_rows_per_file=100, data_storage_version=version, enable_stable_row_ids=stable
    )
    dataset = lance_core.dataset(tmp_path)
    ids = dataset.to_table(columns=[], with_row_id=True)["_rowid"].to_pylist() if stable else None
    metrics = dataset.optimize.compact_files(compaction_mode=COPY)
    assert (metrics.fragments_removed, metrics.fragments_added, metrics.files_added) == (9, 1, 1)
    assert dataset.to_table() == table
    assert dataset.take([899, 0, 450]) == table.take([899, 0, 450])
    assert not stable or dataset.to_table(columns=[], with_row_id=True)["_rowid"].to_pylist() == ids
    assert dataset.verify(level="full").is_ok


def test_groups_that_fit_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(verbatim, "_GROUP_FILES", 2)
    table = flat()
    lance_core.write_dataset(table, tmp_path, max_rows_per_file=100)
    dataset = lance_core.dataset(tmp_path)
    dataset.optimize.compact_files(compaction_mode="force_binary_copy")
    assert dataset.to_table() == table


def test_large_files_are_copied_page_by_page(tmp_path):
    table = flat()
    lance_core.write_dataset(table, tmp_path, max_rows_per_file=300)
    dataset = lance_core.dataset(tmp_path)
    manifest, store = dataset.snapshot.manifest, dataset.snapshot.store
    (fragment,) = verbatim.stage_copy(store, manifest, [*manifest.fragments], max_bytes=1000)
    assert fragment.physical_rows == ROWS
    lance_core.LanceDataset.commit(
        dataset.uri,
        lance_core.LanceOperation.Overwrite(dataset.schema, [lance_core.fragment.to_metadata(fragment)]),
        read_version=1,
    )
    assert lance_core.dataset(tmp_path).to_table() == table


NESTED = pa.table({"items": pa.array([[1, 2], None, []] * 100)})
DICTIONARY = pa.table({"word": pa.array(["a", "b", "a"] * 100).dictionary_encode()})


@pytest.mark.parametrize(
    ("table", "version"), [(NESTED, "2.2"), (DICTIONARY, "2.2"), (flat(300).select(["id"]), "2.0")]
)
def test_what_cannot_be_copied_is_decoded(tmp_path, table, version):
    lance_core.write_dataset(table, tmp_path, max_rows_per_file=100, data_storage_version=version)
    dataset = lance_core.dataset(tmp_path)
    with pytest.raises(UnsupportedError, match="cannot copy the pages"):
        dataset.optimize.compact_files(compaction_mode="force_binary_copy")
    assert len([*open_store(tmp_path).list("data")]) == 3
    dataset.optimize.compact_files(compaction_mode=COPY)
    assert (len(dataset.get_fragments()), dataset.to_table()) == (1, table)


def test_deleted_rows_and_new_columns_are_not_copied(tmp_path):
    lance_core.write_dataset(flat(300), tmp_path, max_rows_per_file=100)
    dataset = lance_core.dataset(tmp_path)
    dataset.delete("id = 150")
    with pytest.raises(UnsupportedError):
        dataset.optimize.compact_files(compaction_mode="force_binary_copy")
    dataset.optimize.compact_files(compaction_mode=COPY)
    assert dataset.count_rows() == 299
    dataset.add_columns({"twice": "id * 2"})
    lance_core.write_dataset(dataset.to_table().slice(0, 10), tmp_path, mode="append")
    dataset = lance_core.dataset(tmp_path)
    dataset.optimize.compact_files(compaction_mode=COPY)
    assert dataset.to_table()["twice"].to_pylist()[-10:] == [2 * i for i in range(10)]


def test_dropped_columns_are_left_behind(tmp_path):
    table = flat(300)
    lance_core.write_dataset(table, tmp_path, max_rows_per_file=100)
    dataset = lance_core.dataset(tmp_path)
    dataset.drop_columns(["long"])
    dataset.optimize.compact_files(compaction_mode="force_binary_copy")
    assert dataset.to_table() == table.drop_columns(["long"])
    (fragment,) = dataset.get_fragments()
    assert len(fragment.metadata.files[0].fields) == 8


def test_small_pages_are_put_together_unless_asked(tmp_path):
    lance_core.write_dataset(flat(), tmp_path, max_rows_per_file=100)
    dataset = lance_core.dataset(tmp_path)
    dataset.optimize.compact_files()
    assert pages(dataset) == {1}


def test_large_pages_stay(tmp_path):
    rows = 60_000
    table = pa.table({"x": np.random.default_rng(1).random(rows)})
    lance_core.write_dataset(table, tmp_path, max_rows_per_file=rows // 3)
    dataset = lance_core.dataset(tmp_path)
    dataset.optimize.compact_files()
    assert pages(dataset) == {3}
    assert dataset.to_table() == table
    again = tmp_path / "again"
    lance_core.write_dataset(table, again, max_rows_per_file=rows // 3)
    dataset = lance_core.dataset(again)
    dataset.optimize.compact_files(compaction_mode="reencode")
    assert pages(dataset) == {1}


def test_files_that_are_too_short_are_told(tmp_path):
    lance_core.write_dataset(flat(300), tmp_path, max_rows_per_file=100)
    dataset = lance_core.dataset(tmp_path)
    path = sorted((tmp_path / "data").iterdir())[1]
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(CorruptDataError):
        dataset.optimize.compact_files(compaction_mode=COPY)
    assert len([*(tmp_path / "data").iterdir()]) == 3


@pytest.mark.parametrize("options", [{"compaction_mode": "fast"}, {"max_memory_bytes": 1000}])
def test_options_that_make_no_sense(tmp_path, options):
    lance_core.write_dataset(flat(10), tmp_path)
    with pytest.raises(InvalidInputError, match=next(iter(options))):
        lance_core.dataset(tmp_path).optimize.compact_files(**options)
