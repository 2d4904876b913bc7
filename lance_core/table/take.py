"""Read rows by their place in the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.errors import InvalidInputError
from lance_core.table.fragment_reader import FragmentReader
from lance_core.table.scan import take_offsets

if TYPE_CHECKING:
    from lance_core.table.open_files import OpenFiles
    from lance_core.table.scan_plan import ScanPlan
    from lance_core.table.snapshot import Snapshot


def take_addresses(snapshot: Snapshot, files: OpenFiles, addresses: npt.NDArray[np.uint64], plan: ScanPlan) -> pa.Table:
    """Read live rows by their row addresses.

    Args:
        snapshot: Version to read.
        files: The dataset's open files.
        addresses: Addresses of live rows of this version; any order, repeats allowed. Shape (n,).
        plan: Columns to read (no filter).

    Returns:
        n rows, in the order asked for.
    """
    unique, order = np.unique(addresses, return_inverse=True)
    owners = (unique >> np.uint64(32)).astype(np.int64)
    offsets = (unique & np.uint64((1 << 32) - 1)).astype(np.int64)
    fragments = snapshot.manifest.fragments.select(np.unique(owners).tolist())
    found = [take_offsets(FragmentReader(files, one), plan, offsets[owners == one.id]) for one in fragments]
    return _in_order(found, order, plan)


def _in_order(batches: list[pa.RecordBatch], order: npt.NDArray[np.int64], plan: ScanPlan) -> pa.Table:
    """Unique rows, arranged as they were asked for."""
    table = pa.Table.from_batches(batches, schema=plan.schema)
    is_ordered = table.num_rows == len(order) and bool((order == np.arange(len(order))).all())
    return table if is_ordered else table.take(pa.array(order))


def take_rows(snapshot: Snapshot, files: OpenFiles, places: npt.NDArray[np.int64], plan: ScanPlan) -> pa.Table:
    """Read rows by place.

    Args:
        snapshot: Version to read.
        files: The dataset's open files.
        places: Places among the live rows, from 0; any order, repeats allowed. Shape (n,).
        plan: Columns to read (no filter).

    Returns:
        n rows, in the order asked for.

    Raises:
        InvalidInputError: There is no such row.
    """
    fragments = snapshot.manifest.fragments
    ends = np.cumsum(fragments.num_rows)
    total = int(ends[-1]) if len(ends) else 0
    if len(places) and (places.min() < 0 or places.max() >= total):
        raise InvalidInputError(f"rows are 0 to {total - 1}, asked for {places.min()} to {places.max()}")
    unique, order = np.unique(places, return_inverse=True)
    owners = np.searchsorted(ends, unique, side="right")
    found: list[pa.RecordBatch] = []
    for owner in np.unique(owners).tolist():
        positions = unique[owners == owner] - (ends[owner - 1] if owner else 0)
        reader = FragmentReader(files, fragments[owner])
        found.append(take_offsets(reader, plan, reader.offsets_of_live(positions)))
    return _in_order(found, order, plan)
