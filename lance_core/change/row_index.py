"""Index from row ids to row addresses.

The fragments' sequences of row ids are the index; those whose range has none of the ids looked for are not expanded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lance_core.errors import InvalidInputError
from lance_core.format.table.row_ids import row_id_bounds
from lance_core.scan.fragment_reader import FragmentReader

if TYPE_CHECKING:
    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.manifest import Manifest
    from lance_core.scan.open_files import OpenFiles

    UInt64s = npt.NDArray[np.uint64]

_ADDRESS_SHIFT = np.uint64(32)
_OFFSET_MASK = np.uint64((1 << 32) - 1)
_EVERYTHING = (0, (1 << 64) - 1)


class RowIndex:
    """Finds the rows of one version by their ids; remembers where the ids of each fragment begin and end.

    Args:
        files: The dataset's open files.
        manifest: The version.
    """

    def __init__(self, files: OpenFiles, manifest: Manifest) -> None:
        self._files = files
        self.manifest = manifest
        self._bounds: UInt64s | None = None

    def addresses(self, ids: UInt64s) -> tuple[UInt64s, npt.NDArray[np.bool_]]:
        """Look up rows.

        Args:
            ids: Row ids, shape (n,); any order, repeats allowed.

        Returns:
            Row addresses, shape (n,), and whether there is such a row, shape (n,); other addresses mean nothing.

        Raises:
            InvalidInputError: On a table without stable row ids, an address in a fragment that does not exist.
        """
        if not self.manifest.uses_stable_row_ids:
            return ids, self._is_live(ids)
        unique, inverse = np.unique(ids, return_inverse=True)
        is_there = np.zeros(len(unique), np.bool_)
        addresses = np.zeros(len(unique), np.uint64)
        bounds = self._fragment_bounds()
        firsts = np.searchsorted(unique, bounds[:, 0], side="left")
        lasts = np.searchsorted(unique, bounds[:, 1], side="right")
        for number in np.flatnonzero(lasts > firsts).tolist():
            wanted = slice(int(firsts[number]), int(lasts[number]))
            reader = FragmentReader(self._files, self.manifest.fragments[number])
            positions, offsets = _live_places(reader, unique[wanted])
            addresses[wanted][positions] = offsets.astype(np.uint64) | np.uint64(reader.fragment.id) << _ADDRESS_SHIFT
            is_there[wanted][positions] = True
        return addresses[inverse], is_there[inverse]

    def _fragment_bounds(self) -> UInt64s:
        """Lowest and highest row id of each fragment, shape (fragments, 2)."""
        if self._bounds is None:
            bounds = [_bounds(fragment) for fragment in self.manifest.fragments]
            self._bounds = np.array(bounds, np.uint64).reshape(-1, 2)
        return self._bounds

    def _is_live(self, addresses: UInt64s) -> npt.NDArray[np.bool_]:
        owners = addresses >> _ADDRESS_SHIFT
        live = np.zeros(len(addresses), np.bool_)
        for owner in np.unique(owners).tolist():
            fragment = self.manifest.fragments.find(owner)
            if fragment is None:
                raise InvalidInputError(f"cannot read the row addresses given: there is no fragment {owner}")
            here = owners == owner
            offsets = (addresses[here] & _OFFSET_MASK).astype(np.int64)
            deleted = FragmentReader(self._files, fragment).deleted
            live[here] = (offsets < fragment.physical_rows) & ~np.isin(offsets, deleted)
        return live


def _bounds(fragment: Fragment) -> tuple[int, int]:
    sequence = fragment.row_id_sequence
    if not isinstance(sequence, bytes):
        return _EVERYTHING
    return row_id_bounds(sequence) or (1, 0)


def _live_places(reader: FragmentReader, wanted: UInt64s) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Places in ``wanted`` (ascending, unique) of the ids that live rows have, and the offsets of these rows."""
    ids = reader.stable_row_ids
    positions = np.minimum(np.searchsorted(wanted, ids), len(wanted) - 1)
    hit = wanted[positions] == ids
    live = reader.live_mask(0, len(ids))
    if live is not None:
        hit &= live
    offsets = np.flatnonzero(hit)
    return positions[offsets], offsets
