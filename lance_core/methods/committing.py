"""`LanceDataset.commit`: make a change that was staged anywhere a new version."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar, cast

from lance_core.common.frozen import replace
from lance_core.common.unsupported import refuse_given
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.table.transaction import COMMIT_MESSAGE_KEY
from lance_core.methods.arguments import seconds_of
from lance_core.methods.protocols import address_of, base_params_of, open_dataset_of
from lance_core.table.commit import commit as publish
from lance_core.table.detached import commit_detached
from lance_core.table.idempotency import LOOKBACK, with_key
from lance_core.table.idempotency import find_commit as find_key
from lance_core.table.locations import with_lock
from lance_core.table.open_table import open_branch
from lance_core.table.snapshot import find_newest, open_snapshot

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from lance_core.methods.protocols import OpenDataset
    from lance_core.store.base import Store
    from lance_core.table.commit_lock import CommitLock
    from lance_core.values.operations import LanceOperation, Transaction

DEFAULT_TIMEOUT = timedelta(minutes=30)
_Dataset = TypeVar("_Dataset", bound="OpenDataset")


def commit(  # noqa: PLR0917 positional as in pylance
    cls: type[_Dataset],
    base_uri: str | os.PathLike[str] | _Dataset,
    operation: LanceOperation.BaseOperation | Transaction,
    read_version: int | None = None,
    commit_lock: CommitLock | None = None,
    storage_options: Mapping[str, str] | None = None,
    enable_v2_manifest_paths: bool | None = None,
    detached: bool | None = False,
    max_retries: int | None = None,
    *,
    commit_message: str | None = None,
    enable_stable_row_ids: bool | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    commit_timeout: timedelta | None = DEFAULT_TIMEOUT,
    idempotency_key: str | None = None,
    namespace_client: Any = None,
    table_id: Sequence[str] | None = None,
    namespace_client_managed_versioning: bool = False,
) -> _Dataset:
    """Make staged changes a new version.

    Args:
        base_uri: Address, or the dataset itself.
        operation: What to do, or a whole transaction (whose read version and properties count).
        read_version: Version the work is based on; not needed for Overwrite and Restore.
        commit_lock: As in `lance_core.dataset`.
        storage_options: Settings of the storage service.
        enable_v2_manifest_paths: As in `write_dataset`; True if None.
        detached: Make a version outside the history of the branch, which has a random number and is opened by it only.
        max_retries: How often to try again after other commits came first; None for as often as the time allows.
        commit_message: Text for the history.
        enable_stable_row_ids: As in `write_dataset`.
        base_store_params: Settings of other places that the table names, by address; an entry also allows the place
            and what lies below it.
        commit_timeout: After this time no new attempt begins; None for no limit.
        idempotency_key: Identity of the work: if a version newer than the read version (for an Overwrite: one of the
            newest hundred) carries it, nothing is committed and that version is returned. Not in pylance.
        namespace_client: Not supported, like ``table_id`` and ``namespace_client_managed_versioning``.
        table_id: Not supported.
        namespace_client_managed_versioning: Not supported.

    Returns:
        The dataset at the version made.

    Raises:
        CommitConflictError: Another commit changed what this one relies on.
        CommitContentionError: Too many other commits came first.
        CommitOutcomeUnknownError: The store left open what happened; commit the same transaction or key again.

    Examples:
        >>> fragments = lance_core.write_fragments([{"id": 5, "name": "Bonn", "height": 60}], table)
        >>> operation = lance_core.LanceOperation.Append(fragments)
        >>> lance_core.LanceDataset.commit("cities.lance", operation, read_version=1).count_rows()
        5
    """
    from lance_core.values.operations import Transaction, to_inner  # noqa: PLC0415 twenty classes that few need

    refuse_given(
        "commit",
        namespace_client=namespace_client,
        table_id=table_id,
        namespace_client_managed_versioning=namespace_client_managed_versioning,
    )
    timeout_s = seconds_of(commit_timeout)
    seen = open_dataset_of(base_uri)
    commit_lock = commit_lock or (None if seen is None else seen.commit_lock)
    address, storage_options = address_of(base_uri, storage_options)
    base_store_params = base_params_of(base_uri, base_store_params)
    store = with_lock(open_branch(address, storage_options, base_store_params), commit_lock)
    if not isinstance(operation, Transaction):
        operation = Transaction(_read_version(store, operation, read_version), operation)
    number = operation.read_version
    transaction = to_inner(operation, table=lambda: open_snapshot(store, number).manifest.schema)
    properties = with_key(transaction.transaction_properties, idempotency_key)
    if commit_message is not None:
        properties[COMMIT_MESSAGE_KEY] = commit_message
    transaction = replace(transaction, transaction_properties=properties)
    snapshot = (
        commit_detached(store, transaction)
        if detached
        else publish(
            store,
            transaction,
            max_retries=max_retries,
            timeout_s=timeout_s,
            enable_stable_row_ids=bool(enable_stable_row_ids),
            enable_v2_manifest_paths=enable_v2_manifest_paths is not False,
        )
    )
    return cls(
        address,
        commit_lock=commit_lock,
        storage_options=storage_options,
        base_store_params=base_store_params,
        snapshot=snapshot,
    )


def commit_batch(  # noqa: PLR0917 positional as in pylance
    cls: type[_Dataset],
    dest: str | os.PathLike[str] | _Dataset,
    transactions: Sequence[Transaction],
    commit_lock: CommitLock | None = None,
    storage_options: Mapping[str, str] | None = None,
    enable_v2_manifest_paths: bool | None = None,
    detached: bool | None = False,
    max_retries: int | None = None,
    base_store_params: Mapping[str, Mapping[str, str]] | None = None,
    commit_timeout: timedelta | None = DEFAULT_TIMEOUT,
    *,
    commit_message: str | None = None,
    enable_stable_row_ids: bool | None = None,
    idempotency_key: str | None = None,
) -> dict[str, Any]:
    """Add the fragments of several transactions in one new version.

    Args:
        dest: Address, or the dataset itself.
        transactions: Transactions with `LanceOperation.Append`; the oldest read version counts.
        commit_lock: As in `commit`, like all that follow.
        storage_options: Settings of the storage service.
        enable_v2_manifest_paths: As in `write_dataset`.
        detached: Make a version outside the history of the branch.
        max_retries: How often to try again after other commits came first.
        base_store_params: Settings of other places that the table names, by address.
        commit_timeout: After this time no new attempt begins; None for no limit.
        commit_message: Text for the history. Not in pylance, like the following.
        enable_stable_row_ids: As in `write_dataset`.
        idempotency_key: Identity of the work.

    Returns:
        ``dataset``: the dataset at the version made; ``merged``: the transaction that made it.

    Raises:
        InvalidInputError: No transactions, or one property that two of them set to different values.
        UnsupportedError: Another operation than Append.
    """
    from lance_core.values.operations import LanceOperation, Transaction  # noqa: PLC0415 twenty classes that few need

    if not transactions:
        raise InvalidInputError("'transactions' is empty. Pass at least one")
    properties: dict[str, str] = {}
    for transaction in transactions:
        if not isinstance(transaction.operation, LanceOperation.Append):
            raise UnsupportedError(
                f"cannot commit {type(transaction.operation).__name__} in a batch; only Append is supported"
            )
        for key, value in (transaction.transaction_properties or {}).items():
            if properties.setdefault(key, value) != value:
                raise InvalidInputError(f"two transactions of the batch set property {key!r} to different values")
    fragments = [fragment for transaction in transactions for fragment in cast("Any", transaction.operation).fragments]
    merged = Transaction(
        read_version=min(transaction.read_version for transaction in transactions),
        operation=LanceOperation.Append(fragments),
        transaction_properties=properties,
    )
    made = commit(
        cls,
        dest,
        merged,
        commit_lock=commit_lock,
        storage_options=storage_options,
        enable_v2_manifest_paths=enable_v2_manifest_paths,
        detached=detached,
        max_retries=max_retries,
        commit_message=commit_message,
        enable_stable_row_ids=enable_stable_row_ids,
        base_store_params=base_store_params,
        commit_timeout=commit_timeout,
        idempotency_key=idempotency_key,
    )
    return {"dataset": made, "merged": merged}


def find_commit(
    dataset: OpenDataset, idempotency_key: str, *, after: int | None = None, lookback: int = LOOKBACK
) -> int | None:
    """Return the version that a commit with this key made. Not in pylance.

    Args:
        idempotency_key: As in `commit`.
        after: Only newer versions are looked at; the newest ``lookback`` if None.
        lookback: How many.

    Returns:
        Its number; None if there is no such version.
    """
    return find_key(dataset.snapshot.store, idempotency_key, after=after, lookback=lookback)


def _read_version(store: Store, operation: LanceOperation.BaseOperation, read_version: int | None) -> int:
    """The version an operation is based on, if the caller did not say."""
    from lance_core.values.operations import LanceOperation  # noqa: PLC0415 twenty classes that few need

    if read_version is not None:
        return read_version
    if not isinstance(operation, (LanceOperation.Overwrite, LanceOperation.Restore)):
        raise InvalidInputError(f"{type(operation).__name__} needs 'read_version', the version that it is based on")
    return find_newest(store).newest or 0
