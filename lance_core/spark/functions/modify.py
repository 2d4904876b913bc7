"""Change rows of a table in Spark's tasks: each has some fragments, one commit has all."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from lance_core.change.delete import deleting
from lance_core.change.indices import BuildIndex, chosen_fragments, with_model
from lance_core.change.indices import index_options as given_options
from lance_core.change.update import UpdateWork, plan_update
from lance_core.common.signatures import with_options
from lance_core.errors import AlreadyExistsError
from lance_core.format.table.operations import CreateIndex, Delete, Update
from lance_core.index.column import column_to_index
from lance_core.index.kinds import check_build, kind_named
from lance_core.index.vector.kind import VECTOR
from lance_core.index.vector.train import INDEX_TYPES, check_options
from lance_core.methods.arguments import (
    DEFAULT_MAX_BYTES_PER_FILE,
    DEFAULT_MAX_ROWS_PER_FILE,
    file_limits,
    file_version,
)
from lance_core.methods.indexing import text_index_options
from lance_core.scan.plan import plan_filter
from lance_core.spark.common.conditions import refusal
from lance_core.spark.common.names import find_name, find_path
from lance_core.spark.functions.modification import ChangeOptions, Modification
from lance_core.spark.functions.staged_work import SelectedRows
from lance_core.spark.session import is_case_sensitive
from lance_core.spark.writing.merge_job import NUMBERS
from lance_core.table.naming import naming

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Unpack

    from pyspark.sql import SparkSession

    from lance_core.format.table.operations import Operation
    from lance_core.spark.common.conditions import Condition
    from lance_core.spark.functions.fragment_work import DividedWork, Part
    from lance_core.spark.functions.result import CommitResult
    from lance_core.table.new_ids import NewIds
    from lance_core.table.snapshot import Snapshot


@with_options(ChangeOptions)
def delete_lance(spark: SparkSession, uri: str, predicate: Condition, **options: Unpack[ChangeOptions]) -> CommitResult:
    """Delete the rows that match a condition; tasks look for them, only deletion files are written.

    Args:
        spark: The session.
        uri: Address of the dataset.
        predicate: SQL text as for ``LanceDataset.delete``, Spark SQL or a column of Spark; the last two are evaluated
            by Spark.
        **options: See `lance_core.spark.ChangeOptions`.

    Raises:
        InvalidInputError: The condition does not fit the table.
        CommitConflictError: Other commits touched the same fragments each time.
    """
    change = Modification("delete_lance", spark, uri, options)
    if change.done is not None:
        return change.done
    schema = change.snapshot.manifest.schema
    text: Any = predicate
    reason = refusal([predicate], lambda: plan_filter(schema, text))  # before any task runs
    if reason is not None:
        return _select(change, "delete", predicate, None, reason)
    work = change.spark_work(lambda _: partial(_deleting, text), partial(_join_deletes, text))
    done = change.commit(work)
    return change.result("delete", done, work.operations, attempts=work.attempts, num_deleted_rows=work.num_rows)


@with_options(ChangeOptions)
def update_lance(
    spark: SparkSession,
    uri: str,
    updates: Mapping[str, Condition],
    where: Condition | None = None,
    **options: Unpack[ChangeOptions],
) -> CommitResult:
    """Give rows new values; tasks find and write them anew.

    Args:
        spark: The session.
        uri: Address of the dataset.
        updates: For each column to change, an expression over the old values of the row: SQL text as for
            ``LanceDataset.update``, Spark SQL or a column of Spark. Spark evaluates all of them if Lance cannot.
        where: Rows to update; all if None.
        **options: See `lance_core.spark.ChangeOptions`.

    Raises:
        InvalidInputError: Unknown columns, expressions or values that do not fit; nothing is left behind.
        CommitConflictError: Other commits touched the same rows each time.
    """
    change = Modification("update_lance", spark, uri, options)
    if change.done is not None:
        return change.done
    schema = change.snapshot.manifest.schema
    if not is_case_sensitive(spark):
        updates = {find_name(name, schema.names): value for name, value in updates.items()}
    texts: Any = updates
    condition: Any = where
    given = [*texts.values(), *([] if where is None else [where])]
    reason = refusal(given, lambda: plan_update(texts, condition, schema))  # before any task runs
    if reason is not None:
        return _select(change, "update", where, updates, reason)
    work = change.spark_work(lambda _: partial(_updating, dict(texts), condition), _join_updates)
    done = change.commit(work)
    return change.result("update", done, work.operations, attempts=work.attempts, num_updated_rows=work.num_rows)


@with_options(ChangeOptions)
def create_index_lance(
    spark: SparkSession,
    uri: str,
    column: str,
    index_type: str,
    *,
    name: str | None = None,
    replace: bool = True,
    train: bool = True,
    fragment_ids: Sequence[int] | None = None,
    rows_per_zone: int | None = None,
    number_of_items: int | None = None,
    max_memory_bytes: int | None = None,
    index_options: Mapping[str, Any] | None = None,
    **options: Unpack[ChangeOptions],
) -> CommitResult:
    """Build an index of any kind; each task builds a segment over some fragments, one commit has all.

    The driver learns the centroids of a vector index from a sample, and all tasks use them.

    Args:
        spark: The session.
        uri: Address of the dataset.
        column: Name, or dotted path inside structs.
        index_type: As in `lance_core.LanceDataset.create_scalar_index` or `lance_core.LanceDataset.create_index`.
        name: Name of the index; ``{column}_idx`` if None.
        replace: Take the place of an index of that name.
        train: As in `lance_core.LanceDataset.create_scalar_index`, like the next three.
        fragment_ids: Fragments to cover; all if None.
        rows_per_zone: Rows in each run of a ``"ZONEMAP"``.
        number_of_items: Rows in each run of a ``"BLOOMFILTER"``.
        max_memory_bytes: Likewise, for each task.
        index_options: Other options of the kind, as these methods take them: such as ``metric`` and ``num_partitions``
            of an ``"IVF_PQ"``, or ``with_position`` of an ``"INVERTED"`` index.
        **options: See `lance_core.spark.ChangeOptions`.

    Raises:
        InvalidInputError: An option that the kind does not have, or a fragment that the table does not have.
        UnsupportedError: A type of index or column that cannot be built.
        AlreadyExistsError: There is an index of that name, and it shall not or cannot be replaced.
    """
    change = Modification("create_index_lance", spark, uri, options)
    if change.done is not None:
        return change.done
    settings = given_options(
        rows_per_zone=rows_per_zone, number_of_items=number_of_items, max_memory_bytes=max_memory_bytes
    )
    if not is_case_sensitive(spark):
        column = find_path(column, change.snapshot.manifest.schema.fields)
    settings |= text_index_options(index_options or {})
    kind = index_type
    if index_type.upper() in INDEX_TYPES:
        kind, settings = VECTOR.name, {**settings, "index_type": index_type.upper()}
    index = BuildIndex(
        kind=kind,
        column=column,
        name=name or f"{column}_idx",
        replace=replace,
        options=settings,
        fragment_ids=fragment_ids if train else (),
    )
    with naming(change.snapshot.store):
        _check_index(index, change.snapshot)
        index = with_model(index, change.snapshot)
    work = change.spark_work(lambda _: partial(_indexing, index), partial(_join_indices, index.name))
    work.fragment_ids = index.fragment_ids
    done = change.commit(work)
    return change.result("index", done, work.operations, attempts=work.attempts)


@with_options(ChangeOptions)
def create_zone_map_lance(
    spark: SparkSession,
    uri: str,
    column: str,
    *,
    name: str | None = None,
    replace: bool = True,
    rows_per_zone: int | None = None,
    **options: Unpack[ChangeOptions],
) -> CommitResult:
    """Build an index of type ZONEMAP; as `create_index_lance`."""
    return create_index_lance(
        spark, uri, column, "ZONEMAP", name=name, replace=replace, rows_per_zone=rows_per_zone, **options
    )


def _select(
    change: Modification,
    what: str,
    condition: Condition | None,
    values: Mapping[str, Condition] | None,
    reason: Exception,
) -> CommitResult:
    """Let Spark find the rows, because Lance cannot."""
    work = SelectedRows(change=change, condition=condition, values=values, reason=reason)
    done = change.commit(work)
    counts = {f"num_{name}_rows": int(work.numbers[name]) for name in NUMBERS}
    return change.result(what, done, work.operations, attempts=work.attempts, **counts)


# ------------------------------------------------------------------------------------ in the tasks, and what joins them


def _deleting(predicate: str, snapshot: Snapshot, ids: NewIds) -> DividedWork:
    return deleting(snapshot.store, predicate, ids)


def _join_deletes(predicate: str, _snapshot: Snapshot, parts: Sequence[Part]) -> Operation:
    deletes = [part.operation for part in parts if isinstance(part.operation, Delete)]
    return Delete(
        updated_fragments=tuple(fragment for delete in deletes for fragment in delete.updated_fragments),
        deleted_fragment_ids=tuple(fragment_id for delete in deletes for fragment_id in delete.deleted_fragment_ids),
        predicate=predicate,
    )


def _updating(updates: Mapping[str, str], where: str | None, snapshot: Snapshot, ids: NewIds) -> DividedWork:
    return UpdateWork(
        updates=updates,
        condition=where,
        limits=file_limits(DEFAULT_MAX_ROWS_PER_FILE, DEFAULT_MAX_BYTES_PER_FILE),
        data_storage_version=file_version(None, snapshot),
        ids=ids,
    )


def _join_updates(_snapshot: Snapshot, parts: Sequence[Part]) -> Operation:
    operations = [part.operation for part in parts if isinstance(part.operation, Update)]
    return Update(
        removed_fragment_ids=tuple(fragment_id for update in operations for fragment_id in update.removed_fragment_ids),
        updated_fragments=tuple(fragment for update in operations for fragment in update.updated_fragments),
        new_fragments=tuple(fragment for update in operations for fragment in update.new_fragments),
        fields_for_preserving_frag_bitmap=operations[0].fields_for_preserving_frag_bitmap,
    )


def _check_index(index: BuildIndex, snapshot: Snapshot) -> None:
    """Refuse an index before any task runs."""
    kind, column = kind_named(index.kind), column_to_index(snapshot.manifest.schema, index.column)
    chosen_fragments(snapshot, index.fragment_ids)
    options = check_build(kind, column, index.options)
    if kind is VECTOR:
        check_options(column, options)
    if not index.replace and any(other.name == index.name for other in snapshot.manifest.indices):
        raise AlreadyExistsError(f"there is an index {index.name!r} already", path=snapshot.store.uri)


def _indexing(index: BuildIndex, _: Snapshot, ids: NewIds) -> DividedWork:
    return replace(index, fragment_ids=None, uuid=ids.data_file(), _written=[])


def _join_indices(name: str, snapshot: Snapshot, parts: Sequence[Part]) -> Operation:
    operations = [part.operation for part in parts if isinstance(part.operation, CreateIndex)]
    return CreateIndex(
        new_indices=tuple(entry for index in operations for entry in index.new_indices),
        removed_indices=tuple(index for index in snapshot.manifest.indices if index.name == name),
    )
