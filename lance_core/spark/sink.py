"""The writer of the data source: tasks stage data files, one commit publishes them.

``write`` runs in the executors, ``commit`` and ``abort`` in one more process on the driver's machine; they share
nothing but what is pickled. Who deletes staged files that no version will need:

* a task that fails deletes its own;
* ``commit`` deletes those of all tasks if it fails and no version carries its token;
* ``abort`` deletes those of the finished tasks if another task failed for good, since then there was no commit;
* what a killed process leaves behind, and whatever is in doubt, is left to the clean-up of old files.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from lance_core.spark.cast import cast_batches
from lance_core.spark.commit import plan_write, publish
from lance_core.store.open import open_store
from lance_core.table.stage import FileLimits, remove_staged, stage_fragments

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from lance_core.format.fragment import Fragment
    from lance_core.spark.options import WriteOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class LanceCommitMessage(WriterCommitMessage):
    """What one task staged.

    Attributes:
        fragments: In the order of their rows; none for an empty partition.
    """

    fragments: tuple[Fragment, ...]


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
        if self.plan.done_version is not None:
            return LanceCommitMessage(fragments=())
        options, plan = self.options, self.plan
        fragments = stage_fragments(
            open_store(options.path, options.storage_options),
            plan.fields,
            cast_batches(iterator, plan.fields.to_arrow()),
            limits=FileLimits(
                max_rows_per_file=options.max_rows_per_file, max_bytes_per_file=options.max_bytes_per_file
            ),
            data_storage_version=plan.data_storage_version,
            new_uuid=self._file_ids().__next__,
        )
        return LanceCommitMessage(fragments=fragments)

    def _file_ids(self) -> Iterator[bytes]:
        """A task that is repeated gets other names than before."""
        context = TaskContext.get()
        task = "" if context is None else f"{context.partitionId()}/{context.attemptNumber()}"
        return (uuid.uuid5(self.job, f"{task}/{i}").bytes for i in count())

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish what the tasks staged as one new version, unless a version carries the token already."""
        if self.plan.done_version is None:
            publish(self.options, self.plan, self.options.token or self.job.hex, _fragments(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Clean up after a failed task. If all tasks finished, ``commit`` failed and has decided itself."""
        if any(message is None for message in messages):
            remove_staged(open_store(self.options.path, self.options.storage_options), _fragments(messages))


def _fragments(messages: Sequence[WriterCommitMessage | None]) -> list[Fragment]:
    own = [message for message in messages if isinstance(message, LanceCommitMessage)]
    return [fragment for message in own for fragment in message.fragments]
