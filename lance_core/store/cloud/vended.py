"""Credentials of a namespace, which are asked for again before they expire."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_ASKING = "lance_core.namespace.vending"
"""Layers above this one; loaded when credentials are needed, in this or another process."""


def credential_provider(
    namespace: str, credential: Callable[[Mapping[str, str]], Mapping[str, Any]]
) -> Callable[[], dict[str, Any]]:
    """Return a provider of credentials as obstore takes it, which calls it again when they are about to expire.

    Args:
        namespace: Storage option ``namespace``: how to ask for a table's storage options.
        credential: Takes the credential of a service from storage options.
    """

    def ask() -> dict[str, Any]:
        options, expires_at = import_module(_ASKING).vended_options(namespace)
        return {**credential(options), "expires_at": expires_at}

    return ask
