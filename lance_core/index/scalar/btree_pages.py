"""Pages of a B-tree: read some together, and keep those that were asked for last."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.encoding.arrow_values import as_mask, offset_dtype
from lance_core.encoding.kernels import leading_words, view_buffer
from lance_core.errors import CorruptDataError
from lance_core.index.order import Keys, sort_keys
from lance_core.sql.kernels import pc

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_core.file.read.reader import DataFileReader
    from lance_core.index.scalar.ranges import Side

Int64s: TypeAlias = npt.NDArray[np.int64]

_SIDES: tuple[Side, Side] = "left", "right"
MOST_BYTES = 32 << 20
"""Of the pages that are kept for one segment: some hundred pages of numbers."""


@frozen
class Page:
    """A page, without its nulls.

    Attributes:
        start: Row of its first value.
        values: Its values, ascending.
        keys: What NumPy compares instead of the values; None for text and binary, which are compared one by one.
        ids: Number of the row of each value; None until they were asked for twice.
        beginning: Bytes that all texts begin with.
        heads: Shape (values,), the eight bytes behind it of each text, as numbers that have their order.
    """

    start: int
    values: pa.Array
    keys: Keys | None
    ids: Int64s | None = None
    beginning: bytes = b""
    heads: npt.NDArray[np.uint64] | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes in memory, about."""
        return self.values.nbytes + sum(extra.nbytes for extra in (self.ids, self.heads) if extra is not None)

    def positions(self, keys: Keys, *sides: Side) -> list[Int64s]:
        """Return the rows where keys stand in order, for each side; these are as for `numpy.searchsorted`."""
        if self.keys is not None:
            return [self.start + np.searchsorted(self.keys, keys, side=side) for side in sides]
        texts, spans = _Texts(self.values), [side.tolist() for side in self._spans(keys)]
        positions: list[Int64s] = []
        for side in sides:
            bisect = bisect_left if side == "left" else bisect_right
            indices = [bisect(texts, key, low, high) for key, low, high in zip(keys, *spans, strict=True)]
            positions.append(self.start + np.array(indices, np.int64))
        return positions

    def _spans(self, keys: Keys) -> tuple[Int64s, Int64s]:
        """Return between which values texts stand, judged by the bytes behind what all values of the page begin with.

        To make an object of a value takes 2 µs, and to search for one of 4,096 values makes 12 of them.
        """
        wanted = _bytes_of(pa.array(keys, self.values.type))
        is_alike = as_mask(pc.starts_with(wanted, pattern=self.beginning))
        heads = _heads(wanted, len(self.beginning))
        assert self.heads is not None  # noqa: S101 for the type checker: pages of texts have them
        lows, highs = (np.searchsorted(self.heads, heads, side=side) for side in _SIDES)
        return np.where(is_alike, lows, 0), np.where(is_alike, highs, len(self.values))


