# Plain strings and os: pathlib costs microseconds per call on the path of every read.
# ruff: noqa: PTH103, PTH105, PTH106, PTH108, PTH110, PTH116, PTH118, PTH120, PTH123, PTH206, PTH208
"""Datasets on the local file system.

Whole objects are written to a temporary file beside their place. ``os.replace`` then puts them there, or ``os.link``
where only one of several writers may win: it creates the name with its content in one step, and fails if it exists.
Opening with O_EXCL would also have one winner, but show others a file that is not finished.

A durable store waits with every step until the disk has what came before it: content before the name, names before the
call returns. As a commit writes its manifest last, a version that somebody was told of survives a power failure.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from lance_core.errors import (
    CommitOutcomeUnknownError,
    InvalidInputError,
    LanceError,
    NotFoundError,
    UnsafeStoreError,
)
from lance_core.store.base import ObjectInfo
from lance_core.store.local_reader import LocalReader, check_regular, read_small
from lance_core.store.paths import check_path
from lance_core.store.reserve import LEAST_BYTES, reserve
from lance_core.store.sizes import check_size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from lance_core.store.local_reader import SmallFile
Begun = TypeVar("Begun")

_TEMPORARY_PREFIX = ".tmp_"
_BUFFER_SIZE = 1 << 20
_OPEN = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
_READ_ONLY = os.O_RDONLY | _OPEN
_REWRITE = os.O_WRONLY | _OPEN | getattr(os, "O_NOFOLLOW", 0)
_MOST_SETTLED = 1 << 10
"""Bytes of a file that is worth looking at whether it is settled: the hint of pylance has some forty."""
_SMALL_FILE = 1 << 14
"""Files of so many bytes are read, larger ones are mapped."""
_MOST_UNCHECKED = 1 << 10
"""So few bytes are read without asking for a limit."""
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK})
"""Errors of Linux, macOS and network mounts for a hard link on file systems without them (exFAT, FAT, some FUSE)."""
_MANY_ROOTS = 128
_MOST_FOLDERS = 100
"""Attempts to create a file whose folder is removed meanwhile."""

_MOST_NAME_BYTES, _MOST_PATH_BYTES = 255, 4095
"""Limits of the file systems of Linux and macOS."""


class LocalStore:
    """A dataset directory on a local file system.

    Args:
        root: Absolute path of the directory; it is created by the first write.
        durable: Return from writes and deletions only when they would survive a power failure.
    """

    def __init__(self, root: str, *, durable: bool = False) -> None:
        self._root = root
        self._prefix = _prefix_of(root)
        self._disk = _Disk() if durable else None

    def __repr__(self) -> str:
        return f"LocalStore({self._root!r}{'' if self._disk is None else ', durable=True'})"

    @property
    def uri(self) -> str:
        """Absolute path of the directory."""
        return self._root

    def reader(self, path: str, /) -> LocalReader:
        """Map a file into memory."""
        return LocalReader(self._path(path))

    def sized_reader(self, path: str, size: int, /, *, most_bytes: int) -> SmallFile | LocalReader:
        """Open a file that has ``size`` bytes if it is what it was; a small one comes whole."""
        most_bytes = min(most_bytes, _SMALL_FILE)
        return read_small(self._path(path), most_bytes) if size <= most_bytes else self.reader(path)

    def get(self, path: str, /) -> bytes:
        """Read a whole file."""
        file = self._path(path)
        try:
            return _read_file(file, path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise NotFoundError("there is no such file", path=file) from error

    def writer(self, path: str, /) -> LocalWriter:
        """Begin a file; directories above it are created."""
        return LocalWriter(self._path(path), self._disk)

    def put(self, path: str, data: bytes, /) -> None:
        """Write a whole file, replacing what is there."""
        file = self._path(path)
        temporary = _write_temporary(file, [data], self._disk)
        try:
            os.replace(temporary, file)
        except OSError:
            _remove(temporary)
            raise
        if self._disk is not None:
            self._disk.keep_names(file)

    def put_if_absent(self, path: str, data: bytes, /) -> bool:
        """Create a file with its content in one step; False if it exists. Errors as `put_pieces_if_absent`."""
        return self.put_pieces_if_absent(path, [data])

    def put_pieces_if_absent(self, path: str, pieces: Sequence[bytes | memoryview], /) -> bool:
        """Create a file of bytes end to end, in one step; False if it exists.

        Raises:
            UnsafeStoreError: The file system has no hard links.
            CommitOutcomeUnknownError: It is there, but the disk does not say that it would stay.
        """
        file = self._path(path)
        if os.path.exists(file):  # so that who comes late does not hold up the others in the directory
            return False
        temporary = _write_temporary(file, pieces, self._disk)
        try:
            os.link(temporary, file)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            raise UnsafeStoreError(
                "the file system has no hard links, without which two writers could both commit one version; use "
                "another one (ext4, xfs, APFS, NTFS), or the storage option manifest_store='sqlite:///...'",
                path=file,
            ) from error
        finally:
            _remove(temporary)
        if self._disk is not None:
            try:
                self._disk.keep_names(file)
            except OSError as error:
                raise CommitOutcomeUnknownError(
                    "the file was created, but the disk failed to make sure of it", path=file
                ) from error
        return True

    def names(self, folder: str, /) -> list[str]:
        """Names of files and directories in a directory."""
        try:
            return os.listdir(self._path(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def settled(self, path: str, /) -> bytes | None:
        """Content of a file if nothing in its directory was created, renamed or deleted since it was put there.

        A rename stamps both the file and the directory; whatever happens in the directory later stamps that only. Some
        systems count time in steps of milliseconds, so who asks looks for what may have come in the same step.
        """
        file = self._path(path)
        try:
            folder = os.stat(file.rpartition(os.sep)[0])
            status = os.stat(file)
            if status.st_ctime_ns < folder.st_mtime_ns or status.st_size > _MOST_SETTLED:
                return None
            return _read_file(file, path)
        except (OSError, LanceError):
            return None

    def exists(self, path: str, /) -> bool:
        """Return whether there is a file."""
        return os.path.exists(self._path(path))

    def settle(self, path: str, data: bytes, /) -> None:
        """Write a file of a few bytes; in its place if that takes as many, which stamps the file as a rename does."""
        if self._disk is not None or not _rewrite(self._path(path), data):
            self.put(path, data)

    def sizes(self, paths: Sequence[str], /) -> list[int]:
        """Return bytes in each file."""
        return [_size(self._path(path)) for path in paths]

    def list(self, prefix: str, /) -> Iterator[ObjectInfo]:
        """Yield all files below a directory; symbolic links to directories are not followed."""
        folders = [prefix]
        while folders:
            folder = folders.pop()
            try:
                entries = os.scandir(self._path(folder))
            except (FileNotFoundError, NotADirectoryError):
                continue
            with entries:
                for entry in entries:
                    path = f"{folder}/{entry.name}"
                    if entry.is_dir():
                        folders += [] if entry.is_symlink() else [path]
                        continue
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:  # deleted since it was listed
                        continue
                    modified = datetime.fromtimestamp(status.st_mtime, UTC)
                    yield ObjectInfo(path=path, size=status.st_size, modified=modified)

    def delete(self, paths: Sequence[str], /) -> None:
        """Delete files; those that are gone already are no error."""
        files = [self._path(path) for path in paths]
        for file in files:
            _remove(file)
        if self._disk is not None:
            for folder in sorted({os.path.dirname(file) for file in files}):
                with suppress(FileNotFoundError, NotADirectoryError):
                    _sync_folder(folder)

    def remove_empty_folders(self, folder: str, /) -> None:
        """Remove a folder and those in it as far as they are empty, then those above it; "" for the whole dataset.

        Writers create the folders that they need, so who comes meanwhile loses nothing.
        """
        path_ = self._path(folder) if folder else self._root
        for inner, _, _ in os.walk(path_, topdown=False):
            with suppress(OSError):
                os.rmdir(inner)
        while folder := folder.rpartition("/")[0]:
            with suppress(OSError):
                os.rmdir(self._path(folder))

    def _path(self, path: str) -> str:
        check_path(path)
        file = self._prefix + path
        if len(path) > _LONG_NAME or len(file) > _LONG_PATH:
            _check_length(path, file)
        return file


@lru_cache(maxsize=_MANY_ROOTS)
def _prefix_of(root: str) -> str:
    """Return what the paths of a dataset's files begin with; errors as of `_check_length`."""
    _check_length(root, root)
    return os.path.join(root, "")


