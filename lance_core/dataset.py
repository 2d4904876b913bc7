"""Datasets: the public face of lance_core. Names, arguments and results follow pylance where it has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace as replaced
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.arguments import (
    DEFAULT_CONFLICT_RETRIES,
    DEFAULT_MAX_BYTES_PER_FILE,
    DEFAULT_MAX_ROWS_PER_FILE,
    DEFAULT_REPLACE_RETRIES,
    check_unsupported,
    check_window,
    file_limits,
    file_version,
)
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.operations import Restore, UpdateConfig, UpdateMap
from lance_core.format.transaction import COMMIT_MESSAGE_KEY
from lance_core.fragment import FragmentMetadata, LanceFragment, from_metadata
from lance_core.operations import LanceOperation, Transaction, from_inner, to_inner
from lance_core.optimize import DatasetOptimizer
from lance_core.stats import LanceStats
from lance_core.store.open import open_store
from lance_core.table.change import delete_rows, new_transaction, removing_staged, replace_rows
from lance_core.table.commit import DEFAULT_MAX_RETRIES, commit
from lance_core.table.fragment_reader import FragmentReader
from lance_core.table.naming import naming
from lance_core.table.open_files import OpenFiles
from lance_core.table.refs import get_tag
from lance_core.table.scan import count_matching, scan_fragments
from lance_core.table.scan_plan import plan_scan
from lance_core.table.snapshot import Snapshot, find_newest, list_versions, open_snapshot, read_transaction
from lance_core.table.stage import stage_data
from lance_core.table.statistics import table_statistics, version_summary
from lance_core.table.take import take_rows
from lance_core.tags import Tags

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Iterator
    from datetime import timedelta

    from pyarrow.compute import Expression

    from lance_core.format.fragment import Fragment
    from lance_core.format.schema import Schema
    from lance_core.maintenance.cleanup import CleanupExplanation, CleanupStats
    from lance_core.store.base import Store
    from lance_core.table.scan_plan import ScanPlan


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

    # ------------------------------------------------------------------------------------------------- reading it

    def to_batches(
        self,
        columns: Sequence[str] | None = None,
        filter: str | Expression | None = None,  # noqa: A002 the name in pylance
        limit: int | None = None,
        offset: int | None = None,
        *,
        batch_size: int | None = None,
        with_row_id: bool | None = None,
        with_row_address: bool | None = None,
        scan_in_order: bool | None = None,
        fragments: Sequence[LanceFragment] | None = None,
        **unsupported: Any,
    ) -> Iterator[pa.RecordBatch]:
        """Read the rows in order, batch by batch.

        Args:
            columns: Names, or dotted paths inside structs; all columns if None. Also ``_rowid`` and ``_rowaddr``.
            filter: SQL text or pyarrow expression; rows for which it is null do not match.
            limit: Rows at most.
            offset: Matching rows to leave out first.
            batch_size: Rows read at a time; by default as many as make about 32 MiB.
            with_row_id: Add ``_rowid``.
            with_row_address: Add ``_rowaddr``.
            scan_in_order: Accepted; the order is always that of the table.
            fragments: Read only these.
            **unsupported: Arguments of pylance that lance_core does not have; they must be None.

        Raises:
            InvalidInputError: Unknown columns, a filter that does not fit, negative numbers.
            UnsupportedError: SQL or arguments that are not supported.
            CorruptDataError: A damaged file.
        """
        del scan_in_order
        check_unsupported("to_batches", unsupported)
        check_window(limit, offset, batch_size)
        if isinstance(columns, str):
            raise InvalidInputError("columns is a list of names")
        if isinstance(columns, Mapping):
            raise UnsupportedError("columns as SQL expressions (a dict); give a list of names")
        plan = self._plan(columns, filter, batch_size, bool(with_row_id), bool(with_row_address))
        chosen = self._chosen(fragments)
        return scan_fragments(self.files, chosen, plan, limit=limit, offset=offset or 0)

    def to_table(
        self,
        columns: Sequence[str] | None = None,
        filter: str | Expression | None = None,  # noqa: A002 the name in pylance
        limit: int | None = None,
        offset: int | None = None,
        **options: Any,
    ) -> pa.Table:
        """Read rows into memory; arguments as in `to_batches`."""
        batches = self.to_batches(columns, filter, limit, offset, **options)
        wants = [bool(options.get(name)) for name in ("with_row_id", "with_row_address")]
        plan = self._plan(columns, None, None, *wants)
        return pa.Table.from_batches(batches, schema=plan.schema)

    def to_pandas(self, **options: Any) -> Any:
        """Read rows into a pandas DataFrame; arguments as in `to_batches`."""
        return self.to_table(**options).to_pandas()

    def head(self, num_rows: int, **options: Any) -> pa.Table:
        """The first rows; arguments as in `to_batches`."""
        return self.to_table(limit=num_rows, **options)

    def take(self, indices: Sequence[int] | pa.Array, columns: Sequence[str] | None = None) -> pa.Table:
        """Rows by their place in the table.

        Args:
            indices: Places, from 0, deleted rows not counted; any order, repeats allowed.
            columns: As in `to_batches`.

        Raises:
            InvalidInputError: There is no such row.
        """
        places = np.asarray(indices, np.int64) if len(indices) else np.empty(0, np.int64)
        plan = self._plan(columns)
        return take_rows(self.snapshot, self.files, places, plan)

    def count_rows(self, filter: str | Expression | None = None) -> int:  # noqa: A002 the name in pylance
        """How many rows there are, or match a filter. Without a filter no data is read."""
        if filter is None:
            return self.snapshot.manifest.num_rows
        plan = self._plan([], filter)
        return sum(count_matching(FragmentReader(self.files, one), plan) for one in self.snapshot.manifest.fragments)

    def _plan(
        self,
        columns: Sequence[str] | None,
        filter: str | Expression | None = None,  # noqa: A002 the name in pylance
        batch_size: int | None = None,
        *with_ids: bool,
    ) -> ScanPlan:
        with_row_id, with_row_address = with_ids or (False, False)
        with naming(self.snapshot.store):
            return plan_scan(
                self.snapshot.manifest.schema,
                columns=columns,
                filter=filter,
                batch_size=batch_size,
                with_row_id=with_row_id,
                with_row_address=with_row_address,
            )

    def get_fragments(self) -> list[LanceFragment]:
        """All fragments, in order."""
        return [self._fragment(one) for one in self.snapshot.manifest.fragments]

    def get_fragment(self, fragment_id: int) -> LanceFragment | None:
        """The fragment with this id, None if there is none."""
        found = self.snapshot.manifest.fragments.find(fragment_id)
        return None if found is None else self._fragment(found)

    def _fragment(self, fragment: Fragment) -> LanceFragment:
        return LanceFragment(self, fragment.id, fragment=fragment, snapshot=self.snapshot)

    def _chosen(self, fragments: Sequence[LanceFragment] | None) -> Sequence[Fragment]:
        known = self.snapshot.manifest.fragments
        if fragments is None:
            return known  # type: ignore[return-value] a sequence that decodes when asked
        found = [known.find(one.fragment_id) for one in fragments]
        if any(one is None for one in found):
            raise InvalidInputError(f"version {self.version} does not have all of these fragments", path=self.uri)
        return [one for one in found if one is not None]

    # -------------------------------------------------------------------------------------------------- history

    def versions(self) -> list[dict[str, Any]]:
        """All versions, ascending: dicts with ``version``, ``timestamp`` (UTC) and ``metadata`` (numbers as text)."""
        store = self.snapshot.store
        return [version_summary(open_snapshot(store, number).manifest) for number in list_versions(store)]

    def checkout_version(self, version: int | str) -> LanceDataset:
        """This dataset at another version (number or tag); this object stays where it is."""
        return LanceDataset(self.uri, version, storage_options=self.storage_options)

    def checkout_latest(self) -> None:
        """Move this object to the newest version."""
        self.snapshot = open_snapshot(self.snapshot.store)

    def restore(self) -> None:
        """Make this version the newest again, as a new version; this object moves to it."""
        latest = open_snapshot(self.snapshot.store)
        transaction = new_transaction(latest.version, Restore(version=self.version), properties=None, message=None)
        self.snapshot = commit(self.snapshot.store, transaction, read=latest)

    @property
    def tags(self) -> Tags:
        """Names for versions; tagged versions survive clean-up."""
        return Tags(self.snapshot)

    def read_transaction(self, version: int) -> Transaction | None:
        """The transaction that made a version; None if its writer left none."""
        found = read_transaction(self.snapshot.store, version)
        return None if found is None else from_inner(found)

    def get_transactions(self, recent_transactions: int = 10) -> list[Transaction | None]:
        """The transactions of this version and those before it, newest first."""
        numbers = [number for number in list_versions(self.snapshot.store) if number <= self.version]
        return [self.read_transaction(number) for number in reversed(numbers[-recent_transactions:])]

    # ------------------------------------------------------------------------------------------------- changing it

    def delete(
        self,
        predicate: str | Expression,
        *,
        conflict_retries: int = DEFAULT_CONFLICT_RETRIES,
        transaction_properties: Mapping[str, str] | None = None,
        commit_message: str | None = None,
    ) -> dict[str, int]:
        """Delete rows; this object moves to the new version.

        Args:
            predicate: SQL text or pyarrow expression.
            conflict_retries: How often to work it out anew when another commit touched the same fragments.
            transaction_properties: Text for the history.
            commit_message: More of it.

        Returns:
            ``{"num_deleted_rows": n}``.
        """
        self.snapshot, num_rows = delete_rows(
            self.snapshot,
            predicate,
            conflict_retries=conflict_retries,
            properties=transaction_properties,
            message=commit_message,
        )
        return {"num_deleted_rows": num_rows}

    def replace_where(
        self,
        predicate: str | Expression,
        data: Any,
        *,
        schema: pa.Schema | None = None,
        conflict_retries: int = DEFAULT_REPLACE_RETRIES,
        transaction_properties: Mapping[str, str] | None = None,
        commit_message: str | None = None,
        max_rows_per_file: int = DEFAULT_MAX_ROWS_PER_FILE,
        max_bytes_per_file: int = DEFAULT_MAX_BYTES_PER_FILE,
    ) -> dict[str, int]:
        """Delete the rows that match and add new ones, in one commit; this object moves to the new version.

        Not in pylance. If another commit adds rows or touches the same fragments meanwhile, the deletion is worked out
        anew on the newest version, so that of two writers which replace the same rows the later one wins; the new rows
        are written once.

        Args:
            predicate: Rows to replace: SQL text or pyarrow expression.
            data: New rows, as for `write_dataset`; or fragments from `write_fragments`.
            schema: Arrow schema to convert the data to.
            conflict_retries: How often to work it out anew.
            transaction_properties: Text for the history.
            commit_message: More of it.
            max_rows_per_file: Rows in a full data file.
            max_bytes_per_file: Bytes in a full data file, roughly.

        Returns:
            ``{"num_deleted_rows": n, "num_inserted_rows": m}``.
        """
        snapshot = self.snapshot
        limits = file_limits(max_rows_per_file, max_bytes_per_file)
        self._plan([], predicate)  # before anything is written
        given = _given_fragments(data)
        with naming(snapshot.store):
            version = file_version(None, snapshot)
        staged: tuple[Fragment, ...] = ()
        if given is None:
            table = snapshot.manifest.schema
            staged, _ = stage_data(
                snapshot.store, data, schema, table=table, limits=limits, data_storage_version=version
            )
        added = staged if given is None else given
        with removing_staged(snapshot.store, staged):
            self.snapshot, num_rows = replace_rows(
                snapshot,
                predicate,
                added,
                conflict_retries=conflict_retries,
                properties=transaction_properties,
                message=commit_message,
            )
        return {"num_deleted_rows": num_rows, "num_inserted_rows": sum(one.physical_rows for one in added)}

    @staticmethod
    def commit(
        base_uri: str | os.PathLike[str] | LanceDataset,
        operation: LanceOperation.BaseOperation | Transaction,
        read_version: int | None = None,
        *,
        storage_options: Mapping[str, str] | None = None,
        max_retries: int = DEFAULT_MAX_RETRIES,
        commit_message: str | None = None,
        enable_stable_row_ids: bool = False,
        **unsupported: Any,
    ) -> LanceDataset:
        """Make staged changes a new version.

        Args:
            base_uri: Address, or the dataset itself.
            operation: What to do, or a whole transaction (whose read version and properties count).
            read_version: Version the work is based on; not needed for Overwrite and Restore.
            storage_options: Settings of the storage service.
            max_retries: How often to try again after other commits came first.
            commit_message: Text for the history.
            enable_stable_row_ids: As in `write_dataset`.
            **unsupported: Arguments of pylance that lance_core does not have; they must be None.

        Returns:
            The dataset at the version made.

        Raises:
            CommitConflictError: Another commit changed what this one relies on.
            CommitContentionError: Too many other commits came first.
            CommitOutcomeUnknownError: The store left open what happened; look for the transaction's uuid.
        """
        check_unsupported("commit", unsupported)
        address, storage_options = place_of(base_uri, storage_options)
        store = open_store(address, storage_options)
        if not isinstance(operation, Transaction):
            operation = Transaction(_read_version(store, operation, read_version), operation)
        transaction = to_inner(operation)
        if commit_message is not None:
            properties = {**transaction.transaction_properties, COMMIT_MESSAGE_KEY: commit_message}
            transaction = replaced(transaction, transaction_properties=properties)
        snapshot = commit(store, transaction, max_retries=max_retries, enable_stable_row_ids=enable_stable_row_ids)
        return LanceDataset(address, storage_options=storage_options, snapshot=snapshot)

    def update_config(self, values: Mapping[str, str | None], *, replace: bool = False) -> dict[str, str]:
        """Change settings of the table; this object moves to the new version.

        Args:
            values: New values; None removes a key.
            replace: Make these the only ones.

        Returns:
            All settings there are now.
        """
        self._update_map(UpdateConfig(config_updates=UpdateMap(update_entries=dict(values), replace=replace)))
        return self.config()

    def update_metadata(self, values: Mapping[str, str | None], *, replace: bool = False) -> dict[str, str]:
        """Change the free text about the table; as `update_config`."""
        self._update_map(UpdateConfig(table_metadata_updates=UpdateMap(update_entries=dict(values), replace=replace)))
        return self.metadata

    def update_schema_metadata(self, values: Mapping[str, str | None], *, replace: bool = False) -> dict[str, str]:
        """Change the metadata of the Arrow schema; as `update_config`."""
        self._update_map(UpdateConfig(schema_metadata_updates=UpdateMap(update_entries=dict(values), replace=replace)))
        return {key: value.decode() for key, value in self.lance_schema.metadata.items()}

    def _update_map(self, operation: UpdateConfig) -> None:
        transaction = new_transaction(self.version, operation, properties=None, message=None)
        self.snapshot = commit(self.snapshot.store, transaction, read=self.snapshot)

    def update(self, *_args: Any, **_options: Any) -> None:
        """Not supported yet."""
        raise UnsupportedError("update is not supported yet; use replace_where", path=self.uri)

    def merge_insert(self, *_args: Any, **_options: Any) -> None:
        """Not supported yet."""
        raise UnsupportedError("merge_insert is not supported yet; use replace_where", path=self.uri)

    # ------------------------------------------------------------------------------------------------- maintenance

    @property
    def optimize(self) -> DatasetOptimizer:
        """Compaction."""
        return DatasetOptimizer(self)

    def cleanup_old_versions(
        self,
        older_than: timedelta | None = None,
        retain_versions: int | None = None,
        *,
        versions: Sequence[int] | None = None,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = True,
    ) -> CleanupStats:
        """Delete old versions and the files that only they need.

        Args:
            older_than: Only versions committed longer ago; 14 days if no rule is given.
            retain_versions: Never the newest so many.
            versions: Only these.
            delete_unverified: Delete files of no version even if they are young; only safe while nobody writes.
            error_if_tagged_old_versions: Refuse if a tagged version would go, rather than keep it.

        Raises:
            InvalidInputError: A tagged version would go, or a rule makes no sense.
        """
        from lance_core.maintenance.cleanup import cleanup_old_versions  # noqa: PLC0415 rarely needed

        return cleanup_old_versions(
            self.snapshot.store,
            older_than=older_than,
            retain_versions=retain_versions,
            versions=versions,
            delete_unverified=delete_unverified,
            error_if_tagged_old_versions=error_if_tagged_old_versions,
        )

    def explain_cleanup_old_versions(
        self,
        older_than: timedelta | None = None,
        retain_versions: int | None = None,
        *,
        versions: Sequence[int] | None = None,
        delete_unverified: bool = False,
        error_if_tagged_old_versions: bool = True,
        without_tags: Collection[str] = (),
    ) -> CleanupExplanation:
        """What `cleanup_old_versions` would delete, if ``without_tags`` were deleted first; arguments as there."""
        from lance_core.maintenance.cleanup import explain_cleanup_old_versions  # noqa: PLC0415 rarely needed

        return explain_cleanup_old_versions(
            self.snapshot.store,
            older_than=older_than,
            retain_versions=retain_versions,
            versions=versions,
            delete_unverified=delete_unverified,
            error_if_tagged_old_versions=error_if_tagged_old_versions,
            without_tags=without_tags,
        )


def _reopen(uri: str, version: int, storage_options: Mapping[str, str]) -> LanceDataset:
    return LanceDataset(uri, version, storage_options=storage_options)


def _given_fragments(data: Any) -> tuple[Fragment, ...] | None:
    """The fragments, if that is what the data is."""
    if not isinstance(data, (list, tuple)) or not all(isinstance(one, FragmentMetadata) for one in data):
        return None
    return tuple(from_metadata(one) for one in data)


def place_of(
    dataset: str | os.PathLike[str] | LanceDataset, storage_options: Mapping[str, str] | None
) -> tuple[str | os.PathLike[str], Mapping[str, str] | None]:
    """Address and storage options of what may be a dataset that is open already."""
    if isinstance(dataset, LanceDataset):
        return dataset.uri, storage_options or dataset.storage_options
    return dataset, storage_options


def _read_version(store: Store, operation: LanceOperation.BaseOperation, read_version: int | None) -> int:
    """The version an operation is based on, if the caller did not say."""
    if read_version is not None:
        return read_version
    if not isinstance(operation, (LanceOperation.Overwrite, LanceOperation.Restore)):
        raise InvalidInputError(f"{type(operation).__name__} needs read_version: the version the work is based on")
    return find_newest(store).newest or 0
