"""Write a DataFrame as a function: with what Spark's ``save`` cannot say or tell."""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import partial
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, get_args

from lance_core.errors import InvalidInputError
from lance_core.methods.arguments import DEFAULT_MAX_BYTES_PER_FILE, DEFAULT_MAX_ROWS_PER_FILE
from lance_core.spark.common.conditions import refusal
from lance_core.spark.common.names import find_name
from lance_core.spark.common.options import WriteOptions
from lance_core.spark.common.types import lance_schema
from lance_core.spark.functions.read import read_lance
from lance_core.spark.functions.result import CommitResult, Stopwatch, log_result, written_by
from lance_core.spark.functions.staging import run_staging
from lance_core.spark.functions.translation import translated
from lance_core.spark.session import is_case_sensitive
from lance_core.spark.writing.commit import new_fragments, publish
from lance_core.spark.writing.rows_job import RowsJob, join_partitions
from lance_core.spark.writing.sink import JobTarget
from lance_core.spark.writing.staged_transactions import decode_tables
from lance_core.spark.writing.write_plan import open_target, plan_write
from lance_core.store.open import open_store
from lance_core.table.snapshot import find_snapshot
from lance_core.values.table_id import table_to_write
from lance_core.write import write_dataset

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

    from lance_core.encoding.profiles import CompressionProfile
    from lance_core.spark.common.conditions import Condition
    from lance_core.spark.writing.write_plan import WritePlan

WriteMode = Literal["append", "overwrite", "error", "errorifexists", "create", "ignore"]
Distribution = Literal["auto", "none", "balance", "range"]


