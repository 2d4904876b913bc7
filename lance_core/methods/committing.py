"""`LanceDataset.commit`: make a change that was staged anywhere a new version."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lance_core.arguments import check_unsupported
from lance_core.errors import InvalidInputError
from lance_core.format.transaction import COMMIT_MESSAGE_KEY
from lance_core.operations import LanceOperation, Transaction, to_inner
from lance_core.store.open import open_store
from lance_core.table.commit import DEFAULT_MAX_RETRIES
from lance_core.table.commit import commit as publish
from lance_core.table.snapshot import find_newest

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from lance_core.dataset import LanceDataset
    from lance_core.store.base import Store


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
    from lance_core.dataset import LanceDataset, place_of  # noqa: PLC0415 the class lists this function

    check_unsupported("commit", unsupported)
    address, storage_options = place_of(base_uri, storage_options)
    store = open_store(address, storage_options)
    if not isinstance(operation, Transaction):
        operation = Transaction(_read_version(store, operation, read_version), operation)
    transaction = to_inner(operation)
    if commit_message is not None:
        properties = {**transaction.transaction_properties, COMMIT_MESSAGE_KEY: commit_message}
        transaction = replace(transaction, transaction_properties=properties)
    snapshot = publish(store, transaction, max_retries=max_retries, enable_stable_row_ids=enable_stable_row_ids)
    return LanceDataset(address, storage_options=storage_options, snapshot=snapshot)


def _read_version(store: Store, operation: LanceOperation.BaseOperation, read_version: int | None) -> int:
    """The version an operation is based on, if the caller did not say."""
    if read_version is not None:
        return read_version
    if not isinstance(operation, (LanceOperation.Overwrite, LanceOperation.Restore)):
        raise InvalidInputError(f"{type(operation).__name__} needs read_version: the version the work is based on")
    return find_newest(store).newest or 0
