"""Other places in which a dataset keeps files, as users see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.errors import InvalidInputError
from lance_core.format.base_path import BasePath
from lance_core.frozen import frozen
from lance_core.store.open import open_store
from lance_core.table.places import check_base_address

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@frozen
class DatasetBasePath:
    """Another place in which a dataset keeps files: a faster or cheaper store, another bucket or region.

    Attributes:
        path: Its address.
        name: What to call it when data is written; None if it has no name.
        is_dataset_root: True if data files go to the folder ``data`` in it; False if they go into it directly.
        id: Its number in the manifest; None lets the commit choose one.
    """

    path: str
    name: str | None = None
    is_dataset_root: bool = False
    id: int | None = None


def to_public(base: BasePath) -> DatasetBasePath:
    """The public form of a base path."""
    return DatasetBasePath(base.path, base.name, base.is_dataset_root, base.id)


def from_public(
    bases: Iterable[DatasetBasePath], *, dataset: str, storage_options: Mapping[str, str] | None
) -> tuple[BasePath, ...]:
    """The inner form of base paths that shall be added; addresses are made absolute.

    Raises:
        InvalidInputError: Something else, or an id that is none.
        UnsupportedError: An address that a manifest must not lead to, or that lance_core cannot open.
    """
    return tuple(_from_public(base, dataset, storage_options) for base in bases)


def _from_public(base: DatasetBasePath, dataset: str, storage_options: Mapping[str, str] | None) -> BasePath:
    if not isinstance(base, DatasetBasePath):  # pyright: ignore[reportUnnecessaryIsInstance] callers are not checked
        raise InvalidInputError(f"{base!r} is no DatasetBasePath")
    if base.id is not None and not 0 < base.id < 1 << 32:
        raise InvalidInputError(f"base path ids are from 1 to {(1 << 32) - 1}, not {base.id}")
    if base.name == "":
        raise InvalidInputError("the name of a base path must not be empty")
    check_base_address(base.path, dataset=dataset)
    # A relative address would mean something else to each reader.
    path = open_store(base.path, storage_options).uri
    return BasePath(id=base.id or 0, path=path, name=base.name, is_dataset_root=base.is_dataset_root)
