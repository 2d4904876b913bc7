"""Write new columns of existing fragments: one new data file beside those a fragment has.

The rows that are left are read in order, what is made of them is written; places of deleted rows are filled, because
all files of a fragment have the same rows.
"""

from __future__ import annotations

import logging
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.change.ingest import fit_batch
from lance_core.change.stage import remove_staged, staged_files
from lance_core.common.frozen import frozen, mutable, replace
from lance_core.encoding.kernels import numbers_array, numbers_of
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.file.write.field_writer import RowGroups
from lance_core.format.file.file_version import LEGACY_FILE_VERSION, resolve_version
from lance_core.format.table.fragment import DataFile
from lance_core.format.table.paths import DATA_FOLDER
from lance_core.index.answer import OFFSET_MASK
from lance_core.scan.columns import is_legacy
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.fragment_run import FragmentRun, runs_of
from lance_core.scan.fragments import scan_fragment
from lance_core.scan.open_files import OpenFiles
from lance_core.scan.plan import ROW_ADDRESS, plan_scan
from lance_core.table.naming import naming
from lance_core.table.new_ids import RANDOM_IDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lance_core.format.schema import Field, Schema
    from lance_core.format.table.fragment import Fragment
    from lance_core.scan.plan import ScanPlan
    from lance_core.table.new_ids import NewIds
    from lance_core.table.snapshot import Snapshot

_LOGGER = logging.getLogger("lance_core.write")


@frozen(kw_only=True)
class Transform:
    """A computation of the values of new columns.

    Attributes:
        columns: Columns to read: names, dotted paths, ``_rowid``, ``_rowaddr``; may be none.
        schema: Arrow schema of what is made.
        apply: Batch of rows that are left to as many rows of the new columns. Batches come in the order of the table.
        batch_size: Rows read at a time; None for as many as make a good batch.
    """

    columns: tuple[str, ...]
    schema: pa.Schema
    apply: Callable[[pa.RecordBatch], pa.RecordBatch]
    batch_size: int | None = None


