"""Datasets: the public face of lance_core. Names, arguments and results follow pylance where it has them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lance_core.arguments import branch_reference, check_unsupported, point_in_time
from lance_core.branches import Branches
from lance_core.format.extensions import with_types
from lance_core.methods import (
    blobs,
    branching,
    changing,
    committing,
    evolving,
    files,
    history,
    indexing,
    maintaining,
    reading,
    settings,
    tracking,
)
from lance_core.stats import LanceStats
from lance_core.store.trust import PlaceSettings
from lance_core.table.evolution import next_field_id
from lance_core.table.open_files import OpenFiles
from lance_core.table.open_table import find_version_as_of, open_line, open_version
from lance_core.table.places import finds_same_files, with_settings
from lance_core.table.refs import resolve
from lance_core.table.snapshot import Snapshot, newest_version
from lance_core.table.statistics import table_statistics
from lance_core.tags import Tags

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping
    from datetime import datetime

    import pyarrow as pa

    from lance_core.format.schema import Schema
    from lance_core.optimize import DatasetOptimizer
    from lance_core.table.refs import Reference
    from lance_core.table.row_index import RowIndex


def dataset(
    uri: str | os.PathLike[str],
    version: Reference = None,
    asof: datetime | str | None = None,
    *,
    branch: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    **unsupported: Any,
) -> LanceDataset:
    """Open a dataset.

    Args:
        uri: Path or address of the dataset.
        version: Version number, tag, or tuple of branch (None: the main line) and number (None: the newest); the
            newest version if None.
        asof: The newest version committed before this point in time; without a time zone it is local time. Counts
            only without ``version``.
        branch: Branch to open; the same as ``version=(branch, version)``.
        storage_options: Settings of the storage service.
        base_store_params: Settings of other places that the table names, by address; an entry also allows the place
            and what lies below it.
        **unsupported: Arguments of pylance that lance_core does not have; they must be None.

    Raises:
        DatasetNotFoundError: There is no dataset.
        VersionNotFoundError: There is no such version.
        RefNotFoundError: There is no such tag.
    """
    check_unsupported("dataset", unsupported)
    reference = branch_reference(branch, version)
    line = open_line(uri, storage_options, base_store_params)
    if asof is not None and version is None:
        line, _ = resolve(line, reference)
        reference = find_version_as_of(line, point_in_time(asof))
    snapshot = open_version(line, reference)
    return LanceDataset(uri, storage_options=storage_options, base_store_params=base_store_params, snapshot=snapshot)


class LanceDataset:
    """One version of a dataset.

    Methods that change the dataset (`delete`, `replace_where`, `restore`, `optimize`) move this object to the version
    they made. Picklable: address, version and storage options travel, the manifest is read again.

    Args:
        uri: Path or address.
        version: As in `dataset`.
        storage_options: Settings of the storage service.
        base_store_params: Settings of other places that the table names, by address; an entry also allows the place
            and what lies below it.
        snapshot: The version, if it is open already.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        version: Reference = None,
        *,
        storage_options: Mapping[str, str] | None = None,
        base_store_params: Mapping[str, Mapping[str, str]] | None = None,
        snapshot: Snapshot | None = None,
    ) -> None:
        self.storage_options = dict(storage_options or {})
        self.base_store_params = {path: dict(options) for path, options in (base_store_params or {}).items()}
        if snapshot is None:
            snapshot = open_version(open_line(uri, storage_options, base_store_params), version)
        self.files = OpenFiles(snapshot.store)
        self.row_index: RowIndex | None = None
        self.snapshot = snapshot

    @property
    def snapshot(self) -> Snapshot:
        """The version this object is at."""
        return self._snapshot

    @snapshot.setter
    def snapshot(self, snapshot: Snapshot) -> None:
        settings = PlaceSettings(storage_options=self.storage_options, base_store_params=self.base_store_params)
        store = with_settings(snapshot.store, settings)
        self._snapshot = snapshot if store is snapshot.store else replace(snapshot, store=store)
        if not finds_same_files(self.files.store, self._snapshot.store):
            self.files = OpenFiles(self._snapshot.store)

    def __reduce__(self) -> tuple[object, ...]:
        return (_reopen, (self.uri, self.version, self.storage_options, self.base_store_params))

    def __repr__(self) -> str:
        return f"LanceDataset({self.uri!r}, version={self.version})"

    def __len__(self) -> int:
        """Rows."""
        return self.count_rows()

    # ------------------------------------------------------------------------------------------------ what it is

    @property
    def uri(self) -> str:
        """Absolute address."""
        return self.snapshot.store.uri

    @property
    def version(self) -> int:
        """Number of this version."""
        return self.snapshot.version

    @property
    def latest_version(self) -> int:
        """Number of the newest version there is now."""
        return newest_version(self.snapshot.store)

    @property
    def branch(self) -> str | None:
        """Branch this version is on; None for the main line. Not in pylance."""
        return self.snapshot.manifest.branch

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema."""
        return with_types(self.snapshot.manifest.schema.to_arrow())

    @property
    def lance_schema(self) -> Schema:
        """Fields with their ids."""
        return self.snapshot.manifest.schema

    @property
    def schema_metadata(self) -> dict[str, str]:
        """Free text in the Arrow schema."""
        return {key: value.decode() for key, value in self.lance_schema.metadata.items()}

    @property
    def max_field_id(self) -> int:
        """Highest id of a field in this version, in the schema or in data files; -1 if there is none."""
        return next_field_id(self.snapshot.manifest) - 1

    @property
    def has_index(self) -> bool:
        """True if there is an index of any kind."""
        return bool(self.list_indices())

    def fragment_ids(self) -> list[int]:
        """Ids of all fragments, ascending."""
        return sorted(self.snapshot.manifest.fragments.ids.tolist())

    @property
    def data_storage_version(self) -> str:
        """File version of new data files."""
        return self.snapshot.manifest.data_storage_version

    @property
    def has_stable_row_ids(self) -> bool:
        """True if rows have ids that survive compaction."""
        return self.snapshot.manifest.uses_stable_row_ids

    @property
    def metadata(self) -> dict[str, str]:
        """Free text about the table."""
        return dict(self.snapshot.manifest.table_metadata)

    def config(self) -> dict[str, str]:
        """Settings of the table."""
        return dict(self.snapshot.manifest.config)

    @property
    def initial_storage_options(self) -> dict[str, str] | None:
        """Settings of the storage service that it was opened with; None if there are none."""
        return dict(self.storage_options) or None

    def latest_storage_options(self) -> dict[str, str] | None:
        """Settings of the storage service; lance_core knows no service that changes them."""
        return self.initial_storage_options

    @property
    def stats(self) -> LanceStats:
        """Numbers about the data."""
        return LanceStats(self.snapshot)

    def table_statistics(self) -> dict[str, int]:
        """Numbers that the manifest alone tells.

        Returns:
            num_rows, num_deleted_rows, num_fragments, num_data_files, num_deletion_files, num_bytes (data files) and
            num_small_fragments (fewer than 1,048,576 rows).
        """
        return table_statistics(self.snapshot.manifest)

    def reopened(self, version: Reference = None) -> LanceDataset:
        """This dataset opened again, at a version, a tag or the newest version."""
        snapshot = open_version(self.snapshot.store, version)
        return LanceDataset(
            snapshot.store.uri,
            storage_options=self.storage_options,
            base_store_params=self.base_store_params,
            snapshot=snapshot,
        )

    # ------------------------------------------------------------------------------------------------- reading it

    scanner = reading.scanner
    to_batches = reading.to_batches
    to_table = reading.to_table
    to_pandas = reading.to_pandas
    to_reader = reading.to_reader
    __arrow_c_stream__ = reading.arrow_c_stream
    head = reading.head
    slice = reading.rows_between
    take = reading.take
    _take_rows = tracking.take_rows
    sample = reading.sample
    sql = reading.sql
    count_rows = reading.count_rows
    take_blobs = blobs.take_blobs
    read_blobs = blobs.read_blobs
    read_blob_ranges = blobs.read_blob_ranges
    get_fragments = reading.get_fragments
    get_fragment = reading.get_fragment

    # -------------------------------------------------------------------------------------------------- history

    versions = history.versions
    version_refs = history.version_refs
    get_version = history.get_version
    migrate_manifest_paths_v2 = history.migrate_manifest_paths_v2
    checkout_version = history.checkout_version
    checkout_latest = history.checkout_latest
    pinned = history.pinned
    restore = history.restore
    read_transaction = history.read_transaction
    get_transactions = history.get_transactions
    delta = tracking.delta

    @property
    def tags(self) -> Tags:
        """Names for versions; tagged versions survive clean-up."""
        return Tags(self.snapshot)

    # ------------------------------------------------------------------------------------- branches, clones, places

    @property
    def branches(self) -> Branches:
        """Lines of versions of their own."""
        return Branches(self.snapshot)

    create_branch = branching.create_branch
    shallow_clone = branching.shallow_clone
    deep_clone = branching.deep_clone
    base_paths = branching.base_paths
    add_bases = branching.add_bases

    # ------------------------------------------------------------------------------------------------- changing it

    insert = changing.insert
    delete = changing.delete
    truncate_table = changing.truncate_table
    replace_where = changing.replace_where
    update = changing.update
    merge_insert = changing.merge_insert
    add_columns = evolving.add_columns
    merge = evolving.merge
    alter_columns = evolving.alter_columns
    drop_columns = evolving.drop_columns
    replace_schema_metadata = evolving.replace_schema_metadata
    replace_field_metadata = evolving.replace_field_metadata
    update_field_metadata = evolving.update_field_metadata
    commit = staticmethod(committing.commit)
    commit_batch = staticmethod(committing.commit_batch)
    find_commit = committing.find_commit
    update_config = settings.update_config
    delete_config_keys = settings.delete_config_keys
    update_metadata = settings.update_metadata
    update_schema_metadata = settings.update_schema_metadata

    # --------------------------------------------------------------------------------------------------- indices

    create_scalar_index = indexing.create_scalar_index
    drop_index = indexing.drop_index
    list_indices = indexing.list_indices
    describe_indices = indexing.describe_indices
    index_statistics = indexing.index_statistics

    # ------------------------------------------------------------------------------------------------- maintenance

    @property
    def optimize(self) -> DatasetOptimizer:
        """Compaction."""
        from lance_core.optimize import DatasetOptimizer  # noqa: PLC0415 much, for those who maintain tables

        return DatasetOptimizer(self)

    cleanup_old_versions = maintaining.cleanup_old_versions
    explain_cleanup_old_versions = maintaining.explain_cleanup_old_versions
    verify = maintaining.verify
    validate = maintaining.validate
    all_files = files.all_files
    tracked_files = files.tracked_files
    drop = staticmethod(files.drop)


def _reopen(
    uri: str,
    version: int,
    storage_options: Mapping[str, str],
    base_store_params: Mapping[str, Mapping[str, str]],
) -> LanceDataset:
    return LanceDataset(uri, version, storage_options=storage_options, base_store_params=base_store_params)


def place_of(
    dataset: str | os.PathLike[str] | LanceDataset, storage_options: Mapping[str, str] | None
) -> tuple[str | os.PathLike[str], Mapping[str, str] | None]:
    """Address and storage options of what may be a dataset that is open already."""
    if isinstance(dataset, LanceDataset):
        return dataset.uri, storage_options or dataset.storage_options
    return dataset, storage_options


def base_params_of(
    dataset: str | os.PathLike[str] | LanceDataset, base_store_params: Mapping[str, Mapping[str, str]] | None
) -> Mapping[str, Mapping[str, str]] | None:
    """Settings for base paths of what may be a dataset that is open already."""
    if base_store_params is None and isinstance(dataset, LanceDataset):
        return dataset.base_store_params
    return base_store_params
