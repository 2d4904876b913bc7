"""Datasets on any file system that fsspec knows.

fsspec promises no atomic creation: its generic way is to look whether a file exists and then to write it, so that two
writers can both win. So nothing is written through it, unless a table elsewhere decides who wins
(`lance_core.store.external_manifest`).
"""

from __future__ import annotations

import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache, partial
from io import BytesIO
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any, NoReturn

from lance_core.common.frozen import mutable
from lance_core.errors import InvalidInputError, LanceError, NotFoundError, UnsafeStoreError, UnsupportedError
from lance_core.store.base import ObjectInfo
from lance_core.store.fsspec_options import without_secrets
from lance_core.store.paths import check_path
from lance_core.store.range_reader import FAR_AT_ONCE, WHOLE_BYTES, Deferred, RangeReader, WholeReader
from lance_core.store.sizes import check_size
from lance_core.store.tasks import blocking

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    import pyarrow as pa

    from lance_core.store.base import ObjectReader

_MAX_FILE_SYSTEMS = 16
_MAX_MEMORY = 16 << 20
_MAX_LINES = 5
"""Of the text of an error: some clients append pages."""
_THREADS = 8
_TEMPORARY_PREFIX = ".tmp_"
_MODIFIED_KEYS = ("last_modified", "LastModified", "mtime", "updated")


