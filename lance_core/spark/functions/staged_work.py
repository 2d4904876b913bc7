"""Changes whose rows Spark computes: its tasks write them, one commit has them all."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 everybody's name for it
from pyspark.sql.types import StructType

from lance_core.change.moved_rows import Departure
from lance_core.change.stage import remove_staged
from lance_core.common.hints import did_you_mean
from lance_core.errors import CorruptDataError, InvalidInputError
from lance_core.format.table.operations import Delete, Operation, Update
from lance_core.methods.arguments import (
    DEFAULT_MAX_BYTES_PER_FILE,
    DEFAULT_MAX_ROWS_PER_FILE,
    file_limits,
    file_version,
)
from lance_core.spark.common.conditions import analyzed, column_of, quoted
from lance_core.spark.common.task_version import TaskVersion
from lance_core.spark.functions.staging import run_staging
from lance_core.spark.writing.blob_columns import CLAUSE, KeptBlobs, blob_columns, written_schema
from lance_core.spark.writing.merge_clauses import Action
from lance_core.spark.writing.merge_job import ACTION, ROW_ADDRESS, ROW_ID, MergeJob
from lance_core.table.naming import naming

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructField

    from lance_core.format.schema import Schema
    from lance_core.format.table.transaction import Transaction
    from lance_core.spark.common.conditions import Condition
    from lance_core.spark.functions.modification import Modification
    from lance_core.table.snapshot import Snapshot


@dataclass(slots=True, kw_only=True)
class StagedWork:
    """A change on the way to its commit, whose rows come from a DataFrame.

    Attributes:
        change: Where, and how to commit.
        sees_new_rows: It depends on which rows there are.
        attempts: How often it was worked out.
        operations: What the tasks have written.
        numbers: Rows by what became of them.
    """

    change: Modification
    sees_new_rows: bool = False
    attempts: int = 0
    operations: list[Operation] = field(default_factory=list[Operation])
    numbers: Mapping[str, str] = field(default_factory=dict[str, str])

    def stage(
        self,
        snapshot: Snapshot,
        rows: DataFrame,
        changed_field_ids: tuple[int, ...],
        *,
        within: str | None = None,
        kept_blobs: KeptBlobs | None = None,
    ) -> Update:
        """Let tasks write rows; see `lance_core.spark.writing.merge_job.MergeJob`."""
        manifest = snapshot.manifest
        job = MergeJob(
            job_target=replace(self.change.job_target, job=uuid.uuid4()),
            read_version=snapshot.version,
            fields=manifest.schema,
            data_storage_version=file_version(None, snapshot),
            limits=file_limits(DEFAULT_MAX_ROWS_PER_FILE, DEFAULT_MAX_BYTES_PER_FILE),
            with_row_ids=manifest.uses_stable_row_ids,
            changed_field_ids=changed_field_ids,
            within=within,
            kept_blobs=kept_blobs,
        )
        staged: Transaction = run_staging(rows, job)
        if not isinstance(staged.operation, Update):
            raise CorruptDataError("Spark's tasks returned something other than rows", path=snapshot.store.uri)
        self.operations, self.numbers = [staged.operation], staged.transaction_properties
        return staged.operation

    def forget(self) -> None:
        """Remove the files written so far."""
        store = self.change.snapshot.store
        for operation in self.operations:
            if isinstance(operation, Update):
                remove_staged(store, operation.new_fragments)
                Departure(updated_fragments=operation.updated_fragments).remove_files(store)
        self.operations = []


@dataclass(slots=True, kw_only=True)
class SelectedRows(StagedWork):
    """Delete or update the rows for which Spark finds a condition true.

    Attributes:
        condition: Which rows; None for all.
        values: New values by name of the column; None to delete the rows.
        reason: Why Lance does not evaluate the condition and the values.
    """

    condition: Condition | None
    values: Mapping[str, Condition] | None
    reason: Exception

    def prepare(self, snapshot: Snapshot) -> Operation:
        """Find the rows, and write them anew or mark them as deleted."""
        self.forget()
        self.attempts += 1
        with naming(snapshot.store):
            rows = analyzed(lambda: self._rows(snapshot), self.reason)
            operation = self.stage(
                snapshot, rows, self._changed_field_ids(snapshot.manifest.schema), kept_blobs=self._kept_blobs(snapshot)
            )
        if self.values is not None:
            return operation
        return Delete(
            updated_fragments=operation.updated_fragments,
            deleted_fragment_ids=operation.removed_fragment_ids,
            predicate="true" if self.condition is None else str(self.condition),
        )

    def _rows(self, snapshot: Snapshot) -> DataFrame:
        table = snapshot.manifest.schema
        _check_names(self.values or {}, table.names)
        blobs = {column.name for column in blob_columns(table)}
        ids = [ROW_ID] if snapshot.manifest.uses_stable_row_ids else []
        read = [name for name in table.names if name not in blobs]
        rows = self.change.target(snapshot, read, with_row_id=bool(ids))
        if self.condition is not None:
            rows = rows.where(column_of(self.condition))
        action = Action.DELETE if self.values is None else Action.UPDATE
        values = [self._value(column, blobs) for column in written_schema(table, StructType())]
        clause = [F.lit(0).alias(CLAUSE)] if blobs else []
        return rows.select(F.lit(int(action)).cast("tinyint").alias(ACTION), ROW_ADDRESS, *clause, *ids, *values)

    def _value(self, column: StructField, blobs: set[str]) -> Column:
        given = None if self.values is None else self.values.get(column.name)
        if given is not None:
            value = column_of(given)
        else:
            is_kept = self.values is not None and column.name not in blobs
            value = F.col(quoted(column.name)) if is_kept else F.lit(None)
        return value.cast(column.dataType).alias(column.name)

    def _changed_field_ids(self, table: Schema) -> tuple[int, ...]:
        names = self.values or {}
        return tuple(inner.id for field in table.fields if field.name in names for inner in field.walk())

    def _kept_blobs(self, snapshot: Snapshot) -> KeptBlobs | None:
        """Blobs that move with the rows."""
        blobs = [] if self.values is None else blob_columns(snapshot.manifest.schema)
        moved = tuple((column, (0,)) for column in blobs if column.name not in (self.values or {}))
        version = TaskVersion.whole(self.change.branch_address, snapshot)
        return KeptBlobs(columns=moved, version=version) if moved else None


def _check_names(values: Mapping[str, Condition], columns: Sequence[str]) -> None:
    for name in values:
        if name not in columns:
            hint = did_you_mean(name, columns)
            raise InvalidInputError(f"there is no column {name!r}; the columns are: {', '.join(columns)}.{hint}")
