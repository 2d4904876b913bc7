from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from lance_core._proto import table_pb2
from lance_core.errors import CorruptDataError, InvalidInputError, UnsupportedError
from lance_core.format.schema import Schema
from lance_core.format.table.base_path import BasePath
from lance_core.format.table.bitmap import encode_bitmap
from lance_core.format.table.feature_flags import Feature
from lance_core.format.table.fragment import DataFile, DeletionFile, DeletionFileType, Fragment
from lance_core.format.table.index_metadata import IndexMetadata
from lance_core.format.table.operations import (
    Append,
    CreateIndex,
    DataReplacement,
    Delete,
    Merge,
    Overwrite,
    Project,
    ReserveFragments,
    Restore,
    Rewrite,
    RewriteGroup,
    Update,
    UpdateBases,
    UpdateConfig,
    UpdateMap,
    UpdateMemWalState,
    UpdateMode,
)
from lance_core.format.table.row_ids import decode_row_ids, decode_row_versions, encode_row_id_range, encode_row_ids
from lance_core.format.table.transaction import Transaction
from lance_core.table.rules.apply import apply, empty_manifest

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SCHEMA = Schema.from_arrow(pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.string())], {"s": "m"}))


def new(rows=10, *, fields=(0, 1), minor=2, **extra):
    file = DataFile(
        path=f"{rows}.lance",
        fields=fields,
        column_indices=tuple(range(len(fields))),
        file_major_version=2,
        file_minor_version=minor,
    )
    return Fragment(id=0, files=(file,), physical_rows=rows, **extra)


def deleted(fragment, count):
    file = DeletionFile(file_type=DeletionFileType.ARROW_ARRAY, read_version=1, id=1, num_deleted_rows=count)
    return replace(fragment, deletion_file=file)


def run(manifest, operation, **extra):
    transaction = Transaction(read_version=manifest.version, uuid="u", operation=operation, tag="t")
    return apply(manifest, transaction, version=manifest.version + 1, now=NOW, **extra)


def table(*, stable=False, fragments=2):
    empty = empty_manifest(SCHEMA, data_storage_version="2.2", enable_stable_row_ids=stable)
    return run(empty, Overwrite(fragments=tuple(new(10 + n) for n in range(fragments)), schema=SCHEMA))


def with_index(manifest, *, covers=(0, 1), fields=(0,), name="i"):
    pb = table_pb2.IndexMetadata(name=name, fields=fields, fragment_bitmap=BitMap(covers).serialize())
    section = table_pb2.IndexSection(indices=[pb]).SerializeToString()
    return replace(manifest, index_section=(manifest.index_section or b"") + section)


def index(name, *, field=0):
    pb = table_pb2.IndexMetadata(name=name, fields=[field], uuid={"uuid": name.encode() * 16})
    return IndexMetadata.from_proto(pb)


def test_creation():
    manifest = table()
    assert (manifest.version, manifest.timestamp, manifest.tag) == (1, NOW, "t")
    assert manifest.fragments.ids.tolist() == [0, 1]
    assert manifest.max_fragment_id == 1
    assert (manifest.reader_feature_flags, manifest.writer_feature_flags) == (0, 0)


def test_empty_creation_has_no_highest_fragment():
    assert table(fragments=0).max_fragment_id is None
    assert run(table(fragments=0), Append(fragments=(new(),))).fragments.ids.tolist() == [0]


def test_append():
    manifest = run(table(), Append(fragments=(new(5), new(6))))
    assert manifest.fragments.ids.tolist() == [0, 1, 2, 3]
    assert manifest.num_rows == 10 + 11 + 5 + 6
    assert manifest.max_fragment_id == 3


def test_append_never_reuses_ids():
    manifest = run(table(), Delete(deleted_fragment_ids=(1,)))
    assert run(manifest, Append(fragments=(new(),))).fragments.ids.tolist() == [0, 2]


