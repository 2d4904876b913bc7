"""Writing data: as a new version of a dataset, or as files for a later commit."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from lance_core.change.completion import Completion
from lance_core.change.delete import removing_staged
from lance_core.change.ingest import is_at_hand
from lance_core.change.retries import new_transaction
from lance_core.change.stage import stage_data
from lance_core.change.stage_ahead import OutdatedError, Staged, staged_ahead
from lance_core.change.targets import target_store
from lance_core.common.signatures import with_options
from lance_core.common.unsupported import refuse_given
from lance_core.errors import DatasetAlreadyExistsError, InvalidInputError
from lance_core.format.table.operations import Append, Overwrite
from lance_core.format.table.paths import DETACHED_BIT
from lance_core.methods.arguments import (
    DEFAULT_MAX_BYTES_PER_FILE,
    DEFAULT_MAX_ROWS_PER_FILE,
    DEFAULT_MAX_ROWS_PER_GROUP,
    auto_cleanup_settings,
    check_mode,
    file_limits,
    file_version,
)
from lance_core.methods.protocols import address_of, base_params_of, open_dataset_of
from lance_core.progress import FragmentWriteProgress, staging_progress
from lance_core.scan.blob_places import ExternalBlobs
from lance_core.schema import LanceSchema
from lance_core.table.commit import commit
from lance_core.table.idempotency import find_commit, with_key
from lance_core.table.locations import branch_of, objects_at_once, with_lock
from lance_core.table.naming import naming
from lance_core.table.open_table import open_branch, open_version
from lance_core.table.rules.apply_settings import add_bases
from lance_core.table.runtime import SYSTEM_RUNTIME
from lance_core.table.snapshot import Snapshot, find_snapshot
from lance_core.values.base_paths import DatasetBasePath, allowing_bases, from_public
from lance_core.values.fragment_metadata import to_metadata
from lance_core.values.table_id import table_to_write

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from lance_core.encoding.profiles import CompressionProfile
    from lance_core.format.table.base_path import BasePath
    from lance_core.format.table.operations import Operation
    from lance_core.format.table.transaction import Transaction
    from lance_core.methods.protocols import OpenDataset
    from lance_core.store.base import Store
    from lance_core.table.commit_lock import CommitLock
    from lance_core.values.session import Session

_Dataset = TypeVar("_Dataset", bound="OpenDataset")


class WriteArguments(TypedDict, total=False):
    """Arguments of `write_dataset`, besides data, address and mode."""

    schema: pa.Schema | None
    max_rows_per_file: int
    max_bytes_per_file: int
    data_storage_version: str | None
    enable_stable_row_ids: bool
    commit_message: str | None
    transaction_properties: Mapping[str, str] | None
    storage_options: Mapping[str, str] | None
    branch: str | None
    enable_v2_manifest_paths: bool
    initial_bases: Sequence[DatasetBasePath] | None
    target_bases: Sequence[str] | None
    target_all_bases: bool | None
    base_store_params: Mapping[str, Mapping[str, str]] | None
    idempotency_key: str | None
    allow_external_blob_outside_bases: bool
    progress: FragmentWriteProgress | None
    auto_cleanup_options: Mapping[str, int] | None
    max_rows_per_group: int | None
    data_cache_bytes: int | None
    max_page_bytes: int | None
    commit_lock: CommitLock | None
    use_legacy_format: bool | None
    external_blob_mode: str
    blob_pack_file_size_threshold: int | None
    namespace_client: Any
    table_id: Sequence[str] | None
    session: Session | None
    compression_profile: CompressionProfile | None


def write_dataset(
    cls: type[_Dataset],
    data_obj: Any,
    uri: str | os.PathLike[str] | _Dataset | None = None,
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
    branch: str | None = None,
    enable_v2_manifest_paths: bool = True,
    initial_bases: Sequence[DatasetBasePath] | None = None,
    target_bases: Sequence[str] | None = None,
    target_all_bases: bool | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    idempotency_key: str | None = None,
    allow_external_blob_outside_bases: bool = False,
    progress: FragmentWriteProgress | None = None,
    auto_cleanup_options: Mapping[str, int] | None = None,
    max_rows_per_group: int | None = DEFAULT_MAX_ROWS_PER_GROUP,
    data_cache_bytes: int | None = None,
    max_page_bytes: int | None = None,
    commit_lock: CommitLock | None = None,
    use_legacy_format: bool | None = None,
    external_blob_mode: str = "reference",
    blob_pack_file_size_threshold: int | None = None,
    namespace_client: Any = None,
    table_id: Sequence[str] | None = None,
    session: Session | None = None,
    compression_profile: CompressionProfile | None = None,
) -> _Dataset:
    """Write data as a new version of a dataset.

    Args:
        data_obj: pyarrow Table, RecordBatch, RecordBatchReader, Dataset or Scanner, a LanceDataset or LanceScanner, a
            pandas or Polars DataFrame, a Hugging Face Dataset, a dict of columns, a list of dicts, or an iterable of
            record batches (with ``schema``). Streams are read once, in bounded memory.
        uri: Address, or the dataset itself.
        schema: Arrow schema to convert the data to.
        mode: ``create``: the dataset must not exist. ``append``: add rows; columns are matched by name, nullable ones
            may be missing. ``overwrite``: replace rows and schema; older versions stay readable. Through an open
            dataset it replaces what that version has: if others have overwritten the table since, it fails. The last
            two create the dataset if there is none.
        max_rows_per_file: Rows in a full data file.
        max_bytes_per_file: Bytes in a full data file, roughly.
        data_storage_version: File version of new files; the dataset's own, or 2.2, if None.
        enable_stable_row_ids: Give rows ids that survive compaction; only when the dataset is created.
        commit_message: Text for the history.
        transaction_properties: More text for the history.
        storage_options: Settings of the storage service.
        branch: Branch to write to, which must exist; that of the dataset object or address if None. Not in pylance.
        enable_v2_manifest_paths: For a new dataset: name manifests so that the newest sorts first.
        initial_bases: For a new dataset: other places in which it may have files.
        target_bases: Names or addresses of such places that the data files of this write go to, in turn.
        target_all_bases: The data files go to the dataset itself and all such places, in turn.
        base_store_params: Settings for such places, by their address.
        idempotency_key: Identity of the work: if one of the newest hundred versions carries it, nothing is written
            and that version is returned. Not in pylance.
        allow_external_blob_outside_bases: Take external blobs that lie below no base path of the table; they are
            named by their absolute address.
        progress: Is told of each fragment that begins, and that is finished.
        auto_cleanup_options: For a new dataset: ``interval`` (commits) and ``older_than_seconds``, by which pylance
            cleans up as it commits. lance_core never does so by itself.
        max_rows_per_group: Rows in a row group, 1024 if None; for file version 0.1 only.
        data_cache_bytes: Accepted.
        max_page_bytes: Bytes of Arrow data that make a page of one column, at most; 8 MiB if None.
        commit_lock: As in `lance_core.dataset`; the object returned has it, too.
        use_legacy_format: Not supported; ``data_storage_version`` says it.
        external_blob_mode: ``reference``; pylance's ``ingest`` is not supported.
        blob_pack_file_size_threshold: Not supported; `lance_core.blob_field` says it for a column.
        namespace_client: A `lance_namespace.LanceNamespace` that knows the address or gives the new table one, such as
            `lance_core.namespace.DirectoryNamespace`; instead of ``uri``. Needs the extra ``namespace``.
        table_id: Names of the namespaces from the root, and that of the table.
        session: Accepted, see `lance_core.Session`.
        compression_profile: For a dataset that is created or overwritten: ``fast``, ``balanced`` (the default) or
            ``small``, which its files follow from then on; see docs/compression.md. Not in pylance.

    Returns:
        The dataset at the version made.

    Raises:
        DatasetAlreadyExistsError: ``create`` where there is a dataset.
        InvalidInputError: Wrong arguments or data that does not fit; nothing is left behind.
        CommitConflictError: Another commit made this one impossible.

    Examples:
        >>> rows = pa.table({"id": [1, 2], "name": ["Oslo", "Lima"]})
        >>> new = lance_core.write_dataset(rows, "new.lance")
        >>> new = lance_core.write_dataset(rows, "new.lance", mode="append")
        >>> new.version, new.count_rows()
        (2, 4)
    """
    del data_cache_bytes  # the writer keeps what a page needs
    began_s = SYSTEM_RUNTIME.monotonic_s()
    _refuse("write_dataset", external_blob_mode, use_legacy_format, blob_pack_file_size_threshold)
    check_mode(mode)
    limits = file_limits(max_rows_per_file, max_bytes_per_file, max_page_bytes, max_rows_per_group=max_rows_per_group)
    config = auto_cleanup_settings(auto_cleanup_options)
    if uri is None or namespace_client is not None or table_id is not None:
        uri, storage_options = table_to_write(uri, namespace_client, table_id, mode, storage_options)
    seen = open_dataset_of(uri)
    commit_lock = commit_lock or (None if seen is None else seen.commit_lock)
    address, storage_options = address_of(uri, storage_options)
    new_bases = add_bases((), from_public(initial_bases))
    base_store_params = allowing_bases(base_params_of(uri, base_store_params), new_bases)
    store = open_branch(address, storage_options, base_store_params)
    options: Any = {"storage_options": storage_options, "base_store_params": base_store_params}
    opened = partial(cls, commit_lock=commit_lock, session=session, **options)

    def stage(existing: Snapshot | None) -> Staged:
        _check_existing(existing, mode, initial_bases)
        with naming(store):
            version = file_version(data_storage_version, existing)
        branch_store = store if existing is None else existing.store
        target = target_store(branch_store, existing, new_bases, target_bases, all_bases=bool(target_all_bases))
        completion = Completion(target)
        fragments, table = stage_data(
            target,
            data_obj,
            schema,
            table=None if existing is None or mode != "append" else existing.manifest.schema,
            limits=limits,
            data_storage_version=version,
            profile=compression_profile,
            replaced=None if existing is None else existing.manifest.schema,
            external_blobs=_external_blobs(existing, new_bases, may_be_anywhere=allow_external_blob_outside_bases),
            progress=staging_progress(progress),
            completion=completion if progress is None else None,
        )
        return Staged(existing, target, fragments, table, version, completion)

    def transaction_of(staged: Staged) -> tuple[Transaction, Snapshot | None]:
        operation, read = _operation(staged, mode, seen, new_bases, config)
        properties = with_key(transaction_properties, idempotency_key)
        return _transaction(read, operation, properties, commit_message), read

    find = partial(_find_newest, store, branch, seen)
    if seen is None or branch or idempotency_key or progress or not _may_stage_ahead(store, seen, data_obj):
        existing = find()
        done = _committed_before(existing, idempotency_key)
        if done is not None:
            return opened(done.store.uri, snapshot=done)
        staged = stage(existing)
    else:
        staged = staged_ahead(Snapshot(store=store, manifest=seen.snapshot.manifest), find, stage)
    creation: Any = {
        "enable_stable_row_ids": enable_stable_row_ids,
        "enable_v2_manifest_paths": enable_v2_manifest_paths,
    }
    commit_staged = partial(_commit_staged, stage=stage, transaction_of=transaction_of, files_since_s=began_s)
    return opened(address, snapshot=commit_staged(staged, store, commit_lock, **creation))


def _commit_staged(
    staged: Staged,
    store: Store,
    commit_lock: CommitLock | None,
    *,
    stage: Callable[[Snapshot | None], Staged],
    transaction_of: Callable[[Staged], tuple[Transaction, Snapshot | None]],
    **options: Any,
) -> Snapshot:
    """Commit staged files; if they were staged for a version that is not the newest, begin anew with that.

    Args:
        staged: The files.
        store: The dataset.
        commit_lock: Lock of the caller.
        stage: Stages files for a version.
        transaction_of: Returns the transaction of staged files, and its read version.
        options: Of `commit`.
    """
    transaction, read = transaction_of(staged)
    try:
        with removing_staged(staged.target, staged.fragments, staged.completion):
            return commit(
                with_lock(store if staged.base is None else staged.base.store, commit_lock),
                transaction,
                read=read,
                data_storage_version=staged.file_version,
                has_new_uuid=True,
                finish_files=staged.finish,
                **options,
            )
    except OutdatedError:
        moved = staged.moved(stage)
    return _commit_staged(moved, store, commit_lock, stage=stage, transaction_of=transaction_of, **options)


def _transaction(
    read: Snapshot | None, operation: Operation, properties: Mapping[str, str] | None, message: str | None
) -> Transaction:
    return new_transaction(0 if read is None else read.version, operation, properties=properties, message=message)


def _committed_before(existing: Snapshot | None, key: str | None) -> Snapshot | None:
    """Open the version that carries an idempotency key, if there is one."""
    version = None if existing is None or key is None else find_commit(existing.store, key)
    return None if existing is None or version is None else open_version(existing.store, version)


def _may_stage_ahead(store: Store, seen: OpenDataset, data: Any) -> bool:
    """Return whether files are staged for the open version while the newest is looked for, perhaps once more then."""
    return objects_at_once(store) > 1 and is_at_hand(data) and _is_on_branch(seen, store)


def _is_on_branch(seen: OpenDataset, store: Store) -> bool:
    """Return whether an open dataset is at a version of a branch."""
    return not seen.version & DETACHED_BIT and branch_of(seen.snapshot.store)[1] == branch_of(store)[1]


def _operation(
    staged: Staged, mode: str, seen: OpenDataset | None, new_bases: tuple[BasePath, ...], config: Mapping[str, str]
) -> tuple[Operation, Snapshot | None]:
    """Return what is done with staged files, and the version that this is made from."""
    existing, fragments = staged.base, staged.target.fragments(staged.fragments)
    if existing is not None and mode == "append":
        return Append(fragments=fragments), existing
    overwrite = Overwrite(
        fragments=fragments,
        schema=staged.table,
        initial_bases=new_bases,
        config_upsert_values=config if existing is None else {},
    )
    return overwrite, _overwritten(seen, existing)


def _check_existing(existing: Snapshot | None, mode: str, initial_bases: Sequence[DatasetBasePath] | None) -> None:
    """Refuse what is only for a dataset that does not exist yet."""
    if existing is None:
        return
    uri = existing.store.uri
    if mode == "create":
        raise DatasetAlreadyExistsError("the dataset exists already. Use mode 'append' or 'overwrite'", path=uri)
    if initial_bases is not None:
        raise InvalidInputError(
            "'initial_bases' is for new datasets only. Use 'add_bases' to add base paths to this one", path=uri
        )


def _overwritten(seen: OpenDataset | None, existing: Snapshot | None) -> Snapshot | None:
    """Return the version that an overwrite is made from.

    Whoever overwrites through an open dataset has seen that version and no later one, so an overwrite that was
    committed since is a conflict, as in pylance. By address nothing was seen: the newest version is overwritten.
    """
    if existing is None or seen is None or not _is_on_branch(seen, existing.store):
        return existing
    return seen.snapshot


def _find_newest(store: Store, branch: str | None, seen: OpenDataset | None) -> Snapshot | None:
    """Open the newest version of the branch to write to, if there is one; probably it is that of ``seen``."""
    if branch is not None:
        return open_version(store, (branch, None))
    return find_snapshot(store, expected=None if seen is None else seen.version)


def write_fragments(
    data: Any,
    dataset_uri: str | os.PathLike[str] | OpenDataset,
    schema: pa.Schema | None = None,
    *,
    return_transaction: bool = False,
    mode: str = "append",
    max_rows_per_file: int = DEFAULT_MAX_ROWS_PER_FILE,
    max_bytes_per_file: int = DEFAULT_MAX_BYTES_PER_FILE,
    progress: FragmentWriteProgress | None = None,
    data_storage_version: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    target_bases: Sequence[str] | None = None,
    target_all_bases: bool | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    max_rows_per_group: int | None = DEFAULT_MAX_ROWS_PER_GROUP,
    data_cache_bytes: int | None = None,
    max_page_bytes: int | None = None,
    use_legacy_format: bool | None = None,
    enable_stable_row_ids: bool = False,
    initial_bases: Sequence[DatasetBasePath] | None = None,
    external_blob_mode: str = "reference",
    allow_external_blob_outside_bases: bool = False,
    namespace_client: Any = None,
    table_id: Sequence[str] | None = None,
    session: Session | None = None,
) -> Any:
    """Write data files that no version knows yet; `LanceDataset.commit` makes them visible.

    Args:
        data: As for `lance_core.write_dataset`.
        dataset_uri: Address of the dataset, which need not exist.
        schema: Arrow schema of the data.
        return_transaction: Return a transaction that `LanceDataset.commit` takes.
        mode: ``append``: the data must fit the newest version, if there is one; ``create`` or ``overwrite``: it
            brings a schema of its own.
        max_rows_per_file: Rows in a full file.
        max_bytes_per_file: Bytes in a full file, roughly.
        progress: As in `write_dataset`.
        data_storage_version: File version.
        storage_options: Settings of the storage service.
        target_bases: As in `write_dataset`; the dataset must have these places.
        target_all_bases: As in `write_dataset`.
        base_store_params: As in `write_dataset`.
        max_rows_per_group: Rows in a row group, 1024 if None; for file version 0.1 only.
        data_cache_bytes: Accepted.
        max_page_bytes: As in `write_dataset`.
        use_legacy_format: Not supported.
        enable_stable_row_ids: Accepted: the commit that creates the dataset says it.
        initial_bases: Other places of a new dataset, which the transaction carries; only with ``mode="create"`` or
            ``"overwrite"``, and with ``return_transaction``.
        external_blob_mode: As in `write_dataset`.
        allow_external_blob_outside_bases: As in `write_dataset`.
        namespace_client: Not supported, like ``table_id``.
        table_id: Not supported.
        session: Accepted, see `lance_core.Session`.

    Returns:
        One `FragmentMetadata` with id 0 for each file, or a `Transaction`.

    Raises:
        InvalidInputError: Data or arguments that do not fit; nothing is left behind.

    Examples:
        >>> rows = pa.table({"id": [5], "name": ["Bonn"], "height": [60]})
        >>> operation = lance_core.LanceOperation.Append(lance_core.write_fragments(rows, table))
        >>> lance_core.LanceDataset.commit(table, operation, read_version=table.version).count_rows()
        5
    """
    del data_cache_bytes, enable_stable_row_ids, session
    _refuse("write_fragments", external_blob_mode, use_legacy_format)
    refuse_given("write_fragments", namespace_client=namespace_client, table_id=table_id)
    check_mode(mode)
    address, options = address_of(dataset_uri, storage_options)
    new_bases = add_bases((), from_public(initial_bases))
    base_store_params = allowing_bases(base_params_of(dataset_uri, base_store_params), new_bases)
    store = open_branch(address, options, base_store_params)
    snapshot = find_snapshot(store)
    existing = snapshot if mode == "append" else None
    if snapshot is not None and new_bases:
        _check_existing(snapshot, mode="append", initial_bases=initial_bases)
    store = store if snapshot is None else snapshot.store
    target = target_store(store, snapshot, new_bases, target_bases, all_bases=bool(target_all_bases))
    with naming(store):
        version = file_version(data_storage_version, existing)
    staged, table = stage_data(
        target,
        data,
        schema,
        table=None if existing is None else existing.manifest.schema,
        replaced=None if snapshot is None else snapshot.manifest.schema,
        data_storage_version=version,
        limits=file_limits(
            max_rows_per_file, max_bytes_per_file, max_page_bytes, max_rows_per_group=max_rows_per_group
        ),
        external_blobs=_external_blobs(snapshot, new_bases, may_be_anywhere=allow_external_blob_outside_bases),
        progress=staging_progress(progress),
    )
    fragments = [to_metadata(fragment) for fragment in target.fragments(staged)]
    if not return_transaction:
        return fragments
    from lance_core.values.operations import LanceOperation, Transaction  # noqa: PLC0415 twenty classes that few need

    overwrite = LanceOperation.Overwrite(LanceSchema(table), fragments, initial_bases)
    return Transaction(snapshot.version if snapshot else 0, LanceOperation.Append(fragments) if existing else overwrite)


def _refuse(function: str, external_blob_mode: str, use_legacy_format: Any, blob_pack_size: int | None = None) -> None:
    """Refuse what neither function supports."""
    refuse_given(function, external_blob_mode=external_blob_mode, use_legacy_format=use_legacy_format)
    refuse_given(function, blob_pack_file_size_threshold=blob_pack_size)


def _external_blobs(
    existing: Snapshot | None, new_bases: Sequence[BasePath], *, may_be_anywhere: bool
) -> ExternalBlobs:
    """Return the rule for external blobs of a write."""
    bases = (*(existing.manifest.base_paths if existing else ()), *new_bases)
    return ExternalBlobs(bases={base.id: base.path for base in bases}, may_be_anywhere=may_be_anywhere)


@with_options(WriteArguments, defaults_of=write_dataset)
def insert(dataset: OpenDataset, data: Any, *, mode: str = "append", **options: Unpack[WriteArguments]) -> None:
    """Write data as a new version, to which this object moves; arguments as of `lance_core.write_dataset`.

    Examples:
        >>> table.insert([{"id": 5, "name": "Bonn", "height": 60}])
        >>> table.count_rows()
        5
    """
    dataset.snapshot = write_dataset(type(dataset), data, dataset, mode=mode, **options).snapshot
