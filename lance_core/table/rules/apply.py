"""From a version and an operation to the next version: a pure function.

Source: section "Transactions" of the table format; every effect was compared with what pylance 14.0.2 writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.common.frozen import replace
from lance_core.errors import CorruptDataError, InvalidInputError, UnsupportedError
from lance_core.format.file.file_version import LEGACY_FILE_VERSION
from lance_core.format.table.feature_flags import Feature
from lance_core.format.table.fragment import (
    TOMBSTONE_FIELD_ID,
    DataFile,
    ExternalFile,
    Fragment,
    file_version_of,
    lineage_sequences,
)
from lance_core.format.table.fragment_list import FragmentList
from lance_core.format.table.fragment_reuse import find_fragment_reuse
from lance_core.format.table.manifest import Manifest, index_section_of
from lance_core.format.table.operations import (
    Append,
    CreateIndex,
    DataReplacement,
    Delete,
    Merge,
    Overwrite,
    Project,
    ReserveFragments,
    Restore,
    Rewrite,
    Update,
    UpdateBases,
    UpdateConfig,
    UpdateMode,
    operation_name,
)
from lance_core.table.rules.apply_dictionaries import legacy_schema
from lance_core.table.rules.apply_indices import (
    after_lost_fields,
    after_moves,
    after_new_values,
    after_rewrite,
    check_fragment_reuse,
)
from lance_core.table.rules.apply_rows import (
    check_row_lineage,
    holds_moved_rows_only,
    stamped,
    with_changed_offsets,
    with_moved_rows,
    with_new_rows,
)
from lance_core.table.rules.apply_settings import add_bases, check_primary_key, update_config

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import datetime

    from lance_core.format.schema import Schema
    from lance_core.format.table.transaction import Transaction
    from lance_core.table.rules.apply_dictionaries import StagedDictionaries


def empty_manifest(schema: Schema, *, data_storage_version: str, enable_stable_row_ids: bool) -> Manifest:
    """Return the manifest that version 1 of a table is built on."""
    flags = int(Feature.STABLE_ROW_IDS) if enable_stable_row_ids else 0
    return Manifest(
        version=0,
        schema=schema,
        fragments=FragmentList(),
        data_storage_version=data_storage_version,
        reader_feature_flags=flags,
        writer_feature_flags=flags,
    )


def apply(
    manifest: Manifest,
    transaction: Transaction,
    *,
    version: int,
    now: datetime,
    data_storage_version: str | None = None,
    restored: Manifest | None = None,
    dictionaries: StagedDictionaries | None = None,
) -> Manifest:
    """Build the next version.

    Args:
        manifest: The version to build on.
        transaction: What to do; conflicts are assumed to be settled.
        version: Number of the new version.
        now: Its timestamp.
        data_storage_version: File version that an Overwrite switches the table to; None keeps it.
        restored: The version that a Restore brings back.
        dictionaries: Dictionaries in the new files of a table of version 0.1; see `legacy_schema`.

    Raises:
        CommitConflictError: Another commit appended other values to a dictionary.
        UnsupportedError: lance_core cannot carry out the operation on this table.
        InvalidInputError: The operation does not fit the version, for example names a fragment it does not have.
    """
    operation = transaction.operation
    match operation:
        case Append():
            following = _append(manifest, operation, version)
        case Delete():
            following = _swap(manifest, operation.updated_fragments, operation.deleted_fragment_ids)
        case Overwrite():
            following = _overwrite(manifest, operation, version, data_storage_version)
        case Update():
            following = _update(manifest, operation, version)
        case Rewrite():
            following = _rewrite(manifest, with_fragment_ids(operation, next_fragment_id(manifest)))
        case Merge():
            following = _merge(manifest, operation, version)
        case Project():
            following = _project(manifest, operation)
        case DataReplacement():
            following = _replace_data(manifest, operation, version)
        case CreateIndex():
            following = _create_index(manifest, operation)
        case Restore():
            following = _restore(manifest, operation, restored)
        case ReserveFragments():
            following = replace(manifest, max_fragment_id=next_fragment_id(manifest) + operation.num_fragments - 1)
        case UpdateConfig():
            following = update_config(manifest, operation)
        case UpdateBases():
            following = replace(manifest, base_paths=add_bases(manifest.base_paths, operation.new_bases))
        case _:
            raise UnsupportedError(f"lance_core does not support {operation_name(operation)} operations")
    schema = legacy_schema(following, manifest, transaction, dictionaries or {})
    if schema is not following.schema:
        following = replace(following, schema=schema)
    _check_fragments(following)
    if not isinstance(operation, Restore):
        check_primary_key(manifest.schema if manifest.version else None, following.schema)
    reader_flags, writer_flags = _feature_flags(following)
    return replace(
        following,
        version=version,
        timestamp=now,
        tag=transaction.tag,
        max_fragment_id=_max_fragment_id(following, manifest),
        reader_feature_flags=reader_flags,
        writer_feature_flags=writer_flags,
    )


def _check_fragments(manifest: Manifest) -> None:
    """Refuse to make a version that cannot be opened."""
    try:
        manifest.fragments.check(uses_stable_row_ids=manifest.uses_stable_row_ids)
    except CorruptDataError as error:
        raise InvalidInputError(f"cannot commit: the new version would be damaged: {error.message}") from error
    for position in manifest.fragments.incomplete().tolist():
        fragment = manifest.fragments[position]
        if any(isinstance(lineage_sequence, ExternalFile) for lineage_sequence in lineage_sequences(fragment)):
            raise UnsupportedError(
                f"fragment {fragment.id} comes with row ids or versions in a file of their own, which lance_core does "
                "not write; put them into the fragment"
            )


def next_fragment_id(manifest: Manifest) -> int:
    """Return the smallest fragment id that no version of the table has used or reserved."""
    highest = -1 if manifest.max_fragment_id is None else manifest.max_fragment_id
    return max(highest, manifest.fragments.highest_id) + 1


def with_fragment_ids(operation: Rewrite, next_id: int) -> Rewrite:
    """Return number the new fragments of a rewrite that have no id yet (0), from ``next_id`` on.

    Other operations get their ids when they are applied. A rewrite's transaction must name them.
    """
    if all(fragment.id for group in operation.groups for fragment in group.new_fragments):
        return operation
    groups = list(operation.groups)
    for index, group in enumerate(groups):
        numbered: list[Fragment] = []
        for fragment in group.new_fragments:
            numbered.append(fragment if fragment.id else replace(fragment, id=next_id))
            next_id += not fragment.id
        groups[index] = replace(group, new_fragments=tuple(numbered))
    return replace(operation, groups=tuple(groups))


# ----------------------------------------------------------------------------------------------------------- operations


def _append(manifest: Manifest, operation: Append, version: int) -> Manifest:
    _check_file_versions(manifest, operation.fragments)
    added, next_row_id = _numbered(manifest, operation.fragments, version)
    longer = replace(manifest, fragments=manifest.fragments.extended(added), next_row_id=next_row_id)
    return _with_mixed_versions(longer, added)


def _overwrite(manifest: Manifest, operation: Overwrite, version: int, data_storage_version: str | None) -> Manifest:
    if manifest.max_allocated_field_id is not None:
        raise UnsupportedError("cannot overwrite tables that never reuse field ids (feature flag 32768)")
    if data_storage_version is not None:
        manifest = replace(manifest, data_storage_version=data_storage_version)
    manifest, added = _number(manifest, operation.fragments, version)
    return replace(
        manifest,
        schema=operation.schema,
        fragments=FragmentList.of(added),
        index_section=None,
        config={**manifest.config, **operation.config_upsert_values},
        base_paths=add_bases(manifest.base_paths, operation.initial_bases),
    )


def _update(manifest: Manifest, operation: Update, version: int) -> Manifest:
    if manifest.uses_stable_row_ids and operation.updated_fragment_offsets:
        offsets = operation.updated_fragment_offsets
        changed = (
            with_changed_offsets(fragment, offsets[fragment.id], version) if fragment.id in offsets else fragment
            for fragment in operation.updated_fragments
        )
        operation = replace(operation, updated_fragments=tuple(changed))
    swapped = _swap(manifest, operation.updated_fragments, operation.removed_fragment_ids)
    touched = {*operation.removed_fragment_ids, *(fragment.id for fragment in operation.updated_fragments)}
    before = (
        manifest.fragments.select(touched)
        if any(fragment.row_id_sequence for fragment in operation.new_fragments)
        else ()
    )
    swapped, added = _number(swapped, operation.new_fragments, version, before=before)
    if operation.update_mode is UpdateMode.REWRITE_COLUMNS or operation.fields_modified:
        rewritten = {fragment.id for fragment in operation.updated_fragments}
        swapped = after_new_values(swapped, operation.fields_modified, rewritten)
    moved = [new for new, staged in zip(added, operation.new_fragments, strict=True) if holds_moved_rows_only(staged)]
    swapped = after_moves(swapped, moved, sources=touched, changed_fields=operation.fields_for_preserving_frag_bitmap)
    return replace(swapped, fragments=swapped.fragments.replaced(added=added))


def _rewrite(manifest: Manifest, operation: Rewrite) -> Manifest:
    removed = [fragment.id for group in operation.groups for fragment in group.old_fragments]
    added = [fragment for group in operation.groups for fragment in group.new_fragments]
    _check_known(manifest, removed)
    _check_file_versions(manifest, added)
    if manifest.uses_stable_row_ids:
        check_row_lineage(added)
    manifest = after_rewrite(manifest, operation)
    manifest = _with_mixed_versions(manifest, added)
    return replace(manifest, fragments=manifest.fragments.replaced(removed=removed, added=added))


def _merge(manifest: Manifest, operation: Merge, version: int) -> Manifest:
    if manifest.max_allocated_field_id is not None:
        raise UnsupportedError("cannot add columns to tables that never reuse field ids (feature flag 32768)")
    fragments = [_without_dead_files(fragment) for fragment in operation.fragments]
    _check_file_versions(manifest, fragments)
    if manifest.uses_stable_row_ids:
        fragments = [_stamped_if_changed(manifest, fragment, version) for fragment in fragments]
    manifest = _with_mixed_versions(manifest, fragments)
    manifest = replace(manifest, fragments=FragmentList.of(fragments).ascending(), schema=operation.schema)
    return after_lost_fields(manifest)


def _project(manifest: Manifest, operation: Project) -> Manifest:
    schema = replace(operation.schema, metadata=manifest.schema.metadata)
    live = {field.id for field in schema.walk()}
    dead = {field.id for field in manifest.schema.walk()} - live
    changed = {
        fragment.id: slimmer
        for fragment in (manifest.fragments if dead else ())
        if (slimmer := _without_files_outside(fragment, live)) != fragment
    }
    manifest = replace(manifest, schema=schema, fragments=manifest.fragments.replaced(updated=changed))
    return after_lost_fields(manifest)


def _replace_data(manifest: Manifest, operation: DataReplacement, version: int) -> Manifest:
    new_files: dict[int, list[DataFile]] = {}
    for fragment_id, file in operation.replacements:
        new_files.setdefault(fragment_id, []).append(file)
    _check_known(manifest, new_files)
    live = {field.id for field in manifest.schema.walk()}
    changed: dict[int, Fragment] = {}
    for fragment in manifest.fragments.select(new_files):
        for file in new_files[fragment.id]:
            if not live.issuperset(file.fields) or not file.fields:
                raise InvalidInputError(
                    f"data file {file.path!r} replaces fields {file.fields}, some of which are not in the schema"
                )
            fragment = _with_replaced_file(fragment, file)  # noqa: PLW2901 one file after the other
        changed[fragment.id] = stamped(fragment, version) if manifest.uses_stable_row_ids else fragment
        field_ids = [field_id for file in new_files[fragment.id] for field_id in file.fields]
        manifest = after_new_values(manifest, field_ids, {fragment.id})
    _check_file_versions(manifest, changed.values())
    manifest = _with_mixed_versions(manifest, changed.values())
    return replace(manifest, fragments=manifest.fragments.replaced(updated=changed))


def _with_replaced_file(fragment: Fragment, new: DataFile) -> Fragment:
    """Return a file with the very same columns takes the old one's place; else the old columns become tombstones."""
    files = list(fragment.files)
    for position, old in enumerate(files):
        if old.fields == new.fields and file_version_of(old) == file_version_of(new):
            files[position] = new
            return replace(fragment, files=tuple(files))
    gone = set(new.fields)
    files = [
        replace(old, fields=tuple(TOMBSTONE_FIELD_ID if field_id in gone else field_id for field_id in old.fields))
        for old in files
    ]
    return _without_dead_files(replace(fragment, files=(*files, new)))


