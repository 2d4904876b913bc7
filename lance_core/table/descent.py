"""Does a later version build on ours? A pure judgement, needed only when others commit while we look.

Version N is listed as free, versions N and N + 1 are made, N is cleaned up, and a slow writer that still believes N to
be free creates it. The store says that it won, and nobody will ever see its rows. So a writer that finds later
versions looks for what it did in the next one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.format.operations import (
    Append,
    CreateIndex,
    Delete,
    Merge,
    Operation,
    Overwrite,
    Project,
    ReserveFragments,
    Restore,
    Rewrite,
    Update,
    UpdateConfig,
)
from lance_core.table.conflicts import touched_fragments

if TYPE_CHECKING:
    from lance_core.format.manifest import Manifest


def descends(child: Manifest, child_operation: Operation, *, ours: Manifest, our_operation: Operation) -> bool | None:
    """Judge whether ``child``, the next version that exists, was built on ``ours``.

    Args:
        child: The next version.
        child_operation: What made it.
        ours: The version we made.
        our_operation: What made it, with final fragment ids.

    Returns:
        None if that cannot be told from these two.
    """
    if isinstance(child_operation, Overwrite | Restore):
        return True  # whatever was there before is replaced
    match our_operation:
        case UpdateConfig():
            same = (child.config, child.table_metadata, child.schema) == (ours.config, ours.table_metadata, ours.schema)
            return same or None
        case Project() | Merge():
            return child.schema == ours.schema or None
        case ReserveFragments():
            return (child.max_fragment_id or 0) >= (ours.max_fragment_id or 0)
        case _:
            return _has_our_fragments(child, child_operation, ours, our_operation)


def _has_our_fragments(
    child: Manifest, child_operation: Operation, ours: Manifest, our_operation: Operation
) -> bool | None:
    new, updated, removed = _changed_ids(ours, our_operation)
    kept = {fragment.id: fragment for fragment in child.fragments.select(new | updated)}
    for fragment in ours.fragments.select(frozenset(kept)):
        other = kept[fragment.id]
        if other.files == fragment.files and (fragment.id in new or other.deletion_file == fragment.deletion_file):
            return True
    if removed and not new and not updated:
        return not child.fragments.select(removed)
    # What we changed may be missing because the next commit changed it again, or because it never knew it.
    touched = _may_touch(child_operation)
    return None if touched is None or touched & (new | updated) else False


def _changed_ids(ours: Manifest, operation: Operation) -> tuple[frozenset[int], frozenset[int], frozenset[int]]:
    """Ids of the fragments that an operation added, changed and removed."""
    match operation:
        case Append() | Overwrite():
            return _last_ids(ours, len(operation.fragments)), frozenset(), frozenset()
        case Delete():
            updated = frozenset(fragment.id for fragment in operation.updated_fragments)
            return frozenset(), updated, frozenset(operation.deleted_fragment_ids)
        case Update():
            updated = frozenset(fragment.id for fragment in operation.updated_fragments)
            new = _last_ids(ours, len(operation.new_fragments))
            return new, updated, frozenset(operation.removed_fragment_ids)
        case Rewrite():
            new = frozenset(fragment.id for group in operation.groups for fragment in group.new_fragments)
            return new, frozenset(), touched_fragments(operation) or frozenset()
        case _:
            return frozenset(ours.fragments.ids.tolist()), frozenset(), frozenset()


def _last_ids(manifest: Manifest, count: int) -> frozenset[int]:
    """Ids of the newest fragments: a commit gives them the highest ids there are."""
    return frozenset(manifest.fragments.ids[len(manifest.fragments) - count :].tolist())


def _may_touch(operation: Operation) -> frozenset[int] | None:
    """Fragments that an operation may have changed; None for all."""
    if isinstance(operation, Append | ReserveFragments | UpdateConfig | CreateIndex):
        return frozenset()
    return touched_fragments(operation)
