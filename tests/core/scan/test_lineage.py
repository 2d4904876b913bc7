import uuid
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.change.row_index import RowIndex
from lance_core.errors import CorruptDataError, InvalidInputError
from lance_core.format.table.fragment import RowLineageColumn
from lance_core.format.table.row_ids import encode_row_ids
from lance_core.scan import lineage
from lance_core.scan.fragment_reader import FragmentReader


def table(num_rows):
    return pa.table({"id": pa.array(range(num_rows), pa.int64())})


@pytest.fixture
def dataset():
    uri = f"memory://lineage-{uuid.uuid4()}"
    return lance_core.write_dataset(table(10), uri, enable_stable_row_ids=True, max_rows_per_file=4)


def reader_of(dataset, **changes):
    return FragmentReader(dataset.files, replace(dataset.snapshot.manifest.fragments[1], **changes))


def test_without_versions_rows_count_as_of_version_1_but_without_ids_they_have_none(dataset):
    names = ("row_id_sequence", "created_at_version_sequence", "last_updated_at_version_sequence")
    reader = reader_of(dataset, **dict.fromkeys(names))
    assert reader.created_versions.tolist() == reader.updated_versions.tolist() == [1] * 4
    with pytest.raises(CorruptDataError, match="fragment 1 has no stable row ids"):
        _ = reader.stable_row_ids


@pytest.mark.parametrize("read", [lineage.row_ids, lineage.created_versions, lineage.updated_versions])
def test_a_column_that_no_file_has(dataset, read):
    marker = RowLineageColumn()
    names = ("row_id_sequence", "created_at_version_sequence", "last_updated_at_version_sequence")
    reader = reader_of(dataset, **dict.fromkeys(names, marker))
    assert lineage.has_spilled_lineage(reader.fragment)
    with pytest.raises(CorruptDataError, match="fragment 1"):
        read(reader)


@pytest.mark.parametrize("name", ["row_id_sequence", "created_at_version_sequence"])
def test_sequences_of_another_length(dataset, name):
    reader = reader_of(dataset, **{name: encode_row_ids(np.arange(3, dtype=np.uint64))})
    with pytest.raises(CorruptDataError):
        getattr(reader, "stable_row_ids" if name == "row_id_sequence" else "created_versions")


def test_rows_are_found_where_they_live_now(dataset):
    dataset.update({"id": "id + 100"}, where="id in (1, 5)")
    dataset.delete("id = 2")
    index = RowIndex(dataset.files, dataset.snapshot.manifest)
    addresses, found = index.addresses(np.array([5, 0, 1, 2, 5, 77], np.uint64))
    assert found.tolist() == [True, True, True, False, True, False]
    assert addresses[found].tolist() == [(3 << 32) + 1, 0, 3 << 32, (3 << 32) + 1]


def test_addresses_find_themselves():
    dataset = lance_core.write_dataset(table(5), f"memory://lineage-{uuid.uuid4()}", max_rows_per_file=3)
    dataset.delete("id = 1")
    index = RowIndex(dataset.files, dataset.snapshot.manifest)
    wanted = np.array([1 << 32, 1, 2, 3, (1 << 32) + 2], np.uint64)
    addresses, found = index.addresses(wanted)
    assert found.tolist() == [True, False, True, False, False]
    assert addresses[found].tolist() == [1 << 32, 2]
    with pytest.raises(InvalidInputError, match="fragment 9"):
        index.addresses(np.array([9 << 32], np.uint64))
