"""Manifests that leave out what other files tell, or that say what cannot be."""

import uuid
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.common.limits import limits
from lance_core.errors import CorruptDataError, InvalidInputError, UnsupportedError
from lance_core.format.table.fragment import ExternalFile
from lance_core.format.table.fragment_list import FragmentList
from lance_core.format.table.manifest import encode_manifest_pieces
from lance_core.format.table.paths import ManifestNaming, manifest_path
from lance_core.format.table.row_ids import encode_row_ids, encode_row_versions
from lance_core.table.snapshot import decode_version

LINEAGE = ["x", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
SEQUENCES = ("row_id_sequence", "created_at_version_sequence", "last_updated_at_version_sequence")


def rows(count):
    return pa.table({"x": pa.array(range(count), pa.int64())})


def change_manifest(dataset, **changes):
    """Write the newest manifest anew."""
    store, version = dataset.snapshot.store, dataset.version
    manifest = replace(decode_version(store, version), **changes)
    store.put(manifest_path(version, ManifestNaming.V2), b"".join(encode_manifest_pieces(manifest)))


def change_fragments(dataset, *fragments, **changes):
    before = {one.id: one for one in decode_version(dataset.snapshot.store, dataset.version).fragments}
    changed = FragmentList.of((before | {one.id: one for one in fragments}).values())
    change_manifest(dataset, fragments=changed, **changes)


def opened(dataset, **arguments):
    return lance_core.dataset(dataset.uri, **arguments)


def problems(dataset):
    return {one.kind: str(one) for one in lance_core.verify(dataset.uri, level="full").problems}


@pytest.fixture
def uri():
    return f"memory://completion-{uuid.uuid4()}"


@pytest.fixture
def deleted(uri):
    """Two fragments of 50 rows, each of which lost 5."""
    dataset = lance_core.write_dataset(rows(100), uri, max_rows_per_file=50)
    dataset.delete("x % 10 = 3")
    return dataset


@pytest.fixture
def stable(uri):
    """Fragments 0 and 1 of 4 rows, two of which an update moved to fragment 2."""
    dataset = lance_core.write_dataset(rows(8), uri, enable_stable_row_ids=True, max_rows_per_file=4)
    dataset.update({"x": "x + 100"}, where="x in (1, 5)")
    return dataset


# ------------------------------------------------------------------------------------------------------- counts of rows


def with_counts(fragment, *, num_rows=50, num_deleted=5):
    return replace(
        fragment,
        physical_rows=num_rows,
        deletion_file=replace(fragment.deletion_file, num_deleted_rows=num_deleted),
    )


@pytest.mark.parametrize(
    ("counts", "is_old"),
    [
        ({"num_rows": 0, "num_deleted": 0}, True),
        ({"num_rows": 42}, True),
        ({"num_rows": 3}, True),
        ({"num_deleted": 3}, True),
        ({"num_rows": 0}, False),
        ({"num_deleted": 0}, False),
    ],
)
def test_counts_that_are_missing_or_old_are_taken_from_the_files(deleted, counts, is_old):
    fragment = deleted.snapshot.manifest.fragments[0]
    change_fragments(deleted, with_counts(fragment, **counts), has_reliable_counts=not is_old)
    table = opened(deleted)
    assert table.count_rows() == 90
    assert table.count_rows("x < 40") == 36
    assert table.to_table()["x"].to_pylist() == [x for x in range(100) if x % 10 != 3]
    assert [(one.physical_rows, one.num_deletions) for one in table.get_fragments()] == [(50, 5), (50, 5)]
    assert table.take([44])["x"].to_pylist() == [49]


def test_the_next_commit_records_the_counts(deleted):
    first, second = (with_counts(one, num_rows=0, num_deleted=0) for one in deleted.snapshot.manifest.fragments)
    change_fragments(deleted, first, second, has_reliable_counts=False)
    table = lance_core.write_dataset(rows(1), deleted.uri, mode="append")
    stored = decode_version(table.snapshot.store, table.version)
    assert stored.has_reliable_counts
    assert stored.fragments.physical_rows.tolist() == [50, 50, 1]
    assert stored.fragments.num_deleted_rows.tolist() == [5, 5, 0]
    table.delete("x = 99")
    assert opened(table).count_rows() == 90


@pytest.mark.parametrize("folder", ["data", "_deletions"])
def test_a_fragment_whose_rows_cannot_be_counted_is_an_error(deleted, folder):
    fragment = deleted.snapshot.manifest.fragments[0]
    change_fragments(deleted, with_counts(fragment, num_rows=0, num_deleted=0), has_reliable_counts=False)
    store = deleted.snapshot.store
    store.delete([info.path for info in store.list(folder)])
    with pytest.raises(CorruptDataError, match="fragment 0: a file is missing"):
        opened(deleted)
    assert "a file is missing" in str(lance_core.verify(deleted.uri))


def test_verify_tells_of_counts_that_differ_from_the_files(deleted):
    fragment = deleted.snapshot.manifest.fragments[0]
    change_fragments(deleted, with_counts(fragment, num_rows=42), has_reliable_counts=False)
    assert "42 rows" in problems(deleted)["fragment"]
    change_fragments(deleted, with_counts(fragment, num_rows=0), has_reliable_counts=True)
    assert "0 rows" in problems(deleted)["fragment"]
    change_fragments(deleted, with_counts(fragment, num_rows=60), has_reliable_counts=True)
    assert "60" in problems(deleted)["values"]
    change_fragments(deleted, with_counts(fragment, num_rows=0, num_deleted=0), has_reliable_counts=False)
    assert not problems(deleted), "writers of that time left counts out, and readers know it"


def test_more_deleted_rows_than_rows_are_refused(deleted):
    change_fragments(deleted, with_counts(deleted.snapshot.manifest.fragments[0], num_deleted=51))
    with pytest.raises(CorruptDataError, match="fragment 0 has 50 rows, of which 51 are deleted"):
        opened(deleted)


def test_versions_count_deletion_files_not_the_rows_they_are_said_to_have(deleted):
    change_fragments(deleted, with_counts(deleted.snapshot.manifest.fragments[0], num_deleted=0))
    assert opened(deleted).versions()[-1]["metadata"]["total_deletion_files"] == "2"


# ------------------------------------------------------------------------------------------------- row ids and versions


def moved_out(dataset, fragment, names=SEQUENCES):
    """The fragment with its sequences in a file, which has other bytes around them."""
    content, changes = b"abc", {}
    for name in names:
        sequence = getattr(fragment, name)
        changes[name] = ExternalFile(path=f"ids/{fragment.id}.bin", offset=len(content), size=len(sequence))
        content += sequence
    dataset.snapshot.store.put(f"ids/{fragment.id}.bin", content + b"xyz")
    return replace(fragment, **changes)


@pytest.fixture
def external(stable):
    """The ids and versions of fragments 1 and 2 are in files of their own, and are none that anybody would guess."""
    first, second, third = stable.snapshot.manifest.fragments
    versions = encode_row_versions(np.array([2, 1, 1, 2], np.uint64))
    ids = encode_row_ids(np.array([7, 5, 4, 6], np.uint64))
    second = replace(
        second,
        row_id_sequence=ids,
        created_at_version_sequence=versions,
        last_updated_at_version_sequence=versions,
    )
    change_fragments(stable, first, moved_out(stable, second), moved_out(stable, third))
    return stable


EXPECTED = {
    "x": [0, 2, 3, 4, 6, 7, 101, 105],
    "_rowid": [0, 2, 3, 7, 4, 6, 1, 5],
    "_row_created_at_version": [1, 1, 1, 2, 1, 2, 1, 1],
    "_row_last_updated_at_version": [1, 1, 1, 2, 1, 2, 2, 2],
}


def test_ids_and_versions_in_files_of_their_own_are_read(external):
    table = opened(external)
    assert table.to_table(columns=LINEAGE).to_pydict() == EXPECTED
    assert table._take_rows([7, 5])["x"].to_pylist() == [4, 105]
    assert table.count_rows("_row_created_at_version = 2") == 2
    assert not problems(external)


@pytest.mark.parametrize("change", ["append", "compaction", "branch"])
def test_ids_and_versions_in_files_of_their_own_survive_a_commit(external, change):
    table = opened(external)
    if change == "append":
        table = lance_core.write_dataset(rows(1), table, mode="append")
    elif change == "compaction":
        table.optimize.compact_files()
    else:
        table = table.create_branch("b")
    store = table.snapshot.store
    store.delete(["ids/1.bin", "ids/2.bin"])
    found = table.checkout_version(table.version).to_table(columns=LINEAGE, filter="_rowid < 8")
    assert found.to_pydict() == EXPECTED, "the manifest has them now"


def test_clean_up_keeps_files_with_ids(external):
    store = external.snapshot.store
    fragment = external.snapshot.manifest.fragments[1]
    store.put("data/ids.lance", fragment.row_id_sequence)
    outside = ExternalFile(path="data/ids.lance", offset=0, size=len(fragment.row_id_sequence))
    change_fragments(external, replace(fragment, row_id_sequence=outside))
    table = opened(external)
    table.cleanup_old_versions(older_than=timedelta(0))
    assert store.get("data/ids.lance") == fragment.row_id_sequence


@pytest.mark.parametrize("path", ["../ids/1.bin", "/ids/1.bin", "ids/../../1.bin", "_base/0/1.bin", "", "ids//1.bin"])
def test_files_with_ids_lie_in_the_dataset(external, path):
    fragment = decode_version(external.snapshot.store, external.version).fragments[1]
    change_fragments(external, replace(fragment, row_id_sequence=replace(fragment.row_id_sequence, path=path)))
    with pytest.raises(CorruptDataError, match="file with row ids or versions"):
        opened(external)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"size": 1 << 40}, UnsupportedError, "max_manifest_bytes|MAX_MANIFEST_BYTES"),
        ({"offset": 1 << 40}, CorruptDataError, "of a file of"),
        ({"path": "ids/9.bin"}, CorruptDataError, "fragment 1: a file is missing"),
        ({"offset": 0}, CorruptDataError, "row ids"),
    ],
)
def test_files_with_ids_that_do_not_fit(external, change, error, text):
    fragment = decode_version(external.snapshot.store, external.version).fragments[1]
    assert change.get("size", 0) == 0 or change["size"] > limits().max_manifest_bytes
    change_fragments(external, replace(fragment, row_id_sequence=replace(fragment.row_id_sequence, **change)))
    assert problems(external)
    with pytest.raises(error, match=text):
        opened(external).to_table(columns=["_rowid"])


