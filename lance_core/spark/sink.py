"""The writer of the data source: tasks stage data files, one commit publishes them.

``write`` runs in the executors, ``commit`` and ``abort`` in one more process on the driver's machine; they share
nothing but what is pickled. Who deletes staged files that no version will need:

* a task that fails deletes its own;
* ``commit`` deletes those of all tasks if it fails and no version carries its token;
* ``abort`` deletes those of all tasks if one of them failed for good, since then there was no commit;
* what a process leaves behind that is killed or runs on after that, and whatever is in doubt, is left to the clean-up
  of old files.

A file's name follows from the write, the task, the attempt and its number, so that the files of a task that never
reported can be found without listing.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from lance_core.errors import NotFoundError
from lance_core.spark.cast import cast_batches
from lance_core.spark.commit import plan_write, publish
from lance_core.table.open_table import open_line
from lance_core.table.stage import FileLimits, data_file_name, remove_staged, stage_fragments

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from lance_core.format.fragment import Fragment
    from lance_core.spark.options import WriteOptions
    from lance_core.store.base import Store

# Spark's default for spark.task.maxFailures.
_MAX_ATTEMPTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LanceCommitMessage(WriterCommitMessage):
    """What one task staged.

    Attributes:
        fragments: In the order of their rows; none for an empty partition.
        partition: Number of the task.
        attempt: How often it was tried before.
    """

    fragments: tuple[Fragment, ...]
    partition: int
    attempt: int


class LanceWriter(DataSourceArrowWriter):
    """One write: stages the batches of each task and commits them all at once.

    Args:
        options: What to write where.
        schema: Of the DataFrame.
        overwrite: Whether Spark's mode is overwrite.

    Raises:
        InvalidInputError: The DataFrame does not fit the table; no task has run yet.
    """

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        self.options = options
        self.plan = plan_write(options, schema, overwrite=overwrite)
        self.job = uuid.uuid4()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage one partition; its files are deleted again if this fails."""
        context = TaskContext.get()
        partition, attempt = (0, 0) if context is None else (context.partitionId(), context.attemptNumber())
        fragments = () if self.plan.done_version is not None else self._stage(iterator, partition, attempt)
        return LanceCommitMessage(fragments=fragments, partition=partition, attempt=attempt)

    def _stage(self, batches: Iterator[pa.RecordBatch], partition: int, attempt: int) -> tuple[Fragment, ...]:
        options, fields = self.options, self.plan.fields
        return stage_fragments(
            self._store(),
            fields,
            cast_batches(batches, fields.to_arrow()),
            limits=FileLimits(
                max_rows_per_file=options.max_rows_per_file, max_bytes_per_file=options.max_bytes_per_file
            ),
            data_storage_version=self.plan.data_storage_version,
            new_uuid=_file_ids(self.job, partition, attempt).__next__,
        )

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish what the tasks staged as one new version, unless a version carries the token already."""
        if self.plan.done_version is None:
            publish(self.options, self.plan, self.options.token or self.job.hex, _fragments(messages))
            for message in _own(messages):
                self._remove_unreported(message.partition, range(message.attempt))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Clean up after a failed task. If all tasks finished, ``commit`` failed and has decided itself."""
        if all(message is not None for message in messages):
            return
        remove_staged(self._store(), _fragments(messages))
        for partition, message in enumerate(messages):
            if message is None:
                self._remove_unreported(partition, range(_MAX_ATTEMPTS))

    def _remove_unreported(self, partition: int, attempts: range) -> None:
        """Remove the files of attempts whose messages never arrived; each has files 0, 1, ... or none."""
        store = self._store()
        for attempt in attempts:
            for identity in _file_ids(self.job, partition, attempt):
                path = f"data/{data_file_name(identity)}"
                try:
                    store.reader(path).close()
                except NotFoundError:
                    break
                store.delete([path])

    def _store(self) -> Store:
        return open_line(self.options.path, self.options.storage_options)


def _file_ids(job: uuid.UUID, partition: int, attempt: int) -> Iterator[bytes]:
    return (uuid.uuid5(job, f"{partition}/{attempt}/{i}").bytes for i in count())


def _own(messages: Sequence[WriterCommitMessage | None]) -> list[LanceCommitMessage]:
    return [message for message in messages if isinstance(message, LanceCommitMessage)]


def _fragments(messages: Sequence[WriterCommitMessage | None]) -> list[Fragment]:
    return [fragment for message in _own(messages) for fragment in message.fragments]
