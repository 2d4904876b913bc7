"""Read one data file of any version.

The file is opened with one read of its end. What lies below the footer is the business of one module for each
generation of the format: `lance_core.file.read.v2_1` and its likes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import mutable
from lance_core.common.last_made import KeepsLast
from lance_core.encoding.arrow_values import batch_of
from lance_core.encoding.kernels import numbers_array
from lance_core.errors import InvalidInputError
from lance_core.file.blame import Blame
from lance_core.file.container import Container
from lance_core.file.read import strategy
from lance_core.file.read.cache import FILE_CACHES, FileCache
from lance_core.file.read.column_read import touched_extents
from lance_core.file.read.field_reader import Opened, are_settled, cuts_of, joined, num_bytes_of, sliced
from lance_core.file.read.plan import LeavesField, are_known, plan_dictionary, plan_ranges, plan_rows, plan_take
from lance_core.file.read.v2_1 import ContentV21
from lance_core.file.read.wanted import Wanted
from lance_core.file.source import FileBytes
from lance_core.format.file.file_version import decode_footer_version
from lance_core.format.file.footer import decode_version
from lance_core.store.io_coroutines import finished

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence

    from lance_core.encoding.dictionary_encoded import DictionaryEncoded
    from lance_core.encoding.plans import Rows
    from lance_core.encoding.values import Int64s
    from lance_core.file.file_layout import FileLayout
    from lance_core.file.integrity import Checking
    from lance_core.file.read.alike_files import Pattern
    from lance_core.file.read.field_reader import FieldReader
    from lance_core.file.read.page_bytes import PageBytes, TouchedPages
    from lance_core.file.read.v0_1 import BatchStatistics, ContentLegacy
    from lance_core.file.read.v2_0 import ContentV20
    from lance_core.format.dictionary_values import LegacyDictionary
    from lance_core.format.schema import Schema
    from lance_core.store.base import ObjectReader
    from lance_core.store.io_coroutines import IoCoroutine


_T = TypeVar("_T")


class DataFileReader(KeepsLast):
    """One data file.

    Args:
        source: The file.
        path: Its name, for error messages.
        is_announced: See `lance_core.file.source.announce_end`.
        when: When checksums are looked at; as the environment says if None.
        file: The file if its end has been read already, by `lance_core.file.source.read_end`.

    Raises:
        CorruptDataError: Not a data file.
        UnsupportedError: A version of the format that cannot be read.
    """

    is_open = True

    def __init__(
        self,
        source: ObjectReader,
        *,
        path: str,
        is_announced: bool = False,
        when: Checking | None = None,
        file: FileBytes | None = None,
    ) -> None:
        self._source = source
        self._path = path
        self._blame = Blame(path)
        with self._blame:
            self._file = file or FileBytes(source, when=when, is_announced=is_announced)
            self._version = decode_footer_version(*decode_version(memoryview(self._file.tail), source.size))
            self._cache, self._content = self._open()

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
        with self._blame:
            return self._content.column_numbers()

    def file_layout(self) -> FileLayout:
        """Return the layout of the file; reads all of its metadata and no data."""
        with self._blame:
            return self._content.file_layout()

    def global_buffer(self, number: int) -> bytes:
        """Return the content of a global buffer; 0 is the file descriptor.

        Raises:
            InvalidInputError: There is no such buffer, or the file is of version 0.1, which has none.
        """
        with self._blame:
            if self._version.name == "0.1":
                raise InvalidInputError("files of version 0.1 have no global buffers")
            return Container(self._file).global_buffer(number)

    def derived(self, key: Hashable, make: Callable[[], _T], num_bytes: Callable[[_T], int]) -> _T:
        """Return what is made of the file as a whole: it is made once for all readers that find the same content.

        Args:
            key: Tells it from other things that are made of the file.
            make: Makes it; nobody changes what it returns.
            num_bytes: Returns how much memory that takes.
        """
        cache = self._cache
        if key not in cache.derived:
            made = make()
            cache.budget.num_bytes += num_bytes(made)
            cache.derived[key] = made
        return cache.derived[key]

    def batch_statistics(self, fields: Collection[int]) -> tuple[Int64s, dict[int, BatchStatistics]]:
        """Return the statistics of fields that the file itself holds; only files of version 0.1 do.

        Args:
            fields: Ids.

        Returns:
            Shape (batches + 1,), first row of each batch and the end; and the statistics that there are, by id.

        Raises:
            CorruptDataError: The file is damaged.
        """
        with self._blame:
            legacy = self._legacy
            if legacy is None:
                return np.array([0, self._described()[1]], np.int64), {}
            return legacy.batch_offsets, legacy.statistics(fields)

    def dictionaries(self, fields: Collection[int]) -> dict[int, tuple[str, LegacyDictionary]]:
        """Return logical type and dictionary of dictionary fields; only files of version 0.1 have one for each.

        Args:
            fields: Ids; those of other fields are passed over.

        Raises:
            CorruptDataError: The file is damaged.
        """
        with self._blame:
            return {} if self._legacy is None else self._legacy.dictionaries(fields)

    @property
    def _legacy(self) -> ContentLegacy | None:
        """The content of a file of version 0.1."""
        return cast("ContentLegacy", self._content) if self._version.name == "0.1" else None

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
        with self._blame:
            stream = self._stream(projection, columns, end, keeps=is_kept)
        widths = [field.widths for field in stream.fields]
        windows = None if is_kept else strategy.Windows(widths, batch_size, projection)
        step = strategy.kept_window_rows([width for field in widths for width in field], batch_size)
        with self._blame:
            pages = self._page_bytes(stream.fields, range(start, end))
        batches = self._scan(stream, range(start, end), pages, batch_size=batch_size, windows=windows, step=step)
        return batches if pages is None else pages.closing(batches)

    def scan_dictionary(
        self, projection: Schema, columns: Mapping[int, int], *, start: int, end: int, batch_size: int
    ) -> Iterator[pa.Array | DictionaryEncoded]:
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
        with self._blame:
            stream = self._stream(projection, columns, end, keeps=True)
            pages = self._page_bytes(stream.fields, range(start, end))
        parts = self._scan_dictionary(stream, range(start, end), pages, batch_size)
        yield from parts if pages is None else pages.closing(parts)

    def _scan_dictionary(
        self, stream: _Stream, rows: range, pages: PageBytes | None, batch_size: int
    ) -> Iterator[pa.Array | DictionaryEncoded]:
        start, end = rows.start, rows.stop
        window = strategy.window_rows(stream.fields[0].widths, batch_size)
        for low in range(start, end, window):
            high = min(low + window, end)
            with self._blame:
                plan = plan_dictionary(stream.fields[0], range(low, high))
                parts = self._file.run(plan, answer=None if pages is None else pages.answer)
                stream.passed(high)
                if pages is not None:
                    pages.next_window()
            yield from parts

    def cursor(
        self, projection: Schema, columns: Mapping[int, int], *, end: int
    ) -> Callable[[range, Int64s | None], pa.RecordBatch]:
        """Read ranges of rows, each behind the one before; metadata of pages is cached in between.

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
        with self._blame:
            stream = self._stream(projection, columns, end, keeps=False)
        beside = strategy.BYTES_OF_A_CHUNK if self._file.is_mapped else strategy.BYTES_OF_A_REQUEST

        def read(rows: range, selected: Int64s | None) -> pa.RecordBatch:
            with self._blame:
                arrays = self._file.run(plan_rows(stream.fields, rows, selected, bytes_beside=beside))
                count = len(rows if selected is None else selected)
                stream.passed(rows.stop)
                return batch_of([sliced(array, 0, count) for array in arrays], stream.schema, count)

        return read

    def take(
        self, projection: Schema, columns: Mapping[int, int], offsets: Int64s, *, copies: bool = False
    ) -> pa.RecordBatch:
        """Read single rows.

        Args:
            projection: Fields to read.
            columns: As in `scan`.
            offsets: Shape (n,), rows; fastest if they ascend.
            copies: Copy scattered rows out of a mapped file, where else 64 KiB around each that is read stay mapped.

        Returns:
            The rows in the order asked for.

        Raises:
            InvalidInputError: Rows that are not there, an unknown column.
            CorruptDataError: The file is damaged.
            UnsupportedError: A type or encoding that cannot be read.
        """
        return finished(self.taking(projection, columns, offsets, copies=copies))

    def taking(
        self, projection: Schema, columns: Mapping[int, int], offsets: Int64s, *, copies: bool = False
    ) -> IoCoroutine[pa.RecordBatch]:
        """As `take`, but stops where a mapped file was asked for something."""
        rows = np.asarray(offsets, np.int64)
        with self._blame:
            opened = self._opened(projection, columns)
            schema = opened.schema
            if not len(rows):
                return batch_of([pa.nulls(0, column.type) for column in schema], schema, 0)
            inverse = None
            if (rows[1:] <= rows[:-1]).any():
                rows, inverse = np.unique(rows, return_inverse=True)
            if rows[0] < 0:
                raise InvalidInputError(f"there is no row {int(rows[0])}")
            _check_end(int(rows[-1]) + 1, opened.num_rows)
            plan, is_range = plan_take(opened.fields, rows)
            pages = None if is_range else self._touched_pages(opened.fields, rows)
            if pages is not None:
                pieces = self._file.run(plan, answer=pages.answer)
            elif copies and not is_range:
                pieces = self._file.run(plan, answer=lambda wanted: self._file.answer(wanted, is_scan=False))
            else:
                pieces = yield from self._file.reading(plan, is_scan=is_range)
            if opened.is_settled and max(map(len, pieces), default=1) == 1:
                arrays = [array for (array,) in pieces]
            else:
                arrays = [sliced(column, 0, len(rows)) for column in pieces]
            if inverse is not None:
                arrays = [array.take(numbers_array(inverse)) for array in arrays]
            return batch_of(arrays, schema, len(offsets))

    def take_ranges(
        self, projection: Schema, columns: Mapping[int, int], ranges: Sequence[range]
    ) -> list[pa.RecordBatch]:
        """Read ranges of rows at one go: all are asked for together, and decoded together.

        Args:
            projection: Fields to read.
            columns: As in `scan`.
            ranges: Each of at least one row, in any order.

        Returns:
            A batch for each range; batches may share their memory.

        Raises:
            InvalidInputError: Rows that are not there, an unknown column.
            CorruptDataError: The file is damaged.
            UnsupportedError: A type or encoding that cannot be read.
        """
        with self._blame:
            opened = self._opened(projection, columns)
            _check_end(max([rows.stop for rows in ranges], default=0), opened.num_rows)
            fields = [field for field in opened.fields if isinstance(field, LeavesField)]
            if len(fields) < len(opened.fields):  # older files
                return [self.take(projection, columns, np.arange(rows.start, rows.stop)) for rows in ranges]
            parts = self._file.run(plan_ranges(fields, ranges))
            return [
                batch_of([joined(arrays) for arrays in part], opened.schema, len(rows))
                for part, rows in zip(parts, ranges, strict=True)
            ]

    def rows_of(self, projection: Schema, columns: Mapping[int, int], rows: Rows) -> Wanted:
        """Return rows that are to be read together with those of other files.

        Args:
            projection: Fields to read.
            columns: As in `scan`.
            rows: At least one, ascending.

        Raises:
            InvalidInputError: Rows that are not there, an unknown column.
        """
        with self._blame:
            opened = self._opened(projection, columns)
            _check_end(int(rows[-1]) + 1, opened.num_rows)
            return Wanted(self._file, opened, rows)

    @property
    def file(self) -> FileBytes:
        """The file."""
        return self._file

    @property
    def content(self) -> pa.Buffer | None:
        """The whole file if it has been read and is what was written; None otherwise."""
        return self._file.content

    def pattern(self, wanted: Wanted) -> Pattern | None:
        """Return what other small files have in common with this one if they can be read like it.

        Args:
            wanted: What is read of this file, from `rows_of`.
        """
        content = self._content
        if self.content is None or not isinstance(content, ContentV21):
            return None
        with self._blame:
            return self.kept_for(wanted.opened, lambda: content.pattern(wanted))

    def _scan(
        self,
        stream: _Stream,
        rows: range,
        pages: PageBytes | None,
        *,
        batch_size: int,
        windows: strategy.Windows | None,
        step: int,
    ) -> Iterator[pa.RecordBatch]:
        """Read rows window by window; all windows have ``step`` rows if the rows are kept, and there are no others."""
        schema = stream.schema
        high = rows.start
        while high < rows.stop:
            most = step if windows is None else next(windows)
            low, high = high, strategy.window_end(high, most, rows.stop, batch_size)
            with self._blame:
                arrays = self._read(stream.fields, range(low, high), pages=pages)
                stream.passed(high)
                if pages is not None:
                    pages.next_window()
            sizes: list[int] = []
            if windows is not None:
                sizes = [num_bytes_of(field, high - low) for field in arrays]
                windows.learn(sizes, high - low)
            if arrays and stream.is_settled and max(map(len, arrays)) == 1:
                whole = batch_of([field[0] for field in arrays], schema, high - low)
                if windows is None:  # the arrays of a wide window are many: each batch would slice all of them
                    yield whole
                    del whole, arrays  # before the next window is decoded
                    continue
                starts = range(0, high - low, batch_size)
                for at in starts[:-1]:
                    yield whole.slice(at, batch_size)
                last = whole.slice(starts[-1])
                if strategy.is_left_alone(sum(sizes), len(starts)):
                    last = pa.concat_batches([last])
                del whole, arrays
                yield last
                del last
                continue
            cuts = [*range(0, high - low, batch_size), high - low]
            if windows is None:  # larger pieces, and none has to be put together
                pieces = cuts_of(arrays, high - low)
                cuts = pieces if strategy.pays_to_cut(len(pieces) - len(cuts), arrays) else cuts
            for at, end in pairwise(cuts):
                yield batch_of([sliced(field, at, end - at) for field in arrays], schema, end - at)
            del arrays

    def _read(self, fields: list[FieldReader], rows: range, *, pages: PageBytes | None) -> list[list[pa.Array]]:
        """Return the rows of each field, in one or more arrays."""
        return self._file.run(plan_rows(fields, rows), answer=None if pages is None else pages.answer)

    def _page_bytes(self, fields: list[FieldReader], rows: range) -> PageBytes | None:
        """Return what fetches the pages that a scan goes through; None for a mapped file, which is not copied."""
        if self._file.is_mapped:
            return None
        leaves = [field for field in fields if isinstance(field, LeavesField)]
        extents = [column.extents(rows) for field in leaves for column in field.columns]
        if not any(extents):
            return None
        from lance_core.file.read.page_bytes import PageBytes  # noqa: PLC0415 - mapped files need none of it

        return PageBytes(self._file.begin, extents)

    def _touched_pages(self, fields: list[FieldReader], rows: Int64s) -> TouchedPages | None:
        """Return what fetches the pages of which scattered rows touch nearly all chunks; None if there are none."""
        if self._file.is_mapped or self._file.content is not None:
            return None
        leaves = [leaf for field in fields if isinstance(field, LeavesField) for leaf in field.leaves]
        extents = sorted([extent for column, pages in leaves for extent in touched_extents(column, pages, rows)])
        if not extents:
            return None
        from lance_core.file.read.page_bytes import TouchedPages  # noqa: PLC0415 likewise

        return TouchedPages(self._file, extents)

    def _stream(self, projection: Schema, columns: Mapping[int, int], end: int, *, keeps: bool) -> _Stream:
        """Open the fields of a projection for one who goes through them up to a row.

        Args:
            projection: The fields.
            columns: As in `scan`.
            end: Row behind the last one.
            keeps: Whatever there is room for may be cached; else a few MiB of the file.
        """
        before = self._opened_before(projection, columns)
        is_known = before is not None and are_known(before.fields)
        # Nothing is learned of a file that is known: to forget it would take as much memory again.
        most = None if keeps or is_known else strategy.streamed_bytes(len(columns))

        def opened() -> tuple[list[FieldReader], FileCache]:
            FILE_CACHES.renew(self._cache)
            cache = self._cache.transient()
            return self._content.fields(projection, columns, cache), cache

        if FILE_CACHES.has_room(self._cache, most):
            fields = self._opened(projection, columns)
            _check_end(end, fields.num_rows)
            return _Stream(fields.fields, fields.schema, fields.is_settled, end, self._cache, opened, most)
        fields, cache = opened()
        _check_end(end, self._num_rows(fields))
        schema = projection.to_arrow()
        return _Stream(fields, schema, are_settled(schema), end, cache, None, most)

    def _opened(self, projection: Schema, columns: Mapping[int, int]) -> Opened:
        """The fields of a projection; many calls in a row ask for the same, and so does who opens the file again."""
        before = self._opened_before(projection, columns)
        if before is not None:
            return before
        FILE_CACHES.renew(self._cache)
        fields, schema = self._content.fields(projection, columns, self._cache), projection.to_arrow()
        result = Opened(projection, dict(columns), schema, fields, self._num_rows(fields), are_settled(schema))
        self._cache.keep(result)
        return result

    def _opened_before(self, projection: Schema, columns: Mapping[int, int]) -> Opened | None:
        """Return the fields of a projection if they are open."""
        for opened in list(self._cache.opened):
            if opened.projection == projection and opened.columns == columns:
                return opened
        return None

    def _num_rows(self, wanted: list[FieldReader]) -> int:
        return min([column.num_rows for column in wanted]) if wanted else self.num_rows

    def _described(self) -> tuple[Schema, int]:
        with self._blame:
            return self._content.descriptor()

    def _open(self) -> tuple[FileCache, ContentV21 | ContentV20 | ContentLegacy]:
        """Return what is known of the file, and what is in it."""
        match self._version.name:
            case "0.1":
                from lance_core.file.read.v0_1 import ContentLegacy  # noqa: PLC0415 rarely needed

                return FileCache(), ContentLegacy(self._file)
            case "2.0":
                from lance_core.file.read.v2_0 import ContentV20  # noqa: PLC0415 rarely needed

                return FileCache(), ContentV20(Container(self._file))
            case _:
                identity = self._file.identity
                cache = FileCache() if identity is None else FILE_CACHES.find((self._path, identity))
                return cache, ContentV21(Container(self._file, cache.parsed))


