"""Ids and versions of rows in the fragments that an operation brings: a pure part of `lance_core.table.rules.apply`.

Only tables with stable row ids have them. Source: section "Row lineage" of the table format, and what pylance 14.0.2
writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.common.frozen import replace
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.table.bitmap import decode_bitmap
from lance_core.format.table.fragment import lineage_sequences
from lance_core.format.table.row_ids import (
    count_row_ids,
    decode_row_ids,
    decode_row_versions,
    encode_row_id_range,
    encode_row_ids,
    encode_row_version,
    encode_row_versions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from lance_core.format.table.fragment import Fragment, LineageSequence

    UInt64s = npt.NDArray[np.uint64]


def with_new_rows(fragment: Fragment, first: int, version: int) -> Fragment:
    """Give all rows of a fragment new ids from ``first`` on; they were created in ``version``."""
    versions = encode_row_version(version, num_rows=fragment.physical_rows)
    return replace(
        fragment,
        row_id_sequence=encode_row_id_range(first, first + fragment.physical_rows),
        last_updated_at_version_sequence=versions,
        created_at_version_sequence=versions,
    )


def with_moved_rows(
    fragment: Fragment, first: int, version: int, *, before: Sequence[Fragment]
) -> tuple[Fragment, int]:
    """Complete what is known of a fragment whose first rows were moved there and whose others are new.

    Moved rows keep their ids, and the version that created them; new ones get ids from ``first`` on. All were changed
    in ``version``.

    Args:
        fragment: Its row ids and creation versions may end before its rows do; row versions may be missing.
        first: First row id that is free.
        version: The version being made.
        before: Fragments that the rows came from, to look up when they were created.

    Returns:
        The fragment, and how many new row ids it took.
    """
    sequence = fragment.row_id_sequence
    if not isinstance(sequence, bytes):
        return with_new_rows(fragment, first, version), fragment.physical_rows
    num_moved = count_row_ids(sequence)
    if num_moved > fragment.physical_rows:
        raise InvalidInputError(f"a fragment of {fragment.physical_rows} rows has {num_moved} row ids")
    moved = decode_row_ids(sequence, num_rows=num_moved)
    added = fragment.physical_rows - len(moved)
    ids = np.concatenate([moved, np.arange(first, first + added, dtype=np.uint64)])
    created = fragment.created_at_version_sequence
    if added or not isinstance(created, bytes):
        told = decode_row_versions(created, num_rows=num_moved) if isinstance(created, bytes) else None
        versions = _creation_versions(moved, before) if told is None else told
        created = encode_row_versions(np.concatenate([versions, np.full(added, version, np.uint64)]))
    return replace(
        fragment,
        row_id_sequence=encode_row_ids(ids) if added else sequence,
        created_at_version_sequence=created,
        last_updated_at_version_sequence=encode_row_version(version, num_rows=fragment.physical_rows),
    ), added


def holds_moved_rows_only(staged: Fragment) -> bool:
    """Return whether a fragment that is not committed yet brings the row ids of all its rows."""
    ids = staged.row_id_sequence
    return isinstance(ids, bytes) and count_row_ids(ids) == staged.physical_rows


def with_changed_offsets(fragment: Fragment, offsets: bytes, version: int) -> Fragment:
    """Say of some rows of a fragment that they were changed in ``version``.

    Args:
        fragment: With its row versions.
        offsets: Row offsets, as a bitmap.
        version: The version being made.

    Raises:
        UnsupportedError: The row versions are in a data file.
    """
    changed = decode_bitmap(offsets, f"changed rows of fragment {fragment.id}")
    if changed and changed.max() >= fragment.physical_rows:
        raise InvalidInputError(f"fragment {fragment.id} has no row offset {changed.max()}")
    versions = _known_versions(fragment, fragment.last_updated_at_version_sequence).copy()
    versions[np.fromiter(changed, np.int64, len(changed))] = version
    return replace(fragment, last_updated_at_version_sequence=encode_row_versions(versions))


def stamped(fragment: Fragment, version: int) -> Fragment:
    """Say of all rows of a fragment that they were changed in ``version``, even if a data file says otherwise."""
    stamp = encode_row_version(version, num_rows=fragment.physical_rows)
    return replace(fragment, last_updated_at_version_sequence=stamp)


def check_row_lineage(fragments: Iterable[Fragment]) -> None:
    """Refuse rewritten fragments that do not say which rows they hold.

    Raises:
        UnsupportedError: A sequence is missing.
    """
    for fragment in fragments:
        if None in lineage_sequences(fragment):
            raise UnsupportedError(
                "a rewritten fragment needs row ids and both row versions on tables with stable row ids"
            )


def _known_versions(fragment: Fragment, sequence: LineageSequence | None) -> UInt64s:
    """Return the version of each row; 1 if the fragment was written before there were versions of rows."""
    if sequence is None:
        return np.ones(fragment.physical_rows, np.uint64)
    if not isinstance(sequence, bytes):
        raise _in_data_file(fragment)
    return decode_row_versions(sequence, num_rows=fragment.physical_rows)


def _in_data_file(fragment: Fragment) -> UnsupportedError:
    return UnsupportedError(f"fragment {fragment.id} keeps its row lineage in a data file; compact the table first")


def _creation_versions(ids: UInt64s, before: Sequence[Fragment]) -> UInt64s:
    """Return the version that created each row, looked up in the fragments it may have come from."""
    known_ids, known_versions = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    for fragment in before:
        sequence = fragment.row_id_sequence
        if not isinstance(sequence, bytes):
            raise _in_data_file(fragment)
        known_ids.append(decode_row_ids(sequence, num_rows=fragment.physical_rows))
        known_versions.append(_known_versions(fragment, fragment.created_at_version_sequence))
    all_ids, all_versions = np.concatenate(known_ids), np.concatenate(known_versions)
    order = np.argsort(all_ids, kind="stable")
    positions = np.searchsorted(all_ids[order], ids)
    is_old = positions < len(order)
    is_old[is_old] = all_ids[order[positions[is_old]]] == ids[is_old]
    if not is_old.all():
        raise InvalidInputError(
            f"row id {ids[~is_old][0]} was moved, but no fragment that the update changes or removes has it"
        )
    return all_versions[order[positions]]
