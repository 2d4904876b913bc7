"""Deletes that met: two commits deleted different rows of one fragment, and both shall count."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pyroaring import BitMap

from lance_core.common.frozen import frozen, replace
from lance_core.format.table.deletion import decode_deletions, encode_deletions
from lance_core.format.table.fragment import DeletionFile, Fragment
from lance_core.format.table.operations import Delete, Update
from lance_core.format.table.paths import deletion_file_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_core.format.table.manifest import Manifest
    from lance_core.format.table.transaction import Transaction
    from lance_core.store.base import Store


@frozen(kw_only=True)
class Rebased:
    """A transaction that now builds on a newer version.

    Attributes:
        transaction: With merged deletion files; its read version is the newer one.
        new_files: Paths of the deletion files written for it.
    """

    transaction: Transaction
    new_files: tuple[str, ...]


def load_deletions(store: Store, fragment: Fragment) -> BitMap:
    """Return the offsets of a fragment's deleted rows.

    Raises:
        NotFoundError: The deletion file is missing.
        CorruptDataError: It is damaged.
    """
    file = fragment.deletion_file
    if file is None:
        return BitMap()
    path = deletion_file_path(fragment.id, file)
    data = store.get(path)
    return decode_deletions(data, file, physical_rows=fragment.physical_rows, path=f"{store.uri}/{path}")


def rebase_deletions(
    store: Store, transaction: Transaction, *, base: Manifest, latest: Manifest, new_id: Callable[[], int]
) -> Rebased | None:
    """Merge the rows that a Delete or Update removes with those removed since.

    Args:
        store: Where the table lies.
        transaction: A Delete, or an Update that rewrites rows.
        base: Manifest of its read version.
        latest: Manifest to build on.
        new_id: Makes ids of deletion files.

    Returns:
        None if it cannot be merged: a row was removed twice, or a fragment's data files changed.
    """
    operation = transaction.operation
    if not isinstance(operation, Delete | Update):
        return None
    is_delete = isinstance(operation, Delete)
    gone = operation.deleted_fragment_ids if is_delete else operation.removed_fragment_ids
    ours: dict[int, Fragment | None] = dict.fromkeys(gone)
    ours.update({fragment.id: fragment for fragment in operation.updated_fragments})
    merged: dict[int, BitMap | None] = {}
    for fragment_id, fragment in ours.items():
        before, now = base.fragments.find(fragment_id), latest.fragments.find(fragment_id)
        if before is None or now is None or before.files != now.files:
            return None
        if before.deletion_file == now.deletion_file:
            merged[fragment_id] = None  # nobody else was here
            continue
        rows = _merge(store, before, now, fragment)
        if rows is None:
            return None
        merged[fragment_id] = rows
    removed = [fragment_id for fragment_id in gone if merged[fragment_id] is None]
    updated = [fragment for fragment in operation.updated_fragments if merged[fragment.id] is None]
    new_files: list[str] = []
    for now in latest.fragments.select([fragment_id for fragment_id, rows in merged.items() if rows is not None]):
        rows = merged[now.id] or BitMap()
        if len(rows) == now.physical_rows:
            removed.append(now.id)
            continue
        file, path = write_deletions(store, now.id, rows, read_version=latest.version, new_id=new_id)
        new_files.append(path)
        updated.append(replace(now, deletion_file=file))
    fragments = tuple(updated)
    changed = (
        replace(operation, updated_fragments=fragments, deleted_fragment_ids=tuple(removed))
        if isinstance(operation, Delete)
        else replace(operation, updated_fragments=fragments, removed_fragment_ids=tuple(removed))
    )
    rebased = replace(transaction, operation=changed, read_version=latest.version)
    return Rebased(transaction=rebased, new_files=tuple(new_files))


def covers_deletions(store: Store, child: Manifest, ours: Manifest, operation: Delete) -> bool | None:
    """Return whether a later version lacks every row that a delete of ours had taken away; None if that cannot be told.

    A fragment that is gone may have been rewritten, together with rows that we had deleted.
    """
    is_certain = not operation.deleted_fragment_ids
    if child.fragments.select(operation.deleted_fragment_ids):
        return False
    for fragment in ours.fragments.select([fragment.id for fragment in operation.updated_fragments]):
        other = child.fragments.find(fragment.id)
        is_certain &= other is not None
        if other is not None and load_deletions(store, fragment) - load_deletions(store, other):
            return False
    return True if is_certain else None


def encode_deletion_file(
    fragment_id: int, rows: BitMap, *, read_version: int, new_id: Callable[[], int]
) -> tuple[DeletionFile, str, bytes]:
    """As `write_deletions`, but return the content of the file as well instead of writing it."""
    file_type, data = encode_deletions(rows)
    file = DeletionFile(file_type=file_type, read_version=read_version, id=new_id(), num_deleted_rows=len(rows))
    return file, deletion_file_path(fragment_id, file), data


def write_deletions(
    store: Store, fragment_id: int, rows: BitMap, *, read_version: int, new_id: Callable[[], int]
) -> tuple[DeletionFile, str]:
    """Write a fragment's deletion file.

    Args:
        store: Where the table lies.
        fragment_id: The fragment.
        rows: All of its deleted rows; not empty, and not all rows it has.
        read_version: Version that the delete read.
        new_id: Makes ids of deletion files.

    Returns:
        The entry for the manifest, and the path of the file.
    """
    file, path, data = encode_deletion_file(fragment_id, rows, read_version=read_version, new_id=new_id)
    try:
        store.put(path, data)
    except BaseException:
        with suppress(Exception):
            store.delete([path])  # it may be there all the same
        raise
    return file, path


def _merge(store: Store, before: Fragment, now: Fragment, ours: Fragment | None) -> BitMap | None:
    """Return all rows deleted by either side; None if both deleted one row."""
    deletions = load_deletions(store, before)
    theirs = load_deletions(store, now)
    our_rows = BitMap(range(before.physical_rows)) if ours is None else load_deletions(store, ours)
    return None if (our_rows - deletions) & (theirs - deletions) else our_rows | theirs
