"""Methods of `LanceDataset` that change its columns; each moves the object to the version it made.

Rows that exist are not rewritten: new columns go into new files beside those there are, names and nullability are
metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_core.change.column_files import ColumnWriter, Transform, with_file
from lance_core.change.evolution import (
    altered,
    find_path,
    new_fields,
    next_field_id,
    with_null_fields,
    without_columns,
)
from lance_core.change.ingest import plain_schema, read_input
from lance_core.change.retries import commit_operation
from lance_core.change.transforms import (
    Lookup,
    RowStream,
    as_batch,
    from_cast,
    from_function,
    from_lookup,
    from_sql,
    from_stream,
    whole_table,
)
from lance_core.errors import CommitOutcomeUnknownError, InvalidInputError, UnsupportedError
from lance_core.format.file.file_version import LEGACY_FILE_VERSION
from lance_core.format.schema import Schema
from lance_core.format.table.operations import Merge, Project
from lance_core.methods.arguments import file_version
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.fragments import count_matching, scan_fragments
from lance_core.scan.plan import plan_filter, plan_scan
from lance_core.table.naming import naming
from lance_core.table.runtime import SYSTEM_RUNTIME
from lance_core.udf import BatchUDF

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from lance_core.change.checkpoint import Checkpoint
    from lance_core.change.evolution import Altered, Cast
    from lance_core.format.schema import Field
    from lance_core.methods.protocols import OpenDataset
    from lance_core.table.snapshot import Snapshot

_CHILDREN_MAY_LACK = ("2.2",)
_STRUCTS_HAVE_COLUMNS = (LEGACY_FILE_VERSION, "2.0")
_SAMPLE_ROWS = 8
_EMPTY = {"string": "''", "large_string": "''", "binary": "x''", "large_binary": "x''"}


def add_columns(
    dataset: OpenDataset,
    transforms: Any,
    read_columns: Sequence[str] | None = None,
    reader_schema: pa.Schema | None = None,
    batch_size: int | None = None,
) -> None:
    """Add columns; this object moves to the new version. Existing data files stay as they are.

    If other commits add or change rows meanwhile, the commit is refused and what was written is removed.

    Args:
        transforms: A dict of column name to SQL expression over existing columns; a function from record batch to
            batch of new columns (record batch, table or DataFrame), plain or made by `lance_core.batch_udf`, which can
            keep a checkpoint; data in any form that `write_dataset` takes, with one row for each row of the table, in
            its order; or a ``pyarrow.Field``, list of fields or schema for columns that are null in all rows, for
            which nothing is written (a column that exists brings the fields that are new in its structs, at any depth
            of lists).
        read_columns: What a function gets, all columns if None; also ``_rowid`` and ``_rowaddr``.
        reader_schema: Arrow schema of data that is an iterable of batches.
        batch_size: Rows that a function gets at a time.

    Raises:
        InvalidInputError: A name that is taken, an unknown column, data with another number of rows.
        UnsupportedError: SQL or a type that is not supported.
        CommitConflictError: Another commit changed rows or columns meanwhile; do it again.

    Examples:
        >>> table.add_columns({"feet": "height * 3.28"})
        >>> table.schema.names
        ['id', 'name', 'height', 'feet']
    """
    snapshot = dataset.snapshot
    nulls = _null_columns(transforms)
    if nulls is not None:
        with naming(snapshot.store):
            schema = schema_with_nulls(snapshot, nulls)
        fragments = tuple(snapshot.manifest.fragments)
        operation = Merge(fragments=fragments, schema=schema, preserves_nullability=True)
        dataset.snapshot = commit_operation(snapshot, operation, files_since_s=SYSTEM_RUNTIME.monotonic_s())
        return
    with naming(snapshot.store):
        transform, rows, checkpoint_file = _transform(dataset, transforms, read_columns, reader_schema, batch_size)
        fields = new_fields(snapshot.manifest.schema, transform.schema, next_field_id(snapshot.manifest))
    schema = Schema((*snapshot.manifest.schema.fields, *fields.fields), snapshot.manifest.schema.metadata)
    dataset.snapshot = _write(
        dataset,
        transform,
        fields,
        schema,
        checkpoint_file=checkpoint_file,
        at_end=rows.check_empty if rows is not None else lambda: None,
    )


def merge(
    dataset: OpenDataset, data_obj: Any, left_on: str, right_on: str | None = None, schema: pa.Schema | None = None
) -> None:
    """Add the columns of other data, joined by a key; this object moves to the new version.

    Rows without a partner get null; if several rows of the data have one key, the first counts.

    Args:
        data_obj: The other data, as for `write_dataset`; it is held in memory.
        left_on: Key column of the table; also ``_rowid`` or ``_rowaddr``.
        right_on: Key column of the data; ``left_on`` if None.
        schema: Arrow schema of data that is an iterable of batches.

    Raises:
        InvalidInputError: Unknown key columns, keys of different types, a name that is taken.
        CommitConflictError: Another commit changed rows or columns meanwhile.

    Examples:
        >>> table.merge(pa.table({"id": [1, 2], "country": ["Norway", "Peru"]}), "id")
        >>> table.to_table(["country"])["country"].to_pylist()
        ['Norway', 'Peru', None, None]
    """
    snapshot = dataset.snapshot
    with naming(snapshot.store):
        transform = from_lookup(Lookup(whole_table(data_obj, schema), right_on or left_on), left_on)
        fields = new_fields(snapshot.manifest.schema, transform.schema, next_field_id(snapshot.manifest))
    after = Schema((*snapshot.manifest.schema.fields, *fields.fields), snapshot.manifest.schema.metadata)
    dataset.snapshot = _write(dataset, transform, fields, after)


def alter_columns(dataset: OpenDataset, *alterations: Mapping[str, Any]) -> None:
    """Rename columns, cast them, or change whether they may be null; this object moves to the new version.

    Args:
        alterations: Dicts with ``path`` (a name or dotted path) and any of ``name`` (the new one), ``data_type``
            (Arrow type; integers to integers, floats or decimals, floats to floats, text to large text and so on;
            only that column is written anew) and ``nullable``.

    Raises:
        InvalidInputError: An unknown column, a name that is taken, values that do not fit the new type, or nulls in a
            column that shall not have any.
        UnsupportedError: A cast between types that have nothing to do with one another.
        CommitConflictError: Another commit changed what this one relies on.

    Examples:
        >>> table.alter_columns({"path": "height", "name": "metres", "data_type": pa.float64()})
        >>> table.schema.field("metres").type
        DataType(double)
    """
    snapshot = dataset.snapshot
    if not alterations:
        raise InvalidInputError("'alterations' is empty. Pass at least one")
    before = snapshot.manifest.schema
    with naming(snapshot.store):
        change = altered(before, alterations, next_field_id(snapshot.manifest))
        for path in change.tightened:
            _check_no_nulls(dataset, path)
        if snapshot.manifest.data_storage_version == LEGACY_FILE_VERSION:
            _check_no_empty(dataset, [alteration["path"] for alteration in alterations if alteration.get("nullable")])
    dataset.snapshot = _change(dataset, change)


def drop_columns(dataset: OpenDataset, columns: Sequence[str]) -> None:
    """Drop columns, or fields inside of them; this object moves to the new version.

    Only metadata changes; the bytes stay until files are compacted and old versions are cleaned up. A packed struct
    that loses some of its fields is written anew, because its fields share one column.

    Args:
        columns: Names, or dotted paths of fields inside of structs, lists (``l.item.x``) and maps
            (``m.entries.value.x``). A struct, list or map that is left without fields is dropped, too.

    Raises:
        InvalidInputError: An unknown column, none would be left, or a map would lose its keys or values.
        CommitConflictError: Another commit changed the columns meanwhile.

    Examples:
        >>> table.drop_columns(["height"])
        >>> table.schema.names
        ['id', 'name']
    """
    snapshot = dataset.snapshot
    manifest = snapshot.manifest
    with naming(snapshot.store):
        version = manifest.data_storage_version
        change = without_columns(manifest.schema, columns, next_field_id(manifest), version=version)
    dataset.snapshot = _change(dataset, change)


# --------------------------------------------------------------------------------------------------- what they share


def make_transform(
    dataset: OpenDataset,
    source: Any,
    read_columns: Sequence[str] | None,
    batch_size: int | None,
) -> Transform | None:
    """Return the transform for SQL or a function; None for anything else."""
    schema = dataset.snapshot.manifest.schema.to_arrow()
    if isinstance(source, dict):
        return from_sql(source, schema, batch_size)
    if not callable(source):
        return None
    columns = list(schema.names if read_columns is None else read_columns)
    output = source.output_schema if isinstance(source, BatchUDF) else None
    if output is None:
        output = as_batch(source(_sample(dataset, columns, batch_size)), None).schema
    return from_function(source, columns, plain_schema(output), batch_size)


def _transform(
    dataset: OpenDataset,
    source: Any,
    read_columns: Sequence[str] | None,
    reader_schema: pa.Schema | None,
    batch_size: int | None,
) -> tuple[Transform, RowStream | None, Any]:
    transform = make_transform(dataset, source, read_columns, batch_size)
    if transform is not None:
        return transform, None, source.checkpoint_file if isinstance(source, BatchUDF) else None
    rows = RowStream(stream=read_input(source, reader_schema))
    return from_stream(rows), rows, None


def _sample(dataset: OpenDataset, columns: Sequence[str], batch_size: int | None) -> pa.RecordBatch:
    """Return a few rows, by which a function shows what it makes."""
    num_rows = min(batch_size or _SAMPLE_ROWS, _SAMPLE_ROWS)
    plan = plan_scan(
        dataset.snapshot.manifest.schema,
        columns=columns,
        filter=None,
        batch_size=num_rows,
        with_row_id=False,
        with_row_address=False,
    )
    batches = scan_fragments(dataset.files, dataset.snapshot.manifest.fragments, plan, limit=num_rows)
    return next(batches, None) or pa.RecordBatch.from_pylist([], schema=plan.schema)


def _write(
    dataset: OpenDataset,
    transform: Transform,
    fields: Schema,
    schema: Schema,
    *,
    preserves_nullability: bool = True,
    checkpoint_file: Any = None,
    at_end: Callable[[], None] = lambda: None,
) -> Snapshot:
    """Write new columns for all fragments and commit them; what was written is removed if that fails."""
    snapshot, began_s = dataset.snapshot, SYSTEM_RUNTIME.monotonic_s()
    with naming(snapshot.store):
        version = file_version(None, snapshot)
        checkpoint = None if checkpoint_file is None else _checkpoint(checkpoint_file, snapshot, transform)
    if checkpoint is not None:
        transform = checkpoint.remembering(transform)
    writer = ColumnWriter(
        snapshot=snapshot, fields=fields, transform=transform, data_storage_version=version, files=dataset.files
    )
    fragments = list(snapshot.manifest.fragments)
    try:
        if checkpoint is None:
            writer.write_all(fragments)
        else:
            checkpoint.write_all(writer)
        with naming(snapshot.store):
            at_end()
        live = frozenset(field.id for field in schema.walk())
        changed = [with_file(fragment, writer.staged[fragment.id], live) for fragment in fragments]
        operation = Merge(fragments=tuple(changed), schema=schema, preserves_nullability=preserves_nullability)
        # Files that a checkpoint knows may have been written long ago.
        made = commit_operation(snapshot, operation, files_since_s=began_s if checkpoint is None else None)
    except BaseException as error:
        if checkpoint is None and not isinstance(error, CommitOutcomeUnknownError):
            writer.remove()
        raise
    if checkpoint is not None:
        checkpoint.remove()
    return made


def _change(dataset: OpenDataset, change: Altered) -> Snapshot:
    """Commit a changed schema, after the columns were written that need it."""
    snapshot, preserves_nullability = dataset.snapshot, not change.tightened
    if not change.casts:
        return commit_operation(snapshot, Project(schema=change.schema, preserves_nullability=preserves_nullability))
    with naming(snapshot.store):
        _check_nested_casts(snapshot, change.casts)
        fields = _joined_fields([cast.field for cast in change.casts])
        transform = from_cast(change.casts, fields.to_arrow())
    return _write(dataset, transform, fields, change.schema, preserves_nullability=preserves_nullability)


def _checkpoint(path: str | Path, snapshot: Snapshot, transform: Transform) -> Checkpoint:
    from lance_core.change.checkpoint import Checkpoint  # noqa: PLC0415 SQLite is rarely needed

    names = ", ".join(f"{field.name} {field.type}" for field in transform.schema)
    work = f"{names} of version {snapshot.version} of {snapshot.store.uri}, batches of {transform.batch_size}"
    return Checkpoint(path, work)


def _null_columns(source: Any) -> pa.Schema | None:
    if isinstance(source, pa.Schema):
        return source
    if isinstance(source, pa.Field):
        return pa.schema([source])
    if isinstance(source, list) and source and all(isinstance(item, pa.Field) for item in source):
        return pa.schema(source)
    return None


def schema_with_nulls(snapshot: Snapshot, columns: pa.Schema) -> Schema:
    """Return the schema of a version with more columns, which are null in all rows; nothing has to be written for that.

    Args:
        snapshot: The version.
        columns: New columns; one that is there already brings the fields that are new in its structs.

    Raises:
        InvalidInputError: A name that is taken or reserved, or a column that is not nullable.
        UnsupportedError: The version of the data files allows no such column.
    """
    version = snapshot.manifest.data_storage_version
    if version == LEGACY_FILE_VERSION:
        raise UnsupportedError(
            f"cannot add columns {', '.join(columns.names)} without values: file version 0.1 cannot store "
            "nulls or leave columns out. Add them with values, or write the table again with file version 2.2"
        )
    schema = with_null_fields(
        snapshot.manifest.schema,
        columns,
        next_field_id(snapshot.manifest),
        allows_children=version in _CHILDREN_MAY_LACK,
    )
    from lance_core.file.write.writer import check_schema  # noqa: PLC0415 whoever writes no file needs no encoder

    check_schema(schema, version=version)  # else the table could never be appended to, nor compacted
    return schema


def _check_no_nulls(dataset: OpenDataset, path: str) -> None:
    fields = find_path(dataset.snapshot.manifest.schema, path)
    above = _quoted(fields[:-1])
    if _has_rows(dataset, f"{_quoted(fields)} IS NULL" + (f" AND {above} IS NOT NULL" if above else "")):
        raise InvalidInputError(f"column {path!r} contains nulls and cannot become not nullable")


def _check_no_empty(dataset: OpenDataset, paths: Sequence[str]) -> None:
    """In files of version 0.1 an empty string is null as soon as the column may be null."""
    for path in paths:
        fields = find_path(dataset.snapshot.manifest.schema, path)
        if fields[-1].nullable or fields[-1].logical_type not in _EMPTY:
            continue
        if _has_rows(dataset, f"{_quoted(fields)} = {_EMPTY[fields[-1].logical_type]}"):
            raise InvalidInputError(
                f"column {path!r} has empty values, which file version 0.1 would read as nulls if the column "
                "became nullable. Write the table again with file version 2.2"
            )


def _quoted(fields: Sequence[Field]) -> str:
    return ".".join(f"`{field.name}`" for field in fields)


def _has_rows(dataset: OpenDataset, condition: str) -> bool:
    plan = plan_filter(dataset.snapshot.manifest.schema, condition)
    fragments = dataset.snapshot.manifest.fragments
    return any(count_matching(FragmentReader(dataset.files, fragment), plan) for fragment in fragments)


def _check_nested_casts(snapshot: Snapshot, casts: Sequence[Cast]) -> None:
    """Before 2.1 structs and lists have columns of their own, which two files of a fragment cannot both hold."""
    if snapshot.manifest.data_storage_version in _STRUCTS_HAVE_COLUMNS:
        nested = [cast.path for cast in casts if len(cast.names) > 1]
        if nested:
            raise UnsupportedError(
                f"cannot cast {', '.join(nested)} alone: that needs data files of version 2.1 or later"
            )


def _joined_fields(fields: Sequence[Any]) -> Schema:
    """New fields as one schema; those of one struct stay apart, because each column is written by itself."""
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        raise UnsupportedError("cannot cast more than one field of a struct at a time. Alter them one after another")
    return Schema(tuple(fields))
