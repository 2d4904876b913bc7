"""Reading and writing as functions: with what Spark's ``load`` and ``save`` cannot say or tell."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

from pyspark.errors import PySparkAttributeError

from lance_core.arguments import DEFAULT_MAX_BYTES_PER_FILE, DEFAULT_MAX_ROWS_PER_FILE
from lance_core.errors import CommitOutcomeUnknownError, InvalidInputError
from lance_core.spark.commit import new_fragments, plan_write
from lance_core.spark.options import (
    DEFAULT_BATCH_SIZE,
    ReadOptions,
    WriteOptions,
    format_options,
)
from lance_core.spark.session import register
from lance_core.store.open import open_store
from lance_core.table.idempotency import find_commit
from lance_core.table.open_table import open_line
from lance_core.table.snapshot import find_snapshot, read_transaction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lance_core.store.base import Store

WriteMode = Literal["append", "overwrite", "error", "create", "ignore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """What a write did.

    Attributes:
        version: The version made; the existing one if nothing was written.
        num_rows: Rows written.
        num_files: Data files written.
        num_bytes: Bytes in these files.
        token: Identity of the write, stored with the version.
        written: False if the token was there already, or the dataset was there and the mode ignore.
    """

    version: int
    num_rows: int
    num_files: int
    num_bytes: int
    token: str
    written: bool


def read_lance(
    spark: SparkSession,
    uri: str,
    *,
    columns: Sequence[str] | None = None,
    filter: str | None = None,  # noqa: A002 the name in pylance
    version: int | None = None,
    tag: str | None = None,
    batch_size: int = DEFAULT_BATCH_SIZE,
    with_row_id: bool = False,
    with_row_address: bool = False,
    min_partitions: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Read a table as a DataFrame that stays at one version.

    Args:
        spark: The session; the data source is registered in it.
        uri: Address of the dataset.
        columns: Top-level columns to read, in this order. Spark itself tells a Python source nothing about the columns
            a query needs, so this is what saves reading the others.
        filter: SQL condition that is evaluated while reading; its columns need not be in ``columns``. Spark's own
            filters are applied after reading.
        version: Version to read; the newest now if neither this nor ``tag`` is given.
        tag: Name of a tag to read instead of a version.
        batch_size: Most rows in one record batch.
        with_row_id: Add the column ``_rowid``.
        with_row_address: Add the column ``_rowaddr``.
        min_partitions: Partitions to aim at for a table that is large enough; as many as there are cores if not given.
        storage_options: Options of the store.

    Raises:
        DatasetNotFoundError, VersionNotFoundError, RefNotFoundError: There is no such thing.
        InvalidInputError: Unknown columns, a wrong condition.
    """
    register(spark)
    options = ReadOptions(
        path=_absolute(uri),
        version=version,
        tag=tag,
        columns=None if columns is None else tuple(columns),
        filter=filter,
        batch_size=batch_size,
        with_row_id=with_row_id,
        with_row_address=with_row_address,
        min_partitions=min_partitions or _parallelism(spark),
        storage_options=storage_options,
    )
    return spark.read.format("lance").options(**format_options(options)).load()


def write_lance(
    df: DataFrame,
    uri: str,
    *,
    mode: WriteMode = "append",
    replace_where: str | None = None,
    token: str | None = None,
    transaction_properties: Mapping[str, str] | None = None,
    max_rows_per_file: int = DEFAULT_MAX_ROWS_PER_FILE,
    max_bytes_per_file: int = DEFAULT_MAX_BYTES_PER_FILE,
    data_storage_version: str | None = None,
    enable_stable_row_ids: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> CommitResult:
    """Write a DataFrame as one new version of a table, which is created if need be.

    The DataFrame is evaluated once, by Spark's tasks; columns are matched with the table's by name.

    Args:
        df: The rows.
        uri: Address of the dataset.
        mode: ``append``; ``overwrite`` also takes the DataFrame's schema; ``error`` and ``create`` refuse if the
            dataset exists; ``ignore`` does nothing then.
        replace_where: SQL condition: the rows of the table that match are replaced by the DataFrame (with mode append
            or overwrite).
        token: Identity of this write. If one of the newest hundred versions carries it, nothing is written and that
            version is the result, so that a job can be run again after a failure.
        transaction_properties: Texts to store with the version.
        max_rows_per_file: Rows after which a new file begins.
        max_bytes_per_file: Bytes after which a new file begins.
        data_storage_version: File format version of a new dataset.
        enable_stable_row_ids: Whether rows of a new dataset keep their id when they move.
        storage_options: Options of the store.

    Raises:
        InvalidInputError: The DataFrame does not fit the table; the message names the columns.
        DatasetAlreadyExistsError: With mode error or create.
        CommitOutcomeUnknownError: Spark reports success, but the version cannot be found.
    """
    _check_mode(mode, replace_where)
    register(df.sparkSession)
    options = WriteOptions(
        path=_absolute(uri),
        mode="create" if mode in ("error", "create") else None,
        replace_where=replace_where,
        token=token,
        transaction_properties=transaction_properties,
        max_rows_per_file=max_rows_per_file,
        max_bytes_per_file=max_bytes_per_file,
        data_storage_version=data_storage_version,
        enable_stable_row_ids=enable_stable_row_ids,
        storage_options=storage_options,
    )
    store = open_line(uri, storage_options)
    existing = find_snapshot(store) if mode == "ignore" else None
    if existing is not None:
        return _result(store, existing.version, token or "", written=False)
    overwrite = mode == "overwrite" or replace_where is not None
    plan = plan_write(options, df.schema, overwrite=overwrite)
    if plan.done_version is not None:
        return _result(store, plan.done_version, token or "", written=False)
    token = token or uuid.uuid4().hex
    options = replace(options, token=token, token_after=plan.read_version)
    save_mode = "overwrite" if overwrite else "append"
    df.write.format("lance").mode(save_mode).options(**format_options(options)).save()
    version = find_commit(store, token, after=plan.read_version)
    if version is None:
        message = "Spark reports that the write succeeded, but no version of the dataset carries its token"
        raise CommitOutcomeUnknownError(message, path=store.uri)
    return _result(store, version, token, written=True)


def _check_mode(mode: str, replace_where: str | None) -> None:
    modes = get_args(WriteMode)
    if mode not in modes:
        raise InvalidInputError(f"The mode must be one of {', '.join(modes)}, got {mode!r}.")
    if replace_where is not None and mode not in ("append", "overwrite"):
        raise InvalidInputError(f"replace_where makes no sense with mode {mode}; leave one of them out.")


def _result(store: Store, version: int, token: str, *, written: bool) -> CommitResult:
    transaction = read_transaction(store, version) if written else None
    fragments = () if transaction is None else new_fragments(transaction.operation)
    return CommitResult(
        version=version,
        num_rows=sum(fragment.physical_rows for fragment in fragments),
        num_files=sum(len(fragment.files) for fragment in fragments),
        num_bytes=sum(file.file_size_bytes for fragment in fragments for file in fragment.files),
        token=token,
        written=written,
    )


def _absolute(uri: str) -> str:
    """Python workers may run in another folder than the caller."""
    return open_store(uri).uri


def _parallelism(spark: SparkSession) -> int:
    """Cores of the cluster; a Spark Connect session does not tell."""
    try:
        return spark.sparkContext.defaultParallelism
    except PySparkAttributeError:
        return 1
