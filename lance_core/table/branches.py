"""Branches of a dataset: independent histories that share files.

The file that describes a branch is created first, because only one of several writers can: who has it owns the
folder. From then on clean-up keeps the version that the branch comes from. The branch's first version follows; until
it is there, the branch exists but has nothing to open. A writer that stops in between leaves a branch that can be
deleted.
"""

from __future__ import annotations

import uuid
from functools import partial
from typing import TYPE_CHECKING

from lance_core.common.frozen import replace
from lance_core.errors import (
    CommitOutcomeUnknownError,
    InvalidInputError,
    NotFoundError,
    RefAlreadyExistsError,
    RefNotFoundError,
)
from lance_core.format.table.paths import (
    BRANCHES_FOLDER,
    TABLE_FOLDERS,
    TEMPORARY_PREFIX,
    VERSIONS_FOLDER,
    branch_path,
    parse_manifest_name,
)
from lance_core.format.table.refs import MAIN_BRANCH, Branch, check_branch_name, decode_branch, encode_branch
from lance_core.table.clones import clone_manifest, publish_clone, take_back
from lance_core.table.locations import branch_of, remove_empty_folders
from lance_core.table.read_ahead import each
from lance_core.table.refs import keeping, list_tags_strictly, manifest_size, other_branch, ref_names
from lance_core.table.runtime import SYSTEM_RUNTIME, Runtime
from lance_core.table.snapshot import Snapshot, find_newest, list_versions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_core.store.base import Store

_DELETE_BATCH = 1000


def create_branch(source: Snapshot, name: str, *, uuid: str, runtime: Runtime = SYSTEM_RUNTIME) -> Snapshot:
    """Begin a branch at a version.

    Args:
        source: The version, on the main branch or a branch.
        name: Parts like those of tag names, separated by "/".
        uuid: Identity of the commit, hyphenated.
        runtime: Clock.

    Returns:
        The first version of the branch; its number is that of the source.

    Raises:
        InvalidInputError: The name is not allowed.
        RefAlreadyExistsError: There is a branch of this name, or what is left of one.
        VersionNotFoundError: The source was cleaned up meanwhile.
        RefNotFoundError: The branch of the source was deleted meanwhile.
    """
    check_branch_name(name)
    root, parent = branch_of(source.store)
    branch_root = other_branch(source.store, name)
    branch = Branch(
        name=name,
        parent_branch=parent,
        parent_version=source.version,
        identifier=(*_identifier(source.store, parent), (source.version, uuid.replace("-", ""))),
        created_at=int(runtime.now().timestamp()),
        manifest_size=manifest_size(source.store, source.version),
    )
    if not root.put_if_absent(branch_path(name), encode_branch(branch)):
        raise RefAlreadyExistsError(f"branch {name!r} exists already", path=root.uri)
    cloned = clone_manifest(source, branch=name, uuid=uuid, now=runtime.now())
    try:
        _check_vacant(branch_root, name)
        snapshot = publish_clone(branch_root, cloned)
    except CommitOutcomeUnknownError:
        raise
    except Exception:
        root.delete([branch_path(name)])
        raise
    try:
        _check_source(source, parent)
    except NotFoundError:
        take_back(branch_root, snapshot.manifest)
        root.delete([branch_path(name)])
        raise
    return snapshot


def _check_vacant(branch_root: Store, name: str) -> None:
    if list_versions(branch_root):
        raise RefAlreadyExistsError(
            f"the folder of branch {name!r} holds files of a branch that was not deleted completely. Delete "
            "the branch to remove them",
            path=branch_root.uri,
        )


def _check_source(source: Snapshot, parent: str | None) -> None:
    """A clean-up, or the deletion of the parent, may have been faster; from now on they see the branch."""
    manifest_size(source.store, source.version)
    if parent is not None:
        get_branch(source.store, parent)


def _identifier(store: Store, branch: str | None) -> tuple[tuple[int, str], ...]:
    return () if branch is None else get_branch(store, branch).identifier


def get_branch(store: Store, name: str) -> Branch:
    """Look a branch up.

    Raises:
        RefNotFoundError: There is no such branch.
        CorruptDataError: Its file is damaged.
    """
    root, _ = branch_of(store)
    path = branch_path(name)
    try:
        return decode_branch(root.get(path), name, path=f"{root.uri}/{path}")
    except NotFoundError:
        raise RefNotFoundError(f"there is no branch {name!r}", path=root.uri) from None


