"""Names of storage options of all stores, so that a misspelt one is refused where options have no effect, too. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.errors import InvalidInputError
from lance_core.hints import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

_HERE = frozenset({"durable", "manifest_store", "dynamodb_endpoint"})
_CLOUD_PREFIXES = ("azure_", "google_")
# Arguments of the file systems of fsspec for Azure and Google Cloud, and pylance's short names.
_CLOUD = frozenset(
    {
        "access_key",
        "access_token",
        "account_host",
        "account_key",
        "account_name",
        "anon",
        "application_credentials",
        "authority_id",
        "bearer_token",
        "cache_timeout",
        "check_connection",
        "client_id",
        "client_secret",
        "connection_string",
        "consistency",
        "credential",
        "default_cache_type",
        "default_location",
        "endpoint_url",
        "location_mode",
        "master_key",
        "max_concurrency",
        "project",
        "request_session",
        "requester_pays",
        "sas_key",
        "sas_token",
        "secure_serialize",
        "service_account",
        "service_account_key",
        "service_account_path",
        "session_kwargs",
        "socket_timeout",
        "tenant_id",
        "token",
        "use_emulator",
    }
)


def check_known_names(options: Iterable[str], store: str) -> None:
    """Refuse options that no store has; those of other stores have no effect and are fine.

    The same settings may then serve a bucket in production and a folder on a laptop.

    Args:
        options: Names of storage options.
        store: The store, as the message begins.

    Raises:
        InvalidInputError: An unknown name. The value is not repeated, because it may be secret.
    """
    names = [*options]
    if _HERE.issuperset(names):
        return
    from lance_core.store.s3_options import is_s3_option, s3_option_names  # noqa: PLC0415 rarely needed

    for name in names:
        plain = name.lower()
        if name in _HERE or plain in _CLOUD or plain.startswith(_CLOUD_PREFIXES) or is_s3_option(plain):
            continue
        hint = did_you_mean(name, [*_HERE, *_CLOUD, *s3_option_names()])
        raise InvalidInputError(
            f"unknown storage option {name!r}.{hint} {store} has the option 'durable' and ignores those of S3, Azure "
            "and Google Cloud; no store has this one"
        )
