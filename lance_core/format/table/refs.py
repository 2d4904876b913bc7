"""Tags and branches: small JSON files that name versions.

Tag (``_refs/tags/{name}.json``), keys in this order, indented by two spaces:
``branch`` (null for the main branch), ``version``, ``createdAt``, ``updatedAt`` (RFC 3339, UTC), ``manifestSize``
(bytes of that version's manifest file), ``metadata``. Readers need ``version`` and ``manifestSize`` only.

Branch (``_refs/branches/{name}.json``): ``parentBranch`` (null for the main branch), ``identifier``
(``version_mapping``: for each branch from the main branch to this one, the version it was created from and 32 random
hexadecimal digits), ``parentVersion``, ``createAt`` (Unix seconds), ``manifestSize`` (of the parent version),
``metadata``. Readers need ``parentVersion`` only.

In files of ours ``checksum`` comes last: the CRC-32 of the same object without it and without indentation.
"""

from __future__ import annotations

import json
from dataclasses import field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lance_core.common.frozen import frozen
from lance_core.errors import CorruptDataError, InvalidInputError
from lance_core.format.file.checksums import crc32

if TYPE_CHECKING:
    from collections.abc import Mapping

MAIN_BRANCH = "main"
_CHECKSUM = "checksum"
_MAX_NAME_SIZE = 200
_TABLE_FOLDERS = frozenset(
    {"data", "tree", "_base", "_blobs", "_deletions", "_fri", "_indices", "_refs", "_transactions", "_versions"}
)


@frozen(kw_only=True)
class Tag:
    """A name for a version.

    Attributes:
        name: The tag.
        version: Version it names.
        branch: Branch of that version; None for the main branch.
        manifest_size: Bytes of the version's manifest file.
        created_at: None if the writer did not record it.
        updated_at: When it began to name this version; None if the writer did not record it.
        metadata: Free text.
    """

    name: str
    version: int
    branch: str | None = None
    manifest_size: int
    created_at: datetime | None = None
    updated_at: datetime | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


@frozen(kw_only=True)
class Branch:
    """A branch.

    Attributes:
        name: The branch.
        parent_branch: None for the main branch.
        parent_version: Version it was created from.
        identifier: For each branch from the main branch to this one, the version it was created from and what tells it
            from other branches of the same name; empty if the writer did not record it.
        created_at: Unix seconds; None if the writer did not record it.
        manifest_size: Bytes of the parent version's manifest file.
        metadata: Free text.
    """

    name: str
    parent_branch: str | None
    parent_version: int
    identifier: tuple[tuple[int, str], ...] = ()
    created_at: int | None = None
    manifest_size: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)


def check_tag_name(name: str) -> None:
    """Refuse a name that some reader cannot handle.

    Names of other writers are not held against this.

    Raises:
        InvalidInputError: Says which rule the name breaks.
    """
    # pylance 14.0.2 creates tags with letters beyond ASCII and then can neither list tags nor clean up.
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidInputError(f"the name of a tag must be text, not {name!r}")
    if not name or not all(character.isascii() and (character.isalnum() or character in "._-") for character in name):
        raise InvalidInputError(f"tag name {name!r} must consist of ASCII letters, digits, '.', '-' and '_'")
    if name.startswith(".") or ".." in name or name.endswith((".lock", ".")):
        raise InvalidInputError(f"tag name {name!r} must not start or end with '.', end with '.lock' or contain '..'")
    if len(name) > _MAX_NAME_SIZE:
        raise InvalidInputError(f"tag name {name!r} is longer than {_MAX_NAME_SIZE} characters")