@mutable(kw_only=True)
class ColumnWriter:
    """Writes new columns of the fragments of one version.

    Attributes:
        snapshot: The version.
        fields: The new columns, with their ids.
        transform: How their values are made.
        data_storage_version: File version of the new files.
        staged: Files written so far, by fragment.
        ids: Names of new files.
    """

    snapshot: Snapshot
    fields: Schema
    transform: Transform
    data_storage_version: str
    files: OpenFiles | None = None
    staged: dict[int, DataFile] = field(default_factory=dict[int, "DataFile"])
    ids: NewIds = RANDOM_IDS

    def write_all(self, fragments: Sequence[Fragment]) -> None:
        """Write the new columns of several fragments, one after another; what is in ``staged`` is left out.

        Raises:
            InvalidInputError: The transform made something else than was announced; no file of this call is left.
        """
        left = [fragment for fragment in fragments if fragment.id not in self.staged]
        number, plan, names = len(fragments) - len(left), self._plan(), ", ".join(self.fields.names)
        if not left:
            return
        store = self.snapshot.store
        with (
            naming(store),
            staged_files(
                store,
                replace(self.fields, metadata=self.snapshot.manifest.schema.metadata),  # says how to compress
                data_storage_version=self.data_storage_version,
                new_uuid=self.ids.data_file,
            ) as staging,
        ):
            for fragment, batches in self._rows(left, plan):
                staging.groups = self._row_groups(fragment)
                for batch in self._made(fragment, batches, plan):
                    staging.write(fit_batch(batch, self.fields))
                staging.end_file()
                number += 1
                _LOGGER.info("columns %s: fragment %d of %d is written", names, number, len(fragments))
        for fragment, made in zip(left, staging.fragments, strict=True):
            self.staged[fragment.id] = made.files[0]

    def write(self, fragment: Fragment) -> DataFile:
        """Write the new columns of one fragment; errors as in `write_all`."""
        self.write_all([fragment])
        return self.staged[fragment.id]

    def remove(self) -> None:
        """Remove what was written."""
        store = self.snapshot.store
        remove_staged(store, [_holding(file) for file in self.staged.values()])
        self.staged = {}

    def _row_groups(self, fragment: Fragment) -> RowGroups:
        """Those of the files that are there: pylance 14.0.2 pairs row groups of a fragment's files by their numbers."""
        if not fragment.files or not is_legacy(fragment.files[0]):
            return RowGroups()
        file = self._open_files().open(fragment.files[0], num_rows=fragment.physical_rows)
        offsets, _ = file.batch_statistics(())
        return RowGroups(ends=tuple(offsets[1:].tolist()))

    def _open_files(self) -> OpenFiles:
        if self.files is None:
            self.files = OpenFiles(self.snapshot.store)
        return self.files

    def _plan(self) -> ScanPlan:
        return plan_scan(
            self.snapshot.manifest.schema,
            columns=self.transform.columns,
            filter=None,
            batch_size=self.transform.batch_size,
            with_row_id=False,
            with_row_address=True,
        )

    def _rows(
        self, fragments: Sequence[Fragment], plan: ScanPlan
    ) -> Iterator[tuple[Fragment, Iterable[pa.RecordBatch]]]:
        """Read the rows that are left of each fragment; small neighbours together, unless batches have a size."""
        files = self._open_files()
        if self.transform.batch_size is not None:
            yield from ((fragment, scan_fragment(FragmentReader(files, fragment), plan)) for fragment in fragments)
            return
        for source in runs_of(files, fragments, plan):
            if not isinstance(source, FragmentRun):
                yield source.fragment, scan_fragment(source, plan)
                continue
            whole = replace(plan, batch_size=source.physical_rows)
            parts = {
                reader.fragment.id: batch.slice(rows.start, rows.stop - rows.start)
                for batch in scan_fragment(source, whole)
                for reader, rows in source.by_address(numbers_of(batch.column(ROW_ADDRESS)))
            }
            for reader in source.readers:
                part = parts.get(reader.fragment.id)
                yield reader.fragment, [] if part is None else [part]

    def _made(self, fragment: Fragment, batches: Iterable[pa.RecordBatch], plan: ScanPlan) -> Iterator[pa.RecordBatch]:
        filler = _Filler(fields=self.fields, may_be_null=self.data_storage_version != LEGACY_FILE_VERSION)
        for batch in batches:
            if not batch.num_rows:
                continue
            offsets = numbers_of(batch.column(ROW_ADDRESS)) & np.uint64(OFFSET_MASK)
            made = self.transform.apply(self._given(batch, plan))
            yield filler.fill(self._checked(made, batch.num_rows), offsets.astype(np.int64))
        rest = filler.fill_to(fragment.physical_rows)
        if rest is not None:
            yield rest

    def _given(self, batch: pa.RecordBatch, plan: ScanPlan) -> pa.RecordBatch:
        """Return the columns that the transform reads, or row addresses if it reads none: they tell the row count."""
        is_asked = ROW_ADDRESS in self.transform.columns or len(plan.columns) == 1
        return batch if is_asked else batch.drop_columns([ROW_ADDRESS])

    def _checked(self, made: pa.RecordBatch, num_rows: int) -> pa.RecordBatch:
        names = self.transform.schema.names
        if made.num_rows != num_rows:
            raise InvalidInputError(
                f"the function returned {made.num_rows} rows for a batch of {num_rows}; it must return one row for each"
            )
        if sorted(made.schema.names) != sorted(names):
            raise InvalidInputError(f"the function returned columns {made.schema.names}, expected {names}")
        return made.select(names)


def _holding(file: DataFile) -> Fragment:
    from lance_core.format.table.fragment import Fragment  # noqa: PLC0415 needed here only

    return Fragment(id=0, files=(file,), physical_rows=0)


