"""Transactions: the intent of a commit.

Every version's manifest file holds the transaction that made it, and ``_transactions/{read_version}-{uuid}.txn`` holds
it once more; other writers read it to find out whether their own work still holds.

Source: message ``Transaction`` of package ``lance.table``. All operations are decoded (those that lance_core cannot
carry out only as far as judging conflicts needs); the ones in ``_ENCODERS`` can be written. Files of ours end in a
field that no reader knows, with a section of checksums (`lance_core.format.file.checksums`).
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from lance_core._proto import file_pb2, table_pb2, transaction_pb2
from lance_core.common.frozen import frozen
from lance_core.common.limits import check_limit
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.file.checksums import SECTION_SIZE, check_section, with_section
from lance_core.format.schema import Schema, decode_fields, encode_fields
from lance_core.format.table import base_path as base_path_format
from lance_core.format.table import fragment as fragments_format
from lance_core.format.table.bitmap import encode_bitmap
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
    Operation,
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
    operation_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lance_core.format.table.fragment import Fragment

_CHECKSUM_FIELD = b"\xea\xff\x07" + bytes([SECTION_SIZE])
"""Begin of field 16381, bytes; the format is far from such numbers, and readers skip what they do not know."""

COMMIT_MESSAGE_KEY = "__lance_commit_message"
"""Transaction property that holds the commit message."""


@frozen(kw_only=True)
class Transaction:
    """An operation and where it comes from.

    Attributes:
        read_version: Version that the writer saw when it began; 0 to create a table.
        uuid: Identity of the commit, hyphenated; kept over all attempts.
        operation: What to do.
        transaction_properties: Free text for the history, such as the commit message and the run that wrote it.
        tag: Unused by the format.
    """

    read_version: int
    uuid: str
    operation: Operation
    transaction_properties: Mapping[str, str] = field(default_factory=dict)
    tag: str = ""

    @property
    def file_name(self) -> str:
        """Name of the transaction's file below ``_transactions/``."""
        return f"{self.read_version}-{self.uuid}.txn"


def decode_transaction(data: bytes, *, path: str | None = None, has_checksum: bool = False) -> Transaction:
    """Decode a ``Transaction`` message.

    Args:
        data: The message, or the content of a transaction's file.
        path: Where it is from, for errors.
        has_checksum: It was made by `encode_transaction_file`, so a missing checksum is damage.

    Raises:
        CorruptDataError: Not a transaction, or not the one that was written.
    """
    check_limit("max_transaction_bytes", len(data), "bytes of a transaction", path=path)
    if not check_section(data, len(data) - SECTION_SIZE, path=path) and has_checksum:
        raise CorruptDataError("the file is damaged: its checksum is missing", path=path)
    try:
        pb = transaction_pb2.Transaction.FromString(data)
    except DecodeError as error:
        raise CorruptDataError(f"the transaction cannot be decoded: {error}", path=path) from error
    which = pb.WhichOneof("operation")
    operation = UnknownOperation() if which is None else _DECODERS[which](getattr(pb, which))
    return Transaction(
        read_version=pb.read_version,
        uuid=pb.uuid,
        operation=operation,
        transaction_properties=dict(pb.transaction_properties),
        tag=pb.tag,
    )


def encode_transaction_file(record: bytes) -> bytes:
    """Return the content of a transaction's file.

    Args:
        record: The encoded transaction.
    """
    data = record + _CHECKSUM_FIELD
    return with_section(data, len(data))


def encode_transaction(transaction: Transaction) -> bytes:
    """Encode as a ``Transaction`` message.

    Raises:
        UnsupportedError: lance_core does not write this operation.
    """
    encode = _ENCODERS.get(type(transaction.operation))
    if encode is None:
        raise UnsupportedError(f"lance_core does not write {operation_name(transaction.operation)} operations")
    name, operation = encode(transaction.operation)
    pb = transaction_pb2.Transaction(
        read_version=transaction.read_version,
        uuid=transaction.uuid,
        tag=transaction.tag,
        transaction_properties=dict(transaction.transaction_properties),
    )
    getattr(pb, name).CopyFrom(operation)
    return pb.SerializeToString()


# ------------------------------------------------------------------------------------------------------------- decoding


def _fragments(pbs: Any) -> tuple[Fragment, ...]:
    return tuple(fragments_format.from_proto(pb) for pb in pbs)


def _decode_append(pb: transaction_pb2.Transaction.Append) -> Append:
    return Append(fragments=_fragments(pb.fragments))


def _decode_delete(pb: transaction_pb2.Transaction.Delete) -> Delete:
    return Delete(
        updated_fragments=_fragments(pb.updated_fragments),
        deleted_fragment_ids=tuple(pb.deleted_fragment_ids),
        predicate=pb.predicate,
    )


