"""Read one data file of any version.

The file is opened with one read of its end. What lies below the footer is the business of one module for each
generation of the format: `lance_core.file.read.v2_1` and its likes.
"""

from __future__ import annotations

from contextlib import contextmanager
from itertools import accumulate, pairwise, repeat
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.encoding.arrow_values import batch_of, needs_settling, settled
from lance_core.encoding.kernels import numbers_array
from lance_core.errors import CorruptDataError, InvalidInputError, LanceError
from lance_core.file.container import Container
from lance_core.file.read.field_reader import Opened, PagedField
from lance_core.file.read.known_files import KNOWN_FILES, FileKnown
from lance_core.file.read.several_files import Wanted
from lance_core.file.read.v2_1 import ContentV21
from lance_core.file.source import FileBytes
from lance_core.format.file_version import decode_footer_version
from lance_core.format.footer import decode_version
from lance_core.store.base import offers
from lance_core.store.waits import finished

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator, Iterator, Mapping

    from lance_core.encoding.coded import Coded
    from lance_core.encoding.plans import Ranges, Rows
    from lance_core.encoding.values import Int64s
    from lance_core.file.outline import FileOutline
    from lance_core.file.page_bytes import PageBytes
    from lance_core.file.read.field_reader import Content, FieldReader
    from lance_core.file.read.v0_1 import BatchStatistics
    from lance_core.format.dictionary_values import LegacyDictionary
    from lance_core.format.schema import Schema
    from lance_core.store.base import ObjectReader
    from lance_core.store.waits import Waits

WINDOW_BYTES = 1 << 24
"""Decoded bytes of all columns together that a scan holds, unless one batch needs more."""

COLUMN_WINDOW_BYTES = 1 << 22
"""Decoded bytes of one column that a scan holds, unless one batch needs more; strings need several times as much on
the way."""

CODED_WINDOW_BYTES = 1 << 23
"""The same of a column that is read alone, of which hardly anything is decoded: a million numbers at once."""

KEPT_WINDOW_BYTES, KEPT_COLUMN_WINDOW_BYTES = 1 << 26, 1 << 25
"""The same for those who keep all rows: larger steps are cheaper."""

_KEPT_COLUMN_BYTES = 1 << 19
"""And at least so many bytes of each column on average: a step of a column costs as much as 100 KiB of its values."""

_CAUTION = 4
"""The first window has so much less: what is compressed may be much larger than it looks."""

_FEW_ROWS = 64
"""Up to so many consecutive rows are picked one by one: the chunks that hold them hold many more."""


