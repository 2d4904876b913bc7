"""Settings of Azure and Google Cloud under the names that users of pylance know. Pure."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lance_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Mapping

AZURE_SCHEMES = frozenset({"az", "abfs", "abfss"})
GOOGLE_SCHEMES = frozenset({"gs", "gcs"})
EXTRAS = {**dict.fromkeys(AZURE_SCHEMES, "azure"), **dict.fromkeys(GOOGLE_SCHEMES, "gcs")}
"""Which extra of this package brings what a scheme needs."""

_AZURE = {
    "access_key": "account_key",
    "master_key": "account_key",
    "sas_key": "sas_token",
    "authority_id": "tenant_id",
}
_GOOGLE = {
    "service_account": "token",
    "service_account_path": "token",
    "application_credentials": "token",
    "service_account_key": "token",
}
_MIN_SECRET = 4
_TRUE = {"true", "1", "yes", "on"}


def file_system_arguments(scheme: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of the fsspec file system.

    Args:
        scheme: What comes before ``://``.
        options: As in pylance (``azure_storage_account_name``, ``google_service_account``, ...; case does not matter)
            or arguments of the file system itself (``account_name``, ``token``, ...).

    Raises:
        InvalidInputError: An option is given twice, with different values. Values are not repeated in the message.
    """
    result: dict[str, Any] = {}
    for name, value in options.items():
        plain = _plain(scheme, name)
        given = _key_file(value) if plain == "token" and name.lower().endswith("account_key") else value
        if result.setdefault(plain, given) != given:
            raise InvalidInputError(f"storage option {name!r} is given twice, with different values")
    return _with_endpoint(result) if scheme in AZURE_SCHEMES and "endpoint" in result else result


def without_secrets(text: str, options: Mapping[str, Any]) -> str:
    """The text, with values of options blotted out, whichever of them it repeats."""
    for value in [part for option in options.values() for part in _parts(option)]:
        if isinstance(value, str) and len(value) >= _MIN_SECRET:
            text = text.replace(value, "***")
    return text


def _parts(value: Any) -> list[Any]:
    """A value and what it is made of."""
    if isinstance(value, dict):
        return [*value.values()]
    if isinstance(value, str) and "AccountKey=" in value:
        return [value, value.partition("AccountKey=")[2].partition(";")[0]]
    return [value]


def _plain(scheme: str, name: str) -> str:
    lower = name.lower()
    if scheme in AZURE_SCHEMES:
        plain = lower.removeprefix("azure_").removeprefix("storage_")
        return _AZURE.get(plain, plain if lower.startswith("azure_") else lower)
    if scheme in GOOGLE_SCHEMES:
        return _GOOGLE.get(lower.removeprefix("google_"), name)
    return name


def _with_endpoint(arguments: dict[str, Any]) -> dict[str, Any]:
    """Azure's packages take the address of another service in a connection string only."""
    endpoint, allows_http = str(arguments.pop("endpoint")), str(arguments.pop("allow_http", "")).lower() in _TRUE
    scheme = endpoint.partition("://")[0].lower()
    if scheme not in {"http", "https"}:
        raise InvalidInputError("storage option 'endpoint' must be an address with http:// or https://")
    if scheme == "http" and not allows_http:
        raise InvalidInputError(
            "the endpoint is not encrypted. Set storage option 'allow_http' to 'true' to allow that"
        )
    try:
        name, key = arguments.pop("account_name"), arguments.pop("account_key")
    except KeyError as error:
        raise InvalidInputError(f"storage option 'endpoint' needs {error} as well") from None
    text = f"DefaultEndpointsProtocol={scheme};AccountName={name};AccountKey={key};BlobEndpoint={endpoint};"
    return {**arguments, "connection_string": text}


def _key_file(value: Any) -> Any:
    """A key that is given as text, not as the name of a file."""
    try:
        return json.loads(value)
    except (TypeError, ValueError):
        raise InvalidInputError("storage option 'service_account_key' is not JSON") from None
