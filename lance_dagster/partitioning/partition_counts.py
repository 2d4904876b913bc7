"""Rows of each partition, counted in one scan of the partition columns; rows outside of all partitions, too."""

from __future__ import annotations

import importlib
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import dagster as dg

from lance_core.common.late_module import LateModule
from lance_dagster.partitioning.partitions import DimensionKeys, columns_of, dimension_definitions
from lance_dagster.partitioning.predicate import column_test

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    import pyarrow as pa

    import lance_core
    from lance_dagster.partitioning.predicate import ColumnTest
else:
    np = LateModule("numpy")
    pa = LateModule("pyarrow")

_FUTURE_WINDOWS = 400
_MAX_VALUES = 1000
_FRAGMENT_BITS = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCounts:
    """Rows of a table by partition.

    Args:
        rows: Rows of each partition that has any.
        future: Rows of time windows that are no partitions yet.
        outside: Rows whose key belongs to no partition, by value; of the first values only if there are many.
        num_outside: All rows outside.
        fragments: Rows by fragment id and partition.
    """

    rows: Mapping[str, int]
    future: int = 0
    outside: Mapping[str, int] = field(default_factory=dict[str, int])
    num_outside: int = 0
    fragments: Mapping[int, Mapping[str, int]] = field(default_factory=dict[int, "Mapping[str, int]"])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dimension:
    """Keys of one dimension, those of the near future after ``num_keys``, and the test that finds them."""

    keys: tuple[str, ...]
    num_keys: int
    test: ColumnTest
    codes: np.ndarray[Any, np.dtype[np.int64]]

    def code(self, column: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Return the position of the key of each row; -1 for none."""
        if not self.keys:
            return np.full(len(column), -1, np.int64)
        position = self.test.codes(column)
        return np.where(position >= 0, self.codes[position], -1)


def partition_counts(
    dataset: lance_core.LanceDataset,
    definition: dg.PartitionsDefinition,
    partition_expr: object,
    *,
    keys: Sequence[Sequence[str]],
    renamed: Mapping[str, str] | None = None,
) -> PartitionCounts:
    """Count the rows of each partition; reads the partition columns of all rows.

    Args:
        dataset: The table.
        definition: Partitions of the asset.
        partition_expr: As in the metadata of the asset.
        keys: From `existing_keys`.
        renamed: Old key -> new key: rows with the old one count for the new one.

    Raises:
        InvalidInputError: A partition column is missing, or its type cannot hold the keys.
    """
    definitions = dimension_definitions(definition)
    columns = columns_of(tuple(definitions), partition_expr)
    dimensions = [
        _dimension(column, part, present, dataset.schema, renamed or {})
        for column, part, present in zip(columns, definitions.values(), keys, strict=True)
    ]
    names = tuple(definitions)
    scan = dataset.scanner(
        columns={f"p{i}": dimension.test.term() for i, dimension in enumerate(dimensions)}, with_row_address=True
    )
    total: Counter[tuple[int, ...]] = Counter()
    values: Counter[str] = Counter()
    num_outside = 0
    for batch in scan.to_batches():
        codes = [dimension.code(batch.column(i)) for i, dimension in enumerate(dimensions)]
        is_outside = np.logical_or.reduce([code < 0 for code in codes])
        count = int(is_outside.sum())
        if count:
            num_outside += count
            _add_values(values, batch.select([f"p{i}" for i in range(len(dimensions))]), is_outside)
        addresses = batch.column("_rowaddr").to_numpy().astype(np.uint64)
        rows = np.stack([(addresses >> np.uint64(_FRAGMENT_BITS)).astype(np.int64), *codes])[:, ~is_outside]
        unique, counts = np.unique(rows, axis=1, return_counts=True)
        for combination, number in zip(unique.T.tolist(), counts.tolist(), strict=True):
            total[tuple(combination)] += number
    return _counts(total, dimensions, names, outside=values, num_outside=num_outside)


def existing_keys(
    definition: dg.PartitionsDefinition, instance: dg.DagsterInstance | None, *, now: datetime | None = None
) -> list[list[str]]:
    """Return the keys of each dimension as of now, those of time windows in the order of time."""
    now = now or datetime.now(UTC)
    return [
        list(part.get_partition_keys(current_time=now, dynamic_partitions_store=instance))
        for part in dimension_definitions(definition).values()
    ]


def _dimension(
    column: str, definition: dg.PartitionsDefinition, keys: Sequence[str], schema: pa.Schema, renamed: Mapping[str, str]
) -> _Dimension:
    position = {key: i for i, key in enumerate(keys)}
    future = _future_keys(definition, keys)
    aliases = [old for old, new in renamed.items() if new in position and old not in position]
    tested = (*keys, *future, *aliases)
    codes = [*range(len(keys) + len(future)), *(position[renamed[old]] for old in aliases)]
    windows = None
    if isinstance(definition, dg.TimeWindowPartitionsDefinition):
        windows = [definition.time_window_for_partition_key(key) for key in tested]
        windows = [(window.start, window.end) for window in windows]
    dimension = DimensionKeys(column=column, definition=definition, keys=tested)
    return _Dimension(
        keys=(*keys, *future),
        num_keys=len(keys),
        test=column_test(dimension, schema, windows),
        codes=np.array(codes or [-1], np.int64),
    )


def outside_filter(
    dataset: lance_core.LanceDataset,
    definition: dg.PartitionsDefinition,
    partition_expr: object,
    *,
    keys: Sequence[Sequence[str]],
) -> str:
    """Return the SQL predicate of the rows that `partition_counts` counts as outside.

    Args:
        dataset: The table.
        definition: Partitions of the asset.
        partition_expr: As in the metadata of the asset.
        keys: From `existing_keys`.
    """
    definitions = dimension_definitions(definition)
    columns = columns_of(tuple(definitions), partition_expr)
    terms: list[str] = []
    for column, part, present in zip(columns, definitions.values(), keys, strict=True):
        tested = (*present, *_future_keys(part, present))
        if not tested:
            return "true"
        dimension = DimensionKeys(column=column, definition=part, keys=tested)
        windows = None
        if isinstance(part, dg.TimeWindowPartitionsDefinition):
            windows = list[tuple[datetime, datetime]]()
            for window in map(part.time_window_for_partition_key, tested):
                # One range for windows that touch.
                is_next = bool(windows) and windows[-1][1].timestamp() == window.start.timestamp()
                windows[-1:] = (
                    [(windows[-1][0], window.end)] if is_next else [*windows[-1:], (window.start, window.end)]
                )
        test = column_test(dimension, dataset.schema, windows)
        terms.append(f"{test.term()} IS NULL OR NOT ({test.sql()})")
    return " OR ".join(terms)


def _future_keys(definition: dg.PartitionsDefinition, keys: Sequence[str]) -> list[str]:
    """Return keys of time windows that begin after the last partition: those that have not ended, and later ones."""
    if not isinstance(definition, dg.TimeWindowPartitionsDefinition) or definition.end is not None:
        return []
    now = datetime.now(UTC)
    length = timedelta(days=1)
    if keys:
        window = definition.time_window_for_partition_key(keys[-1])
        now, length = max(now, window.end.astimezone(UTC)), window.end - window.start
    else:
        now = max(now, definition.start.astimezone(UTC))
    later = definition.get_partition_keys(current_time=now + _FUTURE_WINDOWS * length)
    return list(later[len(keys) :])


def _add_values(values: Counter[str], batch: pa.RecordBatch, is_outside: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
    """Count values of rows that belong to no partition."""
    pc: Any = importlib.import_module("pyarrow.compute")
    rows = batch.filter(pa.array(is_outside))
    grouped = rows.to_struct_array() if rows.num_columns > 1 else rows.column(0)
    for entry in pc.value_counts(grouped).to_pylist():
        value = entry["values"]
        text = ", ".join(map(str, value.values())) if isinstance(value, dict) else str(value)
        if text in values or len(values) < _MAX_VALUES:
            values[text] += entry["counts"]


def _counts(
    total: Mapping[tuple[int, ...], int],
    dimensions: Sequence[_Dimension],
    names: Sequence[str],
    *,
    outside: Mapping[str, int],
    num_outside: int,
) -> PartitionCounts:
    rows: Counter[str] = Counter()
    fragments: dict[int, Counter[str]] = {}
    future = 0
    for (fragment, *codes), number in total.items():
        if any(code >= dimension.num_keys for code, dimension in zip(codes, dimensions, strict=True)):
            future += number
            continue
        parts = [dimension.keys[code] for code, dimension in zip(codes, dimensions, strict=True)]
        key = partition_key(names, parts)
        rows[key] += number
        fragments.setdefault(fragment, Counter())[key] += number
    return PartitionCounts(rows=rows, future=future, outside=outside, num_outside=num_outside, fragments=fragments)


def partition_key(names: Sequence[str], parts: Sequence[str]) -> str:
    """Return the partition key of one key for each dimension."""
    return parts[0] if tuple(names) == ("",) else str(dg.MultiPartitionKey(dict(zip(names, parts, strict=True))))
