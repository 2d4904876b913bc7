"""Datasets on S3 and on services that speak like it.

An object is created exclusively by a PUT with the condition ``If-None-Match: *``. Requests are repeated when their
answer gets lost (by aiohttp even if botocore is told not to), so that the answer "it exists already" may be about our
own object: every exclusive PUT carries a mark of its own among the object's metadata, and who loses looks whose mark it
is. Services that do not know the condition ignore it silently, so each is put to the test before it is trusted.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from contextlib import suppress
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any

from lance_core.errors import NotFoundError, UnsafeStoreError
from lance_core.store.base import ObjectInfo
from lance_core.store.paths import check_path
from lance_core.store.range_reader import FAR_AT_ONCE, TAIL_SIZE, RangeReader
from lance_core.store.s3_client import s3_client, status_of
from lance_core.store.sizes import check_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Future

    import pyarrow as pa

    from lance_core.store.s3_client import S3Client
    from lance_core.store.s3_options import S3Options

PART_SIZE = 16 << 20
"""Bytes of all parts of a large object but the last; there may be 10,000 of them."""

MAX_PARTS_IN_FLIGHT = 3
_MAX_DELETES = 1000
_MARK = "lance-core-writer"
_CONFLICT_PAUSES_S = (0.05, 0.1, 0.2, 0.4)
_CONFLICT, _EXISTS, _NO_SUCH_RANGE, _NOT_IMPLEMENTED = 409, 412, 416, 501


class S3Store:
    """A dataset below a key of a bucket.

    Args:
        bucket: The bucket.
        root: Key of the dataset, without slashes at its ends; empty for the whole bucket.
        uri: Address of the dataset.
        options: How to talk to the service.
    """

    def __init__(self, *, bucket: str, root: str, uri: str, options: S3Options) -> None:
        self._bucket = bucket
        self._root = root
        self._uri = uri
        self._options = options

    def __repr__(self) -> str:
        return f"S3Store({self._uri!r})"

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
    def client(self) -> S3Client:
        """The connection of this process: a store may cross a fork."""
        return s3_client(self._options)

    # ------------------------------------------------------------------------------------------------------- reading

    def reader(self, path: str, /) -> RangeReader:
        """Open an object with one request, which also brings its end."""
        target, address = self.target(path), self._address(path)
        try:
            ((answer, tail),) = self.client.read([{**target, "Range": f"bytes=-{TAIL_SIZE}"}], path=address)
            size = _total_size(answer, len(tail))
        except OSError as error:
            if status_of(error) != _NO_SUCH_RANGE:
                raise
            size, tail = 0, b""  # an empty object has no last byte

        def fetch(ranges: Sequence[tuple[int, int]]) -> list[bytes]:
            requests = [{**target, "Range": f"bytes={start}-{end - 1}"} for start, end in ranges]
            return [content for _, content in self.client.read(requests, path=address)]

        return RangeReader(fetch, path=address, size=size, tail=tail)

    def get(self, path: str, /) -> bytes:
        """Read a whole object."""
        address = self._address(path)
        check = partial(check_size, path, address=address)
        ((_, content),) = self.client.read([self.target(path)], path=address, check=check)
        return content

    def sizes(self, paths: Sequence[str], /) -> list[int]:
        """Bytes in each object, all asked for at the same time."""
        client = self.client
        asked = [(path, client.start("head_object", **self.target(path))) for path in paths]
        return [client.wait(answer, path=self._address(path))["ContentLength"] for path, answer in asked]

    # ------------------------------------------------------------------------------------------------------- writing

    def writer(self, path: str, /) -> S3Writer:
        """Begin an object: one PUT if it stays small, else an upload in parts."""
        check_path(path)
        return S3Writer(self, path)

    def put(self, path: str, data: bytes, /) -> None:
        """Write a whole object."""
        self.call("put_object", path, Body=data)

    def put_if_absent(self, path: str, data: bytes, /) -> bool:
        """Create an object; False if it exists.

        Raises:
            UnsafeStoreError: The service ignores the condition.
            ConnectionError: Whether the object was created is unknown.
        """
        check_path(path)
        self._check_conditions()
        mark = uuid.uuid4().hex
        for pause_s in (*_CONFLICT_PAUSES_S, None):
            try:
                self.call("put_object", path, Body=data, IfNoneMatch="*", Metadata={_MARK: mark})
                return True
            except OSError as error:
                status = status_of(error)
                if status not in {_CONFLICT, _EXISTS}:
                    raise
                if status == _EXISTS or pause_s is None:
                    return self.has_mark(path, mark)
            time.sleep(pause_s)  # another request for the same key is being decided
        raise AssertionError  # the last attempt returned or raised

    def has_mark(self, path: str, mark: str) -> bool:
        """Return whether the object is the one that was written with a mark.

        Raises:
            ConnectionError: The object is gone, so nobody knows.
        """
        try:
            answer = self.call("head_object", path)
        except NotFoundError as error:
            raise ConnectionError(f"{self._address(path)} was there, and is gone") from error
        return answer.get("Metadata", {}).get(_MARK) == mark

    def _check_conditions(self) -> None:
        """Put the service to the test; once for each bucket and process."""
        client = self.client
        if self._bucket in client.trusted_buckets:
            return
        path = f".tmp_{uuid.uuid4().hex}"
        try:
            is_safe = self._creates_once(path, mark=path)
        finally:
            with suppress(OSError):
                self.delete([path])
        if not is_safe:
            raise UnsafeStoreError(
                "this S3 service does not support the condition If-None-Match, or metadata of objects, so that two "
                "writers could overwrite each other's commits; nothing was committed. Use a service that does",
                path=self._uri,
            )
        client.trusted_buckets.add(self._bucket)

    def _creates_once(self, path: str, *, mark: str) -> bool:
        """Return whether an object cannot be created twice, and says who created it."""
        request: dict[str, Any] = {"Body": b"may be deleted", "IfNoneMatch": "*", "Metadata": {_MARK: mark}}
        try:
            self.call("put_object", path, **request)
            self.call("put_object", path, **request)
        except OSError as error:
            status = status_of(error)
            if status not in {_CONFLICT, _EXISTS, _NOT_IMPLEMENTED}:
                raise
            return status != _NOT_IMPLEMENTED and self.has_mark(path, mark)
        return False

    # ------------------------------------------------------------------------------------------------------- listing

    def names(self, folder: str, /) -> list[str]:
        """Names of objects and folders in a folder."""
        return [name for answer in self._pages(folder, Delimiter="/") for name in self._names_in(folder, answer)]

    def first_names(self, folder: str, count: int, /) -> list[str]:
        """The first names in a folder, in ascending order; one request."""
        if self._bucket.endswith("--x-s3"):  # directory buckets list in no order
            return sorted(self.names(folder))[:count]
        answer = next(self._pages(folder, Delimiter="/", MaxKeys=count))
        return sorted(self._names_in(folder, answer))

    def list(self, prefix: str, /) -> Iterator[ObjectInfo]:
        """All objects below a folder."""
        check_path(prefix)
        return self._list(prefix)

    def _list(self, prefix: str) -> Iterator[ObjectInfo]:
        skipped = len(self._key(""))
        for answer in self._pages(prefix):
            for entry in answer.get("Contents", ()):
                yield ObjectInfo(path=entry["Key"][skipped:], size=entry["Size"], modified=entry["LastModified"])

    def delete(self, paths: Sequence[str], /) -> None:
        """Delete objects, a thousand with each request."""
        keys = [{"Key": self.target(path)["Key"]} for path in paths]
        if len(paths) == 1:
            self.call("delete_object", paths[0])
            return
        for start in range(0, len(keys), _MAX_DELETES):
            batch = {"Objects": keys[start : start + _MAX_DELETES], "Quiet": True}
            answer = self.client.call("delete_objects", path=self._uri, Bucket=self._bucket, Delete=batch)
            for failed in answer.get("Errors", ()):
                raise OSError(f"{self._uri}: {failed.get('Key')} was not deleted: {failed.get('Message')}")

    # ------------------------------------------------------------------------------------------------------ requests

    def target(self, path: str) -> dict[str, str]:
        """Arguments that name an object in a request."""
        check_path(path)
        return {"Bucket": self._bucket, "Key": self._key(path)}

    def call(self, method: str, path: str, **arguments: Any) -> Mapping[str, Any]:
        """Make a request about an object; errors as `S3Client.call`."""
        return self.client.call(method, path=self._address(path), **self.target(path), **arguments)

    def _key(self, path: str) -> str:
        return f"{self._root}/{path}" if self._root else path

    def _address(self, path: str) -> str:
        return f"{self._uri}/{path}"

    def _pages(self, folder: str, **arguments: Any) -> Iterator[Mapping[str, Any]]:
        check_path(folder)
        arguments |= {"Bucket": self._bucket, "Prefix": self._key(f"{folder}/")}
        while True:
            answer = self.client.call("list_objects_v2", path=self._address(folder), **arguments)
            yield answer
            if not answer.get("IsTruncated"):
                return
            arguments["ContinuationToken"] = answer["NextContinuationToken"]

    def _names_in(self, folder: str, answer: Mapping[str, Any]) -> list[str]:
        skipped = len(self._key(f"{folder}/"))
        objects = [entry["Key"][skipped:] for entry in answer.get("Contents", ())]
        folders = [entry["Prefix"][skipped:-1] for entry in answer.get("CommonPrefixes", ())]
        return [name for name in objects + folders if name]  # a folder may be an object of its own, with no name left


class S3Writer:
    """An object that appears when it is finished. Memory holds a few parts of it.

    Args:
        store: Where it will appear.
        path: Under which name.
    """

    def __init__(self, store: S3Store, path: str) -> None:
        self._store = store
        self._client = store.client
        self._path = path
        self._address = f"{store.uri}/{path}"
        self._mark = uuid.uuid4().hex
        self._size = 0
        self._part = BytesIO()
        self._upload: dict[str, str] | None = None
        self._in_flight: deque[Future[Any]] = deque()
        self._etags: list[str] = []

    def write(self, data: bytes | memoryview | pa.Buffer) -> None:
        """Append bytes; full parts are on their way while more is written."""
        left = memoryview(data).cast("B")
        self._size += len(left)
        while len(left):
            written = self._part.write(left[: PART_SIZE - self._part.tell()])
            left = left[written:]
            if self._part.tell() == PART_SIZE:
                self._send()

    def commit(self) -> int:
        """Let the object appear and return its size in bytes."""
        if self._upload is None:
            self._store.call("put_object", self._path, Body=self._part.getvalue())
        else:
            if self._part.tell():
                self._send()
            while self._in_flight:
                self._receive()
            self._complete(self._upload)
            self._upload = None
        self._part = BytesIO()
        return self._size

    def abort(self) -> None:
        """Drop what was written; nothing happens after ``commit``."""
        self._part = BytesIO()
        upload, self._upload = self._upload, None
        if upload is None:
            return
        while self._in_flight:  # a part that arrives after the end of the upload would stay
            with suppress(Exception):
                self._in_flight.popleft().result()
        with suppress(NotFoundError):
            self._client.call("abort_multipart_upload", path=self._address, **upload)

    def _send(self) -> None:
        if self._upload is None:
            mark = {_MARK: self._mark}
            answer = self._store.call("create_multipart_upload", self._path, Metadata=mark)
            self._upload = {**self._store.target(self._path), "UploadId": answer["UploadId"]}
        if len(self._in_flight) == MAX_PARTS_IN_FLIGHT:
            self._receive()
        number = len(self._etags) + len(self._in_flight) + 1
        body, self._part = self._part.getvalue(), BytesIO()
        self._in_flight.append(self._client.start("upload_part", **self._upload, PartNumber=number, Body=body))

    def _receive(self) -> None:
        self._etags.append(self._client.wait(self._in_flight.popleft(), path=self._address)["ETag"])

    def _complete(self, upload: Mapping[str, str]) -> None:
        parts = {"Parts": [{"PartNumber": number, "ETag": etag} for number, etag in enumerate(self._etags, 1)]}
        try:
            self._client.call("complete_multipart_upload", path=self._address, **upload, MultipartUpload=parts)
        except OSError:
            # The upload is also unknown when it was completed before, and the answer got lost.
            with suppress(OSError):
                if self._store.has_mark(self._path, self._mark):
                    return
            raise


def _total_size(answer: Mapping[str, Any], num_bytes: int) -> int:
    """Size of the whole object; a service that ignores the range sends all of it."""
    content_range: str = answer.get("ContentRange") or ""
    total = content_range.rpartition("/")[2]
    return int(total) if total.isdigit() else num_bytes