def _decode_overwrite(pb: transaction_pb2.Transaction.Overwrite) -> Overwrite:
    return Overwrite(
        fragments=_fragments(pb.fragments),
        schema=decode_fields(pb.schema, dict(pb.schema_metadata)),
        config_upsert_values=dict(pb.config_upsert_values),
        initial_bases=tuple(base_path_format.from_proto(base) for base in pb.initial_bases),
    )


def _decode_create_index(pb: transaction_pb2.Transaction.CreateIndex) -> CreateIndex:
    return CreateIndex(
        new_indices=tuple(IndexMetadata.from_proto(index) for index in pb.new_indices),
        removed_indices=tuple(IndexMetadata.from_proto(index) for index in pb.removed_indices),
    )


def _decode_rewrite(pb: transaction_pb2.Transaction.Rewrite) -> Rewrite:
    groups = [
        RewriteGroup(old_fragments=_fragments(group.old_fragments), new_fragments=_fragments(group.new_fragments))
        for group in pb.groups
    ]
    if pb.old_fragments or pb.new_fragments:  # the form of older writers: one group
        groups.append(
            RewriteGroup(old_fragments=_fragments(pb.old_fragments), new_fragments=_fragments(pb.new_fragments))
        )
    return Rewrite(
        groups=tuple(groups), rewritten_indices=tuple(_decode_rewritten_index(index) for index in pb.rewritten_indices)
    )


def _decode_rewritten_index(pb: transaction_pb2.Transaction.Rewrite.RewrittenIndex) -> RewrittenIndex:
    return RewrittenIndex(
        old_id=pb.old_id.uuid,
        new_id=pb.new_id.uuid,
        type_url=pb.new_index_details.type_url if pb.HasField("new_index_details") else None,
        details=pb.new_index_details.value,
        index_version=pb.new_index_version,
        files=tuple((file.path, file.size_bytes) for file in pb.new_index_files),
    )


def _decode_merge(pb: transaction_pb2.Transaction.Merge) -> Merge:
    return Merge(
        fragments=_fragments(pb.fragments),
        schema=decode_fields(pb.schema, dict(pb.schema_metadata)),
        preserves_nullability=pb.preserves_nullability,
    )


def _decode_restore(pb: transaction_pb2.Transaction.Restore) -> Restore:
    return Restore(version=pb.version)


def _decode_reserve_fragments(pb: transaction_pb2.Transaction.ReserveFragments) -> ReserveFragments:
    return ReserveFragments(num_fragments=pb.num_fragments)


def _decode_update(pb: transaction_pb2.Transaction.Update) -> Update:
    return Update(
        removed_fragment_ids=tuple(pb.removed_fragment_ids),
        updated_fragments=_fragments(pb.updated_fragments),
        new_fragments=_fragments(pb.new_fragments),
        fields_modified=tuple(pb.fields_modified),
        fields_for_preserving_frag_bitmap=tuple(pb.fields_for_preserving_frag_bitmap),
        update_mode=UpdateMode(pb.update_mode),
        # Older writers listed the offsets.
        updated_fragment_offsets={
            key: encode_bitmap(bitmap.values) for key, bitmap in pb.updated_fragment_offsets.items()
        }
        | dict(pb.updated_fragment_offset_bitmaps),
        inserted_rows=_decode_inserted_keys(pb.inserted_rows) if pb.HasField("inserted_rows") else None,
    )


def _decode_inserted_keys(pb: transaction_pb2.Transaction.KeyExistenceFilter) -> InsertedKeys:
    return InsertedKeys(
        field_ids=tuple(pb.field_ids),
        hashes=frozenset(pb.exact.key_hashes) if pb.HasField("exact") else None,
        record=pb.SerializeToString(),
    )


def _decode_project(pb: transaction_pb2.Transaction.Project) -> Project:
    return Project(schema=decode_fields(pb.schema, {}), preserves_nullability=pb.preserves_nullability)


def _decode_update_map(pb: transaction_pb2.Transaction.UpdateMap) -> UpdateMap:
    entries = {entry.key: entry.value if entry.HasField("value") else None for entry in pb.update_entries}
    return UpdateMap(update_entries=entries, replace=pb.replace)


def _decode_update_config(pb: transaction_pb2.Transaction.UpdateConfig) -> UpdateConfig:
    def update_map(name: Any) -> UpdateMap | None:
        return _decode_update_map(getattr(pb, name)) if pb.HasField(name) else None

    config, schema_metadata = update_map("config_updates"), update_map("schema_metadata_updates")
    # Older writers used plain maps; config entries were merged, metadata maps replaced.
    if pb.upsert_values or pb.delete_keys:
        config = UpdateMap(update_entries=dict(pb.upsert_values) | dict.fromkeys(pb.delete_keys))
    if pb.schema_metadata:
        schema_metadata = UpdateMap(update_entries=dict(pb.schema_metadata), replace=True)
    old_fields = {
        key: UpdateMap(update_entries=dict(value.metadata), replace=True) for key, value in pb.field_metadata.items()
    }
    return UpdateConfig(
        config_updates=config,
        table_metadata_updates=update_map("table_metadata_updates"),
        schema_metadata_updates=schema_metadata,
        field_metadata_updates=old_fields
        | {key: _decode_update_map(value) for key, value in pb.field_metadata_updates.items()},
    )