_LONG_NAME, _LONG_PATH = _MOST_NAME_BYTES // 4, _MOST_PATH_BYTES // 4
"""Characters up to which names and paths need no look at their bytes: a character has four at most."""


def _check_length(path: str, file: str) -> None:
    """Refuse a path that no file system of Linux or macOS takes.

    Raises:
        InvalidInputError: A name in it, or all of it, is too long.
    """
    names = path.split(os.sep)
    if len(max(names, key=len)) <= _LONG_NAME and len(file) <= _LONG_PATH:
        return
    for name in names:
        size = len(os.fsencode(name))
        if size > _MOST_NAME_BYTES:
            raise InvalidInputError(
                f"the name '{name[:20]}...' has {size} bytes, but file systems allow {_MOST_NAME_BYTES}. Use "
                "a shorter name"
            )
    if len(os.fsencode(file)) > _MOST_PATH_BYTES:
        raise InvalidInputError(f"the path has more than {_MOST_PATH_BYTES:,} bytes. Use a shorter one", path=file)


def _read_file(file: str, path: str) -> bytes:
    """Return the content of a file; Python's own file objects take twice as long for a small one.

    Args:
        file: Absolute path.
        path: Path in the dataset, which says how large the file may be.
    """
    descriptor = os.open(file, _READ_ONLY)  # which returns at once, whatever is there
    try:
        status = os.fstat(descriptor)
        check_regular(status.st_mode, file)
        wanted = status.st_size + 1  # one more, so that the end is seen
        if wanted > _MOST_UNCHECKED:
            check_size(path, status.st_size, file)
        data = os.read(descriptor, wanted)
        if len(data) == wanted - 1:
            return data
        parts, size = [data], len(data)  # it grew meanwhile, or is larger than what one call reads
        while parts[-1]:
            parts.append(os.read(descriptor, _BUFFER_SIZE))
            size += len(parts[-1])
            check_size(path, size, file)
        return b"".join(parts)
    finally:
        os.close(descriptor)


