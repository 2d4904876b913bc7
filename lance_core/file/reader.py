"""Read one data file.

The file is opened with one read of its end: footer, tables and, unless the file has very many columns, all metadata.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pyarrow as pa

from lance_core.encoding.leaves import join_leaves, leaf_paths
from lance_core.encoding.physical.memory import starts_of
from lance_core.encoding.structural.page import rows_array
from lance_core.errors import CorruptDataError, InvalidInputError, LanceError
from lance_core.file.plan import Column, plan_rows
from lance_core.format.file_metadata import decode_column, decode_descriptor
from lance_core.format.file_version import decode_footer_version
from lance_core.format.footer import FOOTER_SIZE, Footer, decode_footer, decode_table

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from lance_core.encoding.leaves import LeafPath
    from lance_core.encoding.values import Int64s
    from lance_core.file.plan import MiniBlockIndex, Ranges, Rows
    from lance_core.format.file_metadata import Page
    from lance_core.format.page_layout import PageLayout
    from lance_core.format.schema import Field, Schema
    from lance_core.store.base import ObjectReader

_T = TypeVar("_T")

TAIL_SIZE = 1 << 16
WINDOW_BYTES = 1 << 26
"""Decoded bytes of all columns together that a scan holds, unless one batch needs more."""

COLUMN_WINDOW_BYTES = 1 << 24
"""Decoded bytes of one column that a scan holds, unless one batch needs more."""

_GUESSED_STRING_BYTES = 16


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One top-level field of a projection."""

    field: Field
    kind: pa.DataType
    columns: list[Column]


