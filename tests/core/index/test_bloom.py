"""Bloom filters follow their rows in compactions and merges of segments, without a look at the column."""

import re

import pyarrow as pa
import pytest

import lance_core
from lance_core.format.index.bloom_filter import filter_bytes, hash_values, is_crowded, make_filter, union
from lance_core.index.scalar import bloom_build

ITEMS = 100


@pytest.fixture(params=[False, True], ids=["addresses", "stable ids"])
def dataset(request, tmp_path):
    keys = pa.array([None if number % 50 == 7 else number for number in range(1000)])
    rows = pa.table({"k": keys, "other": range(1000)})
    made = lance_core.write_dataset(rows, tmp_path / "t", max_rows_per_file=250, enable_stable_row_ids=request.param)
    made.create_scalar_index("k", "BLOOMFILTER", number_of_items=ITEMS)
    return made


def check(dataset):
    assert dataset.index_statistics("k_idx")["num_unindexed_rows"] == 0
    assert dataset.verify(level="indices").is_ok
    for key in (3, 260, 999):
        assert dataset.count_rows(f"k = {key}") == dataset.count_rows(f"other = {key}")
    assert dataset.count_rows("k IS NULL") == dataset.count_rows("other % 50 = 7")
    assert re.search(r"k_idx, (\d\d|100) of [\d,]+ rows may match", dataset.scanner(filter="k = 260").explain_plan())


def num_zones(dataset):
    return [segment["num_zones"] for segment in dataset.index_statistics("k_idx")["segments"]]


def test_compaction_keeps_coverage_without_hashing_values(dataset, monkeypatch):
    monkeypatch.setattr(bloom_build, "hash_values", None)
    dataset.delete("other < 40 OR other % 4 = 1")
    assert dataset.optimize.compact_files().unindexed_rows == {}
    assert num_zones(dataset) == [12]  # of at most 75 rows; no two of them have room in one
    check(dataset)


def test_zones_of_small_fragments_are_joined(tmp_path):
    dataset = lance_core.write_dataset(pa.table({"k": range(1000)}), tmp_path / "t", max_rows_per_file=20)
    dataset.create_scalar_index("k", "BLOOMFILTER", number_of_items=ITEMS)
    assert num_zones(dataset) == [50]
    dataset.optimize.compact_files()
    assert num_zones(dataset) == [10]
    assert dataset.count_rows("k = 260") == 1
    assert dataset.verify(level="indices").is_ok


def test_segments_are_merged_from_their_filters(dataset, monkeypatch):
    lance_core.write_dataset(pa.table({"k": [2000, None], "other": [2000, 2007]}), dataset, mode="append")
    hashed = []
    monkeypatch.setattr(bloom_build, "hash_values", lambda values: hashed.append(len(values)) or hash_values(values))
    dataset.checkout_latest()
    dataset.optimize.optimize_indices(num_indices_to_merge=1)
    assert sum(hashed) == 1  # of the new rows that are not null
    assert dataset.index_statistics("k_idx")["num_segments"] == 1
    check(dataset)


def test_filters_of_other_sizes_and_crowded_ones_are_not_joined():
    filters = [
        make_filter(hash_values(pa.array(range(start, start + ITEMS))), filter_bytes(ITEMS)) for start in (0, 999)
    ]
    assert not any(is_crowded(data) for data in filters)
    assert is_crowded(union(*filters))
    assert union(filters[0], filters[0] * 2) is None
