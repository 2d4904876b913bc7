"""Advice about partitions: too small, uneven, mixed in fragments, without a zone map; with the numbers behind it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import dagster as dg

import lance_core
from lance_dagster.identity import TOKEN
from lance_dagster.maintenance.indices import INDICES
from lance_dagster.partitioning.partition_counts import PartitionCounts, existing_keys, partition_counts
from lance_dagster.partitioning.partitions import columns_of, dimension_definitions
from lance_dagster.settings import PREFIX
from lance_dagster.units import bytes_text, count_text
from lance_dagster.versions.history import recent_properties

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_dagster.partitioning.partitions import TablePartitions

_LOOKBACK = 10
_MIN_FRAGMENTS = 8
_MANY_TOUCHED = 8
_MANY_PARTITIONS = 30
_SMALL_BYTES = 1 << 20
_LARGE_BYTES = 64 << 20
_UNEVEN = 10
_MIXED = 4
_HOUR, _DAY, _WEEK, _MONTH = 3600, 86400, 7 * 86400, 30 * 86400
_COARSER = ((_DAY, "daily"), (_WEEK, "weekly"), (_MONTH, "monthly"), (12 * _MONTH, "yearly"))
_ZONE_INDICES = frozenset({"zonemap", "btree", "bitmap", "bloomfilter"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSizes:
    """Sizes of the partitions that have rows, and how they lie in fragments.

    Args:
        partitions: Number of partitions.
        median_rows: Rows of a typical partition.
        median_bytes: Bytes of a typical partition, by its share of the rows of each fragment.
        largest: The partition with the most rows.
        largest_rows: Its rows.
        largest_bytes: Its bytes.
        total_rows: Rows of all partitions.
        fragments_per_partition: Mean number of fragments with rows of a partition.
        partitions_per_fragment: Mean number of partitions with rows in a fragment.
    """

    partitions: int
    median_rows: float
    median_bytes: float
    largest: str
    largest_rows: int
    largest_bytes: float
    total_rows: int
    fragments_per_partition: float
    partitions_per_fragment: float


def partition_sizes(dataset: lance_core.LanceDataset, counts: PartitionCounts) -> PartitionSizes | None:
    """Return the sizes of the partitions of a table; None if no partition has rows."""
    if not counts.rows:
        return None
    size: Counter[str] = Counter()
    files: dict[int, float] = {}
    for fragment in dataset.get_fragments():
        metadata = fragment.metadata
        files[metadata.id] = sum(file.file_size_bytes or 0 for file in metadata.files) / max(metadata.physical_rows, 1)
    for fragment, rows in counts.fragments.items():
        for key, number in rows.items():
            size[key] += round(number * files.get(fragment, 0.0))
    pairs = sum(len(rows) for rows in counts.fragments.values())
    largest = max(counts.rows, key=lambda key: counts.rows[key])
    return PartitionSizes(
        partitions=len(counts.rows),
        median_rows=median(counts.rows.values()),
        median_bytes=median(size.values()),
        largest=largest,
        largest_rows=counts.rows[largest],
        largest_bytes=size[largest],
        total_rows=sum(counts.rows.values()),
        fragments_per_partition=pairs / len(counts.rows),
        partitions_per_fragment=pairs / max(len(counts.fragments), 1),
    )


def measured_advice(
    dataset: lance_core.LanceDataset, partitions: TablePartitions, instance: dg.DagsterInstance
) -> list[str]:
    """Return advice by the sizes of partitions; reads the partition columns of all rows."""
    keys = existing_keys(partitions.definition, instance)
    counts = partition_counts(dataset, partitions.definition, partitions.partition_expr, keys=keys)
    sizes = partition_sizes(dataset, counts)
    advice = [] if sizes is None else size_advice(sizes, partitions)
    if counts.num_outside:
        rows = count_text(counts.num_outside, "row")
        advice.append(f"{rows} belong to no partition: the job of build_partition_change_job tells which")
    return advice


def size_advice(sizes: PartitionSizes, partitions: TablePartitions) -> list[str]:
    """Return advice by the sizes of partitions.

    Args:
        sizes: From `partition_sizes`.
        partitions: Partitions of the asset.
    """
    advice: list[str] = []
    if sizes.partitions >= _MANY_PARTITIONS and sizes.median_bytes < _SMALL_BYTES:
        text = (
            f"half of the {sizes.partitions:,} partitions have less than {bytes_text(sizes.median_bytes)} "
            f"({sizes.median_rows:,.0f} rows)"
        )
        coarser = _coarser(sizes, partitions.definition)
        if coarser is not None:
            name, factor = coarser
            text += f": {name} partitions would have about {bytes_text(sizes.median_bytes * factor)}"
        advice.append(text)
    if sizes.largest_rows > _UNEVEN * sizes.median_rows and sizes.largest_bytes > _LARGE_BYTES:
        advice.append(
            f"the partition {sizes.largest!r} has {sizes.largest_rows / sizes.total_rows:.0%} of the rows "
            f"({bytes_text(sizes.largest_bytes)}), {sizes.largest_rows / sizes.median_rows:,.0f} times the median: "
            "a second dimension would divide it"
        )
    if sizes.fragments_per_partition > _MIXED and sizes.partitions_per_fragment > _MIXED:
        order = ", ".join(_columns(partitions))
        advice.append(
            f"a partition lies in {sizes.fragments_per_partition:,.0f} fragments, each with rows of "
            f"{sizes.partitions_per_fragment:,.0f} partitions: write the table once in the order of {order}, or run "
            "the backfill in one run"
        )
    return advice


def manifest_advice(dataset: lance_core.LanceDataset, partitions: TablePartitions) -> list[str]:
    """Return advice by the manifest and the newest transactions: zone maps, and what replacing a partition touches."""
    fragments = len(dataset.get_fragments())
    indexed = {
        name
        for index in dataset.describe_indices()
        if index.index_type.lower().replace("_", "") in _ZONE_INDICES
        for name in index.field_names
    }
    advice = [
        f"`{column}` has no zone map: a read or a replacement of one partition looks at the column of all "
        f"{fragments:,} fragments; metadata '{PREFIX}{INDICES}': {{'{column}': 'ZONEMAP'}}"
        for column in _columns(partitions)
        if fragments >= _MIN_FRAGMENTS and column in dataset.schema.names and column not in indexed
    ]
    touched = fragments_touched(dataset)
    if touched and sum(touched) / len(touched) > _MANY_TOUCHED:
        mean = sum(touched) / len(touched)
        advice.append(
            f"the last {len(touched)} outputs replaced rows in {mean:,.0f} fragments each for a single partition: "
            f"write the table once in the order of {', '.join(_columns(partitions))}"
        )
    return advice


def fragments_touched(dataset: lance_core.LanceDataset) -> list[int]:
    """Return the number of fragments in which each of the newest outputs of a single partition replaced rows."""
    numbers: list[int] = []
    for version, properties in recent_properties(dataset, limit=_LOOKBACK):
        if TOKEN not in properties or properties.get("dagster/partition_count") != "1":
            continue
        transaction = dataset.read_transaction(version)
        operation = None if transaction is None else transaction.operation
        if isinstance(operation, lance_core.LanceOperation.Update):
            numbers.append(len(operation.updated_fragments) + len(operation.removed_fragment_ids))
    return numbers


def _columns(partitions: TablePartitions) -> Sequence[str]:
    return columns_of(tuple(dimension_definitions(partitions.definition)), partitions.partition_expr)


def _coarser(sizes: PartitionSizes, definition: dg.PartitionsDefinition) -> tuple[str, float] | None:
    """Return the finest coarser time windows with enough bytes, or the coarsest, and how many partitions they join."""
    times = [
        part
        for part in dimension_definitions(definition).values()
        if isinstance(part, dg.TimeWindowPartitionsDefinition)
    ]
    window = times[0].get_first_partition_window() if times else None
    if window is None:
        return None
    seconds = (window.end - window.start).total_seconds()
    choices = [(name, length / seconds) for length, name in _COARSER if length >= 2 * seconds]
    enough = [choice for choice in choices if sizes.median_bytes * choice[1] >= _SMALL_BYTES]
    return next(iter([*enough, *choices[-1:]]), None)