def write_lance(
    df: DataFrame,
    uri: str | None = None,
    *,
    mode: WriteMode = "append",
    replace_where: Condition | None = None,
    check_replace_where: bool = True,
    partition_overwrite_by: Sequence[str] | None = None,
    idempotency_key: str | None = None,
    commit_message: str | None = None,
    transaction_properties: Mapping[str, str] | None = None,
    branch: str | None = None,
    sort_by: str | Sequence[str] | None = None,
    distribution: Distribution = "auto",
    num_tasks: int | None = None,
    max_rows_per_file: int = DEFAULT_MAX_ROWS_PER_FILE,
    max_bytes_per_file: int = DEFAULT_MAX_BYTES_PER_FILE,
    data_storage_version: str | None = None,
    compression_profile: CompressionProfile | None = None,
    enable_stable_row_ids: bool = False,
    merge_schema: bool = False,
    table_config: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    namespace_client: Any = None,
    table_id: Sequence[str] | None = None,
) -> CommitResult:
    """Write a DataFrame as one new version of a table, which is created if need be.

    The DataFrame is evaluated once, by Spark's tasks; columns are matched with the table's by name, and nullable ones
    that it lacks are null. Each task makes one fragment, or more if that would be too large; one without rows makes
    none.

    Args:
        df: The rows. Of a table that is created, metadata of columns say what Spark has no types for:
            ``{"arrow.fixed-size-list.size": 16}`` makes an array a vector, ``{"lance-encoding:blob": "true"}`` binary
            values blobs; ``comment`` and other texts are stored.
        uri: Address of the dataset; None with ``namespace_client`` and ``table_id``.
        mode: ``append``; ``overwrite`` also takes the DataFrame's schema; ``error``, ``errorifexists`` and ``create``
            refuse if the dataset exists; ``ignore`` does nothing then.
        replace_where: Condition: the rows of the table that match are replaced by the DataFrame (with mode append or
            overwrite). SQL text as for ``LanceDataset.delete``; in classic sessions also Spark SQL and columns of Spark
            that have a translation: see docs/spark.md for what is pushed into scans.
        check_replace_where: Whether all rows of the DataFrame must match it, too.
        partition_overwrite_by: Columns: rows of the table that have the same values in them as some row of the
            DataFrame are replaced, as ``partitionOverwriteMode=dynamic`` does elsewhere.
        idempotency_key: Identity of this write. If one of the newest hundred versions carries it, nothing is written
            and that version is the result, so that a job can be run again after a failure.
        commit_message: Text for the history.
        transaction_properties: More texts to store with the version.
        branch: Branch to write to, which must exist.
        sort_by: Columns by which the rows of each task are sorted.
        distribution: ``auto``: tiny tasks are put together in classic sessions, unless the DataFrame was repartitioned
            or sorted, or runs Python functions. ``none``: the tasks are those of the DataFrame. ``balance``: Spark
            moves the rows to tasks of about equal size, by ``spark.sql.adaptive.advisoryPartitionSizeInBytes``.
            ``range``: it moves them so that each task has a range of the values of ``sort_by``. Moving rows costs more
            than writing them.
        num_tasks: With ``auto`` and ``none``: at most so many tasks, by putting some together, which moves nothing;
            with ``range``: so many.
        max_rows_per_file: Rows after which a new file begins.
        max_bytes_per_file: Encoded bytes after which a new file begins.
        data_storage_version: File format version; that of the dataset, or the default of a new one, if not given.
        compression_profile: For a dataset that is created or overwritten: ``fast``, ``balanced`` (the default) or
            ``small``, which its files follow from then on; see docs/compression.md.
        enable_stable_row_ids: Whether rows of a new dataset keep their id when they move.
        merge_schema: Add the columns of the DataFrame that the table lacks, as Delta's ``mergeSchema`` does; without it
            they are an error. A new column is null in the rows that exist. Columns and rows are two commits, one right
            after the other when all rows are staged; if the second fails, the columns stay, and to write again is
            safe, with ``idempotency_key`` too.
        table_config: Configuration of a dataset that is created or overwritten.
        storage_options: Options of the store.
        base_store_params: Options of other places that the table names, by address; an entry also allows the place.
        namespace_client: A `lance_namespace.LanceNamespace` that knows the address, or gives a new table one. Needs the
            extra ``namespace``.
        table_id: Names of the namespaces from the root, and that of the table.

    Raises:
        InvalidInputError: The DataFrame does not fit the table; the message names the columns.
        DatasetAlreadyExistsError: With mode error or create.
        CommitConflictError: Another commit changed what this one relies on.
        CommitOutcomeUnknownError: The store, or Spark, left open what happened.

    Examples:
        >>> rows = spark.range(3).withColumnRenamed("id", "number")
        >>> write_lance(rows, "numbers.lance").num_rows
        3
    """
    replaces = replace_where is not None or bool(partition_overwrite_by)
    _check_mode(mode, replaces=replaces)
    watch = Stopwatch()
    if uri is None or namespace_client is not None or table_id is not None:
        uri, storage_options = table_to_write(uri, namespace_client, table_id, mode, storage_options)
    options = WriteOptions(
        path=open_store(uri).uri,  # workers may run in another folder than the caller
        mode="create" if mode in ("error", "errorifexists", "create") else None,
        branch=branch,
        check_replace_where=check_replace_where,
        partition_overwrite_by=None if partition_overwrite_by is None else tuple(partition_overwrite_by),
        idempotency_key=idempotency_key,
        commit_message=commit_message,
        transaction_properties=transaction_properties,
        max_rows_per_file=max_rows_per_file,
        max_bytes_per_file=max_bytes_per_file,
        data_storage_version=data_storage_version,
        compression_profile=compression_profile,
        enable_stable_row_ids=enable_stable_row_ids,
        merge_schema=merge_schema,
        case_sensitive=is_case_sensitive(df.sparkSession),
        table_config=table_config,
        storage_options=storage_options,
        base_store_params=base_store_params,
    )
    existing = find_snapshot(open_target(options)) if mode == "ignore" else None
    if existing is not None:
        return _nothing(existing.version, uri, idempotency_key)
    plan = _plan(df, options, replace_where, overwrite=mode == "overwrite" or replaces)
    if plan.done_version is not None:
        return _nothing(plan.done_version, uri, plan.key)
    return _write(arranged(df, sort_by, distribution, num_tasks), plan, distribution, watch)


def _plan(df: DataFrame, options: WriteOptions, condition: Condition | None, *, overwrite: bool) -> WritePlan:
    """Plan the write; translate a condition of Spark that Lance does not evaluate."""
    plan = partial(plan_write, schema=df.schema, overwrite=overwrite)
    if condition is None:
        return plan(options)
    text: Any = condition
    plans: list[WritePlan] = []
    reason = refusal([condition], lambda: plans.append(plan(replace(options, replace_where=text))))
    return plans[0] if reason is None else plan(replace(options, replace_where=_translated(df, options, text, reason)))


