"""Rows of a partly damaged data file that can still be read, and the file that takes its place.

The new file has as many rows as the old one, so that row addresses, row ids and the other files of the fragment stay
as they are. In the places of damaged rows it has nulls, or, where columns must not be null, copies of another row,
which the caller deletes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lance_core.change.stage import FileLimits, stage_fragments
from lance_core.common.frozen import frozen, replace
from lance_core.errors import CorruptDataError
from lance_core.file.integrity import Checking
from lance_core.file.read.reader import DataFileReader
from lance_core.format.blobs import has_blobs
from lance_core.format.file.file_version import LEGACY_FILE_VERSION
from lance_core.format.table.fragment import TOMBSTONE_FIELD_ID
from lance_core.format.table.paths import data_file_path
from lance_core.scan.columns import split_projection
from lance_core.scan.plan import default_batch_size
from lance_core.table.new_ids import RANDOM_IDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lance_core.format.schema import Schema
    from lance_core.format.table.fragment import DataFile
    from lance_core.store.base import Store

_WITHOUT_LIMIT = FileLimits(max_rows_per_file=2**62, max_bytes_per_file=2**62)
_MAX_FILLED = 4096
"""Rows that are filled at a time."""


@frozen(kw_only=True)
class Salvage:
    """The part of a damaged data file that can be read.

    Attributes:
        file: The file.
        fields: Its columns.
        readable: Ranges of rows, ascending, of which all values can be read; at least one.
        num_rows: Rows of the file.
        becomes_null: Damaged rows get nulls, instead of values that nobody may read.
    """

    file: DataFile
    fields: Schema
    readable: tuple[range, ...]
    num_rows: int
    becomes_null: bool

    def damaged(self) -> list[range]:
        """Return the ranges of rows that cannot be read, ascending."""
        starts = [0, *(rows.stop for rows in self.readable)]
        stops = [*(rows.start for rows in self.readable), self.num_rows]
        return [range(start, stop) for start, stop in zip(starts, stops, strict=True) if start < stop]


def find_salvage(store: Store, schema: Schema, file: DataFile, *, num_rows: int, may_be_null: bool) -> Salvage | None:
    """Read all of a damaged data file, and tell which rows are whole.

    Args:
        store: The table, with its base paths.
        schema: Schema of the table.
        file: The damaged file.
        num_rows: Rows that it should have.
        may_be_null: Nulls may take the places of damaged values.

    Returns:
        None if no row can be read, and for files whose columns are more than whole columns of the table: parts of
        structs, blobs, row ids; and for files of version 0.1.

    Raises:
        StoreError: The store does not answer.
    """
    fields = _whole_columns(schema, file)
    if fields is None:
        return None
    try:
        reader = _reader(store, file)
        if reader.version == LEGACY_FILE_VERSION or reader.num_rows != num_rows:
            return None
    except CorruptDataError:
        return None

    def can_read(rows: range) -> bool:
        try:
            for batch in _batches(reader, fields, file, rows):
                batch.validate(full=True)
        except (CorruptDataError, pa.ArrowInvalid):
            return False
        return True

    readable = tuple(_readable(can_read, range(num_rows)))
    if not readable:
        return None
    return Salvage(file=file, fields=fields, readable=readable, num_rows=num_rows, becomes_null=may_be_null)


def lost_rows(salvage: Salvage) -> BitMap:
    """Return the rows that must be deleted: none if their values become null."""
    damaged = [] if salvage.becomes_null else salvage.damaged()
    return BitMap.union(BitMap(), *map(BitMap, damaged))


def write_salvaged(store: Store, salvage: Salvage) -> DataFile:
    """Write the file that takes the place of a damaged one.

    Args:
        store: The table, with its base paths.
        salvage: What can be read.

    Returns:
        The new file; nothing names it yet.
    """
    reader = _reader(store, salvage.file)
    (made,) = stage_fragments(
        store,
        salvage.fields,
        _filled(reader, salvage),
        limits=_WITHOUT_LIMIT,
        data_storage_version=reader.version,
        new_uuid=RANDOM_IDS.data_file,
    )
    return made.files[0]


def _whole_columns(schema: Schema, file: DataFile) -> Schema | None:
    """Return the columns of a file; None if it has others than whole columns without blobs."""
    ids = {field_id for field_id in file.fields if field_id != TOMBSTONE_FIELD_ID}
    fields = [top for top in schema.fields if {field.id for field in top.walk()} & ids]
    stored = replace(schema, fields=tuple(fields))
    walked = {field.id for top in fields for field in top.walk()}
    # Files since 2.1 list leaves only.
    leaves = {field.id for top in fields for field in top.walk() if not field.children}
    return stored if fields and leaves <= ids <= walked and not has_blobs(stored) else None


def _reader(store: Store, file: DataFile) -> DataFileReader:
    path = data_file_path(file)
    return DataFileReader(store.reader(path), path=f"{store.uri}/{path}", when=Checking.ALL)


def _batches(reader: DataFileReader, fields: Schema, file: DataFile, rows: range) -> Iterator[pa.RecordBatch]:
    (part,) = split_projection(fields, [file])
    batch_size = default_batch_size(fields.to_arrow())
    return reader.scan(part.schema, part.columns, start=rows.start, end=rows.stop, batch_size=batch_size)


def _filled(reader: DataFileReader, salvage: Salvage) -> Iterator[pa.RecordBatch]:
    """Yield all rows in order, others in the places of those that are damaged."""
    fields, file = salvage.fields, salvage.file
    first = salvage.readable[0].start
    (whole,) = _batches(reader, fields, file, range(first, first + 1))
    for rows in sorted([*salvage.readable, *salvage.damaged()], key=lambda rows: rows.start):
        if rows in salvage.readable:
            yield from _batches(reader, fields, file, rows)
            continue
        for start in range(rows.start, rows.stop, _MAX_FILLED):
            count = min(_MAX_FILLED, rows.stop - start)
            if salvage.becomes_null:
                nulls = [pa.nulls(count, column.type) for column in whole.schema]
                yield pa.RecordBatch.from_arrays(nulls, schema=whole.schema)
            else:
                yield whole.take(pa.array(np.zeros(count, np.int64)))


def _readable(can_read: Callable[[range], bool], rows: range) -> Iterator[range]:
    """Yield the longest ranges that can be read, with few tries.

    Of damaged rows the first is searched for by halves, then the next that can be read by steps that double. Whole rows
    in between are given up, so that damage in a thousand places takes no million of tries.
    """
    start = rows.start
    while start < rows.stop:
        stop = _first_damaged(can_read, range(start, rows.stop))
        if stop > start:
            yield range(start, stop)
        start = _next_whole(can_read, range(stop, rows.stop))


def _first_damaged(can_read: Callable[[range], bool], rows: range) -> int:
    if can_read(rows):
        return rows.stop
    low, high = rows.start, rows.stop  # rows before `low` can be read, not all before `high`
    while high - low > 1:
        middle = (low + high) // 2
        if can_read(range(low, middle)):
            low = middle
        else:
            high = middle
    return low


def _next_whole(can_read: Callable[[range], bool], rows: range) -> int:
    """Return a row behind damaged ones; the first row is damaged, if there is one."""
    step, low = 1, rows.start
    while low + step < rows.stop and not can_read(range(low + step, low + step + 1)):
        low, step = low + step, step * 2
    high = min(low + step, rows.stop)  # `low` is damaged; `high` can be read, or is the end
    while high - low > 1:
        middle = (low + high) // 2
        if can_read(range(middle, middle + 1)):
            high = middle
        else:
            low = middle
    return high
