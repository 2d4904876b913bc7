"""Numbers about a dataset."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.common.frozen import frozen
from lance_core.errors import UnsupportedError
from lance_core.indices import statistics
from lance_core.scan.open_files import OpenFiles

if TYPE_CHECKING:
    from lance_core.table.snapshot import Snapshot


@frozen
class FieldStatistics:
    """A field of the schema, by id, and the bytes of its pages in all data files; 0 for structs and lists."""

    id: int
    bytes_on_disk: int


@frozen
class DataStatistics:
    """One entry for each field of the schema, in its order, parents first."""

    fields: list[FieldStatistics]


class LanceStats:
    """Numbers about one version. Made by `LanceDataset.stats`."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def data_stats(self) -> DataStatistics:
        """Return bytes that each field takes; looks into the metadata of all data files.

        Raises:
            CorruptDataError: A damaged file.
            UnsupportedError: Files of version 0.1, which do not tell.
        """
        files, sizes = OpenFiles(self._snapshot.store), Counter[int]()
        for fragment in self._snapshot.manifest.fragments:
            for file in fragment.files:
                if not file.file_major_version:
                    raise UnsupportedError("data files of version 0.1 do not record the size of columns")
                columns = files.open(file, num_rows=fragment.physical_rows).file_layout().columns
                for number, column in zip(file.fields, file.column_indices, strict=True):
                    if column >= 0:
                        sizes[number] += columns[column].num_bytes
        ids = [field.id for field in self._snapshot.manifest.schema.walk()]
        return DataStatistics([FieldStatistics(number, sizes[number]) for number in ids])

    def index_stats(self, index_name: str) -> dict[str, Any]:
        """Numbers about one index; see `lance_core.indices.statistics`.

        Raises:
            NotFoundError: There is no such index.
        """
        return statistics(self._snapshot, index_name)

    def dataset_stats(self, max_rows_per_group: int = 1024) -> dict[str, int]:
        """Deleted rows, fragments, and fragments with fewer rows than a limit.

        Returns:
            ``num_deleted_rows``, ``num_fragments`` and ``num_small_files``.
        """
        fragments = self._snapshot.manifest.fragments
        return {
            "num_deleted_rows": int(fragments.num_deleted_rows.sum()),
            "num_fragments": len(fragments),
            "num_small_files": int(np.count_nonzero(fragments.physical_rows < max_rows_per_group)),
        }
