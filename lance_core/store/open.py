"""From an address to a store."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote, unquote

from lance_core.errors import InvalidInputError
from lance_core.store.addresses import local_path, scheme_of
from lance_core.store.cloud.known_options import check_known_names
from lance_core.store.local import LocalStore
from lance_core.store.paths import check_path

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_core.store.base import Store
    from lance_core.store.cloud.cloud_store import CloudStore
    from lance_core.store.cloud.object_client import Bucket

_MANIFEST_STORE = "manifest_store"
_DURABLE = "durable"
_FILE_SYSTEM, _FSSPEC = "file_system", "fsspec"
_TABLE_NAME = "ddbTableName"
_DIRECTORY_BUCKET = "--x-s3"
"""Names of directory buckets end so; they list in no order."""


def open_store(uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> Store:
    """Open the place a dataset lies in; nothing is read or created yet.

    Args:
        uri: A path (relative to the working directory, or below ``~/``) or an address:

            - ``file://``
            - ``s3://bucket/path`` (also ``s3a://``): S3 and services like it; needs the extra ``s3``
            - ``s3+ddb://bucket/path?ddbTableName=table``: the same, but a DynamoDB table decides who commits a version
              (as in pylance; storage option ``dynamodb_endpoint`` or ``DYNAMODB_ENDPOINT`` for another service)
            - ``gs://bucket/path`` (also ``gcs://``): Google Cloud Storage; needs the extra ``gcs``
            - ``az://container/path`` (also ``abfs://`` and ``abfss://``, also with
              ``container@account.dfs.core.windows.net`` before the path): Azure; needs the extra ``azure``
            - ``memory://name``: this process only
            - others that fsspec knows (``https://``, ``sftp://``, ...): for reading; with ``manifest_store`` also for
              writing
        storage_options: Settings of the storage service: see `lance_core.store.cloud.s3_options.S3Options`,
            `lance_core.store.cloud.google_options.GoogleOptions`, `lance_core.store.cloud.azure_options.AzureOptions`;
            for fsspec the arguments of its file system. ``file_system="fsspec"`` chooses fsspec for object stores too.
            The local file system has one, ``durable="true"``: writes wait until they would survive a power failure (all
            writers of a table must ask for it; about ten milliseconds for each file). It and memory
            ignore the options of other stores and refuse names that no store knows. With every address,
            ``manifest_store="sqlite:///absolute/path.db"`` lets an SQLite file decide who commits a version; all
            writers must name the same file, and be on one machine.

    Raises:
        UnsupportedError: There is no store for this kind of address, or a package is missing for it.
        InvalidInputError: Not an address, or wrong storage options.
    """
    try:
        address = os.fspath(uri)
    except TypeError as error:
        raise InvalidInputError(f"the address of a dataset must be text or a path, not {uri!r}") from error
    options = dict(storage_options or {})
    table = options.pop(_MANIFEST_STORE, None)
    scheme = scheme_of(address)
    if scheme == "s3+ddb":
        return _open_dynamodb(address, options, table)
    store = _open_plain(address, scheme, options, is_arbitrated=table is not None)
    return store if table is None else _with_sqlite(store, table)


def _open_plain(address: str, scheme: str, options: dict[str, str], *, is_arbitrated: bool) -> Store:
    match scheme:
        case "" | "file":
            if not options:
                return LocalStore(local_path(address))
            check_known_names(options, "The local file system")
            return LocalStore(local_path(address), durable=_is_durable(options))
        case "memory":
            check_known_names(options, "A store in memory")
            return _open_memory(address)
        case "s3" | "s3a" | "gs" | "gcs" | "az" | "abfs" | "abfss" if not _takes_fsspec(options):
            return _open_cloud(address, scheme, options)
        case _:
            from lance_core.store.fsspec_store import FsspecStore  # noqa: PLC0415 rarely needed

            options.pop("namespace", None)  # fsspec's file systems keep the credentials that they were given
            return FsspecStore(uri=address.rstrip("/"), scheme=scheme, options=options, is_arbitrated=is_arbitrated)


def _takes_fsspec(options: dict[str, str]) -> bool:
    """Return whether the options choose fsspec for an object store too, and remove that option."""
    choice = options.pop(_FILE_SYSTEM, None)
    if choice not in {None, _FSSPEC}:
        raise InvalidInputError(f"storage option '{_FILE_SYSTEM}' must be '{_FSSPEC}', not {choice!r}")
    return choice is not None


def _is_durable(options: Mapping[str, str]) -> bool:
    text = str(options.get(_DURABLE, "false")).lower()
    if text not in {"true", "false"}:
        raise InvalidInputError(f"storage option '{_DURABLE}' must be 'true' or 'false', not {text!r}")
    return text == "true"


def _with_sqlite(store: Store, table: str) -> Store:
    """Return the same store; a table in an SQLite file decides who commits a version."""
    from lance_core.store.external_manifest import ExternalManifestStore  # noqa: PLC0415 rarely needed
    from lance_core.store.sqlite_table import SqliteTable  # noqa: PLC0415 likewise

    path = unquote(table.removeprefix("sqlite://"))
    if not table.startswith("sqlite:///") or "\0" in path or path.endswith("/"):
        raise InvalidInputError(
            "storage option 'manifest_store' must look like 'sqlite:///absolute/path.db'", path=store.uri
        )
    return ExternalManifestStore(store, SqliteTable(path), base=store.uri)


def _open_dynamodb(address: str, options: dict[str, str], table: str | None) -> Store:
    from lance_core.store.cloud.s3_options import check_endpoint, parse_s3_options  # noqa: PLC0415 likewise
    from lance_core.store.dynamodb import DynamoTable  # noqa: PLC0415 rarely needed
    from lance_core.store.external_manifest import ExternalManifestStore  # noqa: PLC0415 likewise

    if table is not None:
        raise InvalidInputError("pass either an s3+ddb:// address or the storage option 'manifest_store', not both")
    table_name, _, query = address.partition("?")
    names = parse_qs(query)
    if list(names) != [_TABLE_NAME] or len(names[_TABLE_NAME]) != 1:
        raise InvalidInputError(
            f"an s3+ddb:// address must end in '?{_TABLE_NAME}=...' and have no other settings", path=table_name
        )
    endpoints = {name: options.pop(name) for name in list(options) if name.lower() == "dynamodb_endpoint"}
    endpoint = next(iter(endpoints.values()), None)
    store = _open_cloud(f"s3://{table_name.partition('://')[2]}", "s3", options)
    parsed = parse_s3_options(options)
    check_endpoint(endpoint, parsed, "dynamodb_endpoint")
    name = names[_TABLE_NAME][0]
    uri = f"s3+ddb://{store.uri.partition('://')[2]}?{_TABLE_NAME}={quote(name, safe='')}"
    return ExternalManifestStore(store, DynamoTable(name, parsed, endpoint=endpoint), base=store.root, uri=uri)


def _open_cloud(address: str, scheme: str, options: Mapping[str, str]) -> CloudStore:
    from lance_core.store.cloud.cloud_store import CloudStore  # noqa: PLC0415 not needed for local datasets

    location = _place_of(address)
    bucket, _, key = location.partition("/")
    root = unquote(key)
    if root:
        check_path(root)
    return CloudStore(
        bucket=_bucket(scheme, bucket, options),
        root=root,
        uri=f"{'s3' if scheme == 's3a' else scheme}://{location}",
        is_ordered=not bucket.endswith(_DIRECTORY_BUCKET),
    )


def _bucket(scheme: str, name: str, options: Mapping[str, str]) -> Bucket:
    """Return a bucket or container with its settings; modules of other services are not imported."""
    if scheme in {"s3", "s3a"}:
        from lance_core.store.cloud.s3 import S3Bucket  # noqa: PLC0415 rarely all of them
        from lance_core.store.cloud.s3_options import parse_s3_options  # noqa: PLC0415 likewise

        return S3Bucket(name=name, options=parse_s3_options(options))
    if scheme in {"gs", "gcs"}:
        from lance_core.store.cloud.google import GoogleBucket  # noqa: PLC0415 likewise
        from lance_core.store.cloud.google_options import parse_google_options  # noqa: PLC0415 likewise

        return GoogleBucket(name=name, options=parse_google_options(options))
    from lance_core.store.cloud.azure import AzureContainer  # noqa: PLC0415 likewise
    from lance_core.store.cloud.azure_options import options_of_host, parse_azure_options  # noqa: PLC0415 likewise

    container, _, host = name.partition("@")
    return AzureContainer(name=container, options=parse_azure_options(options_of_host(host, options)))


def _open_memory(address: str) -> Store:
    from lance_core.store.memory import memory_store  # noqa: PLC0415 rarely needed

    return memory_store(f"memory://{_place_of(address)}")


def _place_of(address: str) -> str:
    """Return the part of an address after the scheme, without trailing slashes."""
    rest = address.partition("://")[2].rstrip("/")
    if not rest or rest.startswith("/"):
        raise InvalidInputError(f"{address!r} does not name a bucket", path=address)
    if "?" in rest or "#" in rest:
        raise InvalidInputError(f"{address!r} is not an address: pass settings in 'storage_options'", path=address)
    return rest
