"""Write with Spark's tasks: they stage files, the driver's side takes them over as a whole.

``write`` runs in the executors, ``commit`` and ``abort`` in one more process on the driver's machine; they share
nothing but what is pickled. Who deletes staged files that no version will need:

* a task that fails deletes its own;
* ``commit`` deletes those of all tasks if it fails for certain;
* ``abort`` deletes those of all tasks if one of them failed for good, since then there was no commit;
* what a process leaves behind that is killed or runs on for seconds after that, and whatever is in doubt, is left to
  the clean-up of old files.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from lance_core.change.stage import remove_staged
from lance_core.spark.common.task_names import MAX_ATTEMPTS, names_here, remove_data_files, remove_while_tasks_end
from lance_core.spark.common.worker_errors import without_traceback

if TYPE_CHECKING:
    import uuid
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from lance_core.format.table.fragment import Fragment
    from lance_core.spark.common.task_names import TaskNames
    from lance_core.store.base import Store
    from lance_core.table.open_table import BranchAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTarget:
    """Destination of a job.

    Attributes:
        branch_address: The branch.
        job: Identity of the job; the names of its files follow from it.
    """

    branch_address: BranchAddress
    job: uuid.UUID

    def open(self) -> Store:
        """Return the store, opened in this process."""
        return self.branch_address.open()


class StagedPart(Protocol):
    """The files that one task staged."""

    @property
    def files(self) -> Sequence[Fragment]:
        """Fragments that hold the new files."""
        ...


class StagingJob(Protocol):
    """Work of the tasks on their rows; it is pickled to them."""

    @property
    def job_target(self) -> JobTarget:
        """Destination of the job."""
        ...

    def stage(self, batches: Iterator[pa.RecordBatch], names: TaskNames) -> StagedPart:
        """Write the rows of one task; whatever was written is removed if this fails."""
        ...

    def finish(self, parts: Sequence[Any]) -> None:
        """Take over what all tasks staged; whatever was staged is removed if this fails for certain."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LanceCommitMessage(WriterCommitMessage):
    """The files that one task staged.

    Attributes:
        part: Its answer.
        partition: Number of the task.
        attempt: How often it was tried before.
    """

    part: Any
    partition: int
    attempt: int


class LanceWriter(DataSourceArrowWriter):
    """One write: stages the batches of each task and takes them all over at once.

    Args:
        job: What to do with the rows.
    """

    def __init__(self, job: StagingJob) -> None:
        self.job = job

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> LanceCommitMessage:
        """Stage one partition; its files are deleted again if this fails."""
        names = names_here(self.job.job_target.job)
        part = self.job.stage(iterator, names)
        return LanceCommitMessage(part=part, partition=names.task, attempt=names.attempt)

    @without_traceback
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Take over what the tasks staged, then remove what earlier attempts have left."""
        messages_here = _own_messages(messages)
        self.job.finish([message.part for message in messages_here])
        job_target = self.job.job_target
        for message in messages_here:
            if message.attempt:
                remove_data_files(job_target.open(), job_target.job, message.partition, range(message.attempt))

    @without_traceback
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Clean up after a failed task. If all tasks finished, ``commit`` failed and has decided itself."""
        if all(message is not None for message in messages):
            return
        job_target = self.job.job_target
        store = job_target.open()
        for message in _own_messages(messages):
            remove_staged(store, message.part.files)
        unknown = [partition for partition, message in enumerate(messages) if message is None]

        def remove() -> None:
            for partition in unknown:
                remove_data_files(store, job_target.job, partition, range(MAX_ATTEMPTS))

        remove_while_tasks_end(remove)


def _own_messages(messages: Sequence[WriterCommitMessage | None]) -> list[LanceCommitMessage]:
    return [message for message in messages if isinstance(message, LanceCommitMessage)]
