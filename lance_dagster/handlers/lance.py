"""Lance datasets themselves: the lazy way to load, and a way to hand over what was written already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_core import LanceDataset
from lance_core.errors import DatasetNotFoundError, InvalidInputError
from lance_dagster.handlers.bridge import ArrowBridge

if TYPE_CHECKING:
    from lance_dagster.handlers.base import ReadRequest


def _load(request: ReadRequest) -> Any:
    if request.dataset is None:
        raise DatasetNotFoundError(
            "The table does not exist yet. Annotate the input with pa.Table to get an empty one."
        )
    is_whole = request.columns is None and request.filter is None and not request.is_empty
    if not issubclass(request.type, LanceDataset):
        columns = None if request.columns is None else list(request.columns)
        return request.dataset.scanner(columns=columns, filter="false" if request.is_empty else request.filter)
    if is_whole:
        return request.dataset
    msg = (
        "A LanceDataset is a whole table and cannot stand for some of its partitions, columns or rows: annotate "
        "the input with lance_core.scanner.LanceScanner or pa.RecordBatchReader to read these lazily."
    )
    raise InvalidInputError(msg)


LANCE = ArrowBridge(
    types=("lance_core.LanceDataset", "lance_core.LanceScanner"),
    schema=lambda obj: obj.schema,
    to_arrow=lambda obj: obj.to_batches(),
    from_request=_load,
)
