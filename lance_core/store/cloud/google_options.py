"""Settings of Google Cloud Storage, under the names that users of pylance and gcsfs know. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lance_core.errors import InvalidInputError
from lance_core.store.cloud.client_options import ClientOptions, OptionNames, check_endpoint, given_twice, parse_options

if TYPE_CHECKING:
    from collections.abc import Mapping

GOOGLE_NAMES = OptionNames(
    service="Google Cloud Storage",
    prefixes=("google_",),
    synonyms={
        "anon": "skip_signature",
        "endpoint": "base_url",
        "endpoint_url": "base_url",
        "service_account_path": "service_account",
        "storage_token": "bearer_token",
    },
)
_TOKEN = "token"  # noqa: S105 a name
_DEFAULT_TOKENS = {"", "google_default", "cloud"}


@dataclass(frozen=True, kw_only=True, slots=True)
class GoogleOptions(ClientOptions):
    """Options of the Google Cloud client; missing ones come from the environment, as in all of Google's tools.

    Attributes:
        service_account: Path of a service account's key file.
        service_account_key: Content of such a file, JSON.
        application_credentials: Path of a file of application default credentials.
        bearer_token: OAuth token, which is not renewed.
        base_url: Address of another service than Google's.
        skip_signature: Read a public bucket without credentials.
        project: Project that pays if ``requester_pays`` is true.
        requester_pays: The reader's project pays for requests.
    """

    service_account: str | None = None
    service_account_key: str | None = field(default=None, repr=False)
    application_credentials: str | None = None
    bearer_token: str | None = field(default=None, repr=False)
    base_url: str | None = None
    skip_signature: bool = False
    project: str | None = None
    requester_pays: bool = False


def parse_google_options(options: Mapping[str, Any] | None) -> GoogleOptions:
    """Convert ``storage_options`` of Google Cloud Storage.

    Args:
        options: Names of `GoogleOptions` in any case, with or without ``google_`` in front; also ``endpoint_url``,
            ``service_account_path`` and ``timeout``, and gcsfs's ``token``: ``anon``, ``google_default``, a path, or
            the content of a key file. Times are like ``30s``.

    Raises:
        InvalidInputError: As of `parse_options`.
    """
    given = dict(options or {})
    tokens = [name for name in given if name.lower() in {_TOKEN, f"google_{_TOKEN}"}]
    for name in tokens:
        for field_, value in _of_token(given.pop(name)).items():
            if str(given.setdefault(field_, value)) != value:
                raise given_twice(name)
    parsed = parse_options(GoogleOptions, given, GOOGLE_NAMES)
    if parsed.service_account_key is not None:
        check_key(parsed.service_account_key)
    if parsed.requester_pays and parsed.project is None:
        raise InvalidInputError("storage option 'requester_pays' needs 'project' as well")
    check_endpoint(parsed.base_url, parsed, "endpoint")
    return parsed


def _of_token(token: Any) -> dict[str, str]:
    """Return the options that gcsfs's ``token`` stands for."""
    if isinstance(token, dict):
        return {"service_account_key": json.dumps(token)}
    text = str(token)
    if text == "anon":
        return {"skip_signature": "true"}
    if text in _DEFAULT_TOKENS:
        return {}
    if text.lstrip().startswith("{"):
        return {"service_account_key": text}
    return {"application_credentials": text}


def check_key(text: str) -> Mapping[str, Any]:
    """Return the content of a key file.

    Raises:
        InvalidInputError: It is not a JSON object.
    """
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise InvalidInputError("storage option 'service_account_key' is not a JSON object")
    return content  # pyright: ignore[reportUnknownVariableType] of JSON
