"""Settings that the clients of all object stores share, and how storage options become settings. Pure.

Classes of options are plain dataclasses: `lance_core.common.frozen` has no inheritance.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from lance_core.common.frozen import frozen
from lance_core.common.hints import did_you_mean
from lance_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lance_core.store.cloud.hedged_requests import RequestSettings

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "": 1.0}
_BOOLS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_SYNONYMS = {"timeout": "request_timeout"}
_REQUEST_TIMEOUTS = 10
"""A request that keeps answering may take so many times as long as one may be silent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClientOptions:
    """Options of every object store's client.

    Attributes:
        allow_http: Allow an endpoint without encryption.
        allow_invalid_certificates: Accept any certificate.
        connect_timeout: Seconds to connect.
        request_timeout: Seconds without an answer.
        client_max_retries: Number of times a failed request is repeated.
        client_retry_timeout: Seconds after which no request is repeated, and a read is given up.
        read_hedge_after: Seconds after which a read without an answer is sent a second time; 0 for never.
        proxy_url: Proxy for all requests. None for ``HTTPS_PROXY`` and ``HTTP_PROXY``.
        proxy_ca_certificate: PEM certificate of the proxy.
        proxy_excludes: Hosts that are reached without the proxy, separated by commas.
        user_agent: User agent header.
        http1_only: Use HTTP/1 only.
        http2_only: Use HTTP/2 only.
        pool_idle_timeout: Seconds after which an idle connection is closed. None for the client's default.
        pool_max_idle_per_host: Maximum number of idle connections per host. None for no limit.
        namespace: JSON text by which a namespace is asked for credentials; see `lance_core.values.table_id`.
    """

    allow_http: bool = False
    allow_invalid_certificates: bool = False
    connect_timeout: float = 5.0
    request_timeout: float = 30.0
    client_max_retries: int = 5
    client_retry_timeout: float = 180.0
    read_hedge_after: float = 3.0
    proxy_url: str | None = field(default=None, repr=False)
    proxy_ca_certificate: str | None = None
    proxy_excludes: str | None = None
    user_agent: str | None = None
    http1_only: bool = False
    http2_only: bool = False
    pool_idle_timeout: float | None = None
    pool_max_idle_per_host: int | None = None
    namespace: str | None = field(default=None, repr=False)

    def client_config(self) -> Any:
        """Return the HTTP settings as obstore takes them."""
        config: dict[str, Any] = {
            "allow_http": True,  # the endpoint was checked when the options were parsed
            "allow_invalid_certificates": self.allow_invalid_certificates,
            "connect_timeout": timedelta(seconds=self.connect_timeout),
            "read_timeout": timedelta(seconds=self.request_timeout),
            "timeout": timedelta(seconds=self.request_timeout * _REQUEST_TIMEOUTS),
            "proxy_url": self.proxy_url,
            "proxy_ca_certificate": self.proxy_ca_certificate,
            "proxy_excludes": self.proxy_excludes,
            "user_agent": self.user_agent,
            "http1_only": self.http1_only or None,
            "http2_only": self.http2_only or None,
            "pool_idle_timeout": None if self.pool_idle_timeout is None else timedelta(seconds=self.pool_idle_timeout),
            "pool_max_idle_per_host": None if self.pool_max_idle_per_host is None else str(self.pool_max_idle_per_host),
        }
        return {name: value for name, value in config.items() if value is not None}

    def request_settings(self) -> RequestSettings:
        """Return the times after which requests are sent again and given up."""
        from lance_core.store.cloud.hedged_requests import RequestSettings  # noqa: PLC0415 loads asyncio

        return RequestSettings(hedge_after=self.read_hedge_after, deadline=self.client_retry_timeout)

    def retry_config(self) -> Any:
        """Return the settings of retries as obstore takes them."""
        return {
            "max_retries": self.client_max_retries,
            "retry_timeout": timedelta(seconds=self.client_retry_timeout),
        }


_Options = TypeVar("_Options", bound=ClientOptions)


@frozen(kw_only=True)
class OptionNames:
    """Names under which a service's options may be given.

    Attributes:
        service: Name of the service, for errors.
        prefixes: Prefixes that may stand before a name, longest first.
        synonyms: Other names, without prefix, and the fields they stand for.
    """

    service: str
    prefixes: tuple[str, ...]
    synonyms: Mapping[str, str]

    def plain(self, name: str) -> str:
        """Return the name of an option in lower case and without a prefix."""
        lower = name.lower()
        prefix = next((prefix for prefix in self.prefixes if lower.startswith(prefix)), "")
        return lower.removeprefix(prefix)

    def field_of(self, name: str) -> str:
        """Return the field that an option sets."""
        plain = self.plain(name)
        return self.synonyms.get(plain) or _SYNONYMS.get(plain, plain)


def parse_options(cls: type[_Options], options: Mapping[str, Any], names: OptionNames) -> _Options:
    """Convert ``storage_options``.

    Args:
        cls: Class of the result.
        options: Names in any case, and their values. Times are like ``30s``.
        names: Names that the service knows.

    Raises:
        InvalidInputError: Unknown or contradicting options, or values that do not fit. Values are not repeated, because
            they may be secret.
    """
    converters = converters_of(cls)
    parsed: dict[str, Any] = {}
    for name, value in options.items():
        canonical = names.field_of(name)
        convert = converters.get(canonical)
        if convert is None:
            hint = did_you_mean(names.plain(name), option_names(cls, names))
            raise InvalidInputError(
                f"unknown storage option {name!r}.{hint} The options of {names.service} are: "
                f"{', '.join(sorted(converters))}"
            )
        try:
            converted = convert(str(value))
        except (ValueError, KeyError):
            raise InvalidInputError(f"cannot parse the value of storage option {name!r}") from None
        if parsed.setdefault(canonical, converted) != converted:
            raise given_twice(name)
    return cls(**parsed)


def option_names(cls: type[ClientOptions], names: OptionNames) -> list[str]:
    """Return all plain names of a service's options."""
    return [*converters_of(cls), *_SYNONYMS, *names.synonyms]


def given_twice(name: str) -> InvalidInputError:
    """Return the error for an option that has two values."""
    return InvalidInputError(f"storage option {name!r} is given twice, with different values")


def check_endpoint(endpoint: str | None, options: ClientOptions, name: str) -> None:
    """Refuse what is no address of a service, and one without encryption if that was not asked for."""
    if endpoint is None:
        return
    if not endpoint.lower().startswith(("http://", "https://")):
        raise InvalidInputError(f"storage option {name!r} must be an address with http:// or https://")
    if endpoint.lower().startswith("http://") and not options.allow_http:
        raise InvalidInputError(f"the {name} is not encrypted. Set storage option 'allow_http' to 'true' to allow that")


def converters_of(cls: type[ClientOptions]) -> dict[str, Callable[[str], Any]]:
    """Return the fields of a class of options, and how their values are read."""
    return {field_.name: _converter(str(field_.type)) for field_ in fields(cls)}


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