def test_a_commit_does_not_write_ids_into_files_of_their_own(stable):
    fragment = moved_out(stable, stable.snapshot.manifest.fragments[1])
    operation = lance_core.LanceOperation.Delete(
        updated_fragments=[lance_core.fragment.to_metadata(fragment)], deleted_fragment_ids=[], predicate="x"
    )
    with pytest.raises(UnsupportedError, match="fragment 1 comes with row ids"):
        lance_core.LanceDataset.commit(stable.uri, operation, read_version=stable.version)


def test_fragments_without_ids_are_refused_where_rows_have_ids(stable):
    fragment = stable.snapshot.manifest.fragments[1]
    change_fragments(stable, replace(fragment, row_id_sequence=None))
    with pytest.raises(CorruptDataError, match="fragment 1 has no row ids"):
        opened(stable)
    with pytest.raises(CorruptDataError, match="fragment 1 has no row ids"):
        lance_core.write_dataset(rows(1), stable.uri, mode="append")
    assert "no row ids" in problems(stable)["fragment"]
    opened(stable, version=1).restore()
    assert opened(stable).to_table(columns=["_rowid"])["_rowid"].to_pylist() == list(range(8))


def test_ids_of_rows_are_refused_where_rows_have_none(stable):
    change_manifest(stable, reader_feature_flags=1, writer_feature_flags=1)
    with pytest.raises(CorruptDataError, match="fragment 0 has row ids, but"):
        opened(stable)
    assert "has row ids" in problems(stable)["fragment"]


