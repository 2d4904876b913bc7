"""Look up the keys of a merge in indices, so that only rows that may have one of them are read.

A B-tree over a column of the key tells which row has which value, so that this column is not read; with one over each
column no key is read at all. Other indices narrow down the rows; their keys are read and compared, so that an index
over one column of a key is enough. Fragments that no index covers are read whole.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.encoding.kernels import numbers_array
from lance_core.index.answer import ADDRESS_SHIFT, and_
from lance_core.scan.candidates import SPARSE_SHARE, kept_ranges
from lance_core.scan.indexed import has_index, rows_with_values
from lance_core.scan.pick import pick_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lance_core.format.schema import Schema
    from lance_core.format.table.manifest import Manifest
    from lance_core.index.answer import RowAnswer
    from lance_core.scan.fragment_reader import FragmentReader
    from lance_core.scan.indexed import KeyedRows
    from lance_core.scan.open_files import OpenFiles

    Offsets = npt.NDArray[np.int64]

Ranges: TypeAlias = "list[tuple[int, int]]"

MOST_SHARE = 1 / 64
"""Share of the table's rows up to which looking up as many keys is cheaper than reading the column."""


def has_key_index(files: OpenFiles, manifest: Manifest, names: Sequence[str]) -> bool:
    """Return whether an index may know rows by one of some columns; opens none."""
    return manifest.index_section is not None and has_index(manifest, files, names)


@frozen(kw_only=True)
class KeyedColumn:
    """A column of the key whose values indices know for some rows.

    Attributes:
        name: Its name.
        values: Values of the source.
        rows: The rows that have one of them, and which.
    """

    name: str
    values: pa.Array
    rows: KeyedRows

    def of(self, reader: FragmentReader) -> tuple[Offsets, Offsets]:
        """Return the live rows of a fragment, ascending, and the position of the value of each."""
        first = reader.fragment.id << ADDRESS_SHIFT
        low, high = np.searchsorted(self.rows.rows, (first, first + reader.physical_rows)).tolist()
        offsets, numbers = self.rows.rows[low:high] - first, self.rows.numbers[low:high]
        if len(reader.deleted) and len(offsets):
            is_live = ~np.isin(offsets, reader.deleted)
            offsets, numbers = offsets[is_live], numbers[is_live]
        return offsets, numbers


@frozen(kw_only=True)
class Candidates:
    """Rows that may have a key of the source.

    Attributes:
        answer: What indices know of all rows.
        columns: Columns of the key of which they know the values.
    """

    answer: RowAnswer
    columns: Sequence[KeyedColumn] = ()

    def of(self, reader: FragmentReader) -> tuple[Offsets, dict[str, pa.Array]] | None:
        """Return the live rows of a fragment that may have a key of the source.

        Returns:
            Their offsets, and the values of the columns that indices know; None if they know no column.
        """
        columns = [column for column in self.columns if reader.fragment.id in column.rows.fragment_ids]
        if not columns:
            return None
        pairs = [column.of(reader) for column in columns]
        offsets = reduce(partial(np.intersect1d, assume_unique=True), [rows for rows, _ in pairs])
        offsets = offsets[self.answer.may_match_at(offsets + (reader.fragment.id << ADDRESS_SHIFT))]
        return offsets, {
            column.name: column.values.take(numbers_array(numbers[np.searchsorted(rows, offsets)]))
            for column, (rows, numbers) in zip(columns, pairs, strict=True)
        }


def find_candidates(files: OpenFiles, manifest: Manifest, on: Schema, source: pa.Table) -> Candidates | None:
    """Return what indices know of the rows that have a key of the source; None if they know nothing.

    Args:
        files: The dataset's open files.
        manifest: The version.
        on: Fields of the key.
        source: Rows with their keys, in the types of the table.
    """
    if manifest.index_section is None or source.num_rows > manifest.num_rows * MOST_SHARE:
        return None
    columns = [(name, _values(source.column(name))) for name in on.names]
    looked_up = [
        (name, values, rows_with_values(manifest, files, name, values))
        for name, values in columns
        if values is not None
    ]
    if not looked_up:
        return None
    answer = reduce(and_, [keyed.answer for _, _, keyed in looked_up])
    if answer.is_unknown:
        return None
    columns = [
        KeyedColumn(name=name, values=values, rows=keyed) for name, values, keyed in looked_up if keyed.fragment_ids
    ]
    return Candidates(answer=answer, columns=columns)


def candidates_of(reader: FragmentReader, answer: RowAnswer | None) -> tuple[Ranges, Offsets | None]:
    """Return which rows of a fragment may have a key of the source.

    Returns:
        Ranges of row offsets that hold all of them, and the offsets of the live ones if they are few, else None.
    """
    end = reader.physical_rows
    if answer is None:
        return [(0, end)] if end else [], None
    rows = answer.of_fragment(reader.fragment.id, end)
    if rows.num_candidates > end * SPARSE_SHARE:
        return kept_ranges(rows.bounds, rows.may_match, 0, end), None
    offsets = rows.candidates()
    return [], offsets[~np.isin(offsets, reader.deleted)] if len(reader.deleted) else offsets


def indexed_key_rows(
    reader: FragmentReader, on: Schema, offsets: Offsets, indexed: Mapping[str, pa.Array], *, batch_size: int
) -> Iterator[tuple[Offsets, Sequence[Any]]]:
    """As `key_rows`, of rows of which some columns of the key are known; only the others are read.

    Args:
        reader: The fragment.
        on: Fields of the key.
        offsets: Row offsets, ascending.
        indexed: Values of columns that indices know, by name.
        batch_size: Rows of a batch at most.
    """
    unknown = [name for name in on.names if name not in indexed]
    if not unknown:
        yield offsets, [indexed[name] for name in on.names]
        return
    at = 0
    for batch in pick_rows(reader, on.select(unknown), offsets, batch_size=batch_size):
        columns = {name: values.slice(at, batch.num_rows) for name, values in indexed.items()}
        columns |= dict(zip(unknown, batch.columns, strict=True))
        yield offsets[at : at + batch.num_rows], [columns[name] for name in on.names]
        at += batch.num_rows


def key_rows(
    reader: FragmentReader, on: Schema, ranges: Ranges, offsets: Offsets | None, *, batch_size: int
) -> Iterator[tuple[Offsets, Sequence[Any]]]:
    """Read the keys of some rows.

    Args:
        reader: The fragment.
        on: Fields of the key.
        ranges: Ranges of row offsets, if ``offsets`` is None.
        offsets: Row offsets, ascending.
        batch_size: Rows of a batch at most.

    Yields:
        Row offsets, and the columns of the key.
    """
    if offsets is None:
        for start, end in ranges:
            for rows in reader.scan(on, start=start, end=end, batch_size=batch_size):
                yield np.arange(rows.start, rows.start + rows.num_rows), rows.columns
        return
    at = 0
    for batch in pick_rows(reader, on, offsets, batch_size=batch_size):
        yield offsets[at : at + batch.num_rows], batch.columns
        at += batch.num_rows


def _values(column: pa.ChunkedArray) -> pa.Array | None:
    """Return the distinct values of a column; None if a merge compares them in another way than indices do."""
    kind = column.type
    if pa.types.is_nested(kind) or pa.types.is_dictionary(kind) or isinstance(kind, pa.BaseExtensionType):
        return None
    values = column.drop_null().unique()
    values = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if pa.types.is_floating(kind):  # a merge tells zeros of both signs apart, and finds NaN
        numbers = values.to_numpy(zero_copy_only=False)
        return None if (np.isnan(numbers) | (numbers == 0)).any() else values
    return values
