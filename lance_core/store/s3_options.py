"""Settings of S3, under the names that users of pylance know. Pure."""

from __future__ import annotations

import re
from dataclasses import field, fields
from typing import TYPE_CHECKING, Any

from lance_core.errors import InvalidInputError
from lance_core.frozen import frozen
from lance_core.hints import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "": 1.0}
_BOOLS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_SYNONYMS = {
    "default_region": "region",
    "endpoint_url": "endpoint",
    "token": "session_token",
    "timeout": "request_timeout",
}


@frozen(kw_only=True)
class S3Options:
    """Options of the S3 client; missing ones come from the environment, as in all of AWS's tools.

    Attributes:
        access_key_id: Name of the key.
        secret_access_key: The key.
        session_token: Goes with temporary keys.
        profile: Name of a profile in AWS's configuration files; needs boto3. None for ``AWS_PROFILE``.
        region: Region.
        endpoint: Address of another service than AWS's.
        allow_http: Talk to an endpoint without encryption.
        allow_invalid_certificates: Talk to anyone.
        virtual_hosted_style_request: The bucket is part of the host name; if None, it is so at AWS only.
        skip_signature: Read a public bucket without a key.
        server_side_encryption: Name of the method.
        sse_kms_key_id: Key of that.
        connect_timeout: Seconds.
        request_timeout: Seconds without an answer.
        client_max_retries: How often a request is repeated that failed for no fault of its own.
        client_retry_timeout: Seconds after which no request is repeated, and a read is given up.
        read_hedge_after: Seconds after which a read without an answer is sent a second time; 0 for never.
    """

    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    profile: str | None = None
    region: str | None = None
    endpoint: str | None = None
    allow_http: bool = False
    allow_invalid_certificates: bool = False
    virtual_hosted_style_request: bool | None = None
    skip_signature: bool = False
    server_side_encryption: str | None = None
    sse_kms_key_id: str | None = None
    connect_timeout: float = 5.0
    request_timeout: float = 30.0
    client_max_retries: int = 5
    client_retry_timeout: float = 180.0
    read_hedge_after: float = 3.0


def parse_s3_options(options: Mapping[str, str] | None) -> S3Options:
    """Understand ``storage_options``.

    Args:
        options: Names of `S3Options` in any case, with or without ``aws_`` in front; also ``endpoint_url``,
            ``default_region``, ``token`` and ``timeout``. Times are like ``30s``.

    Raises:
        InvalidInputError: Unknown or contradicting options, or values that do not fit. Values are not repeated, because
            they may be secret.
    """
    options_: dict[str, Any] = {}
    for name, value in (options or {}).items():
        canonical = _canonical(name)
        convert = _CONVERTERS.get(canonical)
        if convert is None:
            hint = did_you_mean(canonical, s3_option_names())
            raise InvalidInputError(
                f"unknown storage option {name!r}.{hint} The options of S3 are: {', '.join(sorted(_CONVERTERS))}"
            )
        try:
            converted = convert(str(value))
        except (ValueError, KeyError):
            raise InvalidInputError(f"cannot parse the value of storage option {name!r}") from None
        if options_.setdefault(canonical, converted) != converted:
            raise InvalidInputError(f"storage option {name!r} is given twice, with different values")
    parsed = S3Options(**options_)
    _check(parsed)
    return parsed


def is_s3_option(name: str) -> bool:
    """Return whether S3 has a storage option, under any of its names."""
    return _canonical(name) in _CONVERTERS


def s3_option_names() -> list[str]:
    """Return the plain names of all storage options of S3."""
    return [*_CONVERTERS, *_SYNONYMS]


def _canonical(name: str) -> str:
    plain = name.lower().removeprefix("aws_")
    return _SYNONYMS.get(plain, plain)


def _check(options: S3Options) -> None:
    if (options.access_key_id is None) != (options.secret_access_key is None):
        raise InvalidInputError("pass storage options 'access_key_id' and 'secret_access_key' together")
    check_endpoint(options.endpoint, options, "endpoint")


def check_endpoint(endpoint: str | None, options: S3Options, name: str) -> None:
    """Refuse what is no address of a service, and one without encryption if that was not asked for."""
    if endpoint is None:
        return
    if not endpoint.lower().startswith(("http://", "https://")):
        raise InvalidInputError(f"storage option {name!r} must be an address with http:// or https://")
    if endpoint.lower().startswith("http://") and not options.allow_http:
        raise InvalidInputError(f"the {name} is not encrypted. Set storage option 'allow_http' to 'true' to allow that")


def _bool(text: str) -> bool:
    return _BOOLS[text.strip().lower()]


def _seconds(text: str) -> float:
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None:
        raise ValueError(text)
    return float(match[1]) * _SECONDS[match[2]]


def _converter(annotation: str) -> Callable[[str], Any]:
    kind = annotation.split(" ", 1)[0]
    return {"bool": _bool, "float": _seconds, "int": int}.get(kind, str)


_CONVERTERS = {field.name: _converter(str(field.type)) for field in fields(S3Options)}
