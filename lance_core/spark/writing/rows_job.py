"""The job that writes the rows of a DataFrame into new fragments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_core.change.stage import FileLimits, remove_staged, stage_fragments
from lance_core.errors import InvalidInputError
from lance_core.format.table.operations import Append
from lance_core.spark.common.cast import cast_batches
from lance_core.spark.common.names import rename_columns
from lance_core.spark.common.task_memory import keep_freed_memory
from lance_core.spark.writing.blob_columns import fit_blob_columns
from lance_core.spark.writing.commit import publish
from lance_core.spark.writing.staged_transactions import stage_transaction
from lance_core.sql.grouping import grouped
from lance_core.sql.predicate import make_predicate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lance_core.format.table.fragment import Fragment
    from lance_core.spark.common.task_names import TaskNames
    from lance_core.spark.writing.sink import JobTarget
    from lance_core.spark.writing.write_plan import WritePlan
    from lance_core.sql.predicate import Predicate

MAX_PARTITIONS = 10_000
"""Partitions that one write may replace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsPart:
    """The files that one task staged.

    Attributes:
        fragments: In the order of their rows; none for an empty partition.
        partitions: Different values of the columns that the write is partitioned by.
    """

    fragments: tuple[Fragment, ...] = ()
    partitions: pa.Table | None = None

    @property
    def files(self) -> Sequence[Fragment]:
        """Fragments that hold the new files."""
        return self.fragments


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsJob:
    """Stages rows.

    Attributes:
        job_target: Where.
        plan: The write.
        publishes: Commit in Spark's commit step; else what was staged is handed over to the caller.
    """

    job_target: JobTarget
    plan: WritePlan
    publishes: bool

    def stage(self, batches: Iterator[pa.RecordBatch], names: TaskNames) -> RowsPart:
        """Write the rows of one task.

        Raises:
            InvalidInputError: Values that do not fit, or rows that are not among those to be replaced.
        """
        plan = self.plan
        if plan.done_version is not None:
            return RowsPart()
        keep_freed_memory()
        arrow = plan.fields.to_arrow()
        rows = cast_batches(fit_blob_columns(rename_columns(batches, arrow), plan.fields), arrow)
        if plan.condition is not None and plan.checks_condition:
            predicate = make_predicate(plan.condition, arrow)
            rows = matching(rows, predicate, "replace_where", ", or set check_replace_where to false")
        seen = _Partitions(plan.partition_by)
        fragments = stage_fragments(
            self.job_target.open(),
            plan.fields,
            seen.noted(rows) if plan.partition_by else rows,
            limits=FileLimits(max_rows_per_file=plan.max_rows_per_file, max_bytes_per_file=plan.max_bytes_per_file),
            data_storage_version=plan.data_storage_version,
            new_uuid=names.ids.data_file,
        )
        return RowsPart(fragments=fragments, partitions=seen.table if plan.partition_by else None)

    def finish(self, parts: Sequence[RowsPart]) -> None:
        """Publish what the tasks staged, or hand it over."""
        if self.plan.done_version is not None:
            return
        fragments = tuple(fragment for part in parts for fragment in part.fragments)
        if self.publishes:
            partitions = join_partitions([part.partitions for part in parts if part.partitions is not None])
            publish(self.plan, fragments, partitions if self.plan.partition_by else None)
            return
        store = self.job_target.open()
        try:
            tables = {f"partitions.{i}": part.partitions for i, part in enumerate(parts)}
            stage_transaction(store, self.job_target.job, Append(fragments=fragments), tables)
        except Exception:
            remove_staged(store, fragments)
            raise


def matching(
    batches: Iterable[pa.RecordBatch], predicate: Predicate, argument: str, way_out: str = ""
) -> Iterator[pa.RecordBatch]:
    """Yield the same batches, all of whose rows must match.

    Args:
        batches: Rows of the table.
        predicate: What they must match.
        argument: What the user calls it.
        way_out: What else to do about it than to filter the DataFrame.

    Raises:
        InvalidInputError: A row does not; tells the first one.
    """
    for batch in batches:
        mask = predicate.mask(batch)
        if mask.true_count < batch.num_rows:
            tops = [name for name in batch.schema.names if _names(predicate.columns, name)]
            row = batch.select(tops).slice(mask.index(pa.scalar(False)).as_py(), 1).to_pylist()[0]  # noqa: FBT003
            raise InvalidInputError(
                f"{batch.num_rows - mask.true_count} of {batch.num_rows} rows of the DataFrame do not match "
                f"{argument}={predicate.text!r}, the first has {row}; nothing was written. Filter the DataFrame"
                f"{way_out}"
            )
        yield batch


def _names(paths: Iterable[str], column: str) -> bool:
    return any(path == column or path.startswith(f"{column}.") for path in paths)


@dataclass(slots=True)
class _Partitions:
    """Different values of some columns."""

    names: tuple[str, ...]
    table: pa.Table | None = None

    def noted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            part = pa.Table.from_batches([batch.select(self.names)])
            self.table = join_partitions([part] if self.table is None else [self.table, part])
            yield batch


def join_partitions(tables: Sequence[pa.Table]) -> pa.Table | None:
    """Return the different rows of some tables.

    Raises:
        InvalidInputError: There are too many.
    """
    if not tables:
        return None
    table: Any = pa.concat_tables(tables)
    table = grouped(table, table.column_names)
    if table.num_rows > MAX_PARTITIONS:
        raise InvalidInputError(
            f"the rows are in more than {MAX_PARTITIONS} partitions of {', '.join(table.column_names)}; nothing was "
            "written. Name columns with fewer values"
        )
    return table
