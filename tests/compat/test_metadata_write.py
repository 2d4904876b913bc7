"""Manifests, transactions, deletion files and tags as we write them, with pylance as the judge.

The data files are pylance's; what is committed about them is ours.
"""

import uuid
from dataclasses import replace
from datetime import timedelta

import lance
import pyarrow as pa
import pytest
from pyroaring import BitMap

from lance_core.format.schema import Schema
from lance_core.format.table.fragment import Fragment
from lance_core.format.table.operations import (
    Append,
    Delete,
    Merge,
    Overwrite,
    Project,
    ReserveFragments,
    Restore,
    Rewrite,
    RewriteGroup,
    Update,
    UpdateConfig,
    UpdateMap,
)
from lance_core.format.table.row_ids import decode_row_ids, encode_row_ids, encode_row_versions
from lance_core.format.table.transaction import COMMIT_MESSAGE_KEY, Transaction
from lance_core.maintenance.cleanup import cleanup_old_versions
from lance_core.store.open import open_store
from lance_core.table.commit import commit
from lance_core.table.rebase import load_deletions, write_deletions
from lance_core.table.refs import create_tag, update_tag
from lance_core.table.runtime import SYSTEM_RUNTIME
from lance_core.table.snapshot import find_versions, open_snapshot

SCHEMA = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.string())])


def rows(values):
    values = list(values)
    return pa.table({"a": values, "b": [str(value) for value in values]}, schema=SCHEMA)


class Table:
    """Commits our operations, reads with pylance."""

    def __init__(self, uri, *, stable=False):
        self.uri = uri
        self.store = open_store(uri)
        lance.write_dataset(rows(range(10)), uri, enable_stable_row_ids=stable)

    @property
    def manifest(self):
        return open_snapshot(self.store).manifest

    def stage(self, values) -> Fragment:
        """Data written by pylance, not committed."""
        (staged,) = lance.fragment.write_fragments(rows(values), self.uri)
        (file,) = staged.files
        ours = replace(self.manifest.fragments[0].files[0], path=file.path, file_size_bytes=file.file_size_bytes or 0)
        return Fragment(id=0, files=(ours,), physical_rows=staged.physical_rows)

    def commit(self, operation, *, read_version=None, **properties):
        return commit(
            self.store,
            Transaction(
                read_version=read_version or find_versions(self.store).numbers[-1],
                uuid=str(uuid.uuid4()),
                operation=operation,
                transaction_properties=properties,
            ),
        )

    def without(self, fragment_id, offsets):
        fragment = self.manifest.fragments.find(fragment_id)
        deleted = BitMap(offsets) | load_deletions(self.store, fragment)
        file, _ = write_deletions(
            self.store, fragment_id, deleted, read_version=self.manifest.version, new_id=SYSTEM_RUNTIME.random_u63
        )
        return replace(fragment, deletion_file=file)

    def read(self, version=None, **options):
        return lance.dataset(self.uri, version=version).to_table(**options)

    def values(self, version=None, **options):
        return sorted(self.read(version, **options)["a"].to_pylist())

    def exercise(self, expected):
        """Let pylance do everything it can on top of our versions."""
        table = lance.dataset(self.uri)
        assert sorted(table.to_table()["a"].to_pylist()) == sorted(expected)
        assert table.count_rows() == len(expected)
        table.validate()
        one = expected[0]
        assert table.to_table(filter=f"a = {one}")["a"].to_pylist() == [one]
        lance.write_dataset(rows([900_000, 900_001]), self.uri, mode="append")
        table = lance.dataset(self.uri)
        table.delete("a = 900000")
        table.update({"b": "'x'"}, where="a = 900001")
        table.optimize.compact_files()
        table.cleanup_old_versions(older_than=timedelta(0), error_if_tagged_old_versions=False)
        table = lance.dataset(self.uri)
        table.validate()
        assert sorted(table.to_table()["a"].to_pylist()) == sorted([*expected, 900_001])
        ids = table.to_table(with_row_id=True)["_rowid"].to_pylist()
        assert len(set(ids)) == len(ids)


@pytest.fixture(params=[False, True], ids=["addresses", "stable ids"])
def table(request, tmp_path):
    return Table(str(tmp_path / "tä ble"), stable=request.param)


def test_append(table):
    table.commit(Append(fragments=(table.stage(range(10, 15)), table.stage([15]))))
    assert table.values() == list(range(16))
    table.exercise(list(range(16)))


def test_message_and_properties(table):
    done = table.commit(Append(fragments=(table.stage([10]),)), **{COMMIT_MESSAGE_KEY: "hi", "run": "ü 1"})
    theirs = lance.dataset(table.uri).read_transaction(done.version)
    assert theirs.transaction_properties == {COMMIT_MESSAGE_KEY: "hi", "run": "ü 1"}
    assert type(theirs.operation).__name__ == "Append"


