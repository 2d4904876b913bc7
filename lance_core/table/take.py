"""Read rows by their place in the table."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.encoding.physical.memory import numbers_array
from lance_core.errors import InvalidInputError
from lance_core.table.ahead import in_turn
from lance_core.table.fragment_reader import FragmentReader
from lance_core.table.scan import taking_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from lance_core.store.waits import Waits
    from lance_core.table.fragment_reader import FragmentReaders
    from lance_core.table.open_files import OpenFiles
    from lance_core.table.scan_plan import ScanPlan
    from lance_core.table.snapshot import Snapshot


_Number = TypeVar("_Number", np.int64, np.uint64)


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
    unique, order = _ascending(addresses)
    owners = (unique >> np.uint64(32)).astype(np.int64)
    offsets = (unique & np.uint64((1 << 32) - 1)).astype(np.int64)
    fragments = snapshot.manifest.fragments.select(np.unique(owners).tolist())
    works = (partial(taking_offsets, FragmentReader(files, one), plan, offsets[owners == one.id]) for one in fragments)
    return _in_order(in_turn(files.store, works), order, plan)


def _ascending(places: npt.NDArray[_Number]) -> tuple[npt.NDArray[_Number], npt.NDArray[np.int64] | None]:
    """Each place once, ascending, and which of them each one asked for is; None if they are the same."""
    if (places[1:] > places[:-1]).all():
        return places, None
    return np.unique(places, return_inverse=True)


def _in_order(batches: Iterable[pa.RecordBatch], order: npt.NDArray[np.int64] | None, plan: ScanPlan) -> pa.Table:
    """Unique rows, arranged as they were asked for."""
    table = pa.Table.from_batches(batches, schema=plan.schema)
    return table if order is None else table.take(numbers_array(order))


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
    readers = files.readers(snapshot.manifest.fragments)
    ends = readers.ends
    total = int(ends[-1]) if len(ends) else 0
    if len(places) and (places.min() < 0 or places.max() >= total):
        raise InvalidInputError(f"rows are 0 to {total - 1}, asked for {places.min()} to {places.max()}")
    unique, order = _ascending(places)
    return _in_order(in_turn(files.store, _parts(readers, unique, plan)), order, plan)


def _parts(
    readers: FragmentReaders, places: npt.NDArray[np.int64], plan: ScanPlan
) -> Iterator[Callable[[], Waits[pa.RecordBatch]]]:
    """For each fragment that has some of the rows, what reads them."""
    ends = readers.ends
    at = 0
    while at < len(places):
        owner = int(ends.searchsorted(places[at], side="right"))
        stop = int(places.searchsorted(ends[owner]))
        positions = places[at:stop] - ends[owner - 1] if owner else places[at:stop]
        yield partial(_taking_live, readers[owner], plan, positions)
        at = stop


def _taking_live(reader: FragmentReader, plan: ScanPlan, positions: npt.NDArray[np.int64]) -> Waits[pa.RecordBatch]:
    return taking_offsets(reader, plan, reader.offsets_of_live(positions))