def _create_index(manifest: Manifest, operation: CreateIndex) -> Manifest:
    removed = {index.uuid for index in operation.removed_indices}
    added = {index.uuid for index in operation.new_indices}
    live = {field.id for field in manifest.schema.walk()}
    for index in operation.new_indices:
        if not live.issuperset(index.fields):
            raise InvalidInputError(f"index {index.name!r} covers fields that the schema does not have")
    if find_fragment_reuse(operation.new_indices) is not None:
        check_fragment_reuse(manifest, removed)
    remaining = [index for index in manifest.indices if index.uuid not in removed | added]
    return replace(manifest, index_section=index_section_of((*remaining, *operation.new_indices)))


def _restore(manifest: Manifest, operation: Restore, restored: Manifest | None) -> Manifest:
    if restored is None or restored.version != operation.version:
        raise InvalidInputError(f"version {operation.version} is to be restored but was not given")
    if manifest.uses_stable_row_ids != restored.uses_stable_row_ids:
        raise InvalidInputError(
            f"cannot restore version {operation.version}: it differs from the table in whether rows have stable ids"
        )
    return replace(
        restored,
        next_row_id=max(manifest.next_row_id, restored.next_row_id),
        max_allocated_field_id=manifest.max_allocated_field_id,
    )


def _swap(manifest: Manifest, updated: tuple[Fragment, ...], removed: tuple[int, ...]) -> Manifest:
    by_id = {fragment.id: _without_dead_files(fragment) for fragment in updated}
    _check_known(manifest, [*by_id, *removed])
    _check_file_versions(manifest, by_id.values())
    manifest = _with_mixed_versions(manifest, by_id.values())
    return replace(manifest, fragments=manifest.fragments.replaced(removed=removed, updated=by_id))


