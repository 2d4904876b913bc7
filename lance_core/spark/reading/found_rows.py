"""Rows that indices find are read while Spark plans the query, so that no task starts for a few of them.

They go to Spark in the pickled partition. `lance_core.spark.planner` puts them into the plan; without it, a task hands
them over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from lance_core.scan.fragments import scan_fragments
from lance_core.table.naming import naming

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lance_core.scan.open_files import OpenFiles
    from lance_core.scan.plan import ScanPlan
    from lance_core.spark.common.read_options import ReadOptions
    from lance_core.table.snapshot import Snapshot

_MOST_ROWS, _MOST_BYTES = 1 << 8, 1 << 22
"""Rows, and bytes of them, that the driver reads."""

_MARK = b"lance-rows:%012d:"
"""Stands before the rows, with their number of bytes."""


@dataclass(slots=True)
class FoundRows(InputPartition):
    """Rows as an Arrow stream behind a mark, by which Java finds them in the pickled object."""

    stream: bytes

    @classmethod
    def of(cls, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> FoundRows:
        """Write batches of a schema."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        stream = sink.getvalue().to_pybytes()
        return cls(_MARK % len(stream) + stream)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the batches."""
        yield from pa.ipc.open_stream(self.stream[len(_MARK % 0) :])


def find_few_rows(
    snapshot: Snapshot, files: OpenFiles, plan: ScanPlan, options: ReadOptions
) -> list[pa.RecordBatch] | None:
    """Read the rows of a scan if indices know that they are few.

    Args:
        snapshot: The version.
        files: Its open files.
        plan: The scan, with what indices know.
        options: Options of the read.

    Returns:
        The rows; None if there may be many, or large ones.
    """
    # The size of a batch does not tell that of its blobs before they are read.
    if options.blob_handling is not None or not _are_few(snapshot, plan):
        return None
    batches: list[pa.RecordBatch] = []
    num_bytes = 0
    with naming(snapshot.store):
        for batch in scan_fragments(files, snapshot.manifest.fragments, plan, limit=options.limit):
            batches.append(batch)
            num_bytes += batch.nbytes
            if num_bytes > _MOST_BYTES:
                return None
    return batches


def _are_few(snapshot: Snapshot, plan: ScanPlan) -> bool:
    if plan.index_answer is None:
        return False
    fragments = snapshot.manifest.fragments
    ids, num_rows = fragments.ids.astype(np.int64), fragments.physical_rows.astype(np.int64)
    positions = np.flatnonzero(plan.index_answer.may_match(ids, num_rows)).tolist()
    if len(positions) > _MOST_ROWS:
        return False
    candidates = [plan.index_answer.of_fragment(int(ids[i]), int(num_rows[i])).num_candidates for i in positions]
    return sum(candidates) <= _MOST_ROWS
