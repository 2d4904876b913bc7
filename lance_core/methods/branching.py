"""Methods of `LanceDataset` about branches, clones and the places that a dataset has files in."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, TypeVar

from lance_core.change.retries import commit_operation
from lance_core.common.unsupported import refuse_given
from lance_core.format.table.operations import UpdateBases
from lance_core.store.addresses import parse_dataset
from lance_core.store.open import open_store
from lance_core.table import branches, clones
from lance_core.table.locations import branch_of
from lance_core.table.open_table import open_version
from lance_core.values.base_paths import DatasetBasePath, allowing_bases, from_public, to_public

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from lance_core.methods.protocols import OpenDataset
    from lance_core.table.refs import Reference
    from lance_core.table.snapshot import Snapshot

_Dataset = TypeVar("_Dataset", bound="OpenDataset")


def create_branch(
    dataset: _Dataset,
    branch: str,
    reference: Reference = None,
    storage_options: Mapping[str, str] | None = None,
) -> _Dataset:
    """Create a branch, which shares the existing files.

    Args:
        branch: Letters, digits, ``.``, ``-`` and ``_``; several parts with ``/`` between them.
        reference: Version number on this branch, tag, or tuple of branch (None: the main branch) and number (None: the
            newest); this version if None.
        storage_options: Settings of the storage service; those of the dataset if None.

    Returns:
        The first version of the branch, which has the same number.

    Raises:
        InvalidInputError: The name is not allowed.
        RefAlreadyExistsError: There is a branch of this name.
        RefNotFoundError: There is no such tag or branch to begin at.
        VersionNotFoundError: There is no such version.

    Examples:
        >>> trial = table.create_branch("trial")
        >>> trial.delete("id = 1")
        {'num_deleted_rows': 1}
        >>> trial.count_rows(), table.count_rows()
        (3, 4)
    """
    options = dataset.storage_options if storage_options is None else storage_options
    snapshot = branches.create_branch(_referred(dataset, reference), branch, uuid=str(uuid.uuid4()))
    return type(dataset)(
        snapshot.store.uri, storage_options=options, base_store_params=dataset.base_store_params, snapshot=snapshot
    )


def shallow_clone(
    dataset: _Dataset,
    target_path: str | os.PathLike[str],
    reference: Reference = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    namespace_client: Any = None,
    table_id: Sequence[str] | None = None,
) -> _Dataset:
    """Make a dataset that begins as a version of this one and refers to its files.

    Tag the version to keep it from clean-up as long as the clone is used.

    Args:
        target_path: Address of the new dataset.
        reference: As in `create_branch`.
        storage_options: Settings of its storage service; those of the dataset if None.
        namespace_client: Not supported, like ``table_id``.
        table_id: Not supported.

    Raises:
        DatasetAlreadyExistsError: There is a dataset at the target.

    Examples:
        >>> clone = table.shallow_clone("clone.lance")
        >>> clone.count_rows()
        4
    """
    refuse_given("shallow_clone", namespace_client=namespace_client, table_id=table_id)
    return _clone(dataset, target_path, reference, storage_options, is_shallow=True)


def deep_clone(
    dataset: _Dataset,
    target_path: str | os.PathLike[str],
    reference: Reference = None,
    storage_options: Mapping[str, str] | None = None,
    *,
    namespace_client: Any = None,
    table_id: Sequence[str] | None = None,
) -> _Dataset:
    """Copy a version of this dataset, with all files it needs, into a dataset of its own; as `shallow_clone`."""
    refuse_given("deep_clone", namespace_client=namespace_client, table_id=table_id)
    return _clone(dataset, target_path, reference, storage_options, is_shallow=False)


def base_paths(dataset: OpenDataset) -> dict[int, DatasetBasePath]:
    """Return the other places in which this version may have files, by their number."""
    return {base.id: to_public(base) for base in dataset.snapshot.manifest.base_paths}


def add_bases(
    dataset: _Dataset,
    new_bases: Sequence[DatasetBasePath],
    transaction_properties: Mapping[str, str] | None = None,
) -> _Dataset:
    """Add places in which new data can be written (``target_bases``); this object moves to the new version.

    Args:
        new_bases: Places; an address or name that the dataset has already is refused.
        transaction_properties: Text for the history.

    Returns:
        This dataset.

    Raises:
        InvalidInputError: Two places of one id, name or address.
        CommitConflictError: Another commit added such a place.
    """
    bases = from_public(new_bases)
    dataset.base_store_params = allowing_bases(dataset.base_store_params, bases)
    dataset.snapshot = commit_operation(dataset.snapshot, UpdateBases(new_bases=bases), transaction_properties)
    return dataset


def _referred(dataset: OpenDataset, reference: Reference) -> Snapshot:
    return dataset.snapshot if reference is None else open_version(dataset.snapshot.store, reference)


def _clone(
    dataset: _Dataset,
    target_path: str | os.PathLike[str],
    reference: Reference,
    storage_options: Mapping[str, str] | None,
    *,
    is_shallow: bool,
) -> _Dataset:
    options = dataset.storage_options if storage_options is None else storage_options
    target = open_store(target_path, options)
    clone = clones.shallow_clone if is_shallow else clones.deep_clone
    snapshot = clone(_referred(dataset, reference), target, uuid=str(uuid.uuid4()))
    base_store_params: dict[str, dict[str, str]] = dict(dataset.base_store_params)
    source, _ = branch_of(dataset.snapshot.store)
    if is_shallow and parse_dataset(source.uri) is not None:
        base_store_params.setdefault(source.uri, dataset.storage_options)
    return type(dataset)(target_path, storage_options=options, base_store_params=base_store_params, snapshot=snapshot)
