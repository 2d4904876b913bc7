"""Containers of Azure Blob Storage, through obstore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_core.common.frozen import frozen
from lance_core.errors import UnsupportedError
from lance_core.store.cloud.azure_options import parse_azure_options
from lance_core.store.cloud.object_client import obstore
from lance_core.store.cloud.vended import credential_provider

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_core.store.cloud.azure_options import AzureOptions

_CONFIG = (
    "account_name",
    "account_key",
    "sas_token",
    "token",
    "client_id",
    "client_secret",
    "tenant_id",
    "authority_host",
    "federated_token_file",
    "msi_endpoint",
    "object_id",
    "msi_resource_id",
    "use_azure_cli",
    "credential_type",
    "endpoint",
    "use_emulator",
    "use_fabric_endpoint",
    "encryption_key",
    "disable_tagging",
)

_SECRETS = frozenset({"account_key", "sas_token", "token", "client_secret"})


@frozen(kw_only=True)
class AzureContainer:
    """A container, and how to talk to its service.

    Attributes:
        name: The container.
        options: Settings.
    """

    name: str
    options: AzureOptions

    @property
    def condition(self) -> str:
        """Name of the condition that an object is absent."""
        return "If-None-Match"

    @property
    def reads_suffixes(self) -> bool:
        """True if a request can ask for the last bytes of an object without its size."""
        return False

    def connect(self) -> Any:
        """Return a store of obstore.

        Raises:
            UnsupportedError: obstore is not installed, or azure-identity, which ``anon="false"`` needs.
        """
        obstore()
        from obstore.store import AzureStore  # noqa: PLC0415 an extra

        options = self.options
        config = {name: value for name in _CONFIG if (value := getattr(options, name)) is not None}
        if options.namespace is not None:
            config = {name: value for name, value in config.items() if name not in _SECRETS}
        if options.skip_signature or options.anon:
            config["skip_signature"] = True
        provider = self._credential_provider()
        if provider is not None:
            config["credential_provider"] = provider
        return AzureStore(
            self.name, client_options=options.client_config(), retry_config=options.retry_config(), **config
        )

    def _credential_provider(self) -> Any:
        """Return those of a namespace, or azure-identity's if they are asked for and no others are given."""
        options = self.options
        if options.namespace is not None:
            return credential_provider(options.namespace, _vended)
        secrets = (options.account_key, options.sas_token, options.token, options.client_secret)
        if options.anon is not False or any(secret is not None for secret in secrets):
            return None
        try:
            from obstore.auth.azure import AzureCredentialProvider  # noqa: PLC0415 needs azure-identity
        except ImportError as error:
            raise UnsupportedError(
                "storage option 'anon' with the value 'false' needs azure-identity, which is not installed: "
                "pip install azure-identity"
            ) from error
        return AzureCredentialProvider()


def _vended(options: Mapping[str, str]) -> dict[str, str | None]:
    parsed = parse_azure_options(options)
    return {"token": parsed.token} if parsed.sas_token is None else {"sas_token": parsed.sas_token}
