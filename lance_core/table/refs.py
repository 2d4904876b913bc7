"""Tags: names for versions that clean-up respects."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lance_core.errors import CorruptDataError, NotFoundError, RefAlreadyExistsError, RefNotFoundError, UnsupportedError
from lance_core.format.paths import (
    BRANCHES_FOLDER,
    TAGS_FOLDER,
    ManifestNaming,
    manifest_path,
    parse_ref_path,
    tag_path,
)
from lance_core.format.refs import MAIN_BRANCH, Branch, Tag, check_tag_name, decode_branch, decode_tag, encode_tag
from lance_core.table.runtime import SYSTEM_RUNTIME, Runtime
from lance_core.table.snapshot import load_manifest

if TYPE_CHECKING:
    from lance_core.store.base import Store


def create_tag(
    store: Store, name: str, version: int, *, branch: str | None = None, runtime: Runtime = SYSTEM_RUNTIME
) -> Tag:
    """Give a version a name.

    Args:
        store: Where the table lies.
        name: ASCII letters, digits, ``.``, ``-`` and ``_``.
        version: Version on the main line.
        branch: None or "main"; others are not supported.
        runtime: Clock.

    Raises:
        InvalidInputError: The name is not allowed.
        VersionNotFoundError: There is no such version.
        RefAlreadyExistsError: There is a tag of this name.
    """
    check_tag_name(name)
    _check_branch(branch)
    now = runtime.now()
    size = _manifest_size(store, version)
    tag = Tag(name=name, version=version, manifest_size=size, created_at=now, updated_at=now)
    if not store.put_if_absent(tag_path(name), encode_tag(tag)):
        raise RefAlreadyExistsError(f"there is a tag {name!r} already; update or delete it", path=store.uri)
    try:
        _manifest_size(store, version)  # a clean-up may have been faster, and now has seen the tag
    except NotFoundError:
        store.delete([tag_path(name)])
        raise
    return tag


def update_tag(
    store: Store, name: str, version: int, *, branch: str | None = None, runtime: Runtime = SYSTEM_RUNTIME
) -> Tag:
    """Let a tag name another version; the last of several concurrent writers wins.

    Raises:
        RefNotFoundError: There is no such tag.
        VersionNotFoundError: There is no such version.
    """
    _check_branch(branch)
    tag = replace(
        get_tag(store, name),
        version=version,
        branch=None,
        manifest_size=_manifest_size(store, version),
        updated_at=runtime.now(),
    )
    store.put(tag_path(name), encode_tag(tag))
    _manifest_size(store, version)
    return tag


def delete_tag(store: Store, name: str) -> None:
    """Remove a tag.

    Raises:
        RefNotFoundError: There is no such tag.
    """
    get_tag(store, name)
    store.delete([tag_path(name)])


def get_tag(store: Store, name: str) -> Tag:
    """Look a tag up.

    Raises:
        RefNotFoundError: There is no such tag.
    """
    path = tag_path(name)
    try:
        return decode_tag(store.get(path), name, path=f"{store.uri}/{path}")
    except NotFoundError:
        raise RefNotFoundError(f"there is no tag {name!r}", path=store.uri) from None


def list_tags(store: Store) -> dict[str, Tag]:
    """All tags by name; files that are no tags are left out."""
    tags: dict[str, Tag] = {}
    for name in _ref_names(store, TAGS_FOLDER):
        try:
            tags[name] = get_tag(store, name)
        except (RefNotFoundError, CorruptDataError):
            continue
    return tags


def list_branches(store: Store) -> list[Branch]:
    """All branches.

    Raises:
        CorruptDataError: A branch file is damaged: it protects versions, but which?
    """
    branches: list[Branch] = []
    for file in store.names(BRANCHES_FOLDER):
        name = parse_ref_path(file)
        if name is not None:
            path = f"{BRANCHES_FOLDER}/{file}"
            branches.append(decode_branch(store.get(path), name, path=f"{store.uri}/{path}"))
    return branches


def list_tags_strictly(store: Store) -> list[Tag]:
    """All tags.

    Raises:
        CorruptDataError: A tag file is damaged: it protects a version, but which?
    """
    tags: list[Tag] = []
    for name in _ref_names(store, TAGS_FOLDER):
        try:
            tags.append(get_tag(store, name))
        except RefNotFoundError:  # deleted since it was listed
            continue
    return tags


def _ref_names(store: Store, folder: str) -> list[str]:
    names = (parse_ref_path(file) for file in store.names(folder))
    return sorted(name for name in names if name is not None)


def _manifest_size(store: Store, version: int) -> int:
    for naming in ManifestNaming:
        try:
            reader = store.reader(manifest_path(version, naming))
        except NotFoundError:
            continue
        size = reader.size
        reader.close()
        return size
    load_manifest(store, version)  # raises the error that names the version
    return 0


def _check_branch(branch: str | None) -> None:
    if branch not in {None, MAIN_BRANCH}:
        raise UnsupportedError(f"branch {branch!r}: lance_core does not work on branches yet, only on the main line")