def _decode_data_replacement(pb: transaction_pb2.Transaction.DataReplacement) -> DataReplacement:
    return DataReplacement(
        replacements=tuple(
            (group.fragment_id, fragments_format.data_file_from_proto(group.new_file)) for group in pb.replacements
        )
    )


def _decode_update_mem_wal_state(_pb: transaction_pb2.Transaction.UpdateMemWalState) -> UpdateMemWalState:
    return UpdateMemWalState()


def _decode_clone(pb: transaction_pb2.Transaction.Clone) -> Clone:
    return Clone(
        is_shallow=pb.is_shallow,
        ref_name=pb.ref_name if pb.HasField("ref_name") else None,
        ref_version=pb.ref_version,
        ref_path=pb.ref_path,
        branch_name=pb.branch_name if pb.HasField("branch_name") else None,
    )


def _decode_update_bases(pb: transaction_pb2.Transaction.UpdateBases) -> UpdateBases:
    return UpdateBases(new_bases=tuple(base_path_format.from_proto(base) for base in pb.new_bases))


def _decode_data_overlay(pb: transaction_pb2.Transaction.DataOverlay) -> DataOverlay:
    return DataOverlay(fragment_ids=tuple(group.fragment_id for group in pb.groups))


_DECODERS: dict[str, Callable[[Any], Operation]] = {
    "append": _decode_append,
    "delete": _decode_delete,
    "overwrite": _decode_overwrite,
    "create_index": _decode_create_index,
    "rewrite": _decode_rewrite,
    "merge": _decode_merge,
    "restore": _decode_restore,
    "reserve_fragments": _decode_reserve_fragments,
    "update": _decode_update,
    "project": _decode_project,
    "update_config": _decode_update_config,
    "data_replacement": _decode_data_replacement,
    "update_mem_wal_state": _decode_update_mem_wal_state,
    "clone": _decode_clone,
    "update_bases": _decode_update_bases,
    "data_overlay": _decode_data_overlay,
}


# ------------------------------------------------------------------------------------------------------------- encoding


def _protos(fragments: tuple[Fragment, ...]) -> list[table_pb2.DataFragment]:
    return [fragments_format.to_proto(fragment) for fragment in fragments]


def _fields(schema: Schema) -> list[file_pb2.Field]:
    return encode_fields(schema)


def _encode_append(operation: Append) -> tuple[str, Any]:
    return "append", transaction_pb2.Transaction.Append(fragments=_protos(operation.fragments))


def _encode_delete(operation: Delete) -> tuple[str, Any]:
    return "delete", transaction_pb2.Transaction.Delete(
        updated_fragments=_protos(operation.updated_fragments),
        deleted_fragment_ids=operation.deleted_fragment_ids,
        predicate=operation.predicate,
    )


def _encode_overwrite(operation: Overwrite) -> tuple[str, Any]:
    return "overwrite", transaction_pb2.Transaction.Overwrite(
        fragments=_protos(operation.fragments),
        schema=_fields(operation.schema),
        schema_metadata=dict(operation.schema.metadata),
        config_upsert_values=dict(operation.config_upsert_values),
        initial_bases=[base_path_format.to_proto(base) for base in operation.initial_bases],
    )


def _encode_create_index(operation: CreateIndex) -> tuple[str, Any]:
    return "create_index", transaction_pb2.Transaction.CreateIndex(
        new_indices=[table_pb2.IndexMetadata.FromString(index.record) for index in operation.new_indices],
        removed_indices=[table_pb2.IndexMetadata.FromString(index.record) for index in operation.removed_indices],
    )


def _encode_rewrite(operation: Rewrite) -> tuple[str, Any]:
    group = transaction_pb2.Transaction.Rewrite.RewriteGroup
    return "rewrite", transaction_pb2.Transaction.Rewrite(
        groups=[
            group(old_fragments=_protos(each.old_fragments), new_fragments=_protos(each.new_fragments))
            for each in operation.groups
        ],
        rewritten_indices=[_encode_rewritten_index(index) for index in operation.rewritten_indices],
    )


