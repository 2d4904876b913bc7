"""Operations and transactions as users see them; names and arguments as in pylance."""

from __future__ import annotations

import uuid as uuid_module
from dataclasses import field
from typing import TYPE_CHECKING
from uuid import UUID

import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.common.unsupported import with_refused
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.table import operations as inner
from lance_core.format.table.transaction import Transaction as InnerTransaction
from lance_core.schema import LanceSchema, projected
from lance_core.schema import to_inner as inner_schema
from lance_core.table.rules.apply_settings import add_bases
from lance_core.values.base_paths import DatasetBasePath
from lance_core.values.base_paths import from_public as from_public_bases
from lance_core.values.base_paths import to_public as to_public_base
from lance_core.values.fragment_metadata import FragmentMetadata, from_metadata, to_metadata
from lance_core.values.index_entries import Index
from lance_core.values.index_entries import from_public as from_public_index
from lance_core.values.index_entries import to_public as to_public_index

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from lance_core.format.schema import Schema
    from lance_core.format.table.base_path import BasePath
    from lance_core.format.table.fragment import DataFile, Fragment
    from lance_core.format.table.index_metadata import RewrittenIndex

_UPDATE_MODES = {"rewrite_rows": inner.UpdateMode.REWRITE_ROWS, "rewrite_columns": inner.UpdateMode.REWRITE_COLUMNS}


@with_refused
class LanceOperation:
    """Kinds of changes that `LanceDataset.commit` takes."""

    class BaseOperation:
        """Base class of all operations."""

        __slots__ = ()

    @frozen(slots=False)
    class Append(BaseOperation):
        """Add fragments."""

        fragments: Sequence[FragmentMetadata]

    @frozen(slots=False)
    class Delete(BaseOperation):
        """Mark rows as deleted: fragments with new deletion files, and fragments of which no row is left."""

        updated_fragments: Sequence[FragmentMetadata]
        deleted_fragment_ids: Sequence[int]
        predicate: str

    @frozen(slots=False)
    class Overwrite(BaseOperation):
        """Replace all rows and the schema, or create the dataset."""

        new_schema: pa.Schema | LanceSchema
        fragments: Sequence[FragmentMetadata]
        initial_bases: Sequence[DatasetBasePath] | None = None

    @frozen(slots=False)
    class RewriteGroup:
        """Fragments and what they were rewritten into."""

        old_fragments: Sequence[FragmentMetadata]
        new_fragments: Sequence[FragmentMetadata]

    @frozen(slots=False)
    class RewrittenIndex:
        """An index whose files were rewritten for the new places of the rows."""

        old_id: str
        new_id: str
        new_details_type_url: str
        new_details_value: bytes
        new_index_version: int

    @frozen(slots=False)
    class Rewrite(BaseOperation):
        """Lay out rows anew; index files cannot be rewritten along with it."""

        groups: Sequence[LanceOperation.RewriteGroup]
        rewritten_indices: Sequence[LanceOperation.RewrittenIndex] = ()

    @frozen(slots=False)
    class Merge(BaseOperation):
        """Replace the list of fragments and the schema."""

        fragments: Sequence[FragmentMetadata]
        schema: pa.Schema | LanceSchema
        preserves_nullability: bool = False

    @frozen(slots=False)
    class Restore(BaseOperation):
        """Make an old version the newest again."""

        version: int

    @frozen(slots=False)
    class Update(BaseOperation):
        """Replace rows: new deletion files for the old ones, new fragments for the new ones."""

        removed_fragment_ids: Sequence[int] = ()
        updated_fragments: Sequence[FragmentMetadata] = ()
        new_fragments: Sequence[FragmentMetadata] = ()
        fields_modified: Sequence[int] = ()
        fields_for_preserving_frag_bitmap: Sequence[int] = ()
        update_mode: str = ""
        updated_fragment_offsets: Mapping[int, bytes] | None = None

    @frozen(slots=False)
    class DataReplacementGroup:
        """A fragment and the file that its columns come from now."""

        fragment_id: int
        new_file: DataFile

    @frozen(slots=False)
    class DataReplacement(BaseOperation):
        """Put columns into new data files of the same rows."""

        replacements: Sequence[LanceOperation.DataReplacementGroup]

    @frozen(slots=False)
    class CreateIndex(BaseOperation):
        """Add and remove index entries; the files of indices are made by other tools."""

        new_indices: Sequence[Index]
        removed_indices: Sequence[Index]

    @frozen(slots=False)
    class UpdateMap:
        """Changes to a map: new values (None removes a key), or with ``replace`` all that it holds."""

        updates: Mapping[str, str | None]
        replace: bool = False

    @frozen(slots=False)
    class UpdateConfig(BaseOperation):
        """Change settings, the free text about the table, or metadata of the schema or of fields (by field id)."""

        config_updates: LanceOperation.UpdateMap | None = None
        table_metadata_updates: LanceOperation.UpdateMap | None = None
        schema_metadata_updates: LanceOperation.UpdateMap | None = None
        field_metadata_updates: Mapping[int, LanceOperation.UpdateMap] | None = None

    @frozen(slots=False)
    class ReserveFragments(BaseOperation):
        """Set fragment ids aside. Not in pylance."""

        num_fragments: int

    @frozen(slots=False)
    class UpdateBases(BaseOperation):
        """Add base paths. Not in pylance."""

        new_bases: Sequence[DatasetBasePath]

    @frozen(slots=False)
    class Clone(BaseOperation):
        """First version of a branch or clone; made by `LanceDataset.create_branch` and the clones, not by commits."""

        is_shallow: bool
        ref_name: str | None
        ref_version: int
        ref_path: str
        branch_name: str | None

    @frozen(slots=False)
    class Project(BaseOperation):
        """Change the schema without touching data; fields of an Arrow schema are found by their names."""

        schema: LanceSchema | pa.Schema
        preserves_nullability: bool = False