class DataFileReader:
    """One data file.

    Args:
        source: The file.
        path: Its name, for error messages.
        is_announced: See `lance_core.file.source.announce_end`.

    Raises:
        CorruptDataError: Not a data file.
        UnsupportedError: A version of the format that cannot be read.
    """

    def __init__(self, source: ObjectReader, *, path: str, is_announced: bool = False) -> None:
        self._source = source
        self._path = path
        self._known = FileKnown()
        with self._blaming_file():
            self._file = FileBytes(source, is_announced=is_announced)
            self._version = decode_footer_version(*decode_version(memoryview(self._file.tail), source.size))
            self._content = self._open()

    @property
    def version(self) -> str:
        """Version of the file format."""
        return self._version.name

    @property
    def num_rows(self) -> int:
        """Rows in the file."""
        return self._described()[1]

    @property
    def schema(self) -> Schema:
        """Schema stored in the file."""
        return self._described()[0]

    @property
    def column_numbers(self) -> dict[int, int]:
        """For each field of the file's own schema that has a column, by field id, its number."""
        with self._blaming_file():
            return self._content.column_numbers()

    def outline(self) -> FileOutline:
        """What the file is made of; reads all of its metadata and no data."""
        with self._blaming_file():
            return self._content.outline()

    def global_buffer(self, number: int) -> bytes:
        """The content of a global buffer; 0 is the file descriptor.

        Raises:
            InvalidInputError: There is no such buffer, or the file is of version 0.1, which has none.
        """
        with self._blaming_file():
            if self._version.name == "0.1":
                raise InvalidInputError("files of version 0.1 have no global buffers")
            return Container(self._file).global_buffer(number)

    def batch_statistics(self, fields: Collection[int]) -> tuple[Int64s, dict[int, BatchStatistics]]:
        """What the file itself tells of the values of fields; only files of version 0.1 do.

        Args:
            fields: Ids.

        Returns:
            Shape (batches + 1,), first row of each batch and the end; and the statistics that there are, by id.

        Raises:
            CorruptDataError: The file is damaged.
        """
        with self._blaming_file():
            if self._version.name == "0.1":
                from lance_core.file.read.v0_1 import ContentLegacy  # noqa: PLC0415 rarely needed

                if isinstance(self._content, ContentLegacy):
                    return self._content.batch_offsets, self._content.statistics(fields)
            return np.array([0, self._described()[1]], np.int64), {}

    def dictionaries(self, fields: Collection[int]) -> dict[int, tuple[str, LegacyDictionary]]:
        """Return logical type and dictionary of dictionary fields; only files of version 0.1 have one for each.

        Args:
            fields: Ids; those of other fields are passed over.

        Raises:
            CorruptDataError: The file is damaged.
        """
        with self._blaming_file():
            if self._version.name == "0.1":
                from lance_core.file.read.v0_1 import ContentLegacy  # noqa: PLC0415 rarely needed

                if isinstance(self._content, ContentLegacy):
                    return self._content.dictionaries(fields)
            return {}

    def scan(
        self,
        projection: Schema,
        columns: Mapping[int, int],
        *,
        start: int,
        end: int,
        batch_size: int,
        is_kept: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Read consecutive rows in order.

        Args:
            projection: Fields to read.
            columns: For each leaf of the projection, by field id, its column in the file. In files of version 2.0
                lists and structs have columns too; in those of version 0.1 this is the row of the page table.
            start: First row.
            end: Row behind the last one.
            batch_size: Rows of each batch but the last.
            is_kept: All batches will be in memory together, so that memory for the way there is no matter, and batches
                may have more rows.

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
            passing = self._passing(projection, columns, end, keeps=is_kept)
        widths = [width for one in passing.fields for width in one.widths]
        if is_kept:
            num_bytes = max(KEPT_WINDOW_BYTES, _KEPT_COLUMN_BYTES * len(widths))
            steps = repeat(_fitting_rows(widths, batch_size, num_bytes, KEPT_COLUMN_WINDOW_BYTES))
        else:
            steps = _Windows(_fitting_rows(widths, batch_size, WINDOW_BYTES, COLUMN_WINDOW_BYTES), batch_size)
        return self._scan(passing, range(start, end), batch_size=batch_size, steps=steps)

    def scan_coded(
        self, projection: Schema, columns: Mapping[int, int], *, start: int, end: int, batch_size: int
    ) -> Iterator[pa.Array | Coded]:
        """Read consecutive rows of one field; where pages have dictionaries, these and places in them.

        Args:
            projection: The field.
            columns: As in `scan`.
            start: First row.
            end: Row behind the last one.
            batch_size: Rows that are decoded together, unless there is room for more.

        Yields:
            The rows in order, in parts. Errors as in `scan`.
        """
        with self._blaming_file():
            passing = self._passing(projection, columns, end, keeps=True)
            pages = self._file.pages(_page_extents(passing.fields, range(start, end)))
        window = _fitting_rows(passing.fields[0].widths, batch_size, WINDOW_BYTES, CODED_WINDOW_BYTES)
        for low in range(start, end, window):
            high = min(low + window, end)
            with self._blaming_file():
                parts = self._file.run(self._content.plan_coded(passing.fields[0], range(low, high)), pages=pages)
                passing.passed(high)
                if pages is not None:
                    pages.next_window()
            yield from parts

    def passage(
        self, projection: Schema, columns: Mapping[int, int], *, end: int
    ) -> Callable[[range, Int64s | None], pa.RecordBatch]:
        """Read ranges of rows, each behind the one before; what is learnt of pages is kept in between.

        Args:
            projection: Fields to read.
            columns: As in `scan`.
            end: Row behind the last one that will be asked for.

        Returns:
            Reads a range, or those rows of it that are wanted: at least one, counted from its first row, ascending. It
            raises what `scan` raises.

        Raises:
            InvalidInputError: Rows that are not there, an unknown column.
        """
        with self._blaming_file():
            passing = self._passing(projection, columns, end, keeps=False)

        def read(rows: range, kept: Int64s | None) -> pa.RecordBatch:
            with self._blaming_file():
                content, fields = self._content, passing.fields
                steps = content.plan(fields, rows) if kept is None else content.plan_some(fields, rows, kept)
                arrays = self._file.run(steps)
                passing.passed(rows.stop)
                count = len(rows) if kept is None else len(kept)
                return batch_of([_slice(one, 0, count) for one in arrays], passing.schema, count)

        return read

    def take(self, projection: Schema, columns: Mapping[int, int], offsets: Int64s) -> pa.RecordBatch:
        """Read single rows.

        Args:
            projection: Fields to read.
            columns: As in `scan`.
            offsets: Shape (n,), rows; fastest if they ascend.

        Returns:
            The rows in the order asked for.

        Raises:
            InvalidInputError: Rows that are not there, an unknown column.
            CorruptDataError: The file is damaged.
            UnsupportedError: A type or encoding that cannot be read.
        """
        return finished(self.taking(projection, columns, offsets))

    def taking(self, projection: Schema, columns: Mapping[int, int], offsets: Int64s) -> Waits[pa.RecordBatch]:
        """As `take`, but stops where a mapped file was asked for something."""
        rows = np.asarray(offsets, np.int64)
        with self._blaming_file():
            opened = self._opened(projection, columns)
            schema = opened.schema
            if not len(rows):
                return batch_of([pa.nulls(0, one.type) for one in schema], schema, 0)
            places = None
            if (rows[1:] <= rows[:-1]).any():
                rows, places = np.unique(rows, return_inverse=True)
            if rows[0] < 0:
                raise InvalidInputError(f"there is no row {int(rows[0])}")
            _check_end(int(rows[-1]) + 1, opened.num_rows)
            is_range = int(rows[-1]) - int(rows[0]) < len(rows) and len(rows) > _FEW_ROWS
            dense: Rows = range(int(rows[0]), int(rows[-1]) + 1) if is_range else rows
            found = yield from self._file.reading(self._content.plan(opened.fields, dense), is_scan=is_range)
            if opened.is_settled and max(map(len, found), default=1) == 1:
                arrays = [array for (array,) in found]
            else:
                arrays = [_slice(one, 0, len(rows)) for one in found]
            if places is not None:
                arrays = [array.take(numbers_array(places)) for array in arrays]
            return batch_of(arrays, schema, len(offsets))

    def rows_of(self, projection: Schema, columns: Mapping[int, int], rows: Rows) -> Wanted:
        """Rows that are to be read together with those of other files.

        Args:
            projection: Fields to read.
            columns: As in `scan`.
            rows: At least one, ascending.

        Raises:
            InvalidInputError: Rows that are not there, an unknown column.
        """
        with self._blaming_file():
            opened = self._opened(projection, columns)
            _check_end(int(rows[-1]) + 1, opened.num_rows)
            return Wanted(self._file, opened, rows)

    def _scan(
        self, passing: _Passing, rows: range, *, batch_size: int, steps: repeat[int] | _Windows
    ) -> Iterator[pa.RecordBatch]:
        schema = passing.schema
        with self._blaming_file():
            pages = self._file.pages(_page_extents(passing.fields, rows))
        high = rows.start
        while high < rows.stop:
            low, high = high, min(high + next(steps), rows.stop)
            with self._blaming_file():
                arrays = self._read(passing.fields, range(low, high), pages=pages)
                passing.passed(high)
                if pages is not None:
                    pages.next_window()
            is_kept = not isinstance(steps, _Windows)
            if not is_kept:
                steps.learn(arrays, high - low)
            if arrays and all(len(one) == 1 and not needs_settling(one[0].type) for one in arrays):
                whole = batch_of([one[0] for one in arrays], schema, high - low)
                if is_kept:  # the arrays of a wide window are many: each batch would slice all of them
                    yield whole
                else:
                    yield from (whole.slice(at, batch_size) for at in range(0, high - low, batch_size))
                del whole, arrays  # before the next window is decoded
                continue
            cuts = [*range(0, high - low, batch_size), high - low]
            if is_kept:  # larger pieces, and none has to be put together
                cuts = min(cuts, _cuts(arrays, high - low), key=len)
            for at, end in pairwise(cuts):
                yield batch_of([_slice(one, at, end - at) for one in arrays], schema, end - at)
            del arrays

    def _read(self, wanted: list[FieldReader], rows: range, *, pages: PageBytes | None) -> list[list[pa.Array]]:
        """For each field its rows, in one or more arrays."""
        return self._file.run(self._content.plan(wanted, rows), pages=pages)

    def _passing(self, projection: Schema, columns: Mapping[int, int], end: int, *, keeps: bool) -> _Passing:
        """The fields of a projection for one who goes through them up to a row.

        Args:
            projection: The fields.
            columns: As in `scan`.
            end: Row behind the last one.
            keeps: What is learnt of pages may be kept, if there is room.
        """
        if keeps and KNOWN_FILES.has_room(self._known):
            opened = self._opened(projection, columns)
            _check_end(end, opened.num_rows)
            return _Passing(opened.fields, opened.schema, self._known)
        fields = [one.fresh() for one in self._content.fields(projection, columns)]
        _check_end(end, self._num_rows(fields))
        return _Passing(fields, projection.to_arrow(), None)

    def _opened(self, projection: Schema, columns: Mapping[int, int]) -> Opened:
        """The fields of a projection; many calls in a row ask for the same, and so does who opens the file again."""
        for one in list(self._known.opened):
            if one.projection == projection and one.columns == columns:
                return one
        fields, schema = self._content.fields(projection, columns), projection.to_arrow()
        is_settled = not any(needs_settling(one.type) for one in schema)
        found = Opened(projection, dict(columns), schema, fields, self._num_rows(fields), is_settled)
        self._known.keep(found)
        return found

    def _num_rows(self, wanted: list[FieldReader]) -> int:
        return min([one.num_rows for one in wanted]) if wanted else self.num_rows

    def _described(self) -> tuple[Schema, int]:
        with self._blaming_file():
            return self._content.descriptor()

    def _open(self) -> Content:
        match self._version.name:
            case "0.1":
                from lance_core.file.read.v0_1 import ContentLegacy  # noqa: PLC0415 rarely needed

                return ContentLegacy(self._file)
            case "2.0":
                from lance_core.file.read.v2_0 import ContentV20  # noqa: PLC0415 rarely needed

                return ContentV20(Container(self._file))
            case _:
                identity = self._file.identity
                if identity is not None:
                    self._known = KNOWN_FILES.find((self._path, identity))
                return ContentV21(Container(self._file, self._known.parsed), self._known)

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


def _check_end(end: int, num_rows: int) -> None:
    if end > num_rows:
        raise InvalidInputError(f"there is no row {end - 1} in a file of {num_rows} rows")


def _page_extents(wanted: list[FieldReader], rows: range) -> list[Ranges]:
    """For each column where its pages lie that have no other rows; none in versions whose pages are read otherwise."""
    return [column.extents(rows) for one in wanted if offers(one, PagedField, "columns") for column in one.columns]


class _Passing:
    """Fields that are read from row to row, each once.

    Args:
        fields: The fields.
        schema: Of what is read.
        known: Keeps what they learn of pages as long as it has room; None if that is of no use once it has passed.
    """

    def __init__(self, fields: list[FieldReader], schema: pa.Schema, known: FileKnown | None) -> None:
        self.fields = fields
        self.schema = schema
        self._known = known

    def passed(self, row: int) -> None:
        """What lies before a row is not read again."""
        if self._known is not None:
            if KNOWN_FILES.has_room(self._known):
                return
            self.fields, self._known = [one.fresh() for one in self.fields], None
        for one in self.fields:
            one.forget(row)


class _Windows:
    """How many rows a scan decodes at once: as many as guessed, or fewer if they came to more bytes.

    Args:
        guess: Rows that should come to a window; memory on the way, such as for levels, is part of the guess.
        batch_size: Rows of a batch.
    """

    def __init__(self, guess: int, batch_size: int) -> None:
        self._guess, self._batch_size = guess, batch_size
        self._rows = max(1, guess // _CAUTION // batch_size) * batch_size

    def __next__(self) -> int:
        return self._rows

    def learn(self, arrays: list[list[pa.Array]], num_rows: int) -> None:
        """What columns came to for so many rows."""
        widths = [sum(array.nbytes for array in one) / num_rows for one in arrays]
        self._rows = min(self._guess, _fitting_rows(widths, self._batch_size, WINDOW_BYTES, COLUMN_WINDOW_BYTES))


def _fitting_rows(widths: list[float], batch_size: int, num_bytes: int, column_bytes: int) -> int:
    """Whole batches of rows that need so many bytes in all columns together, and in each."""
    if not sum(widths):
        return batch_size
    rows = min(num_bytes / sum(widths), column_bytes / max(widths))
    return max(1, int(rows) // batch_size) * batch_size


def _cuts(arrays: list[list[pa.Array]], num_rows: int) -> list[int]:
    """Where consecutive arrays of any field begin, and the end of all."""
    ends = {end for one in arrays for end in accumulate(map(len, one)) if 0 < end < num_rows}
    return [0, *sorted(ends), num_rows]


def _slice(arrays: list[pa.Array], start: int, length: int) -> pa.Array:
    """Some rows out of consecutive arrays; a copy only if they come from more than one."""
    if len(arrays) == 1:
        return settled(arrays[0] if len(arrays[0]) == length else arrays[0].slice(start, length))
    chunks = pa.chunked_array(arrays).slice(start, length).chunks
    return settled(chunks[0]) if len(chunks) == 1 else pa.concat_arrays(chunks)
