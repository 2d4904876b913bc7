"""Versions of datasets in a DynamoDB table, laid out as pylance has it (``s3+ddb://bucket/path?ddbTableName=T``).

    base_uri   S   hash key: path of the dataset, without scheme and bucket
    version    N   range key
    path       S   key of the manifest in the bucket
    size       N   its bytes
    committer  S   who wrote the row

Rows of older writers may lack ``size`` and have an ``e_tag``; neither is needed. Imports of botocore stay in
functions: it comes with the extra ``boto3``, and is slow to import.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from lance_core.errors import CorruptDataError, InvalidInputError, NotFoundError, UnsupportedError
from lance_core.store.version_table import VersionRow

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from lance_core.store.cloud.s3_options import S3Options

_COMMITTER = "lance-dagster"
_MAX_CLIENTS = 16
_KEYS = {("base_uri", "HASH"), ("version", "RANGE")}
_NAMES = {"#path": "path"}  # a reserved word


class DynamoTable:
    """The rows of one table; those of a dataset have paths below its own.

    Args:
        name: The table.
        options: How to talk to the service; those of S3.
        endpoint: Address of another service than AWS's; None for ``DYNAMODB_ENDPOINT`` of the environment, or AWS.
    """

    def __init__(self, name: str, options: S3Options, *, endpoint: str | None) -> None:
        self._name = name
        self._options = options
        self._endpoint = endpoint or os.environ.get("DYNAMODB_ENDPOINT")

    def __repr__(self) -> str:
        return f"DynamoTable({self._name!r})"

    def create(self, base: str, row: VersionRow, /) -> bool:
        """Create a row; False if the version has one."""
        condition = "attribute_not_exists(base_uri) AND attribute_not_exists(version)"
        return self._call("put_item", Item=_item(base, row), ConditionExpression=condition) is not None

    def settle(self, base: str, row: VersionRow, /, *, staged: str) -> None:
        """Replace a row if its path is still ``staged``."""
        self._call("put_item", Item=_item(base, row), **_if_path_is(base, staged))

    def find(self, base: str, version: int | None, /) -> VersionRow | None:
        """Return the row of a version, or of the newest one; a consistent read."""
        if version is None:
            answer = self._call(
                "query",
                KeyConditionExpression="base_uri = :base",
                ExpressionAttributeValues={":base": {"S": base}},
                ScanIndexForward=False,
                Limit=1,
                ConsistentRead=True,
            )
            items: list[Any] = (answer or {}).get("Items", [])
            return _row(base, items[0], self._name) if items else None
        answer = self._call("get_item", Key=_key(base, version), ConsistentRead=True)
        item = (answer or {}).get("Item")
        return _row(base, item, self._name) if item else None

    def remove(self, base: str, row: VersionRow, /) -> None:
        """Remove a row if its path is still the same."""
        self._call("delete_item", Key=_key(base, row.version), **_if_path_is(base, row.path))

    def _call(self, method: str, **arguments: Any) -> Mapping[str, Any] | None:
        """Make a request; None if its condition does not hold."""
        client, trusted = _client(self._options, self._endpoint, os.getpid())
        with _translated(self._name):
            if self._name not in trusted:
                self._check_keys(client)
                trusted.add(self._name)
            try:
                return getattr(client, method)(TableName=self._name, **arguments)
            except client.exceptions.ConditionalCheckFailedException:
                return None

    def _check_keys(self, client: Any) -> None:
        keys = client.describe_table(TableName=self._name)["Table"]["KeySchema"]
        if {(key["AttributeName"], key["KeyType"]) for key in keys} != _KEYS:
            raise InvalidInputError(
                "a DynamoDB table of versions has the hash key base_uri (S) and the range key version (N)",
                path=self._name,
            )


def _key(base: str, version: int) -> dict[str, Any]:
    return {"base_uri": {"S": base}, "version": {"N": str(version)}}


def _item(base: str, row: VersionRow) -> dict[str, Any]:
    values = {"path": {"S": _absolute(base, row.path)}, "size": {"N": str(row.size)}, "committer": {"S": _COMMITTER}}
    return {**_key(base, row.version), **values}


def _if_path_is(base: str, path: str) -> dict[str, Any]:
    values = {":path": {"S": _absolute(base, path)}}
    return {
        "ConditionExpression": "#path = :path",
        "ExpressionAttributeNames": _NAMES,
        "ExpressionAttributeValues": values,
    }


def _absolute(base: str, path: str) -> str:
    return f"{base}/{path}" if base else path


def _row(base: str, item: Mapping[str, Any], table: str) -> VersionRow:
    try:
        version, path = int(item["version"]["N"]), str(item["path"]["S"])
        size = int(item.get("size", {"N": "0"})["N"])
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptDataError(f"a row of {base!r} lacks its version or path", path=table) from error
    below = path.removeprefix(f"{base}/") if base else path
    if base and below == path:
        raise CorruptDataError(f"the row of version {version} of {base!r} names {path!r} elsewhere", path=table)
    return VersionRow(version=version, path=below, size=size)


@lru_cache(maxsize=_MAX_CLIENTS)
def _client(options: S3Options, endpoint: str | None, process: int) -> tuple[Any, set[str]]:
    """Return the connection of this process, and which tables it knows to be right."""
    del process  # only part of the key: connections do not survive a fork
    try:
        from botocore.config import Config  # noqa: PLC0415 an extra
        from botocore.session import get_session  # noqa: PLC0415 an extra
    except ImportError as error:
        raise UnsupportedError(
            "s3+ddb:// addresses need boto3, which is not installed: pip install 'lance-dagster[s3,boto3]'"
        ) from error
    client = get_session().create_client(
        "dynamodb",
        region_name=options.region,
        endpoint_url=endpoint,
        aws_access_key_id=options.access_key_id,
        aws_secret_access_key=options.secret_access_key,
        aws_session_token=options.session_token,
        verify=False if options.allow_invalid_certificates else None,
        config=Config(
            connect_timeout=options.connect_timeout,
            read_timeout=options.request_timeout,
            retries={"mode": "standard", "total_max_attempts": options.client_max_retries + 1},
        ),
    )
    return client, set[str]()


@contextmanager
def _translated(table: str) -> Generator[None]:
    """Raise errors of this package and of Python only."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 an extra

    try:
        yield
    except ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
        code = error.response.get("Error", {}).get("Code", "")
        if code.endswith("ResourceNotFoundException"):
            raise NotFoundError("there is no such DynamoDB table", path=table) from error
        if "AccessDenied" in code or status in {401, 403}:
            raise PermissionError(f"DynamoDB table {table}: {error}") from error
        if status >= 500 or "Throttling" in code or "Throughput" in code:
            raise ConnectionError(f"DynamoDB table {table}: {error}") from error
        raise OSError(f"DynamoDB table {table}: {error}") from error
    except BotoCoreError as error:
        raise ConnectionError(f"DynamoDB table {table}: {error}") from error
