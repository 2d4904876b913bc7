"""Ids and versions of the rows of a fragment: in the manifest, or spilled into columns of its data files.

Only tables with stable row ids have them. Elsewhere the id of a row is its address, and every row counts as created
and changed in version 1, as in pylance; so do rows of fragments that have ids but no versions, as writers left them
before there were versions of rows. Spilled columns have the field ids below; pylance 14.0.2 writes them when the
table's config says ``lance.row_lineage.spill``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from lance_core.errors import CorruptDataError
from lance_core.format.schema import Field, Schema
from lance_core.format.table.fragment import ExternalFile, RowLineageColumn, lineage_sequences
from lance_core.format.table.row_ids import decode_row_ids, decode_row_versions, row_id_bounds, row_id_range
from lance_core.index.answer import ADDRESS_SHIFT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from lance_core.format.table.fragment import Fragment, LineageSequence
    from lance_core.index.answer import Int64s, RowAnswer

    UInt64s = npt.NDArray[np.uint64]

ROW_CREATED_AT = "_row_created_at_version"
ROW_UPDATED_AT = "_row_last_updated_at_version"

_MOST_ID = (1 << 63) - 1

_ID_FIELD = Field(id=-3, name="_rowid", logical_type="uint64", nullable=False)
_CREATED_FIELD = Field(id=-4, name=ROW_CREATED_AT, logical_type="uint64", nullable=False)
_UPDATED_FIELD = Field(id=-5, name=ROW_UPDATED_AT, logical_type="uint64", nullable=False)


class StoredRows(Protocol):
    """Consecutive rows of a fragment."""

    @property
    def columns(self) -> Sequence[pa.Array]:
        """The fields that were asked for."""
        ...


class StoredFragment(Protocol):
    """A fragment whose files can be read, as `lance_core.scan.fragment_reader.FragmentReader`."""

    @property
    def fragment(self) -> Fragment:
        """The fragment."""
        ...

    def scan(self, projection: Schema, *, start: int, end: int, batch_size: int) -> Iterator[StoredRows]:
        """Read rows [start, end) in order, deleted ones included."""
        ...


class IdentifiedFragment(Protocol):
    """A fragment of which the ids of rows are known."""

    @property
    def fragment(self) -> Fragment:
        """The fragment."""
        ...

    @property
    def physical_rows(self) -> int:
        """Rows, deleted ones included."""
        ...

    @property
    def stable_row_ids(self) -> UInt64s:
        """Stable row id of each row, shape (physical_rows,)."""
        ...

    def live_mask(self, start: int, end: int) -> npt.NDArray[np.bool_] | None:
        """Return a mask of the live rows of [start, end); None if all are live."""
        ...


def row_ids(reader: StoredFragment) -> UInt64s:
    """Stable row id of each row, deleted ones included: shape (physical_rows,).

    Raises:
        CorruptDataError: The fragment has none, or not as many as rows.
    """
    fragment = reader.fragment
    ids = _sequence(reader, fragment.row_id_sequence, _ID_FIELD, decode_row_ids)
    if ids is None:
        raise CorruptDataError(f"fragment {fragment.id} has no stable row ids")
    return ids


def created_versions(reader: StoredFragment) -> UInt64s:
    """Version that created each row, deleted ones included: shape (physical_rows,)."""
    return _versions(reader, reader.fragment.created_at_version_sequence, _CREATED_FIELD)


def updated_versions(reader: StoredFragment) -> UInt64s:
    """Version that last changed each row, deleted ones included: shape (physical_rows,)."""
    return _versions(reader, reader.fragment.last_updated_at_version_sequence, _UPDATED_FIELD)


def has_spilled_lineage(fragment: Fragment) -> bool:
    """True if ids or versions of the rows are in a data file."""
    return any(isinstance(sequence, RowLineageColumn) for sequence in lineage_sequences(fragment))


def _versions(reader: StoredFragment, sequence: LineageSequence | None, field: Field) -> UInt64s:
    versions = _sequence(reader, sequence, field, decode_row_versions)
    return np.ones(reader.fragment.physical_rows, np.uint64) if versions is None else versions


def _sequence(
    reader: StoredFragment, sequence: LineageSequence | None, field: Field, decode: Callable[..., UInt64s]
) -> UInt64s | None:
    match sequence:
        case None:
            return None
        case bytes():
            return decode(sequence, num_rows=reader.fragment.physical_rows)
        case RowLineageColumn():
            return _spilled(reader, field)
        case ExternalFile():
            fragment_id = reader.fragment.id
            raise CorruptDataError(f"fragment {fragment_id}: file {sequence.path!r} with {field.name} was not loaded")


def _spilled(reader: StoredFragment, field: Field) -> UInt64s:
    fragment = reader.fragment
    if not any(field.id in file.fields for file in fragment.files):
        raise CorruptDataError(f"no data file of fragment {fragment.id} has the column {field.name} that it refers to")
    end = fragment.physical_rows
    rows = reader.scan(Schema((field,)), start=0, end=end, batch_size=max(end, 1))
    parts = [np.empty(0, np.uint64), *(batch.columns[0].to_numpy() for batch in rows)]
    return np.concatenate(parts)


def contains(ascending: Int64s, values: Int64s) -> npt.NDArray[np.bool_]:
    """Return for each value whether it is among some ascending and distinct numbers."""
    if not len(ascending):
        return np.zeros(len(values), np.bool_)
    if ascending[-1] - ascending[0] == len(ascending) - 1:
        return (values >= ascending[0]) & (values <= ascending[-1])
    at = np.minimum(np.searchsorted(ascending, values), len(ascending) - 1)
    return ascending[at] == values


def addresses_of_ids(readers: Sequence[IdentifiedFragment]) -> Callable[[Int64s], Int64s]:
    """Return a function that finds the addresses of row ids; -1 for ids of no live row of some fragments."""
    ids: list[Int64s] = [np.empty(0, np.int64)]
    addresses: list[Int64s] = [np.empty(0, np.int64)]
    for reader in readers:
        live = reader.live_mask(0, reader.physical_rows)
        offsets = np.arange(reader.physical_rows) if live is None else np.flatnonzero(live)
        ids.append(reader.stable_row_ids.astype(np.int64)[offsets])
        addresses.append(offsets + (reader.fragment.id << ADDRESS_SHIFT))
    every, targets = np.concatenate(ids), np.concatenate(addresses)
    order = np.argsort(every)
    every, targets = every[order], targets[order]

    def locate(rows: Int64s) -> Int64s:
        at = np.minimum(np.searchsorted(every, rows), max(len(every) - 1, 0))
        return np.where(every[at] == rows, targets[at], -1) if len(every) else np.full(len(rows), -1)

    return locate


def codes_of_ids(answer: RowAnswer, reader: IdentifiedFragment) -> tuple[Int64s, npt.NDArray[np.uint8]]:
    """Return the codes of a fragment's rows: offsets where runs of one code begin and end, and the code of each."""
    sequence, num_rows = reader.fragment.row_id_sequence, reader.physical_rows
    bounds = row_id_bounds(sequence) if isinstance(sequence, bytes) else None
    if isinstance(sequence, bytes) and bounds is not None:
        low, high = np.searchsorted(answer.bounds, np.array(bounds, np.int64), side="right").tolist()
        if low == high:
            return np.array([0, num_rows], np.int64), answer.codes[low : low + 1]
        if row_id_range(sequence) == (bounds[0], bounds[0] + num_rows):
            edges = np.concatenate([bounds[:1], answer.bounds[low:high], [bounds[1] + 1]]) - bounds[0]
            return edges, answer.codes[low : high + 1]
    codes = answer.at(reader.stable_row_ids.astype(np.int64))
    edges = np.flatnonzero(np.diff(codes)) + 1
    edges = np.concatenate([[0], edges, [num_rows]]).astype(np.int64)
    return edges, codes[edges[:-1]]


def offsets_of_ids(wanted: Int64s, reader: IdentifiedFragment) -> Int64s | None:
    """Return the offset of the row of each id, -1 where there is none; None if a fragment has none of them.

    Args:
        wanted: Row ids, ascending and distinct.
        reader: The fragment.
    """
    sequence = reader.fragment.row_id_sequence
    bounds = row_id_bounds(sequence) if isinstance(sequence, bytes) else (0, _MOST_ID)
    if bounds is None:
        return None
    low = int(np.searchsorted(wanted, min(bounds[0], _MOST_ID)))
    high = int(np.searchsorted(wanted, min(bounds[1], _MOST_ID), side="right"))
    if low == high:
        return None
    offsets = np.full(len(wanted), -1)
    if isinstance(sequence, bytes) and row_id_range(sequence) is not None:
        offsets[low:high] = wanted[low:high] - bounds[0]
        return offsets
    ids = reader.stable_row_ids.astype(np.int64)
    wanted_indices = np.minimum(np.searchsorted(wanted, ids), len(wanted) - 1)
    hits = np.flatnonzero(wanted[wanted_indices] == ids)
    offsets[wanted_indices[hits]] = hits
    return offsets
