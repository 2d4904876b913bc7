"""Does a later version build on ours? A pure judgement, needed only when others commit while we look.

Version N is listed as free, versions N and N + 1 are made, N is cleaned up, and a slow writer that still believes N to
be free creates it. The store says that it won, and nobody will ever see its rows. So a writer that finds later
versions looks for what it did in the next one.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lance_core.common.frozen import replace
from lance_core.errors import InvalidInputError
from lance_core.format.table.operations import (
    Append,
    CreateIndex,
    DataReplacement,
    Delete,
    Merge,
    Operation,
    Overwrite,
    Project,
    ReserveFragments,
    Restore,
    Rewrite,
    Update,
    UpdateBases,
    UpdateConfig,
    UpdateMap,
)
from lance_core.format.table.transaction import Transaction
from lance_core.table.rules.apply import apply
from lance_core.table.rules.conflicts import touched_fragments

if TYPE_CHECKING:
    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.manifest import Manifest

_ANY_TIME = datetime(1970, 1, 1, tzinfo=UTC)


def descends(child: Manifest, child_operation: Operation, *, ours: Manifest, our_operation: Operation) -> bool | None:
    """Judge whether ``child``, the next version that exists, was built on ``ours``.

    Args:
        child: The next version; versions in between may have been cleaned up.
        child_operation: What made it.
        ours: The version we made.
        our_operation: What made it, with final fragment ids.

    Returns:
        None if that cannot be told from these two.
    """
    if isinstance(child_operation, Restore):
        return True  # whatever was there before is replaced
    if isinstance(child_operation, Overwrite) and not isinstance(our_operation, UpdateConfig | UpdateBases):
        return True
    is_next = child.version == ours.version + 1
    if is_next and not isinstance(child_operation, Overwrite) and not _rest_agrees(child, child_operation, ours):
        return False
    match our_operation:
        case UpdateConfig():
            verdict = _config_is_set(child, child_operation, our_operation)
        case UpdateBases():
            paths = {base.path for base in child.base_paths}
            verdict = all(base.path in paths for base in our_operation.new_bases)
        case CreateIndex():
            verdict = _has_indices(child, child_operation, our_operation)
        case Project():
            verdict = child.schema == ours.schema or None
        case Merge() | DataReplacement():
            verdict = _has_files(child, child_operation, ours)
        case ReserveFragments():
            verdict = (child.max_fragment_id or 0) >= (ours.max_fragment_id or 0)
        case _ if is_next:
            verdict = _has_fragments_of(child, child_operation, ours, our_operation)
        case _:
            verdict = _has_files_of(child, ours, our_operation)
    # Of what versions in between have changed, nothing is known.
    return verdict or (verdict if is_next else None)


def _rest_agrees(child: Manifest, child_operation: Operation, ours: Manifest) -> bool:
    """Return whether the fragments that the next commit did not touch are those that we left."""
    touched = _may_touch(child_operation)
    if touched is None:
        return True
    if not touched.issubset(ours.fragments.ids.tolist()):
        return False  # it worked on fragments that we do not have
    new, _, _ = _changed_ids(child, child_operation)
    return np.array_equal(_numbers(child, without=touched | new), _numbers(ours, without=touched))


def _numbers(manifest: Manifest, *, without: frozenset[int]) -> npt.NDArray[np.int64]:
    fragments = manifest.fragments
    is_selected = ~np.isin(fragments.ids, np.fromiter(without, np.int64, len(without)))
    return np.stack([fragments.ids, fragments.physical_rows, fragments.num_deleted_rows])[:, is_selected]


def _config_is_set(child: Manifest, child_operation: Operation, operation: UpdateConfig) -> bool | None:
    """Return whether doing it again would change nothing, apart from what the next commit has set to something else."""
    left = _not_set_by(child_operation, operation)
    if left is None:
        return None
    ours = Transaction(read_version=child.version, uuid="", operation=left)
    try:
        again = apply(child, ours, version=child.version, now=_ANY_TIME)
    except InvalidInputError:  # the next commit dropped the field
        return None
    before = (child.config, child.table_metadata, child.schema)
    return before == (again.config, again.table_metadata, again.schema)


def _not_set_by(child_operation: Operation, operation: UpdateConfig) -> UpdateConfig | None:
    """Return an operation without the keys that the next one sets; None if one replaces whole maps."""
    if isinstance(child_operation, Overwrite):  # brings a schema, and keeps settings and free text
        given = UpdateMap(update_entries=dict(child_operation.config_upsert_values))
        child_operation = UpdateConfig(config_updates=given)
        operation = replace(operation, schema_metadata_updates=None, field_metadata_updates={})
    if not isinstance(child_operation, UpdateConfig):
        return operation
    theirs, mine = child_operation.field_metadata_updates, operation.field_metadata_updates
    maps = [
        _without_keys(operation.config_updates, child_operation.config_updates),
        _without_keys(operation.table_metadata_updates, child_operation.table_metadata_updates),
        _without_keys(operation.schema_metadata_updates, child_operation.schema_metadata_updates),
    ]
    fields = {number: _without_keys(update, theirs.get(number)) for number, update in mine.items()}
    if any(value is _UNCLEAR for value in (*maps, *fields.values())):
        return None
    config, table, schema = maps
    return UpdateConfig(
        config_updates=config,
        table_metadata_updates=table,
        schema_metadata_updates=schema,
        field_metadata_updates={number: update for number, update in fields.items() if update is not None},
    )


_UNCLEAR = UpdateMap(update_entries={}, replace=True)


def _without_keys(ours: UpdateMap | None, theirs: UpdateMap | None) -> UpdateMap | None:
    if ours is None or theirs is None:
        return ours
    if ours.replace or theirs.replace:
        return _UNCLEAR
    left = {key: value for key, value in ours.update_entries.items() if key not in theirs.update_entries}
    return UpdateMap(update_entries=left) if left else None


def _has_indices(child: Manifest, child_operation: Operation, operation: CreateIndex) -> bool | None:
    """Return whether the entries are as we left them; most changes may take an entry away."""
    there = {index.uuid for index in child.indices}
    added = {index.uuid for index in operation.new_indices}
    if added <= there:
        return there.isdisjoint({index.uuid for index in operation.removed_indices} - added)
    return False if isinstance(child_operation, Append | Delete | UpdateConfig | ReserveFragments) else None


def _has_files(child: Manifest, child_operation: Operation, ours: Manifest) -> bool | None:
    """Return whether new columns are there: fragments that nobody has touched since have our files."""
    touched = _may_touch(child_operation)
    if touched is None or child.schema != ours.schema:
        return None
    mine = ours.fragments.select([number for number in ours.fragments.ids.tolist() if number not in touched])
    others = {fragment.id: fragment.files for fragment in child.fragments.select([fragment.id for fragment in mine])}
    return all(others.get(fragment.id, fragment.files) == fragment.files for fragment in mine) if others else None


def _has_files_of(child: Manifest, ours: Manifest, operation: Operation) -> bool:
    """Return whether a version has files of ours, or lacks the rows that we removed; True is certain, False is not."""
    new, updated, removed = _changed_ids(ours, operation)
    mine = ours.fragments.select(new | updated)
    left = {fragment.id: fragment for fragment in child.fragments.select(new | updated)}
    if new:
        return any(_matches(fragment, left.get(fragment.id), is_new=True) for fragment in mine if fragment.id in new)
    is_gone = not child.fragments.select(removed)
    return is_gone and all(
        fragment.id not in left or _matches(fragment, left[fragment.id], is_new=False) for fragment in mine
    )


def _has_fragments_of(
    child: Manifest, child_operation: Operation, ours: Manifest, our_operation: Operation
) -> bool | None:
    new, updated, removed = _changed_ids(ours, our_operation)
    touched = _may_touch(child_operation)
    if touched is not None and touched & removed:
        return False  # it worked on what we had removed
    left = {fragment.id: fragment for fragment in child.fragments.select(new | updated)}
    seen = _seen_fragments(child_operation)
    is_known = True
    for fragment in ours.fragments.select(new | updated):
        verdict = _matches(fragment, left.get(fragment.id), is_new=fragment.id in new)
        if not verdict and fragment.id in seen:
            verdict = _was_seen(fragment, seen[fragment.id], child_operation, is_new=fragment.id in new)
        elif not verdict and (touched is None or fragment.id in touched):
            # It is gone. If we only deleted rows of it, that is as good as what we did.
            verdict = True if fragment.id in updated and fragment.id not in left and not new else None
        if verdict is not None:
            return verdict
        is_known = False
    if not is_known or touched is None:
        return None
    return not child.fragments.select(removed)


def _matches(ours: Fragment, other: Fragment | None, *, is_new: bool) -> bool:
    """Return whether the next version has the fragment as we left it."""
    if other is None:
        return False
    return other.files == ours.files and (is_new or other.deletion_file == ours.deletion_file)


def _was_seen(ours: Fragment, seen: Fragment, child_operation: Operation, *, is_new: bool) -> bool | None:
    """Return whether the next commit worked on the fragment as we left it."""
    our_paths = {file.path for file in ours.files}
    if our_paths.isdisjoint(file.path for file in seen.files):
        return False
    if is_new:
        return True
    # A rewrite names what it read; a delete names what it made of that.
    return seen.deletion_file == ours.deletion_file if isinstance(child_operation, Rewrite) else None


def _seen_fragments(operation: Operation) -> dict[int, Fragment]:
    """Existing fragments that an operation names with their files."""
    match operation:
        case Delete() | Update():
            return {fragment.id: fragment for fragment in operation.updated_fragments}
        case Rewrite():
            return {fragment.id: fragment for group in operation.groups for fragment in group.old_fragments}
        case _:
            return {}


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
        case Restore():
            return frozenset(ours.fragments.ids.tolist()), frozenset(), frozenset()
        case _:
            return frozenset(), frozenset(), frozenset()


def _last_ids(manifest: Manifest, count: int) -> frozenset[int]:
    """Ids of the newest fragments: a commit gives them the highest ids there are."""
    return frozenset(manifest.fragments.ids[len(manifest.fragments) - count :].tolist())


def _may_touch(operation: Operation) -> frozenset[int] | None:
    """Fragments that an operation may have changed; None for all."""
    if isinstance(operation, Append | ReserveFragments | UpdateConfig | CreateIndex):
        return frozenset()
    return touched_fragments(operation)