def test_a_commit_that_loses_ids_is_refused(stable):
    fragment = replace(lance_core.fragment.to_metadata(stable.snapshot.manifest.fragments[1]), row_id_meta=None)
    operation = lance_core.LanceOperation.Delete(updated_fragments=[fragment], deleted_fragment_ids=[], predicate="x")
    with pytest.raises(InvalidInputError, match="fragment 1 has no row ids"):
        lance_core.LanceDataset.commit(stable.uri, operation, read_version=stable.version)
    assert opened(stable).version == stable.version


def test_rows_written_before_there_were_versions_of_rows_count_as_of_version_1(stable):
    fragment = stable.snapshot.manifest.fragments[1]
    without = dict.fromkeys(("created_at_version_sequence", "last_updated_at_version_sequence"))
    change_fragments(stable, replace(fragment, **without))
    table = opened(stable)
    table.update({"x": "x + 1000"}, where="x = 6")
    found = table.to_table(columns=LINEAGE, filter="x in (7, 1006)").to_pydict()
    assert found["_row_created_at_version"] == [1, 1]
    assert found["_row_last_updated_at_version"] == [1, table.version]
    assert not problems(table)


def test_row_ids_are_never_given_twice(stable):
    change_manifest(stable, next_row_id=0)
    with pytest.raises(CorruptDataError, match="next free row id"):
        lance_core.write_dataset(rows(1), stable.uri, mode="append")
    assert "next free one" in problems(stable)["row_ids"]


