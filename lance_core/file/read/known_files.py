"""What was learnt of files that were open before: a dataset that is opened again need not parse and decode it again.

Data files never change, and what is kept is about bytes that were held against their checksums. It is found again by
the file's name, inode and times, its size and the checksums in its end, which every reader reads and verifies: these
tell the content of the whole file. A file that was replaced or written to is another one. A file without checksums, or
in a store that cannot tell when it was changed, is not kept. Each reader holds bytes of data against checksums anew.

Nothing here keeps a file open or mapped.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from lance_core.file.container import Parsed
from lance_core.file.read.page_indexes import Held

if TYPE_CHECKING:
    from collections.abc import Hashable

    from lance_core.encoding.layouts.single_lists import ListReader
    from lance_core.encoding.layouts.single_values import SingleReader
    from lance_core.encoding.values import Int64s
    from lance_core.file.read.field_reader import Opened
    from lance_core.file.read.joined_pages import JoinedPages
    from lance_core.file.read.page_indexes import MiniBlockIndex, SparseIndex
    from lance_core.format.page_layout import PageLayout

MOST_FILES = 64
MOST_BYTES = 1 << 25
"""Chunk tables, dictionaries and opened columns of all files together: 32 MiB."""

_MOST_OPENED = 4
_COLUMN_BYTES = 1 << 10
"""What an opened column takes without these: a dozen small objects."""


class PagesKnown(NamedTuple):
    """What is known of the pages of a column, by number of the page; see `lance_core.file.read.plan.Column`."""

    layouts: dict[int, PageLayout]
    indexes: dict[int, MiniBlockIndex]
    joined_pages: dict[int, JoinedPages]
    sparse_indexes: dict[int, SparseIndex]


class FileKnown:
    """What was learnt of a file; may be shared by its readers.

    Attributes:
        parsed: Footer, schema and pages.
        columns: By column index.
        kinds: What pages are alike in.
        readers: See `lance_core.file.read.plan.Column`.
        first_rows: First rows of pages, by the rows in each.
        held: Counts chunk tables, dictionaries and opened columns.
        opened: The fields of some projections, with what they learnt; never more than a few.
    """

    __slots__ = ("columns", "first_rows", "held", "kinds", "opened", "parsed", "readers")

    def __init__(self) -> None:
        self.parsed = Parsed()
        self.columns: dict[int, PagesKnown] = {}
        self.kinds: dict[object, object] = {}
        self.readers: dict[int, SingleReader | ListReader | None] = {}
        self.first_rows: dict[tuple[int, ...], Int64s] = {}
        self.held = Held()
        self.opened: deque[Opened] = deque()

    def keep(self, opened: Opened) -> None:
        """Keep the fields of a projection in the place of those that were opened first."""
        if len(self.opened) >= _MOST_OPENED:
            self.held.num_bytes -= _COLUMN_BYTES * len(self.opened.popleft().columns)
        self.opened.append(opened)
        self.held.num_bytes += _COLUMN_BYTES * len(opened.columns)

    def pages(self, column: int) -> PagesKnown:
        """What is known of the pages of a column, to be added to."""
        known = self.columns.get(column)
        if known is None:
            known = self.columns[column] = PagesKnown({}, {}, {}, {})
        return known


class KnownFiles:
    """Of the files that were opened last. May be shared by threads.

    Args:
        most_files: So many are kept.
        most_bytes: Until their chunk tables and dictionaries are so large.
    """

    def __init__(self, most_files: int = MOST_FILES, most_bytes: int = MOST_BYTES) -> None:
        self._most_files = most_files
        self._most_bytes = most_bytes
        self._files: OrderedDict[Hashable, FileKnown] = OrderedDict()
        self._lock = Lock()

    def find(self, file: Hashable) -> FileKnown:
        """What is known of a file, to be added to.

        Args:
            file: Tells its content.
        """
        with self._lock:
            found = self._files.pop(file, None)
            found = self._files[file] = FileKnown() if found is None else found
            num_bytes = sum([one.held.num_bytes for one in self._files.values()])
            while len(self._files) > 1 and (len(self._files) > self._most_files or num_bytes > self._most_bytes):
                _, gone = self._files.popitem(last=False)
                num_bytes -= gone.held.num_bytes
        return found

    def has_room(self, known: FileKnown) -> bool:
        """Whether a scan may keep what it learns of a file: the file is one of these, and they are not too large."""
        with self._lock:
            files = list(self._files.values())
        return known in files and sum([one.held.num_bytes for one in files]) < self._most_bytes


KNOWN_FILES = KnownFiles()
