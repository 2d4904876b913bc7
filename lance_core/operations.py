"""Operations and transactions as users see them; names and arguments as in pylance."""

from __future__ import annotations

import uuid as uuid_module
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format import operations as inner
from lance_core.format.schema import Schema
from lance_core.format.transaction import Transaction as InnerTransaction
from lance_core.fragment import FragmentMetadata, from_metadata, to_metadata

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    import pyarrow as pa

    from lance_core.format.fragment import DataFile, Fragment

_UPDATE_MODES = {"rewrite_rows": inner.UpdateMode.REWRITE_ROWS, "rewrite_columns": inner.UpdateMode.REWRITE_COLUMNS}


class LanceOperation:
    """Kinds of changes that `LanceDataset.commit` takes."""

    class BaseOperation:
        """What all of them are."""

        __slots__ = ()

    @dataclass(frozen=True)
    class Append(BaseOperation):
        """Add fragments."""

        fragments: Sequence[FragmentMetadata]

    @dataclass(frozen=True)
    class Delete(BaseOperation):
        """Mark rows as deleted: fragments with new deletion files, and fragments of which no row is left."""

        updated_fragments: Sequence[FragmentMetadata]
        deleted_fragment_ids: Sequence[int]
        predicate: str

    @dataclass(frozen=True)
    class Overwrite(BaseOperation):
        """Replace all rows and the schema, or create the dataset."""

        new_schema: pa.Schema | Schema
        fragments: Sequence[FragmentMetadata]

    @dataclass(frozen=True)
    class RewriteGroup:
        """Fragments and what they were rewritten into."""

        old_fragments: Sequence[FragmentMetadata]
        new_fragments: Sequence[FragmentMetadata]

    @dataclass(frozen=True)
    class Rewrite(BaseOperation):
        """Lay out rows anew; index files cannot be rewritten along with it."""

        groups: Sequence[LanceOperation.RewriteGroup]
        rewritten_indices: Sequence[Any] = ()

    @dataclass(frozen=True)
    class Merge(BaseOperation):
        """Replace the list of fragments and the schema."""

        fragments: Sequence[FragmentMetadata]
        schema: pa.Schema | Schema
        preserves_nullability: bool = False

    @dataclass(frozen=True)
    class Restore(BaseOperation):
        """Make an old version the newest again."""

        version: int

    @dataclass(frozen=True)
    class Update(BaseOperation):
        """Replace rows: new deletion files for the old ones, new fragments for the new ones."""

        removed_fragment_ids: Sequence[int] = ()
        updated_fragments: Sequence[FragmentMetadata] = ()
        new_fragments: Sequence[FragmentMetadata] = ()
        fields_modified: Sequence[int] = ()
        fields_for_preserving_frag_bitmap: Sequence[int] = ()
        update_mode: str = ""

    @dataclass(frozen=True)
    class Project(BaseOperation):
        """Change the schema without touching data."""

        schema: Schema
        preserves_nullability: bool = False

    @dataclass(frozen=True)
    class DataReplacementGroup:
        """A fragment and the file that holds columns of it from now on."""

        fragment_id: int
        new_file: DataFile

    @dataclass(frozen=True)
    class DataReplacement(BaseOperation):
        """Put new data files in the places of others with the same fields."""

        replacements: Sequence[LanceOperation.DataReplacementGroup]


@dataclass(frozen=True)
class Transaction:
    """An operation and where it comes from.

    Attributes:
        read_version: Version that the writer saw when it began; 0 to create a dataset.
        operation: What to do. Operations that lance_core does not carry out are values of
            ``lance_core.format.operations``.
        uuid: Identity of the commit.
        transaction_properties: Free text for the history.
    """

    read_version: int
    operation: LanceOperation.BaseOperation | inner.Operation
    uuid: str = field(default_factory=lambda: str(uuid_module.uuid4()))
    transaction_properties: Mapping[str, str] | None = field(default_factory=dict[str, str])


def to_inner(transaction: Transaction) -> InnerTransaction:
    """The form that is committed.

    Raises:
        InvalidInputError: Not an operation.
        UnsupportedError: An operation that cannot be committed.
    """
    return InnerTransaction(
        read_version=transaction.read_version,
        uuid=transaction.uuid,
        operation=to_inner_operation(transaction.operation),
        transaction_properties=dict(transaction.transaction_properties or {}),
    )


def to_inner_operation(operation: LanceOperation.BaseOperation | inner.Operation) -> inner.Operation:
    """The form of an operation that is committed; errors as in `to_inner`."""
    convert = _TO_INNER.get(type(operation))
    if convert is None:
        raise InvalidInputError(f"{type(operation).__name__} is no LanceOperation that can be committed")
    return convert(operation)