class PageCache:
    """Reads pages of a B-tree.

    Args:
        pages: The file of sorted values and their rows.
        path: Its name, for errors.
        num_nulls: Nulls, which come first.
        rows_per_page: Rows in each page but the last.
    """

    def __init__(self, pages: DataFileReader, path: str, *, num_nulls: int, rows_per_page: int) -> None:
        self._file = pages
        self._path = path
        self._num_nulls = num_nulls
        self._rows_per_page = rows_per_page
        self._lock = Lock()
        self._pages: OrderedDict[int, Page] = OrderedDict()
        self._num_bytes = 0
        self._missed = set[int]()
        self._asked = set[int]()

    def misses(self, numbers: Iterable[int]) -> int:
        """Count pages that are asked for the first time; a page is worth keeping from its second time on."""
        with self._lock:
            new = set(numbers) - self._missed - self._pages.keys()
            self._missed |= new
        return len(new)

    def get(self, numbers: Iterable[int]) -> dict[int, Page]:
        """Return pages; those that are not kept are read together.

        Raises:
            CorruptDataError: A page is damaged.
        """
        with self._lock:
            pages = {number: self._pages.get(number) for number in numbers}
            for number, page in pages.items():
                if page is not None:
                    self._pages.move_to_end(number)
        missing = [number for number, page in pages.items() if page is None]
        read = self._read(sorted(missing)) if missing else {}
        return {number: page if page is not None else read[number] for number, page in pages.items()}

    def take(self, columns: list[str], rows: Int64s, *, copies: bool = False) -> list[pa.Array]:
        """Read columns of some rows; ``copies`` is as for `DataFileReader.take`."""
        file = self._file
        return file.take(file.schema.select(columns), file.column_numbers, rows, copies=copies).columns

    def ids(self, starts: Int64s, ends: Int64s) -> Int64s | None:
        """Return the row numbers of ranges of values; None if reading only these is cheaper.

        A look-up needs the values of a page to find its own, but few row numbers: those of the whole page are read when
        it is asked for some of them a second time.
        """
        numbers = (starts // self._rows_per_page).tolist()
        if numbers != ((ends - 1) // self._rows_per_page).tolist():
            return None
        with self._lock:
            pages = {number: page for number in numbers if (page := self._pages.get(number)) is not None}
            if not all(number in pages for number in numbers):
                return None
            lacking = [number for number, page in pages.items() if page.ids is None]
            is_new = not self._asked.issuperset(lacking)
            self._asked.update(lacking)
        if lacking:
            if is_new:
                return None
            pages |= self._with_ids({number: pages[number] for number in lacking})
        ids: list[Int64s] = []
        for number, start, end in zip(numbers, starts.tolist(), ends.tolist(), strict=True):
            page = pages[number]
            assert page.ids is not None  # noqa: S101 for the type checker
            ids.append(page.ids[start - page.start : end - page.start])
        return np.concatenate(ids)

    def _read(self, numbers: list[int]) -> dict[int, Page]:
        """Read the values of pages together, which takes an eighth of the time of reading them one by one."""
        size = self._rows_per_page
        starts = [max(number * size, self._num_nulls) for number in numbers]
        ends = [min((number + 1) * size, self._file.num_rows) for number in numbers]
        (values,) = self.take(["values"], _joined(starts, ends))
        if values.null_count:
            raise CorruptDataError("a page of the B-tree has nulls behind values", path=self._path)
        # A slice would keep the others alive.
        is_alone = len(numbers) == 1
        keys = sort_keys(values) if offset_dtype(values.type) is None else None
        read: dict[int, Page] = {}
        at = 0
        for number, start, end in zip(numbers, starts, ends, strict=True):
            part = slice(at, at + end - start)
            at = part.stop
            texts = values if is_alone else pa.concat_arrays([values.slice(part.start, end - start)])
            read[number] = _text_page(start, texts) if keys is None else Page(start, texts, keys[part].copy())
        self._keep(read)
        return read

    def _with_ids(self, pages: dict[int, Page]) -> dict[int, Page]:
        """Read the row numbers of pages together."""
        starts = [page.start for page in pages.values()]
        ends = [page.start + len(page.values) for page in pages.values()]
        (ids,) = self.take(["ids"], _joined(starts, ends))
        edges = np.cumsum([len(page.values) for page in pages.values()])[:-1]
        parts = zip(pages.items(), np.split(row_numbers(ids, self._path), edges), strict=True)
        read = {number: replace(page, ids=part.copy()) for (number, page), part in parts}
        self._keep(read)
        return read

    def _keep(self, read: dict[int, Page]) -> None:
        with self._lock:
            for number, page in read.items():
                before = self._pages.get(number)
                self._num_bytes += page.num_bytes - (0 if before is None else before.num_bytes)
                self._pages[number] = page
            while self._num_bytes > MOST_BYTES and len(self._pages) > 1:
                self._num_bytes -= self._pages.popitem(last=False)[1].num_bytes


def _text_page(start: int, values: pa.Array) -> Page:
    texts = _bytes_of(values)
    first, last = (texts[0].as_py(), texts[-1].as_py()) if len(texts) else (b"", b"")
    size = next((at for at, pair in enumerate(zip(first, last, strict=False)) if len(set(pair)) > 1), len(first))
    return Page(start, values, None, beginning=first[:size], heads=_heads(texts, size))


def _bytes_of(texts: pa.Array) -> pa.Array:
    return texts.view(pa.binary() if offset_dtype(texts.type) == np.int32 else pa.large_binary())


def _heads(texts: pa.Array, skipped: int) -> npt.NDArray[np.uint64]:
    """Return the eight bytes of each text behind some others as a number; where a text ends, zeros follow."""
    _, offsets, data = texts.buffers()
    edges = np.frombuffer(offsets, offset_dtype(texts.type))[texts.offset : texts.offset + len(texts) + 1]
    starts = edges[:-1].astype(np.int64) + skipped
    return leading_words(view_buffer(data), starts, edges[1:] - starts).byteswap(inplace=True)


def _joined(starts: list[int], ends: list[int]) -> Int64s:
    return np.concatenate([np.arange(*pair) for pair in zip(starts, ends, strict=True)])


class _Texts:
    """Values as a sequence of Python objects, made when they are looked at."""

    def __init__(self, values: pa.Array) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, position: int) -> Any:
        try:
            return self._values[position].as_py()
        except UnicodeDecodeError as error:
            raise CorruptDataError("an index has text that is not valid UTF-8") from error


def row_numbers(ids: pa.Array, path: str) -> Int64s:
    """Return row ids as numbers.

    Raises:
        CorruptDataError: One is above 2^63.
    """
    numbers = ids.to_numpy(zero_copy_only=False).view(np.int64)
    if len(numbers) and int(numbers.min()) < 0:
        raise CorruptDataError("the B-tree has row ids above 2^63", path=path)
    return numbers