@frozen(slots=False)
class Transaction:
    """An operation and where it comes from.

    Attributes:
        read_version: Version that the writer saw when it began; 0 to create a dataset.
        operation: What to do. Operations that lance_core does not carry out are values of
            ``lance_core.format.table.operations``.
        uuid: Identity of the commit.
        transaction_properties: Free text for the history.
    """

    read_version: int
    operation: LanceOperation.BaseOperation | inner.Operation
    uuid: str = field(default_factory=lambda: str(uuid_module.uuid4()))
    transaction_properties: Mapping[str, str] | None = field(default_factory=dict[str, str])


def to_inner(transaction: Transaction, *, table: Callable[[], Schema] | None = None) -> InnerTransaction:
    """Return the form that is committed.

    Args:
        transaction: The transaction.
        table: Returns the schema of the version that it read.

    Raises:
        InvalidInputError: Not an operation.
        UnsupportedError: An operation that cannot be committed.
    """
    operation = transaction.operation
    if isinstance(operation, LanceOperation.Project) and isinstance(operation.schema, pa.Schema) and table is not None:
        schema = LanceSchema(projected(table(), operation.schema))
        operation = LanceOperation.Project(schema, operation.preserves_nullability)
    return InnerTransaction(
        read_version=transaction.read_version,
        uuid=transaction.uuid,
        operation=to_inner_operation(operation),
        transaction_properties=dict(transaction.transaction_properties or {}),
    )


def to_inner_operation(operation: LanceOperation.BaseOperation | inner.Operation) -> inner.Operation:
    """Return the form of an operation that is committed; errors as in `to_inner`."""
    convert = _TO_INNER.get(type(operation))
    if convert is None:
        raise InvalidInputError(f"cannot commit a {type(operation).__name__}: it is not a LanceOperation")
    return convert(operation)


def from_inner(transaction: InnerTransaction) -> Transaction:
    """Return the public form of a transaction."""
    operation = transaction.operation
    convert = _FROM_INNER.get(type(operation))
    return Transaction(
        read_version=transaction.read_version,
        operation=operation if convert is None else convert(operation),
        uuid=transaction.uuid,
        transaction_properties=dict(transaction.transaction_properties),
    )


def _inner(fragments: Iterable[FragmentMetadata]) -> tuple[Fragment, ...]:
    return tuple(from_metadata(fragment) for fragment in fragments)


