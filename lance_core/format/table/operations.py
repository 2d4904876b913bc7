"""The operations a transaction can hold, as values.

Source: the messages inside ``Transaction`` of package ``lance.table``. Operations marked "decoded only" are never
written by lance_core and kept only as far as judging conflicts needs.
"""

from __future__ import annotations

from dataclasses import field
from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

from lance_core.common.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_core.format.schema import Schema
    from lance_core.format.table.base_path import BasePath
    from lance_core.format.table.fragment import DataFile, Fragment
    from lance_core.format.table.index_metadata import IndexMetadata, RewrittenIndex


class UpdateMode(IntEnum):
    """Way in which an update rewrote its rows."""

    REWRITE_ROWS = 0
    REWRITE_COLUMNS = 1


@frozen(kw_only=True)
class Append:
    """Add fragments (ids 0; the commit assigns them)."""

    fragments: tuple[Fragment, ...]


@frozen(kw_only=True)
class Delete:
    """Mark rows as deleted.

    Attributes:
        updated_fragments: Fragments with their new deletion files.
        deleted_fragment_ids: Fragments of which no row is left.
        predicate: What was deleted, in words for people.
    """

    updated_fragments: tuple[Fragment, ...] = ()
    deleted_fragment_ids: tuple[int, ...] = ()
    predicate: str = ""


@frozen(kw_only=True)
class Overwrite:
    """Replace all rows and the schema; the first version of a table is one, too.

    Attributes:
        fragments: New fragments (ids 0; the commit assigns them).
        schema: New schema with its metadata.
        config_upsert_values: Config entries to set.
        initial_bases: Base paths that a new table begins with.
    """

    fragments: tuple[Fragment, ...]
    schema: Schema
    config_upsert_values: Mapping[str, str] = field(default_factory=dict)
    initial_bases: tuple[BasePath, ...] = ()


@frozen(kw_only=True)
class CreateIndex:
    """Remove index entries (known by their uuids), then add others."""

    new_indices: tuple[IndexMetadata, ...] = ()
    removed_indices: tuple[IndexMetadata, ...] = ()


@frozen(kw_only=True)
class RewriteGroup:
    """Fragments that were rewritten into others with the same rows (new ids 0: the commit assigns them)."""

    old_fragments: tuple[Fragment, ...]
    new_fragments: tuple[Fragment, ...]


@frozen(kw_only=True)
class DeferredRemap:
    """The fragment reuse index that a rewrite leaves behind, for indices that stay as they are.

    Attributes:
        entry: Its entry, which also has what the one before had.
        replaces: Uuid of the entry before; None if there was none.
    """

    entry: IndexMetadata
    replaces: bytes | None


@frozen(kw_only=True)
class Rewrite:
    """Lay out rows anew without changing them: compaction, materialized deletions.

    Attributes:
        groups: What became what.
        rewritten_indices: Indices whose files were rewritten along with it.
        deferred_remap: What indices are left with instead. As with pylance, transactions do not record it.
    """

    groups: tuple[RewriteGroup, ...]
    rewritten_indices: tuple[RewrittenIndex, ...] = ()
    deferred_remap: DeferredRemap | None = None


@frozen(kw_only=True)
class Merge:
    """Replace the list of fragments and the schema: columns were added or cast.

    Attributes:
        fragments: The whole list of the new version.
        schema: New schema with its metadata.
        preserves_nullability: True if no field became non-nullable.
    """

    fragments: tuple[Fragment, ...]
    schema: Schema
    preserves_nullability: bool = False


@frozen(kw_only=True)
class Restore:
    """Make an old version the newest again."""

    version: int


@frozen(kw_only=True)
class ReserveFragments:
    """Set fragment ids aside for a rewrite."""

    num_fragments: int


@frozen(kw_only=True)
class InsertedKeys:
    """Keys of rows that an update inserted because nobody had them: what two writers must not both do.

    Attributes:
        field_ids: Fields that make up the key.
        hashes: Hash of each key; None if only a Bloom filter of them is known.
        record: The whole encoded message.
    """

    field_ids: tuple[int, ...]
    hashes: frozenset[int] | None
    record: bytes