def test_delete():
    before = table()
    manifest = run(before, Delete(updated_fragments=(deleted(before.fragments[0], 3),)))
    assert manifest.num_rows == 10 + 11 - 3
    assert manifest.reader_feature_flags == manifest.writer_feature_flags == Feature.DELETION_FILES
    manifest = run(manifest, Delete(deleted_fragment_ids=(0,)))
    assert manifest.reader_feature_flags == 0
    assert manifest.max_fragment_id == 1


@pytest.mark.parametrize(
    "operation", [Delete(deleted_fragment_ids=(7,)), Delete(updated_fragments=(replace(new(), id=7),))]
)
def test_fragments_must_be_there(operation):
    with pytest.raises(InvalidInputError, match="7"):
        run(table(), operation)


def test_overwrite_keeps_config_and_counts_on():
    before = replace(with_index(table()), config={"a": "b"}, table_metadata={"t": "m"})
    schema = Schema.from_arrow(pa.schema([pa.field("z", pa.int32())]))
    operation = Overwrite(fragments=(new(fields=(0,)),), schema=schema, config_upsert_values={"c": "d"})
    manifest = run(before, operation)
    assert manifest.fragments.ids.tolist() == [2]
    assert manifest.config == {"a": "b", "c": "d"}
    assert manifest.table_metadata == {"t": "m"}
    assert manifest.schema == schema
    assert manifest.indices == ()
    assert manifest.writer_feature_flags == Feature.CONFIG


def test_overwrite_switches_the_file_version_only_when_asked():
    operation = Overwrite(fragments=(new(minor=1),), schema=SCHEMA)
    assert run(table(), operation, data_storage_version="2.1").reader_feature_flags == 0
    kept = run(table(), operation)
    assert kept.data_storage_version == "2.2"
    assert kept.reader_feature_flags & Feature.MIXED_FILE_VERSIONS


def test_mixed_file_versions_are_said_for_ever():
    manifest = run(table(), Append(fragments=(new(minor=0),)))
    assert manifest.reader_feature_flags == manifest.writer_feature_flags == Feature.MIXED_FILE_VERSIONS
    manifest = run(manifest, Overwrite(fragments=(new(),), schema=SCHEMA))
    assert manifest.reader_feature_flags & Feature.MIXED_FILE_VERSIONS


def test_legacy_files_do_not_mix():
    legacy = new()
    legacy = replace(legacy, files=(replace(legacy.files[0], file_major_version=0),))
    with pytest.raises(InvalidInputError, match="cannot be mixed"):
        run(table(), Append(fragments=(legacy,)))


def test_fragments_need_files():
    with pytest.raises(InvalidInputError, match="no data files"):
        run(table(), Append(fragments=(replace(new(), files=()),)))


def test_rewrite_numbers_fragments_and_uncovers_indices():
    before = with_index(with_index(table(fragments=3), covers=(0, 1, 2)), covers=(0, 1), name="__lance_frag_reuse")
    old = tuple(before.fragments)[:2]
    group = RewriteGroup(old_fragments=old, new_fragments=(new(21), replace(new(4), id=9)))
    manifest = run(before, Rewrite(groups=(group,)))
    assert manifest.fragments.ids.tolist() == [2, 3, 9]
    assert [index.fragment_ids for index in manifest.indices] == [{2}, {0, 1}]
    assert manifest.max_fragment_id == 9


def test_reserve():
    assert run(table(), ReserveFragments(num_fragments=4)).max_fragment_id == 5
    assert run(table(fragments=0), ReserveFragments(num_fragments=4)).max_fragment_id == 3


def test_update_rows():
    before = with_index(table())
    operation = Update(
        removed_fragment_ids=(1,), updated_fragments=(deleted(before.fragments[0], 2),), new_fragments=(new(13),)
    )
    manifest = run(before, operation)
    assert manifest.fragments.ids.tolist() == [0, 2]
    assert manifest.num_rows == 8 + 13
    assert manifest.indices == before.indices


