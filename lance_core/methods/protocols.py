"""Protocols of the objects that the methods belong to: `LanceDataset` and `LanceFragment` are defined above them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self, cast

from lance_core.table.snapshot import Snapshot

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from lance_core.change.row_index import RowIndex
    from lance_core.format.table.fragment import Fragment
    from lance_core.scan.open_files import OpenFiles
    from lance_core.scanner import LanceScanner
    from lance_core.table.commit_lock import CommitLock
    from lance_core.table.refs import Reference


class OpenDataset(Protocol):
    """One version of a dataset, see `lance_core.LanceDataset`.

    Attributes:
        files: Data files that are open.
        row_index: Index of the version's row ids, if one was made.
        storage_options: Settings of the storage service.
        base_store_params: Settings of base paths, by address.
        default_scan_options: Arguments of scans that do not give them.
        commit_lock: Lock of the caller for commits.
    """

    files: OpenFiles
    row_index: RowIndex | None
    storage_options: dict[str, str]
    base_store_params: dict[str, dict[str, str]]
    default_scan_options: dict[str, Any] | None
    commit_lock: CommitLock | None

    def __init__(
        self,
        uri: str | os.PathLike[str],
        *,
        commit_lock: CommitLock | None = None,
        storage_options: Mapping[str, str] | None = None,
        session: Any = None,
        base_store_params: Mapping[str, Mapping[str, str]] | None = None,
        snapshot: Snapshot | None = None,
    ) -> None: ...

    @property
    def snapshot(self) -> Snapshot:
        """The version; methods that make a version move the object to it."""
        ...

    @snapshot.setter
    def snapshot(self, snapshot: Snapshot) -> None: ...

    @property
    def uri(self) -> str:
        """Absolute address."""
        ...

    @property
    def version(self) -> int:
        """Number of the version."""
        ...

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema."""
        ...

    @property
    def scanner(self) -> Callable[..., LanceScanner]:
        """Prepare a scan; see `lance_core.methods.reading.scanner`."""
        ...

    def reopened(self, version: Reference = None) -> Self:
        """Open the dataset again, at a version, a tag or the newest version."""
        ...


class OpenFragment(Protocol):
    """One fragment of a version, see `lance_core.LanceFragment`."""

    @property
    def dataset(self) -> OpenDataset:
        """The dataset that it was taken from."""
        ...

    @property
    def snapshot(self) -> Snapshot:
        """The version that it belongs to."""
        ...

    @property
    def inner(self) -> Fragment:
        """The fragment as the manifest describes it, in lance_core's own form."""
        ...


def open_dataset_of(target: str | os.PathLike[str] | OpenDataset) -> OpenDataset | None:
    """Return the dataset if the target is an open one, None if it is an address."""
    return cast("OpenDataset", target) if isinstance(getattr(target, "snapshot", None), Snapshot) else None


def address_of(
    target: str | os.PathLike[str] | OpenDataset, storage_options: Mapping[str, str] | None
) -> tuple[str | os.PathLike[str], Mapping[str, str] | None]:
    """Return the address and the storage options of a target; an open dataset has options of its own."""
    dataset = open_dataset_of(target)
    if dataset is None:
        return cast("str | os.PathLike[str]", target), storage_options
    return dataset.uri, storage_options or dataset.storage_options


def base_params_of(
    target: str | os.PathLike[str] | OpenDataset, base_store_params: Mapping[str, Mapping[str, str]] | None
) -> Mapping[str, Mapping[str, str]] | None:
    """Return the settings of base paths of a target; an open dataset has settings of its own."""
    dataset = open_dataset_of(target)
    return dataset.base_store_params if base_store_params is None and dataset is not None else base_store_params
