"""Pages of small files that are put together: what becomes of dictionaries, and what a page costs."""

import struct

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.encoding import registry

ROWS, FILES = 20_000, 10


def written(path, table, version="2.2", files=FILES):
    rows = -(-table.num_rows // files)
    return lance_core.write_dataset(table, path, max_rows_per_file=rows, data_storage_version=version)


def columns_of(dataset):
    """Columns of the only data file."""
    (fragment,) = dataset.get_fragments()
    (file,) = fragment.metadata.files
    return lance_core.file.LanceFileReader(f"{dataset.uri}/data/{file.path}").metadata().columns


def size_of(dataset):
    return sum(file.file_size_bytes for one in dataset.get_fragments() for file in one.metadata.files)


def repeating(rows=ROWS):
    rng = np.random.default_rng(5)
    names = np.array(["Manhattan", "Queens", "Staten Island", "Bronx"])
    return pa.table(
        {
            "price": np.round(rng.gamma(2, 3, rows), 1),
            "hole": pa.array(rng.integers(0, 9, rows) * 10**12, mask=rng.random(rows) < 0.2),
            "name": names[rng.integers(0, 4, rows)],
            "place": pa.array(names[rng.integers(0, 4, rows)], mask=rng.random(rows) < 0.2),
        }
    )


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_dictionaries_become_one_as_good_as_that_of_new_data(tmp_path, version):
    table = repeating()
    new = lance_core.write_dataset(table, tmp_path / "new", data_storage_version=version)
    dataset = written(tmp_path / "old", table, version)
    dataset.optimize.compact_files(compaction_mode="reencode")
    assert dataset.to_table() == table
    for column, like in zip(columns_of(dataset), columns_of(new), strict=True):
        assert len(column.pages) == 1
        assert "dictionary" in column.pages[0].encoding
        assert column.pages[0].encoding == like.pages[0].encoding
    assert size_of(dataset) == size_of(new)


def test_each_bit_of_a_number_stays(tmp_path):
    """Neither numbers that are none nor zeros that are equal are put together."""
    odd = [struct.unpack("<d", struct.pack("<Q", one))[0] for one in (0, 1 << 63, 0x7FF8 << 48, (0x7FF8 << 48) + 5)]
    table = pa.table({"x": pa.array(np.tile(odd, ROWS // 4))})
    dataset = written(tmp_path, table)
    dataset.optimize.compact_files(compaction_mode="reencode")
    assert dataset.to_table()["x"].to_numpy().tobytes() == table["x"].to_numpy().tobytes()


def test_items_of_deleted_rows_are_left_out(tmp_path):
    numbers = np.arange(ROWS) % 200
    table = pa.table({"id": numbers.astype(np.int32), "word": [f"{number}" * 20 for number in numbers]})
    dataset = written(tmp_path, table)
    dataset.delete("id >= 50")
    dataset.optimize.compact_files(compaction_mode="reencode")
    assert dataset.to_table() == table.filter(pa.compute.field("id") < 50)
    assert "num_dictionary_items=50," in columns_of(dataset)[1].pages[0].encoding


@pytest.mark.parametrize("nulls", [0, 0.3])
def test_values_that_turn_out_alike(tmp_path, nulls):
    """Where a page has more than one value, but none that is left."""
    rng = np.random.default_rng(2)
    kept = np.arange(ROWS) % 2 == 0
    words = pa.array(np.where(kept, "kept", "gone"), mask=rng.random(ROWS) < nulls)
    table = pa.table({"id": np.arange(ROWS), "word": words})
    dataset = written(tmp_path, table)
    dataset.delete("id % 2 = 1")
    dataset.optimize.compact_files(compaction_mode="reencode")
    assert dataset.to_table() == table.filter(pa.array(kept))


def test_nothing_but_nulls_is_left(tmp_path):
    words = ["a", None, "b", None] * (ROWS // 4)
    table = pa.table({"id": np.arange(ROWS), "word": pa.array(words)})
    dataset = written(tmp_path, table)
    dataset.delete("id % 2 = 0")
    dataset.optimize.compact_files(compaction_mode="reencode")
    assert dataset.to_table()["word"].null_count == ROWS // 2


def test_nothing_is_left(tmp_path):
    dataset = written(tmp_path, repeating())
    lance_core.write_dataset(repeating(100), tmp_path, mode="append")
    dataset = lance_core.dataset(tmp_path)
    dataset.delete(f"_rowaddr < {FILES << 32}")
    dataset.optimize.compact_files(compaction_mode="reencode")
    assert dataset.to_table() == repeating(100)


def test_some_pages_have_dictionaries(tmp_path):
    numbers = np.random.default_rng(1).integers(0, 1 << 60, ROWS)
    numbers[ROWS // 2 :] %= 7
    numbers[ROWS // 2 :] <<= 50
    dataset = written(tmp_path, pa.table({"x": numbers}))
    dataset.optimize.compact_files(compaction_mode="reencode")
    assert dataset.to_table()["x"].to_numpy().tolist() == numbers.tolist()


def test_items_that_no_page_shares_are_values_again(tmp_path):
    """Each file repeats its own values, which makes for more items than are worth a dictionary."""
    numbers = np.repeat(np.random.default_rng(1).integers(0, 1 << 60, ROWS // 3), 3)
    numbers = numbers.reshape(-1, 3).T.reshape(-1)[: ROWS // 3 * 3]
    table = pa.table({"x": np.concatenate([np.tile(part, 3) for part in np.array_split(numbers[: ROWS // 3], FILES)])})
    dataset = written(tmp_path, table)
    before = size_of(dataset)
    dataset.optimize.compact_files(compaction_mode="reencode")
    assert dataset.to_table() == table
    assert size_of(dataset) <= before


def test_pages_as_large_as_those_of_new_data(tmp_path):
    """Long strings that are stored in few bytes, and vectors."""
    rows = 6_000
    vectors = np.tile(np.arange(512, dtype=np.float32), rows)
    table = pa.table(
        {
            "text": ["a line that occurs in most places, time and again, " * 100] * rows,
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors), 512),
        }
    )
    new = lance_core.write_dataset(table, tmp_path / "new")
    dataset = written(tmp_path / "old", table)
    dataset.optimize.compact_files(compaction_mode="reencode")
    assert dataset.to_table() == table
    for column, like in zip(columns_of(dataset), columns_of(new), strict=True):
        assert abs(len(column.pages) - len(like.pages)) <= 1


def test_dictionaries_that_are_alike_are_decoded_once(tmp_path, monkeypatch):
    decoded, inner = [], registry.decode_block

    def decode(encoding, data, count):
        decoded.append(count)
        return inner(encoding, data, count)

    monkeypatch.setattr(registry, "decode_block", decode)
    dataset = written(tmp_path, pa.table({"name": ["Manhattan", "Queens", "Staten Island", "Bronx"] * (ROWS // 4)}))
    dataset.optimize.compact_files(compaction_mode="reencode")
    assert decoded == [4]


@pytest.mark.slow
def test_calls_of_a_page(tmp_path, calls_of):
    """However many values it has."""
    counts = []
    for files in (20, 60):
        for name in ("warm", "counted"):
            dataset = written(tmp_path / f"{files} {name}", repeating(files * 1000), files=files)
            counts.append(calls_of(lambda one=dataset: one.optimize.compact_files(compaction_mode="reencode")))
    num_pages = 4 * 40
    assert (counts[3] - counts[1]) / num_pages <= 265