def _public(fragments: Iterable[Fragment]) -> list[FragmentMetadata]:
    return [to_metadata(fragment) for fragment in fragments]


def _bases(bases: Sequence[DatasetBasePath] | None) -> tuple[BasePath, ...]:
    return from_public_bases(bases or ())


def _public_bases(bases: Iterable[BasePath]) -> list[DatasetBasePath]:
    return [to_public_base(base) for base in bases]


def _map(update: LanceOperation.UpdateMap | None) -> inner.UpdateMap | None:
    return None if update is None else inner.UpdateMap(update_entries=dict(update.updates), replace=update.replace)


def _public_map(update: inner.UpdateMap | None) -> LanceOperation.UpdateMap | None:
    return None if update is None else LanceOperation.UpdateMap(dict(update.update_entries), update.replace)


def _update_config(operation: LanceOperation.UpdateConfig) -> inner.UpdateConfig:
    fields = {field_id: _map(update) for field_id, update in (operation.field_metadata_updates or {}).items()}
    return inner.UpdateConfig(
        config_updates=_map(operation.config_updates),
        table_metadata_updates=_map(operation.table_metadata_updates),
        schema_metadata_updates=_map(operation.schema_metadata_updates),
        field_metadata_updates={field_id: update for field_id, update in fields.items() if update is not None},
    )


def _update_config_from_inner(operation: inner.UpdateConfig) -> LanceOperation.UpdateConfig:
    fields = {field_id: _public_map(update) for field_id, update in operation.field_metadata_updates.items()}
    return LanceOperation.UpdateConfig(
        config_updates=_public_map(operation.config_updates),
        table_metadata_updates=_public_map(operation.table_metadata_updates),
        schema_metadata_updates=_public_map(operation.schema_metadata_updates),
        field_metadata_updates={field_id: update for field_id, update in fields.items() if update is not None} or None,
    )


def _rewritten(index: RewrittenIndex) -> LanceOperation.RewrittenIndex:
    return LanceOperation.RewrittenIndex(
        old_id=str(UUID(bytes=index.old_id)),
        new_id=str(UUID(bytes=index.new_id)),
        new_details_type_url=index.type_url or "",
        new_details_value=index.details,
        new_index_version=index.index_version,
    )


def _rewrite(operation: LanceOperation.Rewrite) -> inner.Rewrite:
    if operation.rewritten_indices:
        raise UnsupportedError(
            "Rewrite with 'rewritten_indices' is not supported: lance_core does not write such indices"
        )
    groups = [
        inner.RewriteGroup(old_fragments=_inner(group.old_fragments), new_fragments=_inner(group.new_fragments))
        for group in operation.groups
    ]
    return inner.Rewrite(groups=tuple(groups))


def _update(operation: LanceOperation.Update) -> inner.Update:
    mode = operation.update_mode or "rewrite_rows"
    if mode not in _UPDATE_MODES:
        raise InvalidInputError(f"'update_mode' must be {' or '.join(_UPDATE_MODES)}, not {mode!r}")
    return inner.Update(
        removed_fragment_ids=tuple(operation.removed_fragment_ids),
        updated_fragments=_inner(operation.updated_fragments),
        new_fragments=_inner(operation.new_fragments),
        fields_modified=tuple(operation.fields_modified),
        fields_for_preserving_frag_bitmap=tuple(operation.fields_for_preserving_frag_bitmap),
        update_mode=_UPDATE_MODES[mode],
        updated_fragment_offsets=dict(operation.updated_fragment_offsets or {}),
    )


def _update_from_inner(operation: inner.Update) -> LanceOperation.Update:
    return LanceOperation.Update(
        removed_fragment_ids=list(operation.removed_fragment_ids),
        updated_fragments=_public(operation.updated_fragments),
        new_fragments=_public(operation.new_fragments),
        fields_modified=list(operation.fields_modified),
        fields_for_preserving_frag_bitmap=list(operation.fields_for_preserving_frag_bitmap),
        update_mode=operation.update_mode.name.lower(),
        updated_fragment_offsets=dict(operation.updated_fragment_offsets) or None,
    )


