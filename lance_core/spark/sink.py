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
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

import lance_core
from lance_core.spark.cast import cast_batches
from lance_core.spark.commit import delete_files, plan_write, publish

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from lance_core.spark.options import WriteOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class LanceCommitMessage(WriterCommitMessage):
    """What one task staged.

    Attributes:
        fragments: In the order of their rows; none for an empty partition.
    """

    fragments: tuple[lance_core.FragmentMetadata, ...]


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
        self.token = options.token or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage one partition; its files are deleted again if this fails."""
        if self.plan.done_version is not None:
            return LanceCommitMessage(fragments=())
        options = self.options
        limits = {"max_rows_per_file": options.max_rows_per_file, "max_bytes_per_file": options.max_bytes_per_file}
        fragments = lance_core.write_fragments(
            cast_batches(iterator, self.plan.schema),
            options.path,
            self.plan.schema,
            mode="append" if self.plan.kind in ("append", "replace") else "overwrite",
            data_storage_version=options.data_storage_version,
            enable_stable_row_ids=options.enable_stable_row_ids,
            storage_options=options.storage_options,
            **{key: limit for key, limit in limits.items() if limit is not None},
        )
        return LanceCommitMessage(fragments=tuple(fragments))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish what the tasks staged as one new version, unless a version carries the token already."""
        if self.plan.done_version is None:
            publish(self.options, self.plan, self.token, _fragments(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Clean up after a failed task. If all tasks finished, ``commit`` failed and has decided itself."""
        if any(message is None for message in messages):
            delete_files(self.options, _fragments(messages))


def _fragments(messages: Sequence[WriterCommitMessage | None]) -> list[lance_core.FragmentMetadata]:
    own = [message for message in messages if isinstance(message, LanceCommitMessage)]
    return [fragment for message in own for fragment in message.fragments]