def _translated(df: DataFrame, options: WriteOptions, condition: Condition, reason: Exception) -> str:
    """Return the condition for the table, or for the DataFrame if there is no table yet.

    It is translated over an empty table: where an index finds few rows, the plan has them instead of the condition.
    """
    snapshot = find_snapshot(open_target(options))
    schema = lance_schema(df.schema) if snapshot is None else snapshot.manifest.schema.to_arrow()
    with TemporaryDirectory() as folder:
        write_dataset(schema.empty_table(), folder, mode="overwrite")
        return translated(read_lance(df.sparkSession, folder), condition, reason)


def _write(df: DataFrame, plan: WritePlan, distribution: Distribution, watch: Stopwatch) -> CommitResult:
    job_target = JobTarget(branch_address=plan.branch_address, job=uuid.uuid4())
    staged = run_staging(df, RowsJob(job_target=job_target, plan=plan, publishes=False), {"distribution": distribution})
    partitions = join_partitions(decode_tables(staged, "partitions."))
    done = publish(plan, new_fragments(staged.operation), partitions)
    if not done.is_ours:
        return _nothing(done.version, plan.uri, plan.key)
    written = written_by(staged.operation)
    result = CommitResult(
        version=done.version,
        num_rows=written.num_rows,
        num_files=written.num_files,
        num_bytes=written.num_bytes,
        num_fragments=written.num_fragments,
        num_inserted_rows=written.num_rows,
        num_deleted_rows=done.num_deleted_rows,
        seconds=watch.seconds,
        attempts=1,
        idempotency_key=plan.key,
    )
    return log_result(plan.kind, plan.uri, result)


def _nothing(version: int, uri: str, key: str | None) -> CommitResult:
    return log_result("write", uri, CommitResult(version=version, idempotency_key=key, written=False))


def _check_mode(mode: str, *, replaces: bool) -> None:
    modes = get_args(WriteMode)
    if mode not in modes:
        raise InvalidInputError(f"The mode must be one of {', '.join(modes)}, got {mode!r}.")
    if replaces and mode not in ("append", "overwrite"):
        raise InvalidInputError(
            f"'replace_where' and 'partition_overwrite_by' do not apply to mode {mode!r}. Leave one of them out."
        )


def arranged(df: DataFrame, sort_by: str | Sequence[str] | None, distribution: str, num_tasks: int | None) -> DataFrame:
    """Return the DataFrame with its rows in the tasks and the order wanted; see `write_lance`.

    Raises:
        InvalidInputError: Arguments that do not fit each other.
    """
    names = [sort_by] if isinstance(sort_by, str) else list(sort_by or ())
    if not is_case_sensitive(df.sparkSession):
        names = [find_name(name, df.columns) for name in names]
    if distribution not in get_args(Distribution):
        raise InvalidInputError(
            f"'distribution' must be one of {', '.join(get_args(Distribution))}, not {distribution!r}."
        )
    unknown = [name for name in names if name not in df.columns]
    if unknown:
        raise InvalidInputError(
            f"'sort_by' names unknown columns {', '.join(unknown)}; the columns are: {', '.join(df.columns)}."
        )
    if num_tasks is not None and num_tasks < 1:
        raise InvalidInputError(f"'num_tasks' must be at least 1, got {num_tasks}.")
    columns = [df[f"`{name.replace('`', '``')}`"] for name in names]
    if distribution == "range":
        if not columns:
            raise InvalidInputError("The distribution 'range' needs 'sort_by'.")
        df = df.repartitionByRange(*columns) if num_tasks is None else df.repartitionByRange(num_tasks, *columns)
    elif distribution == "balance":
        if num_tasks is not None:
            raise InvalidInputError(
                "The distribution 'balance' lets Spark choose the number of tasks. Leave out 'num_tasks'."
            )
        df = df.hint("rebalance")
    elif num_tasks is not None:
        df = df.coalesce(num_tasks)
    return df.sortWithinPartitions(*columns) if columns else df