# ------------------------------------------------------------------------------------------------ fragments and row ids


def _number(
    manifest: Manifest, fragments: tuple[Fragment, ...], version: int, *, before: Sequence[Fragment] = ()
) -> tuple[Manifest, list[Fragment]]:
    """Give new fragments their ids, and their rows theirs if the table has stable row ids.

    ``before`` are the fragments that rows which bring their ids came from.
    """
    _check_file_versions(manifest, fragments)
    numbered, next_row_id = _numbered(manifest, fragments, version, before=before)
    highest = numbered[-1].id if numbered else manifest.max_fragment_id
    manifest = replace(manifest, next_row_id=next_row_id, max_fragment_id=highest)
    return _with_mixed_versions(manifest, fragments), numbered


def _numbered(
    manifest: Manifest, fragments: tuple[Fragment, ...], version: int, *, before: Sequence[Fragment] = ()
) -> tuple[list[Fragment], int]:
    """As `_number`: the fragments, and the first stable row id that is free then."""
    next_id, next_row_id = next_fragment_id(manifest), manifest.next_row_id
    if manifest.uses_stable_row_ids and next_row_id < manifest.num_rows:
        raise CorruptDataError(f"the next free row id, {next_row_id}, is taken: {manifest.num_rows} rows have ids")
    numbered: list[Fragment] = []
    for fragment in fragments:
        if not manifest.uses_stable_row_ids:
            new = replace(
                fragment,
                id=next_id,
                row_id_sequence=None,
                last_updated_at_version_sequence=None,
                created_at_version_sequence=None,
            )
        elif before:
            new, count = with_moved_rows(replace(fragment, id=next_id), next_row_id, version, before=before)
            next_row_id += count
        else:
            new = with_new_rows(replace(fragment, id=next_id), next_row_id, version)
            next_row_id += fragment.physical_rows
        next_id += 1
        numbered.append(new)
    return numbered, next_row_id


