"""One output -> one commit: which operation, on which rows, and not twice."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_core.errors import DatasetAlreadyExistsError, InvalidInputError
from lance_dagster.handlers import TypeHandler, WriteRequest
from lance_dagster.predicate import typed

if TYPE_CHECKING:
    import lance_core
    from lance_dagster.handlers.base import WriteOperation
    from lance_dagster.partitions import PartitionSelection
    from lance_dagster.settings import WriteSettings
    from lance_dagster.tables import Tables


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where an output goes, and as what.

    Args:
        tables: All tables.
        uri: This table.
        settings: Mode and the like.
        selection: The run's partitions, or None for an unpartitioned asset.
        properties: Transaction properties of the commit.
        token: Identity of the commit.
    """

    tables: Tables
    uri: str
    settings: WriteSettings
    selection: PartitionSelection | None
    properties: dict[str, str]
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of an output.

    Args:
        operation: The commit's operation; ``skip`` if there was none, ``replay`` if an earlier attempt made it.
        version: The table's version that holds the output.
        seconds: Time spent, in seconds.
    """

    operation: str
    version: int
    seconds: float = 0.0


def store(obj: Any, handler: TypeHandler, target: Target) -> Outcome:
    """Write a frame in one commit.

    Raises:
        DatasetAlreadyExistsError: In mode ``error`` if there is a table (with partitions: if they hold rows).
        InvalidInputError: If the frame does not fit the table, or has rows outside of the run's partitions.
    """
    start = time.perf_counter()
    try:
        outcome = _attempt(obj, handler, target)
    except DatasetAlreadyExistsError:
        # Another run created the table in between: its rows are not ours, so do the same work on what is there now.
        if target.settings.mode == "error" or isinstance(obj, pa.RecordBatchReader):
            raise
        outcome = _attempt(obj, handler, target)
    return replace(outcome, seconds=time.perf_counter() - start)


def _attempt(obj: Any, handler: TypeHandler, target: Target) -> Outcome:
    existing = target.tables.find(target.uri)
    operation = _operation(target, existing)
    if operation is None:
        assert existing is not None  # noqa: S101 - nothing is skipped for want of a table
        return Outcome(operation="skip", version=existing.version)
    version = _write(obj, handler, target, existing=existing, operation=operation)
    return Outcome(operation=operation, version=version)


def _operation(target: Target, existing: lance_core.LanceDataset | None) -> WriteOperation | None:
    """The operation that a mode means here; None if there is nothing to do."""
    if existing is None:
        if target.settings.mode == "append":
            return "append"
        return "overwrite" if target.settings.mode == "overwrite" and target.selection is None else "create"
    match target.settings.mode:
        case "append":
            return "append"
        case "overwrite":
            return "overwrite" if target.selection is None else "replace_where"
        case mode:
            if target.selection is not None and not _has_rows(existing, target.selection):
                return "append"
            if mode == "ignore":
                return None
            what = "The table exists" if target.selection is None else "The run's partitions hold rows"
            msg = f"{what} already, and the mode is 'error'."
            raise DatasetAlreadyExistsError(msg, path=target.uri)


def _has_rows(dataset: lance_core.LanceDataset, selection: PartitionSelection) -> bool:
    return dataset.count_rows(filter=typed(selection, dataset.schema).sql()) > 0


def _write(
    obj: Any,
    handler: TypeHandler,
    target: Target,
    *,
    existing: lance_core.LanceDataset | None,
    operation: WriteOperation,
) -> int:
    keeps = operation in ("append", "replace_where")
    selection = target.selection
    if selection is not None and not selection.keys:
        raise InvalidInputError("A run without partitions has nothing to write.", path=target.uri)
    schema = handler.schema(obj)
    replaced = None
    if selection is not None and target.settings.mode == "overwrite":
        replaced = typed(selection, schema if existing is None else existing.schema).sql()
    request = WriteRequest(
        uri=target.uri,
        operation=operation,
        existing=existing if keeps else None,
        replaced=replaced,
        expected=None if selection is None else typed(selection, schema),
        out_of_partition=target.settings.out_of_partition,
        properties=target.properties,
        token=target.token,
        storage_options=target.tables.storage_options,
    )
    return handler.write(obj, request)
