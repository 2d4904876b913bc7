"""Containers of Azure Blob Storage, through obstore."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_core.errors import UnsupportedError
from lance_core.frozen import frozen
from lance_core.store.object_client import obstore

if TYPE_CHECKING:
    from lance_core.store.azure_options import AzureOptions

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
        if options.skip_signature or options.anon:
            config["skip_signature"] = True
        provider = self._credential_provider()
        if provider is not None:
            config["credential_provider"] = provider
        return AzureStore(
            self.name, client_options=options.client_config(), retry_config=options.retry_config(), **config
        )

    def _credential_provider(self) -> Any:
        """Return azure-identity's default credentials if they are asked for and no others are given."""
        options = self.options
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
