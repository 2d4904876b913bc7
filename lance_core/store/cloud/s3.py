"""Buckets of S3 and of services that speak like it, through obstore."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lance_core.common.frozen import frozen
from lance_core.errors import UnsupportedError
from lance_core.store.cloud.object_client import obstore
from lance_core.store.cloud.s3_options import parse_s3_options
from lance_core.store.cloud.vended import credential_provider

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_core.store.cloud.s3_options import S3Options

# Set where AWS gives a process an identity of its own, which obstore knows how to use and to renew.
_IDENTITIES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)
_PROFILE = "AWS_PROFILE"
_PROFILE_FILES = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}
_PLAIN = (
    "server_side_encryption",
    "sse_kms_key_id",
    "sse_bucket_key_enabled",
    "sse_customer_key_base64",
    "s3_express",
    "request_payer",
    "unsigned_payload",
    "checksum_algorithm",
    "imdsv1_fallback",
    "metadata_endpoint",
    "disable_bulk_delete",
)
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


@frozen(kw_only=True)
class S3Bucket:
    """A bucket, and how to talk to its service.

    Attributes:
        name: The bucket.
        options: Settings.
    """

    name: str
    options: S3Options

    @property
    def condition(self) -> str:
        """Name of the condition that an object is absent."""
        return "If-None-Match"

    @property
    def reads_suffixes(self) -> bool:
        """True if a request can ask for the last bytes of an object without its size."""
        return True

    def connect(self) -> Any:
        """Return a store of obstore.

        Raises:
            UnsupportedError: obstore is not installed, or boto3, which profiles need.
        """
        obstore()
        from obstore.store import S3Store  # noqa: PLC0415 an extra

        options = self.options
        config = {name: value for name, value in self._config().items() if value is not None}
        provider = self._credential_provider()
        return S3Store(
            self.name,
            client_options=options.client_config(),
            retry_config=options.retry_config(),
            **({} if provider is None else {"credential_provider": provider}),
            **config,
        )

    def _config(self) -> dict[str, Any]:
        options = self.options
        endpoint = options.endpoint
        virtual = options.virtual_hosted_style_request
        if virtual is None:
            is_aws = endpoint is None and not any(os.environ.get(name) for name in _ENDPOINTS)
            virtual = is_aws and "." not in self.name  # AWS's certificates cover one level of names
        if virtual and endpoint is not None:
            scheme, _, host = endpoint.partition("://")
            endpoint = f"{scheme}://{self.name}.{host}"
        is_renewed = options.namespace is not None
        return {
            "access_key_id": None if is_renewed else options.access_key_id,
            "secret_access_key": None if is_renewed else options.secret_access_key,
            "session_token": None if is_renewed else options.session_token,
            "region": options.region,
            "endpoint": endpoint,
            "virtual_hosted_style_request": virtual,
            "skip_signature": options.skip_signature or None,
            **{name: getattr(options, name) for name in _PLAIN},
        }

    def _credential_provider(self) -> Any:
        """Return those of a namespace, or boto3's if a profile or a file of profiles holds them, else None."""
        options = self.options
        if options.namespace is not None:
            return credential_provider(options.namespace, _vended)
        if options.access_key_id is not None or options.skip_signature:
            return None
        profile = options.profile or os.environ.get(_PROFILE)
        if profile is None and (any(os.environ.get(name) for name in _IDENTITIES) or not _has_profiles()):
            return None
        try:
            import boto3  # noqa: PLC0415 an extra
            from obstore.auth.boto3 import Boto3CredentialProvider  # noqa: PLC0415 likewise
        except ImportError as error:
            if profile is None:
                return None
            raise UnsupportedError(
                f"AWS profile {profile!r} needs boto3, which is not installed: pip install 'lance-dagster[boto3]'"
            ) from error
        session = boto3.Session(profile_name=profile, region_name=options.region)
        return None if session.get_credentials() is None else Boto3CredentialProvider(session)


def _vended(options: Mapping[str, str]) -> dict[str, str | None]:
    parsed = parse_s3_options(options)
    return {
        "access_key_id": parsed.access_key_id,
        "secret_access_key": parsed.secret_access_key,
        "token": parsed.session_token,
    }


def _has_profiles() -> bool:
    return any(Path(os.environ.get(name) or default).expanduser().exists() for name, default in _PROFILE_FILES.items())
