"""Rows that leave their fragments, to be deleted or to be written anew in other fragments."""

from __future__ import annotations

from dataclasses import field
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lance_core.change.completion import Uploads
from lance_core.common.frozen import frozen, mutable, replace
from lance_core.format.table.deletion import bitmap_from_numpy
from lance_core.format.table.paths import deletion_file_path
from lance_core.format.table.row_ids import encode_row_ids, encode_row_versions
from lance_core.index.answer import OFFSET_MASK
from lance_core.scan.fragment_run import FragmentRun
from lance_core.scan.lineage import has_spilled_lineage
from lance_core.table.locations import objects_at_once
from lance_core.table.new_ids import RANDOM_IDS
from lance_core.table.rebase import encode_deletion_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyroaring import BitMap

    from lance_core.format.table.fragment import Fragment
    from lance_core.scan.fragment_reader import FragmentReader
    from lance_core.scan.fragment_run import RowSource
    from lance_core.store.base import Store
    from lance_core.table.new_ids import NewIds

    Offsets = npt.NDArray[np.int64]


@frozen(kw_only=True)
class Departure:
    """The fragments that rows left, as they are afterwards.

    Attributes:
        updated_fragments: Fragments with new deletion files.
        removed_fragment_ids: Fragments of which no row is left.
    """

    updated_fragments: tuple[Fragment, ...] = ()
    removed_fragment_ids: tuple[int, ...] = ()

    def remove_files(self, store: Store) -> None:
        """Remove the deletion files."""
        files = [(fragment.id, fragment.deletion_file) for fragment in self.updated_fragments]
        store.delete([deletion_file_path(fragment_id, file) for fragment_id, file in files if file is not None])


@mutable(kw_only=True)
class MovedRows:
    """Collects rows while they are read, fragment by fragment.

    Attributes:
        with_row_ids: The table has stable row ids, so moved rows take theirs along.
    """

    with_row_ids: bool
    num_rows: int = 0
    _departed: list[tuple[FragmentReader, list[Offsets]]] = field(
        default_factory=list["tuple[FragmentReader, list[Offsets]]"]
    )
    _row_ids: list[npt.NDArray[np.uint64]] = field(default_factory=list["npt.NDArray[np.uint64]"])
    _created: list[npt.NDArray[np.uint64]] = field(default_factory=list["npt.NDArray[np.uint64]"])
    _tells_creation: bool = False

    def move(self, reader: FragmentReader, offsets: Offsets) -> None:
        """These live rows of a fragment are written anew, in this order, as the next rows."""
        self.delete(reader, offsets)
        self.num_rows += len(offsets)
        if self.with_row_ids:
            self._row_ids.append(reader.stable_row_ids[offsets])
            self._created.append(reader.created_versions[offsets])
            # A commit looks it up in the manifest; what is not there must be told.
            self._tells_creation |= has_spilled_lineage(reader.fragment)

    def move_all(self, source: RowSource, addresses: npt.NDArray[np.uint64]) -> None:
        """As `move`, of rows by their ascending addresses in a fragment or in a run of them."""
        offsets = (addresses & np.uint64(OFFSET_MASK)).astype(np.int64)
        parts = source.by_address(addresses) if isinstance(source, FragmentRun) else [(source, slice(None))]
        for reader, rows in parts:
            self.move(reader, offsets[rows])

    def delete(self, reader: FragmentReader, offsets: Offsets) -> None:
        """These live rows of a fragment are deleted."""
        if not len(offsets):
            return
        if not self._departed or self._departed[-1][0].fragment.id != reader.fragment.id:
            self._departed.append((reader, []))
        self._departed[-1][1].append(offsets)

    def depart(self, store: Store, version: int, ids: NewIds = RANDOM_IDS) -> Departure:
        """Write the deletion files of the fragments that rows left.

        Args:
            store: The dataset.
            version: Version that the rows were found in.
            ids: Names of new files.
        """
        return write_departure(store, self._deleted(), version=version, ids=ids)

    def _deleted(self) -> Iterator[tuple[Fragment, BitMap]]:
        for reader, parts in self._departed:
            rows = bitmap_from_numpy(reader.deleted)
            for part in parts:
                rows |= bitmap_from_numpy(part)
            yield reader.fragment, rows

    def with_moved_ids(self, fragments: Sequence[Fragment]) -> tuple[Fragment, ...]:
        """New fragments with the ids of the moved rows, which are their first rows; new rows have none yet."""
        if not self.with_row_ids:
            return tuple(fragments)
        ids = np.concatenate([np.empty(0, np.uint64), *self._row_ids])
        created = np.concatenate([np.empty(0, np.uint64), *self._created])
        numbered: list[Fragment] = []
        start = 0
        for fragment in fragments:
            mine = slice(start, start + fragment.physical_rows)
            start = mine.stop
            if len(ids[mine]):
                fragment = replace(fragment, row_id_sequence=encode_row_ids(ids[mine]))  # noqa: PLW2901
                if self._tells_creation:
                    fragment = replace(  # noqa: PLW2901
                        fragment, created_at_version_sequence=encode_row_versions(created[mine])
                    )
            numbered.append(fragment)
        return tuple(numbered)


def write_departure(
    store: Store, deleted: Iterable[tuple[Fragment, BitMap]], *, version: int, ids: NewIds = RANDOM_IDS
) -> Departure:
    """Write the deletion files of fragments, many at the same time where the store is far away.

    Args:
        store: The dataset.
        deleted: Fragments, and the offsets of all their deleted rows.
        version: Version that the rows were found in.
        ids: Names of new files.
    """
    removed: list[int] = []
    changed: list[Fragment] = []

    uploads = Uploads(store)
    try:
        left = iter(deleted)
        while some := list(islice(left, objects_at_once(store))):
            contents: list[tuple[str, bytes]] = []
            for fragment, rows in some:
                if len(rows) == fragment.physical_rows:
                    removed.append(fragment.id)
                    continue
                new_id = partial(ids.deletion_file, fragment.id)
                file, path, data = encode_deletion_file(fragment.id, rows, read_version=version, new_id=new_id)
                changed.append(replace(fragment, deletion_file=file))
                contents.append((path, data))
            uploads.put(contents)
        uploads.wait()
    except BaseException:
        uploads.end()
        Departure(updated_fragments=tuple(changed)).remove_files(store)
        raise
    return Departure(updated_fragments=tuple(changed), removed_fragment_ids=tuple(removed))
