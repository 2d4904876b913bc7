"""Make sure that a version that was just published is part of the branch that others see.

A clean-up that ran during the commit may have deleted the version whose number the commit took. Then later versions do
not build on the new one, and it is withdrawn.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lance_core.errors import NotFoundError, VersionNotFoundError
from lance_core.format.table.operations import (
    CreateIndex,
    Delete,
    Operation,
    Overwrite,
    Project,
    ReserveFragments,
    Restore,
    UpdateBases,
    UpdateConfig,
)
from lance_core.format.table.paths import DETACHED_BIT, LATEST_VERSION_HINT, ManifestNaming, manifest_path
from lance_core.table.locations import branch_of, object_sizes, settle, with_bases
from lance_core.table.publish import is_on_branch, is_whole, outcome_unknown
from lance_core.table.read_ahead import each
from lance_core.table.rebase import covers_deletions
from lance_core.table.refs import list_tags_strictly
from lance_core.table.rules.ancestry import descends
from lance_core.table.snapshot import find_newest, find_versions, load_manifest, load_transaction

if TYPE_CHECKING:
    from lance_core.format.table.manifest import Manifest
    from lance_core.format.table.transaction import Transaction
    from lance_core.store.base import Store

_REPEATABLE = Delete | UpdateConfig | Project | UpdateBases | CreateIndex | ReserveFragments
"""Changes that have the same result if they are made twice; later versions cannot tell whose they are."""


def is_visible(store: Store, manifest: Manifest, transaction: Transaction, naming: ManifestNaming) -> bool:
    """Return whether later versions build on a version; withdraw it if they do not.

    Args:
        store: The branch.
        manifest: The version, which was just published.
        transaction: The transaction that made it, as it was published.
        naming: Naming scheme of manifest files.

    Returns:
        False if the version was withdrawn.

    Raises:
        CommitOutcomeUnknownError: Nobody can tell whether the version is part of the branch.
    """
    operation = transaction.operation
    try:
        newest, has_source = _looked_for(store, operation, naming)
        if newest == manifest.version:
            _write_hint(store, manifest.version)
            if has_source:
                return True
        is_built_on = _is_built_on(store, manifest, transaction, naming)
        if is_built_on is False:
            store.delete([manifest_path(manifest.version, naming)])
    except Exception as error:
        raise outcome_unknown(store, manifest.version, transaction.uuid) from error
    if is_built_on is None:
        raise outcome_unknown(store, manifest.version, transaction.uuid)
    return is_built_on


def _looked_for(store: Store, operation: Operation, naming: ManifestNaming) -> tuple[int | None, bool]:
    """Return the newest version, and whether the version that a restore brought back is there."""
    if not isinstance(operation, Restore) or operation.version & DETACHED_BIT:
        return find_newest(store, is_certain=True).newest, True

    def find() -> int | None:
        return find_newest(store, is_certain=True).newest

    def look() -> bool:
        try:
            return bool(object_sizes(store, [manifest_path(operation.version, naming)]))
        except NotFoundError:
            return False

    newest, has_source = each(store, (find, look))
    return newest, bool(has_source)


def _is_built_on(store: Store, manifest: Manifest, transaction: Transaction, naming: ManifestNaming) -> bool | None:
    """Return whether the later versions build on ours; None if nobody can tell."""
    operation = transaction.operation
    numbers, child = _later(store, manifest, naming)
    if _lost_its_source(manifest, operation, numbers):
        return False
    if child is None:
        return True
    is_descendant = _builds_on_ours(store, child, manifest, operation, numbers)
    is_alone = manifest.version in numbers and manifest.version - 1 not in numbers
    if is_descendant and is_alone and _is_no_proof(store, child, operation):
        # The one that it agrees with may have been made as late as ours.
        is_descendant = is_on_branch(store, child, numbers)
        is_descendant = is_descendant and is_whole(store, manifest, transaction.uuid)
    return is_descendant


def _write_hint(store: Store, version: int) -> None:
    """Tell pylance where to begin looking; it does so on local file systems only, and does not rely on it."""
    if "://" not in store.uri:
        with suppress(Exception):
            settle(store, LATEST_VERSION_HINT, b'{"version":%d}' % version)


def _later(store: Store, manifest: Manifest, naming: ManifestNaming) -> tuple[tuple[int, ...], Manifest | None]:
    """Return all version numbers and the first version after ours; a clean-up may delete it meanwhile."""
    while True:
        numbers = find_versions(store).numbers
        later = [version for version in numbers if version > manifest.version]
        try:
            return numbers, load_manifest(store, later[0], naming=naming) if later else None
        except VersionNotFoundError:
            if find_versions(store).numbers == numbers:
                raise


def _lost_its_source(manifest: Manifest, operation: Operation, numbers: tuple[int, ...]) -> bool:
    """Return whether somebody who heeds no tags deleted the version that a restore brought back, and then its files.

    If the version before ours is gone as well, ours was seen in time.
    """
    if not isinstance(operation, Restore) or operation.version & DETACHED_BIT:
        return False
    return operation.version not in numbers and manifest.version - 1 in numbers


def _is_no_proof(store: Store, child: Manifest, operation: Operation) -> bool:
    """Return whether a later version says nothing about who did what it agrees with."""
    if isinstance(operation, _REPEATABLE):
        return True
    theirs = load_transaction(store, child)
    return theirs is not None and isinstance(theirs.operation, Overwrite | Restore)


def _builds_on_ours(
    store: Store, child: Manifest, manifest: Manifest, operation: Operation, numbers: tuple[int, ...]
) -> bool | None:
    theirs = load_transaction(store, child)
    verdict = None if theirs is None else descends(child, theirs.operation, ours=manifest, our_operation=operation)
    if verdict is not None:
        return verdict
    if isinstance(operation, Delete) and theirs is not None:
        verdict = covers_deletions(with_bases(store, child), child, manifest, operation)
        if verdict is not None:
            return verdict
    # A clean-up deletes versions from the oldest on, so it cannot have deleted ours and left the one before, unless
    # a tag kept that.
    before = manifest.version - 1
    branch = branch_of(store)[1]
    is_tagged = any(tag.version == before and tag.branch == branch for tag in list_tags_strictly(store))
    return True if before in numbers and not is_tagged else None
