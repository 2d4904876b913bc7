"""Other places in which a dataset keeps files, as users see them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.common.frozen import frozen
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.table.base_path import BasePath
from lance_core.store.addresses import parse_address
from lance_core.store.trust import WRITABLE, allowing

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
    """Return the public form of a base path."""
    return DatasetBasePath(base.path, base.name, base.is_dataset_root, base.id)


def from_public(bases: Iterable[DatasetBasePath] | None) -> tuple[BasePath, ...]:
    """Return the inner form of base paths that shall be added; addresses are made absolute.

    Raises:
        InvalidInputError: Something else, an id that is none, or an address that a table may not name.
        UnsupportedError: A service that data cannot be written to.
    """
    return tuple(_from_public(base) for base in bases or ())


def allowing_bases(
    base_store_params: Mapping[str, Mapping[str, str]] | None, bases: Iterable[BasePath]
) -> dict[str, dict[str, str]]:
    """Settings of places, with the bases that the caller names himself; see `lance_core.store.trust.allowing`."""
    return allowing(base_store_params, [base.path for base in bases])


def _from_public(base: DatasetBasePath) -> BasePath:
    if not isinstance(base, DatasetBasePath):  # pyright: ignore[reportUnnecessaryIsInstance] callers are not checked
        raise InvalidInputError(f"expected a DatasetBasePath, not {base!r}")
    if base.id is not None and not 0 < base.id < 1 << 32:
        raise InvalidInputError(f"the id of a base path must be between 1 and {(1 << 32) - 1}, not {base.id}")
    if base.name == "":
        raise InvalidInputError("the name of a base path must not be empty")
    parsed = parse_address(base.path)
    if parsed.service not in WRITABLE:
        raise UnsupportedError(
            f"cannot write data to base path {base.path!r}: {parsed.service}:// addresses are not supported"
        )
    # A relative address would mean something else to each reader.
    return BasePath(id=base.id or 0, path=parsed.text, name=base.name, is_dataset_root=base.is_dataset_root)