def test_update_columns_drops_dead_files_and_uncovers_the_fields():
    before = with_index(with_index(table(), fields=(0,)), fields=(1,))
    fragment = before.fragments[0]
    dead = replace(fragment.files[0], fields=(-2, -2))
    operation = Update(
        updated_fragments=(replace(fragment, files=(dead, fragment.files[0])),),
        fields_modified=(1,),
        update_mode=UpdateMode.REWRITE_COLUMNS,
    )
    manifest = run(before, operation)
    assert manifest.fragments[0].files == (fragment.files[0],)
    assert [index.fragment_ids for index in manifest.indices] == [{0, 1}, {1}]


def test_project_drops_files_and_indices_of_lost_fields():
    before = table()
    extra = replace(before.fragments[0].files[0], path="extra.lance", fields=(1,))
    wide = replace(before.fragments[0], files=(replace(extra, path="main.lance", fields=(0,)), extra))
    before = replace(before, fragments=before.fragments.replaced(updated={0: wide}))
    before = with_index(with_index(before, fields=(0,)), fields=(1,))
    schema = Schema(fields=SCHEMA.select(["a"]).fields)
    manifest = run(before, Project(schema=schema))
    assert [[file.path for file in fragment.files] for fragment in manifest.fragments] == [["main.lance"], ["11.lance"]]
    assert manifest.schema.metadata == {"s": b"m"}
    assert [index.fields for index in manifest.indices] == [(0,)]


def test_merge():
    before = with_index(table(), fields=(1,))
    wide = Schema.from_arrow(pa.schema([pa.field("a", pa.int64()), pa.field("c", pa.int8())]))
    wide = Schema(fields=(wide.fields[0], replace(wide.fields[1], id=2)))
    fragments = [replace(one, files=(*one.files, replace(one.files[0], fields=(2,)))) for one in before.fragments]
    manifest = run(before, Merge(fragments=tuple(reversed(fragments)), schema=wide))
    assert list(manifest.fragments) == fragments
    assert manifest.schema == wide
    assert manifest.indices == ()


def test_restore():
    old = replace(table(), config={"old": "1"})
    later = run(run(replace(old, config={}), Append(fragments=(new(),))), Append(fragments=(new(),)))
    manifest = run(later, Restore(version=1), restored=old)
    assert manifest.fragments == old.fragments
    assert manifest.config == {"old": "1"}
    assert (manifest.version, manifest.max_fragment_id) == (4, 3)
    with pytest.raises(InvalidInputError):
        run(later, Restore(version=1))
    with pytest.raises(InvalidInputError, match="stable"):
        run(later, Restore(version=1), restored=table(stable=True))


def test_update_config():
    before = replace(table(), config={"keep": "1", "drop": "2"}, table_metadata={"x": "y"})
    operation = UpdateConfig(
        config_updates=UpdateMap(update_entries={"drop": None, "new": "3", "absent": None}),
        table_metadata_updates=UpdateMap(update_entries={"only": "this"}, replace=True),
        schema_metadata_updates=UpdateMap(update_entries={"k": "v"}),
        field_metadata_updates={1: UpdateMap(update_entries={"f": "g"})},
    )
    manifest = run(before, operation)
    assert manifest.config == {"keep": "1", "new": "3"}
    assert manifest.table_metadata == {"only": "this"}
    assert manifest.schema.metadata == {"s": b"m", "k": b"v"}
    assert [one.metadata for one in manifest.schema.fields] == [{}, {"f": b"g"}]
    with pytest.raises(InvalidInputError, match="77"):
        run(before, UpdateConfig(field_metadata_updates={77: UpdateMap(update_entries={"f": "g"})}))


def test_operations_that_are_not_carried_out():
    with pytest.raises(UnsupportedError, match="UpdateMemWalState"):
        run(table(), UpdateMemWalState())


