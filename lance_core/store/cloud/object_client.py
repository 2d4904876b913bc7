"""One connection to an object store for each process and each set of options, through obstore.

obstore is Rust: its threads do not survive a fork, and a request in a forked child would wait forever. Imports of
obstore stay in functions: it is an extra.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import contextmanager, suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Protocol

from lance_core.errors import InvalidInputError, LanceError, NotFoundError, UnsupportedError
from lance_core.store.cloud.condition_test import ConditionTest
from lance_core.store.cloud.hedged_requests import SLOW_UPLOAD, HedgedRequests

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Hashable, Iterator, Mapping, Sequence

    from lance_core.store.cloud.client_options import ClientOptions
    from lance_core.store.cloud.hedged_requests import Pending

_MAX_CLIENTS = 16
_MAX_RANGES_IN_CALL = 10
"""Ranges that one call of obstore requests at the same time."""

_MOST_DELETED = 1000
"""Objects that are deleted with one call: as many as S3 takes with one request."""

_MARK = "lancecorewriter"  # Azure allows only letters, digits and underscores, which some proxies drop
_CONFLICT_PAUSES_S = (0.05, 0.1, 0.2, 0.4)
_LOST_PAUSE_S = 0.1
_MISSING, _CONFLICT, _NO_SUCH_RANGE, _NOT_IMPLEMENTED = 404, 409, 416, 501
_STATUS = re.compile(r"status code: (\d{3})")
_NO_PART = ("non-partial response", "CONTENT_RANGE header")
PARTS_IN_FLIGHT = 3
"""Parts of one object that are uploaded at the same time; a writer waits before it begins another."""


class Bucket(Protocol):
    """A bucket or container, with the settings of its service; hashable, equal if all of it is."""

    @property
    def options(self) -> ClientOptions:
        """Settings of the client."""
        ...

    @property
    def condition(self) -> str:
        """Name of the condition that an object is absent."""
        ...

    @property
    def reads_suffixes(self) -> bool:
        """True if a request can ask for the last bytes of an object without its size."""
        ...

    def connect(self) -> Any:
        """Return a store of obstore."""
        ...


def client_of(bucket: Bucket) -> ObjectClient:
    """Return the connection of this process to a bucket.

    Raises:
        UnsupportedError: obstore is not installed, or this process was forked from one that used it.
    """
    return _client(bucket, os.getpid())


@lru_cache(maxsize=_MAX_CLIENTS)
def _client(bucket: Hashable, process: int) -> ObjectClient:
    del process  # only part of the key
    return ObjectClient(bucket)  # pyright: ignore[reportArgumentType] a bucket is hashable


class _Fork:
    """Remembers whether the parent of this process used obstore."""

    is_used = False
    is_child_of_user = False

    @classmethod
    def after_in_child(cls) -> None:
        cls.is_child_of_user |= cls.is_used


os.register_at_fork(after_in_child=_Fork.after_in_child)


def obstore() -> Any:
    """Import obstore.

    Raises:
        UnsupportedError: It is not installed, or its threads did not survive a fork.
    """
    if _Fork.is_child_of_user:
        raise UnsupportedError(
            "this process was forked from one that had used an object store, whose connections do not survive a "
            "fork; start processes with the method 'spawn' or 'forkserver'"
        )
    try:
        import obstore  # noqa: PLC0415 an extra
    except ImportError as error:
        raise UnsupportedError(
            "object stores need obstore, which is not installed: pip install 'lance-dagster[s3]' (or [gcs], or [azure])"
        ) from error
    _Fork.is_used = True
    return obstore


class ObjectClient:
    """Requests to one bucket or container; may be used by several threads.

    Args:
        bucket: The bucket, with its settings.

    Attributes:
        conditions: Tells whether the service creates objects only if they are absent.
    """

    def __init__(self, bucket: Bucket) -> None:
        self._obstore = obstore()
        self._bucket = bucket
        try:
            self._files = bucket.connect()
        except self._obstore.exceptions.BaseError as error:
            raise InvalidInputError(f"the object store cannot be opened: {_summary(error)}") from None
        self._requests = HedgedRequests(bucket.options.request_settings(), translated)
        self.conditions = ConditionTest(self)

    # ------------------------------------------------------------------------------------------------------- reading

    def get(self, key: str, *, address: str, check: Callable[[int], None]) -> bytes:
        """Read a whole object; ``check`` is told its size before it is read.

        Raises:
            NotFoundError: No such object or bucket; likewise in all methods.
            PermissionError: Not allowed; likewise.
            ConnectionError: No answer, or one that leaves open whether the request had an effect; likewise.
            OSError: Refused; likewise.
        """

        async def ask() -> bytes:
            answer = await self._obstore.get_async(self._files, key)
            check(answer.meta["size"])
            return bytes(await answer.bytes_async())

        return self._requests.begin(ask, num_bytes=0, address=address).result()

    def get_tail(
        self, key: str, num_bytes: int, *, address: str, size: int | None = None
    ) -> tuple[bytes, int, Hashable]:
        """Read the last bytes of an object; return them, the object's size and what tells that it was not replaced.

        Args:
            key: Of the object.
            num_bytes: Number of bytes to read.
            address: For errors.
            size: Size of the object if it is known: some services need it, and take one more request without it.
        """
        if size is None and not self._bucket.reads_suffixes:
            (size,) = self.sizes([key], address=lambda _: address)
        byte_range = self._tail_range(num_bytes, size)

        async def ask() -> tuple[bytes, int, Any]:
            try:
                answer = await self._obstore.get_async(self._files, key, options={"range": byte_range})
            except self._obstore.exceptions.BaseError as error:
                if status_of(error) != _NO_SUCH_RANGE and not any(text in str(error) for text in _NO_PART):
                    raise
                # An empty object has no last byte, and some services answer with all of a small object.
                answer = await self._obstore.get_async(self._files, key)
            return bytes(await answer.bytes_async()), answer.range[1], answer.meta

        data, end, meta = self._requests.begin(ask, num_bytes=num_bytes, address=address).result()
        if end < meta["size"]:  # the object is larger than it was believed to be
            return self.get_tail(key, num_bytes, address=address, size=meta["size"])
        return data, meta["size"], (meta["e_tag"], meta["version"], meta["last_modified"])

    def _tail_range(self, num_bytes: int, size: int | None) -> Any:
        if size is None or self._bucket.reads_suffixes:
            return {"suffix": num_bytes}
        return max(0, size - num_bytes), max(1, size)

    def begin_ranges(self, key: str, ranges: Sequence[tuple[int, int]], *, address: str) -> Pending[list[Any]]:
        """Begin to read byte ranges at the same time, as they are: one request for each."""

        def asks(some: Sequence[tuple[int, int]]) -> tuple[Callable[[], Awaitable[list[Any]]], int]:
            starts, ends = [start for start, _ in some], [end for _, end in some]
            ask = partial(self._obstore.get_ranges_async, self._files, key, starts=starts, ends=ends, coalesce=0)
            return ask, sum(ends) - sum(starts)

        calls = [ranges[at : at + _MAX_RANGES_IN_CALL] for at in range(0, len(ranges), _MAX_RANGES_IN_CALL)]
        return self._requests.begin_all(list(map(asks, calls)), address=address)

    def sizes(self, keys: Sequence[str], *, address: Callable[[str], str]) -> list[int]:
        """Return the sizes of objects, asked for at the same time."""

        def begin(key: str) -> Pending[Mapping[str, Any]]:
            ask = partial(self._obstore.head_async, self._files, key)
            return self._requests.begin(ask, num_bytes=0, address=address(key), name="store.head")

        reads = list(map(begin, keys))
        try:
            return [read.result()["size"] for read in reads]
        finally:
            for read in reads:
                read.cancel()

    # ------------------------------------------------------------------------------------------------------- writing

    def begin_put(
        self, key: str, data: bytes | memoryview, *, address: str, is_repeatable: bool
    ) -> Pending[Mapping[str, Any]]:
        """Begin to write a whole object, replacing what is there.

        Args:
            key: Of the object.
            data: Its content.
            address: For errors.
            is_repeatable: Nobody writes anything else there, so that the request may be on its way twice.
        """
        ask = partial(self._obstore.put_async, self._files, key, data, use_multipart=False)
        return self._requests.begin(
            ask,
            num_bytes=len(data),
            address=address,
            name="store.put",
            is_repeatable=is_repeatable,
            slow_rate=SLOW_UPLOAD,
        )

    def create(self, key: str, data: bytes, *, mark: str, address: str) -> bool:
        """Create an object; return False if it exists and was written by another.

        Requests are repeated when their answer gets lost, so "it exists already" may be about our own object. The mark
        among its metadata tells.

        Args:
            key: Of the object.
            data: Its content.
            mark: Nobody else has it.
            address: For errors.
        """
        pauses, lost = list(_CONFLICT_PAUSES_S), 0
        while True:
            try:
                refusal = self._create(key, data, mark, address)
            except Exception as error:
                has_answer = not isinstance(error, self._obstore.exceptions.BaseError) or status_of(error) is not None
                if has_answer or lost == self._bucket.options.client_max_retries:
                    with translated(address):
                        raise
                lost, pause_s = lost + 1, _LOST_PAUSE_S
            else:
                if refusal is None:
                    return True
                try:
                    return self.has_mark(key, mark, address=address)
                except ConnectionError:
                    if status_of(refusal) != _CONFLICT or not pauses:
                        raise
                pause_s = pauses.pop(0)  # another request for the same key is being decided
            time.sleep(pause_s)

    def _create(self, key: str, data: bytes, mark: str, address: str) -> Exception | None:
        """Create an object; return what the service said if it exists. Other errors are obstore's."""

        async def ask() -> Exception | None:
            try:
                await self._obstore.put_async(
                    self._files, key, data, mode="create", use_multipart=False, attributes={_MARK: mark}
                )
            except self._obstore.exceptions.AlreadyExistsError as error:
                return error  # an answer: that of a repetition counts even if the first request is still on its way
            return None

        return self._requests.begin(
            ask, num_bytes=len(data), address=address, name="store.create", slow_rate=SLOW_UPLOAD
        ).outcome()

    def has_mark(self, key: str, mark: str, *, address: str) -> bool:
        """Return whether the object was written with a mark.

        Raises:
            ConnectionError: The object is gone, so nobody knows.
        """
        ask = partial(self._obstore.get_async, self._files, key, options={"head": True})
        try:
            answer = self._requests.begin(ask, num_bytes=0, address=address, name="store.head").result()
        except NotFoundError as error:
            raise ConnectionError(f"{address} was there, and is gone") from error
        return answer.attributes.get(_MARK) == mark

    def creates_once(self, key: str, *, mark: str, address: str) -> bool:
        """Return whether the service refuses to create an object twice, and tells who created it."""
        with translated(address):
            try:
                for _ in range(2):
                    if self._create(key, b"may be deleted", mark, address) is not None:
                        return self.has_mark(key, mark, address=address)
            except Exception as error:
                if status_of(error) != _NOT_IMPLEMENTED:
                    raise
        return False

    def open_writer(self, key: str, *, part_size: int, mark: str) -> Any:
        """Return a file of obstore: one PUT if it stays small, else an upload in parts.

        Args:
            key: Of the object, which appears when the file is closed.
            part_size: Bytes of a part.
            mark: As of `create`.
        """
        return self._obstore.open_writer(
            self._files, key, attributes={_MARK: mark}, buffer_size=part_size, max_concurrency=PARTS_IN_FLIGHT
        )

    def delete(self, keys: Sequence[str], *, address: str, is_repeatable: bool = False) -> None:
        """Delete objects, many with one request where the service can; those that are gone already are no error.

        Args:
            keys: Of the objects.
            address: For errors.
            is_repeatable: Nobody writes there again, so that the request may be on its way twice.
        """
        for at in range(0, len(keys), _MOST_DELETED):
            some = list(keys[at : at + _MOST_DELETED])
            try:
                self._begin_delete(some, address, is_repeatable=is_repeatable).result()
            except NotFoundError:  # S3 does not tell of single objects; other services stop at the first one
                one_by_one = some if len(some) > 1 else []
                for deletion in [self._begin_delete([key], address, is_repeatable=is_repeatable) for key in one_by_one]:
                    with suppress(NotFoundError):
                        deletion.result()

    def _begin_delete(self, keys: list[str], address: str, *, is_repeatable: bool) -> Pending[None]:
        ask = partial(self._obstore.delete_async, self._files, keys[0] if len(keys) == 1 else keys)
        return self._requests.begin(ask, num_bytes=0, address=address, name="store.delete", is_repeatable=is_repeatable)

    # ------------------------------------------------------------------------------------------------------- listing

    def list(self, prefix: str, *, address: str, chunk_size: int = 1000) -> Iterator[Sequence[Mapping[str, Any]]]:
        """Yield the objects below a folder, some at a time: path, size and last_modified of each.

        The first request is sent again if the service is silent; the others continue what one service has told.
        """

        async def first() -> tuple[Any, Sequence[Mapping[str, Any]] | None]:
            pages = self._obstore.list(self._files, prefix or None, chunk_size=chunk_size)
            return pages, await following(pages)

        async def following(pages: Any) -> Sequence[Mapping[str, Any]] | None:
            return await anext(pages, None)

        pages, page = self._requests.begin(first, num_bytes=0, address=address, name="store.list").result()
        while page is not None:
            yield page
            ask = partial(following, pages)
            page = self._requests.begin(
                ask, num_bytes=0, address=address, name="store.list", is_repeatable=False
            ).result()

    def list_folder(self, prefix: str, *, address: str) -> tuple[list[str], list[str]]:
        """Return the keys of the objects and of the folders directly in a folder."""
        ask = partial(self._obstore.list_with_delimiter_async, self._files, prefix or None)
        answer = self._requests.begin(ask, num_bytes=0, address=address, name="store.list").result()
        return [entry["path"] for entry in answer["objects"]], list(answer["common_prefixes"])


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status behind an error of obstore; None if there was no answer."""
    match = _STATUS.search(str(error))
    return None if match is None else int(match[1])


@contextmanager
def translated(address: str) -> Generator[None]:
    """Raise errors of this package and of Python only."""
    try:
        yield
    except (LanceError, PermissionError, ConnectionError, TimeoutError):
        raise
    except FileNotFoundError as error:
        raise NotFoundError(f"the store has no such object or bucket ({_summary(error)})", path=address) from None
    except Exception as error:
        name, status = type(error).__name__, status_of(error)
        if not type(error).__module__.startswith("obstore"):
            raise
        message = f"{address}: {_summary(error)}"
        if status == _MISSING:
            raise NotFoundError(f"the store has no such object or bucket ({_summary(error)})", path=address) from None
        if name in {"PermissionDeniedError", "UnauthenticatedError"}:
            raise PermissionError(message) from None
        if status is None or status >= 500:
            raise ConnectionError(message) from None
        raise OSError(message) from None


def _summary(error: Exception) -> str:
    """Return what the service said, or what went wrong; without the dump of Rust's values behind it."""
    text = str(error).partition("\n\nDebug source")[0].strip()
    said = [re.search(f"<{part}>(.*?)</{part}>", text, re.DOTALL) for part in ("Code", "Message")]
    return " ".join([text.partition(": <")[0].strip(), *[match[1] for match in said if match]])