def from_inner(transaction: InnerTransaction) -> Transaction:
    """The public form of a transaction."""
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


def _schema(schema: pa.Schema | Schema) -> Schema:
    return schema if isinstance(schema, Schema) else Schema.from_arrow(schema)


def _rewrite(operation: LanceOperation.Rewrite) -> inner.Rewrite:
    if operation.rewritten_indices:
        raise UnsupportedError("Rewrite with rewritten_indices: lance_core does not write indices")
    groups = [
        inner.RewriteGroup(old_fragments=_inner(one.old_fragments), new_fragments=_inner(one.new_fragments))
        for one in operation.groups
    ]
    return inner.Rewrite(groups=tuple(groups))


def _update(operation: LanceOperation.Update) -> inner.Update:
    mode = operation.update_mode or "rewrite_rows"
    if mode not in _UPDATE_MODES:
        raise InvalidInputError(f"update_mode is {' or '.join(_UPDATE_MODES)}, not {mode!r}")
    return inner.Update(
        removed_fragment_ids=tuple(operation.removed_fragment_ids),
        updated_fragments=_inner(operation.updated_fragments),
        new_fragments=_inner(operation.new_fragments),
        fields_modified=tuple(operation.fields_modified),
        fields_for_preserving_frag_bitmap=tuple(operation.fields_for_preserving_frag_bitmap),
        update_mode=_UPDATE_MODES[mode],
    )


def _update_from_inner(operation: inner.Update) -> LanceOperation.Update:
    return LanceOperation.Update(
        removed_fragment_ids=list(operation.removed_fragment_ids),
        updated_fragments=_public(operation.updated_fragments),
        new_fragments=_public(operation.new_fragments),
        fields_modified=list(operation.fields_modified),
        fields_for_preserving_frag_bitmap=list(operation.fields_for_preserving_frag_bitmap),
        update_mode=operation.update_mode.name.lower(),
    )


_TO_INNER: dict[type, Callable[[Any], inner.Operation]] = {
    LanceOperation.Append: lambda op: inner.Append(fragments=_inner(op.fragments)),
    LanceOperation.Delete: lambda op: inner.Delete(
        updated_fragments=_inner(op.updated_fragments),
        deleted_fragment_ids=tuple(op.deleted_fragment_ids),
        predicate=op.predicate,
    ),
    LanceOperation.Overwrite: lambda op: inner.Overwrite(fragments=_inner(op.fragments), schema=_schema(op.new_schema)),
    LanceOperation.Rewrite: _rewrite,
    LanceOperation.Merge: lambda op: inner.Merge(
        fragments=_inner(op.fragments),
        schema=_schema(op.schema),
        preserves_nullability=op.preserves_nullability,
    ),
    LanceOperation.Restore: lambda op: inner.Restore(version=op.version),
    LanceOperation.Update: _update,
    LanceOperation.Project: lambda op: inner.Project(schema=op.schema, preserves_nullability=op.preserves_nullability),
    LanceOperation.DataReplacement: lambda op: inner.DataReplacement(
        replacements=tuple((one.fragment_id, one.new_file) for one in op.replacements)
    ),
    inner.UpdateConfig: lambda op: op,
    inner.ReserveFragments: lambda op: op,
}

_FROM_INNER: dict[type, Callable[[Any], LanceOperation.BaseOperation]] = {
    inner.Append: lambda op: LanceOperation.Append(_public(op.fragments)),
    inner.Delete: lambda op: LanceOperation.Delete(
        _public(op.updated_fragments), list(op.deleted_fragment_ids), op.predicate
    ),
    inner.Overwrite: lambda op: LanceOperation.Overwrite(op.schema, _public(op.fragments)),
    inner.Rewrite: lambda op: LanceOperation.Rewrite(
        [LanceOperation.RewriteGroup(_public(one.old_fragments), _public(one.new_fragments)) for one in op.groups]
    ),
    inner.Merge: lambda op: LanceOperation.Merge(_public(op.fragments), op.schema, op.preserves_nullability),
    inner.DataReplacement: lambda op: LanceOperation.DataReplacement(
        [LanceOperation.DataReplacementGroup(*one) for one in op.replacements]
    ),
    inner.Restore: lambda op: LanceOperation.Restore(op.version),
    inner.Update: _update_from_inner,
    inner.Project: lambda op: LanceOperation.Project(op.schema, op.preserves_nullability),
}
