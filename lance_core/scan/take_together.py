"""Rows of small fragments, or a few of larger ones, read at one go from the files that hold them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from lance_core.common.frozen import NamedTuple
from lance_core.encoding.kernels import aranges, starts_of, take_inside
from lance_core.errors import LanceError, StoreTimeoutError
from lance_core.file.integrity import TAIL_SIZE
from lance_core.file.read.field_shapes import shapes_of
from lance_core.file.read.strategy import are_joined, fits_run_pages
from lance_core.table.read_ahead import in_turn

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lance_core.file.read.alike_files import AlikeFiles, Pattern
    from lance_core.file.read.reader import DataFileReader
    from lance_core.file.read.similar_files import SimilarFiles
    from lance_core.file.read.wanted import Wanted
    from lance_core.format.schema import Schema
    from lance_core.scan.columns import FilePart
    from lance_core.scan.deletions import Offsets
    from lance_core.scan.fragment_reader import FragmentReader
    from lance_core.scan.open_files import Loaded, OpenFiles

MOST_LARGE_FILES, MOST_SMALL_FILES, MOST_SMALL_BYTES = 64, 512, 1 << 24
"""Files that are read at one go: such as are open meanwhile, all with small ones, and bytes of these, which are read
whole. With 64 small files of 19 columns and 100 rows a scan takes twice the CPU time."""

FilesAtHand: TypeAlias = "dict[tuple[int | None, str], Loaded | DataFileReader]"
"""Files by base path and name."""

RowsOfFragment: TypeAlias = "tuple[FragmentReader, range] | tuple[FragmentReader, Offsets]"
"""Row offsets of a fragment, ascending, counted from its first row."""


def is_full(num_files: int, num_large: int, num_bytes: int) -> bool:
    """Return whether no further file is read at one go with so many; bytes are those of small ones."""
    return num_large == MOST_LARGE_FILES or num_files == MOST_SMALL_FILES or num_bytes >= MOST_SMALL_BYTES


def is_small(num_bytes: int) -> bool:
    """Return whether a file is read whole, as far as the manifest knows its size."""
    return 0 < num_bytes <= TAIL_SIZE


def pays_together(wanted: Sequence[RowsOfFragment], projection: Schema, *, are_small: bool) -> bool:
    """Return whether to read rows of several fragments at one go.

    Args:
        wanted: At least one row of each fragment.
        projection: Fields to read.
        are_small: All files are read whole.
    """
    if len(wanted) < 2:
        return False
    leaves = [leaf for shape in shapes_of(projection.fields) for leaf in shape.leaves]
    widths, have_lists = [leaf.least_width for leaf in leaves], any(leaf.has_lists for leaf in leaves)
    num_rows = sum([len(rows) for _, rows in wanted])
    return are_joined(num_rows, len(wanted), widths, have_lists=have_lists, are_small=are_small)


class FragmentPart(NamedTuple):
    """Rows of a fragment, and the file that holds them.

    Attributes:
        reader: The fragment.
        stored: What is read, and of which file.
        rows: Row offsets: at least one, ascending.
    """

    reader: FragmentReader
    stored: FilePart
    rows: range | Offsets


def take_together(
    files: OpenFiles, wanted: Sequence[RowsOfFragment], projection: Schema, at_hand: FilesAtHand | None = None
) -> list[pa.Array] | None:
    """Read rows of several fragments at one go.

    Args:
        files: The dataset's open files.
        wanted: At least one row of each fragment.
        projection: Fields to read, at least one.
        at_hand: Files that have been read before; takes the others.

    Returns:
        An array for each field with the rows of all fragments, one after the other; None if each fragment has to be
        read for itself, also to find out which file is damaged.
    """
    parts = [
        FragmentPart(reader, part, rows)
        for reader, rows in wanted
        if (part := reader.only_part(projection)) is not None
    ]
    if len(parts) < len(wanted):
        return None
    try:
        at_hand = {} if at_hand is None else at_hand
        missing = [part.stored.file for part in parts if _key(part) not in at_hand]
        loaded = in_turn(files.store, (partial(files.loading, file) for file in missing))
        at_hand.update(zip([(file.base_id, file.path) for file in missing], loaded, strict=True))
        return _Parts(files, at_hand, parts).take()
    except StoreTimeoutError:
        raise
    except LanceError:
        return None


def _key(part: FragmentPart) -> tuple[int | None, str]:
    return part.stored.file.base_id, part.stored.file.path


class _Parts:
    """Files that are open or read, with the rows that are wanted of each.

    Args:
        files: The dataset's open files.
        at_hand: The files.
        parts: What is wanted of them.
    """

    def __init__(self, files: OpenFiles, at_hand: FilesAtHand, parts: Sequence[FragmentPart]) -> None:
        self._files = files
        self._at_hand = at_hand
        self._parts = parts

    def is_open(self, number: int, /) -> bool:
        """Return whether a file is open, or read again: then metadata of its pages should be kept."""
        return self._file(number).is_open

    def note(self, numbers: Sequence[int], /) -> None:
        """Take note of files of which nothing is kept."""
        for number in numbers:
            self._files.open_again(self._parts[number].stored.file, self._file(number))

    def open(self, number: int, /) -> Wanted:
        """Return the rows that are wanted of a file."""
        return self._wanted(number)[1]

    def pattern(self, number: int, /) -> Pattern | None:
        """Return the pattern of a file."""
        file, wanted = self._wanted(number)
        return file.pattern(wanted)

    def take(self) -> list[pa.Array] | None:
        """Read the rows; see `take_together`."""
        from lance_core.file.read.alike_files import SmallFile, open_alike  # noqa: PLC0415 see `OpenFiles`
        from lance_core.file.read.several_files import can_be_joined, take_joined  # noqa: PLC0415 likewise
        from lance_core.file.read.similar_files import FileEnd, open_similar  # noqa: PLC0415 likewise

        each = [(self._at_hand[_key(part)], part) for part in self._parts]
        columns, num_rows = self._parts[0].stored.columns, [part.reader.physical_rows for part in self._parts]
        order = list(range(len(each)))
        contents = [file.content for file, _ in each if file.content is not None]
        joined_files: Sequence[Wanted | AlikeFiles | SimilarFiles]
        has_columns = all(part.stored.columns == columns for part in self._parts)
        if has_columns and len(contents) == len(each):
            small = [SmallFile(content, part.rows) for content, part in zip(contents, self._parts, strict=True)]
            joined_files, order = open_alike(small, num_rows, self)
        elif not has_columns or not fits_run_pages(max(num_rows)):
            joined_files = [self.open(number) for number in order]
        else:
            ends = [FileEnd(self._files.with_end(part.stored.file, file), part.rows) for file, part in each]
            joined_files, order = open_similar(ends, num_rows, self)
        if not can_be_joined(joined_files):
            return None
        arrays = take_joined(joined_files)
        if arrays is None or order == list(range(len(each))):
            return arrays
        counts = np.array([len(part.rows) for part in self._parts], np.int64)
        starts = np.empty(len(order), np.int64)
        starts[order] = starts_of(counts[order])[:-1]
        return [take_inside(array, aranges(starts, counts)) for array in arrays]

    def _file(self, number: int) -> Loaded | DataFileReader:
        return self._at_hand[_key(self._parts[number])]

    def _wanted(self, number: int) -> tuple[DataFileReader, Wanted]:
        part = self._parts[number]
        file = self._files.opened(part.stored.file, self._file(number), num_rows=part.reader.physical_rows)
        self._at_hand[_key(part)] = file
        return file, file.rows_of(part.stored.schema, part.stored.columns, part.rows)
