"""Buckets of Google Cloud Storage, through obstore."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lance_core.common.frozen import frozen
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.store.cloud.google_options import check_key, parse_google_options
from lance_core.store.cloud.object_client import obstore
from lance_core.store.cloud.vended import credential_provider

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_core.store.cloud.google_options import GoogleOptions

_CREDENTIALS_FILE = "GOOGLE_APPLICATION_CREDENTIALS"
_DEFAULT_FILE = "~/.config/gcloud/application_default_credentials.json"
_SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)
_SERVICE_ACCOUNT = "service_account"
_KNOWN_TO_OBSTORE = frozenset({_SERVICE_ACCOUNT, "authorized_user"})
_NO_TOKEN = "anonymous"  # noqa: S105 none


@frozen(kw_only=True)
class GoogleBucket:
    """A bucket, and how to talk to its service.

    Attributes:
        name: The bucket.
        options: Settings.
    """

    name: str
    options: GoogleOptions

    @property
    def condition(self) -> str:
        """Name of the condition that an object is absent."""
        return "x-goog-if-generation-match"

    @property
    def reads_suffixes(self) -> bool:
        """True if a request can ask for the last bytes of an object without its size."""
        return True

    def connect(self) -> Any:
        """Return a store of obstore.

        Raises:
            UnsupportedError: obstore is not installed, or google-auth, which some credentials need.
        """
        obstore()
        from obstore.store import GCSStore  # noqa: PLC0415 an extra

        client = self.options.client_config()
        if self.options.requester_pays:
            client["default_headers"] = {"x-goog-user-project": self.options.project}
        config = {name: value for name, value in self._config().items() if value is not None}
        provider = self._credential_provider()
        if provider is not None:
            config = {name: config[name] for name in ("base_url",) if name in config}
            config["credential_provider"] = provider
        return GCSStore(self.name, client_options=client, retry_config=self.options.retry_config(), **config)

    def _config(self) -> dict[str, Any]:
        options = self.options
        token = options.bearer_token
        if options.skip_signature and token is None:
            token = _NO_TOKEN  # obstore signs writes all the same, and would ask the machine for credentials
        return {
            "service_account": options.service_account,
            "service_account_key": options.service_account_key,
            "application_credentials": options.application_credentials,
            "bearer_token": token,
            "base_url": options.base_url,
            "skip_signature": options.skip_signature or None,
        }

    def _credential_provider(self) -> Any:
        """Return those of a namespace, or google-auth's for files that obstore does not know, else None."""
        if self.options.namespace is not None:
            return credential_provider(self.options.namespace, _vended)
        content = self._credentials()
        kind = None if content is None else content.get("type")
        is_inline = self.options.service_account_key is not None
        if kind is None or kind == _SERVICE_ACCOUNT or (kind in _KNOWN_TO_OBSTORE and not is_inline):
            return None
        try:
            from google.auth import (  # noqa: PLC0415 # pyright: ignore[reportMissingImports] - not a dependency
                load_credentials_from_dict,
            )
            from obstore.auth.google import GoogleCredentialProvider  # noqa: PLC0415 likewise
        except ImportError as error:
            raise UnsupportedError(
                f"Google credentials of type {kind!r} need google-auth, which is not installed: "
                "pip install google-auth requests"
            ) from error
        credentials, _ = load_credentials_from_dict(content, scopes=list(_SCOPES))
        return GoogleCredentialProvider(credentials)

    def _credentials(self) -> Mapping[str, Any] | None:
        """Return the content of the file of credentials that counts; None if there is none."""
        options = self.options
        if options.bearer_token is not None or options.skip_signature:
            return None
        if options.service_account_key is not None:
            return check_key(options.service_account_key)
        path = options.service_account or options.application_credentials or os.environ.get(_CREDENTIALS_FILE)
        file = Path(path or _DEFAULT_FILE).expanduser()
        if path is None and not file.exists():
            return None
        try:
            return json.loads(file.read_bytes())
        except (OSError, ValueError):
            raise InvalidInputError(f"Google credentials cannot be read from {str(file)!r}") from None


def _vended(options: Mapping[str, str]) -> dict[str, str | None]:
    return {"token": parse_google_options(options).bearer_token}
