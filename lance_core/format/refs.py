"""Tags and branches: small JSON files that name versions.

Tag (``_refs/tags/{name}.json``), keys in this order, indented by two spaces:
``branch`` (null for the main line), ``version``, ``createdAt``, ``updatedAt`` (RFC 3339, UTC), ``manifestSize``
(bytes of that version's manifest file), ``metadata``. Readers need ``version`` and ``manifestSize`` only.

Branch (``_refs/branches/{name}.json``): only what clean-up must respect is read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from lance_core.errors import CorruptDataError, InvalidInputError

MAIN_BRANCH = "main"
_MAX_NAME_SIZE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Tag:
    """A name for a version.

    Attributes:
        name: The tag.
        version: Version it names.
        branch: Branch of that version; None for the main line.
        manifest_size: Bytes of the version's manifest file.
        created_at: None if the writer did not record it.
        updated_at: None if the writer did not record it.
    """

    name: str
    version: int
    branch: str | None = None
    manifest_size: int
    created_at: datetime | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A line of versions of its own.

    Attributes:
        name: The branch.
        parent_branch: None for the main line.
        parent_version: Version it was created from.
    """

    name: str
    parent_branch: str | None
    parent_version: int


def check_tag_name(name: str) -> None:
    """Refuse a name that some reader cannot handle.

    Names of other writers are not held against this.

    Raises:
        InvalidInputError: Says which rule the name breaks.
    """
    # pylance 14.0.2 creates tags with letters beyond ASCII and then can neither list tags nor clean up.
    if not name or not all(character.isascii() and (character.isalnum() or character in "._-") for character in name):
        raise InvalidInputError(f"tag name {name!r} must consist of ASCII letters, digits, '.', '-' and '_'")
    if name.startswith(".") or ".." in name or name.endswith((".lock", ".")):
        raise InvalidInputError(f"tag name {name!r} must not start or end with '.', end with '.lock' or contain '..'")
    if len(name) > _MAX_NAME_SIZE:
        raise InvalidInputError(f"tag name {name!r} is longer than {_MAX_NAME_SIZE} characters")


def encode_tag(tag: Tag) -> bytes:
    """Encode a tag file."""
    content = {
        "branch": tag.branch,
        "version": tag.version,
        "createdAt": _encode_time(tag.created_at),
        "updatedAt": _encode_time(tag.updated_at),
        "manifestSize": tag.manifest_size,
        "metadata": {},
    }
    return json.dumps(content, indent=2).encode()


def decode_tag(data: bytes, name: str, *, path: str | None = None) -> Tag:
    """Decode a tag file.

    Raises:
        CorruptDataError: Not a tag file.
    """
    content = _decode_object(data, path)
    branch = _text(content, "branch", path)
    return Tag(
        name=name,
        version=_number(content, "version", path),
        branch=None if branch == MAIN_BRANCH else branch,
        manifest_size=_number(content, "manifestSize", path),
        created_at=_decode_time(content.get("createdAt")),
        updated_at=_decode_time(content.get("updatedAt")),
    )


def decode_branch(data: bytes, name: str, *, path: str | None = None) -> Branch:
    """Decode a branch file.

    Raises:
        CorruptDataError: Not a branch file.
    """
    content = _decode_object(data, path)
    return Branch(
        name=name,
        parent_branch=_text(content, "parentBranch", path),
        parent_version=_number(content, "parentVersion", path),
    )


def _decode_object(data: bytes, path: str | None) -> dict[str, Any]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptDataError(f"not JSON: {error}", path=path) from error
    if not isinstance(content, dict):
        raise CorruptDataError("not a JSON object", path=path)
    return content


def _number(content: dict[str, Any], key: str, path: str | None) -> int:
    value = content.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise CorruptDataError(f"{key!r} is not a number", path=path)
    return value


def _text(content: dict[str, Any], key: str, path: str | None) -> str | None:
    value = content.get(key)
    if value is not None and not isinstance(value, str):
        raise CorruptDataError(f"{key!r} is not text", path=path)
    return value


def _encode_time(time: datetime | None) -> str | None:
    return None if time is None else time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _decode_time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:  # information for people only
        return None
