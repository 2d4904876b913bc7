"""One output -> one commit: which operation, on which rows, and not twice."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import lance_core
from lance_core.common.hints import did_you_mean
from lance_core.common.late_module import LateModule
from lance_core.errors import DatasetAlreadyExistsError, InvalidInputError
from lance_dagster.evolution import change_table, plan_change
from lance_dagster.handlers import TypeHandler, WriteRequest
from lance_dagster.handlers.stream import storable
from lance_dagster.partitioning.predicate import typed

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_dagster.evolution import SchemaRule
    from lance_dagster.handlers.base import WriteOperation
    from lance_dagster.partitioning.partitions import PartitionSelection
    from lance_dagster.settings import SchemaMode, WriteSettings
    from lance_dagster.tables import Tables

else:
    pa = LateModule("pyarrow")

# Operations that leave rows of the table where they are.
_KEEPING = frozenset({"append", "replace_where", "merge"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Destination and form of an output.

    Args:
        tables: All tables.
        uri: This table, or a branch of it.
        settings: Mode and the like.
        selection: The run's partitions, or None for an unpartitioned asset.
        properties: Transaction properties of the commit.
        token: Identity of the commit.
        has_twins: Other runs may be making the same commit at this moment.
        is_placeholder: There is an empty main branch that counts as missing.
    """

    tables: Tables
    uri: str
    settings: WriteSettings
    selection: PartitionSelection | None
    properties: dict[str, str]
    token: str
    has_twins: bool = False
    is_placeholder: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Result of writing an output.

    Args:
        operation: The commit's operation; ``skip`` if there was none, ``replay`` if an earlier attempt made it,
            ``register`` if the asset made it.
        version: The table's version that holds the output.
        seconds: Time spent, in seconds.
    """

    operation: str
    version: int
    seconds: float = 0.0

    @property
    def is_commit(self) -> bool:
        """Return whether the version was made by this run, now or in an earlier attempt."""
        return self.operation not in {"skip", "register"}


def store(
    obj: Any, handler: TypeHandler, target: Target, *, existing: lance_core.LanceDataset | None = None
) -> Outcome:
    """Write a frame in one commit.

    Args:
        obj: The frame.
        handler: Knows its type.
        target: Where it goes.
        existing: The table; None if there was none.

    Raises:
        DatasetAlreadyExistsError: In mode ``error`` if there is a table (with partitions: if they hold rows).
        InvalidInputError: If the frame does not fit the table, or has rows outside of the run's partitions.
    """
    start = time.perf_counter()
    try:
        outcome = _attempt(obj, handler, target, existing)
    except DatasetAlreadyExistsError:
        # Another run created the table in between: its rows are not ours, so do the same work on what is there now.
        if target.settings.mode == "error" or isinstance(obj, pa.RecordBatchReader):
            raise
        existing = target.tables.find(target.uri)
        done = None if existing is None else existing.find_commit(target.token)
        outcome = (
            _attempt(obj, handler, target, existing) if done is None else Outcome(operation="replay", version=done)
        )
    return replace(outcome, seconds=time.perf_counter() - start)


def _attempt(obj: Any, handler: TypeHandler, target: Target, existing: lance_core.LanceDataset | None) -> Outcome:
    if target.selection is not None and not target.selection.keys:
        raise InvalidInputError("The run has no partitions, so there is nothing to write.", path=target.uri)
    operation = _operation(target, existing)
    if operation is None:
        assert existing is not None  # noqa: S101 - nothing is skipped for want of a table
        return Outcome(operation="skip", version=existing.version)
    request = _request(handler.schema(obj), target, existing=existing, operation=operation)
    return Outcome(operation=operation, version=handler.write(obj, request))


def _operation(target: Target, existing: lance_core.LanceDataset | None) -> WriteOperation | None:
    """Return the operation that a mode means here; None if there is nothing to do."""
    mode = target.settings.mode
    if existing is None:
        if target.is_placeholder:
            return "overwrite"
        return mode if mode in ("append", "overwrite") else "create"
    match mode:
        case "append" | "merge" | "overwrite":
            return mode
        case "replace_partitions":
            return "replace_where"
        case _:
            if existing.branch is not None and existing.version == 1 and existing.count_rows() == 0:
                return "append"  # a branch that was begun for this output
            if target.selection is not None and not _has_rows(existing, target.selection):
                return "append"
            if mode == "ignore":
                return None
            what = "The table exists" if target.selection is None else "The run's partitions hold rows"
            msg = f"{what} already, and the mode is 'error'. Choose another mode, or delete them first."
            raise DatasetAlreadyExistsError(msg, path=target.uri)


def _has_rows(dataset: lance_core.LanceDataset, selection: PartitionSelection) -> bool:
    return dataset.count_rows(filter=typed(selection, dataset.schema).sql()) > 0


def _request(
    frame: pa.Schema, target: Target, *, existing: lance_core.LanceDataset | None, operation: WriteOperation
) -> WriteRequest:
    """Make the handler's request; every error that does not depend on rows is raised here."""
    if repeated := sorted({name for name in frame.names if frame.names.count(name) > 1}):
        msg = (
            f"The data has several columns of the name {', '.join(repeated)}. Rename or drop them; nothing was written."
        )
        raise InvalidInputError(msg, path=target.uri)
    frame, settings, selection = storable(frame), target.settings, target.selection
    expected = None if selection is None else typed(selection, frame)
    keys = _check_keys(frame, target, existing) if settings.mode == "merge" else None
    columns = _fit(frame, existing, operation, settings.schema_mode)
    replaced = None
    if selection is not None and _selects(settings, operation):
        # A main branch that only holds a place gets the frame's columns.
        replaced = (
            None if target.is_placeholder else typed(selection, frame if existing is None else existing.schema).sql()
        )
    return WriteRequest(
        uri=target.uri,
        operation=operation,
        target=columns,
        existing=existing if operation in _KEEPING else None,
        replaced=replaced,
        merge_keys=settings.merge_keys,
        unique_keys=keys if existing is None else None,
        expected=expected,
        out_of_partition=settings.out_of_partition,
        compression_profile=settings.compression_profile,
        # Of two that commit at once with the same token, the later one gets the version of the other.
        properties=target.properties | ({lance_core.IDEMPOTENCY_KEY: target.token} if operation in _KEEPING else {}),
        token=target.token,
        idempotency_key=target.token if target.has_twins else None,
        storage_options=target.tables.storage_options_of(target.uri),
        base_store_params=target.tables.base_store_params,
    )


