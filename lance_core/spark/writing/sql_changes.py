"""DELETE, UPDATE and MERGE of SQL: Spark computes the rows, and the commit step commits them.

The plan is made by `lance_core.spark.catalog`, which runs the statement again if another commit gets in the way.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.change.retries import CommitOptions, commit_work
from lance_core.errors import CommitConflictError, UnsupportedError
from lance_core.format.table.operations import Append, Delete
from lance_core.methods.arguments import (
    DEFAULT_MAX_BYTES_PER_FILE,
    DEFAULT_MAX_ROWS_PER_FILE,
    file_limits,
    file_version,
)
from lance_core.spark.common.options import parse_options
from lance_core.spark.common.read_options import ReadOptions
from lance_core.spark.reading.read_plan import find_version
from lance_core.spark.writing.blob_columns import blob_columns
from lance_core.spark.writing.merge_job import ACTION, MergeJob
from lance_core.spark.writing.sink import JobTarget, LanceWriter
from lance_core.table.naming import naming
from lance_core.table.open_table import BranchAddress

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lance_core.format.table.operations import Operation, Update
    from lance_core.spark.common.task_names import TaskNames
    from lance_core.spark.writing.merge_job import MergePart
    from lance_core.table.snapshot import Snapshot

COMMAND, INSERTS = "row_changes", "row_inserts"
"""Options: the statement, and whether it inserts rows."""

RUN_AGAIN = "Run the statement again."
"""The end of errors by which the catalog knows that the statement may succeed on the newest version."""

_OPERATION = "__row_operation"
"""Column in which Spark says what to do: 1 to delete the row, 2 to update it, 3 to insert it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlChanges(MergeJob):
    """Writes and commits the rows of a statement.

    Attributes:
        command: DELETE, UPDATE or MERGE.
        inserts: It inserts rows.
    """

    command: str
    inserts: bool

    def stage(self, batches: Iterator[pa.RecordBatch], names: TaskNames) -> MergePart:
        """Write the new rows of one task."""
        return MergeJob.stage(self, map(self._numbered, batches), names)

    def hand_over(self, snapshot: Snapshot, operation: Update, numbers: Mapping[str, int]) -> None:
        """Commit the change, unless no row matched.

        Raises:
            CommitConflictError: Another commit changed what this one relies on.
        """
        if not any(numbers.values()):
            return
        work = _Prepared(operation=self._operation(operation, numbers), sees_new_rows=self.inserts)
        try:
            with naming(snapshot.store):
                commit_work(snapshot, work, CommitOptions(conflict_retries=0))
        except CommitConflictError as error:
            if not error.is_retryable:
                raise
            raise CommitConflictError(
                f"{error.message}. {RUN_AGAIN}",
                ours=error.ours,
                theirs=error.theirs,
                version=error.version,
                path=error.path,
            ) from error

    def _operation(self, operation: Update, numbers: Mapping[str, int]) -> Operation:
        if self.command == "DELETE":
            return Delete(
                updated_fragments=operation.updated_fragments,
                deleted_fragment_ids=operation.removed_fragment_ids,
                predicate="",
            )
        only_inserts = numbers["updated"] == numbers["deleted"] == 0
        return Append(fragments=operation.new_fragments) if only_inserts else operation

    def _numbered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows with our numbers of actions, and with all columns; deleted rows have no values."""
        arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
        arrays[ACTION] = pa.array(3 - np.asarray(arrays.pop(_OPERATION)))
        for field in self.fields.to_arrow():
            if field.name not in arrays:
                arrays[field.name] = pa.nulls(batch.num_rows, field.type)
        return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prepared:
    """A change that is worked out once; who made its files removes them.

    Attributes:
        operation: The change.
        sees_new_rows: It depends on which rows there are.
    """

    operation: Operation
    sees_new_rows: bool

    def prepare(self, snapshot: Snapshot) -> Operation:
        """Return the change."""
        del snapshot
        return self.operation

    def forget(self) -> None:
        """Keep the files."""


def changes_writer(options: Mapping[str, str]) -> LanceWriter:
    """Return a writer for the rows of one statement.

    Args:
        options: As Spark hands them over: those of the scan, and the statement.

    Raises:
        UnsupportedError: An update would have to move blobs.
    """
    given = {name.lower(): value for name, value in options.items()}
    command, inserts = given.pop(COMMAND), given.pop(INSERTS) == "true"
    read = parse_options(ReadOptions, given)
    snapshot = find_version(read)
    table = snapshot.manifest.schema
    if command != "DELETE" and blob_columns(table):
        raise UnsupportedError(
            f"{command} of a table with blobs is not supported in SQL. Use merge_lance or update_lance",
            path=snapshot.store.uri,
        )
    address = BranchAddress.of(snapshot.store, read.storage_options)
    return LanceWriter(
        SqlChanges(
            job_target=JobTarget(branch_address=address, job=uuid.uuid4()),
            read_version=snapshot.version,
            fields=table,
            data_storage_version=file_version(None, snapshot),
            limits=file_limits(DEFAULT_MAX_ROWS_PER_FILE, DEFAULT_MAX_BYTES_PER_FILE),
            with_row_ids=snapshot.manifest.uses_stable_row_ids,
            changed_field_ids=tuple(field.id for top in table.fields for field in top.walk()),
            command=command,
            inserts=inserts,
        )
    )
