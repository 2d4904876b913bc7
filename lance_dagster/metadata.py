"""Metadata of a materialization: keys and values for Dagster's event log.

``dagster/...`` keys are those that Dagster's UI knows. ``lance/...`` numbers are numbers, so that the UI plots them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import dagster as dg

from lance_core.errors import VersionNotFoundError
from lance_dagster.column_schema import table_schema
from lance_dagster.units import bytes_text, count_text, seconds_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    import lance_core
    from lance_dagster.write import Outcome

STORAGE_KIND = "lance"
REPORTED_KEYS = frozenset(
    f"lance/{name}"
    for name in """
    advice age_seconds attempts branch bytes_planned bytes_reclaimed bytes_written changed_at column_lineage
    commit_retries
    committed_at data_files data_files_removed deleted_fraction deleted_rows deletion_files details engine
    files_added files_checked files_planned files_removed files_written first_problems fragments fragments_added
    fragments_planned fragments_removed fragments_to_merge fragments_touched
    grace_seconds health idempotent_replay index_bytes
    index_coverage index_failures index_imbalance index_partitions index_reason index_segments index_table
    indices_count inputs maintained_table maintenance needs operation orphans partition_plan partition_scheme partitions
    placeholder_for preview
    problems published_from read_version reason recall rolled_back rows rows_deleted rows_written run_tags_expired
    run_tags_planned schedule seconds skipped small_fragments steps summary table table_bytes tables tables_changed
    tables_failed tables_in_need tag tags tasks total_fragments total_table_bytes total_versions transaction
    uncovered_rows unindexed_rows version version_made versions versions_checked versions_cleaned_up versions_held
    versions_in_use versions_kept versions_planned versions_removed wiped write_seconds wrong_indices
    """.split()  # noqa: SIM905 - as a list it would fill a page
)
"""All metadata keys with the prefix ``lance/`` that lance_dagster writes, here and elsewhere."""
TABLE_LINK = "lance/maintained_table"
"""Key of the link from maintenance to the table."""
MAINTENANCE_LINK = "lance/maintenance"
"""Key of the links from a table to what maintains it."""

_FIRST = (
    "lance/summary",
    "lance/reason",
    "lance/schedule",
    "lance/steps",
    "dagster/row_count",
    "dagster/partition_row_count",
    "lance/rows_written",
    "lance/rows_deleted",
    "lance/table_bytes",
    "lance/bytes_written",
    "lance/bytes_reclaimed",
    "lance/fragments",
    "lance/write_seconds",
    "lance/seconds",
    "lance/version",
    "lance/operation",
)
"""Metadata that come first, in this order."""
_RARE = ("small_fragments", "files_written", "files_added", "files_removed", "fragments_touched", "grace_seconds")
_DETAILS = "lance/details"
_MAX_TEXT = 200


def storage_metadata(asset_key: dg.AssetKey, uri: str) -> dict[str, Any]:
    """Return the location of the table for the Storage panel of the UI, which reads it from the definition."""
    return {
        "dagster/table_name": ".".join(asset_key.path),
        "dagster/uri": uri,
        "dagster/storage_kind": STORAGE_KIND,
    }


def table_numbers(dataset: lance_core.LanceDataset) -> dict[str, int | float]:
    """Numbers of one version, by metadata key (``lance/...``); nothing but the manifest is read."""
    numbers = dataset.table_statistics()
    physical_rows = numbers["num_rows"] + numbers["num_deleted_rows"]
    return {
        "lance/fragments": numbers["num_fragments"],
        "lance/small_fragments": numbers["num_small_fragments"],
        "lance/data_files": numbers["num_data_files"],
        "lance/deletion_files": numbers["num_deletion_files"],
        "lance/deleted_rows": numbers["num_deleted_rows"],
        "lance/deleted_fraction": round(numbers["num_deleted_rows"] / physical_rows, 6) if physical_rows else 0.0,
        "lance/table_bytes": numbers["num_bytes"],
    }


def written_numbers(dataset: lance_core.LanceDataset) -> dict[str, int]:
    """Rows, files and bytes that the commit of this version added, by metadata key."""
    transaction = dataset.read_transaction(dataset.version)
    operation = None if transaction is None else transaction.operation
    fragments = getattr(operation, "new_fragments", None) or getattr(operation, "fragments", ())
    return {
        "lance/rows_written": sum(fragment.physical_rows for fragment in fragments),
        "lance/files_written": sum(len(fragment.files) for fragment in fragments),
        "lance/bytes_written": sum(file.file_size_bytes or 0 for fragment in fragments for file in fragment.files),
    }


def change_numbers(dataset: lance_core.LanceDataset, *, rows_written: int) -> dict[str, int]:
    """Return the numbers of what the commit of this version removed, and of the commits in between, by metadata key."""
    transaction = dataset.read_transaction(dataset.version)
    try:
        before = dataset.checkout_version(dataset.version - 1).count_rows() if dataset.version > 1 else 0
    except VersionNotFoundError:  # cleaned up
        return {}
    read_version = 0 if transaction is None else transaction.read_version
    operation = None if transaction is None else transaction.operation
    touched = [getattr(operation, name, ()) for name in ("updated_fragments", "removed_fragment_ids")]
    return {
        "lance/fragments_touched": sum(map(len, touched)),
        "lance/rows_deleted": before + rows_written - dataset.count_rows(),
        "lance/commit_retries": max(dataset.version - read_version - 1, 0) if read_version else 0,
    }


def write_metadata(
    dataset: lance_core.LanceDataset,
    outcome: Outcome,
    *,
    tag: str | None,
    inputs: Mapping[str, int],
    declared: dg.TableSchema | None,
) -> dict[str, Any]:
    """Metadata of one write.

    Args:
        dataset: The table at the version that was made.
        outcome: The write.
        tag: Tag of the version, if one was made.
        inputs: Versions read in this step, by asset key.
        declared: Column schema of the asset's definition, or None.
    """
    metadata: dict[str, Any] = {
        "dagster/row_count": dataset.count_rows(),
        "dagster/column_schema": table_schema(dataset.schema, declared=declared),
        "lance/operation": outcome.operation,
        "lance/version": outcome.version,
        **table_numbers(dataset),
        "lance/write_seconds": round(outcome.seconds, 3),
    }
    if dataset.branch is not None:
        metadata["lance/branch"] = dataset.branch
    if outcome.is_commit:
        written = written_numbers(dataset)
        metadata |= written | change_numbers(dataset, rows_written=written["lance/rows_written"])
    if outcome.operation == "replay":
        metadata["lance/idempotent_replay"] = True
    if outcome.operation == "skip":
        metadata["lance/skipped"] = True
    if tag is not None:
        metadata["lance/tag"] = tag
    if inputs:
        metadata["lance/inputs"] = dg.MetadataValue.json(dict(inputs))
    return {"lance/summary": write_summary(metadata), **metadata}


def readable(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Put what people look for first, and what they rarely need into one entry, ``lance/details``, with units."""
    rare = {key: value for key, value in metadata.items() if _is_rare(key)}
    first = {key: metadata[key] for key in _FIRST if key in metadata}
    others = {
        key: metadata[key] for key in sorted(metadata, key=_is_of_dagster) if key not in first and key not in rare
    }
    details = {_DETAILS: dg.MetadataValue.md(_table_of(rare))} if rare else {}
    return {**first, **others, **details}


