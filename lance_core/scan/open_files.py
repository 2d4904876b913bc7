"""Data files that are open, so that reading the same dataset again does not begin from nothing."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from lance_core.common.last_made import KeepsLast
from lance_core.errors import CorruptDataError
from lance_core.file.integrity import TAIL_SIZE
from lance_core.file.source import announce_end, read_end
from lance_core.format.table.paths import data_file_path
from lance_core.store.io_coroutines import finished
from lance_core.store.range_reader import WholeReader
from lance_core.table.locations import finds_same_files, objects_at_once, sized_reader
from lance_core.table.once import once

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    import pyarrow as pa

    from lance_core.file.read.reader import DataFileReader
    from lance_core.file.source import FileBytes
    from lance_core.format.table.fragment import DataFile
    from lance_core.index.moved import LaterMoves
    from lance_core.index.protocol import Segment
    from lance_core.store.base import ObjectReader, Store
    from lance_core.store.io_coroutines import IoCoroutine

_T = TypeVar("_T")

DEFAULT_CAPACITY = 64


class Loaded:
    """A file of which nothing is parsed.

    Args:
        source: The file.
        is_announced: See `lance_core.file.source.announce_end`.

    Attributes:
        source: The file.
        is_announced: Likewise.
        content: All bytes of a small file; nobody has held them against checksums. None of a larger one.
        file: The file with its end, once `OpenFiles.with_end` has read it.
        is_open: It is to be opened when it is read again.
    """

    __slots__ = ("content", "file", "is_announced", "is_open", "source")

    def __init__(self, source: ObjectReader, *, is_announced: bool) -> None:
        self.source = source
        self.is_announced = is_announced
        self.content: pa.Buffer | None = None
        self.file: FileBytes | None = None
        if isinstance(source, WholeReader) and source.size <= TAIL_SIZE:
            self.content = source.mapped
        self.is_open = False


def files_of(store: Store, files: OpenFiles | None) -> OpenFiles:
    """Return open files if they are those of a store, so that nothing is opened again; else new ones."""
    return files if files is not None and finds_same_files(files.store, store) else OpenFiles(store)


class OpenFiles(KeepsLast):
    """Readers of a dataset's data files; the least recently used is let go when there are too many.

    Data files never change, so a reader stays right over all versions. May be shared by threads.

    Args:
        store: The dataset.
        capacity: Files to keep open.
    """

    def __init__(self, store: Store, capacity: int = DEFAULT_CAPACITY) -> None:
        self.store = store
        self._capacity = capacity
        self._readers: OrderedDict[tuple[int | None, str], Loaded | DataFileReader] = OrderedDict()
        self._searched = KeepsLast()
        self._segments: dict[bytes, Segment] = {}
        self._row_moves: tuple[bytes, LaterMoves | None] | None = None
        self._lock = Lock()

    @once
    def is_far(self) -> bool:
        """True if the store takes long to answer, so that it pays to ask for much at the same time."""
        return objects_at_once(self.store) > 1

    def index_segment(self, uuid: bytes, open_segment: Callable[[], Segment]) -> Segment:
        """Return a segment of an index; it is opened once, since its files never change."""
        segment = self._segments.get(uuid)
        if segment is None:
            segment = open_segment()
            with self._lock:
                if len(self._segments) >= self._capacity:
                    self._segments.clear()
                self._segments[uuid] = segment
        return segment

    def searched_segments(self, version: object, key: Hashable, find: Callable[[], Sequence[_T]]) -> Sequence[_T]:
        """Return the segments that a search asks; those of the last version asked about are kept.

        Args:
            version: The version.
            key: Column and kind of the index.
            find: Finds them.
        """
        segments: dict[Hashable, Sequence[_T]] = self._searched.kept_for(version, dict)
        if key not in segments:
            segments[key] = find()
        return segments[key]

    def row_moves(self, uuid: bytes, load: Callable[[], LaterMoves | None]) -> LaterMoves | None:
        """Return what a fragment reuse index tells; that of the last version asked about is kept."""
        last = self._row_moves
        if last is None or last[0] != uuid:
            last = self._row_moves = (uuid, load())
        return last[1]

    def open(self, file: DataFile, *, num_rows: int) -> DataFileReader:
        """Return a reader of a data file.

        Args:
            file: The file.
            num_rows: Rows that the manifest says it has.

        Raises:
            CorruptDataError: Not a data file, or one with another number of rows.
            NotFoundError: It is not there.
        """
        return finished(self.opening(file, num_rows=num_rows))

    def opening(self, file: DataFile, *, num_rows: int) -> IoCoroutine[DataFileReader]:
        """As `open`, but stops where the end of a mapped file was asked for."""
        loaded = yield from self.loading(file)
        return self.opened(file, loaded, num_rows=num_rows)

    def loading(self, file: DataFile) -> IoCoroutine[Loaded | DataFileReader]:
        """Read a small file, or the end of a larger one that is far away; stops where a mapped file was asked for it.

        Returns:
            The file, for `opened`; its reader if it is open.
        """
        key = (file.base_id, file.path)
        with self._lock:
            cached = self._readers.get(key)
            if cached is not None:
                self._readers.move_to_end(key)
                return cached
        source = sized_reader(self.store, data_file_path(file), file.file_size_bytes)
        is_announced = announce_end(source)
        if is_announced:
            yield
        loaded = Loaded(source, is_announced=is_announced)
        if loaded.content is not None:
            self._keep(key, loaded)
        return loaded

    def with_end(self, file: DataFile, loaded: Loaded | DataFileReader) -> FileBytes:
        """Return a file from `loading` of which the end has been read.

        Raises:
            CorruptDataError: The end is not what was written.
        """
        if loaded.file is not None:
            return loaded.file
        assert isinstance(loaded, Loaded)  # noqa: S101 - readers have theirs
        from lance_core.file.read.reader import is_cached  # noqa: PLC0415 see `opened`

        path = f"{self.store.uri}/{data_file_path(file)}"
        end = loaded.file = read_end(loaded.source, path=path, is_announced=loaded.is_announced)
        loaded.is_open = is_cached(end, path=path)
        self._keep((file.base_id, file.path), loaded)
        return end

    def open_again(self, file: DataFile, loaded: Loaded | DataFileReader) -> None:
        """Take note that a file of which nothing is kept is to be opened when it is read again."""
        loaded.is_open = True
        if loaded.file is not None:
            from lance_core.file.read.reader import expect_again  # noqa: PLC0415 see `opened`

            expect_again(loaded.file, path=f"{self.store.uri}/{data_file_path(file)}")

    def opened(self, file: DataFile, loaded: Loaded | DataFileReader, *, num_rows: int) -> DataFileReader:
        """Return the reader of a file from `loading`; arguments and errors as of `open`."""
        if not isinstance(loaded, Loaded):
            return loaded
        from lance_core.file.read.reader import DataFileReader  # noqa: PLC0415 whoever opens no file needs no decoder

        path = data_file_path(file)
        name, is_announced = f"{self.store.uri}/{path}", loaded.is_announced
        reader = DataFileReader(loaded.source, path=name, is_announced=is_announced, file=loaded.file)
        if reader.num_rows != num_rows:
            raise CorruptDataError(f"the data file has {reader.num_rows} rows, the manifest says {num_rows}", path=path)
        self._keep((file.base_id, file.path), reader)
        return reader

    def _keep(self, key: tuple[int | None, str], file: Loaded | DataFileReader) -> None:
        with self._lock:
            self._readers[key] = file
            if len(self._readers) > self._capacity:
                self._readers.popitem(last=False)
