"""Keys that users declare by the metadata of fields: which fields belong to them, and in which order.

A field belongs to the primary key if its metadata says so or gives it a place there, and to the clustering key if it is
given a place; what counts is what pylance 14.0.2 takes for true, and for a place. Nobody checks that keys are unique.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_PRIMARY_KEY = "lance-schema:unenforced-primary-key"
_PRIMARY_KEY_POSITION = f"{_PRIMARY_KEY}:position"
_CLUSTERING_KEY_POSITION = "lance-schema:unenforced-clustering-key:position"
_TRUE = frozenset({b"true", b"1", b"yes"})
_MAX_POSITION = (1 << 32) - 1

PRIMARY_KEY_METADATA = frozenset({_PRIMARY_KEY, _PRIMARY_KEY_POSITION})
"""Metadata that declares the primary key."""
CLUSTERING_KEY_METADATA = frozenset({_CLUSTERING_KEY_POSITION})
"""Metadata that declares the clustering key."""


def is_primary_key(metadata: Mapping[str, bytes]) -> bool:
    """Return whether the metadata of a field says that it belongs to the primary key."""
    return metadata.get(_PRIMARY_KEY, b"").lower() in _TRUE or primary_key_position(metadata) is not None


def primary_key_position(metadata: Mapping[str, bytes]) -> int | None:
    """Place in the primary key that the metadata of a field gives it; None without one."""
    return _position(metadata.get(_PRIMARY_KEY_POSITION))


def clustering_key_position(metadata: Mapping[str, bytes]) -> int | None:
    """Place in the clustering key that the metadata of a field gives it; None without one."""
    return _position(metadata.get(_CLUSTERING_KEY_POSITION))


def _position(text: bytes | None) -> int | None:
    return int(text) if text and text.isdigit() and int(text) <= _MAX_POSITION else None
