"""Columns of fragments as indices are built of them: values with the numbers of their rows."""

from __future__ import annotations

from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.encoding.arrow_values import mask_array
from lance_core.index.answer import ADDRESS_SHIFT
from lance_core.scan.fragment_run import FragmentRun, runs_of_columns
from lance_core.table.read_ahead import Work, chained

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lance_core.format.table.fragment import Fragment
    from lance_core.index.column import IndexedColumn
    from lance_core.scan.fragment_reader import FragmentReader
    from lance_core.scan.fragment_run import RowSource
    from lance_core.scan.open_files import OpenFiles

Int64s: TypeAlias = npt.NDArray[np.int64]
_BATCH_ROWS, _BATCH_BYTES, _LEAST_ROWS = 1 << 16, 1 << 25, 1024
"""Rows of a batch, fewer of wide vectors: several batches of several fragments are held when they are read ahead."""


class FragmentColumns:
    """The columns of fragments, in order; those of a far store are read ahead.

    May be gone through several times. Each column is to be read before the next one is asked for, and once: what was
    not read of it is skipped.

    Args:
        files: The dataset's open files.
        fragments: The fragments.
        column: The column.
        needs_deletions: Read deletion files ahead, too: `ColumnOfFragment.batches` will be called.
    """

    def __init__(
        self,
        files: OpenFiles,
        fragments: Iterable[Fragment],
        column: IndexedColumn,
        *,
        needs_deletions: bool = True,
    ) -> None:
        self._files = files
        self._fragments = fragments
        self._column = column
        self._needs_deletions = needs_deletions

    def __iter__(self) -> Iterator[ColumnOfFragment]:
        """Read all columns."""
        works = _works(self._files, self._fragments, self._column, needs_deletions=self._needs_deletions)
        for reader, values in groupby(chained(self._files.store, works), key=itemgetter(0)):
            yield ColumnOfFragment(reader, (array for _, array in values if array is not None))


def _works(
    files: OpenFiles, fragments: Iterable[Fragment], column: IndexedColumn, *, needs_deletions: bool
) -> Iterator[Work[Iterator[tuple[FragmentReader, pa.Array | None]]]]:
    for source in runs_of_columns(files, fragments, column.projection, _batch_rows(column)):
        num_bytes, num_columns = source.stored_size
        share = num_bytes * len(column.projection.leaves()) // max(1, num_columns)
        work = partial(_read_ahead, source, column, needs_deletions=needs_deletions)
        yield Work(work, share if files.is_far else 0)


def _read_ahead(
    source: RowSource, column: IndexedColumn, *, needs_deletions: bool
) -> Iterator[tuple[FragmentReader, pa.Array | None]]:
    """Yield the fragments with each array; with None first, so that one without rows is seen."""
    for reader in source.readers if isinstance(source, FragmentRun) else [source]:
        if needs_deletions and reader.fragment.deletion_file is not None:
            _ = reader.deleted
    if isinstance(source, FragmentRun):
        for reader, columns in source.values_by_fragment(column.projection):
            yield reader, column.of(columns[0])
        return
    yield source, None
    for rows in source.scan(column.projection, start=0, end=source.physical_rows, batch_size=_batch_rows(column)):
        yield source, column.of(rows.columns[0])


def _batch_rows(column: IndexedColumn) -> int:
    if not pa.types.is_fixed_size_list(column.type) or not pa.types.is_primitive(column.type.value_type):
        return _BATCH_ROWS
    width = column.type.list_size * column.type.value_type.bit_width // 8
    return min(_BATCH_ROWS, max(_LEAST_ROWS, _BATCH_BYTES // max(1, width)))


class ColumnOfFragment:
    """The values of a column in one fragment.

    Args:
        reader: The fragment.
        arrays: Its values, as they are read.
    """

    def __init__(self, reader: FragmentReader, arrays: Iterator[pa.Array]) -> None:
        self._reader = reader
        self._arrays = arrays

    @property
    def fragment_id(self) -> int:
        """Id of the fragment."""
        return self._reader.fragment.id

    def arrays(self) -> Iterator[pa.Array]:
        """Read the values of all rows in order, deleted rows included."""
        return self._arrays

    def batches(self, *, by_row_id: bool = False) -> Iterator[tuple[Int64s, pa.Array]]:
        """Read live rows in order: row addresses, or stable row ids, and values."""
        first = self.fragment_id << ADDRESS_SHIFT
        ids = self._reader.stable_row_ids.astype(np.int64) if by_row_id else None
        start = 0
        for values in self._arrays:
            behind = start + len(values)
            rows = np.arange(first + start, first + behind) if ids is None else ids[start:behind]
            live = self._reader.live_mask(start, behind)
            start = behind
            yield (rows, values) if live is None else (rows[live], values.filter(mask_array(live)))