@mutable(kw_only=True)
class _Filler:
    """Puts rows in their places and fills those between them: with null, or else with a neighbour's value.

    Files of version 0.1 have no place for nulls, so that they always get a neighbour's value.
    """

    fields: Schema
    may_be_null: bool
    position: int = 0
    last: pa.RecordBatch | None = None

    def fill(self, batch: pa.RecordBatch, offsets: npt.NDArray[np.int64]) -> pa.RecordBatch:
        end = int(offsets[-1]) + 1
        start, self.position = self.position, end
        self.last = batch.slice(batch.num_rows - 1)
        if end - start == len(offsets):
            return batch
        positions = np.arange(start, end)
        nearest = np.searchsorted(offsets, positions)
        return self._take(batch, nearest, is_filled=offsets[nearest] != positions)

    def fill_to(self, end: int) -> pa.RecordBatch | None:
        """Return rows for all places that are left."""
        count, self.position = end - self.position, end
        if not count:
            return None
        if self.last is None:
            return self._nulls(count)
        every = np.ones(count, np.bool_)
        return self._take(self.last, np.zeros(count, np.int64), is_filled=every)

    def _take(
        self, batch: pa.RecordBatch, index: npt.NDArray[np.int64], *, is_filled: npt.NDArray[np.bool_]
    ) -> pa.RecordBatch:
        with_nulls, plain = numbers_array(index, is_filled), numbers_array(index)
        # structs always get a neighbour's value: files of version 2.0 cannot hold null structs
        is_nullable = {
            field.name: self._is_nullable(field) and field.logical_type != "struct" for field in self.fields.fields
        }
        columns = [batch.column(name).take(with_nulls if is_nullable[name] else plain) for name in batch.schema.names]
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)

    def _is_nullable(self, field: Field) -> bool:
        return field.nullable and self.may_be_null

    def _nulls(self, count: int) -> pa.RecordBatch:
        """For a fragment of which no row is left."""
        for column in self.fields.fields:
            if not self._is_nullable(column):
                raise UnsupportedError(
                    f"cannot write column {column.name!r}, which is not nullable, for a fragment without "
                    "live rows. Compact the table first"
                )
        schema = self.fields.to_arrow()
        return pa.RecordBatch.from_arrays([pa.nulls(count, column.type) for column in schema], schema=schema)


def check_drops_columns(data_storage_version: str) -> None:
    """Refuse new values for columns in files beside those that hold the old ones, where that cannot be.

    Raises:
        UnsupportedError: A table of version 0.1, whose files find their pages from their first column on.
    """
    if data_storage_version == LEGACY_FILE_VERSION:
        raise UnsupportedError(
            "file version 0.1 cannot replace some columns of a file; rewrite whole rows, for example with an update or "
            "a merge with write mode rewrite_rows"
        )


def with_file(fragment: Fragment, file: DataFile, live: frozenset[int]) -> Fragment:
    """Return the fragment with one more file, and without files that hold no live field.

    Args:
        fragment: As it was.
        file: The new file.
        live: Ids of all fields of the new schema.
    """
    live_files = (file for file in fragment.files if any(number in live or number < -2 for number in file.fields))
    return replace(fragment, files=(*live_files, file))


def data_file_of(snapshot: Snapshot, name: str) -> tuple[DataFile, int]:
    """Return a data file as a version would list it: its columns are found in the schema by their names.

    Args:
        snapshot: The version.
        name: Name of the file below ``data/``.

    Returns:
        The entry, and the rows in the file.

    Raises:
        NotFoundError: There is no such file.
        InvalidInputError: It has a column that the table does not have, or has with another type.
    """
    path = f"{DATA_FOLDER}/{name}"
    source = snapshot.store.reader(path)
    from lance_core.file.read.reader import DataFileReader  # noqa: PLC0415 whoever opens no file needs no decoder

    reader = DataFileReader(source, path=f"{snapshot.store.uri}/{path}")
    ids = dict(_paired(reader.schema.fields, snapshot.manifest.schema.fields, path))
    columns = sorted((column, ids[field_index]) for field_index, column in reader.column_numbers.items())
    version = resolve_version(reader.version)
    file = DataFile(
        path=name,
        fields=tuple(number for _, number in columns),
        column_indices=tuple(column for column, _ in columns),
        file_major_version=version.major,
        file_minor_version=version.minor,
        file_size_bytes=source.size,
    )
    return file, reader.num_rows


def _paired(fields: Sequence[Field], table_fields: Sequence[Field], path: str) -> Iterator[tuple[int, int]]:
    """For each field of a file, its id there and in the table."""
    by_name = {field.name: field for field in table_fields}
    for file_field in fields:
        other = by_name.get(file_field.name)
        if other is None or other.logical_type != file_field.logical_type:
            kind = "no such column" if other is None else other.logical_type
            raise InvalidInputError(
                f"column {file_field.name!r} of the file is {file_field.logical_type}; the table has {kind}", path=path
            )
        yield file_field.id, other.id
        yield from _paired(file_field.children, other.children, path)
