"""Names of the files that tasks write: a task that never reported has left its files under names that are known.

A name follows from the job, the task, the attempt and its number in it. Attempts never share names, because one that
was given up may run on beside its successor.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from pyspark import TaskContext

from lance_core.change.stage import data_file_name
from lance_core.errors import NotFoundError
from lance_core.format.blobs import blob_folder
from lance_core.format.table.fragment import DeletionFile, DeletionFileType
from lance_core.format.table.paths import deletion_file_path
from lance_core.table.new_ids import NewIds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from lance_core.store.base import Store

MAX_ATTEMPTS = 4
"""Spark's default for ``spark.task.maxFailures``."""

LAST_TASKS = 3.0
"""Seconds after a failed job in which its tasks end: Spark's ``spark.python.task.killTimeout`` is 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNames:
    """One attempt of one task of a job."""

    job: uuid.UUID
    task: int
    attempt: int

    @property
    def ids(self) -> NewIds:
        """Names for its files, from the first one on."""
        return NewIds(data_file=self.data_files().__next__, deletion_file=self.deletion_file)

    def data_files(self) -> Iterator[bytes]:
        """Data files 0, 1, ..."""
        return (uuid.uuid5(self.job, f"{self.task}/{self.attempt}/{number}").bytes for number in count())

    def deletion_file(self, fragment_id: int) -> int:
        """Return number of the deletion file of a fragment."""
        return uuid.uuid5(self.job, f"{self.task}/{self.attempt}/deletions/{fragment_id}").int >> 65


def names_here(job: uuid.UUID, task: int | None = None) -> TaskNames:
    """Return the attempt that this process is working on.

    Args:
        job: The job.
        task: Number of the task; that of the partition if None.
    """
    context = TaskContext.get()
    partition, attempt = (0, 0) if context is None else (context.partitionId(), context.attemptNumber())
    return TaskNames(job=job, task=partition if task is None else task, attempt=attempt)


def remove_data_files(store: Store, job: uuid.UUID, task: int, attempts: Iterable[int]) -> None:
    """Remove the data files of attempts whose answers never arrived; they are numbered, blobs lie beside them."""
    for attempt in attempts:
        for identity in TaskNames(job=job, task=task, attempt=attempt).data_files():
            path = f"data/{data_file_name(identity)}"
            folder = blob_folder(path)
            paths = [f"{folder}/{name}" for name in store.names(folder)]
            try:
                store.reader(path).close()
                paths.append(path)
            except NotFoundError:
                pass
            if not paths:
                break
            store.delete(paths)


def remove_while_tasks_end(remove: Callable[[], None]) -> None:
    """Remove files of a job that failed while some of its tasks may still run.

    The first task that fails for good ends a job. Spark kills the others, but not at once: their Python processes may
    come to the end of a file meanwhile, so it is looked for again when they are gone.

    Args:
        remove: Removes whatever files of such tasks there are.
    """
    remove()
    time.sleep(LAST_TASKS)
    remove()


def remove_deletion_files(
    store: Store, names: Collection[TaskNames], *, fragment_ids: Iterable[int], read_version: int
) -> None:
    """Remove the deletion files that attempts may have written."""
    store.delete(
        [
            deletion_file_path(
                fragment_id,
                DeletionFile(
                    file_type=kind, read_version=read_version, id=name.deletion_file(fragment_id), num_deleted_rows=1
                ),
            )
            for fragment_id in fragment_ids
            for name in names
            for kind in DeletionFileType
        ]
    )