def check_branch_name(name: str) -> None:
    """Refuse a name that some reader cannot handle, or that would lie inside the files of another branch.

    Raises:
        InvalidInputError: Says which rule the name breaks.
    """
    if name == MAIN_BRANCH:
        raise InvalidInputError(f"{MAIN_BRANCH!r} is the name of the main branch. Choose another name")
    for segment in name.split("/"):
        try:
            check_tag_name(segment)
        except InvalidInputError as error:
            raise InvalidInputError(
                f"branch name {name!r} must consist of ASCII letters, digits, '.', '-', '_' and single '/' inside; no "
                "part of it may start or end with '.', end with '.lock' or contain '..'"
            ) from error
        if segment in _TABLE_FOLDERS:
            raise InvalidInputError(f"branch name {name!r}: {segment!r} is the name of a folder in every dataset")
    if len(name) > _MAX_NAME_SIZE:
        raise InvalidInputError(f"branch name {name!r} is longer than {_MAX_NAME_SIZE} characters")


def is_branch_name(name: str) -> bool:
    """Return whether a name written by anybody is one that leads to a folder below ``tree/``, and nowhere else."""
    parts = name.split("/")
    return not any(part in {"", ".", ".."} or "\\" in part or "\0" in part for part in parts)


def encode_tag(tag: Tag) -> bytes:
    """Encode a tag file."""
    content = {
        "branch": tag.branch,
        "version": tag.version,
        "createdAt": _encode_time(tag.created_at),
        "updatedAt": _encode_time(tag.updated_at),
        "manifestSize": tag.manifest_size,
        "metadata": dict(tag.metadata),
    }
    return _encode_object(content)


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
        metadata=_metadata(content, path),
    )


def encode_branch(branch: Branch) -> bytes:
    """Encode a branch file."""
    content = {
        "parentBranch": branch.parent_branch,
        "identifier": {"version_mapping": [list(entry) for entry in branch.identifier]},
        "parentVersion": branch.parent_version,
        "createAt": branch.created_at or 0,
        "manifestSize": branch.manifest_size,
        "metadata": dict(branch.metadata),
    }
    return _encode_object(content)


def decode_branch(data: bytes, name: str, *, path: str | None = None) -> Branch:
    """Decode a branch file.

    Raises:
        CorruptDataError: Not a branch file.
    """
    content = _decode_object(data, path)
    parent = _text(content, "parentBranch", path)
    created_at, size = content.get("createAt"), content.get("manifestSize")
    return Branch(
        name=name,
        parent_branch=None if parent == MAIN_BRANCH else parent,
        parent_version=_number(content, "parentVersion", path),
        identifier=_identifier(content.get("identifier"), path),
        created_at=created_at if isinstance(created_at, int) else None,
        manifest_size=size if isinstance(size, int) else 0,
        metadata=_metadata(content, path),
    )


def _identifier(content: object, path: str | None) -> tuple[tuple[int, str], ...]:
    if content is None:
        return ()
    entries = content.get("version_mapping") if isinstance(content, dict) else None
    if not isinstance(entries, list) or not all(
        isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], int) and isinstance(entry[1], str)
        for entry in entries
    ):
        raise CorruptDataError("'identifier' is not a list of versions and texts", path=path)
    return tuple((entry[0], entry[1]) for entry in entries)


def _metadata(content: dict[str, Any], path: str | None) -> dict[str, str]:
    metadata = content.get("metadata") or {}
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise CorruptDataError("'metadata' is not a map of texts", path=path)
    return metadata


def _encode_object(content: dict[str, Any]) -> bytes:
    """JSON with a checksum, which other readers pass over and other writers drop."""
    return json.dumps({**content, _CHECKSUM: _checksum(content)}).encode()


def _checksum(content: dict[str, Any]) -> int:
    return crc32(json.dumps(content).encode())


def _decode_object(data: bytes, path: str | None) -> dict[str, Any]:
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptDataError(f"not JSON: {error}", path=path) from error
    if not isinstance(content, dict):
        raise CorruptDataError("not a JSON object", path=path)
    checksum = content.pop(_CHECKSUM, None)
    if checksum is not None and checksum != _checksum(content):
        raise CorruptDataError("the file is damaged: its content does not match its checksum", path=path)
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
