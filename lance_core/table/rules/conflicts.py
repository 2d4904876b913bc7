"""The conflict matrix: the commits that can follow each other, as one table.

A row is the operation being committed, a column one that was committed since it read the table:

    ok   compatible: the operation is applied to the newest version
    R    retry: the work must be done again on the newest version
    I    incompatible
    r    retry if both touch one fragment or replace the files of one index, else compatible
    d    rebase if both touch one fragment (deleted rows are merged if they are different rows), else compatible
    k    incompatible if both set one key (or one of them replaces the whole map), else compatible
    b    incompatible if both add a base path of one id, name or address, else compatible
    n    retry if both make an index of one name, else compatible
    f    retry if one changes values of a field that the other indexes, else compatible

Source: measured against pylance 14.0.2, which differs from the published prose in several cells; where it cannot know
(its commit call does not tell which rows a delete affects) ``d`` is what its own delete does. Two writers
that insert rows because nobody had their keys must do so one after the other, whatever their fragments. An index
that is built over a column while another writer changes values in it is built again (``f`` in row Idx under Up|);
pylance lets it cover values it has never seen.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from lance_core.format.table.operations import (
    Append,
    Clone,
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
    UpdateMemWalState,
    UpdateMode,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_core.format.table.fragment import Fragment


class Verdict(IntEnum):
    """Effect of another commit on ours, from harmless to fatal."""

    COMPATIBLE = 0
    REBASE = 1
    RETRY = 2
    INCOMPATIBLE = 3


# Up~ rewrites rows, Up| columns; a Merge or Project marked + preserves nullability, one marked - does not.
_MATRIX = """
                App Del Ovw Up~ Up| Rew Me+ Me- Pr+ Pr- Cfg Sch Fld Tbl Idx DRp Rst Rsv Bas Wal Cln
