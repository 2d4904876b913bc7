"""Columns that a write adds to its table: the option ``mergeSchema``.

The format has no change that adds columns and rows at once and that readers of changes would understand. So there are
two commits, one right after the other, once all rows are staged: the columns, which are null in the rows that exist,
then the rows. The first is made only if it is still needed and does not carry the key of the write; the second does.
Whatever happens in between, a repeated write finds the columns and adds its rows once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lance_core.change.retries import new_transaction
from lance_core.errors import CommitConflictError, InvalidInputError, UnsupportedError
from lance_core.format.blobs import blobs_for_version
from lance_core.format.schema import Schema
from lance_core.format.table.operations import Merge
from lance_core.methods.evolving import schema_with_nulls
from lance_core.spark.common.types import lance_schema
from lance_core.table.commit import commit
from lance_core.table.snapshot import open_snapshot

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql.types import StructType

    from lance_core.format.schema import Field
    from lance_core.store.base import Store
    from lance_core.table.snapshot import Snapshot

_ATTEMPTS = 20


def columns_of(schema: StructType, version: str) -> pa.Schema:
    """Return the columns of a DataFrame as a table has them.

    Args:
        schema: Of the DataFrame.
        version: Version of the data files.

    Raises:
        UnsupportedError: There is no type for a column.
    """
    return blobs_for_version(Schema.from_arrow(lance_schema(schema)), version).to_arrow()


def with_new_columns(snapshot: Snapshot, columns: pa.Schema) -> Schema:
    """The schema of a version with the columns, and fields of structs, that it lacks; the same one if it lacks none.

    Args:
        snapshot: The version.
        columns: Of the DataFrame.

    Raises:
        InvalidInputError: The name of a new column is reserved, or differs from another one in its case only.
        UnsupportedError: The version of the data files allows no such column.
    """
    schema = snapshot.manifest.schema
    missing = list(_missing(columns, schema.fields))
    structs = [repr(field.name) for field in missing if pa.types.is_struct(field.type)]
    if structs and snapshot.manifest.data_storage_version == "2.0":
        raise UnsupportedError(f"cannot add {', '.join(structs)}: null structs need data files of version 2.1 or later")
    return schema_with_nulls(snapshot, pa.schema(missing)) if missing else schema


def _missing(columns: Iterable[pa.Field], fields: Sequence[Field], path: str = "") -> Iterator[pa.Field]:
    by_name = {field.name: field for field in fields}
    lower = {field.name.lower(): field.name for field in fields}
    for column in columns:
        old = by_name.get(column.name)
        if old is None and column.name.lower() in lower:
            names = f"'{path}{column.name}' and '{path}{lower[column.name.lower()]}'"
            raise InvalidInputError(f"{names} differ only in case. Rename the column of the DataFrame")
        if old is None:
            yield column
        elif old.logical_type == "struct" and not old.is_blob and pa.types.is_struct(column.type):
            inner = list(_missing(column.type, old.children, f"{path}{column.name}."))
            if inner:
                yield column.with_type(pa.struct(inner))


def add_new_columns(store: Store, columns: pa.Schema, fields: Schema) -> None:
    """Commit the columns that the newest version lacks, if any.

    Args:
        store: The branch.
        columns: Of the DataFrame.
        fields: What the staged files hold, which the columns have to become.

    Raises:
        CommitConflictError: Others changed the columns since the files were planned, or came first again and again.
    """
    for attempts_left in reversed(range(_ATTEMPTS)):
        snapshot = open_snapshot(store)
        schema = with_new_columns(snapshot, columns)
        if _identities(field for field in schema.fields if field.name in fields.names) != _identities(fields.fields):
            raise CommitConflictError("another writer changed the columns of the table. Write again", path=store.uri)
        if schema == snapshot.manifest.schema:
            return
        operation = Merge(fragments=tuple(snapshot.manifest.fragments), schema=schema, preserves_nullability=True)
        transaction = new_transaction(snapshot.version, operation, properties=None, message=None)
        try:
            commit(store, transaction, read=snapshot, has_new_uuid=True)
        except CommitConflictError as error:
            if not error.is_retryable or not attempts_left:
                raise
        else:
            return


def _identities(fields: Iterable[Field]) -> list[tuple[object, ...]]:
    """Return the attributes of fields that must be as planned; writers may differ in the others."""
    every = (field_ for field in fields for field_ in field.walk())
    return [(field.id, field.name, field.logical_type, field.nullable, field.extension_name) for field in every]
