"""The matrix, checked against the measured one in the notation of the measurement."""

from dataclasses import replace

import pyarrow as pa
import pytest
from pyroaring import BitMap

from lance_core._proto import table_pb2
from lance_core.format.schema import Schema
from lance_core.format.table.base_path import BasePath
from lance_core.format.table.fragment import DataFile, Fragment
from lance_core.format.table.index_metadata import decode_index_section
from lance_core.format.table.operations import (
    Append,
    Clone,
    CreateIndex,
    DataOverlay,
    DataReplacement,
    Delete,
    InsertedKeys,
    Merge,
    Overwrite,
    Project,
    ReserveFragments,
    Restore,
    Rewrite,
    RewriteGroup,
    UnknownOperation,
    Update,
    UpdateBases,
    UpdateConfig,
    UpdateMap,
    UpdateMemWalState,
    UpdateMode,
)
from lance_core.table.rules.conflicts import Verdict, judge

SCHEMA = Schema.from_arrow(pa.schema([pa.field("a", pa.int64())]))
FILE = DataFile(path="f", fields=(0,), column_indices=(0,), file_major_version=2, file_minor_version=2)


def fragment(number):
    return Fragment(id=number, files=(FILE,), physical_rows=10)


def index(number):
    pb = table_pb2.IndexMetadata(name="i", fields=[0], fragment_bitmap=BitMap([number]).serialize())
    return decode_index_section(table_pb2.IndexSection(indices=[pb]).SerializeToString())[0]


def operations(number):
    """One of each kind, touching one fragment."""
    entries = UpdateMap(update_entries={f"key {number}": "v"})
    return {
        "Append": Append(fragments=(fragment(0),)),
        "Delete": Delete(updated_fragments=(fragment(number),)),
        "Delete whole": Delete(deleted_fragment_ids=(number,)),
        "Overwrite": Overwrite(fragments=(), schema=SCHEMA),
        "Update rows": Update(updated_fragments=(fragment(number),), new_fragments=(fragment(0),)),
        "Update columns": Update(updated_fragments=(fragment(number),), update_mode=UpdateMode.REWRITE_COLUMNS),
        "Rewrite": Rewrite(groups=(RewriteGroup(old_fragments=(fragment(number),), new_fragments=()),)),
        "Merge pn": Merge(fragments=(), schema=SCHEMA, preserves_nullability=True),
        "Merge": Merge(fragments=(), schema=SCHEMA),
        "Project pn": Project(schema=SCHEMA, preserves_nullability=True),
        "Project": Project(schema=SCHEMA),
        "Config": UpdateConfig(config_updates=entries),
        "SchemaMeta": UpdateConfig(schema_metadata_updates=entries),
        "FieldMeta": UpdateConfig(field_metadata_updates={0: entries}),
        "TableMeta": UpdateConfig(table_metadata_updates=entries),
        "Index": CreateIndex(new_indices=(index(number),)),
        "DataRepl": DataReplacement(replacements=((number, FILE),)),
        "Restore": Restore(version=1),
        "Reserve": ReserveFragments(num_fragments=1),
        "Bases": UpdateBases(new_bases=(BasePath(id=number, path=f"/base {number}"),)),
        "MemWal": UpdateMemWalState(),
        "Clone": Clone(is_shallow=True, ref_name=None, ref_version=1, ref_path="", branch_name=None),
    }


# mine: {verdict: others}; "*": only if they share a fragment or key; what is not listed is compatible.
MEASURED = {
    "Append": {"I": "Overwrite Restore MemWal", "R": "Merge Project"},
    "Delete": {
        "I": "Overwrite Restore MemWal",
        "R": "Merge|Merge pn",
        "R*": "Update columns|Rewrite|DataRepl",
        "D*": "Delete|Delete whole|Update rows",
    },
    "Overwrite": {"R": "Overwrite", "I": "MemWal"},
    "Update rows": {
        "I": "Overwrite Restore",
        "R": "Merge|Merge pn|Project",
        "R*": "Update columns|Rewrite|DataRepl",
        "D*": "Delete|Delete whole|Update rows",
    },
    "Update columns": {
        "I": "Overwrite Restore",
        "R": "Merge|Merge pn|Project|Project pn",
        "R*": "Update columns|Update rows|Delete|Delete whole|Rewrite|DataRepl",
    },
    "Rewrite": {
        "I": "Overwrite Restore MemWal",
        "R": "Merge|Merge pn",
        "R*": "Update columns|Update rows|Delete|Delete whole|Rewrite|DataRepl|Index",
    },
    "Merge": {
        "I": "Overwrite|Restore|MemWal|Project|Project pn",
        "R": "Append|Delete|Delete whole|Update rows|Update columns|Rewrite|Merge|Merge pn|SchemaMeta|FieldMeta"
        "|DataRepl",
    },
    "Project pn": {"I": "Overwrite Restore MemWal", "R": "Merge|Merge pn|Project|Project pn"},
    "Project": {
        "I": "Overwrite Restore MemWal",
        "R": "Append|Update rows|Update columns|Merge|Merge pn|Project|Project pn|DataRepl",
    },
    "Config": {"I*": "Config"},
    "SchemaMeta": {"I": "Overwrite Restore", "R": "Merge|Merge pn", "I*": "SchemaMeta"},
    "FieldMeta": {"I": "Overwrite Restore", "R": "Merge|Merge pn|Project|Project pn", "I*": "FieldMeta"},
    "TableMeta": {"I*": "TableMeta"},
    "Restore": {"I": "SchemaMeta FieldMeta MemWal"},
    "Reserve": {"I": "Overwrite Restore"},
    "Index": {"I": "Overwrite Restore MemWal", "R": "Index DataRepl", "R*": "Rewrite"},
    "DataRepl": {
        "I": "Overwrite Restore MemWal",
        "R": "Merge|Merge pn|Project|Index",
        "R*": "Update columns|Update rows|Rewrite|DataRepl",
    },
    "Bases": {"I*": "Bases"},
}
MEASURED["Merge pn"] = MEASURED["Merge"]
MEASURED["Delete whole"] = MEASURED["Delete"]
NAMES = {"R": Verdict.RETRY, "I": Verdict.INCOMPATIBLE, "D": Verdict.REBASE}