Append      App ok  ok  I   ok  ok  ok  ok  R   ok  R   ok  ok  ok  ok  ok  ok  I   ok  ok  I   ok
Delete      Del ok  d   I   d   r   r   R   R   ok  ok  ok  ok  ok  ok  ok  r   I   ok  ok  I   ok
Overwrite   Ovw ok  ok  R   ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  I   ok
Update rows Up~ ok  d   I   d   r   r   R   R   ok  R   ok  ok  ok  ok  ok  r   I   ok  ok  ok  ok
Up. columns Up| ok  r   I   r   r   r   R   R   R   R   ok  ok  ok  ok  ok  r   I   ok  ok  ok  ok
Rewrite     Rew ok  r   I   r   r   r   R   R   ok  ok  ok  ok  ok  ok  r   r   I   ok  ok  I   ok
Merge +     Me+ R   R   I   R   R   R   R   R   I   I   ok  R   R   ok  ok  R   I   ok  ok  I   ok
Merge -     Me- R   R   I   R   R   R   R   R   I   I   ok  R   R   ok  ok  R   I   ok  ok  I   ok
Project +   Pr+ ok  ok  I   ok  ok  ok  R   R   R   R   ok  ok  ok  ok  ok  ok  I   ok  ok  I   ok
Project -   Pr- R   ok  I   R   R   ok  R   R   R   R   ok  ok  ok  ok  ok  R   I   ok  ok  I   ok
Config      Cfg ok  ok  k   ok  ok  ok  ok  ok  ok  ok  k   ok  ok  ok  ok  ok  ok  ok  ok  ok  ok
Schema meta Sch ok  ok  I   ok  ok  ok  R   R   ok  ok  ok  k   ok  ok  ok  ok  I   ok  ok  ok  ok
Field meta  Fld ok  ok  I   ok  ok  ok  R   R   R   R   ok  ok  k   ok  ok  ok  I   ok  ok  ok  ok
Table meta  Tbl ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  k   ok  ok  ok  ok  ok  ok  ok
Restore     Rst ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  I   I   ok  ok  ok  ok  ok  ok  I   ok
Reserve     Rsv ok  ok  I   ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  I   ok  ok  ok  ok
Index       Idx ok  ok  I   ok  f   r   ok  ok  ok  ok  ok  ok  ok  ok  n   f   I   ok  ok  I   ok
Replacement DRp ok  ok  I   r   r   r   R   R   ok  R   ok  ok  ok  ok  f   r   I   ok  ok  I   ok
Bases       Bas ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  ok  b   ok  ok
"""
_TITLE_WIDTH = 12


def _parse_matrix(text: str) -> dict[tuple[str, str], str]:
    header, *rows = (line[_TITLE_WIDTH:].split() for line in text.strip("\n").splitlines())
    return {(row[0], column): cell for row in rows for column, cell in zip(header, row[1:], strict=True)}


_CELLS = _parse_matrix(_MATRIX)


def judge(ours: Operation, theirs: Operation) -> Verdict:
    """Judge an operation that is to be committed after another one it did not know of.

    Args:
        ours: The operation being committed.
        theirs: One that was committed since our read version.

    Returns:
        The worst verdict over all that the two do; an operation that is not known conflicts with everything.
    """
    our_kinds, their_kinds = _kinds(ours), _kinds(theirs)
    verdicts = [_judge_kinds(mine, other, ours, theirs) for mine in our_kinds for other in their_kinds]
    if _insert_same_keys(ours, theirs):
        verdicts.append(Verdict.RETRY)
    return max(verdicts, default=Verdict.COMPATIBLE)


def touched_fragments(operation: Operation) -> frozenset[int] | None:
    """Ids of the existing fragments that an operation changes, removes or relies on; None if it may be all."""
    match operation:
        case Delete():
            return _ids(operation.updated_fragments) | frozenset(operation.deleted_fragment_ids)
        case Update():
            return _ids(operation.updated_fragments) | frozenset(operation.removed_fragment_ids)
        case Rewrite():
            return frozenset[int]().union(*(_ids(group.old_fragments) for group in operation.groups))
        case DataReplacement():
            return frozenset(fragment_id for fragment_id, _ in operation.replacements)
        case CreateIndex():
            covered = [index.fragment_ids for index in operation.new_indices]
            coverage = [ids for ids in covered if ids is not None]
            return frozenset[int]().union(*coverage) if len(coverage) == len(covered) else None
        case _:
            return None


def adds_rows(operation: Operation) -> bool:
    """Return whether rows may be there after an operation that were not there, or had other values, before it."""
    match operation:
        case Append():
            return bool(operation.fragments)
        case Update():
            return bool(operation.new_fragments) or operation.update_mode is UpdateMode.REWRITE_COLUMNS
        case Delete() | Rewrite() | Project() | UpdateConfig() | ReserveFragments() | CreateIndex() | UpdateBases():
            return False
        case _:
            return True


def _judge_kinds(mine: str, other: str, ours: Operation, theirs: Operation) -> Verdict:
    match _CELLS.get((mine, other), "I"):
        case "ok":
            return Verdict.COMPATIBLE
        case "R":
            return Verdict.RETRY
        case "r":
            is_shared = _share_fragments(ours, theirs) or _share_index_files(ours, theirs)
            return Verdict.RETRY if is_shared else Verdict.COMPATIBLE
        case "d":
            return Verdict.REBASE if _share_fragments(ours, theirs) else Verdict.COMPATIBLE
        case "f":
            return Verdict.RETRY if _changes_indexed_field(ours, theirs) else Verdict.COMPATIBLE
        case "n":
            return Verdict.RETRY if not _index_names(ours).isdisjoint(_index_names(theirs)) else Verdict.COMPATIBLE
        case "b":
            return Verdict.INCOMPATIBLE if not _bases(ours).isdisjoint(_bases(theirs)) else Verdict.COMPATIBLE
        case "k":
            return Verdict.INCOMPATIBLE if _share_keys(mine, other, ours, theirs) else Verdict.COMPATIBLE
        case _:
            return Verdict.INCOMPATIBLE


def _kinds(operation: Operation) -> list[str]:
    """Return rows or columns of the matrix that an operation stands for; none if it changes nothing."""
    match operation:
        case Update():
            is_columns = operation.update_mode is UpdateMode.REWRITE_COLUMNS
            return ["Up|" if is_columns else "Up~"]
        case Merge():
            return ["Me+" if operation.preserves_nullability else "Me-"]
        case Project():
            return ["Pr+" if operation.preserves_nullability else "Pr-"]
        case UpdateConfig():
            return [kind for kind in _CONFIG_KINDS if _keys(kind, operation)]
        case _:
            return [_SIMPLE_KINDS.get(type(operation), _UNKNOWN)]


_SIMPLE_KINDS: dict[type, str] = {
    Append: "App",
    Delete: "Del",
    Overwrite: "Ovw",
    Rewrite: "Rew",
    CreateIndex: "Idx",
    DataReplacement: "DRp",
    Restore: "Rst",
    ReserveFragments: "Rsv",
    UpdateBases: "Bas",
    UpdateMemWalState: "Wal",
    Clone: "Cln",
}
_UNKNOWN = "?"
_CONFIG_KINDS = ("Cfg", "Sch", "Fld", "Tbl")


def _keys(kind: str, operation: Operation) -> frozenset[object]:
    """Keys that an operation sets in one of the maps."""
    if isinstance(operation, Overwrite):
        return frozenset(operation.config_upsert_values)
    if not isinstance(operation, UpdateConfig):
        return frozenset()
    match kind:
        case "Cfg":
            return _map_keys(operation.config_updates)
        case "Sch":
            return _map_keys(operation.schema_metadata_updates)
        case "Tbl":
            return _map_keys(operation.table_metadata_updates)
        case _:
            updates = operation.field_metadata_updates.items()
            keys = frozenset((field_id, key) for field_id, update in updates for key in update.update_entries)
            return keys | {_EVERY_KEY} if any(update.replace for _, update in updates) else keys


_EVERY_KEY = ("every key",)


def _map_keys(update: UpdateMap | None) -> frozenset[object]:
    if update is None:
        return frozenset()
    return frozenset([*update.update_entries, _EVERY_KEY] if update.replace else update.update_entries)


def _share_keys(mine: str, other: str, ours: Operation, theirs: Operation) -> bool:
    our_keys, their_keys = _keys(mine, ours), _keys(other, theirs)
    # pylance lets a replacement of the whole map follow a change of one key, which is then lost; we do not.
    replaces = _EVERY_KEY in our_keys or _EVERY_KEY in their_keys
    return bool(our_keys and their_keys) if replaces else not our_keys.isdisjoint(their_keys)


def _share_fragments(ours: Operation, theirs: Operation) -> bool:
    mine, others = touched_fragments(ours), touched_fragments(theirs)
    return mine is None or others is None or not mine.isdisjoint(others)


def _share_index_files(ours: Operation, theirs: Operation) -> bool:
    return not _replaced_indices(ours).isdisjoint(_replaced_indices(theirs))


def _replaced_indices(operation: Operation) -> frozenset[bytes]:
    """Uuids of the index entries that an operation replaces or removes."""
    match operation:
        case Rewrite():
            return frozenset(index.old_id for index in operation.rewritten_indices)
        case CreateIndex():
            return frozenset(index.uuid for index in operation.removed_indices)
        case _:
            return frozenset()


def _ids(fragments: Iterable[Fragment]) -> frozenset[int]:
    return frozenset(fragment.id for fragment in fragments)


def _index_names(operation: Operation) -> frozenset[str]:
    return (
        frozenset(index.name for index in operation.new_indices) if isinstance(operation, CreateIndex) else frozenset()
    )


def _changes_indexed_field(ours: Operation, theirs: Operation) -> bool:
    index, change = (ours, theirs) if isinstance(ours, CreateIndex) else (theirs, ours)
    if not isinstance(index, CreateIndex):
        return False
    indexed = {field_id for entry in index.new_indices for field_id in (*entry.fields, *entry.covering_fields)}
    match change:
        case Update():
            return not indexed.isdisjoint(change.fields_modified) and _share_fragments(index, change)
        case DataReplacement():
            return any(not indexed.isdisjoint(file.fields) for _, file in change.replacements)
        case _:
            return False


def _bases(operation: Operation) -> frozenset[tuple[str, object]]:
    if not isinstance(operation, UpdateBases):
        return frozenset()
    bases = operation.new_bases
    ids = {("id", base.id) for base in bases if base.id}
    names = {("name", base.name) for base in bases if base.name is not None}
    return frozenset(ids | names | {("path", base.path) for base in bases})


def _insert_same_keys(ours: Operation, theirs: Operation) -> bool:
    """Return whether both may insert a row of one key; Bloom filters cannot rule that out."""
    if not isinstance(ours, Update) or not isinstance(theirs, Update):
        return False
    mine, others = ours.inserted_rows, theirs.inserted_rows
    if mine is None or others is None:
        return False
    if mine.hashes is None or others.hashes is None or mine.field_ids != others.field_ids:
        return True
    return not mine.hashes.isdisjoint(others.hashes)