@pytest.mark.parametrize("count", [3, 6000])
def test_delete(table, count):
    table.commit(Append(fragments=(table.stage(range(10, 20_010)),)))
    table.commit(Delete(updated_fragments=(table.without(1, range(0, 2 * count, 2)),), predicate="odd"))
    expected = [*range(10), *(n for n in range(10, 20_010) if n - 10 >= 2 * count or n % 2)]
    assert table.values() == expected
    table.commit(Delete(deleted_fragment_ids=(0,), predicate="whole"))
    table.exercise(expected[10:])


def test_delete_again_by_both(table):
    table.commit(Delete(updated_fragments=(table.without(0, [1]),)))
    lance.dataset(table.uri).delete("a = 2")
    table.commit(Delete(updated_fragments=(table.without(0, [3]),)))
    table.exercise([0, *range(4, 10)])


def test_delete_rebased_on_a_delete_of_pylance(table):
    ours = Delete(updated_fragments=(table.without(0, [1]),))
    lance.dataset(table.uri).delete("a = 2")
    table.commit(ours, read_version=1)
    table.exercise([0, *range(3, 10)])


def test_creation(table, tmp_path):
    fragment = table.stage([1, 2, 3])
    other = tmp_path / "new"
    (other / "data").mkdir(parents=True)
    (other / "data" / fragment.files[0].path).write_bytes(table.store.get(f"data/{fragment.files[0].path}"))
    operation = Overwrite(fragments=(fragment,), schema=Schema.from_arrow(SCHEMA), config_upsert_values={"k": "v"})
    transaction = Transaction(read_version=0, uuid=str(uuid.uuid4()), operation=operation)
    commit(open_store(other), transaction, enable_stable_row_ids=table.manifest.uses_stable_row_ids)
    theirs = lance.dataset(str(other))
    assert theirs.version == 1
    assert theirs.config() == {"k": "v"}
    assert theirs.data_storage_version == "2.2"
    assert theirs.has_stable_row_ids == table.manifest.uses_stable_row_ids
    assert theirs.schema == SCHEMA
    table.uri, table.store = str(other), open_store(other)
    table.exercise([1, 2, 3])


def test_overwrite(table):
    lance.dataset(table.uri).create_scalar_index("a", "BTREE")
    lance.dataset(table.uri).update_config({"k": "v"})
    table.commit(Overwrite(fragments=(table.stage([7, 8]),), schema=Schema.from_arrow(SCHEMA)))
    assert lance.dataset(table.uri).config() == {"k": "v"}
    assert lance.dataset(table.uri).describe_indices() == []
    table.exercise([7, 8])


def test_update_rows(table):
    updated = Update(updated_fragments=(table.without(0, [1, 2]),), new_fragments=(table.stage([101, 102]),))
    table.commit(updated)
    table.exercise([0, *range(3, 10), 101, 102])


@pytest.mark.parametrize("index", ["BTREE", "BITMAP", "ZONEMAP"])
def test_rewrite_with_an_index(table, index):
    lance.write_dataset(rows(range(10, 20)), table.uri, mode="append")
    lance.dataset(table.uri).create_scalar_index("a", index)
    lance.dataset(table.uri).delete("a IN (4, 13)")
    expected = [value for value in range(20) if value not in (4, 13)]
    before = table.manifest
    new = table.stage(expected)
    if before.uses_stable_row_ids:
        kept = table.read(with_row_id=True, columns=["a", "_row_created_at_version", "_row_last_updated_at_version"])
        new = replace(
            new,
            row_id_sequence=encode_row_ids(kept["_rowid"].to_numpy()),
            created_at_version_sequence=encode_row_versions(kept["_row_created_at_version"].to_numpy()),
            last_updated_at_version_sequence=encode_row_versions(kept["_row_last_updated_at_version"].to_numpy()),
        )
        assert decode_row_ids(new.row_id_sequence, num_rows=18).tolist() == kept["_rowid"].to_pylist()
    group = RewriteGroup(old_fragments=tuple(before.fragments), new_fragments=(new,))
    table.commit(Rewrite(groups=(group,)))
    theirs = lance.dataset(table.uri)
    assert len(theirs.get_fragments()) == 1
    for value in expected:
        assert theirs.to_table(filter=f"a = {value}")["a"].to_pylist() == [value]
    assert theirs.to_table(filter="a = 4").num_rows == 0
    theirs.optimize.optimize_indices()
    assert [one.name for one in lance.dataset(table.uri).describe_indices()] == ["a_idx"]
    for value in expected:
        assert lance.dataset(table.uri).to_table(filter=f"a = {value}")["a"].to_pylist() == [value]
    table.exercise(expected)


def test_index_survives_appends_and_deletes(table):
    lance.dataset(table.uri).create_scalar_index("a", "BTREE")
    table.commit(Append(fragments=(table.stage(range(10, 20)),)))
    table.commit(Delete(updated_fragments=(table.without(0, [3]),)))
    theirs = lance.dataset(table.uri)
    assert len(theirs.describe_indices()) == 1
    assert theirs.to_table(filter="a >= 2 AND a < 12")["a"].to_pylist() == [2, *range(4, 12)]
    table.exercise([*range(3), *range(4, 20)])