def expected(mine, other, shared):
    for cell, listed in MEASURED[mine].items():
        if other in (listed.split("|") if "|" in listed else [listed, *listed.split()]) and (
            shared or not cell.endswith("*")
        ):
            return NAMES[cell[0]]
    return Verdict.COMPATIBLE


@pytest.mark.parametrize("mine", MEASURED)
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "apart"])
def test_matrix(mine, shared):
    ours = operations(1)[mine]
    verdicts = {other: judge(ours, theirs) for other, theirs in operations(1 if shared else 2).items()}
    assert verdicts == {other: expected(mine, other, shared) for other in verdicts}


@pytest.mark.parametrize("mine", MEASURED)
def test_what_is_not_known_conflicts_with_everything(mine):
    for theirs in (UnknownOperation(), DataOverlay(fragment_ids=(9,))):
        assert judge(operations(1)[mine], theirs) is Verdict.INCOMPATIBLE


def test_config_against_the_config_of_an_overwrite():
    ours = UpdateConfig(config_updates=UpdateMap(update_entries={"k": "1"}))
    same = Overwrite(fragments=(), schema=SCHEMA, config_upsert_values={"k": "2"})
    other = Overwrite(fragments=(), schema=SCHEMA, config_upsert_values={"x": "2"})
    assert judge(ours, same) is Verdict.INCOMPATIBLE
    assert judge(ours, other) is Verdict.COMPATIBLE


def test_replacing_a_whole_map_loses_nobodys_change():
    replacing = UpdateConfig(config_updates=UpdateMap(update_entries={"x": "1"}, replace=True))
    setting = UpdateConfig(config_updates=UpdateMap(update_entries={"y": "1"}))
    elsewhere = UpdateConfig(table_metadata_updates=UpdateMap(update_entries={"y": "1"}))
    assert judge(replacing, setting) is Verdict.INCOMPATIBLE
    assert judge(setting, replacing) is Verdict.INCOMPATIBLE
    assert judge(replacing, elsewhere) is Verdict.COMPATIBLE


def test_several_changes_count_each():
    ours = UpdateConfig(
        config_updates=UpdateMap(update_entries={"x": "1"}),
        schema_metadata_updates=UpdateMap(update_entries={"y": "1"}),
    )
    assert judge(ours, Overwrite(fragments=(), schema=SCHEMA)) is Verdict.INCOMPATIBLE


def test_index_of_unknown_coverage_may_cover_everything():
    pb = table_pb2.IndexMetadata(name="i", fields=[0])
    unknown = decode_index_section(table_pb2.IndexSection(indices=[pb]).SerializeToString())
    assert judge(operations(1)["Rewrite"], CreateIndex(new_indices=unknown)) is Verdict.RETRY


def test_index_over_another_column_than_the_one_replaced():
    pb = table_pb2.IndexMetadata(name="other", fields=[1], fragment_bitmap=BitMap([1]).serialize())
    index = CreateIndex(new_indices=decode_index_section(table_pb2.IndexSection(indices=[pb]).SerializeToString()))
    assert judge(index, operations(1)["DataRepl"]) is Verdict.COMPATIBLE
    assert judge(operations(1)["DataRepl"], index) is Verdict.COMPATIBLE
    assert judge(index, operations(1)["Index"]) is Verdict.COMPATIBLE


def test_an_index_is_built_again_when_its_values_changed_meanwhile():
    ours = operations(1)["Index"]
    changed = replace(operations(1)["Update columns"], fields_modified=(0,))
    assert judge(ours, changed) is Verdict.RETRY
    assert judge(ours, replace(changed, fields_modified=(1,))) is Verdict.COMPATIBLE
    assert judge(ours, replace(operations(2)["Update columns"], fields_modified=(0,))) is Verdict.COMPATIBLE


def inserting(hashes, *, fields=(0,)):
    return Update(new_fragments=(fragment(0),), inserted_rows=InsertedKeys(field_ids=fields, hashes=hashes, record=b""))


def test_two_writers_that_insert_one_key():
    ours = inserting(frozenset({1, 2}))
    assert judge(ours, inserting(frozenset({2, 3}))) is Verdict.RETRY
    assert judge(ours, inserting(frozenset({3}))) is Verdict.COMPATIBLE
    assert judge(ours, inserting(None)) is Verdict.RETRY
    assert judge(ours, inserting(frozenset({3}), fields=(1,))) is Verdict.RETRY
    assert judge(ours, Update(new_fragments=(fragment(0),))) is Verdict.COMPATIBLE


def test_base_paths_of_one_name_or_address():
    def bases(number, path, name):
        return UpdateBases(new_bases=(BasePath(id=number, path=path, name=name),))

    ours = bases(0, "/a", "n")
    assert judge(ours, bases(0, "/b", "n")) is Verdict.INCOMPATIBLE
    assert judge(ours, bases(0, "/a", "m")) is Verdict.INCOMPATIBLE
    assert judge(ours, bases(0, "/b", "m")) is Verdict.COMPATIBLE
