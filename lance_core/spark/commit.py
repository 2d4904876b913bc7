"""Plan a write before its tasks run and publish what they staged."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from lance_core.arguments import DEFAULT_REPLACE_RETRIES
from lance_core.errors import (
    CommitOutcomeUnknownError,
    DatasetAlreadyExistsError,
    InvalidInputError,
)
from lance_core.file.writer import check_schema
from lance_core.format.file_version import resolve_version
from lance_core.format.operations import Append, Overwrite
from lance_core.format.schema import Schema
from lance_core.format.transaction import Transaction
from lance_core.spark.types import find_misfits, lance_schema
from lance_core.table.change import replace_rows
from lance_core.table.commit import commit
from lance_core.table.idempotency import IDEMPOTENCY_KEY, find_commit, with_key
from lance_core.table.open_table import open_line
from lance_core.table.predicate import make_predicate
from lance_core.table.redo import CommitOptions
from lance_core.table.snapshot import find_snapshot, open_snapshot, read_transaction
from lance_core.table.stage import remove_staged

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType

    from lance_core.format.fragment import Fragment
    from lance_core.format.operations import Operation
    from lance_core.spark.options import WriteOptions
    from lance_core.store.base import Store
    from lance_core.table.snapshot import Snapshot

WriteKind = Literal["append", "overwrite", "replace"]

_TOKENS = uuid.UUID("8c2f4a3e-0d1b-4d55-9a6e-6b1f6c3f7f10")


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """What a write will do, decided before its tasks run.

    Attributes:
        kind: Which change to commit.
        read_version: Version the plan was made for; 0 if there was no dataset, which the commit then creates.
        fields: What the data files hold, with the ids of the table.
        data_storage_version: Version of the data files.
        done_version: Version that carries the token already; the write then does nothing.
    """

    kind: WriteKind
    read_version: int
    fields: Schema
    data_storage_version: str
    done_version: int | None = None


def plan_write(options: WriteOptions, schema: StructType, *, overwrite: bool) -> WritePlan:
    """Check a write against the table and decide what it will do.

    Args:
        options: What to write where.
        schema: Of the DataFrame.
        overwrite: Replace the rows of the table (those that match ``replace_where``) instead of adding to them.

    Raises:
        InvalidInputError: The DataFrame does not fit the table, or the condition is wrong; names the columns.
        UnsupportedError: A type that files of the table's version cannot hold.
        DatasetAlreadyExistsError: The dataset was to be created.
    """
    if options.replace_where is not None and not overwrite:
        raise InvalidInputError("The option replace_where needs mode overwrite; append would keep the rows it names.")
    kind: WriteKind = "append" if not overwrite else "overwrite" if options.replace_where is None else "replace"
    store = open_line(options.path, options.storage_options)
    snapshot = find_snapshot(store)
    if snapshot is None:
        version = resolve_version(options.data_storage_version).name
        fields = Schema.from_arrow(lance_schema(schema))
        check_schema(fields, version=version)
        return WritePlan(kind=kind, read_version=0, fields=fields, data_storage_version=version)
    done = None if options.token is None else find_commit(store, options.token, after=options.token_after)
    if options.mode == "create" and done is None:
        raise DatasetAlreadyExistsError("The dataset exists already; use mode append or overwrite", path=store.uri)
    fields, version = _fields(options, schema, snapshot, kind), snapshot.manifest.data_storage_version
    check_schema(fields, version=version)
    return WritePlan(
        kind=kind, read_version=snapshot.version, fields=fields, data_storage_version=version, done_version=done
    )


def _fields(options: WriteOptions, schema: StructType, snapshot: Snapshot, kind: WriteKind) -> Schema:
    """What the data files of a write to an existing table hold."""
    if kind == "overwrite":
        return Schema.from_arrow(lance_schema(schema))
    table = snapshot.manifest.schema
    misfits = find_misfits(schema, table.to_arrow())
    if misfits:
        message = f"The DataFrame does not fit the table: {'; '.join(misfits)}; nothing was written"
        raise InvalidInputError(message, path=snapshot.store.uri)
    if options.replace_where is not None:
        make_predicate(options.replace_where, table.to_arrow())
    return table


def publish(options: WriteOptions, plan: WritePlan, token: str, fragments: Sequence[Fragment]) -> None:
    """Make staged fragments visible in one new version.

    If a version with this token turns up, ours or that of another run, the write has succeeded. Staged files are
    deleted when it is certain that no version knows them.

    Raises:
        CommitConflictError: Another commit changed what this one relies on.
        CommitOutcomeUnknownError: The store left open what happened.
    """
    store = open_line(options.path, options.storage_options)
    version = find_commit(store, token, after=plan.read_version)
    if version is None:
        properties = with_key(options.transaction_properties, token)
        try:
            version = _commit(store, options, plan, properties, fragments).version
        except Exception as error:
            version = find_commit(store, token, after=plan.read_version)
            if version is None:
                if not isinstance(error, CommitOutcomeUnknownError):
                    remove_staged(store, fragments)
                raise
    _remove_unused(store, version, fragments)


def _remove_unused(store: Store, version: int, staged: Sequence[Fragment]) -> None:
    """Remove what was staged, if the version with our token was made by another run."""
    transaction = read_transaction(store, version)
    if transaction is not None and _paths(new_fragments(transaction.operation)) != _paths(staged):
        remove_staged(store, staged)


def _paths(fragments: Sequence[Fragment]) -> set[str]:
    return {file.path for fragment in fragments for file in fragment.files}


def _commit(
    store: Store, options: WriteOptions, plan: WritePlan, properties: dict[str, str], fragments: Sequence[Fragment]
) -> Snapshot:
    if not plan.read_version:
        try:
            return _create(store, options, plan, properties, fragments)
        except DatasetAlreadyExistsError:
            if options.mode == "create":
                raise
            plan = _joining(store, plan)  # somebody else was faster
    if plan.kind == "replace":
        snapshot = open_snapshot(store, plan.read_version)
        condition, retries = options.replace_where or "", DEFAULT_REPLACE_RETRIES
        done, _ = replace_rows(
            snapshot, condition, fragments, CommitOptions(conflict_retries=retries, properties=properties)
        )
        return done
    files = tuple(fragments)
    operation = Append(fragments=files) if plan.kind == "append" else Overwrite(fragments=files, schema=plan.fields)
    return commit(store, _transaction(plan.read_version, operation, properties))


def _create(
    store: Store, options: WriteOptions, plan: WritePlan, properties: dict[str, str], fragments: Sequence[Fragment]
) -> Snapshot:
    return commit(
        store,
        _transaction(0, Overwrite(fragments=tuple(fragments), schema=plan.fields), properties),
        data_storage_version=plan.data_storage_version,
        enable_stable_row_ids=options.enable_stable_row_ids,
    )


def _joining(store: Store, plan: WritePlan) -> WritePlan:
    """The plan for a table that was created since; what was staged must fit it as it is."""
    snapshot = open_snapshot(store)
    same = (plan.fields, plan.data_storage_version) == (
        snapshot.manifest.schema,
        snapshot.manifest.data_storage_version,
    )
    if plan.kind != "overwrite" and not same:
        raise DatasetAlreadyExistsError("Somebody else created the dataset with another schema", path=store.uri)
    return replace(plan, read_version=snapshot.version)


def _transaction(read_version: int, operation: Operation, properties: dict[str, str]) -> Transaction:
    """One token is one transaction: a commit that finds its own uuid among the newer versions is done."""
    identity = str(uuid.uuid5(_TOKENS, properties[IDEMPOTENCY_KEY]))
    return Transaction(read_version=read_version, uuid=identity, operation=operation, transaction_properties=properties)


def new_fragments(operation: Operation) -> Sequence[Fragment]:
    """The fragments that a write added."""
    added = getattr(operation, "new_fragments", None)
    return getattr(operation, "fragments", ()) if added is None else added
