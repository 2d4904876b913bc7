"""Functions that make new columns, batch by batch; names and arguments as in pylance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_core.common.frozen import frozen
from lance_core.common.unsupported import late_names

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa


@frozen(slots=False)
class BatchUDF:
    """A function from a batch of existing columns to a batch of new ones; made by `batch_udf`.

    Attributes:
        func: Takes a ``pyarrow.RecordBatch``; answers a record batch, a table, or a pandas or Polars DataFrame with as
            many rows.
        output_schema: Arrow schema of what it makes; None to find out by calling it with a few rows.
        checkpoint_file: Where to remember results, so that an interrupted call of `LanceDataset.add_columns` with the
            same arguments goes on where it stopped. Removed when it is done.
    """

    func: Callable[[pa.RecordBatch], Any]
    output_schema: pa.Schema | None = None
    checkpoint_file: str | Path | None = None

    def __call__(self, batch: pa.RecordBatch) -> Any:
        """Call the function."""
        return self.func(batch)


def batch_udf(
    output_schema: pa.Schema | None = None, checkpoint_file: str | Path | None = None
) -> Callable[[Callable[[pa.RecordBatch], Any]], BatchUDF]:
    """Make a function ready for `LanceDataset.add_columns`; arguments as the attributes of `BatchUDF`.

    Examples:
        >>> @lance_core.batch_udf(output_schema=pa.schema([("feet", pa.float64())]))
        ... def feet(batch):
        ...     heights = batch["height"].to_numpy()
        ...     return pa.record_batch({"feet": heights * 3.28})
        >>> table.add_columns(feet, read_columns=["height"])
        >>> table.schema.names
        ['id', 'name', 'height', 'feet']
    """

    def wrap(func: Callable[[pa.RecordBatch], Any]) -> BatchUDF:
        return BatchUDF(func, output_schema, checkpoint_file)

    return wrap


__getattr__ = late_names(__name__)
