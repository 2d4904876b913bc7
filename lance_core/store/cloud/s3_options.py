"""Settings of S3, under the names that users of pylance and s3fs know. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lance_core.errors import InvalidInputError
from lance_core.store.cloud.client_options import ClientOptions, OptionNames, check_endpoint, parse_options

if TYPE_CHECKING:
    from collections.abc import Mapping

S3_NAMES = OptionNames(
    service="S3",
    prefixes=("aws_",),
    synonyms={
        "anon": "skip_signature",
        "default_region": "region",
        "region_name": "region",
        "endpoint_url": "endpoint",
        "key": "access_key_id",
        "secret": "secret_access_key",
        "token": "session_token",
    },
)


@dataclass(frozen=True, kw_only=True, slots=True)
class S3Options(ClientOptions):
    """Options of the S3 client; missing ones come from the environment, as in all of AWS's tools.

    Attributes:
        access_key_id: Name of the key.
        secret_access_key: The key.
        session_token: Goes with temporary keys.
        profile: Name of a profile in AWS's configuration files; needs boto3. None for ``AWS_PROFILE``.
        region: Region.
        endpoint: Address of another service than AWS's.
        virtual_hosted_style_request: The bucket is part of the host name; if None, it is so at AWS only.
        skip_signature: Read a public bucket without a key.
        server_side_encryption: Name of the method.
        sse_kms_key_id: Key of that.
        sse_bucket_key_enabled: Use the bucket's key for encryption with KMS.
        sse_customer_key_base64: Key of the customer for ``server_side_encryption="sse-c"``.
        s3_express: The bucket is a directory bucket.
        request_payer: The reader pays for requests.
        unsigned_payload: Do not sign the content of uploads.
        checksum_algorithm: Checksum that is sent with uploads.
        imdsv1_fallback: Fall back to version 1 of the metadata service of a machine.
        metadata_endpoint: Address of the metadata service of a machine.
        disable_bulk_delete: Delete objects one by one, where a service cannot delete many with a request.
    """

    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    profile: str | None = None
    region: str | None = None
    endpoint: str | None = None
    virtual_hosted_style_request: bool | None = None
    skip_signature: bool = False
    server_side_encryption: str | None = None
    sse_kms_key_id: str | None = None
    sse_bucket_key_enabled: bool | None = None
    sse_customer_key_base64: str | None = field(default=None, repr=False)
    s3_express: bool | None = None
    request_payer: bool | None = None
    unsigned_payload: bool | None = None
    checksum_algorithm: str | None = None
    imdsv1_fallback: bool | None = None
    metadata_endpoint: str | None = None
    disable_bulk_delete: bool | None = None


def parse_s3_options(options: Mapping[str, str] | None) -> S3Options:
    """Convert ``storage_options`` of S3.

    Args:
        options: Names of `S3Options` in any case, with or without ``aws_`` in front; also ``endpoint_url``,
            ``default_region``, ``token`` and ``timeout``, and s3fs's ``key``, ``secret`` and ``anon``. Times are like
            ``30s``.

    Raises:
        InvalidInputError: As of `parse_options`.
    """
    parsed = parse_options(S3Options, options or {}, S3_NAMES)
    if (parsed.access_key_id is None) != (parsed.secret_access_key is None):
        raise InvalidInputError("pass storage options 'access_key_id' and 'secret_access_key' together")
    check_endpoint(parsed.endpoint, parsed, "endpoint")
    return parsed