@frozen(kw_only=True)
class Update:
    """Replace rows or columns.

    Attributes:
        removed_fragment_ids: Fragments of which no row is left.
        updated_fragments: Fragments with new deletion files or with columns in new files.
        new_fragments: Fragments that hold the new rows (ids 0; the commit assigns them).
        fields_modified: Ids of the fields rewritten in place.
        fields_for_preserving_frag_bitmap: Ids of the fields that may have other values in moved rows. On tables with
            stable row ids, indices over other fields go on covering these rows.
        update_mode: How the rows were rewritten.
        updated_fragment_offsets: Row offsets whose values changed, by fragment id, as portable Roaring bitmaps; only
            for rewritten columns on tables with stable row ids, where those rows get a new row version.
        inserted_rows: Keys of inserted rows; None if the update does not depend on their absence.
    """

    removed_fragment_ids: tuple[int, ...] = ()
    updated_fragments: tuple[Fragment, ...] = ()
    new_fragments: tuple[Fragment, ...] = ()
    fields_modified: tuple[int, ...] = ()
    fields_for_preserving_frag_bitmap: tuple[int, ...] = ()
    update_mode: UpdateMode = UpdateMode.REWRITE_ROWS
    updated_fragment_offsets: Mapping[int, bytes] = field(default_factory=dict)
    inserted_rows: InsertedKeys | None = None


@frozen(kw_only=True)
class Project:
    """Change the schema without touching data: drop, rename, reorder columns.

    Attributes:
        schema: New schema (its metadata is not part of the operation).
        preserves_nullability: True if no field became non-nullable.
    """

    schema: Schema
    preserves_nullability: bool = False


@frozen(kw_only=True)
class UpdateMap:
    """Changes to a map.

    Attributes:
        update_entries: New values; None removes the key.
        replace: True if the map becomes exactly these entries.
    """

    update_entries: Mapping[str, str | None]
    replace: bool = False


@frozen(kw_only=True)
class UpdateConfig:
    """Change config, table metadata, schema metadata or field metadata; None leaves a map alone."""

    config_updates: UpdateMap | None = None
    table_metadata_updates: UpdateMap | None = None
    schema_metadata_updates: UpdateMap | None = None
    field_metadata_updates: Mapping[int, UpdateMap] = field(default_factory=dict)


@frozen(kw_only=True)
class DataReplacement:
    """Put columns into new data files of the same rows.

    Attributes:
        replacements: Fragment id and new file; the file's fields are those it replaces.
    """

    replacements: tuple[tuple[int, DataFile], ...]


@frozen(kw_only=True)
class UpdateMemWalState:
    """Bookkeeping of a write-ahead log (decoded only, without content)."""


@frozen(kw_only=True)
class Clone:
    """First version of a branch or clone.

    Attributes:
        is_shallow: True if it refers to the files of its source, False if they were copied.
        ref_name: Branch of the source version; None for the main branch.
        ref_version: Number of the source version.
        ref_path: Address of the source dataset.
        branch_name: Branch that is created; None for a dataset of its own.
    """

    is_shallow: bool
    ref_name: str | None
    ref_version: int
    ref_path: str
    branch_name: str | None


@frozen(kw_only=True)
class UpdateBases:
    """Add base paths; one with id 0 gets an id when it is committed."""

    new_bases: tuple[BasePath, ...]


@frozen(kw_only=True)
class DataOverlay:
    """Lay values over fragments (decoded only): the fragments' ids."""

    fragment_ids: tuple[int, ...]


@frozen(kw_only=True)
class UnknownOperation:
    """An operation that this version of lance_core has never heard of; it conflicts with everything."""


Operation: TypeAlias = (
    Append
    | Delete
    | Overwrite
    | CreateIndex
    | Rewrite
    | Merge
    | Restore
    | ReserveFragments
    | Update
    | Project
    | UpdateConfig
    | DataReplacement
    | UpdateMemWalState
    | Clone
    | UpdateBases
    | DataOverlay
    | UnknownOperation
)


def operation_name(operation: Operation) -> str:
    """Return the operation's name as the specification writes it."""
    return type(operation).__name__
