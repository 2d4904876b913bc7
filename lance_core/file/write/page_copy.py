"""Copy pages from data files into another, without a look at the values.

Pages hold no positions of anything outside of them, so they can be moved between files of the same version. Files are
taken in groups that fit into memory, each read at once; the pages of one column of a group come to lie side by side,
so that a column is read with few requests afterwards.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from lance_core.common.frozen import frozen
from lance_core.errors import CorruptDataError, LanceError
from lance_core.file.container import Container
from lance_core.file.source import FileBytes
from lance_core.format.file.file_version import decode_footer_version
from lance_core.format.file.footer import decode_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lance_core.encoding.plans import Ranges
    from lance_core.encoding.values import Bytes
    from lance_core.file.write.writer import DataFileWriter
    from lance_core.format.file.file_metadata import Page
    from lance_core.store.base import ObjectReader


@frozen(kw_only=True)
class PageSource:
    """A file whose pages can be copied.

    Attributes:
        file: The file.
        path: Its name, for error messages.
        columns: For each field its pages.
        num_rows: Rows of each field.
    """

    file: FileBytes
    path: str
    columns: tuple[tuple[Page, ...], ...]
    num_rows: int

    @property
    def data_end(self) -> int:
        """Position behind all page buffers."""
        return max(
            (start + size for pages in self.columns for page in pages for start, size in page.buffers), default=0
        )


def open_pages(source: ObjectReader, *, path: str, version: str, columns: Sequence[int]) -> PageSource | None:
    """Look whether the pages of a file can be copied.

    Args:
        source: The file.
        path: Its name, for error messages.
        version: Version of the file that they are copied to.
        columns: Number of the column of each field.

    Returns:
        None if the file is of another version, or if its columns are more than their pages.

    Raises:
        CorruptDataError: The file is damaged.
    """
    file = FileBytes(source)
    file_version = decode_footer_version(*decode_version(memoryview(file.tail), source.size))
    if file_version.name != version:
        return None
    container = Container(file)
    pages = container.plain_pages(columns)
    if pages is None:
        return None
    rows = {sum(page.num_rows for page in pages[number]) for number in columns}
    if len(rows) != 1:
        raise CorruptDataError(f"the columns have pages for {sorted(rows)} rows", path=path)
    return PageSource(
        file=file,
        path=path,
        columns=tuple(pages[number] for number in columns),
        num_rows=rows.pop(),
    )


def copy_pages(sources: Sequence[PageSource], writer: DataFileWriter, *, max_bytes: int) -> None:
    """Append the rows of some files, in their order, to another.

    Args:
        sources: Each with at least one column.
        writer: Takes the pages.
        max_bytes: A file of at most so many bytes is read with one request, a larger one page by page.
    """
    # What is copied gets new checksums, so it is held against the old ones here.
    loaded = [(source, read_pages(source) if source.data_end <= max_bytes else None) for source in sources]
    num_columns = len(sources[0].columns)
    writer.copy_pages(
        [chain.from_iterable([_pages(*source, column) for source in loaded]) for column in range(num_columns)],
        sum(source.num_rows for source in sources),
    )


def read_pages(source: PageSource) -> Bytes:
    """Return all bytes of a file up to the end of its pages, held against their checksums.

    Raises:
        CorruptDataError: They are not what was written.
    """
    end = source.data_end
    return _read(source, [(0, end)])[0] if end else np.empty(0, np.uint8)


def _read(source: PageSource, ranges: Ranges) -> list[Bytes]:
    try:
        return [_bytes(buffer) for buffer in source.file.read(ranges)]
    except LanceError as error:
        error.path = error.path or source.path
        raise


def _pages(source: PageSource, whole: Bytes | None, column: int) -> Iterator[tuple[Page, list[Bytes]]]:
    """Yield the pages of a column with their buffers; ``whole`` is the file up to the end of its pages, if at hand."""
    for page in source.columns[column]:
        ranges = [(start, start + size) for start, size in page.buffers]
        yield page, _read(source, ranges) if whole is None else [whole[start:end] for start, end in ranges]


def _bytes(buffer: object) -> Bytes:
    return np.frombuffer(buffer, np.uint8)  # type: ignore[call-overload]
