"""Datasets on object stores: S3 and services that speak like it, Google Cloud Storage, Azure.

An object is created exclusively by a PUT with a condition (`lance_core.store.cloud.object_client.ObjectClient.create`).
Services that do not know the condition ignore it silently, so each is put to the test before it is trusted.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from lance_core.errors import UnsafeStoreError
from lance_core.store.base import ObjectInfo
from lance_core.store.cloud.object_client import client_of, translated
from lance_core.store.paths import check_path, is_written_once
from lance_core.store.range_reader import FAR_AT_ONCE, TAIL_SIZE, WHOLE_BYTES, reader_of, tail_bytes
from lance_core.store.sizes import check_size
from lance_core.telemetry import StoreCall

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from lance_core.store.base import ObjectReader, PendingRead
    from lance_core.store.cloud.object_client import Bucket, ObjectClient

PART_SIZE = 16 << 20
"""Bytes of all parts of a large object but the last; S3 takes 10,000 of them."""


class CloudStore:
    """A dataset below a key of a bucket.

    Args:
        bucket: The bucket.
        root: Key of the dataset, without slashes at its ends; empty for the whole bucket.
        uri: Address of the dataset.
        is_ordered: The service lists keys in ascending order.
    """

    def __init__(self, *, bucket: Bucket, root: str, uri: str, is_ordered: bool = True) -> None:
        self._bucket = bucket
        self._root = root
        self._uri = uri
        self._is_ordered = is_ordered

    def __repr__(self) -> str:
        return f"CloudStore({self._uri!r})"

    @property
    def uri(self) -> str:
        """Address of the dataset."""
        return self._uri

    @property
    def root(self) -> str:
        """Key of the dataset in its bucket."""
        return self._root

    @property
    def at_once(self) -> int:
        """Objects that may be read at the same time."""
        return FAR_AT_ONCE

    @property
    def waits_in_tasks(self) -> bool:
        """True: requests are waited for as tasks do."""
        return True

    @property
    def client(self) -> ObjectClient:
        """The connection of this process."""
        return client_of(self._bucket)

    # ------------------------------------------------------------------------------------------------------- reading

    def reader(self, path: str, /) -> ObjectReader:
        """Open an object with one request, which also brings its end."""
        return self._open(path, TAIL_SIZE)

    def sized_reader(self, path: str, size: int, /, *, most_bytes: int = WHOLE_BYTES) -> ObjectReader:
        """Open a data file with one request, which brings all of a small one, and of others the end with checksums."""
        return self._open(path, tail_bytes(size, most_bytes), believed=size)

    def _open(self, path: str, num_bytes: int, *, believed: int | None = None) -> ObjectReader:
        key, address = self._target(path)
        tail, size, stamp = self.client.get_tail(key, num_bytes, address=address, size=believed)

        def fetch(ranges: Sequence[tuple[int, int]]) -> PendingRead[list[Any]]:
            return self.client.begin_ranges(key, ranges, address=address)

        return reader_of(fetch, path=address, size=size, tail=tail, stamp=stamp)

    def get(self, path: str, /) -> bytes:
        """Read a whole object."""
        key, address = self._target(path)
        return self.client.get(key, address=address, check=partial(check_size, path, address=address))

    def sizes(self, paths: Sequence[str], /) -> list[int]:
        """Return bytes in each object, all asked for at the same time."""
        addresses = dict(map(self._target, paths))
        return self.client.sizes([*map(self._key, paths)], address=addresses.__getitem__)

    # ------------------------------------------------------------------------------------------------------- writing

    def writer(self, path: str, /) -> CloudWriter:
        """Begin an object: one PUT if it stays small, else an upload in parts.

        The commit that follows creates an object on a condition, so the test of the service begins meanwhile.
        """
        key, address = self._target(path)
        client = self.client
        client.conditions.begin(self._key(""), address=self._uri)
        return CloudWriter(client, key, address, is_repeatable=is_written_once(path))

    def put(self, path: str, data: bytes, /) -> None:
        """Write a whole object."""
        self.begin_puts([(path, data)])[0].result()

    def begin_puts(self, objects: Sequence[tuple[str, bytes]], /) -> Sequence[PendingRead[object]]:
        """Begin to write whole objects."""
        client, writes = self.client, []
        for path, data in objects:
            key, address = self._target(path)
            writes.append(client.begin_put(key, data, address=address, is_repeatable=is_written_once(path)))
        return writes

    def put_if_absent(self, path: str, data: bytes, /) -> bool:
        """Create an object; False if it exists.

        Raises:
            UnsafeStoreError: The service ignores the condition.
            ConnectionError: Whether the object was created is unknown.
        """
        key, address = self._target(path)
        self._check_conditions()
        return self.client.create(key, data, mark=uuid.uuid4().hex, address=address)

    def _check_conditions(self) -> None:
        """Test the service, once for each connection, unless that began with the first data file."""
        if not self.client.conditions.passes(self._key(""), address=self._uri):
            raise UnsafeStoreError(
                f"this service does not support the condition {self._bucket.condition}, or metadata of objects, so "
                "that two writers could overwrite each other's commits; nothing was committed. Use a service that does",
                path=self._uri,
            )

    def delete(self, paths: Sequence[str], /) -> None:
        """Delete objects, many with each request where the service can."""
        keys = [self._target(path)[0] for path in paths]
        if keys:
            self.client.delete(keys, address=self._uri, is_repeatable=all(map(is_written_once, paths)))

    # ------------------------------------------------------------------------------------------------------- listing

    def names(self, folder: str, /) -> list[str]:
        """Names of objects and folders in a folder."""
        return self._names(*self._target(folder))

    def root_names(self) -> list[str]:
        """Names of objects and folders in the root."""
        return self._names(self._root, self._uri)

    def _names(self, key: str, address: str) -> list[str]:
        objects, folders = self.client.list_folder(key, address=address)
        return [child.rpartition("/")[2] for child in (*objects, *folders)]

    def first_names(self, folder: str, count: int, /) -> list[str]:
        """Return the first names in a folder, in ascending order; one request."""
        if not self._is_ordered:
            return sorted(self.names(folder))[:count]
        key, address = self._target(folder)
        page = next(self.client.list(key, address=address, chunk_size=count), ())
        names = dict.fromkeys(entry["path"][len(key) + 1 :].partition("/")[0] for entry in page)
        return sorted(names)

    def list(self, prefix: str, /) -> Iterator[ObjectInfo]:
        """Yield all objects below a folder."""
        key, address = self._target(prefix)
        skipped = len(self._key(""))
        for page in self.client.list(key, address=address):
            for entry in page:
                yield ObjectInfo(path=entry["path"][skipped:], size=entry["size"], modified=entry["last_modified"])

    # ---------------------------------------------------------------------------------------------------------- paths

    def _target(self, path: str) -> tuple[str, str]:
        """Key of an object, and its address for errors."""
        check_path(path)
        return self._key(path), f"{self._uri}/{path}"

    def _key(self, path: str) -> str:
        return f"{self._root}/{path}" if self._root else path


class CloudWriter:
    """An object that appears when it is finished. Memory holds a few parts of it, which are uploaded meanwhile.

    Args:
        client: The connection.
        key: Of the object.
        address: For errors.
        is_repeatable: As of `ObjectClient.begin_put`, for an object that stays small.
    """

    def __init__(self, client: ObjectClient, key: str, address: str, *, is_repeatable: bool) -> None:
        self._client = client
        self._key = key
        self._address = address
        self._is_repeatable = is_repeatable
        self._mark = uuid.uuid4().hex
        self._size = 0
        self._first_part: bytearray | None = bytearray()
        self._file: Any = None

    def write(self, data: bytes | memoryview | pa.Buffer) -> None:
        """Append bytes; full parts are on their way while more is written."""
        view = memoryview(data).cast("B")
        self._size += len(view)
        if self._first_part is not None:
            if self._size <= PART_SIZE:
                self._first_part += view
                return
            self._file = self._client.open_writer(self._key, part_size=PART_SIZE, mark=self._mark)
            self._upload(memoryview(self._first_part))
            self._first_part = None
        self._upload(view)

    def _upload(self, view: memoryview) -> None:
        with translated(self._address):
            for start in range(0, len(view), PART_SIZE):
                self._file.write(view[start : start + PART_SIZE])

    def commit(self) -> int:
        """Let the object appear and return its size in bytes."""
        if self._first_part is not None:
            self._client.begin_put(
                self._key, memoryview(self._first_part), address=self._address, is_repeatable=self._is_repeatable
            ).result()
            return self._size
        file, self._file = self._file, None
        try:
            with StoreCall("store.upload", self._address) as span, translated(self._address):
                file.close()
                span.add(num_bytes=self._size)
        except OSError:
            # The upload is also unknown when it was completed before, and the answer got lost.
            with suppress(OSError):
                if self._client.has_mark(self._key, self._mark, address=self._address):
                    return self._size
            raise
        return self._size

    def abort(self) -> None:
        """Drop what was written; nothing happens after ``commit``."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(Exception):  # what was uploaded goes with the bucket's rule for unfinished uploads
                file.__exit__(InterruptedError, InterruptedError(), None)