class LocalWriter:
    """A file that appears under its name when it is finished.

    Args:
        path: Absolute path.
        disk: Makes sure that it stays; None if nobody wants that.
    """

    def __init__(self, path: str, disk: _Disk | None = None) -> None:
        self._path = path
        self._disk = disk
        self._temporary = _temporary_path(path)
        self._file = _in_folder(path, self._open)
        self._size = 0
        self._can_reserve = True

    def write(self, data: bytes | memoryview | pa.Buffer) -> None:
        """Append bytes."""
        view = memoryview(data).cast("B") if not isinstance(data, bytes) else data
        try:
            if len(view) >= LEAST_BYTES and self._can_reserve:
                self._can_reserve = reserve(self._file.fileno(), self._size, len(view))
            self._file.write(view)
        except OSError as error:
            self._tell(error)
            raise
        self._size += len(view)

    def _open(self) -> BinaryIO:
        return open(self._temporary, "xb", buffering=_BUFFER_SIZE)

    def _tell(self, error: OSError) -> None:
        """Say which file an error is about, such as a disk without room; Python itself does not."""
        error.filename = error.filename or self._path

    def commit(self) -> int:
        """Put the file in its place and return its size in bytes."""
        try:
            if self._disk is not None:
                self._file.flush()
                os.fsync(self._file.fileno())
            self._file.close()
        except OSError as error:
            self._tell(error)
            raise
        os.replace(self._temporary, self._path)
        if self._disk is not None:
            self._disk.keep_names(self._path)
        return self._size

    def abort(self) -> None:
        """Drop the file; nothing happens after ``commit``."""
        # Closing writes what is still buffered, and must not keep us from removing the file if the disk is full.
        with suppress(OSError):
            self._file.close()
        _remove(self._temporary)