def test_create_index_replaces_by_uuid():
    before = run(table(), CreateIndex(new_indices=(index("a"), index("b"))))
    manifest = run(before, CreateIndex(new_indices=(index("c"),), removed_indices=(index("a"),)))
    assert [one.name for one in manifest.indices] == ["b", "c"]
    with pytest.raises(InvalidInputError, match="fields"):
        run(before, CreateIndex(new_indices=(index("d", field=9),)))


def test_replaced_files_take_the_place_of_the_same_columns():
    before = with_index(with_index(table(), fields=(0,)), fields=(1,))
    file = replace(before.fragments[0].files[0], path="new.lance")
    manifest = run(before, DataReplacement(replacements=((0, file),)))
    assert manifest.fragments[0].files == (file,)
    assert [one.fragment_ids for one in manifest.indices] == [{1}, {1}]


def test_replaced_columns_become_tombstones():
    before = with_index(with_index(table(), fields=(0,)), fields=(1,))
    old = before.fragments[0].files[0]
    file = replace(old, path="new.lance", fields=(1,), column_indices=(0,))
    manifest = run(before, DataReplacement(replacements=((0, file),)))
    assert manifest.fragments[0].files == (replace(old, fields=(0, -2)), file)
    assert [one.fragment_ids for one in manifest.indices] == [{0, 1}, {1}]
    with pytest.raises(InvalidInputError, match="schema"):
        run(before, DataReplacement(replacements=((0, replace(file, fields=(7,))),)))
    with pytest.raises(InvalidInputError, match="no fragments"):
        run(before, DataReplacement(replacements=((7, file),)))


def test_replaced_data_changes_all_rows_of_a_stable_fragment():
    before = table(stable=True)
    manifest = run(before, DataReplacement(replacements=((0, replace(new().files[0], path="n")),)))
    assert ids_and_versions(manifest.fragments[0])[1:] == ([1] * 10, [2] * 10)
    assert manifest.fragments[1] == before.fragments[1]


def test_base_paths_get_the_smallest_free_id():
    manifest = run(table(), UpdateBases(new_bases=(BasePath(id=2, path="/two"), BasePath(id=0, path="/one"))))
    manifest = run(manifest, UpdateBases(new_bases=(BasePath(id=0, path="/three", name="n"),)))
    assert {base.path: base.id for base in manifest.base_paths} == {"/two": 2, "/one": 1, "/three": 3}
    assert manifest.reader_feature_flags == manifest.writer_feature_flags == Feature.BASE_PATHS
    for twice in (BasePath(id=1, path="/x"), BasePath(id=0, path="/one"), BasePath(id=0, path="/x", name="n")):
        with pytest.raises(InvalidInputError, match="two base paths"):
            run(manifest, UpdateBases(new_bases=(twice,)))


def test_overwrite_brings_base_paths():
    bases = (BasePath(id=0, path="/b"),)
    assert run(table(), Overwrite(fragments=(), schema=SCHEMA, initial_bases=bases)).base_paths == (
        BasePath(id=1, path="/b"),
    )


def ids_and_versions(fragment):
    rows = fragment.physical_rows
    return (
        decode_row_ids(fragment.row_id_sequence, num_rows=rows).tolist(),
        decode_row_versions(fragment.created_at_version_sequence, num_rows=rows).tolist(),
        decode_row_versions(fragment.last_updated_at_version_sequence, num_rows=rows).tolist(),
    )


def test_stable_row_ids_count_on():
    manifest = run(table(stable=True), Append(fragments=(new(2), new(3))))
    assert manifest.reader_feature_flags == Feature.STABLE_ROW_IDS
    assert ids_and_versions(manifest.fragments[2]) == ([21, 22], [2, 2], [2, 2])
    assert ids_and_versions(manifest.fragments[3]) == ([23, 24, 25], [2, 2, 2], [2, 2, 2])
    manifest = run(manifest, Overwrite(fragments=(new(1),), schema=SCHEMA))
    assert ids_and_versions(manifest.fragments[0]) == ([26], [3], [3])
    restored = run(manifest, Restore(version=1), restored=table(stable=True))
    assert restored.next_row_id == 27