def is_cached(file: FileBytes, *, path: str) -> bool:
    """Return whether a file has a cache entry."""
    return file.identity is not None and FILE_CACHES.has((path, file.identity))


def expect_again(file: FileBytes, *, path: str) -> None:
    """Make a cache entry of a file, which is better opened when it is read again."""
    if file.identity is not None:
        FILE_CACHES.find((path, file.identity))


def _check_end(end: int, num_rows: int) -> None:
    if end > num_rows:
        raise InvalidInputError(f"there is no row {end - 1} in a file of {num_rows} rows")


@mutable
class _Stream:
    """Fields that are read from row to row, each once.

    Attributes:
        fields: The fields.
        schema: Of what is read.
        is_settled: See `Opened`.
        end: Row behind the last one.
        cache: Takes the metadata of their pages.
        opened: Opens the fields with a cache for the stream alone; None if they have that.
        most: Bytes of metadata of the file that may be kept; None for as many as there is room for.
    """

    fields: list[FieldReader]
    schema: pa.Schema
    is_settled: bool
    end: int
    cache: FileCache
    opened: Callable[[], tuple[list[FieldReader], FileCache]] | None
    most: int | None

    def passed(self, row: int) -> None:
        """Forget what lies before a row, which is not read again, unless there is room for it or no row is left."""
        if row >= self.end:
            return
        if self.opened is not None:
            if FILE_CACHES.has_room(self.cache, self.most):
                return
            (self.fields, self.cache), self.opened = self.opened(), None
        self.cache.forget(row)
