"""Index coverage after an operation: a pure part of `lance_core.table.rules.apply`.

A fragment stays covered as long as the entries of the index still find its rows; readers scan the others. On tables
with stable row ids most indices know rows by id, so they go on finding rows that moved to another fragment. Others are
rewritten along with the rows. Source: what pylance 14.0.2 writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.common.frozen import replace
from lance_core.errors import CommitConflictError
from lance_core.format.table.fragment_reuse import NAME as FRAGMENT_REUSE_INDEX
from lance_core.format.table.fragment_reuse import find_fragment_reuse
from lance_core.format.table.index_metadata import holds_row_ids, with_changed_coverage, with_new_files
from lance_core.format.table.manifest import index_section_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.index_metadata import IndexMetadata, RewrittenIndex
    from lance_core.format.table.manifest import Manifest
    from lance_core.format.table.operations import DeferredRemap, Rewrite


def after_rewrite(manifest: Manifest, rewrite: Rewrite) -> Manifest:
    """Indices after fragments were replaced by others with the same live rows.

    An index that knows rows by id, or whose files were rewritten along with the rows, covers the new fragments of a
    group if it covered all old ones. With a deferred remap all indices do. All others lose the old fragments. Indices
    that were dropped meanwhile stay dropped.

    Args:
        manifest: The version before the rewrite.
        rewrite: What became what; new fragments have ids.

    Raises:
        CommitConflictError: The remap is deferred, and another commit changed the fragment reuse index.
    """
    deferred = rewrite.deferred_remap
    new_files = {index.old_id: index for index in rewrite.rewritten_indices}
    pairs = [
        ([fragment.id for fragment in group.old_fragments], [fragment.id for fragment in group.new_fragments])
        for group in rewrite.groups
    ]
    removed = [fragment_id for old, _ in pairs for fragment_id in old]

    def change(index: IndexMetadata) -> IndexMetadata:
        if index.name == FRAGMENT_REUSE_INDEX:
            return index
        covered = index.fragment_ids
        added: list[int] = []
        has_row_ids = manifest.uses_stable_row_ids and holds_row_ids(index)
        if covered is not None and (has_row_ids or index.uuid in new_files or deferred is not None):
            added = [fragment_id for old, new in pairs if covered.issuperset(old) for fragment_id in new]
        if index.uuid in new_files:
            index = with_new_files(index, new_files[index.uuid])
        return with_changed_coverage(index, removed=removed, added=added)

    manifest = _map_indices(manifest, change)
    return manifest if deferred is None else _with_fragment_reuse(manifest, deferred)


def _with_fragment_reuse(manifest: Manifest, deferred: DeferredRemap) -> Manifest:
    check_fragment_reuse(manifest, set() if deferred.replaces is None else {deferred.replaces})
    indices = (*(index for index in manifest.indices if index.uuid != deferred.replaces), deferred.entry)
    return replace(manifest, index_section=index_section_of(indices))


def check_fragment_reuse(manifest: Manifest, replaced: Collection[bytes]) -> None:
    """Check that an operation replaces the fragment reuse index that the version has.

    Args:
        manifest: The version that the operation is applied to.
        replaced: Uuids of the entries that it removes.

    Raises:
        CommitConflictError: Another commit changed it.
    """
    entry = find_fragment_reuse(manifest.indices)
    if entry is not None and entry.uuid not in replaced:
        raise CommitConflictError("another commit changed the fragment reuse index")


def after_moves(
    manifest: Manifest, new_fragments: Sequence[Fragment], *, sources: Collection[int], changed_fields: Collection[int]
) -> Manifest:
    """Indices after rows moved, with their ids, to new fragments.

    An index that knows rows by id covers the new fragments if it covered all fragments that the rows come from and
    the rows keep their values of its fields.

    Args:
        manifest: The version with the new fragments.
        new_fragments: Fragments, with their ids, that hold moved rows and no others.
        sources: Ids of the fragments that the rows come from.
        changed_fields: Ids of the fields that may have other values in moved rows.
    """
    added = [fragment.id for fragment in new_fragments]
    if not added or not manifest.uses_stable_row_ids:
        return manifest
    changed = set(changed_fields)

    def change(index: IndexMetadata) -> IndexMetadata:
        covered = index.fragment_ids
        if covered is None or not covered.issuperset(sources) or not holds_row_ids(index):
            return index
        return index if changed.intersection(_fields(index)) else with_changed_coverage(index, added=added)

    return _map_indices(manifest, change)


def after_new_values(manifest: Manifest, field_ids: Collection[int], fragment_ids: Collection[int]) -> Manifest:
    """Indices after fields got other values in place: those over these fields no longer cover the fragments."""
    fields = set(field_ids)
    return _map_indices(
        manifest,
        lambda index: (
            with_changed_coverage(index, removed=fragment_ids) if fields.intersection(_fields(index)) else index
        ),
    )


def after_lost_fields(manifest: Manifest) -> Manifest:
    """Indices after the schema changed: those over fields that it no longer has are dropped."""
    live = {field.id for field in manifest.schema.walk()}
    before = manifest.indices
    after = tuple(index for index in before if live.issuperset(index.fields))
    return manifest if after == before else replace(manifest, index_section=index_section_of(after))


def unindexed_rows(before: Manifest, after: Manifest, rewritten: Sequence[RewrittenIndex] = ()) -> dict[str, int]:
    """Count the rows that indices covered in one version and no longer cover in a later one.

    Args:
        before: The version before a rewrite of fragments.
        after: The version after it.
        rewritten: Indices whose files were rewritten along with the rows.

    Returns:
        Number of rows by name of the index; only indices that lost rows and still exist.
    """
    lost: dict[str, int] = {}
    later = {index.uuid: index for index in after.indices}
    new_ids = {index.old_id: index.new_id for index in rewritten}
    for index in before.indices:
        same = later.get(new_ids.get(index.uuid, index.uuid))
        if same is None or same.record == index.record:
            continue
        old, new = index.fragment_ids or frozenset(), same.fragment_ids or frozenset()
        rows = _count_rows(before, old - new) - _count_rows(after, new - old)
        if rows > 0:
            lost[index.name] = lost.get(index.name, 0) + rows
    return lost


def _count_rows(manifest: Manifest, fragment_ids: Collection[int]) -> int:
    fragments = manifest.fragments
    return int(fragments.num_rows[np.isin(fragments.ids, list(fragment_ids))].sum())


def _fields(index: IndexMetadata) -> tuple[int, ...]:
    return (*index.fields, *index.covering_fields)


def _map_indices(manifest: Manifest, change: Callable[[IndexMetadata], IndexMetadata]) -> Manifest:
    before = manifest.indices
    after = tuple(change(index) for index in before)
    return manifest if after == before else replace(manifest, index_section=index_section_of(after))