class DataFileReader:
    """One data file.

    Args:
        source: The file.
        path: Its name, for error messages.

    Raises:
        CorruptDataError: Not a data file.
        UnsupportedError: A version of the format that cannot be read.
    """

    def __init__(self, source: ObjectReader, *, path: str) -> None:
        self._source = source
        self._path = path
        self._descriptor: tuple[Schema, int] | None = None
        self._pages: dict[int, tuple[Page, ...]] = {}
        self._known: dict[int, tuple[dict[int, PageLayout], dict[int, MiniBlockIndex]]] = {}
        self._last: tuple[Schema, dict[int, int], pa.Schema, list[_Wanted]] | None = None
        with self._blaming_file():
            self._tail_start = max(0, source.size - TAIL_SIZE)
            self._tail = source.read_ranges([(self._tail_start, source.size)])[0]
            self._footer: Footer = decode_footer(memoryview(self._tail), source.size)
            self._version = decode_footer_version(self._footer.major, self._footer.minor)
            self._column_table, self._global_table = self._read_tables()

    @property
    def version(self) -> str:
        """Version of the file format."""
        return self._version.name

    @property
    def num_rows(self) -> int:
        """Rows in the file."""
        return self._read_descriptor()[1]

    @property
    def schema(self) -> Schema:
        """Schema stored in the file."""
        return self._read_descriptor()[0]

    @property
    def num_columns(self) -> int:
        """Columns in the file."""
        return len(self._column_table)

    def scan(
        self, projection: Schema, columns: Mapping[int, int], *, start: int, end: int, batch_size: int
    ) -> Iterator[pa.RecordBatch]:
        """Read consecutive rows in order.

        Args:
            projection: Fields to read.
            columns: For each leaf of the projection, by field id, its column in the file.
            start: First row.
            end: Row behind the last one.
            batch_size: Rows of each batch but the last.

        Returns:
            Batches of exactly the projection's Arrow schema.

        Raises:
            InvalidInputError: Rows that are not there, an unknown column.
            CorruptDataError: The file is damaged.
            UnsupportedError: A type or encoding that cannot be read.
        """
        if not 0 <= start <= end or batch_size < 1:
            raise InvalidInputError(f"cannot read rows {start} to {end} in batches of {batch_size}", path=self._path)
        with self._blaming_file():
            wanted = self._wanted(projection, columns)
            # What a scan learns about pages is of no use to anyone once it has passed.
            wanted = [replace(one, columns=[replace(column, indexes={}) for column in one.columns]) for one in wanted]
            self._check_end(wanted, end)
        return self._scan(projection.to_arrow(), wanted, start, end, batch_size=batch_size)

    def take(self, projection: Schema, columns: Mapping[int, int], offsets: Int64s) -> pa.RecordBatch:
        """Read single rows.

        Args:
            projection: Fields to read.
            columns: For each leaf of the projection, by field id, its column in the file.
            offsets: Shape (n,), rows; fastest if they ascend.

        Returns:
            The rows in the order asked for.

        Raises:
            InvalidInputError: Rows that are not there, an unknown column.
            CorruptDataError: The file is damaged.
            UnsupportedError: A type or encoding that cannot be read.
        """
        rows = np.asarray(offsets, np.int64)
        with self._blaming_file():
            schema, wanted = self._remembered(projection, columns)
            if not len(rows):
                return _batch([pa.nulls(0, one.type) for one in schema], schema, 0)
            places = None
            if (rows[1:] <= rows[:-1]).any():
                rows, places = np.unique(rows, return_inverse=True)
            if rows[0] < 0:
                raise InvalidInputError(f"there is no row {int(rows[0])}")
            self._check_end(wanted, int(rows[-1]) + 1)
            dense: Rows = range(int(rows[0]), int(rows[-1]) + 1) if int(rows[-1]) - int(rows[0]) < len(rows) else rows
            arrays = [_slice(one, 0, len(rows)) for one in self._read(wanted, dense)]
            if places is not None:
                arrays = [array.take(rows_array(places)) for array in arrays]
            return _batch(arrays, schema, len(offsets))

    def _scan(
        self, schema: pa.Schema, wanted: list[_Wanted], start: int, end: int, *, batch_size: int
    ) -> Iterator[pa.RecordBatch]:
        window = _window_rows(wanted, batch_size)
        for low in range(start, end, window):
            high = min(low + window, end)
            with self._blaming_file():
                arrays = self._read(wanted, range(low, high))
                _forget(wanted, high)
            for at in range(0, high - low, batch_size):
                length = min(batch_size, high - low - at)
                yield _batch([_slice(one, at, length) for one in arrays], schema, length)
            del arrays  # before the next window is decoded

    def _read(self, wanted: list[_Wanted], rows: Rows) -> list[list[pa.Array]]:
        """For each field its rows, in one or more arrays."""
        parts = iter(self._run([plan_rows(column, rows) for one in wanted for column in one.columns]))
        return [_assemble(one, [next(parts) for _ in one.columns]) for one in wanted]

    def _run(self, plans: Sequence[Generator[Ranges, list[pa.Buffer], _T]]) -> list[_T]:
        """Run plans in step, one read for all of them at each."""
        results: dict[int, _T] = {}
        pending = [(number, plan, next(plan)) for number, plan in enumerate(plans)]
        while pending:
            buffers = iter(self._source.read_ranges([one for _, _, ranges in pending for one in ranges]))
            waiting = pending
            pending = []
            for number, plan, ranges in waiting:
                try:
                    pending.append((number, plan, plan.send([next(buffers) for _ in ranges])))
                except StopIteration as stop:
                    results[number] = stop.value
        return [results[number] for number in range(len(plans))]

    def _remembered(self, projection: Schema, columns: Mapping[int, int]) -> tuple[pa.Schema, list[_Wanted]]:
        """Arrow schema and columns of a projection; many calls in a row ask for the same."""
        last = self._last
        if last is None or last[0] is not projection or last[1] != columns:
            last = self._last = (projection, dict(columns), projection.to_arrow(), self._wanted(projection, columns))
        return last[2], last[3]

    def _wanted(self, projection: Schema, columns: Mapping[int, int]) -> list[_Wanted]:
        paths = [(one, leaf_paths(one)) for one in projection.fields]
        numbers: dict[int, int] = {}
        for _, leaves in paths:
            for path in leaves:
                if path.leaf.id not in columns:
                    raise InvalidInputError(f"field {path.leaf.name!r} has no column in this file")
                numbers[path.leaf.id] = columns[path.leaf.id]
        self._load_pages(set(numbers.values()))
        return [
            _Wanted(one, one.to_arrow().type, [self._column(path, numbers[path.leaf.id]) for path in leaves])
            for one, leaves in paths
        ]

    def _column(self, path: LeafPath, number: int) -> Column:
        """A column, with what is known about its pages."""
        layouts, indexes = self._known.setdefault(number, ({}, {}))
        pages = self._pages[number]
        first_rows = starts_of(np.array([page.num_rows for page in pages], np.int64))
        return Column(path, path.leaf.to_arrow().type, pages, first_rows, layouts, indexes)

    def _check_end(self, wanted: list[_Wanted], end: int) -> None:
        shortest = min((column.num_rows for one in wanted for column in one.columns), default=self.num_rows)
        if end > shortest:
            raise InvalidInputError(f"there is no row {end - 1} in a file of {shortest} rows")

    def _load_pages(self, numbers: set[int]) -> None:
        """Read the metadata of columns that are not known yet."""
        missing = sorted(numbers - self._pages.keys())
        for number in missing:
            if not 0 <= number < len(self._column_table):
                raise InvalidInputError(f"there is no column {number} in a file of {len(self._column_table)} columns")
        ranges = [(start, start + size) for start, size in (self._column_table[number] for number in missing)]
        limit = self._footer.column_metadata_start
        for number, data in zip(missing, self._fetch(ranges), strict=True):
            self._pages[number] = decode_column(data.to_pybytes(), limit=limit)

    def _read_tables(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        footer, end = self._footer, self._source.size - FOOTER_SIZE
        columns_end = footer.column_table_start + 16 * footer.num_columns
        globals_end = footer.global_table_start + 16 * footer.num_global_buffers
        ranges = [(footer.column_table_start, columns_end), (footer.global_table_start, globals_end)]
        columns, global_buffers = self._fetch(ranges)
        return (
            decode_table(memoryview(columns), limit=end, what="column"),
            decode_table(memoryview(global_buffers), limit=end, what="global buffer"),
        )

    def _read_descriptor(self) -> tuple[Schema, int]:
        if self._descriptor is None:
            with self._blaming_file():
                if not self._global_table:
                    raise CorruptDataError("the file has no schema")
                start, size = self._global_table[0]
                self._descriptor = decode_descriptor(self._fetch([(start, start + size)])[0].to_pybytes())
        return self._descriptor

    def _fetch(self, ranges: Ranges) -> list[pa.Buffer]:
        """Ranges of the metadata, most of which came with the first read."""
        missing = [one for one in ranges if one[0] < self._tail_start]
        read = iter(self._source.read_ranges(missing) if missing else [])
        return [
            next(read) if start < self._tail_start else self._tail.slice(start - self._tail_start, end - start)
            for start, end in ranges
        ]

    @contextmanager
    def _blaming_file(self) -> Generator[None]:
        """Put the file's name on errors, and call what garbage can lead to by its name."""
        try:
            yield
        except LanceError as error:
            error.path = error.path or self._path
            raise
        except (ValueError, IndexError, OverflowError, MemoryError, pa.ArrowException) as error:
            raise CorruptDataError(f"the file is damaged: {error}", path=self._path) from error


def _window_rows(wanted: list[_Wanted], batch_size: int) -> int:
    """Rows that a scan decodes at once: whole batches."""
    widths = [_row_bytes(column) for one in wanted for column in one.columns]
    if not widths:
        return batch_size
    rows = min(WINDOW_BYTES / sum(widths), COLUMN_WINDOW_BYTES / max(widths))
    return max(1, int(rows) // batch_size) * batch_size


def _row_bytes(column: Column) -> float:
    """Decoded bytes of a row, guessed."""
    stored = sum(size for page in column.pages for _, size in page.buffers) / max(1, column.num_rows)
    try:
        least = column.kind.bit_width / 8
    except ValueError:  # no fixed width
        least = _GUESSED_STRING_BYTES
    return max(stored, least)


def _forget(wanted: list[_Wanted], row: int) -> None:
    """Drop what is known of pages before a row."""
    for one in wanted:
        for column in one.columns:
            for number in [known for known in column.indexes if column.first_rows[known + 1] <= row]:
                del column.indexes[number]


def _assemble(one: _Wanted, leaves: list[list[pa.Array]]) -> list[pa.Array]:
    """The arrays of a field from those of its leaves."""
    if len(leaves) == 1:
        return [join_leaves(one.field, one.kind, [array]) for array in leaves[0]]
    whole = [arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays) for arrays in leaves]
    return [join_leaves(one.field, one.kind, whole)]


def _slice(arrays: list[pa.Array], start: int, length: int) -> pa.Array:
    """Some rows out of consecutive arrays; a copy only if they come from more than one."""
    if len(arrays) == 1:
        return arrays[0] if len(arrays[0]) == length else arrays[0].slice(start, length)
    chunks = pa.chunked_array(arrays).slice(start, length).chunks
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)


def _batch(arrays: list[pa.Array], schema: pa.Schema, num_rows: int) -> pa.RecordBatch:
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    empty = pa.Array.from_buffers(pa.struct([]), num_rows, [None], children=[])
    return pa.RecordBatch.from_struct_array(empty).replace_schema_metadata(schema.metadata)