@pytest.mark.parametrize("name", ["created_at_version_sequence", "last_updated_at_version_sequence"])
@pytest.mark.parametrize("versions", [[1, 1, 9, 1], [1, 1, 1]])
def test_verify_tells_of_versions_that_cannot_be(stable, name, versions):
    fragment = stable.snapshot.manifest.fragments[1]
    change_fragments(stable, replace(fragment, **{name: encode_row_versions(np.array(versions, np.uint64))}))
    assert "row_ids" in problems(stable)


# -------------------------------------------------------------------------------------------- fragments and their files


@pytest.fixture
def doubled(uri):
    """A good version 1, and a version 2 with two fragments of one id."""
    dataset = lance_core.write_dataset(rows(8), uri, max_rows_per_file=4)
    dataset = lance_core.write_dataset(rows(1), dataset, mode="append")
    first, second, third = dataset.snapshot.manifest.fragments
    change_manifest(dataset, fragments=FragmentList.of([first, replace(second, id=2), third]))
    return dataset


def test_two_fragments_of_one_id_are_refused(doubled):
    with pytest.raises(CorruptDataError, match="2 fragments have the id 2"):
        opened(doubled)
    with pytest.raises(CorruptDataError, match="2 fragments have the id 2"):
        opened(doubled, version=2)
    with pytest.raises(CorruptDataError, match="2 fragments have the id 2"):
        lance_core.write_dataset(rows(1), doubled.uri, mode="append")
    assert "2 fragments have the id 2" in problems(doubled)["fragment"]


def test_a_version_without_doubled_ids_can_be_restored(doubled):
    opened(doubled, version=1).restore()
    assert opened(doubled).to_table() == rows(8)


def test_a_commit_on_top_of_doubled_ids_is_refused(doubled):
    operation = lance_core.LanceOperation.Delete(updated_fragments=[], deleted_fragment_ids=[0], predicate="x")
    with pytest.raises(InvalidInputError, match="2 fragments have the id 2"):
        lance_core.LanceDataset.commit(doubled.uri, operation, read_version=2)


def test_a_commit_that_would_double_an_id_is_refused(uri):
    dataset = lance_core.write_dataset(rows(8), uri, max_rows_per_file=4)
    first, second = (one.metadata for one in dataset.get_fragments())
    operation = lance_core.LanceOperation.Merge([first, replace(second, id=0)], dataset.lance_schema)
    with pytest.raises(InvalidInputError, match="2 fragments have the id 0"):
        lance_core.LanceDataset.commit(uri, operation, read_version=1)
    assert opened(dataset).version == 1


@pytest.mark.parametrize("changes", [{"column_indices": ()}, {"column_indices": (-1,)}])
def test_a_column_that_the_manifest_does_not_locate_is_an_error(uri, changes):
    dataset = lance_core.write_dataset(rows(8), uri, max_rows_per_file=4)
    fragment = dataset.snapshot.manifest.fragments[1]
    change_fragments(dataset, replace(fragment, files=(replace(fragment.files[0], **changes),)))
    with pytest.raises(CorruptDataError, match="column"):
        opened(dataset).to_table()
    assert "column" in problems(dataset)["values"]


def test_a_fragment_without_files_has_no_rows_of_nulls(uri):
    dataset = lance_core.write_dataset(rows(8), uri, max_rows_per_file=4)
    change_fragments(dataset, replace(dataset.snapshot.manifest.fragments[1], files=()))
    with pytest.raises(CorruptDataError, match="fragment 1 has no data files"):
        opened(dataset).to_table()
    assert "no data files" in problems(dataset)["fragment"]
