"""Read rows by their place in the table."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.encoding.arrow_values import taken
from lance_core.encoding.kernels import numbers_array
from lance_core.errors import InvalidInputError
from lance_core.format.table.fragment_list import FragmentList
from lance_core.scan.fragment_reader import FragmentReader, readers_of
from lance_core.scan.fragments import taking_offsets
from lance_core.scan.take_together import is_full, is_small, pays_together, take_together
from lance_core.table.read_ahead import in_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lance_core.format.table.fragment import Fragment
    from lance_core.scan.fragment_reader import FragmentReaders
    from lance_core.scan.open_files import OpenFiles
    from lance_core.scan.plan import ScanPlan
    from lance_core.store.io_coroutines import IoCoroutine
    from lance_core.table.snapshot import Snapshot


_Number = TypeVar("_Number", np.int64, np.uint64)

_Part: TypeAlias = "tuple[FragmentReader, npt.NDArray[np.int64]]"
"""Offsets of rows of a fragment."""


def take_addresses(
    files: OpenFiles, fragments: Sequence[Fragment] | FragmentList, addresses: npt.NDArray[np.uint64], plan: ScanPlan
) -> pa.Table:
    """Read rows by their row addresses.

    Args:
        files: The dataset's open files.
        fragments: Fragments that hold the rows, and perhaps others.
        addresses: Addresses of rows; any order, repeats allowed. Shape (n,).
        plan: Columns to read (no filter).

    Returns:
        n rows, in the order asked for.
    """
    unique, order = _ascending(addresses)
    owners = (unique >> np.uint64(32)).astype(np.int64)
    offsets = (unique & np.uint64((1 << 32) - 1)).astype(np.int64)
    bounds = [0, *(np.flatnonzero(owners[1:] != owners[:-1]) + 1).tolist(), len(owners)]
    readers = _readers_by_id(files, fragments)
    parts = ((readers(int(owners[low])), offsets[low:high]) for low, high in pairwise(bounds) if low < high)
    return _in_order(_batches(files, parts, plan), order, plan)


def _readers_by_id(files: OpenFiles, fragments: Sequence[Fragment] | FragmentList) -> Callable[[int], FragmentReader]:
    """Return a function that opens a fragment by its id; readers of the fragments of a table are kept."""
    if isinstance(fragments, FragmentList):
        readers, ids = readers_of(files, fragments), fragments.ids
        return lambda fragment_id: readers[int(np.flatnonzero(ids == fragment_id)[0])]
    by_id = {fragment.id: fragment for fragment in fragments}
    return lambda fragment_id: FragmentReader(files, by_id[fragment_id])


def _ascending(numbers: npt.NDArray[_Number]) -> tuple[npt.NDArray[_Number], npt.NDArray[np.int64] | None]:
    """Return each place once, ascending, and which of them each one asked for is; None if they are the same."""
    if (numbers[1:] > numbers[:-1]).all():
        return numbers, None
    return np.unique(numbers, return_inverse=True)


def _in_order(batches: Iterable[pa.RecordBatch], order: npt.NDArray[np.int64] | None, plan: ScanPlan) -> pa.Table:
    """Unique rows, arranged as they were asked for."""
    table = pa.Table.from_batches(batches, schema=plan.schema)
    return table if order is None else taken(table, numbers_array(order))


def take_rows(snapshot: Snapshot, files: OpenFiles, row_positions: npt.NDArray[np.int64], plan: ScanPlan) -> pa.Table:
    """Read rows by place.

    Args:
        snapshot: Version to read.
        files: The dataset's open files.
        row_positions: Places among the live rows, from 0; any order, repeats allowed. Shape (n,).
        plan: Columns to read (no filter).

    Returns:
        n rows, in the order asked for.

    Raises:
        InvalidInputError: There is no such row.
    """
    readers = readers_of(files, snapshot.manifest.fragments)
    ends = readers.ends
    total = int(ends[-1]) if len(ends) else 0
    if len(row_positions) and (row_positions.min() < 0 or row_positions.max() >= total):
        raise InvalidInputError(f"rows are 0 to {total - 1}, asked for {row_positions.min()} to {row_positions.max()}")
    unique, order = _ascending(row_positions)
    return _in_order(_batches(files, _parts(readers, unique), plan), order, plan)


def _batches(files: OpenFiles, parts: Iterator[_Part], plan: ScanPlan) -> Iterator[pa.RecordBatch]:
    """Return rows of fragments, in their order."""
    if plan.columns != plan.projection.names or not plan.columns:
        return in_turn(files.store, _works(parts, plan))
    return _together(files, parts, plan)


def _works(parts: Iterable[_Part], plan: ScanPlan) -> Iterator[Callable[[], IoCoroutine[pa.RecordBatch]]]:
    return (partial(taking_offsets, reader, plan, offsets) for reader, offsets in parts)


def _together(files: OpenFiles, parts: Iterator[_Part], plan: ScanPlan) -> Iterator[pa.RecordBatch]:
    """Yield rows of fragments, those of several at one go where that is cheaper."""
    for group, are_small in _groups(parts):
        arrays = _joined(files, group, plan, are_small=are_small)
        if arrays is None:
            yield from in_turn(files.store, _works(group, plan))
        else:
            yield pa.RecordBatch.from_arrays(arrays, schema=plan.schema)


def _groups(parts: Iterator[_Part]) -> Iterator[tuple[list[_Part], bool]]:
    """Cut rows of fragments into those of fragments that may be read at one go; True if all of them are small."""
    group: list[_Part] = []
    num_large = num_bytes = 0
    for part in parts:
        group.append(part)
        size = sum([file.file_size_bytes for file in part[0].fragment.files])
        if is_small(size):
            num_bytes += size
        else:
            num_large += 1
        if is_full(len(group), num_large, num_bytes):
            yield group, not num_large
            group, num_large, num_bytes = [], 0, 0
    if group:
        yield group, not num_large


def _joined(files: OpenFiles, group: Sequence[_Part], plan: ScanPlan, *, are_small: bool) -> list[pa.Array] | None:
    """Return the columns of rows of several fragments; None if each fragment has to be read for itself."""
    if not pays_together(group, plan.projection, are_small=are_small):
        return None
    return take_together(files, group, plan.projection)


def _parts(readers: FragmentReaders, row_positions: npt.NDArray[np.int64]) -> Iterator[_Part]:
    """Yield the fragments that have some of the rows, and which rows these are."""
    ends = readers.ends
    at = 0
    while at < len(row_positions):
        owner = int(ends.searchsorted(row_positions[at], side="right"))
        stop = int(row_positions.searchsorted(ends[owner]))
        positions = row_positions[at:stop] - ends[owner - 1] if owner else row_positions[at:stop]
        reader = readers[owner]
        yield reader, reader.offsets_of_live(positions)
        at = stop