def _selects(settings: WriteSettings, operation: WriteOperation) -> bool:
    """Return whether the commit is about the run's partitions only."""
    if settings.mode == "merge":
        # Whoever lets rows of other partitions through means these partitions, too.
        return operation == "merge" and settings.out_of_partition != "allow"
    return settings.mode == "replace_partitions"


def _fit(
    frame: pa.Schema,
    existing: lance_core.LanceDataset | None,
    operation: WriteOperation,
    schema_mode: SchemaMode,
) -> pa.Schema | None:
    """Return the columns to store; the table gets those that it lacks."""
    keeps = operation in _KEEPING
    mode: SchemaRule = schema_mode if schema_mode != "auto" else "strict" if keeps else "overwrite"
    if existing is None or (not keeps and mode == "overwrite"):
        return None
    is_merge = operation == "merge"
    change = plan_change(frame, existing.schema, mode=mode, is_merge=is_merge)
    if keeps and not change.is_none:
        change = change_table(existing, frame, change, mode=mode, is_merge=is_merge)
    return change.target


def _check_keys(frame: pa.Schema, target: Target, existing: lance_core.LanceDataset | None) -> tuple[str, ...]:
    """Refuse a merge without a key; returns the columns of the key, as far as they are known without the table."""
    keys = target.settings.merge_keys
    if keys is None:
        declared = tuple(
            column.name for column in frame if b"lance-schema:unenforced-primary-key" in (column.metadata or {})
        )
        if not (declared if existing is None else _has_key(existing)):
            msg = (
                "The mode 'merge' needs the metadata 'merge_keys': the columns that tell rows apart, unless the table "
                "has a primary key."
            )
            raise InvalidInputError(msg, path=target.uri)
        return declared
    missing = [name for name in keys if name not in frame.names]
    if missing:
        hint = did_you_mean(missing[0], frame.names)
        msg = f"The merge keys {missing} are not among the columns {frame.names}.{hint}"
        raise InvalidInputError(msg, path=target.uri)
    if existing is not None:
        existing.merge_insert(keys)
    return keys


def _has_key(dataset: lance_core.LanceDataset) -> bool:
    """Return whether a table declares the columns that tell its rows apart."""
    try:
        dataset.merge_insert()
    except InvalidInputError:
        return False
    return True
