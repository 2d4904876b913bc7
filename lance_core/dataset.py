"""Datasets: the public face of lance_core. Names, arguments and results follow pylance where it has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from lance_core.common.frozen import replace
from lance_core.common.late_module import LateMethods
from lance_core.common.unsupported import late_names, refuse_given, with_refused
from lance_core.format.extensions import with_types
from lance_core.methods import reading
from lance_core.methods.arguments import branch_reference, point_in_time
from lance_core.scan.open_files import OpenFiles
from lance_core.scanner import check_default_options
from lance_core.schema import LanceSchema
from lance_core.store.trust import PlaceSettings
from lance_core.table.locations import finds_same_files, with_settings
from lance_core.table.open_table import find_version_as_of, open_branch, open_version
from lance_core.table.refs import resolve
from lance_core.table.snapshot import Snapshot, newest_version
from lance_core.table.statistics import table_statistics
from lance_core.values.session import Session
from lance_core.values.table_id import find_table

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    import pyarrow as pa

    from lance_core.branches import Branches
    from lance_core.change.row_index import RowIndex
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
        settings,
        tracking,
        writing,
    )
    from lance_core.optimize import DatasetOptimizer
    from lance_core.table.commit_lock import CommitLock
    from lance_core.table.refs import Reference
    from lance_core.tags import Tags
    from lance_core.values.stats import LanceStats
else:
    # Who opens and reads a table imports nothing of what changes it: a third of the modules.
    blobs = LateMethods("lance_core.methods.blobs")
    branching = LateMethods("lance_core.methods.branching")
    changing = LateMethods("lance_core.methods.changing")
    committing = LateMethods("lance_core.methods.committing")
    evolving = LateMethods("lance_core.methods.evolving")
    files = LateMethods("lance_core.methods.files")
    history = LateMethods("lance_core.methods.history")
    indexing = LateMethods("lance_core.methods.indexing")
    maintaining = LateMethods("lance_core.methods.maintaining")
    settings = LateMethods("lance_core.methods.settings")
    tracking = LateMethods("lance_core.methods.tracking")
    writing = LateMethods("lance_core.methods.writing")


def dataset(  # noqa: PLR0917 positional as in pylance
    uri: str | os.PathLike[str] | None = None,
    version: Reference = None,
    asof: datetime | str | None = None,
    block_size: int | None = None,
    commit_lock: CommitLock | None = None,
    index_cache_size: int | None = None,
    storage_options: Mapping[str, str] | None = None,
    default_scan_options: Mapping[str, Any] | None = None,
    metadata_cache_size_bytes: int | None = None,
    index_cache_size_bytes: int | None = None,
    read_params: Mapping[str, Any] | None = None,
    session: Session | None = None,
    namespace_client: Any = None,
    table_id: Sequence[str] | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    *,
    branch: str | None = None,
) -> LanceDataset:
    """Open a dataset.

    Args:
        uri: Path or address of the dataset.
        version: Version number, tag, or tuple of branch (None: the main branch) and number (None: the newest); the
            newest version if None.
        asof: The newest version committed before this point in time; without a time zone it is local time. Counts
            only without ``version``.
        block_size: Accepted; it would make no difference, like the sizes of caches.
        commit_lock: Called with the number of a version before its manifest is created; the context manager that it
            returns is held meanwhile. Every change made through this object asks for it.
        index_cache_size: Accepted.
        storage_options: Settings of the storage service.
        default_scan_options: Arguments of `LanceDataset.scanner` that count where a scan does not give them.
        metadata_cache_size_bytes: Accepted.
        index_cache_size_bytes: Accepted.
        read_params: Not supported.
        session: Accepted, see `lance_core.Session`.
        namespace_client: A `lance_namespace.LanceNamespace` that knows the address, such as
            `lance_core.namespace.DirectoryNamespace`; instead of ``uri``. Needs the extra ``namespace``.
        table_id: Names of the namespaces from the root, and that of the table.
        base_store_params: Settings of other places that the table names, by address; an entry also allows the place
            and what lies below it.
        branch: Branch to open; the same as ``version=(branch, version)``. Not in pylance.

    Raises:
        DatasetNotFoundError: There is no dataset.
        VersionNotFoundError: There is no such version.
        RefNotFoundError: There is no such tag.

    Examples:
        >>> lance_core.dataset("cities.lance").count_rows()
        4
        >>> lance_core.dataset("cities.lance", version=1).version
        1
    """
    del block_size, index_cache_size, metadata_cache_size_bytes, index_cache_size_bytes  # nothing depends on them
    if read_params is not None:
        refuse_given("dataset", read_params=read_params)
    if uri is None or namespace_client is not None or table_id is not None:
        uri, storage_options = find_table(uri, namespace_client, table_id, storage_options)
    reference = branch_reference(branch, version)
    branch_root = open_branch(uri, storage_options, base_store_params)
    if asof is not None and version is None:
        branch_root, _ = resolve(branch_root, reference)
        reference = find_version_as_of(branch_root, point_in_time(asof))
    return LanceDataset(
        uri,
        commit_lock=commit_lock,
        storage_options=storage_options,
        default_scan_options=default_scan_options,
        session=session,
        base_store_params=base_store_params,
        snapshot=open_version(branch_root, reference),
    )


@with_refused
class LanceDataset:
    """One version of a dataset.

    Methods that change the dataset (`delete`, `replace_where`, `restore`, `optimize`) move this object to the version
    they made. Picklable: address, version and storage options travel, the manifest is read again.

    Args:
        uri: Path or address.
        version: As in `dataset`, like all arguments that are not listed here.
        metadata_cache_size: Accepted.
        serialized_manifest: Not supported, like ``read_params``.
        namespace_client: Not supported, like ``table_id`` and ``namespace_client_managed_versioning``: `dataset` and
            `write_dataset` take tables of namespaces.
        snapshot: The version, if it is open already. Not in pylance.
    """

    def __init__(  # noqa: PLR0917 positional as in pylance
        self,
        uri: str | os.PathLike[str],
        version: Reference = None,
        block_size: int | None = None,
        index_cache_size: int | None = None,
        metadata_cache_size: int | None = None,
        commit_lock: CommitLock | None = None,
        storage_options: Mapping[str, str] | None = None,
        serialized_manifest: bytes | None = None,
        default_scan_options: Mapping[str, Any] | None = None,
        metadata_cache_size_bytes: int | None = None,
        index_cache_size_bytes: int | None = None,
        read_params: Mapping[str, Any] | None = None,
        session: Session | None = None,
        namespace_client: Any = None,
        table_id: Sequence[str] | None = None,
        namespace_client_managed_versioning: bool = False,
        base_store_params: Mapping[str, Mapping[str, str]] | None = None,
        *,
        snapshot: Snapshot | None = None,
    ) -> None:
        del block_size, index_cache_size, metadata_cache_size, metadata_cache_size_bytes, index_cache_size_bytes
        refuse_given(
            "LanceDataset",
            serialized_manifest=serialized_manifest,
            read_params=read_params,
            namespace_client=namespace_client,
            table_id=table_id,
            namespace_client_managed_versioning=namespace_client_managed_versioning,
        )
        self.storage_options = dict(storage_options or {})
        self.base_store_params = {path: dict(options) for path, options in (base_store_params or {}).items()}
        self.default_scan_options = check_default_options(default_scan_options)
        self.commit_lock = commit_lock
        self._session = session
        if snapshot is None:
            snapshot = open_version(open_branch(uri, storage_options, base_store_params), version)
        self.files = OpenFiles(snapshot.store)
        self.row_index: RowIndex | None = None
        self.snapshot = snapshot

    @property
    def snapshot(self) -> Snapshot:
        """The version this object is at."""
        return self._snapshot

    @snapshot.setter
    def snapshot(self, snapshot: Snapshot) -> None:
        if self.storage_options or self.base_store_params or self.commit_lock is not None:
            settings = PlaceSettings(storage_options=self.storage_options, base_store_params=self.base_store_params)
            store = with_settings(snapshot.store, settings, self.commit_lock)
            snapshot = snapshot if store is snapshot.store else replace(snapshot, store=store)
        self._snapshot = snapshot
        if not finds_same_files(self.files.store, self._snapshot.store):
            self.files = OpenFiles(self._snapshot.store)

    def __reduce__(self) -> tuple[object, ...]:
        return (_reopen, (self.uri, self.version, self._settings()))

    def _settings(self) -> dict[str, Any]:
        """Return the settings that other objects for this dataset are opened with; sessions stay in their process."""
        return {
            "commit_lock": self.commit_lock,
            "storage_options": self.storage_options,
            "default_scan_options": self.default_scan_options,
            "base_store_params": self.base_store_params,
        }

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
        """Branch this version is on; None for the main branch. Not in pylance."""
        return self.snapshot.manifest.branch

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema."""
        return with_types(self.snapshot.manifest.schema.to_arrow())

    @property
    def lance_schema(self) -> LanceSchema:
        """Fields with their ids."""
        return LanceSchema(self.snapshot.manifest.schema)

    @property
    def schema_metadata(self) -> dict[str, str]:
        """Free text in the Arrow schema."""
        return {key: value.decode() for key, value in self.snapshot.manifest.schema.metadata.items()}

    @property
    def max_field_id(self) -> int:
        """Highest id of a field in this version, in the schema or in data files; -1 if there is none."""
        from lance_core.change.evolution import next_field_id  # noqa: PLC0415 few need it

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
        from lance_core.values.stats import LanceStats  # noqa: PLC0415 few need it

        return LanceStats(self.snapshot, self.files)

    def table_statistics(self) -> dict[str, int]:
        """Numbers that the manifest alone tells.

        Returns:
            num_rows, num_deleted_rows, num_fragments, num_data_files, num_deletion_files, num_bytes (data files) and
            num_small_fragments (fewer than 1,048,576 rows).
        """
        return table_statistics(self.snapshot.manifest)

    def reopened(self, version: Reference = None) -> Self:
        """This dataset opened again, at a version, a tag or the newest version."""
        snapshot = open_version(self.snapshot.store, version)
        return type(self)(snapshot.store.uri, session=self._session, snapshot=snapshot, **self._settings())

    def session(self) -> Session:
        """Return the session that it was opened with; one of its own if there was none."""
        self._session = self._session or Session()
        return self._session

    # ------------------------------------------------------------------------------------------------- reading it

    scanner = reading.scanner
    to_batches = reading.to_batches
    to_table = reading.to_table
    to_pandas = reading.to_pandas
    to_reader = reading.to_reader
    to_arrow_dataset = reading.to_arrow_dataset
    __arrow_c_stream__ = reading.arrow_c_stream
    head = reading.head
    slice = reading.slice_rows
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
        from lance_core.tags import Tags  # noqa: PLC0415 few need it

        return Tags(self.snapshot)

    # ------------------------------------------------------------------------------------- branches, clones, places

    @property
    def branches(self) -> Branches:
        """Branches: independent histories that share files."""
        from lance_core.branches import Branches  # noqa: PLC0415 few need it

        return Branches(self.snapshot)

    create_branch = branching.create_branch
    shallow_clone = branching.shallow_clone
    deep_clone = branching.deep_clone
    base_paths = branching.base_paths
    add_bases = branching.add_bases

    # ------------------------------------------------------------------------------------------------- changing it

    insert = writing.insert
    delete = changing.delete
    truncate_table = changing.truncate_table
    replace_where = changing.replace_where
    update = changing.update
    merge_insert = changing.merge_insert
    add_columns = evolving.add_columns
    merge = evolving.merge
    alter_columns = evolving.alter_columns
    drop_columns = evolving.drop_columns
    replace_schema_metadata = settings.replace_schema_metadata
    replace_field_metadata = settings.replace_field_metadata
    update_field_metadata = settings.update_field_metadata
    write_dataset = classmethod(writing.write_dataset)
    commit = classmethod(committing.commit)
    commit_batch = classmethod(committing.commit_batch)
    find_commit = committing.find_commit
    update_config = settings.update_config
    delete_config_keys = settings.delete_config_keys
    update_metadata = settings.update_metadata
    update_schema_metadata = settings.update_schema_metadata

    # --------------------------------------------------------------------------------------------------- indices

    create_scalar_index = indexing.create_scalar_index
    create_index = indexing.create_index
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


