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
    from lance_core.format.table.fragment import DataFile
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
    if isinstance(operation, (inner.UpdateConfig, inner.ReserveFragments)):
        return operation
    target = _INNER.get(type(operation))
    if target is None or target is inner.Clone:
        raise InvalidInputError(f"cannot commit a {type(operation).__name__}: it is not a LanceOperation")
    return _converted(operation, target, _TO_INNER)


def from_inner(transaction: InnerTransaction) -> Transaction:
    """Return the public form of a transaction."""
    operation = transaction.operation
    target = _PUBLIC.get(type(operation))
    return Transaction(
        read_version=transaction.read_version,
        operation=operation if target is None else _converted(operation, target, _FROM_INNER),
        uuid=transaction.uuid,
        transaction_properties=dict(transaction.transaction_properties),
    )


def _each(convert: Callable[[Any], Any], make: Callable[[Iterable[Any]], Any]) -> Callable[[Iterable[Any]], Any]:
    return lambda values: make(map(convert, values))


_inner, _public = _each(from_metadata, tuple), _each(to_metadata, list)
_public_bases = _each(to_public_base, list)


def _map(update: LanceOperation.UpdateMap | None) -> inner.UpdateMap | None:
    return None if update is None else inner.UpdateMap(update_entries=dict(update.updates), replace=update.replace)


def _public_map(update: inner.UpdateMap | None) -> LanceOperation.UpdateMap | None:
    return None if update is None else LanceOperation.UpdateMap(dict(update.update_entries), update.replace)


def _maps(updates: Mapping[int, LanceOperation.UpdateMap] | None) -> dict[int, inner.UpdateMap | None]:
    return {field_id: _map(update) for field_id, update in (updates or {}).items() if update is not None}  # pyright: ignore[reportUnnecessaryComparison]


def _public_maps(updates: Mapping[int, inner.UpdateMap]) -> dict[int, LanceOperation.UpdateMap | None] | None:
    return {field_id: _public_map(update) for field_id, update in updates.items()} or None


def _group(group: LanceOperation.RewriteGroup) -> inner.RewriteGroup:
    return inner.RewriteGroup(old_fragments=_inner(group.old_fragments), new_fragments=_inner(group.new_fragments))


def _public_group(group: inner.RewriteGroup) -> LanceOperation.RewriteGroup:
    return LanceOperation.RewriteGroup(_public(group.old_fragments), _public(group.new_fragments))


def _refuse_rewritten(indices: Sequence[LanceOperation.RewrittenIndex]) -> tuple[()]:
    if indices:
        raise UnsupportedError(
            "Rewrite with 'rewritten_indices' is not supported: lance_core does not write such indices"
        )
    return ()


def _public_rewritten(index: RewrittenIndex) -> LanceOperation.RewrittenIndex:
    return LanceOperation.RewrittenIndex(
        old_id=str(UUID(bytes=index.old_id)),
        new_id=str(UUID(bytes=index.new_id)),
        new_details_type_url=index.type_url or "",
        new_details_value=index.details,
        new_index_version=index.index_version,
    )


def _update_mode(mode: str) -> inner.UpdateMode:
    mode = mode or "rewrite_rows"
    if mode not in _UPDATE_MODES:
        raise InvalidInputError(f"'update_mode' must be {' or '.join(_UPDATE_MODES)}, not {mode!r}")
    return _UPDATE_MODES[mode]


_CONVERTERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    **dict.fromkeys(["fragments", "updated_fragments", "new_fragments"], (_inner, _public)),
    **dict.fromkeys(["removed_fragment_ids", "deleted_fragment_ids"], (tuple, list)),
    **dict.fromkeys(["fields_modified", "fields_for_preserving_frag_bitmap"], (tuple, list)),
    **dict.fromkeys(["schema", "new_schema"], (inner_schema, LanceSchema)),
    **dict.fromkeys(["config_updates", "table_metadata_updates", "schema_metadata_updates"], (_map, _public_map)),
    **dict.fromkeys(
        ["new_indices", "removed_indices"], (_each(from_public_index, tuple), _each(to_public_index, list))
    ),
    "field_metadata_updates": (_maps, _public_maps),
    "groups": (_each(_group, tuple), _each(_public_group, list)),
    "rewritten_indices": (_refuse_rewritten, _each(_public_rewritten, list)),
    "replacements": (
        lambda files: tuple((file.fragment_id, file.new_file) for file in files),
        lambda files: [LanceOperation.DataReplacementGroup(*file) for file in files],
    ),
    "update_mode": (_update_mode, lambda mode: mode.name.lower()),
    "updated_fragment_offsets": (lambda offsets: dict(offsets or {}), lambda offsets: dict(offsets) or None),
    "new_bases": (from_public_bases, _public_bases),
    # The file of the transaction says what the table gets, so the numbers are fixed here.
    "initial_bases": (
        lambda bases: add_bases((), from_public_bases(bases or ())),
        lambda bases: _public_bases(bases) or None,
    ),
}
"""How values of attributes become those of the other form, by name; other values are the same in both."""

_TO_INNER, _FROM_INNER = 0, 1
_OTHER_NAMES = {"schema": "new_schema", "new_schema": "schema"}
_INNER: dict[type, type] = {
    getattr(LanceOperation, form.__name__): form
    for form in (
        inner.Append,
        inner.Clone,
        inner.CreateIndex,
        inner.DataReplacement,
        inner.Delete,
        inner.Merge,
        inner.Overwrite,
        inner.Project,
        inner.ReserveFragments,
        inner.Restore,
        inner.Rewrite,
        inner.Update,
        inner.UpdateBases,
        inner.UpdateConfig,
    )
}
_PUBLIC = {form: public for public, form in _INNER.items()}


def _converted(operation: Any, target: type[Any], direction: int) -> Any:
    """Return the other form of an operation; what only the inner form has keeps its default."""
    values: dict[str, Any] = {}
    for name in target.__dataclass_fields__:
        source = name if hasattr(operation, name) else _OTHER_NAMES.get(name)
        if source is not None:
            value = getattr(operation, source)
            values[name] = _CONVERTERS[name][direction](value) if name in _CONVERTERS else value
    return target(**values)
