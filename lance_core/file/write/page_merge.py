"""Put the small pages of many files together, column by column.

A call of numpy costs as much for a small page as for a large one, so the pages of all files are moved into one memory
and decoded together. Values that are places in dictionaries stay so: only the items of the dictionaries are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.encoding.arrow_values import mask_array, settled
from lance_core.encoding.dictionary_encoded import DictionaryEncoded
from lance_core.encoding.kernels import empty, starts_of
from lance_core.encoding.leaves import leaf_paths
from lance_core.encoding.merge_dictionaries import encode_merged
from lance_core.encoding.options import page_options
from lance_core.encoding.pages import RowsPage, encode_leaf
from lance_core.encoding.profiles import profile_of
from lance_core.errors import CorruptDataError, LanceError
from lance_core.file.integrity import Checking
from lance_core.file.read.cache import FileCache
from lance_core.file.read.column import Column
from lance_core.file.read.column_read import ReadOptions
from lance_core.file.read.plan import plan_column
from lance_core.file.source import FileBytes
from lance_core.file.write.page_copy import read_pages
from lance_core.file.write.writer import PAGE_BYTES, rows_of_vectors
from lance_core.format.file.file_metadata import PAGE_ALIGNMENT, Page
from lance_core.format.file.page_layout import encode_layout
from lance_core.format.schema import JSON, arrow_type_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from lance_core.encoding.options import PageOptions
    from lance_core.encoding.repdef import Mask
    from lance_core.encoding.values import Bytes
    from lance_core.file.read.cache import PageCache
    from lance_core.file.write.page_copy import PageSource
    from lance_core.file.write.writer import DataFileWriter
    from lance_core.format.schema import Field, Schema

_GUESSED_BYTES = 16
"""What a value of no fixed width takes at least, until it is seen."""
_CAUTION = 4
"""So many parts of a page are decoded one after the other where nobody knows how large they get."""
_FULL = 0.75
"""A page that is filled to this part is full."""


def merge_pages(
    sources: Sequence[PageSource],
    schema: Schema,
    writer: DataFileWriter,
    *,
    version: str,
    page_bytes: int,
    selected: Mask | None = None,
) -> int:
    """Append the rows of some files, in their order, to another, in pages as large as those of new data.

    Args:
        sources: The files; all of each is in memory.
        schema: Fields that are one leaf each; the sources have their columns in this order.
        writer: Takes the pages.
        version: Version of all files.
        page_bytes: Bytes of Arrow data that make a page.
        selected: Shape (rows of all sources,): False for rows to leave out; None if there are none.

    Returns:
        Rows that were appended.

    Raises:
        CorruptDataError: A file is damaged; which one is not known.
    """
    num_rows = sum(source.num_rows for source in sources) if selected is None else int(np.count_nonzero(selected))
    if not num_rows:
        return 0
    file, columns = _join(sources, schema)
    cache = FileCache().transient()
    merges = [
        _Merge(
            file=file,
            column=column,
            cached=cache.pages(column.number, column.pages, column.first_rows),
            selected=selected,
            options=page_options(column.path, version, profile_of(schema.metadata)),
            page_bytes=page_bytes,
        )
        for column in columns
    ]
    writer.copy_pages([source.pages() for source in merges], num_rows)
    return num_rows


def _join(sources: Sequence[PageSource], schema: Schema) -> tuple[FileBytes, list[Column]]:
    """Return the bytes of all files in one memory, and their columns there."""
    sizes = [-(-source.data_end // PAGE_ALIGNMENT) * PAGE_ALIGNMENT for source in sources]
    bases = starts_of(np.array(sizes, np.int64)).tolist()
    memory: Bytes = empty(bases[-1], np.uint8)
    for source, base in zip(sources, bases, strict=False):
        memory[base : base + source.data_end] = read_pages(source)
    file = FileBytes(_MemoryFile(pa.py_buffer(memory)), when=Checking.OFF)
    return file, [_column(field, number, sources, bases) for number, field in enumerate(schema.fields)]


def _column(field: Field, number: int, sources: Sequence[PageSource], bases: Sequence[int]) -> Column:
    """Return a column of all files."""
    (path,) = leaf_paths(field)
    is_json = field.logical_type == JSON
    pages = tuple(
        [
            Page(
                buffers=tuple([(base + start, size) for start, size in page.buffers]),
                num_rows=page.num_rows,
                first_row=page.first_row,
                layout=page.layout,
            )
            for source, base in zip(sources, bases, strict=False)
            for page in source.columns[number]
        ]
    )
    return Column(
        number,
        path,
        pa.large_binary() if is_json else arrow_type_of(field),
        is_dictionary=False,
        is_plain=not is_json,
        is_simple=False,
        pages=pages,
        first_rows=starts_of(np.array([page.num_rows for page in pages], np.int64)),
    )


@frozen(kw_only=True)
class _Merge:
    """One column; attributes as arguments of `merge_pages`.

    Attributes:
        file: Memory with its pages.
        column: The column.
        cached: Its cache entry.
        selected: Which of its rows.
        options: How to write.
        page_bytes: Size of pages.
    """

    file: FileBytes
    column: Column
    cached: PageCache
    selected: Mask | None
    options: PageOptions
    page_bytes: int

    def pages(self) -> Iterator[tuple[Page, Sequence[bytes | Bytes]]]:
        """New pages and their buffers."""
        for page in self._encoded():
            layout = encode_layout(page.page.layout)
            yield Page(buffers=(), num_rows=page.num_rows, first_row=0, layout=layout), page.page.buffers

    def _encoded(self) -> Iterator[RowsPage]:
        num_rows, step = self.column.num_rows, self._step()
        waiting: list[pa.Array | DictionaryEncoded] = []
        num_bytes = 0
        for low in range(0, num_rows, step):
            parts = self._read(range(low, min(low + step, num_rows)))
            waiting += parts
            num_bytes += sum(map(_num_bytes, parts))
            if num_bytes >= self.page_bytes * _FULL:
                yield from self._encode(waiting, num_bytes)
                waiting, num_bytes = [], 0
        if waiting:
            yield from self._encode(waiting, num_bytes)

    @property
    def _stored_bytes(self) -> float:
        """Bytes of a row as it is stored."""
        return sum(size for page in self.column.pages for _, size in page.buffers) / max(1, self.column.num_rows)

    def _step(self) -> int:
        """Return rows that are decoded together."""
        kind = self.column.kind
        vectors = rows_of_vectors(kind) if self.page_bytes == PAGE_BYTES else None
        if vectors is not None:
            return vectors
        try:
            return max(1, min(self.page_bytes * 8 // max(1, kind.bit_width), self.page_bytes))
        except ValueError:  # no fixed width
            return max(1, int(self.page_bytes / _CAUTION / max(self._stored_bytes, _GUESSED_BYTES)))

    def _read(self, rows: range) -> list[pa.Array | DictionaryEncoded]:
        """Those of some rows that are kept."""
        options = ReadOptions(keeps_dictionaries=True)
        try:
            parts = self.file.run(plan_column(self.column, self.cached, rows, options))
        except LanceError:
            raise
        except (ValueError, IndexError, OverflowError, MemoryError, pa.ArrowException) as error:
            raise CorruptDataError(f"a file is damaged: {error}") from error
        if self.selected is None:
            return list(parts)
        bounds = rows.start + starts_of(np.array([len(part) for part in parts], np.int64))
        return [
            _pick(part, self.selected[low:high]) for part, low, high in zip(parts, bounds[:-1], bounds[1:], strict=True)
        ]

    def _encode(self, parts: list[pa.Array | DictionaryEncoded], num_bytes: int) -> Iterator[RowsPage]:
        count = sum(map(len, parts))
        dictionary_parts = [part for part in parts if isinstance(part, DictionaryEncoded)]
        if len(dictionary_parts) == len(parts):
            most_bytes = count * self._stored_bytes
            page = encode_merged(
                dictionary_parts, self.options, most_bytes=most_bytes, may_lack=self.selected is not None
            )
            if page is not None:
                yield RowsPage(count, page)
                return
        arrays = [part.values() if isinstance(part, DictionaryEncoded) else part for part in parts]
        whole = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
        num_pages = max(1, round(num_bytes / self.page_bytes)) if rows_of_vectors(whole.type) is None else 1
        step = -(-count // num_pages)
        for start in range(0, count, step):
            yield from encode_leaf(self.column.path, whole.slice(start, step), self.options)


def _num_bytes(part: pa.Array | DictionaryEncoded) -> int:
    """Return bytes of values as an Arrow array; guessed for places in dictionaries."""
    if isinstance(part, DictionaryEncoded):
        return part.items.nbytes * len(part) // max(1, len(part.items))
    return part.nbytes


def _pick(part: pa.Array | DictionaryEncoded, mask: Mask) -> pa.Array | DictionaryEncoded:
    if mask.all():
        return part
    if isinstance(part, DictionaryEncoded):
        return DictionaryEncoded(part.items, part.indices[mask], None if part.validity is None else part.validity[mask])
    return settled(part).filter(mask_array(mask))


class _MemoryFile:
    """A file in memory; see `lance_core.store.base.MappedReader`."""

    def __init__(self, buffer: pa.Buffer) -> None:
        self.mapped = buffer
        self.size = buffer.size

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
        for start, end in ranges:
            if not 0 <= start <= end <= self.size:
                raise CorruptDataError(f"bytes {start} to {end} are not in a file of {self.size} bytes")
        return [self.mapped.slice(start, end - start) for start, end in ranges]

    def announce(self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], /) -> None:
        """Everything is at hand."""

    def close(self) -> None:
        """Nothing to release."""