_TO_INNER: dict[type, Callable[[Any], inner.Operation]] = {
    LanceOperation.Append: lambda op: inner.Append(fragments=_inner(op.fragments)),
    LanceOperation.Delete: lambda op: inner.Delete(
        updated_fragments=_inner(op.updated_fragments),
        deleted_fragment_ids=tuple(op.deleted_fragment_ids),
        predicate=op.predicate,
    ),
    LanceOperation.Overwrite: lambda op: inner.Overwrite(
        fragments=_inner(op.fragments),
        schema=inner_schema(op.new_schema),
        # The file of the transaction says what the table gets, so the numbers are fixed here.
        initial_bases=add_bases((), _bases(op.initial_bases)),
    ),
    LanceOperation.Rewrite: _rewrite,
    LanceOperation.Merge: lambda op: inner.Merge(
        fragments=_inner(op.fragments),
        schema=inner_schema(op.schema),
        preserves_nullability=op.preserves_nullability,
    ),
    LanceOperation.Restore: lambda op: inner.Restore(version=op.version),
    LanceOperation.Update: _update,
    LanceOperation.Project: lambda op: inner.Project(
        schema=inner_schema(op.schema), preserves_nullability=op.preserves_nullability
    ),
    LanceOperation.UpdateConfig: _update_config,
    LanceOperation.DataReplacement: lambda op: inner.DataReplacement(
        replacements=tuple((replacement.fragment_id, replacement.new_file) for replacement in op.replacements)
    ),
    LanceOperation.CreateIndex: lambda op: inner.CreateIndex(
        new_indices=tuple(from_public_index(index) for index in op.new_indices),
        removed_indices=tuple(from_public_index(index) for index in op.removed_indices),
    ),
    LanceOperation.ReserveFragments: lambda op: inner.ReserveFragments(num_fragments=op.num_fragments),
    LanceOperation.UpdateBases: lambda op: inner.UpdateBases(new_bases=_bases(op.new_bases)),
    inner.UpdateConfig: lambda op: op,
    inner.ReserveFragments: lambda op: op,
}

_FROM_INNER: dict[type, Callable[[Any], LanceOperation.BaseOperation]] = {
    inner.Append: lambda op: LanceOperation.Append(_public(op.fragments)),
    inner.Delete: lambda op: LanceOperation.Delete(
        _public(op.updated_fragments), list(op.deleted_fragment_ids), op.predicate
    ),
    inner.Overwrite: lambda op: LanceOperation.Overwrite(
        LanceSchema(op.schema), _public(op.fragments), _public_bases(op.initial_bases) or None
    ),
    inner.Rewrite: lambda op: LanceOperation.Rewrite(
        [
            LanceOperation.RewriteGroup(_public(group.old_fragments), _public(group.new_fragments))
            for group in op.groups
        ],
        [_rewritten(index) for index in op.rewritten_indices],
    ),
    inner.Merge: lambda op: LanceOperation.Merge(
        _public(op.fragments), LanceSchema(op.schema), op.preserves_nullability
    ),
    inner.Restore: lambda op: LanceOperation.Restore(op.version),
    inner.Update: _update_from_inner,
    inner.UpdateConfig: _update_config_from_inner,
    inner.DataReplacement: lambda op: LanceOperation.DataReplacement(
        [LanceOperation.DataReplacementGroup(fragment_id, file) for fragment_id, file in op.replacements]
    ),
    inner.CreateIndex: lambda op: LanceOperation.CreateIndex(
        [to_public_index(index) for index in op.new_indices], [to_public_index(index) for index in op.removed_indices]
    ),
    inner.ReserveFragments: lambda op: LanceOperation.ReserveFragments(op.num_fragments),
    inner.UpdateBases: lambda op: LanceOperation.UpdateBases(_public_bases(op.new_bases)),
    inner.Clone: lambda op: LanceOperation.Clone(
        op.is_shallow, op.ref_name, op.ref_version, op.ref_path, op.branch_name
    ),
    inner.Project: lambda op: LanceOperation.Project(LanceSchema(op.schema), op.preserves_nullability),
}
