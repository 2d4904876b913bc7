"""All thresholds of reading, and what is decided by them; pages have some more in `lance_core.encoding.strategy`.

Two kernels decode rows. The scalar kernel picks values one by one with plain numbers: its price grows with each value.
The vector kernel decodes with arrays, for all columns that are encoded alike at one go: a step costs as much for one
value as for a thousand. Figures name the row of benchmarks/README.md that they serve, or what was measured.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_core.encoding.values import Int64s

# --- which kernel ---

MOST_SCALAR_ROWS = 8
"""Rows up to which values are read one by one whatever the number of columns (row 21, "take 1"). Of 500 columns both
kernels take the same CPU time at 8 rows, of 19 columns at 19."""

MOST_SCALAR_ROWS_OF_FEW, MOST_SCALAR_VALUES = 24, 256
"""Likewise for few columns: rows, and rows times columns. CPU time of the scalar kernel, the vector kernel's = 1:
0.82 for 24 rows of one number, 0.85 of text; 0.91 for 21 rows of twelve columns; 0.77, 0.88 and 1.06 for 13, 16 and 21
rows of 19 columns; 0.87 and 1.00 for 20 and 24 rows of five columns of lists and structs, which have ten leaves."""

MOST_SCALAR_NEIGHBOURS = 512
"""Likewise rows times columns for consecutive rows, which mostly share a chunk: 0.63 to 0.66 for ten rows of 26 columns
of 22 kinds, 0.77 and 0.89 for 16 and 24 rows of 19 columns, 0.96 and 1.2 for 8 and 12 rows of 60 columns of numbers."""

MOST_DIRECT_ROWS = 1 << 10
"""Scattered rows up to which values that lie one after the other are gathered for all columns at one go, and constants
are repeated one by one (rows 22 and 25): above, all columns together would leave the cache."""

MOST_BATCHED_ROWS = 1 << 15
"""Consecutive rows up to which columns that are alike share their steps (row 26, "scan of 500 small fragments"):
below, a step costs more than the values; above, what is decoded together leaves the cache."""

MOST_BATCHED_MANY_ROWS, MANY_COLUMNS = 1 << 16, 32
"""Likewise for many columns, each a field of its own (row 25, "500 columns: scan"). So many columns also gather the
values of a single row that lie one after the other: 10 ms instead of 13 for a row of 500 columns."""

SPARSE_SHARE = 8
"""Consecutive rows, and scattered ones of lists, are picked value by value if their chunks hold this many times as many
(row 22, neighbours). 100 and 10,000 of 12,000 rows of long lists take 6 and 104 ms instead of 8 and 228."""

PICKED_ITEMS_SHARE = 1 / 4
"""Share of the items between the first and the last one of scattered lists from which on all of them are read and
picked, in files whose lists are columns of their own ("take 10k" of long lists). CPU time, one by one = 1, at 1/8, 1/4
and 1/2: up to 1.5, 0.8 to 1.0 and 0.7 for integers in lists of 2 to 500; 0.4 to 0.7, 0.3 to 0.6 and 0.2 to 0.45 for
strings; 0.7 to 0.8, 0.3 to 0.6 and 0.2 to 0.45 for structs of both."""

MOST_CONSECUTIVE_PICKED = 64
"""Consecutive rows that a take reads as scattered ones: the chunks that hold them hold many more (row 21)."""

FETCHED_ROWS_SHARE = 1 / 16
"""Share of the rows of a fragment below which they are fetched one by one, not picked while all are decoded (merges,
row 46, "take 10k").
Milliseconds one by one and picked, of a million rows at 1/32, 1/16 and 1/8: 2 and 4, 4 and 4, 7 and 4 for integers; 11
and 14, 12 and 16, 16 and 16 for strings; 27 and 34, 31 and 36, 40 and 38 for four columns."""

BYTES_OF_A_CHUNK, BYTES_OF_A_REQUEST = 1 << 12, 48 << 10
"""Bytes, in memory and in a store, that are read as fast as a row that is found by itself: so some rows of a range are
asked for alone if those between them have more. Milliseconds alone and with all between, CPU: 3.0 and 12.7 for a tenth
of 20,000 vectors of 3 KB, 1.9 and 6.9 of 400 blobs, 5.8 and 15.6 for an eighth of 2,000 rows of two long lists."""

BYTES_OF_A_PICKED_VALUE = 1 << 8
"""Likewise for takes of more than that share, of each column on average (row 46, "take 10k"). CPU time, one by one = 1,
at 1/2, 1/8 and 1/15: 0.2, 0.8 and 1.0 for taxi, 0.5, 0.7 and 0.8 for orders; 1.8, 1.6 and 2.2 for vectors of 3 KB, 1.3
to 1.4 for long lists, which are therefore read one by one."""

TOUCHED_SHARE = 7 / 8
"""Share of the chunks of a page from which on a store is asked for all of it at once, not for the chunk table first
("filter 1 %, 50 fragments" of benchmarks/far.py: 314 requests and 147 MB instead of 602 and 160)."""

# --- how much is decoded together ---

MAX_GROUP_BYTES = 1 << 25
"""Bytes of neighbouring pages of a column that are decoded at one go (row 15, scans)."""

MAX_GROUP_ITEMS = 1 << 16
"""Items of the dictionaries of such pages: more would not stay in the cache while values are looked up."""

MAX_LOOKED_UP_ITEMS = 1 << 14
"""Items of dictionaries of several pages that are joined to look up scattered rows (row 23, "take 10,000")."""

MOST_TOGETHER, MOST_COMPRESSED_TOGETHER = 1 << 17, 1 << 21
"""Values of a batch that takes no further column: what is decoded together should stay in the cache (row 25). And
bytes of compressed chunks of scattered rows, which are decompressed as a whole."""

FEWEST_PAGES_OF_A_RUN, MOST_ROWS_OF_A_RUN_PAGE, LEAST_SHARE_OF_A_RUN_PAGE = 2, 1 << 14, 1 / 16
"""Pages of one leaf in several files that are decoded as one: their number, the rows of each, and the share of these
that is wanted (row 26, "scan of 500 small fragments"). Read page by page, a stream of files of 10,000 rows of taxi
takes 1.5 times as long, 1.7 times if nothing is known of them; one of files of 30,000 rows takes an eighth less."""

MOST_ROWS_OF_A_WHOLE_PAGE = 1 << 9
"""Rows of such a page up to which any number of them is read so."""

# --- the cache ---

MOST_CACHED_FILES = 512
MOST_CACHED_BYTES = 3 << 25
"""Chunk tables, dictionaries and opened columns of all files together: 96 MiB (row 24, "open, take 100"). Those of 40
files of 1,000 columns take 76: with 32 MiB each read opened all of them anew (pylance keeps 1 GiB). Those of 160 files
of taxi take 36: with 64 files at most, a take of 1,000 rows cost 2.5 times as much (row 47)."""

MOST_STREAMED_BYTES, MOST_BYTES_OF_A_STREAMED_COLUMN = 1 << 22, 1 << 13
"""Likewise of one file that is streamed, and as far as it has so many columns; more is forgotten once its rows are
passed (row 29, memory). All files together keep four times the former."""

MAX_OPENED = 4
"""Projections of a file whose fields stay open."""

MAX_JOINED = 8
"""Groups of pages of a column that stay put together."""

_JOIN_GROWTH = 2
"""Pages are joined once more when so many times as many are known, or all: in the end each was copied twice."""

# --- windows of scans ---

WINDOW_BYTES = 1 << 24
"""Decoded bytes of all columns together that a scan holds, unless one batch needs more (row 29, memory)."""

WINDOW_BYTES_OF_A_COLUMN, MOST_WINDOW_BYTES = 3 << 16, 9 << 23
"""And at least so many bytes of each column on average, up to so many of all (row 46, "stream"): in windows of two
thirds as many bytes streams of 500 and 1,000 columns take a fifth to a third more CPU time. In larger ones those of
1,000 columns in many files would need more than the 128 MiB of row 48."""

FEWEST_BATCHES_OF_A_COPY = 4
"""Batches of a window larger than `WINDOW_BYTES` of which the last one is copied: whoever holds it while the next one
is decoded does not hold the whole window. A stream of 1,000 columns takes 60 MiB less."""

LAST_WINDOW_SHARE = 8
"""The last window takes rows up to this part of its size more, rather than leave them to a window of their own, which
would cost as many steps: a streamed scan of 60,000 orders in windows of 57,344 takes a sixth less CPU time."""

COLUMN_WINDOW_BYTES = 1 << 23
"""Likewise of one column, whose strings need several times as much on the way. With half of it a stream of texts takes
a quarter more CPU time, and as much memory: columns of so few rows are decoded together. With a quarter more it takes
30 MiB more (rows 26, "filtered count", and 29)."""

KEPT_WINDOW_BYTES, KEPT_COLUMN_WINDOW_BYTES = 1 << 26, 1 << 25
"""Likewise for reads that keep all rows: larger steps are cheaper (row 18)."""

BYTES_OF_A_CUT = 1 << 16
"""Bytes that may be copied rather than cut a batch in two, for each column: slices of all cost as much (long lists)."""

KEPT_BYTES_OF_A_COLUMN = 1 << 19
"""And at least so many bytes of each column on average: a step of a column costs as much as 100 KiB of its values."""

CAUTION = 8
"""The first window is so much smaller: what is compressed may be much larger than it looks."""

_RECENT_SCANS = 8
"""Projections of which the bytes of their rows are remembered."""

GUESSED_STRING_BYTES = 16
LEVELS_SHARE = 4
"""What the values of lists take with their levels, which are unpacked beside them."""

# --- requests ---

MOST_HELD = 1 << 26
"""Stored bytes of all columns that a scan of a store holds at the same time, as far as the next two allow (row 30)."""

MOST_OF_A_COLUMN = 1 << 25
"""Larger pages are cut. Few are larger, and what lies in one part is not copied."""

MOST_FETCHED_TOGETHER = 1 << 24
"""Smaller pages are fetched together up to this: one request."""

LEAST_OF_A_COLUMN = 1 << 19
"""With less in a request an object store would be waited for more than read."""

# --- rows of several files ---

READ_AHEAD = 128
"""Ranges that the disk has to do when one waits for others. A read that asks for many more waits while asking."""

MOST_FETCHED_BYTES, MOST_FETCHED_ROWS = 1 << 22, 1 << 19
"""Stored bytes of a column of one file, and rows of all files, that a condition on one column decodes at one go
("count 1 %" and "delete 1 %, 50 fragments" of benchmarks/far.py)."""

MOST_JOINED_ROWS, MOST_JOINED_FILE_BYTES, MOST_JOINED_BYTES = 1 << 9, 1 << 19, 1 << 26
"""Rows of each file, bytes of these, and bytes of copies: with more the steps of a file cost little beside its values,
and a mapped file needs no memory. CPU time, file by file = 1: 40 files of taxi 0.4 with 100 rows of each, 0.6 with 750;
8 files 0.9 with 125, 1.1 with 500; vectors of 3 KB 0.6 with 25 rows of each, 0.7 with 100, 1.0 with 250. Many columns
of a file are read together already: 40 rows of each of ten files 0.8 of ten columns, 1.4 of forty, 1.9 of 320."""


def is_scalar(num_rows: int, num_columns: int, *, are_neighbours: bool = False) -> bool:
    """Return whether so many scattered or consecutive rows of so many columns are cheaper to read value by value."""
    if num_rows <= MOST_SCALAR_ROWS:
        return True
    most = MOST_SCALAR_NEIGHBOURS if are_neighbours else MOST_SCALAR_VALUES
    return num_rows <= MOST_SCALAR_ROWS_OF_FEW and num_rows * num_columns <= most


def gathers_values(num_columns: int, *, is_scalar: bool) -> bool:
    """Return whether values that lie one after the other are gathered for all columns.

    For a handful of rows of few columns the scalar kernel takes fewer steps: 975 calls, not 1,015, for a row of taxi.
    """
    return not is_scalar or num_columns >= MANY_COLUMNS


def is_batched(rows: range | Int64s, num_leaves: int, num_alike: int) -> bool:
    """Return whether the columns of a field share their steps with those of others.

    Args:
        rows: The rows.
        num_leaves: Columns of the field.
        num_alike: Fields of one column each.
    """
    num_rows = len(rows)
    if not isinstance(rows, range) or num_rows <= MOST_BATCHED_ROWS:
        return True
    return num_leaves == 1 and num_alike >= MANY_COLUMNS and num_rows <= MOST_BATCHED_MANY_ROWS


def is_selected_late(num_rows: int) -> bool:
    """Return whether some of so many consecutive rows are picked when all of them are decoded."""
    return num_rows <= MOST_BATCHED_ROWS


def is_sparse(num_rows: int, num_held: int) -> bool:
    """Return whether consecutive rows, or rows of lists, are picked out of their chunks, which hold so many."""
    return num_rows * SPARSE_SHARE < num_held


def is_picked_from_range(num_items: int, span: int) -> bool:
    """Return whether so many scattered items of lists, which span so many, are picked out of all of them."""
    return num_items >= span * PICKED_ITEMS_SHARE


def are_fetched(num_rows: int, span: int) -> bool:
    """Return whether rows that span so many are fetched one by one, rather than picked out of all of them."""
    return num_rows < span * FETCHED_ROWS_SHARE


def are_apart(num_selected: int, num_rows: int, row_bytes: float, bytes_beside: int) -> bool:
    """Return whether some of consecutive rows are read by themselves, because others have so many stored bytes."""
    return num_selected * (row_bytes + bytes_beside) < num_rows * row_bytes


def are_read_whole(num_touched: int, num_chunks: int) -> bool:
    """Return whether a page is fetched whole for rows that touch so many of its chunks."""
    return num_touched >= num_chunks * TOUCHED_SHARE


def streamed_bytes(num_columns: int) -> int:
    """Return how many bytes of what is known of a file of so many columns a stream keeps."""
    return max(MOST_STREAMED_BYTES, MOST_BYTES_OF_A_STREAMED_COLUMN * num_columns)


def fills_batch(num_rows: int, num_bytes: int) -> bool:
    """Return whether a batch of so many rows and compressed bytes takes no further column."""
    return num_rows >= MOST_TOGETHER or num_bytes >= MOST_COMPRESSED_TOGETHER


def fits_group(num_bytes: int, num_items: int) -> bool:
    """Return whether pages of so many bytes and items of dictionaries are decoded at one go."""
    return num_bytes <= MAX_GROUP_BYTES and num_items <= MAX_GROUP_ITEMS


def is_in_run(num_wanted: float, num_rows: int) -> bool:
    """Return whether so many rows of the only page of a file are read with those of other files as one page."""
    least = 0 if num_rows <= MOST_ROWS_OF_A_WHOLE_PAGE else num_rows * LEAST_SHARE_OF_A_RUN_PAGE
    return num_wanted >= least and fits_run_pages(num_rows)


def fits_run_pages(num_rows: int) -> bool:
    """Return whether a page of so many rows may be read with those of other files as one page."""
    return num_rows <= MOST_ROWS_OF_A_RUN_PAGE


def pays_to_join(num_alike: int, num_joined: int) -> bool:
    """Return whether to join the chunk tables of pages again, of which some are joined already."""
    return num_alike >= _JOIN_GROWTH * num_joined


def are_joined(num_rows: int, num_files: int, widths: list[float], *, have_lists: bool, are_small: bool) -> bool:
    """Return whether so many rows of several files are read at one go: neither a handful nor many of large ones.

    Pages of lists are not put together. A few rows of each file are then cheaper value by value, by a factor of four.
    """
    rows_of_each = num_rows // num_files
    if is_scalar(num_rows, len(widths)):
        return False
    if are_small:
        return True
    if len(widths) > MANY_COLUMNS or (have_lists and is_scalar(rows_of_each, len(widths))):
        return False
    return rows_of_each <= MOST_JOINED_ROWS and rows_of_each * sum(widths) <= MOST_JOINED_FILE_BYTES


def is_consecutive(num_rows: int, span: int) -> bool:
    """Return whether a take of rows that span so many is read as a range."""
    return span == num_rows > MOST_CONSECUTIVE_PICKED


def is_dense(num_rows: int, span: int, widths: list[float]) -> bool:
    """Return whether a take of rows that span so many picks them out of all of these; widths as of `_fitting_rows`."""
    return not are_apart(num_rows, span, sum(widths) / max(1, len(widths)), BYTES_OF_A_PICKED_VALUE)


def window_rows(widths: list[float], batch_size: int) -> int:
    """Return the rows that a scan decodes at once; arguments as of `_fitting_rows`."""
    num_bytes = max(WINDOW_BYTES, min(WINDOW_BYTES_OF_A_COLUMN * len(widths), MOST_WINDOW_BYTES))
    return _fitting_rows(widths, batch_size, num_bytes, COLUMN_WINDOW_BYTES)


def kept_window_rows(widths: list[float], batch_size: int) -> int:
    """Return the rows that a read that keeps all rows decodes at once."""
    num_bytes = max(KEPT_WINDOW_BYTES, KEPT_BYTES_OF_A_COLUMN * len(widths))
    return _fitting_rows(widths, batch_size, num_bytes, KEPT_COLUMN_WINDOW_BYTES)


def _fitting_rows(widths: list[float], batch_size: int, num_bytes: int, column_bytes: int) -> int:
    """Return whole batches of rows that need so many bytes in all columns together, and in each."""
    if not sum(widths):
        return batch_size
    rows = min(num_bytes / sum(widths), column_bytes / max(widths))
    return max(1, int(rows) // batch_size) * batch_size


def is_left_alone(num_bytes: int, num_batches: int) -> bool:
    """Return whether the last batch of a window of so many decoded bytes and batches is copied out of it."""
    return num_bytes > 2 * WINDOW_BYTES and num_batches >= FEWEST_BATCHES_OF_A_COPY


def pays_to_cut(num_more: int, arrays: list[list[pa.Array]]) -> bool:
    """Return whether so many more batches cost less than to put the arrays of fields together."""
    num_copied = sum([array.nbytes for field in arrays if len(field) > 1 for array in field])
    return num_more * len(arrays) * BYTES_OF_A_CUT <= num_copied


def request_bytes(num_columns: int) -> int:
    """Return the stored bytes of one of so many columns that a scan of a store asks for at once.

    As many are on their way while these are decoded.
    """
    return min(MOST_OF_A_COLUMN, max(LEAST_OF_A_COLUMN, MOST_HELD // 2 // max(1, num_columns)))


def window_end(low: int, num_rows: int, end: int, batch_size: int) -> int:
    """Return the row behind a window; those that follow are as large, so that each fits the memory of the one before.

    Args:
        low: Its first row.
        num_rows: Its size at most, whole batches; the last one may be larger, see `LAST_WINDOW_SHARE`.
        end: Row behind the last one.
        batch_size: Rows of a batch.
    """
    rest, more = end - low, num_rows // LAST_WINDOW_SHARE
    if rest <= num_rows + more:
        return end
    num_windows = -(-(rest - more) // num_rows)
    return low + min(num_rows, -(-rest // (num_windows * batch_size)) * batch_size)


class _Growths:
    """Bytes of the rows of each field as scans measured them last, those guessed = 1; may be shared by threads."""

    def __init__(self) -> None:
        self._recent: list[tuple[object, list[float]]] = []
        self._lock = Lock()

    def find(self, asked: object) -> list[float] | None:
        """Return what was measured of the same object."""
        with self._lock:
            return next((growths for before, growths in self._recent if before is asked), None)

    def learn(self, asked: object, growths: list[float]) -> None:
        """Replace what was known of an object."""
        with self._lock:
            others = [entry for entry in self._recent if entry[0] is not asked]
            self._recent = [(asked, growths), *others[: _RECENT_SCANS - 1]]


_growths = _Growths()


class Windows:
    """Rows that a scan decodes at once: at first a part of what was guessed, then what bytes of rows before allow.

    Scans that ask for the same of another file of the table, or once more, begin with what was measured of it.

    Args:
        fields: Guessed bytes of a row in each column of each field.
        batch_size: Rows of a batch.
        asked: What is read: the same object for all files of a table; None for anything else.
    """

    def __init__(self, fields: list[list[float]], batch_size: int, asked: object = None) -> None:
        self._fields, self._batch_size, self._asked = fields, batch_size, asked
        growths = None if asked is None else _growths.find(asked)
        if growths is None:
            guess = window_rows([width for widths in fields for width in widths], batch_size)
            self._rows = max(1, guess // CAUTION // batch_size) * batch_size
        else:
            self._set_rows(growths)

    def __next__(self) -> int:
        return self._rows

    def learn(self, num_bytes: list[int], num_rows: int) -> None:
        """Heed the bytes that fields came to for so many rows."""
        growths = [size / num_rows / (sum(guessed) or 1) for size, guessed in zip(num_bytes, self._fields, strict=True)]
        self._set_rows(growths)
        if self._asked is not None:
            _growths.learn(self._asked, growths)

    def _set_rows(self, growths: list[float]) -> None:
        """Allow as many rows as fit if fields grow so; bytes are alike in each of their columns, as far as is known."""
        widths = [
            max(growth * sum(guessed) / len(guessed), width / LEVELS_SHARE)
            for growth, guessed in zip(growths, self._fields, strict=True)
            for width in guessed
        ]
        self._rows = window_rows(widths, self._batch_size)
