"""Settings of Azure Blob Storage, under the names that users of pylance and adlfs know. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lance_core.errors import InvalidInputError
from lance_core.store.cloud.client_options import ClientOptions, OptionNames, check_endpoint, given_twice, parse_options

if TYPE_CHECKING:
    from collections.abc import Mapping

AZURE_NAMES = OptionNames(
    service="Azure",
    prefixes=("azure_storage_", "azure_"),
    synonyms={
        "access_key": "account_key",
        "authority_id": "tenant_id",
        "bearer_token": "token",
        "endpoint_url": "endpoint",
        "identity_endpoint": "msi_endpoint",
        "master_key": "account_key",
        "sas_key": "sas_token",
    },
)
_CONNECTION_FIELDS = {
    "accountname": "account_name",
    "accountkey": "account_key",
    "sharedaccesssignature": "sas_token",
    "blobendpoint": "endpoint",
}
_EMULATOR = "usedevelopmentstorage"
_FABRIC = ".fabric.microsoft.com"
_SUFFIX, _DEFAULT_SUFFIX = "endpointsuffix", "core.windows.net"


@dataclass(frozen=True, kw_only=True, slots=True)
class AzureOptions(ClientOptions):
    """Options of the Azure client; missing ones come from the environment (``AZURE_STORAGE_ACCOUNT_NAME``, ...).

    Attributes:
        account_name: Storage account.
        account_key: Key of the account.
        sas_token: Shared access signature.
        token: OAuth token, which is not renewed.
        client_id: Client of a service principal, or of a managed or federated identity.
        client_secret: Secret of a service principal.
        tenant_id: Tenant of a service principal or of a federated identity.
        authority_host: Host that issues tokens, in other clouds than the public one.
        federated_token_file: File with the token of a federated identity (Kubernetes).
        msi_endpoint: Address that issues tokens of a managed identity.
        object_id: Object of a managed identity.
        msi_resource_id: Resource of a managed identity.
        use_azure_cli: Use the login of the command ``az``.
        credential_type: Kind of credentials to use if several are given.
        anon: True for no credentials, as ``skip_signature``; False for azure-identity's default credentials, if that
            package is installed.
        skip_signature: Read a public container without credentials.
        endpoint: Address of another service than Azure's.
        use_emulator: Talk to Azurite on this machine, with its well-known account.
        use_fabric_endpoint: Talk to Microsoft Fabric.
        encryption_key: Key of the customer, base64.
        disable_tagging: Send no tags.
    """

    account_name: str | None = None
    account_key: str | None = field(default=None, repr=False)
    sas_token: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    tenant_id: str | None = None
    authority_host: str | None = None
    federated_token_file: str | None = None
    msi_endpoint: str | None = None
    object_id: str | None = None
    msi_resource_id: str | None = None
    use_azure_cli: bool | None = None
    credential_type: str | None = None
    anon: bool | None = None
    skip_signature: bool = False
    endpoint: str | None = None
    use_emulator: bool | None = None
    use_fabric_endpoint: bool | None = None
    encryption_key: str | None = field(default=None, repr=False)
    disable_tagging: bool | None = None


def parse_azure_options(options: Mapping[str, str] | None) -> AzureOptions:
    """Convert ``storage_options`` of Azure.

    Args:
        options: Names of `AzureOptions` in any case, with or without ``azure_`` or ``azure_storage_`` in front; also
            ``access_key``, ``sas_key``, ``authority_id`` and ``timeout``, and adlfs's ``connection_string`` and
            ``account_host``. Times are like ``30s``.

    Raises:
        InvalidInputError: As of `parse_options`.
    """
    given: dict[str, str] = {}
    for name, value in (options or {}).items():
        for part, text in _parts(name, str(value)).items():
            if given.setdefault(part, text) != text:
                raise given_twice(name)
    parsed = parse_options(AzureOptions, given, AZURE_NAMES)
    check_endpoint(parsed.endpoint, parsed, "endpoint")
    return parsed


def options_of_host(host: str, options: Mapping[str, str]) -> dict[str, str]:
    """Add what the host of an address says (``container@account.dfs.core.windows.net``).

    Args:
        host: What stands behind ``@``; empty if there is nothing.
        options: Other options.

    Raises:
        InvalidInputError: The options name another account.
    """
    if not host:
        return dict(options)
    account, _, rest = host.partition(".")
    named = {"account_name": account}
    if rest.endswith(_FABRIC):
        named["use_fabric_endpoint"] = "true"
    elif rest not in {f"{kind}.{_DEFAULT_SUFFIX}" for kind in ("dfs", "blob")}:
        named["endpoint"] = f"https://{account}.{rest.replace('dfs.', 'blob.', 1)}"
    given = {AZURE_NAMES.field_of(name): value for name, value in options.items()}
    if given.get("account_name", account) != account:
        raise InvalidInputError(f"the address names the account {account!r}, the storage options another one")
    return {**{name: value for name, value in named.items() if name not in given}, **options}


def _parts(name: str, value: str) -> dict[str, str]:
    """Return the options that an option stands for."""
    match AZURE_NAMES.field_of(name):
        case "connection_string":
            return _of_connection_string(value)
        case "account_host":
            return {"endpoint": f"https://{value}"}
        case _:
            return {name: value}


def _of_connection_string(text: str) -> dict[str, str]:
    pairs = [part.partition("=") for part in text.split(";") if part.strip()]
    values = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if values.get(_EMULATOR, "").lower() == "true":
        return {"use_emulator": "true"}
    options = {field_: values[name] for name, field_ in _CONNECTION_FIELDS.items() if name in values}
    if "account_name" not in options:
        raise InvalidInputError("storage option 'connection_string' has no AccountName")
    suffix = values.get(_SUFFIX, _DEFAULT_SUFFIX)
    if suffix != _DEFAULT_SUFFIX and "endpoint" not in options:
        options["endpoint"] = f"https://{options['account_name']}.blob.{suffix}"
    return options
