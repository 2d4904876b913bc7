"""Read some columns of some rows of a fragment, many or few, in batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.encoding.arrow_values import settled
from lance_core.encoding.kernels import numbers_array
from lance_core.file.read.strategy import are_fetched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_core.format.schema import Schema
    from lance_core.scan.fragment_reader import FragmentReader

    Offsets = npt.NDArray[np.int64]


def pick_rows(reader: FragmentReader, schema: Schema, offsets: Offsets, *, batch_size: int) -> Iterator[pa.RecordBatch]:
    """Read rows by their offsets.

    Args:
        reader: The fragment.
        schema: Fields to read; at least one.
        offsets: Row offsets, ascending, without duplicates.
        batch_size: Rows of a batch at most.
    """
    if not len(offsets):
        return
    start, end = int(offsets[0]), int(offsets[-1]) + 1
    arrow = schema.to_arrow()
    if are_fetched(len(offsets), end - start):
        for first in range(0, len(offsets), batch_size):
            columns = reader.take(schema, offsets[first : first + batch_size])
            yield pa.RecordBatch.from_arrays(columns, schema=arrow)
        return
    for rows in reader.scan(schema, start=start, end=end, batch_size=batch_size):
        first, last = np.searchsorted(offsets, (rows.start, rows.start + rows.num_rows))
        if first < last:
            batch = pa.RecordBatch.from_arrays(list(map(settled, rows.columns)), schema=arrow)
            here = offsets[first:last] - rows.start
            yield batch if last - first == rows.num_rows else batch.take(numbers_array(here))
