"""Facts about a table as rows for Spark: its history, files, tags and branches."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from lance_core.format.table.transaction import COMMIT_MESSAGE_KEY
from lance_core.table.statistics import table_statistics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_core.dataset import LanceDataset

    Row = tuple[Any, ...]

HISTORY = (
    "version bigint not null, timestamp timestamp, operation string, read_version bigint, commit_message string, "
    "properties map<string, string>, metrics map<string, string>"
)
DETAIL = (
    "format string not null, location string not null, branch string, version bigint not null, timestamp timestamp, "
    "num_rows bigint, num_deleted_rows bigint, num_fragments bigint, num_files bigint, size_in_bytes bigint, "
    "data_storage_version string, has_stable_row_ids boolean, config map<string, string>, "
    "metadata map<string, string>"
)
FILES = (
    "fragment_id bigint not null, path string not null, columns array<string>, num_rows bigint, "
    "num_deleted_rows bigint, size_in_bytes bigint, data_storage_version string"
)
TAGS = "tag string not null, version bigint not null, branch string, created_at timestamp, metadata map<string, string>"
BRANCHES = "branch string not null, parent_branch string, parent_version bigint, created_at timestamp"
INDICES = (
    "index string not null, index_type string, columns array<string>, num_rows bigint, num_unindexed_rows bigint, "
    "size_in_bytes bigint"
)
"""Schemas, in Spark's words."""


def history_rows(dataset: LanceDataset, limit: int | None) -> Iterator[Row]:
    """Versions of a branch, the newest first, at most as many as the limit."""
    versions = dataset.versions()
    numbers = range(len(versions) - 1, -1, -1)
    for number in numbers if limit is None else numbers[:limit]:
        entry = versions[number]
        transaction = dataset.read_transaction(entry["version"])
        properties: dict[str, str] = {} if transaction is None else dict(transaction.transaction_properties or {})
        yield (
            entry["version"],
            entry["timestamp"].astimezone(UTC),
            None if transaction is None else type(transaction.operation).__name__,
            None if transaction is None else transaction.read_version,
            properties.pop(COMMIT_MESSAGE_KEY, None),
            properties,
            entry["metadata"],
        )


def detail_row(dataset: LanceDataset) -> Row:
    """Return the newest version, and what it holds."""
    manifest = dataset.snapshot.manifest
    numbers = table_statistics(manifest)
    return (
        "lance",
        dataset.uri,
        dataset.branch,
        dataset.version,
        manifest.timestamp,
        numbers["num_rows"],
        numbers["num_deleted_rows"],
        numbers["num_fragments"],
        numbers["num_data_files"],
        numbers["num_bytes"],
        dataset.data_storage_version,
        dataset.has_stable_row_ids,
        dict(dataset.config()),
        dict(dataset.metadata),
    )


def file_rows(dataset: LanceDataset) -> Iterator[Row]:
    """Data files of the newest version; those of one fragment hold different columns of the same rows."""
    manifest = dataset.snapshot.manifest
    owners = {inner.id: field.name for field in manifest.schema.fields for inner in field.walk()}
    for fragment in manifest.fragments:
        for file in fragment.files:
            yield (
                fragment.id,
                file.path,
                list(dict.fromkeys(owners[number] for number in file.fields if number in owners)),
                fragment.physical_rows,
                fragment.physical_rows - fragment.num_rows,
                file.file_size_bytes,
                f"{file.file_major_version}.{file.file_minor_version}",
            )


def tag_rows(dataset: LanceDataset) -> Iterator[Row]:
    """Tags of all branches."""
    for name, tag in dataset.tags.list().items():
        yield name, tag["version"], tag["branch"], tag["created_at"], tag["metadata"]


def branch_rows(dataset: LanceDataset) -> Iterator[Row]:
    """Branches besides the main one."""
    for name, branch in dataset.branches.list().items():
        created = datetime.fromtimestamp(branch["create_at"], UTC)
        yield name, branch["parent_branch"], branch["parent_version"], created


def index_rows(dataset: LanceDataset) -> Iterator[Row]:
    """Indices of the newest version, and how many rows they cover."""
    num_rows = dataset.snapshot.manifest.num_rows
    for index in dataset.describe_indices():
        covered = index.num_rows_indexed
        yield index.name, index.index_type, index.field_names, covered, num_rows - covered, index.total_size_bytes