def _stamped_if_changed(manifest: Manifest, fragment: Fragment, version: int) -> Fragment:
    before = manifest.fragments.find(fragment.id)
    if before is None:
        raise UnsupportedError("cannot add rows in a Merge on tables with stable row ids")
    return fragment if before.files == fragment.files else stamped(fragment, version)


def _check_known(manifest: Manifest, fragment_ids: Collection[int]) -> None:
    if len(manifest.fragments.positions(fragment_ids)) < len(set(fragment_ids)):
        unknown = {*fragment_ids} - {*manifest.fragments.ids.tolist()}
        raise InvalidInputError(
            f"version {manifest.version} has no fragments {sorted(unknown)}. Open the newest version and do "
            "the work again"
        )


def _check_file_versions(manifest: Manifest, fragments: Iterable[Fragment]) -> None:
    is_legacy = manifest.data_storage_version == LEGACY_FILE_VERSION
    for fragment in fragments:
        if not fragment.files:
            raise InvalidInputError(f"fragment {fragment.id} has no data files")
        for file in fragment.files:
            if (file_version_of(file)[0] == "0") != is_legacy:
                raise InvalidInputError(
                    f"data file {file.path!r} has version {file_version_of(file)}, the table has version "
                    f"{manifest.data_storage_version}: files of version 0.1 and newer ones cannot be mixed; to change "
                    "the version, write the whole table anew with mode overwrite and data_storage_version"
                )
            if is_legacy and TOMBSTONE_FIELD_ID in file.fields:
                raise UnsupportedError(
                    f"data file {file.path!r} loses some of its columns, but pages of file version 0.1 are found from "
                    "the first one; rewrite whole rows"
                )


