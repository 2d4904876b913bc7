"""Give rows new values: they move, with all their columns, to new fragments."""

from __future__ import annotations

from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_core.change.moved_rows import Departure, MovedRows
from lance_core.change.stage import remove_staged, stage_fragments
from lance_core.common.frozen import frozen, mutable
from lance_core.common.hints import did_you_mean
from lance_core.encoding.kernels import numbers_of
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.blobs import BlobView
from lance_core.format.table.operations import Update
from lance_core.scan.candidates import candidate_fragments
from lance_core.scan.fragment_run import runs_of
from lance_core.scan.fragments import scan_fragment
from lance_core.scan.indexed import with_index_answer
from lance_core.scan.open_files import files_of
from lance_core.scan.plan import plan_scan
from lance_core.sql.expression import assigned, make_expression
from lance_core.table.naming import naming
from lance_core.table.new_ids import RANDOM_IDS
from lance_core.table.read_ahead import Work, chained

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyarrow.compute import Expression as ArrowExpression

    from lance_core.change.stage import FileLimits
    from lance_core.format.schema import Schema
    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.manifest import Manifest
    from lance_core.format.table.operations import Operation
    from lance_core.scan.fragment_run import RowSource
    from lance_core.scan.open_files import OpenFiles
    from lance_core.scan.plan import ScanPlan
    from lance_core.sql.expression import Expression
    from lance_core.store.base import Store
    from lance_core.table.new_ids import NewIds
    from lance_core.table.snapshot import Snapshot


@frozen(kw_only=True)
class UpdatePlan:
    """An update that fits a schema.

    Attributes:
        table: Schema of the table.
        scan: All columns and the address of the rows to update.
        values: New values by place of the column; they are computed from the old ones.
    """

    table: Schema
    scan: ScanPlan
    values: Mapping[int, Expression]

    @property
    def fields(self) -> tuple[int, ...]:
        """Ids of the fields that get new values."""
        return tuple(field.id for number in self.values for field in self.table.fields[number].walk())


def plan_update(updates: Mapping[str, str], condition: str | ArrowExpression | None, table: Schema) -> UpdatePlan:
    """Check an update.

    Args:
        updates: SQL expressions by name of the column.
        condition: Which rows; None for all.
        table: Schema of the table.

    Raises:
        InvalidInputError: No updates, unknown columns, expressions that do not fit.
        UnsupportedError: Assignments to fields inside of columns, SQL that is not supported.
    """
    if not updates:
        raise InvalidInputError("'updates' is empty. Pass an SQL expression for at least one column")
    schema = table.to_arrow()
    values: dict[int, Expression] = {}
    for name, text in updates.items():
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] users err
            raise InvalidInputError(f"the new value of {name!r} must be SQL text, not {type(text).__name__}")
        number = _column_number(name, table)
        values[number] = assigned(make_expression(text, schema), schema.field(number))
    scan = plan_scan(
        table,
        columns=None,
        filter=condition,
        batch_size=None,
        with_row_id=False,
        with_row_address=True,
        blob_view=BlobView.VALUES,
    )
    return UpdatePlan(table=table, scan=scan, values=values)


def _column_number(name: str, table: Schema) -> int:
    if name in table.names:
        return table.names.index(name)
    if any(name.startswith(f"{top}.") for top in table.names):
        raise UnsupportedError(
            f"cannot update {name!r}, which is a field inside a column. Pass a value for the whole column"
        )
    hint = did_you_mean(name, table.names)
    raise InvalidInputError(f"there is no column {name!r}; the columns are: {', '.join(table.names)}.{hint}")


@mutable(kw_only=True)
class UpdateWork:
    """An update on the way to its commit.

    Attributes:
        updates: SQL expressions by name of the column.
        condition: Which rows; None for all.
        limits: When a new file is full.
        data_storage_version: File version of new files.
        num_rows: Rows that the last preparation found.
        ids: Names of new files.
        files: The dataset's open files, if there are some.
    """

    updates: Mapping[str, str]
    condition: str | ArrowExpression | None
    limits: FileLimits
    data_storage_version: str
    num_rows: int = 0
    sees_new_rows: bool = False
    ids: NewIds = RANDOM_IDS
    files: OpenFiles | None = None
    _store: Store | None = None
    _fragments: Sequence[Fragment] = ()
    _departure: Departure = field(default_factory=Departure)

    def prepare(self, snapshot: Snapshot) -> Operation:
        """Find the rows and write them with their new values."""
        self.forget()
        store = self._store = snapshot.store
        files = self.files = files_of(store, self.files)
        with naming(store):
            plan = plan_update(self.updates, self.condition, snapshot.manifest.schema)
            moved = MovedRows(with_row_ids=snapshot.manifest.uses_stable_row_ids)

            def depart() -> None:
                self._departure = moved.depart(store, snapshot.version, self.ids)

            self._fragments = stage_fragments(
                store,
                plan.table,
                _new_rows(files, snapshot.manifest, plan, moved),
                limits=self.limits,
                data_storage_version=self.data_storage_version,
                new_uuid=self.ids.data_file,
                meanwhile=depart,
            )
        self.num_rows = moved.num_rows
        return Update(
            removed_fragment_ids=self._departure.removed_fragment_ids,
            updated_fragments=self._departure.updated_fragments,
            new_fragments=moved.with_moved_ids(self._fragments),
            fields_for_preserving_frag_bitmap=plan.fields,
        )

    def forget(self) -> None:
        """Remove the files written so far."""
        if self._store is not None:
            remove_staged(self._store, self._fragments)
            self._departure.remove_files(self._store)
        self._fragments, self._departure = (), Departure()


def _new_rows(files: OpenFiles, manifest: Manifest, plan: UpdatePlan, moved: MovedRows) -> Iterator[pa.RecordBatch]:
    """Yield the rows with their new values; ``moved`` learns where they were."""
    schema = plan.table.to_arrow()
    scan = with_index_answer(plan.scan, manifest, files)
    sources = runs_of(files, candidate_fragments(manifest.fragments, scan), scan)
    works = (Work(partial(_matching_rows, source, scan), source.held_bytes) for source in sources)
    for source, batch in chained(files.store, works):
        addresses = numbers_of(batch.column(batch.num_columns - 1))
        moved.move_all(source, addresses)
        columns = list(batch.columns[:-1])
        for number, value in plan.values.items():
            columns[number] = value.evaluate(batch)
        yield pa.RecordBatch.from_arrays(columns, names=schema.names)


def _matching_rows(source: RowSource, scan: ScanPlan) -> Iterator[tuple[RowSource, pa.RecordBatch]]:
    """Yield the matching rows of a fragment, or of a run of small ones."""
    for batch in scan_fragment(source, scan):
        if batch.num_rows:
            yield source, batch