def _is_of_dagster(key: str) -> bool:
    """Return whether the UI has a place of its own for a key; in the table of metadata it only takes room."""
    return key.startswith("dagster/")


def _is_rare(key: str) -> bool:
    return key.removeprefix("lance/").removesuffix("_before") in _RARE


def _table_of(metadata: Mapping[str, Any]) -> str:
    lines = [
        f"| {key.removeprefix('lance/').replace('_', ' ')} | {readable_value(key, value)} |"
        for key, value in metadata.items()
    ]
    return "\n".join(["| | |", "|---|---:|", *lines])


def readable_value(key: str, value: Any) -> str:
    """Return a number with its unit, which the key tells."""
    name = key.removesuffix("_before")
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return str(value)
    if "bytes" in name:
        return bytes_text(value)
    if name.endswith("seconds"):
        return seconds_text(value)
    return f"{value:.1%}" if name.endswith("fraction") else f"{value:,}"


def write_summary(metadata: Mapping[str, Any]) -> str:
    """Return one line about a write: what was written, in what time, and what the table holds now."""
    rows, fragments = metadata["dagster/row_count"], metadata["lance/fragments"]
    size = bytes_text(metadata["lance/table_bytes"])
    holds = f"{count_text(rows, 'row')} in {count_text(fragments, 'fragment')}, {size}"
    if "lance/rows_written" not in metadata:
        return f"nothing written; the table holds {holds}"
    written = f"{count_text(metadata['lance/rows_written'], 'row')} ({bytes_text(metadata['lance/bytes_written'])})"
    return f"{written} written in {seconds_text(metadata['lance/write_seconds'])}; the table holds {holds}"


def preview(table: pa.Table) -> dg.TableMetadataValue:
    """Return a few rows as a table for people; long values are cut."""
    records = [dg.TableRecord({name: _shown(value) for name, value in row.items()}) for row in table.to_pylist()]
    return dg.MetadataValue.table(records, schema=table_schema(table.schema))


def _shown(value: Any) -> str | int | float | bool | None:
    if value is None or isinstance(value, (bool, int, float)):
        return value
    text = json.dumps(value, default=str) if isinstance(value, (dict, list, tuple)) else str(value)
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}..."
