"""Tags: names for versions that clean-up respects. They are kept at the root of a dataset, also for its branches."""

from __future__ import annotations

import uuid
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from lance_core.common.frozen import replace
from lance_core.errors import (
    CorruptDataError,
    InvalidInputError,
    NotFoundError,
    RefAlreadyExistsError,
    RefNotFoundError,
)
from lance_core.format.table.paths import (
    DETACHED_BIT,
    TAGS_FOLDER,
    ManifestNaming,
    manifest_path,
    parse_ref_path,
    tag_path,
)
from lance_core.format.table.refs import MAIN_BRANCH, Tag, check_tag_name, decode_tag, encode_tag, is_branch_name
from lance_core.table.locations import branch_of, branch_store, object_sizes, same_branch
from lance_core.table.read_ahead import each
from lance_core.table.runtime import SYSTEM_RUNTIME, Runtime
from lance_core.table.snapshot import load_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from datetime import datetime

    from lance_core.store.base import Store

Reference: TypeAlias = "int | str | tuple[str | None, int | None] | None"
"""A version: its number on the same branch, a tag, or branch and number (None: the main branch; the newest version)."""

KEEPING_PREFIX = "lance_core.keeping-"
"""Tags of this name keep a version while work is going on."""


def create_tag(store: Store, name: str, version: int, *, runtime: Runtime = SYSTEM_RUNTIME) -> Tag:
    """Give a version a name.

    Args:
        store: The branch that it is on.
        name: ASCII letters, digits, ``.``, ``-`` and ``_``.
        version: The version.
        runtime: Clock.

    Raises:
        InvalidInputError: The name is not allowed.
        VersionNotFoundError: There is no such version.
        RefAlreadyExistsError: There is a tag of this name.
    """
    check_tag_name(name)
    root, branch = branch_of(store)
    now = runtime.now()
    size = manifest_size(store, version)
    tag = Tag(name=name, version=version, branch=branch, manifest_size=size, created_at=now, updated_at=now)
    if not root.put_if_absent(tag_path(name), encode_tag(tag)):
        raise RefAlreadyExistsError(f"tag {name!r} exists already. Update or delete it", path=root.uri)
    try:
        manifest_size(store, version)  # a clean-up may have been faster, and now has seen the tag
    except NotFoundError:
        root.delete([tag_path(name)])
        raise
    return tag


@contextmanager
def keeping(
    store: Store, version: int, *, uuid: str, runtime: Runtime, is_read_inside: bool = False
) -> Generator[None]:
    """Keep a version from clean-up, by a tag of its own, while something happens.

    Whoever dies inside leaves the tag, which clean-up heeds for as long as work may take.

    Args:
        store: The branch that the version is on.
        version: Its number; nothing has to be kept of a detached one.
        uuid: Part of the name of the tag.
        runtime: Clock.
        is_read_inside: What happens inside reads the version before it does anything else that depends on it. Otherwise
            this looks whether the version is there: a clean-up may have taken it before it saw the tag.

    Raises:
        VersionNotFoundError: There is no such version.
    """
    if version & DETACHED_BIT:
        yield
        return
    root, branch = branch_of(store)
    name, now = f"{KEEPING_PREFIX}{uuid}", runtime.now()
    path = tag_path(name)
    tag = Tag(name=name, version=version, branch=branch, manifest_size=0, created_at=now, updated_at=now)
    root.put_if_absent(path, encode_tag(tag))  # it is there if we are here for the second time
    try:
        if not is_read_inside:
            manifest_size(store, version)
        yield
    finally:
        with suppress(Exception):
            root.delete([path])


def drop_forgotten(store: Store, before: datetime) -> None:
    """Remove the tags of `keeping` that nobody can need any more: those made before a point in time."""
    for name in ref_names(store, TAGS_FOLDER):
        if name.startswith(KEEPING_PREFIX):
            with suppress(RefNotFoundError):
                created_at = get_tag(store, name).created_at
                if created_at is not None and created_at < before:
                    delete_tag(store, name)


def update_tag(store: Store, name: str, version: int, *, runtime: Runtime = SYSTEM_RUNTIME) -> Tag:
    """Let a tag name another version; the last of several concurrent writers wins.

    Args:
        store: The branch that the new version is on.
        name: The tag.
        version: The version.
        runtime: Clock.

    Raises:
        RefNotFoundError: There is no such tag.
        VersionNotFoundError: There is no such version.
    """
    root, branch = branch_of(store)
    tag = replace(get_tag(store, name), version=version, branch=branch, updated_at=runtime.now())
    # A tag that names what a clean-up is taking cannot be put back: nobody kept what it named before.
    with keeping(store, version, uuid=str(uuid.uuid4()), runtime=runtime):
        tag = replace(tag, manifest_size=manifest_size(store, version))
        root.put(tag_path(name), encode_tag(tag))
    return tag


