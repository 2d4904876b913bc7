"""Rewrite fragments in Spark's tasks: one for each group, whose files can be found again if it never reports."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lance_core.dataset import LanceDataset
from lance_core.optimize import CompactionTask, RewriteResult
from lance_core.spark.common.task_names import MAX_ATTEMPTS, names_here, remove_data_files, remove_while_tasks_end
from lance_core.spark.common.task_version import TaskVersion
from lance_core.table.open_table import BranchAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lance_core.optimize import CompactionPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteJob:
    """State shared by the tasks; it is pickled to them.

    Attributes:
        version: The version that the plan is for.
        job: Identity of the job; the names of its files follow from it.
    """

    version: TaskVersion
    job: uuid.UUID

    def __call__(self, text: str) -> str:
        """Execute one task, given and answered as JSON."""
        order = json.loads(text)
        task = CompactionTask.from_json(order["task"])
        names = names_here(self.job, order["number"])
        snapshot, branch_address = self.version.open(()), self.version.branch_address  # the task has its fragments
        dataset = LanceDataset(
            snapshot.store.uri,
            storage_options=branch_address.storage_options,
            base_store_params=branch_address.base_store_params,
            snapshot=snapshot,
        )
        result = task.execute(dataset, new_uuid=names.ids.data_file)
        return json.dumps({"result": result.json(), "attempt": names.attempt})


def execute_plan(
    dataset: LanceDataset,
    plan: CompactionPlan,
    *,
    run: Callable[[Callable[[str], str], Sequence[str]], list[str]],
    storage_options: Mapping[str, str] | None = None,
) -> list[RewriteResult]:
    """Execute the tasks of a plan; nothing is committed yet.

    Args:
        dataset: The dataset.
        plan: From `Compaction.plan`.
        run: Runs a function on each of some texts, each in a Spark task of its own.
        storage_options: Options of the store.

    Raises:
        Exception: A task failed for good; the files of all tasks are removed, but for those of tasks that run on for
            seconds and what a killed one was writing, which a clean-up removes.
    """
    if dataset.version != plan.read_version:
        dataset = dataset.checkout_version(plan.read_version)
    branch_address = BranchAddress.of(dataset.snapshot.store, storage_options)
    job = RewriteJob(version=TaskVersion.of(branch_address, dataset.snapshot), job=uuid.uuid4())
    orders = [json.dumps({"task": task.json(), "number": number}) for number, task in enumerate(plan.tasks)]
    store = dataset.snapshot.store

    def remove() -> None:
        for number in range(len(orders)):
            remove_data_files(store, job.job, number, range(MAX_ATTEMPTS))

    try:
        answers = [json.loads(text) for text in run(job, orders)]
    except BaseException:
        remove_while_tasks_end(remove)
        raise
    for number, answer in enumerate(answers):
        remove_data_files(store, job.job, number, range(answer["attempt"]))
    return [RewriteResult.from_json(answer["result"]) for answer in answers]