def _with_mixed_versions(manifest: Manifest, fragments: Iterable[Fragment]) -> Manifest:
    """Once files of several versions have been in a table, it says so for ever."""
    versions = {file_version_of(file) for fragment in fragments for file in fragment.files}
    if manifest.data_storage_version == LEGACY_FILE_VERSION or versions <= {manifest.data_storage_version}:
        return manifest
    return replace(
        manifest,
        reader_feature_flags=manifest.reader_feature_flags | Feature.MIXED_FILE_VERSIONS,
        writer_feature_flags=manifest.writer_feature_flags | Feature.MIXED_FILE_VERSIONS,
    )


def common_file_version(fragments: Iterable[Fragment]) -> str | None:
    """Return the file version of all files of some fragments; None if there are several or none."""
    versions = {file_version_of(file) for fragment in fragments for file in fragment.files}
    versions = {LEGACY_FILE_VERSION if version.startswith("0") else version for version in versions}
    return versions.pop() if len(versions) == 1 else None


def _without_dead_files(fragment: Fragment) -> Fragment:
    """Drop files of which every column was replaced."""
    files = tuple([file for file in fragment.files if file.fields.count(TOMBSTONE_FIELD_ID) < len(file.fields)])
    return replace(fragment, files=files) if len(files) < len(fragment.files) else fragment


def _without_files_outside(fragment: Fragment, live: Collection[int]) -> Fragment:
    """Drop files that hold no live field; row lineage columns (ids below -2) are live."""
    files = tuple(
        file
        for file in fragment.files
        if any(field_id in live or field_id < TOMBSTONE_FIELD_ID for field_id in file.fields)
    )
    # A fragment needs a file to have rows at all, even if the fields that are left are null throughout.
    files = files or fragment.files[:1]
    return replace(fragment, files=files) if len(files) < len(fragment.files) else fragment


def _max_fragment_id(following: Manifest, before: Manifest) -> int | None:
    highest = max(next_fragment_id(following), next_fragment_id(before)) - 1
    return highest if highest >= 0 else None


# --------------------------------------------------------------------------------------------------------------- flags


_SURVIVING_FLAGS = int(
    Feature.STABLE_ROW_IDS
    | Feature.MIXED_FILE_VERSIONS
    | Feature.SPILLED_ROW_LINEAGE
    | Feature.TAGGED_FRAGMENT_REUSE
    | Feature.MANAGED_BLOBS
    | Feature.NON_REUSABLE_FIELD_IDS
)
_DELETION_FILES, _BASE_PATHS = int(Feature.DELETION_FILES), int(Feature.BASE_PATHS)
_COVERING_FIELDS, _CONFIG = int(Feature.COVERING_FIELDS), int(Feature.CONFIG)


def _feature_flags(manifest: Manifest) -> tuple[int, int]:
    """Flags for readers and for writers: they follow from the content, apart from those that are kept once set."""
    both = 0  # plain numbers: enumerations take ten times as long
    if manifest.fragments.has_deletions:
        both |= _DELETION_FILES
    if manifest.base_paths:
        both |= _BASE_PATHS
    if any(index.covering_fields for index in manifest.indices):
        both |= _COVERING_FIELDS
    writers = both | (_CONFIG if manifest.config else 0)
    return (
        both | manifest.reader_feature_flags & _SURVIVING_FLAGS,
        writers | manifest.writer_feature_flags & _SURVIVING_FLAGS,
    )
