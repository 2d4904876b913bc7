"""Rewrite fragments in Spark's tasks: one for each group, whose files can be found again if it never reports."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lance_core.dataset import dataset as open_dataset
from lance_core.optimize import CompactionTask, RewriteResult
from lance_core.spark.task_names import MAX_ATTEMPTS, names_here, remove_data_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lance_core.dataset import LanceDataset
    from lance_core.optimize import CompactionPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteJob:
    """What each task needs to know; it is pickled to them.

    Attributes:
        uri: Address of the dataset.
        storage_options: Options of the store.
        job: Identity of the job; the names of its files follow from it.
    """

    uri: str
    storage_options: Mapping[str, str] = field(repr=False)
    job: uuid.UUID

    def __call__(self, text: str) -> str:
        """Execute one task, given and answered as JSON."""
        order = json.loads(text)
        task = CompactionTask.from_json(order["task"])
        names = names_here(self.job, order["number"])
        dataset = open_dataset(self.uri, version=task.read_version, storage_options=dict(self.storage_options))
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
        Exception: A task failed for good; the files of all tasks are removed, but for those of tasks that still run.
    """
    job = RewriteJob(uri=dataset.uri, storage_options=dict(storage_options or {}), job=uuid.uuid4())
    orders = [json.dumps({"task": task.json(), "number": number}) for number, task in enumerate(plan.tasks)]
    store = dataset.snapshot.store
    try:
        answers = [json.loads(text) for text in run(job, orders)]
    except BaseException:
        for number in range(len(orders)):
            remove_data_files(store, job.job, number, range(MAX_ATTEMPTS))
        raise
    for number, answer in enumerate(answers):
        remove_data_files(store, job.job, number, range(answer["attempt"]))
    return [RewriteResult.from_json(answer["result"]) for answer in answers]