def list_branches(store: Store) -> list[Branch]:
    """Return all branches, by name.

    Raises:
        CorruptDataError: The file of a branch is damaged: it protects a version, but which?
    """

    def get(name: str) -> Branch | None:
        try:
            return get_branch(store, name)
        except RefNotFoundError:  # deleted since it was listed
            return None

    branches = each(store, (partial(get, name) for name in ref_names(store, BRANCHES_FOLDER)))
    return [branch for branch in branches if branch is not None]


def describe_branch(store: Store, name: str, metadata: Mapping[str, str]) -> Branch:
    """Replace the free text of a branch.

    Raises:
        RefNotFoundError: There is no such branch, or it is being made or deleted.
        VersionNotFoundError: Its newest version is gone; so somebody has just deleted the branch.
    """
    root, _ = branch_of(store)
    branch_root = other_branch(store, name)
    get_branch(store, name)
    version = find_newest(branch_root).newest
    if version is None:
        raise RefNotFoundError(f"branch {name!r} has no version; somebody is creating or deleting it", path=root.uri)
    # Who deletes a branch looks for tags on it after its file is gone. So either we see that it is, or they see ours.
    with keeping(branch_root, version, uuid=str(uuid.uuid4()), runtime=SYSTEM_RUNTIME):
        branch = replace(get_branch(store, name), metadata=dict(metadata))
        root.put(branch_path(name), encode_branch(branch))
    return branch


def delete_branch(store: Store, name: str) -> None:
    """Delete a branch with all its versions and files; also what is left of one that was never finished.

    Raises:
        RefNotFoundError: There is no such branch, and nothing is left of one.
        InvalidInputError: Other branches or tags depend on it, or it is the main branch.
    """
    if name == MAIN_BRANCH:
        raise InvalidInputError("the main branch cannot be deleted")
    root, _ = branch_of(store)
    branch_root = other_branch(root, name)
    path = branch_path(name)
    content = _claimed(root, branch_root, name)
    _check_unused(root, name)
    # Only what is there before the name becomes free: whoever takes it next has files of their own.
    files = _files(branch_root)
    if _get(root, path) != content:
        raise RefNotFoundError(f"branch {name!r} was deleted by somebody else", path=root.uri)
    root.delete([path])
    try:
        # Who makes a branch or tag looks for what it names afterwards, so one of both sees the other.
        _check_unused(root, name)
    except Exception:
        root.put_if_absent(path, content)
        raise
    for start in range(0, len(files), _DELETE_BATCH):
        branch_root.delete(files[start : start + _DELETE_BATCH])
    remove_empty_folders(branch_root, "")


def _claimed(root: Store, branch_root: Store, name: str) -> bytes:
    """The file of a branch; made anew if only files are left of it, so that nobody begins a branch among them."""
    path = branch_path(name)
    content = _get(root, path)
    if content is not None:
        return content
    if not any(parse_manifest_name(entry) for entry in branch_root.names(VERSIONS_FOLDER)):
        raise RefNotFoundError(f"there is no branch {name!r}", path=root.uri)
    content = encode_branch(Branch(name=name, parent_branch=None, parent_version=0))
    if not root.put_if_absent(path, content):
        raise RefNotFoundError(f"branch {name!r} is being created by somebody else", path=root.uri)
    return content


def _get(root: Store, path: str) -> bytes | None:
    try:
        return root.get(path)
    except NotFoundError:
        return None


def _check_unused(root: Store, name: str) -> None:
    users = [f"branch {branch.name!r}" for branch in list_branches(root) if branch.parent_branch == name]
    users += [f"tag {tag.name!r}" for tag in list_tags_strictly(root) if tag.branch == name]
    if users:
        raise InvalidInputError(
            f"cannot delete branch {name!r}, which is used by {', '.join(users)}. Delete these first", path=root.uri
        )


def _files(branch_root: Store) -> list[str]:
    """Return all files of a branch, those of other branches below its folder aside.

    Manifests come first: nobody shall open a version that lacks files. What somebody is just writing is left to the
    clean-up.
    """
    paths = [info.path for folder in TABLE_FOLDERS for info in branch_root.list(folder)]
    return [path for path in paths if not path.rpartition("/")[2].startswith(TEMPORARY_PREFIX)]
