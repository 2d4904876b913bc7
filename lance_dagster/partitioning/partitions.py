"""Partition keys of a run or an input -> what they select, exactly.

Everything is derived from ``asset_partition_keys``: a run over a range has no single partition key, a mapping may ask
for keys that form no range, and keys of several dimensions need not be the product of their dimensions. Grouping by
dimension alone would select, and on write delete, too much.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import dagster as dg

from lance_core.errors import InvalidInputError
from lance_dagster.settings import find_setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    import lance_core


@dataclass(frozen=True, slots=True, kw_only=True)
class DimensionKeys:
    """Keys of one partition dimension, and the column that holds them.

    Args:
        column: Column of the table, or an SQL expression over its columns.
        definition: The dimension's partitions.
        keys: Distinct keys, sorted.
    """

    column: str
    definition: dg.PartitionsDefinition
    keys: tuple[str, ...]

    def windows(self) -> list[tuple[datetime, datetime]] | None:
        """Time windows [start, end) with zone, neighbours merged, in order; None if this is no time dimension."""
        if not isinstance(self.definition, dg.TimeWindowPartitionsDefinition):
            return None
        subset: Any = self.definition.subset_with_partition_keys(self.keys)
        # Ordered by instant: two times of one zone would compare by their clocks, which go back once a year.
        windows = sorted(subset.included_time_windows, key=lambda window: window.start.timestamp())
        return [(window.start, window.end) for window in windows]

    def window_of(self, key: str) -> tuple[datetime, datetime]:
        """Time window of one key; only for a time dimension."""
        assert isinstance(self.definition, dg.TimeWindowPartitionsDefinition)  # noqa: S101 - states the contract
        window = self.definition.time_window_for_partition_key(key)
        return window.start, window.end


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSelection:
    """A set of partition keys.

    Args:
        keys: The keys as Dagster writes them, sorted.
        parts: Per key its parts, one per dimension, in the order of ``dimensions``.
        dimensions: Per dimension all keys that occur in it.
        products: The same set as an OR of products of dimension keys; empty selects nothing.
    """

    keys: tuple[str, ...]
    parts: tuple[tuple[str, ...], ...]
    dimensions: tuple[DimensionKeys, ...]
    products: tuple[tuple[DimensionKeys, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePartitions:
    """Partitions of an asset and the column that holds them.

    Args:
        definition: The partitions.
        partition_expr: As in the metadata of the asset.
    """

    definition: dg.PartitionsDefinition
    partition_expr: Any

    @classmethod
    def of(cls, asset: dg.AssetsDefinition) -> TablePartitions:
        """Return the partitions of a definition.

        Raises:
            InvalidInputError: It has none, or its metadata does not say which column holds them.
        """
        definition = asset.partitions_def
        if definition is None:
            msg = f"The asset {asset.key.to_user_string()} has no partitions: this is for assets with `partitions_def`."
            raise InvalidInputError(msg)
        partition_expr = find_setting("partition_expr", asset.metadata_by_key.get(asset.key, {}))
        check_partition_expr(definition, partition_expr)
        return cls(definition=definition, partition_expr=partition_expr)

    def filter(self, dataset: lance_core.LanceDataset, keys: Iterable[str]) -> str:
        """Return the SQL predicate of some partition keys for a table."""
        from lance_dagster.partitioning.predicate import typed  # noqa: PLC0415 - it knows selections

        return typed(select_partitions(self.definition, keys, self.partition_expr), dataset.schema).sql()


def select_partitions(
    definition: dg.PartitionsDefinition, keys: Iterable[str], partition_expr: object
) -> PartitionSelection:
    """Return the selection of some partition keys.

    Args:
        definition: The asset's partitions.
        keys: Any of its keys, in any order; also none.
        partition_expr: Column name or SQL expression; with several dimensions a dict: dimension name -> such.

    Raises:
        InvalidInputError: If ``partition_expr`` does not fit the dimensions.
    """
    dimensions = dimension_definitions(definition)
    columns = columns_of(tuple(dimensions), partition_expr)
    # A plain str may stand for a key of several dimensions (range tags give such).
    by_key = {str(key): _parts(definition, tuple(dimensions), str(key)) for key in keys}
    ordered = tuple(sorted(by_key))
    parts = tuple(by_key[key] for key in ordered)

    def dimension(index: int, values: Iterable[str]) -> DimensionKeys:
        name = tuple(dimensions)[index]
        return DimensionKeys(column=columns[index], definition=dimensions[name], keys=tuple(sorted(values)))

    return PartitionSelection(
        keys=ordered,
        parts=parts,
        dimensions=tuple(dimension(i, {part[i] for part in parts}) for i in range(len(columns))),
        products=tuple(
            tuple(dimension(i, values) for i, values in enumerate(product)) for product in _products(frozenset(parts))
        ),
    )


def check_partition_expr(definition: dg.PartitionsDefinition, partition_expr: object) -> None:
    """Refuse a ``partition_expr`` that does not fit the dimensions of some partitions.

    Raises:
        InvalidInputError: It does not.
    """
    columns_of(tuple(dimension_definitions(definition)), partition_expr)


def dimension_definitions(definition: dg.PartitionsDefinition) -> dict[str, dg.PartitionsDefinition]:
    """Return the partitions of each dimension; the name of a single one is empty."""
    if isinstance(definition, dg.MultiPartitionsDefinition):
        return {dimension.name: dimension.partitions_def for dimension in definition.partitions_defs}
    return {"": definition}


def _parts(definition: dg.PartitionsDefinition, names: Sequence[str], key: str) -> tuple[str, ...]:
    if not isinstance(definition, dg.MultiPartitionsDefinition):
        return (key,)
    by_dimension = definition.get_partition_key_from_str(key).keys_by_dimension
    return tuple(by_dimension[name] for name in names)


def columns_of(names: tuple[str, ...], partition_expr: object) -> tuple[str, ...]:
    """Return the column of each dimension.

    Raises:
        InvalidInputError: ``partition_expr`` does not fit the dimensions.
    """
    if names == ("",):
        if isinstance(partition_expr, Mapping) and len(partition_expr) == 1:
            (partition_expr,) = partition_expr.values()
        if isinstance(partition_expr, str) and partition_expr:
            return (partition_expr,)
        wanted = "the column that holds the partition key (or an SQL expression)"
    else:
        if isinstance(partition_expr, Mapping) and set(partition_expr) == set(names):
            return tuple(str(partition_expr[name]) for name in names)
        wanted = f"a dict with a column (or an SQL expression) for each of the dimensions {', '.join(names)}"
    msg = f"A partitioned asset needs the metadata 'partition_expr': {wanted}; found {partition_expr!r}."
    raise InvalidInputError(msg)


def _products(parts: frozenset[tuple[str, ...]]) -> list[tuple[frozenset[str], ...]]:
    """Exact cover of a set of tuples by products of sets, one product if it is one."""
    if not parts:
        return []
    if len(next(iter(parts))) == 1:
        return [(frozenset(part[0] for part in parts),)]
    rest_of_first: dict[str, set[tuple[str, ...]]] = {}
    for first, *rest in parts:
        rest_of_first.setdefault(first, set()).add(tuple(rest))
    firsts_of_rest: dict[frozenset[tuple[str, ...]], set[str]] = {}
    for first, rest in rest_of_first.items():
        firsts_of_rest.setdefault(frozenset(rest), set()).add(first)
    ordered = sorted(firsts_of_rest.items(), key=lambda item: sorted(item[1]))
    return [(frozenset(firsts), *product) for rest, firsts in ordered for product in _products(rest)]
