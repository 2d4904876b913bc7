import pyarrow as pa
import pytest

from lance_core._proto import table_pb2, transaction_pb2
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.schema import Schema
from lance_core.format.table.base_path import BasePath
from lance_core.format.table.bitmap import encode_bitmap
from lance_core.format.table.fragment import DataFile, Fragment
from lance_core.format.table.index_metadata import IndexMetadata, RewrittenIndex
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
from lance_core.format.table.transaction import Transaction, decode_transaction, encode_transaction

SCHEMA = Schema.from_arrow(pa.schema([pa.field("a", pa.int64())], {"k": "v"}))
FILE = DataFile(path="a.lance", fields=(0,), column_indices=(0,), file_major_version=2, file_minor_version=2)
ONE = Fragment(id=1, files=(FILE,), physical_rows=10)
TWO = Fragment(id=2, files=(FILE,), physical_rows=20)

INDEX = IndexMetadata.from_proto(table_pb2.IndexMetadata(name="i", fields=[3], uuid={"uuid": b"u" * 16}))
_KEYS = transaction_pb2.Transaction.KeyExistenceFilter(field_ids=[0], exact={"key_hashes": [5, 6]})
INSERTED = InsertedKeys(field_ids=(0,), hashes=frozenset({5, 6}), record=_KEYS.SerializeToString())

WRITTEN = [
    Append(fragments=(ONE, TWO)),
    Delete(updated_fragments=(ONE,), deleted_fragment_ids=(2, 3), predicate="a > 1"),
    Overwrite(fragments=(ONE,), schema=SCHEMA, config_upsert_values={"x": "y"}),
    Overwrite(fragments=(), schema=SCHEMA, initial_bases=(BasePath(id=1, path="/b", name="n", is_dataset_root=True),)),
    Rewrite(
        groups=(RewriteGroup(old_fragments=(ONE,), new_fragments=(TWO,)),),
        rewritten_indices=(
            RewrittenIndex(
                old_id=b"o" * 16, new_id=b"n" * 16, type_url="/t", details=b"d", index_version=2, files=(("f", 3),)
            ),
            RewrittenIndex(old_id=b"o" * 16, new_id=b"n" * 16),
        ),
    ),
    Merge(fragments=(ONE, TWO), schema=SCHEMA, preserves_nullability=True),
    Restore(version=7),
    ReserveFragments(num_fragments=3),
    Update(
        removed_fragment_ids=(4,),
        updated_fragments=(ONE,),
        new_fragments=(TWO,),
        fields_modified=(0,),
        fields_for_preserving_frag_bitmap=(1,),
        update_mode=UpdateMode.REWRITE_COLUMNS,
        updated_fragment_offsets={1: encode_bitmap([0, 3])},
        inserted_rows=INSERTED,
    ),
    Project(schema=Schema(fields=SCHEMA.fields), preserves_nullability=True),
    UpdateConfig(
        config_updates=UpdateMap(update_entries={"set": "1", "gone": None}),
        table_metadata_updates=UpdateMap(update_entries={}, replace=True),
        field_metadata_updates={0: UpdateMap(update_entries={"empty": ""})},
    ),
    DataReplacement(replacements=((1, FILE), (2, FILE))),
    CreateIndex(new_indices=(INDEX,), removed_indices=(INDEX,)),
    Clone(is_shallow=True, ref_name="b", ref_version=3, ref_path="/x", branch_name=None),
    UpdateBases(new_bases=(BasePath(id=0, path="/b"), BasePath(id=2, path="/c", name=""))),
]


@pytest.mark.parametrize("operation", WRITTEN, ids=lambda operation: type(operation).__name__)
def test_round_trip(operation):
    before = Transaction(
        read_version=5, uuid="id", operation=operation, transaction_properties={"who": "me", "": "ü"}, tag="t"
    )
    assert decode_transaction(encode_transaction(before)) == before


def decode(**operation):
    return decode_transaction(transaction_pb2.Transaction(uuid="u", **operation).SerializeToString()).operation


def test_operations_that_are_only_judged():
    message = transaction_pb2.Transaction
    assert decode(update_mem_wal_state=message.UpdateMemWalState()) == UpdateMemWalState()
    assert decode(data_overlay=message.DataOverlay(groups=[{"fragment_id": 2}])) == DataOverlay(fragment_ids=(2,))


def test_operation_of_the_future_is_unknown():
    field_200 = b"\xc2\x0c\x00"
    data = transaction_pb2.Transaction(read_version=1, uuid="u").SerializeToString() + field_200
    assert decode_transaction(data).operation == UnknownOperation()


def test_forms_of_older_writers():
    rewrite = decode(rewrite=transaction_pb2.Transaction.Rewrite(old_fragments=[{"id": 1}], new_fragments=[{"id": 2}]))
    assert [fragment.id for fragment in rewrite.groups[0].old_fragments] == [1]
    config = decode(
        update_config=transaction_pb2.Transaction.UpdateConfig(
            upsert_values={"a": "b"}, delete_keys=["c"], schema_metadata={"s": "m"}
        )
    )
    assert config.config_updates == UpdateMap(update_entries={"a": "b", "c": None})
    assert config.schema_metadata_updates == UpdateMap(update_entries={"s": "m"}, replace=True)


def test_changed_offsets_of_older_writers():
    update = transaction_pb2.Transaction.Update()
    update.updated_fragment_offsets[3].values.extend([4, 1])
    assert decode(update=update).updated_fragment_offsets == {3: encode_bitmap([1, 4])}


def test_what_is_only_judged_is_not_written():
    with pytest.raises(UnsupportedError, match="DataOverlay"):
        encode_transaction(Transaction(read_version=1, uuid="u", operation=DataOverlay(fragment_ids=())))


def test_garbage_is_refused():
    with pytest.raises(CorruptDataError):
        decode_transaction(b"\xff\xff\xff")
