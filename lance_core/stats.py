"""Numbers about a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.indices import statistics

if TYPE_CHECKING:
    from lance_core.table.snapshot import Snapshot


class LanceStats:
    """Numbers about one version. Made by `LanceDataset.stats`."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

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
