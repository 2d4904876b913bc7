"""Ids and versions of the rows of a fragment: in the manifest, or spilled into columns of its data files.

Only tables with stable row ids have them; elsewhere the id of a row is its address, and every row counts as created
and changed in version 1, as in pylance. Spilled columns have the field ids below; pylance 14.0.2 writes them when the
table's config says ``lance.row_lineage.spill``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lance_core.errors import CorruptDataError
from lance_core.format.fragment import RowLineageColumn
from lance_core.format.row_ids import decode_row_ids, decode_row_versions
from lance_core.format.schema import Field, Schema

if TYPE_CHECKING:
    from lance_core.format.fragment import Fragment
    from lance_core.table.fragment_reader import FragmentReader

    UInt64s = npt.NDArray[np.uint64]

ROW_CREATED_AT = "_row_created_at_version"
ROW_UPDATED_AT = "_row_last_updated_at_version"

_ID_FIELD = Field(id=-3, name="_rowid", logical_type="uint64", nullable=False)
_CREATED_FIELD = Field(id=-4, name=ROW_CREATED_AT, logical_type="uint64", nullable=False)
_UPDATED_FIELD = Field(id=-5, name=ROW_UPDATED_AT, logical_type="uint64", nullable=False)


def row_ids(reader: FragmentReader) -> UInt64s:
    """Row id of each row, deleted ones included: shape (physical_rows,)."""
    fragment = reader.fragment
    if fragment.row_id_sequence is None:
        return np.arange(fragment.physical_rows, dtype=np.uint64) + np.uint64(fragment.id << 32)
    if isinstance(fragment.row_id_sequence, bytes):
        return decode_row_ids(fragment.row_id_sequence, num_rows=fragment.physical_rows)
    return _spilled(reader, _ID_FIELD)


def created_versions(reader: FragmentReader) -> UInt64s:
    """Version that created each row, deleted ones included: shape (physical_rows,)."""
    return _versions(reader, reader.fragment.created_at_version_sequence, _CREATED_FIELD)


def updated_versions(reader: FragmentReader) -> UInt64s:
    """Version that last changed each row, deleted ones included: shape (physical_rows,)."""
    return _versions(reader, reader.fragment.last_updated_at_version_sequence, _UPDATED_FIELD)


def has_spilled_lineage(fragment: Fragment) -> bool:
    """True if ids or versions of the rows are in a data file."""
    sequences = (
        fragment.row_id_sequence,
        fragment.created_at_version_sequence,
        fragment.last_updated_at_version_sequence,
    )
    return any(isinstance(one, RowLineageColumn) for one in sequences)


def _versions(reader: FragmentReader, sequence: bytes | RowLineageColumn | None, field: Field) -> UInt64s:
    num_rows = reader.fragment.physical_rows
    if sequence is None:
        return np.ones(num_rows, np.uint64)
    if isinstance(sequence, bytes):
        return decode_row_versions(sequence, num_rows=num_rows)
    return _spilled(reader, field)


def _spilled(reader: FragmentReader, field: Field) -> UInt64s:
    fragment = reader.fragment
    if not any(field.id in file.fields for file in fragment.files):
        raise CorruptDataError(f"no data file of fragment {fragment.id} has the column {field.name} that it refers to")
    end = fragment.physical_rows
    rows = reader.scan(Schema((field,)), start=0, end=end, batch_size=max(end, 1))
    parts = [np.empty(0, np.uint64), *(one.columns[0].to_numpy() for one in rows)]
    return np.concatenate(parts)
