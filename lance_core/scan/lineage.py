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
from lance_core.format.table.row_ids import decode_row_ids, decode_row_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from lance_core.format.table.fragment import Fragment, LineageSequence

    UInt64s = npt.NDArray[np.uint64]

ROW_CREATED_AT = "_row_created_at_version"
ROW_UPDATED_AT = "_row_last_updated_at_version"

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