def test_restore_reserve_project_and_config(table):
    table.commit(Append(fragments=(table.stage([10]),)))
    table.commit(Restore(version=1))
    assert table.values() == list(range(10))
    table.commit(ReserveFragments(num_fragments=5))
    lance.write_dataset(rows([10]), table.uri, mode="append")
    assert max(one.fragment_id for one in lance.dataset(table.uri).get_fragments()) == 7
    schema = table.manifest.schema
    renamed = replace(schema, fields=(schema.fields[0], replace(schema.fields[1], name="c")))
    table.commit(Project(schema=renamed, preserves_nullability=True))
    assert table.read().column_names == ["a", "c"]
    table.commit(Project(schema=Schema(fields=schema.fields[:1]), preserves_nullability=True))
    assert table.read().column_names == ["a"]
    entries = {"config_updates": "c", "table_metadata_updates": "t", "schema_metadata_updates": "s"}
    updates = {name: UpdateMap(update_entries={key: "1"}) for name, key in entries.items()}
    table.commit(UpdateConfig(**updates, field_metadata_updates={0: UpdateMap(update_entries={"f": "1"})}))
    theirs = lance.dataset(table.uri)
    assert (theirs.config(), theirs.metadata, theirs.schema.metadata) == ({"c": "1"}, {"t": "1"}, {b"s": b"1"})
    assert theirs.schema.field("a").metadata == {b"f": b"1"}
    assert table.values() == list(range(11))


def test_merge_adds_a_column_of_nulls(table):
    schema = table.manifest.schema
    extra = replace(schema.fields[1], id=2, name="c")
    wide = replace(schema, fields=(*schema.fields, extra))
    table.commit(Merge(fragments=tuple(table.manifest.fragments), schema=wide, preserves_nullability=True))
    assert table.read()["c"].null_count == 10
    lance.dataset(table.uri).add_columns({"d": "a + 1"})
    assert sorted(table.read()["d"].to_pylist()) == list(range(1, 11))


def test_tags(table):
    table.commit(Append(fragments=(table.stage([10]),)))
    create_tag(table.store, "first", 1)
    theirs = lance.dataset(table.uri)
    assert theirs.tags.list()["first"]["version"] == 1
    assert lance.dataset(table.uri, version="first").count_rows() == 10
    update_tag(table.store, "first", 2)
    assert lance.dataset(table.uri, version="first").count_rows() == 11
    theirs.tags.update("first", 1)
    theirs.tags.delete("first")


def test_pylance_judges_its_commits_against_ours(table):
    stale = lance.dataset(table.uri)
    table.commit(Delete(updated_fragments=(table.without(0, [1]),)))
    stale.delete("a = 2")  # merges
    assert table.values() == [0, *range(3, 10)]
    stale = lance.dataset(table.uri)
    fragments = lance.fragment.write_fragments(rows([99]), table.uri)
    table.commit(Overwrite(fragments=(table.stage([7]),), schema=Schema.from_arrow(SCHEMA)))
    with pytest.raises(OSError, match=r"[Ii]ncompatible|conflict"):
        lance.LanceDataset.commit(table.uri, lance.LanceOperation.Append(fragments), read_version=stale.version)


def test_clean_up_leaves_what_pylance_needs(table):
    for value in range(10, 14):
        table.commit(Append(fragments=(table.stage([value]),)))
    lance.dataset(table.uri).create_scalar_index("a", "BTREE")
    lance.dataset(table.uri).delete("a = 3")
    lance.dataset(table.uri).optimize.compact_files()
    lance.dataset(table.uri).tags.create("keep", 3)
    cleanup_old_versions(table.store, older_than=timedelta(0), error_if_tagged_old_versions=False)
    assert table.values(3) == list(range(12))
    assert len(lance.dataset(table.uri).versions()) == 2
    nothing = lance.dataset(table.uri).explain_cleanup_old_versions(
        older_than=timedelta(0), error_if_tagged_old_versions=False
    )
    assert nothing.stats.bytes_removed == 0, "pylance finds nothing that we forgot"
    table.exercise([0, 1, 2, *range(4, 14)])


def test_v1_names(tmp_path):
    uri = str(tmp_path / "old")
    lance.write_dataset(rows(range(10)), uri, enable_v2_manifest_paths=False)
    store = open_store(uri)
    fragment = open_snapshot(store).manifest.fragments[0]
    operation = Append(fragments=(replace(fragment, id=0),))
    commit(store, Transaction(read_version=1, uuid=str(uuid.uuid4()), operation=operation))
    assert lance.dataset(uri).count_rows() == 20
    assert "2.manifest" in store.names("_versions")
