"""Dicts that methods take and return, by their names in pylance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    import pyarrow as pa

    from lance_core.dataset import LanceDataset
    from lance_core.values.operations import Transaction


class Version(TypedDict):
    """An entry of `LanceDataset.versions`; the timestamp is local time without a time zone."""

    version: int
    timestamp: datetime
    metadata: dict[str, str]


class VersionRef(TypedDict):
    """An entry of `LanceDataset.version_refs`."""

    version: int


class Tag(TypedDict):
    """A value of `Tags.list`."""

    branch: str | None
    version: int
    created_at: datetime | None
    updated_at: datetime | None
    manifest_size: int
    metadata: dict[str, str]


class Branch(TypedDict):
    """A value of `Branches.list`; ``create_at`` is in Unix seconds."""

    parent_branch: str | None
    branch_identifier: list[Any]
    parent_version: int
    create_at: int
    manifest_size: int
    metadata: dict[str, str]


class IndexInformation(TypedDict):
    """An entry of `LanceDataset.list_indices`."""

    name: str
    type: str
    uuid: str
    fields: list[str]
    version: int
    fragment_ids: AbstractSet[int]
    base_id: int | None


class DatasetStats(TypedDict):
    """Result of `LanceStats.dataset_stats`."""

    num_deleted_rows: int
    num_fragments: int
    num_small_files: int


class DeleteResult(TypedDict):
    """Result of `LanceDataset.delete`."""

    num_deleted_rows: int


class UpdateResult(TypedDict):
    """Result of `LanceDataset.update`."""

    num_rows_updated: int


class ExecuteResult(TypedDict):
    """Result of `MergeInsertBuilder.execute`."""

    num_inserted_rows: int
    num_updated_rows: int
    num_deleted_rows: int


class BulkCommitResult(TypedDict):
    """Result of `LanceDataset.commit_batch`."""

    dataset: LanceDataset
    merged: Transaction


class AlterColumn(TypedDict, total=False):
    """An alteration of `LanceDataset.alter_columns`; all but ``path`` may be missing."""

    path: str
    name: str | None
    nullable: bool | None
    data_type: pa.DataType | None


class AutoCleanupConfig(TypedDict):
    """Argument of `write_dataset` and `DatasetOptimizer.enable_auto_cleanup`: commits, and age in seconds."""

    interval: int
    older_than_seconds: int