class _Disk:
    """Sync state of a durable store."""

    def __init__(self) -> None:
        self._synced: set[str] = set()

    def keep_names(self, file: str) -> None:
        """Wait until the disk has the name of a file, and those of the directories above it.

        Directories are looked at once: they may have been created by a writer that did not wait.
        """
        folder = os.path.dirname(file)
        _sync_folder(folder)
        while folder not in self._synced and folder != os.path.dirname(folder):
            above = os.path.dirname(folder)
            with suppress(PermissionError):  # nor can its names have been changed then
                _sync_folder(above)
            self._synced.add(folder)
            folder = above


def _sync_folder(folder: str) -> None:
    if not hasattr(os, "O_DIRECTORY"):  # Windows cannot open directories, and keeps their names by itself
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_temporary(path: str, pieces: Sequence[bytes | memoryview], disk: _Disk | None) -> str:
    temporary = _temporary_path(path)
    _in_folder(path, lambda: _write_file(temporary, pieces, disk))
    return temporary


def _in_folder(path: str, begin: Callable[[], Begun]) -> Begun:
    """Begin a file in a folder that is made if it is missing.

    Whoever deletes a branch removes its empty folders, which may happen between the two steps, again and again.
    """
    for _ in range(_MOST_FOLDERS):
        try:
            return begin()
        except FileNotFoundError:
            with suppress(FileNotFoundError):
                os.makedirs(os.path.dirname(path), exist_ok=True)
    return begin()


def _write_file(path: str, pieces: Sequence[bytes | memoryview], disk: _Disk | None) -> None:
    try:
        size = sum(map(len, pieces))
        with open(path, "xb", buffering=0) as file:
            if size >= LEAST_BYTES:
                reserve(file.fileno(), 0, size)
            for piece in pieces:
                left = memoryview(piece)
                while left:
                    left = left[file.write(left) :]
            if disk is not None:
                os.fsync(file.fileno())
    except OSError:
        _remove(path)
        raise


def _rewrite(path: str, data: bytes) -> bool:
    """Write over a file of as many bytes; False if there is none, or others may know it by another name."""
    try:
        descriptor = os.open(path, _REWRITE)
    except OSError:
        return False
    try:
        status = os.fstat(descriptor)
        is_ours = stat.S_ISREG(status.st_mode) and status.st_size == len(data) and status.st_nlink == 1
        return is_ours and os.write(descriptor, data) == len(data)
    finally:
        os.close(descriptor)


def _size(path: str) -> int:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFoundError("there is no such file", path=path) from error
    if not stat.S_ISREG(status.st_mode):
        raise NotFoundError("this is not a file", path=path)
    return status.st_size


def _temporary_path(path: str) -> str:
    # Clean-up, ours and pylance's, takes away files with this prefix that a crash left behind.
    return os.path.join(os.path.dirname(path), _TEMPORARY_PREFIX + os.urandom(16).hex())


def _remove(path: str) -> None:
    try:  # noqa: SIM105 thousands of versions may go, and a context costs a third of the call
        os.unlink(path)
    except (FileNotFoundError, NotADirectoryError):
        pass
