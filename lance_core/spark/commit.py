"""Plan a write before its tasks run and publish what they staged; no Spark in here but its schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import lance_core
from lance_core.errors import (
    CommitOutcomeUnknownError,
    DatasetAlreadyExistsError,
    DatasetNotFoundError,
    InvalidInputError,
)
from lance_core.spark.types import find_misfits, lance_schema
from lance_core.store.open import open_store
from lance_core.table.predicate import make_predicate

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from lance_core.spark.options import WriteOptions

TOKEN_KEY = "lance_core.token"  # noqa: S105 a key of transaction properties, no secret
# How many versions back a token is looked for when the caller does not say since when it can be there.
TOKEN_LOOKBACK = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class WritePlan:
    """What a write will do, decided before its tasks run.

    Attributes:
        kind: Which change to commit; ``create`` makes version 1.
        read_version: Version the plan was made for; 0 if there was no dataset.
        schema: Of the data files.
        done_version: Version that carries the token already; the write then does nothing.
    """

    kind: Literal["create", "append", "overwrite", "replace"]
    read_version: int
    schema: pa.Schema
    done_version: int | None


def plan_write(options: WriteOptions, schema: StructType, *, overwrite: bool) -> WritePlan:
    """Check a write against the table and decide what it will do.

    Args:
        options: What to write where.
        schema: Of the DataFrame.
        overwrite: Replace the rows of the table (those that match ``replace_where``) instead of adding to them.

    Raises:
        InvalidInputError: The DataFrame does not fit the table, or the condition is wrong; names the columns.
        DatasetAlreadyExistsError: The dataset was to be created.
    """
    if options.replace_where is not None and not overwrite:
        raise InvalidInputError("The option replace_where needs mode overwrite; append would keep the rows it names.")
    dataset = find_dataset(options)
    if dataset is None:
        return WritePlan(kind="create", read_version=0, schema=lance_schema(schema), done_version=None)
    done = None if options.token is None else find_token(options, options.token, after=options.token_after)
    if options.mode == "create" and done is None:
        raise DatasetAlreadyExistsError("The dataset exists already; use mode append or overwrite", path=options.path)
    if overwrite and options.replace_where is None:
        return WritePlan(kind="overwrite", read_version=dataset.version, schema=lance_schema(schema), done_version=done)
    misfits = find_misfits(schema, dataset.schema)
    if misfits:
        raise InvalidInputError(f"The DataFrame does not fit the table: {'; '.join(misfits)}", path=options.path)
    if options.replace_where is not None:
        make_predicate(options.replace_where, dataset.schema)
    kind = "append" if options.replace_where is None else "replace"
    return WritePlan(kind=kind, read_version=dataset.version, schema=dataset.schema, done_version=done)


def find_dataset(options: WriteOptions) -> lance_core.LanceDataset | None:
    """The newest version of the dataset; None if there is none."""
    try:
        return lance_core.dataset(options.path, storage_options=options.storage_options)
    except DatasetNotFoundError:
        return None


def find_token(options: WriteOptions, token: str, *, after: int | None) -> int | None:
    """The version that a write with this token made.

    Args:
        options: Where to look.
        token: Identity of the write.
        after: Only newer versions are looked at; the newest hundred if None.

    Returns:
        Its number; None if there is no such version.
    """
    dataset = find_dataset(options)
    if dataset is None:
        return None
    newest = dataset.version
    count = TOKEN_LOOKBACK if after is None else newest - after
    for version, transaction in zip(range(newest, 0, -1), dataset.get_transactions(count), strict=False):
        if transaction is not None and transaction.transaction_properties.get(TOKEN_KEY) == token:
            return version
    return None


def publish(
    options: WriteOptions, plan: WritePlan, token: str, fragments: Sequence[lance_core.FragmentMetadata]
) -> None:
    """Make staged fragments visible in one new version.

    If a version with this token turns up, ours or that of another run, the write has succeeded. The staged files are
    deleted if they are certainly not part of any version.

    Raises:
        CommitConflictError: Another commit changed what this one relies on.
        CommitOutcomeUnknownError: The store left open what happened.
    """
    if find_token(options, token, after=plan.read_version) is not None:
        delete_files(options, fragments)
        return
    try:
        _commit(options, plan, token, fragments)
    except Exception as error:
        if find_token(options, token, after=plan.read_version) is not None:
            return
        if not isinstance(error, CommitOutcomeUnknownError):
            delete_files(options, fragments)
        raise


def _commit(
    options: WriteOptions, plan: WritePlan, token: str, fragments: Sequence[lance_core.FragmentMetadata]
) -> None:
    properties = {**(options.transaction_properties or {}), TOKEN_KEY: token}
    if plan.kind == "replace":
        dataset = lance_core.dataset(options.path, version=plan.read_version, storage_options=options.storage_options)
        dataset.replace_where(options.replace_where, fragments, transaction_properties=properties)
    elif plan.kind == "append":
        _commit_operation(options, lance_core.LanceOperation.Append(fragments), plan.read_version, properties)
    else:
        overwrite = lance_core.LanceOperation.Overwrite(plan.schema, fragments)
        _commit_operation(options, overwrite, plan.read_version, properties)


def _commit_operation(
    options: WriteOptions,
    operation: lance_core.LanceOperation.BaseOperation,
    read_version: int,
    properties: dict[str, str],
) -> None:
    transaction = lance_core.Transaction(read_version, operation, transaction_properties=properties)
    lance_core.LanceDataset.commit(options.path, transaction, storage_options=options.storage_options)


def delete_files(options: WriteOptions, fragments: Sequence[lance_core.FragmentMetadata]) -> None:
    """Delete staged data files."""
    paths = [f"data/{file.path}" for fragment in fragments for file in fragment.files]
    open_store(options.path, options.storage_options).delete(paths)


def new_fragments(operation: lance_core.LanceOperation.BaseOperation) -> list[lance_core.FragmentMetadata]:
    """The fragments that a write added."""
    added = getattr(operation, "new_fragments", None)
    return list(operation.fragments if added is None else added)
