"""Common part of all changes by Spark's tasks: target, commit options, and detection of repeated work."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, TypedDict

from lance_core.change.retries import commit_options, commit_work
from lance_core.common.signatures import check_options
from lance_core.spark.functions.fragment_work import SparkWork
from lance_core.spark.functions.read import absolute, parallelism, read_lance
from lance_core.spark.functions.result import CommitResult, Stopwatch, log_result, written_by
from lance_core.spark.session import register
from lance_core.spark.writing.sink import JobTarget
from lance_core.table.idempotency import find_commit, with_key
from lance_core.table.open_table import BranchAddress, open_branch, open_version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from pyspark.sql import DataFrame, SparkSession

    from lance_core.change.retries import CommitOptions, Work
    from lance_core.format.table.operations import Operation
    from lance_core.spark.functions.fragment_work import DividedWork, Part
    from lance_core.table.new_ids import NewIds
    from lance_core.table.snapshot import Snapshot


class ChangeOptions(TypedDict, total=False):
    """Options of a change; all have defaults.

    Attributes:
        branch: Branch to change.
        conflict_retries: How often to work it out anew when another commit touched the same fragments.
        retry_timeout: Time after which it is not worked out anew.
        idempotency_key: Identity of the change: if one of the newest hundred versions carries it, nothing is done and
            that version is the result.
        commit_message: Text for the history.
        transaction_properties: More text for it.
        storage_options: Options of the store.
        base_store_params: Options of other places that the table names, by address; an entry also allows the place.
    """

    branch: str | None
    conflict_retries: int | None
    retry_timeout: timedelta | None
    idempotency_key: str | None
    commit_message: str | None
    transaction_properties: Mapping[str, str] | None
    storage_options: Mapping[str, str] | None
    base_store_params: Mapping[str, Mapping[str, str]] | None


class Modification:
    """Common part of all changes: target, commit options, and detection of repeated work.

    Args:
        function: Name of the public function, for errors.
        spark: The session.
        uri: Address of the dataset.
        options: How to commit; unknown ones are a TypeError.
    """

    def __init__(self, function: str, spark: SparkSession, uri: str, options: ChangeOptions) -> None:
        check_options(function, ChangeOptions, options)
        register(spark)
        self.spark = spark
        self.watch = Stopwatch()
        self.key = options.get("idempotency_key")
        self.storage_options = options.get("storage_options")
        self.base_store_params = options.get("base_store_params")
        branch = options.get("branch")
        branch_root = open_branch(absolute(uri), self.storage_options, self.base_store_params)
        self.snapshot: Snapshot = open_version(branch_root, None if branch is None else (branch, None))
        self.options: CommitOptions = commit_options(
            options.get("conflict_retries"),
            options.get("retry_timeout"),
            properties=with_key(options.get("transaction_properties"), self.key),
            message=options.get("commit_message"),
        )
        self.done = self._find_done()

    def _find_done(self) -> CommitResult | None:
        version = None if self.key is None else find_commit(self.snapshot.store, self.key)
        if version is None:
            return None
        result = CommitResult(version=version, idempotency_key=self.key, written=False)
        return log_result("change", self.snapshot.store.uri, result)

    @property
    def job_target(self) -> JobTarget:
        """Destination of the tasks' files."""
        return JobTarget(branch_address=self.branch_address, job=uuid.uuid4())

    @property
    def branch_address(self) -> BranchAddress:
        """The branch that is changed."""
        return BranchAddress.of(self.snapshot.store, self.storage_options)

    def spark_work(
        self,
        plan: Callable[[Snapshot], Callable[[Snapshot, NewIds], DividedWork]],
        join: Callable[[Snapshot, Sequence[Part]], Operation],
        *,
        one_each: bool = False,
    ) -> SparkWork:
        """Work for tasks."""
        return SparkWork(
            spark=self.spark,
            branch_address=self.branch_address,
            plan=plan,
            join=join,
            num_tasks=parallelism(self.spark),
            one_each=one_each,
        )

    def commit(self, work: Work) -> Snapshot:
        """Do the work until it can be committed."""
        return commit_work(self.snapshot, work, self.options)

    def target(
        self, snapshot: Snapshot, columns: Sequence[str], *, with_row_id: bool = False, condition: str | None = None
    ) -> DataFrame:
        """Columns of the table and the address of each row, as of a version.

        Args:
            snapshot: The version.
            columns: Names.
            with_row_id: The stable ids as well.
            condition: Which rows, as SQL text; all if None.
        """
        return read_lance(
            self.spark,
            snapshot.store.uri,
            version=snapshot.version,
            columns=columns,
            filter=condition,
            with_row_address=True,
            with_row_id=with_row_id,
            storage_options=self.storage_options,
            base_store_params=self.base_store_params,
        )

    def result(
        self, what: str, done: Snapshot, operations: Sequence[Operation], *, attempts: int, **numbers: int
    ) -> CommitResult:
        """Return the numbers, told and returned.

        Args:
            what: What was done.
            done: The version made.
            operations: Which say what was written.
            attempts: How often it was worked out.
            **numbers: Rows.
        """
        counts: Any = numbers
        written = [written_by(operation) for operation in operations]
        result = CommitResult(
            version=done.version,
            num_rows=sum(result.num_rows for result in written),
            num_files=sum(result.num_files for result in written),
            num_bytes=sum(result.num_bytes for result in written),
            num_fragments=sum(result.num_fragments for result in written),
            seconds=self.watch.seconds,
            attempts=attempts,
            idempotency_key=self.key,
            **counts,
        )
        return log_result(what, self.snapshot.store.uri, result)