def _reopen(uri: str, version: int, settings: Mapping[str, Any]) -> LanceDataset:
    return LanceDataset(uri, version, **settings)


__getattr__ = late_names(
    __name__,
    {
        "AlterColumn": "lance_core.values.results",
        "AutoCleanupConfig": "lance_core.values.results",
        "Branch": "lance_core.values.results",
        "Branches": "lance_core.branches",
        "BulkCommitResult": "lance_core.values.results",
        "ColumnOrdering": "lance_core.scan.ordering",
        "DEFAULT_BLOB_BUFFER_SIZE": "lance_core.blob",
        "DataStatistics": "lance_core.values.stats",
        "DatasetDelta": "lance_core.delta",
        "DatasetOptimizer": "lance_core.optimize",
        "DatasetStats": "lance_core.values.results",
        "DeleteResult": "lance_core.values.results",
        "ExecuteResult": "lance_core.values.results",
        "FieldStatistics": "lance_core.values.stats",
        "Index": "lance_core.values.index_entries",
        "IndexFile": "lance_core.values.index_entries",
        "IndexInformation": "lance_core.values.results",
        "LANCE_COMMIT_MESSAGE_KEY": "lance_core.format.table.transaction:COMMIT_MESSAGE_KEY",
        "LanceOperation": "lance_core.values.operations",
        "LanceScanner": "lance_core.scanner",
        "LanceStats": "lance_core.values.stats",
        "MergeInsertBuilder": "lance_core.merge_insert",
        "ScannerBuilder": "lance_core.scanner",
        "SqlQuery": "lance_core.methods.sql_query",
        "SqlQueryBuilder": "lance_core.methods.sql_query",
        "Tag": "lance_core.values.results",
        "Tags": "lance_core.tags",
        "Transaction": "lance_core.values.operations",
        "UpdateResult": "lance_core.values.results",
        "Version": "lance_core.values.results",
        "VersionRef": "lance_core.values.results",
        "write_dataset": "lance_core.write",
    },
)
