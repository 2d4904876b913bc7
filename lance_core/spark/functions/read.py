"""Reading as functions: with what Spark's ``load`` cannot say."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

from lance_core.errors import InvalidInputError
from lance_core.scan.plan import SYSTEM_COLUMNS
from lance_core.spark.common.conditions import analyzed, column_of, quoted, refusal
from lance_core.spark.common.options import format_options
from lance_core.spark.common.read_options import ReadOptions
from lance_core.spark.reading.changes import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from lance_core.spark.session import is_connect, register
from lance_core.spark.source import resolve
from lance_core.store.open import open_store
from lance_core.values.table_id import find_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from lance_core.spark.common.conditions import Condition

_ASKED_COLUMNS = frozenset((*SYSTEM_COLUMNS, CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP))
"""Columns that arguments ask for."""


def read_lance(
    spark: SparkSession,
    uri: str | None = None,
    *,
    columns: Sequence[str] | None = None,
    filter: Condition | None = None,  # noqa: A002 the name in pylance
    version: int | None = None,
    tag: str | None = None,
    branch: str | None = None,
    timestamp: datetime | str | None = None,
    limit: int | None = None,
    batch_size: int | None = None,
    with_row_id: bool = False,
    with_row_address: bool = False,
    with_row_versions: bool = False,
    blob_handling: str | None = None,
    truncate_nanoseconds: bool = False,
    min_partitions: int | None = None,
    split_rows: int | None = None,
    split_bytes: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    namespace_client: Any = None,
    table_id: Sequence[str] | None = None,
) -> DataFrame:
    """Read a table as a DataFrame that stays at one version.

    Args:
        spark: The session; the data source is registered in it.
        uri: Address of the dataset; None with ``namespace_client`` and ``table_id``.
        columns: Columns to read, in this order; dotted paths inside structs come out as columns of that name. Spark
            itself tells a Python source nothing about the columns a query needs, so this is what saves reading the
            others.
        filter: Condition; its columns need not be in ``columns``. SQL text that Lance understands is evaluated while
            reading, and rows that cannot match as far as indices tell are not read. Spark evaluates other SQL text,
            and columns of Spark.
        version: Version to read; the newest now if neither this nor ``tag`` nor ``timestamp`` is given.
        tag: Name of a tag to read instead of a version.
        branch: Branch that ``version`` and ``timestamp`` are about; the main branch if not given.
        timestamp: The newest version committed up to this point in time; without a time zone it is of the session's.
        limit: Rows at most; the first ones of the table (that match the filter).
        batch_size: Most rows in one record batch; by default 16,384, and up to eight times as many of narrow columns.
        with_row_id: Add the column ``_rowid``.
        with_row_address: Add the column ``_rowaddr``.
        with_row_versions: Add ``_row_created_at_version`` and ``_row_last_updated_at_version``, which only tables with
            stable row ids know.
        blob_handling: ``all_binary`` for the bytes of blobs; else where they are, as a struct.
        truncate_nanoseconds: Read times with nanoseconds as microseconds; else those that lose digits are an error.
        min_partitions: Partitions to aim at for a table that is large enough; as many as there are cores if not given.
        split_rows: Rows that one partition should hold; about a million if not given.
        split_bytes: Bytes on disk that one partition should hold; 128 MiB if not given.
        storage_options: Options of the store.
        base_store_params: Options of other places that the table names, by address; an entry also allows the place.
        namespace_client: A `lance_namespace.LanceNamespace` that knows the address. Needs the extra ``namespace``.
        table_id: Names of the namespaces from the root, and that of the table.

    Raises:
        DatasetNotFoundError, VersionNotFoundError, RefNotFoundError: There is no such thing.
        InvalidInputError: Unknown columns, a wrong condition, more than one of version, tag and timestamp.
        UnsupportedError: Spark has no type for a column.
        AnalysisException: Any of these in Spark Connect; its last line says which.

    Examples:
        >>> read_lance(spark, "cities.lance", columns=["name"], filter="height > 500").count()
        2
    """
    register(spark)
    if uri is None or namespace_client is not None or table_id is not None:
        uri, storage_options = find_table(uri, namespace_client, table_id, storage_options)
    options = ReadOptions(
        path=absolute(uri),
        version=version,
        tag=tag,
        branch=branch,
        timestamp=None if timestamp is None else _moment(spark, timestamp),
        columns=None if columns is None else tuple(columns),
        limit=limit,
        batch_size=batch_size,
        with_row_id=with_row_id,
        with_row_address=with_row_address,
        with_row_versions=with_row_versions,
        blob_handling=blob_handling,
        truncate_nanoseconds=truncate_nanoseconds,
        min_partitions=min_partitions or parallelism(spark),
        storage_options=storage_options,
        base_store_params=base_store_params,
    )
    sizes = {"split_rows": split_rows, "split_bytes": split_bytes}
    options = replace(options, **{name: size for name, size in sizes.items() if size is not None})
    return _load(spark, options, filter)


def read_lance_changes(
    spark: SparkSession,
    uri: str,
    from_version: int,
    to_version: int | None = None,
    *,
    columns: Sequence[str] | None = None,
    filter: Condition | None = None,  # noqa: A002 the name in pylance
    branch: str | None = None,
    with_row_id: bool = False,
    min_partitions: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
) -> DataFrame:
    """Read what happened to the rows of a table after one version, up to and with another.

    Behind the columns of the table come ``_change_type`` (``insert``, ``delete``, ``update_preimage`` and
    ``update_postimage``), ``_commit_version`` and ``_commit_timestamp``. All versions in between must be there. On
    tables without stable row ids an updated row is one deleted and one inserted.

    Args:
        spark: The session; the data source is registered in it.
        uri: Address of the dataset.
        from_version: The version before the first change; 0 for all changes since the table was created.
        to_version: The version that the last change made; the newest now if not given.
        columns: Columns of the table to read, in this order.
        filter: Condition on the rows, as they were before or after the change; as for `read_lance`.
        branch: Branch that the versions are on; the main branch if not given.
        with_row_id: Add the column ``_rowid``.
        min_partitions: Partitions to aim at; as many as there are cores if not given.
        storage_options: Options of the store.
        base_store_params: Options of other places that the table names, by address; an entry also allows the place.

    Raises:
        DatasetNotFoundError, RefNotFoundError: There is no such thing.
        VersionNotFoundError: There is no version ``to_version``, or ``from_version`` was cleaned up.
        InvalidInputError: There are no such versions or columns.
        UnsupportedError: Values were replaced in a way that leaves no trace of which rows changed; this is found when
            the rows are read, and Spark wraps it in an error of its own.
        AnalysisException: Any of these in Spark Connect; its last line says which.
    """
    register(spark)
    options = ReadOptions(
        path=absolute(uri),
        read_change_feed=True,
        starting_version=str(from_version + 1),
        ending_version=to_version,
        branch=branch,
        columns=None if columns is None else tuple(columns),
        with_row_id=with_row_id,
        min_partitions=min_partitions or parallelism(spark),
        storage_options=storage_options,
        base_store_params=base_store_params,
    )
    return _load(spark, options, filter)


def _load(spark: SparkSession, options: ReadOptions, condition: Condition | None) -> DataFrame:
    """Open a table, and let Spark evaluate a condition if Lance cannot."""
    if condition is None:
        return _open(spark, options)
    frames: list[DataFrame] = []
    text: Any = condition
    try:
        reason = refusal([condition], lambda: frames.append(_open(spark, replace(options, filter=text))))
    except AnalysisException as error:  # the server of a client refused it
        reason = error
    if reason is None:
        return frames[0]
    whole = _open(spark, replace(options, columns=None, limit=None))
    try:
        chosen = analyzed(lambda: _select(whole.where(column_of(condition)), options.columns), reason)
    except InvalidInputError:
        if isinstance(reason, AnalysisException):
            raise reason from None
        raise
    return chosen if options.limit is None else chosen.limit(options.limit)


def _select(frame: DataFrame, columns: tuple[str, ...] | None) -> DataFrame:
    """Return the columns given, and those that arguments ask for."""
    if columns is None:
        return frame
    asked = [name for name in frame.columns if name in _ASKED_COLUMNS and name not in columns]
    return frame.select(*(_path(frame, name).alias(name) for name in (*columns, *asked)))


def _path(frame: DataFrame, name: str) -> Column:
    """Return a column, or a field of structs by its dotted path."""
    parts = [name] if name in frame.columns else name.split(".")
    return F.col(".".join(quoted(part) for part in parts))


def _open(spark: SparkSession, options: ReadOptions) -> DataFrame:
    """Open the table before Spark does, whose errors would hide ours.

    A client of Spark Connect may not reach the store that its server does. There the server looks at once, and what it
    found wrong is said last, behind all that Spark says.
    """
    if not is_connect(spark):
        options, _ = resolve(options)
    frame = spark.read.format("lance").options(**format_options(options)).load()
    if is_connect(spark):
        try:
            frame.schema  # noqa: B018 until it is asked for, the server has seen nothing
        except AnalysisException as error:
            traceback = (error.getMessageParameters() or {}).get("msg", "").strip()
            error.add_note(traceback.rpartition("\n")[2])
            raise
    return frame


def _moment(spark: SparkSession, time: datetime | str) -> str:
    try:
        moment = datetime.fromisoformat(time) if isinstance(time, str) else time
    except ValueError as error:
        raise InvalidInputError(f"{time!r} is not a point in time, such as '2026-01-31 12:00:00'.") from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=ZoneInfo(str(spark.conf.get("spark.sql.session.timeZone"))))
    return moment.isoformat()


def absolute(uri: str) -> str:
    """Return the address as other processes must spell it: they may run in another folder than the caller."""
    return open_store(uri).uri


def parallelism(spark: SparkSession) -> int:
    """Cores of the cluster; a Spark Connect session does not tell."""
    return 1 if is_connect(spark) else spark.sparkContext.defaultParallelism