class FsspecStore:
    """A dataset on a file system of fsspec.

    Args:
        uri: Address of the dataset.
        scheme: What comes before ``://`` in it.
        options: Storage options.
        is_arbitrated: A table elsewhere decides about versions, so that files may be written.

    Raises:
        UnsupportedError: fsspec has no such file system, or needs another package for it.
    """

    def __init__(self, *, uri: str, scheme: str, options: Mapping[str, Any], is_arbitrated: bool) -> None:
        _check_scheme(uri, scheme)
        self._uri = uri
        self._scheme = scheme
        self._options = dict(options)
        self._is_arbitrated = is_arbitrated

    def __repr__(self) -> str:
        return f"FsspecStore({self._uri!r})"

    @property
    def uri(self) -> str:
        """Address of the dataset."""
        return self._uri

    @property
    def at_once(self) -> int:
        """Objects that may be read at the same time; file systems without a loop of their own may not bear threads."""
        with self._using("data") as (connection, _):
            return FAR_AT_ONCE if connection.files.async_impl else 1

    # ------------------------------------------------------------------------------------------------------- reading

    def reader(self, path: str, /) -> RangeReader:
        """Open a file."""
        with self._using(path) as (connection, name):
            size: int = connection.files.size(name)

        def read(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
            with self._using(path) as (connection, name):  # of the process that reads
                starts, ends = [start for start, _ in ranges], [end for _, end in ranges]
                return connection.files.cat_ranges([name] * len(ranges), starts, ends, on_error="raise")

        def fetch(ranges: Sequence[tuple[int, int]]) -> Deferred[list[bytes]]:
            return Deferred(partial(read, ranges))

        return RangeReader(fetch, path=f"{self._uri}/{path}", size=size)

    def sized_reader(self, path: str, size: int, /, *, most_bytes: int = WHOLE_BYTES) -> ObjectReader:
        """Open a file that has ``size`` bytes if it is what it was; one of at most ``most_bytes`` is read whole."""
        if size > most_bytes:
            return self.reader(path)
        with self._using(path) as (connection, name):
            data = bytes(blocking(lambda: connection.files.cat_file(name, start=0, end=size + 1)))
        return WholeReader(data, f"{self._uri}/{path}") if len(data) == size else self.reader(path)

    def get(self, path: str, /) -> bytes:
        """Read a whole file."""
        with self._using(path) as (connection, name):
            size: int | None = connection.files.size(name)
            if size is not None:  # a web server need not tell
                check_size(path, size, f"{self._uri}/{path}")
            return bytes(connection.files.cat_file(name))

    def names(self, folder: str, /) -> list[str]:
        """Names of files and folders in a folder."""
        try:
            with self._using(folder) as (connection, name):
                names_: list[str] = connection.files.ls(name, detail=False)
        except NotFoundError:
            return []
        return [name_.rstrip("/").rpartition("/")[2] for name_ in names_ if name_.rstrip("/") != name]

    def list(self, prefix: str, /) -> Iterator[ObjectInfo]:
        """Yield all files below a folder."""
        with self._using(prefix) as (connection, name):
            infos: dict[str, Any] = connection.files.find(name, detail=True)
            for address, info in infos.items():
                if address != name:
                    below = address.removeprefix(name).lstrip("/")
                    modified = _modified(connection.files, address, info)
                    yield ObjectInfo(path=f"{prefix}/{below}", size=info["size"], modified=modified)

    # ------------------------------------------------------------------------------------------------------- writing

    def writer(self, path: str, /) -> FsspecWriter:
        """Begin a file."""
        self._check_writable(path)
        return FsspecWriter(self, path)

    def put(self, path: str, data: bytes, /) -> None:
        """Write a whole file."""
        self.put_through(path, lambda files, name: files.pipe_file(name, data))

    def put_if_absent(self, path: str, data: bytes, /) -> bool:
        """Refuse to create a file exclusively.

        Raises:
            UnsafeStoreError: The file system cannot do that.
        """
        del data
        self._check_writable(path)
        self._refuse("create files exclusively")

    def delete(self, paths: Sequence[str], /) -> None:
        """Delete files; those that are gone already are no error."""
        for path in paths:
            self._check_writable(path)
        if len(paths) == 1:
            self._delete(paths[0])
            return
        with ThreadPoolExecutor(_THREADS) as pool:
            list(pool.map(self._delete, paths))

    def put_through(self, path: str, write: Callable[[Any, str], None]) -> None:
        """Let ``write`` make a file, given the file system and a name in it; the file appears as a whole."""
        self._check_writable(path)
        temporary = f"{path.rpartition('/')[0]}/{_TEMPORARY_PREFIX}{uuid.uuid4().hex}".lstrip("/")
        with self._using(temporary) as (connection, name), self._using(path) as (_, final):
            connection.files.makedirs(final.rpartition("/")[0], exist_ok=True)
            write(connection.files, name)
            connection.files.mv(name, final)

    def _delete(self, path: str) -> None:
        with suppress(NotFoundError), self._using(path) as (connection, name):
            connection.files.rm_file(name)

    def _check_writable(self, path: str) -> None:
        check_path(path)
        if not self._is_arbitrated:
            self._refuse("be written")

    def _refuse(self, what: str) -> NoReturn:
        raise UnsafeStoreError(
            f"{self._scheme}:// can be read, but not {what}: its file system offers no atomic creation that "
            "lance_core knows, so that two writers could overwrite each other's commits. The storage option "
            "manifest_store names a table that decides instead",
            path=self._uri,
        )

    # ----------------------------------------------------------------------------------------------------- connection

    @contextmanager
    def _using(self, path: str) -> Generator[tuple[_Connection, str]]:
        """The connection of this process, and a path in it; errors are those of this package and of Python."""
        check_path(path)
        try:
            connection = _connection(self._uri, _Options(self._options), os.getpid())
            yield connection, f"{connection.root.rstrip('/')}/{path}"
        except (LanceError, FileExistsError, TypeError):
            raise
        except Exception as error:  # noqa: BLE001 - packages raise errors of their own
            raise _translated(error, f"{self._uri}/{path}", self._options) from None


class FsspecWriter:
    """A file that appears when it is finished; until then it is in memory, or in a temporary file if it is large.

    Args:
        store: Where it will appear.
        path: Under which name.
    """

    def __init__(self, store: FsspecStore, path: str) -> None:
        self._store = store
        self._path = path
        self._size = 0
        self._memory = BytesIO()
        self._file: Any = None

    def write(self, data: bytes | memoryview | pa.Buffer) -> None:
        """Append bytes."""
        view = memoryview(data).cast("B")
        self._size += len(view)
        if self._file is None and self._memory.tell() + len(view) > _MAX_MEMORY:
            self._file = NamedTemporaryFile(prefix="lance_core_")  # noqa: SIM115 closed by commit or abort
            self._file.write(self._memory.getbuffer())
            self._memory = BytesIO()
        (self._memory if self._file is None else self._file).write(view)

    def commit(self) -> int:
        """Let the file appear and return its size in bytes."""
        try:
            if self._file is None:
                self._store.put(self._path, self._memory.getvalue())
            else:
                self._file.flush()
                local = self._file.name
                self._store.put_through(self._path, lambda files, name: files.put_file(local, name))
        finally:
            self.abort()
        return self._size

    def abort(self) -> None:
        """Drop what was written; nothing happens after ``commit``."""
        self._memory = BytesIO()
        file, self._file = self._file, None
        if file is not None:
            file.close()


@mutable
class _Connection:
    """A file system, and where the dataset lies in it."""

    files: Any
    root: str


class _Options(dict[str, Any]):
    """Options that can be the key of a cache, and show nothing."""

    def __hash__(self) -> int:  # type: ignore[override] a dict that nobody changes
        return hash(tuple(sorted((name, repr(value)) for name, value in self.items())))

    def __repr__(self) -> str:
        return "(options)"


@lru_cache(maxsize=_MAX_FILE_SYSTEMS)
def _connection(uri: str, options: _Options, process: int) -> _Connection:
    """One for each process, because connections do not survive a fork."""
    from fsspec import url_to_fs  # noqa: PLC0415 slow to import

    del process  # only part of the key
    try:
        # An old listing hides versions.
        files, root = url_to_fs(uri, skip_instance_cache=True, use_listings_cache=False, **options)
    except TypeError as error:
        message = without_secrets(str(error), options)
        raise InvalidInputError(f"the file system rejects the storage options: {message}", path=uri) from None
    except ImportError as error:
        raise UnsupportedError(f"the file system cannot be used: {error}", path=uri) from error
    except ValueError as error:
        message = without_secrets(str(error), options)
        raise InvalidInputError(f"the file system cannot be opened: {message}", path=uri) from None
    return _Connection(files, root)


def _check_scheme(uri: str, scheme: str) -> None:
    from fsspec import get_filesystem_class  # noqa: PLC0415 slow to import

    try:
        get_filesystem_class(scheme)
    except (ImportError, ValueError) as error:
        raise UnsupportedError(f"{scheme}:// addresses cannot be opened: {error}", path=uri) from error


def _translated(error: Exception, path: str, options: Mapping[str, Any]) -> Exception:
    """Return an error of this package or of Python that repeats no secrets."""
    status = getattr(error, "status_code", None) or getattr(error, "code", None)
    told = "\n".join(str(error).splitlines()[:_MAX_LINES])
    message = without_secrets(f"{path}: {type(error).__name__}: {told}", options)
    if isinstance(error, (FileNotFoundError, NotADirectoryError, IsADirectoryError)) or status == 404:
        return NotFoundError("there is no such file", path=path)
    if isinstance(error, PermissionError) or status in {401, 403}:
        return PermissionError(message)
    if isinstance(error, TimeoutError):
        return TimeoutError(message)
    if isinstance(error, OSError) and not isinstance(error, ConnectionError):
        return OSError(error.errno, message) if error.errno is not None else OSError(message)
    return ConnectionError(message)


def _modified(files: Any, address: str, info: Mapping[str, Any]) -> datetime:
    """Return the time at which a file was written, UTC."""
    value = next((info[key] for key in _MODIFIED_KEYS if info.get(key)), None)
    modified = files.modified(address) if value is None else value
    if isinstance(modified, (int, float)):
        return datetime.fromtimestamp(modified, UTC)
    if isinstance(modified, str):
        modified = datetime.fromisoformat(modified)
    return modified if modified.tzinfo else modified.replace(tzinfo=UTC)
