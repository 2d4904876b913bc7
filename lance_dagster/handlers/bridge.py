"""Handlers for libraries that speak Arrow: two functions are all they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lance_dagster.handlers.stream import load_reader, load_table, write_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import pyarrow as pa

    from lance_dagster.handlers.base import ReadRequest, WriteRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrowBridge:
    """A handler made of functions to and from Arrow.

    Example:
        ``ArrowBridge(types=("daft.DataFrame",), schema=lambda df: df.schema().to_pyarrow_schema(),
        to_arrow=lambda df: df.to_arrow_iter(), from_table=daft.from_arrow)``

    Args:
        types: As in `TypeHandler`.
        schema: Columns of a frame; nothing is computed.
        to_arrow: A frame as ``pa.Table`` or as batches, one after the other.
        from_table: A frame made of a ``pa.Table``.
        from_reader: A frame made of a ``pa.RecordBatchReader``, which is preferred to ``from_table``.
        from_request: A frame made of the whole request, for a library that reads by itself; preferred to both.
    """

    types: tuple[str, ...]
    schema: Callable[[Any], pa.Schema]
    to_arrow: Callable[[Any], pa.Table | Iterable[pa.RecordBatch]]
    from_table: Callable[[pa.Table], Any] | None = None
    from_reader: Callable[[pa.RecordBatchReader], Any] | None = None
    from_request: Callable[[ReadRequest], Any] | None = None

    def write(self, obj: Any, request: WriteRequest) -> int:
        """Write."""
        return write_batches(self.schema(obj), self.to_arrow(obj), request)

    def load(self, request: ReadRequest) -> Any:
        """Read."""
        if self.from_request is not None:
            return self.from_request(request)
        if self.from_reader is not None:
            return self.from_reader(load_reader(request))
        assert self.from_table is not None  # noqa: S101 - one of them is given
        return self.from_table(load_table(request))
