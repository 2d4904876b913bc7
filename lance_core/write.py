"""Write data: as a new version of a dataset, or as files for a later commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_core.arguments import (
    DEFAULT_MAX_BYTES_PER_FILE,
    DEFAULT_MAX_ROWS_PER_FILE,
    check_mode,
    check_unsupported,
    file_limits,
    file_version,
)
from lance_core.dataset import LanceDataset, place_of
from lance_core.errors import DatasetAlreadyExistsError
from lance_core.format.operations import Append, Overwrite
from lance_core.fragment import FragmentMetadata, to_metadata
from lance_core.store.open import open_store
from lance_core.table.change import removing_staged
from lance_core.table.commit import commit
from lance_core.table.naming import naming
from lance_core.table.redo import new_transaction
from lance_core.table.snapshot import find_snapshot
from lance_core.table.stage import stage_data

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    import pyarrow as pa


def write_dataset(
    data_obj: Any,
    uri: str | os.PathLike[str] | LanceDataset,
    schema: pa.Schema | None = None,
    mode: str = "create",
    *,
    max_rows_per_file: int = DEFAULT_MAX_ROWS_PER_FILE,
    max_bytes_per_file: int = DEFAULT_MAX_BYTES_PER_FILE,
    data_storage_version: str | None = None,
    enable_stable_row_ids: bool = False,
    commit_message: str | None = None,
    transaction_properties: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    **unsupported: Any,
) -> LanceDataset:
    """Write data as a new version of a dataset.

    Args:
        data_obj: pyarrow Table, RecordBatch, RecordBatchReader or Dataset, a LanceDataset, a pandas or Polars
            DataFrame, a list of dicts, or an iterable of record batches (with ``schema``). Streams are read once, in
            bounded memory.
        uri: Address, or the dataset itself.
        schema: Arrow schema to convert the data to.
        mode: ``create``: the dataset must not exist. ``append``: add rows; columns are matched by name, nullable ones
            may be missing. ``overwrite``: replace rows and schema; older versions stay readable. The last two create
            the dataset if there is none.
        max_rows_per_file: Rows in a full data file.
        max_bytes_per_file: Bytes in a full data file, roughly.
        data_storage_version: File version of new files; the dataset's own, or 2.2, if None.
        enable_stable_row_ids: Give rows ids that survive compaction; only when the dataset is created.
        commit_message: Text for the history.
        transaction_properties: More text for the history.
        storage_options: Settings of the storage service.
        **unsupported: Arguments of pylance that lance_core does not have; they must be None.

    Returns:
        The dataset at the version made.

    Raises:
        DatasetAlreadyExistsError: ``create`` where there is a dataset.
        InvalidInputError: Wrong arguments or data that does not fit; nothing is left behind.
        CommitConflictError: Another commit made this one impossible.
    """
    check_unsupported("write_dataset", unsupported)
    check_mode(mode)
    limits = file_limits(max_rows_per_file, max_bytes_per_file)
    address, storage_options = place_of(uri, storage_options)
    store = open_store(address, storage_options)
    existing = find_snapshot(store)
    if existing is not None and mode == "create":
        raise DatasetAlreadyExistsError("there is a dataset already; use mode append or overwrite", path=store.uri)
    with naming(store):
        version = file_version(data_storage_version, existing)
    appends = existing is not None and mode == "append"
    fragments, table = stage_data(
        store,
        data_obj,
        schema,
        table=existing.manifest.schema if existing is not None and appends else None,
        limits=limits,
        data_storage_version=version,
    )
    transaction = new_transaction(
        0 if existing is None else existing.version,
        Append(fragments=fragments) if appends else Overwrite(fragments=fragments, schema=table),
        properties=transaction_properties,
        message=commit_message,
    )
    with removing_staged(store, fragments):
        snapshot = commit(
            store,
            transaction,
            read=existing,
            data_storage_version=version,
            enable_stable_row_ids=enable_stable_row_ids,
        )
    return LanceDataset(address, storage_options=storage_options, snapshot=snapshot)


def write_fragments(
    data: Any,
    dataset_uri: str | os.PathLike[str] | LanceDataset,
    schema: pa.Schema | None = None,
    *,
    mode: str = "append",
    max_rows_per_file: int = DEFAULT_MAX_ROWS_PER_FILE,
    max_bytes_per_file: int = DEFAULT_MAX_BYTES_PER_FILE,
    data_storage_version: str | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> list[FragmentMetadata]:
    """Write data files that no version knows yet; `LanceDataset.commit` makes them visible.

    Args:
        data: As for `lance_core.write_dataset`.
        dataset_uri: Address of the dataset, which need not exist.
        schema: Arrow schema of the data.
        mode: ``append``: the data must fit the newest version, if there is one; ``create`` or ``overwrite``: it
            brings a schema of its own.
        max_rows_per_file: Rows in a full file.
        max_bytes_per_file: Bytes in a full file, roughly.
        data_storage_version: File version.
        storage_options: Settings of the storage service.

    Returns:
        One fragment with id 0 for each file.

    Raises:
        InvalidInputError: Data or arguments that do not fit; nothing is left behind.
    """
    check_mode(mode)
    store = open_store(*place_of(dataset_uri, storage_options))
    existing = find_snapshot(store) if mode == "append" else None
    with naming(store):
        version = file_version(data_storage_version, existing)
    fragments, _ = stage_data(
        store,
        data,
        schema,
        table=None if existing is None else existing.manifest.schema,
        data_storage_version=version,
        limits=file_limits(max_rows_per_file, max_bytes_per_file),
    )
    return [to_metadata(fragment) for fragment in fragments]
