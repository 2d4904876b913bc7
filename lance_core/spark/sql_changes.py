"""DELETE, UPDATE and MERGE of SQL: Spark computes the rows, and the commit step commits them.

The plan is made by `lance_core.spark.catalog`. Nothing is worked out anew if another commit gets in the way: Spark then
reports the conflict, and the statement can be run again.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.arguments import DEFAULT_MAX_BYTES_PER_FILE, DEFAULT_MAX_ROWS_PER_FILE, file_limits, file_version
from lance_core.change.retries import new_transaction
from lance_core.errors import UnsupportedError
from lance_core.format.operations import Delete
from lance_core.spark.blob_columns import blob_columns
from lance_core.spark.merge_job import ACTION, MergeJob
from lance_core.spark.options import parse_options
from lance_core.spark.read_options import ReadOptions
from lance_core.spark.read_plan import find_version
from lance_core.spark.sink import JobTarget, LanceWriter
from lance_core.table.commit import commit
from lance_core.table.idempotency import with_key
from lance_core.table.naming import naming
from lance_core.table.open_table import BranchAddress

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lance_core.format.operations import Operation, Update
    from lance_core.spark.merge_job import MergePart
    from lance_core.spark.task_names import TaskNames

COMMAND = "row_changes"
"""Option that names the statement."""

_OPERATION = "__row_operation"
"""Column in which Spark says what to do: 1 to delete the row, 2 to update it, 3 to insert it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlChanges(MergeJob):
    """Writes and commits the rows of a statement.

    Attributes:
        command: DELETE, UPDATE or MERGE.
    """

    command: str

    def stage(self, batches: Iterator[pa.RecordBatch], names: TaskNames) -> MergePart:
        """Write the new rows of one task."""
        return MergeJob.stage(self, map(self._numbered, batches), names)

    def hand_over(self, operation: Update, numbers: Mapping[str, int]) -> None:
        """Commit the change, unless no row matched."""
        if not any(numbers.values()):
            return
        change: Operation = operation
        if self.command == "DELETE":
            change = Delete(
                updated_fragments=operation.updated_fragments,
                deleted_fragment_ids=operation.removed_fragment_ids,
                predicate="",
            )
        properties = with_key({}, str(self.job_target.job))
        transaction = new_transaction(self.read_version, change, properties=properties, message=None)
        store = self.job_target.open()
        with naming(store):
            commit(store, transaction, has_new_uuid=True)

    def _numbered(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with our numbers of actions, and with all columns; deleted rows have no values."""
        arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
        arrays[ACTION] = pa.array(3 - np.asarray(arrays.pop(_OPERATION)))
        for field in self.fields.to_arrow():
            if field.name not in arrays:
                arrays[field.name] = pa.nulls(batch.num_rows, field.type)
        return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


def changes_writer(options: Mapping[str, str]) -> LanceWriter:
    """A writer for the rows of one statement.

    Args:
        options: As Spark hands them over: those of the scan, and the statement.

    Raises:
        UnsupportedError: An update would have to move blobs.
    """
    given = {name: value for name, value in options.items() if name.lower() != COMMAND}
    command = next(value for name, value in options.items() if name.lower() == COMMAND)
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
        )
    )
