"""Datasets: the public face of lance_core. Names, arguments and results follow pylance where it has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_core.arguments import check_unsupported
from lance_core.methods import blobs, changing, committing, evolving, history, maintaining, reading, settings
from lance_core.optimize import DatasetOptimizer
from lance_core.stats import LanceStats
from lance_core.store.open import open_store
from lance_core.table.open_files import OpenFiles
from lance_core.table.refs import get_tag
from lance_core.table.snapshot import Snapshot, find_newest, open_snapshot
from lance_core.table.statistics import table_statistics
from lance_core.tags import Tags

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    import pyarrow as pa

    from lance_core.format.schema import Schema


def dataset(
    uri: str | os.PathLike[str],
    version: int | str | None = None,
    *,
    storage_options: Mapping[str, str] | None = None,
    **unsupported: Any,
) -> LanceDataset:
    """Open a dataset.

    Args:
        uri: Path or address of the dataset.
        version: Version number or tag; the newest version if None.
        storage_options: Settings of the storage service.
        **unsupported: Arguments of pylance that lance_core does not have; they must be None.

    Raises:
        DatasetNotFoundError: There is no dataset.
        VersionNotFoundError: There is no such version.
        RefNotFoundError: There is no such tag.
    """
    check_unsupported("dataset", unsupported)
    return LanceDataset(uri, version, storage_options=storage_options)


class LanceDataset:
    """One version of a dataset.

    Methods that change the dataset (`delete`, `replace_where`, `restore`, `optimize`) move this object to the version
    they made. Picklable: address, version and storage options travel, the manifest is read again.

    Args:
        uri: Path or address.
        version: Version number or tag; the newest version if None.
        storage_options: Settings of the storage service.
        snapshot: The version, if it is open already.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        version: int | str | None = None,
        *,
        storage_options: Mapping[str, str] | None = None,
        snapshot: Snapshot | None = None,
    ) -> None:
        self.storage_options = dict(storage_options or {})
        if snapshot is None:
            store = open_store(uri, storage_options)
            number = get_tag(store, version).version if isinstance(version, str) else version
            snapshot = open_snapshot(store, number)
        self.snapshot = snapshot
        self.files = OpenFiles(snapshot.store)

    def __reduce__(self) -> tuple[object, ...]:
        return (_reopen, (self.uri, self.version, self.storage_options))

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
        return find_newest(self.snapshot.store).numbers[-1]

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema."""
        return self.snapshot.manifest.schema.to_arrow()

    @property
    def lance_schema(self) -> Schema:
        """Fields with their ids."""
        return self.snapshot.manifest.schema

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

    def reopened(self, version: int | str | None = None) -> LanceDataset:
        """This dataset opened again, at a version, a tag or the newest version."""
        return LanceDataset(self.uri, version, storage_options=self.storage_options)

    # ------------------------------------------------------------------------------------------------- reading it

    to_batches = reading.to_batches
    to_table = reading.to_table
    to_pandas = reading.to_pandas
    head = reading.head
    take = reading.take
    count_rows = reading.count_rows
    take_blobs = blobs.take_blobs
    read_blobs = blobs.read_blobs
    read_blob_ranges = blobs.read_blob_ranges
    get_fragments = reading.get_fragments
    get_fragment = reading.get_fragment

    # -------------------------------------------------------------------------------------------------- history

    versions = history.versions
    checkout_version = history.checkout_version
    checkout_latest = history.checkout_latest
    restore = history.restore
    read_transaction = history.read_transaction
    get_transactions = history.get_transactions

    @property
    def tags(self) -> Tags:
        """Names for versions; tagged versions survive clean-up."""
        return Tags(self.snapshot)

    # ------------------------------------------------------------------------------------------------- changing it

    delete = changing.delete
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
    update_config = settings.update_config
    update_metadata = settings.update_metadata
    update_schema_metadata = settings.update_schema_metadata

    # ------------------------------------------------------------------------------------------------- maintenance

    @property
    def optimize(self) -> DatasetOptimizer:
        """Compaction."""
        return DatasetOptimizer(self)

    cleanup_old_versions = maintaining.cleanup_old_versions
    explain_cleanup_old_versions = maintaining.explain_cleanup_old_versions


def _reopen(uri: str, version: int, storage_options: Mapping[str, str]) -> LanceDataset:
    return LanceDataset(uri, version, storage_options=storage_options)


def place_of(
    dataset: str | os.PathLike[str] | LanceDataset, storage_options: Mapping[str, str] | None
) -> tuple[str | os.PathLike[str], Mapping[str, str] | None]:
    """Address and storage options of what may be a dataset that is open already."""
    if isinstance(dataset, LanceDataset):
        return dataset.uri, storage_options or dataset.storage_options
    return dataset, storage_options
