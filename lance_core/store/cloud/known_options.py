"""Names of storage options of all stores, so that a misspelt one is refused where options have no effect, too. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.common.hints import did_you_mean
from lance_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_core.store.cloud.client_options import ClientOptions, OptionNames

_CHOICE = "file_system"
"""With it, options are arguments of a file system of fsspec, which may have any names."""

_HERE = frozenset({"durable", "manifest_store", "dynamodb_endpoint", _CHOICE})
# They stand for other options, and have no field of their own.
_COMPOUND = frozenset({"account_host", "connection_string", "token"})


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
    from lance_core.store.cloud.client_options import converters_of, option_names  # noqa: PLC0415 rarely needed

    candidates = [*_HERE, *_COMPOUND]
    for cls, service in _services():
        candidates += option_names(cls, service)
        names = [name for name in names if service.field_of(name) not in converters_of(cls)]
    for name in names:
        if name.lower() in candidates or _CHOICE in names:
            continue
        hint = did_you_mean(name, candidates)
        raise InvalidInputError(
            f"unknown storage option {name!r}.{hint} {store} has the option 'durable' and ignores those of S3, Azure "
            "and Google Cloud; no store has this one"
        )


def _services() -> list[tuple[type[ClientOptions], OptionNames]]:
    from lance_core.store.cloud.azure_options import AZURE_NAMES, AzureOptions  # noqa: PLC0415 rarely needed
    from lance_core.store.cloud.google_options import GOOGLE_NAMES, GoogleOptions  # noqa: PLC0415 likewise
    from lance_core.store.cloud.s3_options import S3_NAMES, S3Options  # noqa: PLC0415 likewise

    return [(S3Options, S3_NAMES), (GoogleOptions, GOOGLE_NAMES), (AzureOptions, AZURE_NAMES)]
