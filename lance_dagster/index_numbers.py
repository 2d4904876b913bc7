"""Numbers about the indices of a table, as metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

if TYPE_CHECKING:
    import lance_core

_VECTOR_TYPES = ("IVF_FLAT", "IVF_PQ", "IVF_SQ", "IVF_HNSW")


def index_numbers(dataset: lance_core.LanceDataset) -> dict[str, Any]:
    """Return metadata about all indices of a table, from the manifest alone."""
    descriptions = dataset.describe_indices()
    num_rows = dataset.count_rows()
    lines = ["| index | type | rows not covered | coverage | segments | bytes |", "|---|---|---:|---:|---:|---:|"]
    uncovered: list[int] = []
    for index in descriptions:
        missing = num_rows - index.num_rows_indexed
        uncovered.append(missing)
        size = "" if index.total_size_bytes is None else f"{index.total_size_bytes:,}"
        share = index.num_rows_indexed / num_rows if num_rows else 1.0
        lines.append(
            f"| `{index.name}` | {index.index_type} | {missing:,} | {share:.1%} | {len(index.segments)} | {size} |"
        )
    if not descriptions:
        return {"lance/indices_count": 0, "lance/uncovered_rows": 0}
    return {
        "lance/indices_count": len(descriptions),
        "lance/uncovered_rows": max(uncovered),
        "lance/index_coverage": 1 - max(uncovered) / num_rows if num_rows else 1.0,
        "lance/index_segments": sum(len(index.segments) for index in descriptions),
        "lance/index_bytes": sum(index.total_size_bytes or 0 for index in descriptions),
        "lance/index_table": dg.MetadataValue.md("\n".join(lines)),
    }


def vector_index_numbers(dataset: lance_core.LanceDataset, column: str) -> dict[str, int | float]:
    """Return metadata about the vector index over a column: partitions, their imbalance, rows that it lacks.

    The imbalance is the size of the largest partition, divided by the mean: 1 if all are equal.
    """
    for index in dataset.describe_indices():
        if index.field_names == [column] and index.index_type.startswith(_VECTOR_TYPES):
            segments = dataset.index_statistics(index.name)["segments"]
            return {
                "lance/index_partitions": max(segment["num_partitions"] for segment in segments),
                "lance/index_imbalance": max(segment["imbalance"] for segment in segments),
                "lance/uncovered_rows": dataset.count_rows() - index.num_rows_indexed,
            }
    return {"lance/uncovered_rows": dataset.count_rows()}
