"""Work on fragments in Spark's tasks: each task works out a part of a change, the driver commits all parts together.

A task sees a version that consists of its fragments only, so whatever can be done to a version can be done here. If
another commit gets in the way, only the parts whose fragments changed are worked out again.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from lance_core.change.retries import finish_of
from lance_core.change.stage import remove_staged
from lance_core.errors import CorruptDataError, InvalidInputError, LanceError, UnsupportedError
from lance_core.format.table.operations import CreateIndex, DataReplacement, Delete, Operation, Update
from lance_core.format.table.paths import INDICES_FOLDER, deletion_file_path
from lance_core.spark.common.task_names import (
    MAX_ATTEMPTS,
    TaskNames,
    names_here,
    remove_data_files,
    remove_deletion_files,
    remove_while_tasks_end,
)
from lance_core.spark.common.task_version import TaskVersion
from lance_core.spark.functions.distribute import run_pickled

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from pyspark.sql import SparkSession

    from lance_core.format.schema import Schema
    from lance_core.format.table.fragment import Fragment
    from lance_core.store.base import Store
    from lance_core.table.new_ids import NewIds
    from lance_core.table.open_table import BranchAddress
    from lance_core.table.snapshot import Snapshot

_ROWS_PER_TASK = 1 << 20

# Trying again does not help against these.
_FINAL = (InvalidInputError, UnsupportedError, CorruptDataError)


class DividedWork(Protocol):
    """Work on some fragments; may count the rows it touches as ``num_rows``. See `lance_core.change.retries.Work`."""

    def prepare(self, snapshot: Snapshot) -> Operation:
        """Work it out on a version."""
        ...

    def forget(self) -> None:
        """Remove the files written so far."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Result of one task.

    Attributes:
        task: Its number.
        attempt: How often it was tried before.
        fragments: The fragments it looked at.
        operation: What shall become of them.
        num_rows: Rows that it touches.
    """

    task: int
    attempt: int
    fragments: tuple[Fragment, ...]
    operation: Operation
    num_rows: int

    def remove_files(self, store: Store) -> None:
        """Remove what the task wrote."""
        operation = self.operation
        if isinstance(operation, Update | Delete):
            gone = [(fragment.id, fragment.deletion_file) for fragment in operation.updated_fragments]
            store.delete([deletion_file_path(fragment_id, file) for fragment_id, file in gone if file is not None])
        if isinstance(operation, Update):
            remove_staged(store, operation.new_fragments)
        if isinstance(operation, DataReplacement):
            fragments = {fragment.id: fragment for fragment in self.fragments}
            remove_staged(
                store, [replace(fragments[fragment_id], files=(file,)) for fragment_id, file in operation.replacements]
            )
        if isinstance(operation, CreateIndex):
            for index in operation.new_indices:
                folder = f"{INDICES_FOLDER}/{uuid.UUID(bytes=index.uuid)}"
                store.delete([f"{folder}/{name}" for name in store.names(folder)])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Job:
    """State shared by the tasks; it is sent to them once."""

    id: uuid.UUID
    version: TaskVersion
    make: Callable[[Snapshot, NewIds], DividedWork]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    number: int
    fragments: tuple[Fragment, ...]


@dataclass(slots=True, kw_only=True)
class SparkWork:
    """A change that Spark's tasks work out.

    Attributes:
        spark: The session.
        branch_address: Where.
        plan: Checks a version and answers what makes the work of a task.
        join: Makes one operation of those of all tasks.
        num_tasks: Tasks to aim at.
        one_each: One task for each fragment.
        fragment_ids: Fragments to work on; all if None.
        sees_new_rows: Whether it depends on which rows there are.
        attempts: How often it was worked out.
        parts: What the tasks answered.
    """

    spark: SparkSession
    branch_address: BranchAddress
    plan: Callable[[Snapshot], Callable[[Snapshot, NewIds], DividedWork]]
    join: Callable[[Snapshot, Sequence[Part]], Operation]
    num_tasks: int
    one_each: bool = False
    fragment_ids: Collection[int] | None = None
    sees_new_rows: bool = False
    attempts: int = 0
    parts: list[Part] = field(default_factory=list[Part])
    _schema: Schema | None = None

    @property
    def num_rows(self) -> int:
        """Rows that the change touches."""
        return sum(part.num_rows for part in self.parts)

    @property
    def operations(self) -> list[Operation]:
        """Return the operations that the tasks returned."""
        return [part.operation for part in self.parts]

    def prepare(self, snapshot: Snapshot) -> Operation:
        """Let tasks work on all fragments that are not done yet."""
        self.attempts += 1
        rest = self._keep(snapshot)
        groups = [(task,) for task in rest] if self.one_each else group_fragments(rest, self.num_tasks)
        if not groups and not self.parts:
            groups = [()]  # a table without fragments still tells what is to be done
        job = _Job(id=uuid.uuid4(), version=TaskVersion.of(self.branch_address, snapshot), make=self.plan(snapshot))
        tasks = [_Task(number=number, fragments=group) for number, group in enumerate(groups)]
        try:
            answers = run_pickled(self.spark, partial(_run, job), tasks)
        except BaseException:
            remove_while_tasks_end(partial(self._remove_unknown, job, tasks, {}))
            raise
        done = [answer for answer in answers if isinstance(answer, Part)]
        errors = [answer for answer in answers if isinstance(answer, LanceError)]
        if errors:
            self._remove_unknown(job, tasks, {part.task: part for part in done})
            raise errors[0]
        self.parts += done
        store = self.branch_address.open()
        for part in done:
            if part.attempt:
                _remove_attempts(store, job, tasks[part.task], range(part.attempt))
        return self.join(snapshot, self.parts)

    def forget(self) -> None:
        """Remove the files written so far."""
        store = self.branch_address.open()
        for part in self.parts:
            part.remove_files(store)
        self.parts = []

    def _keep(self, snapshot: Snapshot) -> list[Fragment]:
        """Keep the parts that are still right; the fragments that are left."""
        if self._schema != snapshot.manifest.schema:
            self.forget()
        self._schema = snapshot.manifest.schema
        now = {fragment.id: fragment for fragment in snapshot.manifest.fragments}
        store, valid = self.branch_address.open(), list[Part]()
        for part in self.parts:
            if all(now.get(fragment.id) == fragment for fragment in part.fragments):
                valid.append(part)
            else:
                part.remove_files(store)
        self.parts = valid
        done = {fragment_id.id for part in valid for fragment_id in part.fragments}
        wanted = now.keys() if self.fragment_ids is None else self.fragment_ids
        return [fragment for number, fragment in now.items() if number in wanted and number not in done]

    def _remove_unknown(self, job: _Job, tasks: Sequence[_Task], parts: dict[int, Part]) -> None:
        store = self.branch_address.open()
        for task in tasks:
            if task.number in parts:
                parts[task.number].remove_files(store)
            else:
                _remove_attempts(store, job, task, range(MAX_ATTEMPTS))


def _run(job: _Job, task: _Task) -> Part | LanceError:
    """Return the work of one task, in an executor."""
    names = names_here(job.id, task.number)
    try:
        part = job.version.open(task.fragments)
        work = job.make(part, names.ids)
        try:
            operation = work.prepare(part)
            finish = finish_of(work)
            if finish is not None:
                finish()
        except BaseException:
            work.forget()
            raise
    except _FINAL as error:
        return error
    return Part(
        task=task.number,
        attempt=names.attempt,
        fragments=task.fragments,
        operation=operation,
        num_rows=getattr(work, "num_rows", 0),
    )


def _remove_attempts(store: Store, job: _Job, task: _Task, attempts: range) -> None:
    """Remove the files of attempts whose answers never arrived."""
    names = [TaskNames(job=job.id, task=task.number, attempt=attempt) for attempt in attempts]
    remove_data_files(store, job.id, task.number, attempts)
    ids = [fragment.id for fragment in task.fragments]
    remove_deletion_files(store, names, fragment_ids=ids, read_version=job.version.manifest.version)
    for attempt in names:
        folder = f"{INDICES_FOLDER}/{uuid.UUID(bytes=next(attempt.data_files()))}"
        store.delete([f"{folder}/{name}" for name in store.names(folder)])


def group_fragments(fragments: Iterable[Fragment], num_tasks: int) -> list[tuple[Fragment, ...]]:
    """Whole fragments in groups of about equal work, in their order.

    Args:
        fragments: The fragments.
        num_tasks: Groups to aim at; there are more if they would be large.
    """
    every = list(fragments)
    total = sum(fragment.physical_rows for fragment in every)
    share = max(total / max(num_tasks, -(-total // _ROWS_PER_TASK), 1), 1)
    groups: dict[int, list[Fragment]] = {}
    done = 0.0
    for fragment in every:
        groups.setdefault(int((done + fragment.physical_rows / 2) / share), []).append(fragment)
        done += fragment.physical_rows
    return [tuple(group) for group in groups.values()]