def _encode_rewritten_index(index: RewrittenIndex) -> transaction_pb2.Transaction.Rewrite.RewrittenIndex:
    pb = transaction_pb2.Transaction.Rewrite.RewrittenIndex(
        old_id=table_pb2.UUID(uuid=index.old_id),
        new_id=table_pb2.UUID(uuid=index.new_id),
        new_index_version=index.index_version,
        new_index_files=[table_pb2.IndexFile(path=path, size_bytes=size) for path, size in index.files],
    )
    if index.type_url is not None:
        pb.new_index_details.type_url, pb.new_index_details.value = index.type_url, index.details
    return pb


def _encode_merge(operation: Merge) -> tuple[str, Any]:
    return "merge", transaction_pb2.Transaction.Merge(
        fragments=_protos(operation.fragments),
        schema=_fields(operation.schema),
        schema_metadata=dict(operation.schema.metadata),
        preserves_nullability=operation.preserves_nullability,
    )


def _encode_restore(operation: Restore) -> tuple[str, Any]:
    return "restore", transaction_pb2.Transaction.Restore(version=operation.version)


def _encode_reserve_fragments(operation: ReserveFragments) -> tuple[str, Any]:
    return "reserve_fragments", transaction_pb2.Transaction.ReserveFragments(num_fragments=operation.num_fragments)


def _encode_update(operation: Update) -> tuple[str, Any]:
    return "update", transaction_pb2.Transaction.Update(
        removed_fragment_ids=operation.removed_fragment_ids,
        updated_fragments=_protos(operation.updated_fragments),
        new_fragments=_protos(operation.new_fragments),
        fields_modified=operation.fields_modified,
        fields_for_preserving_frag_bitmap=operation.fields_for_preserving_frag_bitmap,
        update_mode=transaction_pb2.Transaction.Update.UpdateMode.Name(operation.update_mode),
        updated_fragment_offset_bitmaps=dict(operation.updated_fragment_offsets),
        inserted_rows=_encode_inserted_keys(operation.inserted_rows),
    )


def _encode_inserted_keys(keys: InsertedKeys | None) -> transaction_pb2.Transaction.KeyExistenceFilter | None:
    return None if keys is None else transaction_pb2.Transaction.KeyExistenceFilter.FromString(keys.record)


def _encode_project(operation: Project) -> tuple[str, Any]:
    return "project", transaction_pb2.Transaction.Project(
        schema=_fields(operation.schema), preserves_nullability=operation.preserves_nullability
    )


def _encode_update_map(update: UpdateMap) -> transaction_pb2.Transaction.UpdateMap:
    entry = transaction_pb2.Transaction.UpdateMapEntry
    return transaction_pb2.Transaction.UpdateMap(
        update_entries=[entry(key=key, value=value) for key, value in update.update_entries.items()],
        replace=update.replace,
    )


def _encode_update_config(operation: UpdateConfig) -> tuple[str, Any]:
    pb = transaction_pb2.Transaction.UpdateConfig()
    for name in ("config_updates", "table_metadata_updates", "schema_metadata_updates"):
        update: UpdateMap | None = getattr(operation, name)
        if update is not None:
            getattr(pb, name).CopyFrom(_encode_update_map(update))
    for field_id, update in operation.field_metadata_updates.items():
        pb.field_metadata_updates[field_id].CopyFrom(_encode_update_map(update))
    return "update_config", pb


def _encode_data_replacement(operation: DataReplacement) -> tuple[str, Any]:
    group = transaction_pb2.Transaction.DataReplacement.DataReplacementGroup
    return "data_replacement", transaction_pb2.Transaction.DataReplacement(
        replacements=[
            group(fragment_id=fragment_id, new_file=fragments_format.data_file_to_proto(file))
            for fragment_id, file in operation.replacements
        ]
    )


def _encode_clone(operation: Clone) -> tuple[str, Any]:
    return "clone", transaction_pb2.Transaction.Clone(
        is_shallow=operation.is_shallow,
        ref_name=operation.ref_name,
        ref_version=operation.ref_version,
        ref_path=operation.ref_path,
        branch_name=operation.branch_name,
    )


def _encode_update_bases(operation: UpdateBases) -> tuple[str, Any]:
    return "update_bases", transaction_pb2.Transaction.UpdateBases(
        new_bases=[base_path_format.to_proto(base) for base in operation.new_bases]
    )


_ENCODERS: dict[type, Callable[[Any], tuple[str, Any]]] = {
    Append: _encode_append,
    Delete: _encode_delete,
    Overwrite: _encode_overwrite,
    Rewrite: _encode_rewrite,
    Merge: _encode_merge,
    Restore: _encode_restore,
    ReserveFragments: _encode_reserve_fragments,
    Update: _encode_update,
    Project: _encode_project,
    UpdateConfig: _encode_update_config,
    CreateIndex: _encode_create_index,
    DataReplacement: _encode_data_replacement,
    Clone: _encode_clone,
    UpdateBases: _encode_update_bases,
}