def describe_tag(store: Store, name: str, metadata: Mapping[str, str]) -> Tag:
    """Replace the free text of a tag; what it names, and since when, stays.

    Raises:
        RefNotFoundError: There is no such tag.
        VersionNotFoundError: The version is gone; so somebody has just deleted the tag.
    """
    root, _ = branch_of(store)
    tag = replace(get_tag(store, name), metadata=dict(metadata))
    branch_root = root if tag.branch is None else branch_store(root, tag.branch)
    with keeping(branch_root, tag.version, uuid=str(uuid.uuid4()), runtime=SYSTEM_RUNTIME):
        root.put(tag_path(name), encode_tag(tag))
    return tag


def delete_tag(store: Store, name: str) -> None:
    """Remove a tag.

    Raises:
        RefNotFoundError: There is no such tag.
    """
    get_tag(store, name)
    root, _ = branch_of(store)
    root.delete([tag_path(name)])


def get_tag(store: Store, name: str) -> Tag:
    """Look a tag up.

    Raises:
        RefNotFoundError: There is no such tag.
        CorruptDataError: Its file is damaged.
    """
    root, _ = branch_of(store)
    path = tag_path(name)
    try:
        tag = decode_tag(root.get(path), name, path=f"{root.uri}/{path}")
    except NotFoundError:
        raise RefNotFoundError(f"there is no tag {name!r}", path=root.uri) from None
    if tag.branch is not None and not is_branch_name(tag.branch):
        raise CorruptDataError(f"{tag.branch!r} is not the name of a branch", path=f"{root.uri}/{path}")
    return tag


def list_tags(store: Store) -> dict[str, Tag]:
    """Return all tags by name; files that are no tags are left out."""

    def get(name: str) -> Tag | None:
        try:
            return get_tag(store, name)
        except (RefNotFoundError, CorruptDataError):
            return None

    return {tag.name: tag for tag in _each_tag(store, get)}


def list_tags_strictly(store: Store) -> list[Tag]:
    """Return all tags.

    Raises:
        CorruptDataError: A tag file is damaged: it protects a version, but which?
    """

    def get(name: str) -> Tag | None:
        try:
            return get_tag(store, name)
        except RefNotFoundError:  # deleted since it was listed
            return None

    return _each_tag(store, get)


def _each_tag(store: Store, get: Callable[[str], Tag | None]) -> list[Tag]:
    tags = each(store, (partial(get, name) for name in ref_names(store, TAGS_FOLDER)))
    return [tag for tag in tags if tag is not None]


def resolve(store: Store, reference: Reference) -> tuple[Store, int | None]:
    """Return the branch that a reference is about, and the number; None for the newest.

    Raises:
        RefNotFoundError: There is no such tag.
        InvalidInputError: Not a reference.
    """
    match reference:
        case None:
            return store, None
        case bool():
            pass
        case int():
            return store, reference
        case str():
            tag = get_tag(store, reference)
            return other_branch(store, tag.branch), tag.version
        case (None | str() as branch, None | int() as version):
            return other_branch(store, branch), version
        case _:
            pass
    raise InvalidInputError(
        f"{reference!r} does not name a version. Pass a number, the name of a tag, or a tuple of branch and number"
    )


def other_branch(store: Store, branch: str | None) -> Store:
    """Return the store of a branch of the same dataset; None or "main" is the main branch."""
    root, _ = branch_of(store)
    if branch is None or branch == MAIN_BRANCH:
        return same_branch(store, root)
    if not is_branch_name(branch):
        raise InvalidInputError(f"{branch!r} is not the name of a branch", path=root.uri)
    return same_branch(store, branch_store(root, branch))


def ref_names(store: Store, folder: str) -> list[str]:
    """Names of all tags or branches, in order."""
    root, _ = branch_of(store)
    names = (parse_ref_path(file) for file in root.names(folder))
    return sorted(name for name in names if name is not None)


def manifest_size(store: Store, version: int) -> int:
    """Return bytes of a version's manifest file.

    Raises:
        VersionNotFoundError: There is no such version.
    """
    for naming in (ManifestNaming.V2, ManifestNaming.V1):  # nearly all tables have the names of V2
        with suppress(NotFoundError):
            return object_sizes(store, [manifest_path(version, naming)])[0]
    load_manifest(store, version)  # raises the error that names the version
    return 0
