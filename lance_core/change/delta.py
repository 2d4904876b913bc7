"""Changes between two versions of a table with stable row ids: rows inserted, updated and deleted.

The versions of a row tell: one created after the first version was inserted, an older one that changed after it was
updated. Deleted are the ids that the first version has and the second one has not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.lineage import ROW_CREATED_AT, ROW_UPDATED_AT
from lance_core.scan.open_files import OpenFiles
from lance_core.scan.pick import pick_rows
from lance_core.scan.plan import ROW_ID, default_batch_size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_core.table.snapshot import Snapshot

    UInt64s = npt.NDArray[np.uint64]

_SYSTEM_FIELDS = [pa.field(name, pa.uint64()) for name in (ROW_ID, ROW_CREATED_AT, ROW_UPDATED_AT)]


def delta_schema(snapshot: Snapshot) -> pa.Schema:
    """Arrow schema of inserted and updated rows: all columns, then row id and row versions."""
    schema = snapshot.manifest.schema.to_arrow()
    return pa.schema([*schema, *_SYSTEM_FIELDS], metadata=schema.metadata)


def changed_rows(
    snapshot: Snapshot, files: OpenFiles, *, begin: int, end: int, inserted: bool
) -> Iterator[pa.RecordBatch]:
    """Rows, as they are now, that were inserted or updated in the versions (begin, end].

    Args:
        snapshot: Version whose rows are read.
        files: The dataset's open files.
        begin: Version before the first one that counts.
        end: Last version that counts.
        inserted: Rows created in these versions; else rows that are older and were last changed in them.
    """
    if not snapshot.manifest.uses_stable_row_ids:
        return
    table = snapshot.manifest.schema
    schema, step = delta_schema(snapshot), default_batch_size(table.to_arrow())
    for fragment in snapshot.manifest.fragments:
        reader = FragmentReader(files, fragment)
        created, updated = reader.created_versions, reader.updated_versions
        told = created if inserted else updated
        wanted = (told > begin) & (told <= end)
        if not inserted:
            wanted &= created <= begin
        if not wanted.any():
            continue
        live = reader.live_mask(0, fragment.physical_rows)
        offsets = np.flatnonzero(wanted if live is None else wanted & live)
        ids, start = reader.stable_row_ids, 0
        for batch in pick_rows(reader, table, offsets, batch_size=step):
            here = offsets[start : start + batch.num_rows]
            start += batch.num_rows
            extra = [pa.array(column[here]) for column in (ids, created, updated)]
            yield pa.RecordBatch.from_arrays([*batch.columns, *extra], schema=schema)


def live_row_ids(snapshot: Snapshot) -> UInt64s:
    """Ids of all rows of a version, ascending."""
    files = OpenFiles(snapshot.store)
    parts = [np.empty(0, np.uint64)]
    for fragment in snapshot.manifest.fragments:
        reader = FragmentReader(files, fragment)
        live = reader.live_mask(0, fragment.physical_rows)
        ids = reader.stable_row_ids
        parts.append(ids if live is None else ids[live])
    return np.sort(np.concatenate(parts))


def deleted_row_ids(begin: Snapshot, end: Snapshot) -> UInt64s:
    """Ids of the rows that one version has and a later one has not, ascending."""
    return np.setdiff1d(live_row_ids(begin), live_row_ids(end), assume_unique=True)
