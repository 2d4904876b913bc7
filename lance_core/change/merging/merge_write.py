"""Write what a merge changes: whole rows into new fragments, or columns of rows into new files beside the old ones."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.change.stage import FileLimits, stage_fragments
from lance_core.common.frozen import frozen, replace
from lance_core.encoding.arrow_values import settled
from lance_core.encoding.kernels import numbers_array
from lance_core.errors import CorruptDataError
from lance_core.format.schema import Schema
from lance_core.format.table.fragment import TOMBSTONE_FIELD_ID, RowLineageColumn
from lance_core.format.table.row_ids import encode_row_versions
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.pick import pick_rows
from lance_core.scan.plan import default_batch_size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import numpy.typing as npt

    from lance_core.change.merging.merge_match import Match
    from lance_core.change.merging.merge_plan import MergePlan
    from lance_core.format.schema import Field
    from lance_core.format.table.fragment import DataFile, Fragment
    from lance_core.scan.open_files import OpenFiles

    Positions = npt.NDArray[np.int64]

_ONE_FILE = FileLimits(max_rows_per_file=1 << 62, max_bytes_per_file=1 << 62)


@frozen(kw_only=True)
class Rewriter:
    """Makes new rows of old ones and those of the source.

    Attributes:
        plan: The merge.
        source: The whole source, in the types of the table.
        given: Arrow schema of the source as it was given: structs may lack fields.
        files: The dataset's open files.
        data_storage_version: File version of new files.
    """

    plan: MergePlan
    source: pa.Table
    given: pa.Schema
    files: OpenFiles
    data_storage_version: str

    # ------------------------------------------------------------------------------------------------- whole rows

    def updated_rows(self, reader: FragmentReader, match: Match) -> Iterator[tuple[Positions, list[pa.RecordBatch]]]:
        """Yield the updated rows of a fragment, with the offsets that they had."""
        offsets, positions = match.pairs.target, match.pairs.source
        step = default_batch_size(self.plan.table.to_arrow())
        start = 0
        for count, unchanged in self._kept_rows(reader, offsets, step):
            end = start + count
            yield offsets[start:end], list(self._joined(self._taken(positions[start:end]), unchanged))
            start = end

    def _kept_rows(
        self, reader: FragmentReader, offsets: Positions, step: int
    ) -> Iterator[tuple[int, Mapping[str, pa.Array]]]:
        """Yield the values that updated rows retain, by column name, with the number of rows."""
        if self.plan.rest.fields:
            for batch in pick_rows(reader, self.plan.rest, offsets, batch_size=step):
                yield batch.num_rows, dict(zip(batch.schema.names, batch.columns, strict=True))
            return
        for start in range(0, len(offsets), step):
            yield min(step, len(offsets) - start), {}

    def inserted_rows(self, positions: Positions) -> Iterator[pa.RecordBatch]:
        """Yield rows that only the source has; what it does not bring is null."""
        step = default_batch_size(self.plan.table.to_arrow())
        for start in range(0, len(positions), step):
            here = positions[start : start + step]
            taken = self._taken(here)
            columns = [
                taken[field.name] if field.name in taken else pa.nulls(len(here), field.to_arrow().type)
                for field in self.plan.table.fields
            ]
            yield from pa.Table.from_arrays(columns, schema=self.plan.table.to_arrow()).to_batches()

    def _taken(self, positions: Positions) -> dict[str, pa.ChunkedArray]:
        table = self.source.take(numbers_array(positions))
        return dict(zip(table.column_names, table.columns, strict=True))

    def _joined(
        self, taken: Mapping[str, pa.ChunkedArray], unchanged: Mapping[str, pa.Array]
    ) -> Iterator[pa.RecordBatch]:
        columns: list[pa.ChunkedArray | pa.Array] = []
        for field in self.plan.table.fields:
            if field.name in taken and field.name in unchanged:
                given = self.given.field(field.name).type
                new = pa.concat_arrays(taken[field.name].chunks)
                columns.append(_overlaid(new, unchanged[field.name], given, field))
            else:
                columns.append(taken[field.name] if field.name in taken else unchanged[field.name])
        yield from pa.Table.from_arrays(columns, schema=self.plan.table.to_arrow()).to_batches()

    # ---------------------------------------------------------------------------------------------- single columns

    def with_new_columns(self, match: Match) -> Fragment:
        """Return the fragment with the source's columns in a new file; rows without partner keep their values."""
        fragment = match.fragment
        fields = self.rewritten_fields()
        reader = FragmentReader(self.files, fragment)
        staged = stage_fragments(
            self.files.store,
            fields,
            self._patched(reader, fields, match),
            limits=_ONE_FILE,
            data_storage_version=self.data_storage_version,
            new_uuid=lambda: uuid.uuid4().bytes,
        )
        if len(staged) != 1 or staged[0].physical_rows != fragment.physical_rows:
            raise CorruptDataError(f"fragment {fragment.id} does not have the rows that the manifest lists")
        gone = {field.id for field in fields.walk()}
        old = tuple(_without_fields(file, gone) for file in fragment.files)
        changed = replace(fragment, files=(*old, *staged[0].files))
        if isinstance(fragment.last_updated_at_version_sequence, RowLineageColumn):
            # the commit says which rows changed, which it can only do in the manifest
            versions = encode_row_versions(reader.updated_versions)
            changed = replace(changed, last_updated_at_version_sequence=versions)
        return changed

    def rewritten_fields(self) -> Schema:
        """Return the fields that get new values."""
        keys = self.plan.on.names
        return Schema(
            tuple(field for field in self.plan.fields.fields if field.name not in keys), self.plan.fields.metadata
        )

    def _patched(self, reader: FragmentReader, fields: Schema, match: Match) -> Iterator[pa.RecordBatch]:
        offsets, positions = match.pairs.target, match.pairs.source
        arrow, step = fields.to_arrow(), default_batch_size(fields.to_arrow())
        for rows in reader.scan(fields, start=0, end=reader.fragment.physical_rows, batch_size=step):
            first, last = np.searchsorted(offsets, (rows.start, rows.start + rows.num_rows))
            new = self.source.select(fields.names).take(numbers_array(positions[first:last]))
            order = np.arange(rows.num_rows)
            order[offsets[first:last] - rows.start] = rows.num_rows + np.arange(last - first)
            columns = [
                pa.concat_arrays([settled(old), *chunked.chunks]).take(numbers_array(order))
                for old, chunked in zip(rows.columns, new.columns, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=arrow)


def read_source(batches: Iterable[pa.RecordBatch], fields: Schema) -> pa.Table:
    """Return the whole source in memory, in few pieces."""
    return pa.Table.from_batches(batches, schema=fields.to_arrow()).combine_chunks()


def _overlaid(new: pa.Array, old: pa.Array, given: pa.DataType, field: Field) -> pa.Array:
    """Return values of a struct of which only some fields are new."""
    if isinstance(given, pa.BaseExtensionType):
        given = given.storage_type
    if not pa.types.is_struct(given):
        return new
    types = {field.name: field.type for field in given}
    children = dict(zip((child.name for child in old.type), old.flatten(), strict=True))  # null where the struct is
    columns = [
        _overlaid(new.field(child.name), children[child.name], types[child.name], child)
        if child.name in types
        else children[child.name]
        for child in field.children
    ]
    mask = new.is_null() if new.null_count else None
    return pa.StructArray.from_arrays(columns, fields=[child.to_arrow() for child in field.children], mask=mask)


def _without_fields(file: DataFile, gone: set[int]) -> DataFile:
    """Return the file with tombstones in place of some fields."""
    return replace(file, fields=tuple(TOMBSTONE_FIELD_ID if field in gone else field for field in file.fields))