def test_row_ids_are_dropped_where_the_table_has_none():
    manifest = run(table(), Append(fragments=(new(2, row_id_sequence=b"x"),)))
    assert manifest.fragments[2].row_id_sequence is None


def test_moved_rows_keep_their_ids_and_creation():
    before = run(table(stable=True), Append(fragments=(new(4),)))
    moved = new(4, row_id_sequence=encode_row_ids(np.array([22, 3], np.uint64)))
    operation = Update(
        updated_fragments=(deleted(before.fragments[0], 1),),
        removed_fragment_ids=(2,),
        new_fragments=(moved, new(2)),
    )
    manifest = run(before, operation)
    assert ids_and_versions(manifest.fragments[2]) == ([22, 3, 25, 26], [2, 1, 3, 3], [3] * 4)
    assert ids_and_versions(manifest.fragments[3]) == ([27, 28], [3, 3], [3, 3])
    assert manifest.next_row_id == 29
    with pytest.raises(InvalidInputError, match="row id 15"):
        run(before, replace(operation, new_fragments=(new(1, row_id_sequence=encode_row_id_range(15, 16)),)))
    with pytest.raises(InvalidInputError, match="has 2 row ids"):
        run(before, replace(operation, new_fragments=(new(1, row_id_sequence=encode_row_id_range(3, 5)),)))


def test_rewritten_columns_stamp_the_rows_named():
    before = table(stable=True)
    operation = Update(
        updated_fragments=(before.fragments[0],),
        fields_modified=(1,),
        update_mode=UpdateMode.REWRITE_COLUMNS,
        updated_fragment_offsets={0: encode_bitmap([0, 9])},
    )
    manifest = run(before, operation)
    assert ids_and_versions(manifest.fragments[0])[1:] == ([1] * 10, [2] + [1] * 8 + [2])
    with pytest.raises(InvalidInputError, match="offset 10"):
        run(before, replace(operation, updated_fragment_offsets={0: encode_bitmap([10])}))
    for data in (b"x", b""):
        with pytest.raises(CorruptDataError, match="changed rows of fragment 0"):
            run(before, replace(operation, updated_fragment_offsets={0: data}))


def test_stable_rewrite_needs_the_ids():
    before = table(stable=True)
    group = RewriteGroup(old_fragments=tuple(before.fragments), new_fragments=(new(21),))
    with pytest.raises(UnsupportedError, match="row ids"):
        run(before, Rewrite(groups=(group,)))


def test_stable_merge_stamps_changed_fragments():
    before = table(stable=True)
    one, two = before.fragments
    wide = replace(one, files=(*one.files, replace(one.files[0], path="more.lance")))
    manifest = run(before, Merge(fragments=(wide, two), schema=SCHEMA))
    assert ids_and_versions(manifest.fragments[0])[1:] == ([1] * 10, [2] * 10)
    assert ids_and_versions(manifest.fragments[1])[1:] == ([1] * 11, [1] * 11)


def test_field_ids_that_are_never_reused():
    before = replace(table(), max_allocated_field_id=5, writer_feature_flags=int(Feature.NON_REUSABLE_FIELD_IDS))
    appended = run(before, Append(fragments=(new(),)))
    assert appended.writer_feature_flags == Feature.NON_REUSABLE_FIELD_IDS
    assert appended.max_allocated_field_id == 5
    for operation in (Overwrite(fragments=(), schema=SCHEMA), Merge(fragments=(), schema=SCHEMA)):
        with pytest.raises(UnsupportedError, match="32768"):
            run(before, operation)
