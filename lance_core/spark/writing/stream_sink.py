"""The streaming side of the writer: each micro-batch is one version, and only once.

A micro-batch that is replayed after a failure has the same query and the same number; both are stored with the version
that it made. So before it commits, the query's last version is looked for.

Spark makes a writer when it plans the query and another one for each commit, so that what a task staged says itself
which job it belongs to.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from lance_core.change.stage import remove_staged
from lance_core.errors import CommitConflictError, InvalidInputError, VersionNotFoundError
from lance_core.spark.common.options import WriteOptions, parse_options
from lance_core.spark.common.worker_errors import without_traceback
from lance_core.spark.writing.rows_job import RowsJob
from lance_core.spark.writing.sink import JobTarget, LanceCommitMessage, LanceWriter
from lance_core.spark.writing.write_plan import plan_write
from lance_core.table.idempotency import LOOKBACK, with_key
from lance_core.table.snapshot import find_newest, read_transaction

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from lance_core.format.table.fragment import Fragment
    from lance_core.spark.writing.write_plan import WritePlan
    from lance_core.store.base import Store

QUERY_KEY = "lance.streaming.queryId"
BATCH_KEY = "lance.streaming.epochId"
"""Transaction properties, named as in lance-spark."""

_SPARKS_OWN = ("checkpointlocation", "queryname")
_QUERY_PROPERTY = "sql.streaming.queryId"
_BATCH_PROPERTY = "streaming.sql.batchId"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamCommitMessage(WriterCommitMessage):
    """The files that one task staged.

    Attributes:
        inner: What a batch write would say.
        job: The job it belongs to.
        query_id: Identity of the query, the same after it was started again from its checkpoint.
    """

    inner: LanceCommitMessage
    job: RowsJob
    query_id: str


class LanceStreamWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches.

    Args:
        options: As Spark hands them over.
        schema: Of the rows.
        overwrite: Whether each micro-batch replaces all rows (output mode complete).

    Raises:
        InvalidInputError: The rows do not fit the table, or options that mean nothing for a stream.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        given = {key: value for key, value in options.items() if key.lower() not in _SPARKS_OWN}
        parsed = parse_options(WriteOptions, given)
        if parsed.idempotency_key is not None or parsed.mode is not None:
            raise InvalidInputError("The options 'idempotency_key' and 'mode' do not apply to a stream.")
        self._plan = plan_write(parsed, schema, overwrite=overwrite)
        self._job = uuid.uuid4()

    @without_traceback
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage one partition of a micro-batch."""
        context = TaskContext.get()
        query_id = None if context is None else context.getLocalProperty(_QUERY_PROPERTY)
        batch_id = None if context is None else context.getLocalProperty(_BATCH_PROPERTY)
        if query_id is None or batch_id is None:
            raise InvalidInputError("Spark does not name the query and the micro-batch. This sink is for streams only.")
        plan = self._plan
        job_target = JobTarget(branch_address=plan.branch_address, job=uuid.uuid5(self._job, batch_id))
        job = RowsJob(job_target=job_target, plan=plan, publishes=True)
        inner = LanceWriter(job).write(iterator)
        return StreamCommitMessage(inner=inner, job=job, query_id=query_id)

    @without_traceback
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 Spark's name
        """Publish a micro-batch, unless a version shows that this was done."""
        messages_here = _own_messages(messages)
        if not messages_here:
            return
        query_id, job = messages_here[0].query_id, messages_here[0].job
        inner = [message.inner for message in messages_here]
        store = self._plan.open()
        done = has_batch(store, query_id, batchId)
        if done or (self._plan.kind == "append" and not _files(messages_here)):
            remove_staged(store, _files(messages_here))
            return
        if (job.plan.fields, job.plan.data_storage_version) != (self._plan.fields, self._plan.data_storage_version):
            remove_staged(store, _files(messages_here))
            message = f"the schema of the table changed while micro-batch {batchId} was written; start the query again"
            raise CommitConflictError(message, path=store.uri)
        plan = with_batch(self._plan, query_id, batchId)
        LanceWriter(replace(job, plan=plan)).commit(inner)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 Spark's name
        """Clean up after a failed task. If all tasks finished, ``commit`` failed and has decided itself."""
        del batchId
        messages_here = _own_messages(messages)
        if messages_here and len(messages_here) < len(messages):
            inner = [message.inner if isinstance(message, StreamCommitMessage) else None for message in messages]
            LanceWriter(messages_here[0].job).abort(inner)


def with_batch(plan: WritePlan, query_id: str, batch_id: int) -> WritePlan:
    """Return the plan for one micro-batch: its key tells which."""
    key = f"{query_id}/{batch_id}"
    properties = {**plan.properties, QUERY_KEY: query_id, BATCH_KEY: str(batch_id)}
    return replace(plan, key=key, properties=with_key(properties, key))


def has_batch(store: Store, query_id: str, batch_id: int) -> bool:
    """Return whether a version was made by this micro-batch, or a later one of the same query.

    Versions are looked at from the newest backwards to the last one of the query; of versions of other writers at most
    `LOOKBACK` in a row.
    """
    versions = find_newest(store)
    newest = versions.newest or 0
    for version in range(newest, max(newest - LOOKBACK, 0), -1):
        try:
            transaction = read_transaction(store, version, naming=versions.naming)
        except VersionNotFoundError:  # cleaned up, and so are all before it
            return False
        properties = {} if transaction is None else transaction.transaction_properties
        if properties.get(QUERY_KEY) == query_id and properties.get(BATCH_KEY, "").isdecimal():
            return int(properties[BATCH_KEY]) >= batch_id
    return False


def _own_messages(messages: Sequence[WriterCommitMessage | None]) -> list[StreamCommitMessage]:
    return [message for message in messages if isinstance(message, StreamCommitMessage)]


def _files(messages: Sequence[StreamCommitMessage]) -> list[Fragment]:
    return [file for message in messages for file in message.inner.part.files]
