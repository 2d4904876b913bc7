"""Pages of a B-tree: read some together, and keep those that were asked for last."""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.common.frozen import frozen, replace
from lance_core.encoding.arrow_values import as_mask, offset_dtype
from lance_core.encoding.kernels import distinct, leading_words, numbers_array, scalar, starts_of, view_buffer
from lance_core.errors import CorruptDataError
from lance_core.index.order import Keys, sort_keys
from lance_core.sql.kernels import pc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lance_core.file.read.reader import DataFileReader
    from lance_core.index.scalar.ranges import Side

Int64s: TypeAlias = npt.NDArray[np.int64]

MOST_BYTES = 32 << 20
"""Of the pages that are kept for one segment: some hundred pages of numbers."""


@frozen
class Page:
    """A page, without its nulls.

    Attributes:
        start: Row of its first value.
        values: Its values, ascending.
        keys: Shape (values,), what NumPy compares instead of the values; of text and binary the eight bytes behind what
            all of them begin with, as numbers that have their order.
        ids: Number of the row of each value; None until they were asked for twice.
        first: Key of the first text.
        num_alike: Bytes that all texts begin with.
    """

    start: int
    values: pa.Array
    keys: Keys
    ids: Int64s | None = None
    first: object = None
    num_alike: int = 0

    @property
    def num_bytes(self) -> int:
        """Bytes in memory, about."""
        return self.values.nbytes + self.keys.nbytes + (0 if self.ids is None else self.ids.nbytes)


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


def positions_in(pages: Mapping[int, Page], values: pa.Array, keys: Keys, numbers: Int64s) -> dict[Side, Int64s]:
    """Return for each value the first row of its page that is not less (left), and the first that is greater (right).

    Args:
        pages: Pages by number, ascending.
        values: Shape (values,), values that no page's last one is less than.
        keys: What `sort_keys` returns of them.
        numbers: Shape (values,), the page of each.
    """
    owners = np.array(list(pages)).searchsorted(numbers)
    every = list(pages.values())
    is_text = offset_dtype(values.type) is not None
    heads = _heads(_bytes_of(values), np.array([page.num_alike for page in every])[owners]) if is_text else keys
    order = owners.argsort(kind="stable")
    edges = owners[order].searchsorted(np.arange(len(every) + 1)).tolist()
    lows, highs = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
    for page, (start, end) in zip(every, pairwise(edges), strict=True):
        here = order[start:end]
        wanted = heads[here]
        lows[here], highs[here] = page.keys.searchsorted(wanted, "left"), page.keys.searchsorted(wanted, "right")
    if is_text:
        # Texts before the first of their page need not begin as all others do, so that their heads mean nothing.
        is_before = (keys < np.array([page.first for page in every], object)[owners]).astype(np.bool_)
        lows[is_before] = highs[is_before] = 0
        _search_texts(every, owners, _bytes_of(values), lows, highs)
    firsts = np.array([page.start for page in every])[owners]
    return {"left": firsts + lows, "right": firsts + highs}


def _search_texts(pages: Sequence[Page], owners: Int64s, wanted: pa.Array, lows: Int64s, highs: Int64s) -> None:
    """Find texts among those of their pages that have the same head; changes ``lows`` and ``highs``.

    All texts are searched together, halving what is left of each: to search for one by one takes 25 µs.
    """
    is_open = (lows < highs).nonzero()[0]
    if not len(is_open):
        return
    begins, ends = lows[is_open], highs[is_open]
    open_keys = owners[is_open] << 32 | begins
    spans = distinct(open_keys)
    span = spans.searchsorted(open_keys)
    span_ends = np.empty(len(spans), np.int64)
    span_ends[span] = ends
    span_starts = spans & 0xFFFFFFFF
    parts = zip((spans >> 32).tolist(), span_starts.tolist(), span_ends.tolist(), strict=True)
    texts = _bytes_of(pa.concat_arrays([pages[owner].values[start:end] for owner, start, end in parts]))
    shift = starts_of(span_ends - span_starts)[span] - begins
    # The first text that is greater than another is not less than that with a zero behind it.
    nothing, zero = (scalar(text, wanted.type) for text in (b"", b"\0"))
    wanted = wanted.take(numbers_array(is_open))
    wanted = pa.concat_arrays([wanted, pc.binary_join_element_wise(wanted, nothing, zero)])
    low, high = (np.concatenate([bounds, bounds]) for bounds in (begins + shift, ends + shift))
    while (low < high).any():
        middle = low + high >> 1
        middles = texts.take(numbers_array(np.minimum(middle, len(texts) - 1)))
        goes_on = as_mask(pc.less(middles, wanted)) & (low < high)
        low, high = np.where(goes_on, middle + 1, low), np.where(goes_on, high, middle)
    lows[is_open], highs[is_open] = low[: len(is_open)] - shift, low[len(is_open) :] - shift


def _text_page(start: int, values: pa.Array) -> Page:
    texts = _bytes_of(values)
    first, last = texts[0].as_py(), texts[-1].as_py()
    size = next((at for at, pair in enumerate(zip(first, last, strict=False)) if len(set(pair)) > 1), len(first))
    return Page(start, values, _heads(texts, size), first=sort_keys(values[:1])[0], num_alike=size)


def _bytes_of(texts: pa.Array) -> pa.Array:
    return texts.view(pa.binary() if offset_dtype(texts.type) == np.int32 else pa.large_binary())


def _heads(texts: pa.Array, skipped: int | Int64s) -> npt.NDArray[np.uint64]:
    """Return the eight bytes of each text behind some others as a number; where a text ends, zeros follow."""
    _, offsets, data = texts.buffers()
    edges = np.frombuffer(offsets, offset_dtype(texts.type))[texts.offset : texts.offset + len(texts) + 1]
    starts = edges[:-1].astype(np.int64) + skipped
    return leading_words(view_buffer(data), starts, edges[1:] - starts).byteswap(inplace=True)


def _joined(starts: list[int], ends: list[int]) -> Int64s:
    return np.concatenate([np.arange(*pair) for pair in zip(starts, ends, strict=True)])


def row_numbers(ids: pa.Array, path: str) -> Int64s:
    """Return row ids as numbers.

    Raises:
        CorruptDataError: One is above 2^63.
    """
    numbers = ids.to_numpy(zero_copy_only=False).view(np.int64)
    if len(numbers) and int(numbers.min()) < 0:
        raise CorruptDataError("the B-tree has row ids above 2^63", path=path)
    return numbers
