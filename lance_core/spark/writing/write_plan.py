"""Decide what a write will do, before its tasks run."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from lance_core.change.ingest import new_schema
from lance_core.common.hints import joined_reasons
from lance_core.encoding.profiles import check_profile
from lance_core.errors import DatasetAlreadyExistsError, InvalidInputError, UnsupportedError
from lance_core.file.write.writer import check_schema
from lance_core.format.blobs import blobs_for_version
from lance_core.format.file.file_version import LEGACY_FILE_VERSION
from lance_core.format.schema import Schema
from lance_core.format.table.transaction import COMMIT_MESSAGE_KEY
from lance_core.methods.arguments import file_version
from lance_core.spark.common.names import adopt_names, find_name
from lance_core.spark.common.types import check_names, find_misfits, lance_schema
from lance_core.sql.predicate import make_predicate
from lance_core.table.idempotency import find_commit, with_key
from lance_core.table.open_table import BranchAddress, open_branch, open_version
from lance_core.table.snapshot import find_snapshot

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from lance_core.spark.common.options import WriteOptions
    from lance_core.store.base import Store
    from lance_core.table.snapshot import Snapshot

WriteKind = Literal["append", "overwrite", "replace"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """Plan of a write.

    Attributes:
        uri: Address of the branch, for people.
        branch_address: The branch.
        kind: Which change to commit.
        read_version: Version the plan was made for; 0 if there was no dataset, which the commit then creates.
        fields: What the data files hold, with the ids of the table.
        data_storage_version: Version of the data files.
        key: Identity of the write, stored with the version.
        condition: With kind replace: which rows of the table are replaced; all new rows must match it, too.
        checks_condition: Whether the new rows are asked.
        partition_by: With kind replace, instead of a condition: rows with the same values as a new row in all these
            columns are replaced.
        properties: Transaction properties, the key among them.
        creates_only: It is an error if the dataset exists.
        new_columns: Columns of the DataFrame, if the table lacks some, which it gets before the rows are committed.
        enable_stable_row_ids: Of a new dataset.
        table_config: Of a new dataset, or one that is overwritten.
        max_rows_per_file: Rows after which a new file begins.
        max_bytes_per_file: Encoded bytes after which a new file begins.
        done_version: Version that carries the key already; the write then does nothing.
    """

    uri: str
    branch_address: BranchAddress
    kind: WriteKind
    read_version: int
    fields: Schema
    data_storage_version: str
    key: str
    condition: str | None = None
    checks_condition: bool = True
    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict[str, str])
    creates_only: bool = False
    new_columns: pa.Schema | None = None
    enable_stable_row_ids: bool = False
    table_config: Mapping[str, str] = field(default_factory=dict[str, str])
    max_rows_per_file: int
    max_bytes_per_file: int
    done_version: int | None = None

    def open(self) -> Store:
        """Return the branch, opened in this process."""
        return self.branch_address.open()


def open_target(options: WriteOptions) -> Store:
    """Return the branch that the options name.

    Raises:
        RefNotFoundError: There is no such branch.
    """
    store = open_branch(options.path, options.storage_options, options.base_store_params)
    return store if options.branch is None else open_version(store, (options.branch, None)).store


def plan_write(options: WriteOptions, schema: StructType, *, overwrite: bool) -> WritePlan:
    """Check a write against the table and decide what it will do.

    Args:
        options: What to write where.
        schema: Of the DataFrame.
        overwrite: Replace the rows of the table (those that the options name) instead of adding to them.

    Raises:
        InvalidInputError: The DataFrame does not fit the table, its columns differ in case only, or the condition is
            wrong; names the columns.
        UnsupportedError: A type that files of the table's version cannot hold.
        DatasetAlreadyExistsError: The dataset was to be created.
    """
    _check_overwrite(options, overwrite=overwrite)
    kind: WriteKind = "append" if not overwrite else "replace" if options.replaces else "overwrite"
    store = open_target(options)
    snapshot = find_snapshot(store)
    key = options.idempotency_key
    done = None if key is None or snapshot is None else find_commit(store, key)
    if snapshot is not None and done is None and options.mode == "create":
        raise DatasetAlreadyExistsError("The dataset exists already; use mode append or overwrite", path=store.uri)
    version = file_version(options.data_storage_version, snapshot)
    if snapshot is not None and kind != "overwrite" and not options.case_sensitive:
        schema = adopt_names(schema, snapshot.manifest.schema.to_arrow())
    target = _target(options, schema, snapshot, kind, version)
    fields = _fields(schema, target, version, store.uri)
    options = _with_partitions(options, fields)
    if done is None:
        check_schema(fields, version=version)
        if target.schema is None and not options.case_sensitive:
            check_names(fields.to_arrow())
        _check_replaced(options, fields, snapshot)
    if options.table_config and snapshot is not None and kind != "overwrite" and done is None:
        raise InvalidInputError(
            "'table_config' is only for datasets that are created or overwritten. Use LanceDataset.update_config",
            path=store.uri,
        )
    key = key or uuid.uuid4().hex
    message = {} if options.commit_message is None else {COMMIT_MESSAGE_KEY: options.commit_message}
    return WritePlan(
        uri=store.uri,
        branch_address=BranchAddress.of(store, options.storage_options),
        kind=kind,
        read_version=0 if snapshot is None else snapshot.version,
        fields=fields,
        data_storage_version=version,
        key=key,
        condition=options.replace_where,
        checks_condition=options.check_replace_where,
        partition_by=options.partition_overwrite_by or (),
        properties=with_key({**(options.transaction_properties or {}), **message}, key),
        creates_only=options.mode == "create",
        new_columns=target.new_columns,
        enable_stable_row_ids=options.enable_stable_row_ids,
        table_config=dict(options.table_config or {}),
        max_rows_per_file=options.max_rows_per_file,
        max_bytes_per_file=options.max_bytes_per_file,
        done_version=done,
    )


def _with_partitions(options: WriteOptions, fields: Schema) -> WriteOptions:
    if options.case_sensitive or options.partition_overwrite_by is None:
        return options
    names = tuple(find_name(name, fields.names) for name in options.partition_overwrite_by)
    return replace(options, partition_overwrite_by=names)


def _check_overwrite(options: WriteOptions, *, overwrite: bool) -> None:
    for name in ("replace_where", "partition_overwrite_by"):
        if getattr(options, name) and not overwrite:
            raise InvalidInputError(
                f"The option '{name}' needs mode 'overwrite'; 'append' would keep the rows that it selects."
            )
    if options.merge_schema and overwrite and not options.replaces:
        raise InvalidInputError(
            "The option 'merge_schema' does not apply to mode 'overwrite': the table gets the columns of the DataFrame."
        )
    if options.replace_where is not None and options.partition_overwrite_by:
        raise InvalidInputError("Specify either 'replace_where' or 'partition_overwrite_by', not both.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """Schema and settings that the rows must fit.

    Attributes:
        schema: Of the table; None if the DataFrame makes it.
        new_columns: As in the plan.
        takes_columns: Whether the table may get columns.
        profile: Compression profile of a table that the DataFrame makes, if one was given.
        replaced: Schema that the DataFrame's replaces, if there is one.
    """

    schema: Schema | None = None
    new_columns: pa.Schema | None = None
    takes_columns: bool = False
    profile: str | None = None
    replaced: Schema | None = None


def _target(
    options: WriteOptions, schema: StructType, snapshot: Snapshot | None, kind: WriteKind, version: str
) -> _Target:
    if snapshot is None or kind == "overwrite":
        replaced = None if snapshot is None else snapshot.manifest.schema
        return _Target(profile=options.compression_profile, replaced=replaced)
    before = snapshot.manifest.schema
    check_profile(before.metadata, options.compression_profile)
    if not options.merge_schema:
        return _Target(schema=before)
    from lance_core.spark.writing.new_columns import columns_of, with_new_columns  # noqa: PLC0415 rarely needed

    columns = columns_of(schema, version)
    after = with_new_columns(snapshot, columns)
    return _Target(schema=after, new_columns=None if after == before else columns, takes_columns=True)


def _fields(schema: StructType, target: _Target, version: str, uri: str) -> Schema:
    """Return the fields of the data files: the columns of the table that the DataFrame has; those it lacks are null."""
    table = target.schema
    if table is None:
        made = new_schema(lance_schema(schema), profile=target.profile, replaced=target.replaced)
        return blobs_for_version(made, version)
    given = set(schema.names)
    wanted = [field for field in table.to_arrow() if field.name in given or not field.nullable]
    misfits = find_misfits(schema, pa.schema(wanted))
    if misfits or not given & set(table.names):
        reasons = joined_reasons(misfits or ["it has no columns"])
        message = f"The DataFrame does not fit the table: {reasons}; nothing was written"
        if not target.takes_columns and not given <= set(table.names):
            message += ". The option mergeSchema (merge_schema=True of write_lance) lets the table have new columns"
        raise InvalidInputError(message, path=uri)
    missing = ", ".join(repr(field.name) for field in table.fields if field.name not in given)
    if missing and version == LEGACY_FILE_VERSION:
        raise InvalidInputError(
            f"The DataFrame has no column {missing}, and files of version 0.1 cannot leave columns out; add it. "
            "Nothing was written",
            path=uri,
        )
    return Schema(tuple(field for field in table.fields if field.name in given), table.metadata)


def _check_replaced(options: WriteOptions, fields: Schema, snapshot: Snapshot | None) -> None:
    table = (fields if snapshot is None else snapshot.manifest.schema).to_arrow()
    if options.replace_where is not None:
        make_predicate(options.replace_where, table)
    for name in options.partition_overwrite_by or ():
        if name not in fields.names:
            raise InvalidInputError(f"'partition_overwrite_by' names {name!r}, which the DataFrame does not have.")
        kind = table.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_floating(kind):
            raise UnsupportedError(f"'partition_overwrite_by' does not support column {name!r} of type {kind}")
