"""One connection to S3 for each process and each set of options, through s3fs.

Connections do not survive a fork: Spark forks its workers, so the process is part of what a connection is known by.
Imports of s3fs stay in here, in functions: it is an extra, and slow to import.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import contextmanager
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

from lance_core.errors import LanceError, NotFoundError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
    from concurrent.futures import Future

    from lance_core.store.s3_options import S3Options

_MAX_CONNECTIONS = 32
_MAX_CLIENTS = 16
_BODY_ATTEMPTS = 3


def s3_client(options: S3Options) -> S3Client:
    """The connection of this process.

    Raises:
        UnsupportedError: s3fs is not installed.
    """
    return _client_of(options, os.getpid())


@lru_cache(maxsize=_MAX_CLIENTS)
def _client_of(options: S3Options, process: int) -> S3Client:
    del process  # only part of the key
    return S3Client(options)


class S3Client:
    """Requests to S3; may be used by several threads.

    Attributes:
        trusted_buckets: Buckets known to keep their promise to create objects only if they are absent.
    """

    def __init__(self, options: S3Options) -> None:
        try:
            import s3fs  # noqa: PLC0415 an extra
        except ImportError as error:
            raise UnsupportedError(
                "s3:// addresses need s3fs, which is not installed: pip install 'lance-dagster[s3]'"
            ) from error
        self.trusted_buckets: set[str] = set()
        self._files: Any = s3fs.S3FileSystem(**_arguments(options))
        self._files.retries = 1  # botocore's own retries are enough, and the number of them is an option

    def call(self, method: str, /, *, path: str, **arguments: Any) -> Mapping[str, Any]:
        """Make one request and wait for the answer.

        Args:
            method: Name of the request in botocore.
            path: What it is about, for errors.
            **arguments: As in botocore.

        Raises:
            NotFoundError: No such object or bucket.
            PermissionError: Not allowed.
            ConnectionError: No answer, or one that leaves open whether the request had an effect.
            OSError: Refused; `status_of` tells more.
        """
        return self.wait(self.start(method, **arguments), path=path)

    def start(self, method: str, /, **arguments: Any) -> Future[Any]:
        """Make one request, without waiting."""
        if "Body" in arguments:  # plain bytes would be sent in one piece, while nothing else can be
            arguments["Body"] = BytesIO(arguments["Body"])
        return self._run(self._call(method, arguments))

    def read(
        self, requests: Sequence[Mapping[str, Any]], *, path: str, check: Callable[[int], None] | None = None
    ) -> list[tuple[Mapping[str, Any], bytes]]:
        """Read several (parts of) objects at the same time: answer and content of each; errors as `call`.

        Args:
            requests: Arguments of each request.
            path: What they are about, for errors.
            check: Is told the size of an answer before that is read; what it raises ends the request.
        """
        return self.wait(self._run(self._read_all(requests, check)), path=path)

    def wait(self, future: Future[Any], *, path: str) -> Any:
        """The answer to what was started; errors as `call`."""
        with _translated(path):
            return future.result()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._files.loop)

    def _call(self, method: str, arguments: Mapping[str, Any]) -> Coroutine[Any, Any, Any]:
        return self._files._call_s3(method, **arguments)  # noqa: SLF001 the documented way to call asynchronously

    async def _read_all(
        self, requests: Sequence[Mapping[str, Any]], check: Callable[[int], None] | None
    ) -> list[tuple[Mapping[str, Any], bytes]]:
        return await asyncio.gather(*(self._read_one(request, check) for request in requests))

    async def _read_one(
        self, request: Mapping[str, Any], check: Callable[[int], None] | None
    ) -> tuple[Mapping[str, Any], bytes]:
        """The connection may break while the content arrives, which botocore does not repeat."""
        for attempt in range(1, _BODY_ATTEMPTS + 1):
            answer = await self._call("get_object", request)
            try:
                async with answer["Body"] as body:
                    if check is not None:
                        check(answer.get("ContentLength", 0))
                    return answer, await body.read()
            except LanceError:
                raise
            except Exception:
                if attempt == _BODY_ATTEMPTS:
                    raise
        raise AssertionError  # the last attempt returned or raised


def status_of(error: BaseException) -> int | None:
    """Status code of the answer behind an error; None if there was no answer."""
    answer = getattr(error.__cause__, "response", None)
    return answer.get("ResponseMetadata", {}).get("HTTPStatusCode") if isinstance(answer, dict) else None


@contextmanager
def _translated(path: str) -> Generator[None]:
    """Raise errors of this package and of Python only."""
    try:
        yield
    except LanceError:
        raise
    except Exception as error:  # noqa: BLE001 - botocore's errors have no base but this
        status = status_of(error)
        message = f"{path}: {error}"
        if status == 404:
            raise NotFoundError(f"the store has no such object or bucket ({error})", path=path) from error.__cause__
        if status in {401, 403}:
            raise PermissionError(message) from error.__cause__
        if status is None or status >= 500:
            raise ConnectionError(message) from (error.__cause__ or error)
        raise OSError(message) from error.__cause__


def _arguments(options: S3Options) -> dict[str, Any]:
    """Arguments of s3fs. Listings are not cached: an old one hides versions."""
    virtual = options.virtual_hosted_style_request
    if virtual is None and options.endpoint is not None:
        virtual = False
    style = {None: "auto", True: "virtual", False: "path"}[virtual]
    extra = {"ServerSideEncryption": options.server_side_encryption, "SSEKMSKeyId": options.sse_kms_key_id}
    client = {"region_name": options.region, "verify": False if options.allow_invalid_certificates else None}
    return {
        "skip_instance_cache": True,
        "use_listings_cache": False,
        "key": options.access_key_id,
        "secret": options.secret_access_key,
        "token": options.session_token,
        "anon": options.skip_signature,
        "endpoint_url": options.endpoint,
        "client_kwargs": {name: value for name, value in client.items() if value is not None},
        "config_kwargs": {
            "connect_timeout": options.connect_timeout,
            "read_timeout": options.request_timeout,
            "max_pool_connections": _MAX_CONNECTIONS,
            "retries": {"mode": "standard", "total_max_attempts": options.client_max_retries + 1},
            "s3": {"addressing_style": style},
        },
        "s3_additional_kwargs": {name: value for name, value in extra.items() if value is not None},
    }
