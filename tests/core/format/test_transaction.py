import pyarrow as pa
import pytest

from lance_core._proto import transaction_pb2
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.fragment import DataFile, Fragment
from lance_core.format.operations import (
    Append,
    Clone,
    CreateIndex,
    DataOverlay,
    DataReplacement,
    Delete,
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
from lance_core.format.schema import Schema
from lance_core.format.transaction import Transaction, decode_transaction, encode_transaction

SCHEMA = Schema.from_arrow(pa.schema([pa.field("a", pa.int64())], {"k": "v"}))
FILE = DataFile(path="a.lance", fields=(0,), column_indices=(0,), file_major_version=2, file_minor_version=2)
ONE = Fragment(id=1, files=(FILE,), physical_rows=10)
TWO = Fragment(id=2, files=(FILE,), physical_rows=20)

WRITTEN = [
    Append(fragments=(ONE, TWO)),
    Delete(updated_fragments=(ONE,), deleted_fragment_ids=(2, 3), predicate="a > 1"),
    Overwrite(fragments=(ONE,), schema=SCHEMA, config_upsert_values={"x": "y"}),
    Rewrite(groups=(RewriteGroup(old_fragments=(ONE,), new_fragments=(TWO,)),)),
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
    ),
    Project(schema=Schema(fields=SCHEMA.fields), preserves_nullability=True),
    UpdateConfig(
        config_updates=UpdateMap(update_entries={"set": "1", "gone": None}),
        table_metadata_updates=UpdateMap(update_entries={}, replace=True),
        field_metadata_updates={0: UpdateMap(update_entries={"empty": ""})},
    ),
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
    assert decode(create_index=message.CreateIndex(new_indices=[{"name": "i", "fields": [3]}])).new_indices[
        0
    ].fields == (3,)
    replaced = decode(
        data_replacement=message.DataReplacement(replacements=[{"fragment_id": 4, "new_file": {"path": "p"}}])
    )
    assert isinstance(replaced, DataReplacement)
    assert replaced.replacements[0][0] == 4
    assert decode(update_mem_wal_state=message.UpdateMemWalState()) == UpdateMemWalState()
    assert decode(update_bases=message.UpdateBases(new_bases=[{"id": 1, "path": "/p"}])) == UpdateBases(
        ids=(1,), names=("",), paths=("/p",)
    )
    assert decode(data_overlay=message.DataOverlay(groups=[{"fragment_id": 2}])) == DataOverlay(fragment_ids=(2,))
    assert isinstance(decode(clone=message.Clone(ref_version=2)), Clone)


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


def test_what_is_only_judged_is_not_written():
    with pytest.raises(UnsupportedError, match="CreateIndex"):
        encode_transaction(Transaction(read_version=1, uuid="u", operation=CreateIndex()))


def test_garbage_is_refused():
    with pytest.raises(CorruptDataError):
        decode_transaction(b"\xff\xff\xff")
