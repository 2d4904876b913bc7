"""Numbers about a dataset."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.common.frozen import frozen
from lance_core.errors import UnsupportedError
from lance_core.indices import statistics

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.file.read.reader import DataFileReader
    from lance_core.scan.open_files import OpenFiles
    from lance_core.table.snapshot import Snapshot

_INT_BYTES = 40
"""Bytes of a number and its place in a tuple."""


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

    def __init__(self, snapshot: Snapshot, files: OpenFiles) -> None:
        self._snapshot = snapshot
        self._files = files

    def data_stats(self) -> DataStatistics:
        """Return bytes that each field takes; looks into the metadata of all data files.

        Raises:
            CorruptDataError: A damaged file.
            UnsupportedError: Files of version 0.1, which do not tell.
        """
        sizes = Counter[int]()
        for fragment in self._snapshot.manifest.fragments:
            for file in fragment.files:
                if not file.file_major_version:
                    raise UnsupportedError("data files of version 0.1 do not record the size of columns")
                columns = _column_bytes(self._files.open(file, num_rows=fragment.physical_rows))
                for number, column in zip(file.fields, file.column_indices, strict=True):
                    if column >= 0:
                        sizes[number] += columns[column]
        ids = [field.id for field in self._snapshot.manifest.schema.walk()]
        return DataStatistics([FieldStatistics(number, sizes[number]) for number in ids])

    def index_stats(self, index_name: str) -> dict[str, Any]:
        """Numbers about one index; see `lance_core.indices.statistics`.

        Raises:
            NotFoundError: There is no such index.
        """
        return statistics(self._snapshot.manifest, self._files, index_name)

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


def _column_bytes(reader: DataFileReader) -> Sequence[int]:
    """Return the bytes of the pages of each column; kept with what else is known of the file."""
    return reader.derived("column bytes", lambda: _layout_bytes(reader), lambda sizes: _INT_BYTES * len(sizes))


def _layout_bytes(reader: DataFileReader) -> Sequence[int]:
    return tuple([column.num_bytes for column in reader.file_layout().columns])
