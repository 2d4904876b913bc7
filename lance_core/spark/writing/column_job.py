"""The job that writes rows, which come in the order of their addresses, as new columns of their fragments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.change.column_files import ColumnWriter, Transform
from lance_core.change.stage import remove_staged
from lance_core.errors import InvalidInputError
from lance_core.format.table.fragment import Fragment
from lance_core.format.table.operations import DataReplacement
from lance_core.scan.plan import ROW_ADDRESS
from lance_core.spark.common.cast import cast_batches
from lance_core.spark.writing.staged_transactions import stage_transaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lance_core.format.schema import Schema
    from lance_core.format.table.fragment import DataFile
    from lance_core.spark.common.task_names import TaskNames
    from lance_core.spark.common.task_version import TaskVersion
    from lance_core.spark.writing.sink import JobTarget
    from lance_core.table.snapshot import Snapshot

_SHIFT = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnsPart:
    """The files that one task staged.

    Attributes:
        replacements: Fragment ids and their new files.
    """

    replacements: tuple[tuple[int, DataFile], ...]

    @property
    def files(self) -> Sequence[Fragment]:
        """Fragments that hold the new files."""
        return as_fragments(self.replacements)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnJob:
    """Writes new columns.

    Attributes:
        job_target: Where.
        version: Version that the addresses are of.
        fields: The new columns, with their ids.
        data_storage_version: Version of the data files.
    """

    job_target: JobTarget
    version: TaskVersion
    fields: Schema
    data_storage_version: str

    def stage(self, batches: Iterator[pa.RecordBatch], names: TaskNames) -> ColumnsPart:
        """Write a file for each fragment of which there are rows.

        Raises:
            InvalidInputError: Several rows for one row of the table, or values that do not fit.
        """
        snapshot = self.version.open()
        schema = pa.schema([pa.field(ROW_ADDRESS, pa.int64()), *self.fields.to_arrow()])
        rows = _Rows(cast_batches(batches, schema))
        writer = ColumnWriter(
            snapshot=snapshot,
            fields=self.fields,
            transform=Transform(columns=(ROW_ADDRESS,), schema=self.fields.to_arrow(), apply=rows.matching),
            data_storage_version=self.data_storage_version,
            ids=names.ids,
        )
        try:
            for fragment_id in rows.fragment_ids():
                writer.write(_next_fragment(snapshot, fragment_id, writer))
        except BaseException:
            writer.remove()
            raise
        return ColumnsPart(replacements=tuple(writer.staged.items()))

    def finish(self, parts: Sequence[ColumnsPart]) -> None:
        """Hand over which fragment got which file."""
        store = self.job_target.open()
        replacements = tuple(replacement for part in parts for replacement in part.replacements)
        try:
            stage_transaction(store, self.job_target.job, DataReplacement(replacements=replacements))
        except Exception:
            remove_staged(store, as_fragments(replacements))
            raise


def as_fragments(replacements: Iterable[tuple[int, DataFile]]) -> list[Fragment]:
    """Fragments that hold new files, and nothing else."""
    return [Fragment(id=number, files=(file,), physical_rows=0) for number, file in replacements]


def _next_fragment(snapshot: Snapshot, fragment_id: int, writer: ColumnWriter) -> Fragment:
    fragment = snapshot.manifest.fragments.find(fragment_id)
    if fragment is None or fragment_id in writer.staged:
        raise _ambiguous()
    return fragment


def _ambiguous() -> InvalidInputError:
    return InvalidInputError(
        "several rows of the DataFrame have the key of one row of the table, so its values are not clear; nothing was "
        "written"
    )


class _Rows:
    """Rows of a task in the order of their addresses, taken as they are asked for."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = (batch for batch in batches if batch.num_rows)
        self._pending: pa.RecordBatch | None = None

    def fragment_ids(self) -> Iterator[int]:
        """Yield the fragment of the next row, as long as there is one; the rows must be taken in between."""
        while (head := self._head()) is not None:
            yield head.column(0)[0].as_py() >> _SHIFT

    def matching(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows whose addresses are in a batch of the table.

        Raises:
            InvalidInputError: They are others.
        """
        taken: list[pa.RecordBatch] = []
        missing = batch.num_rows
        while missing and (head := self._head()) is not None:
            taken.append(head.slice(0, missing))
            self._pending = head.slice(missing) if head.num_rows > missing else None
            missing -= taken[-1].num_rows
        if missing:
            raise _ambiguous()
        joined = pa.concat_batches(taken)
        if not np.array_equal(joined.column(0), np.asarray(batch.column(ROW_ADDRESS)).astype(np.int64)):
            raise _ambiguous()
        return joined.drop_columns([ROW_ADDRESS])

    def _head(self) -> pa.RecordBatch | None:
        if self._pending is None:
            self._pending = next(self._batches, None)
        return self._pending
