"""Destinations of staged blobs outside their data file, and rules for external ones."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from lance_core.common.frozen import frozen
from lance_core.errors import InvalidInputError
from lance_core.format.blobs import blob_file_path
from lance_core.store.addresses import parse_address, scheme_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_core.store.base import ObjectWriter, Store


@frozen(kw_only=True)
class ExternalBlobs:
    """Rule for the addresses of external blobs.

    Attributes:
        bases: Addresses of the table's base paths, by id.
        may_be_anywhere: Also take those that are below none of them.
    """

    bases: Mapping[int, str] = field(default_factory=dict[int, str])
    may_be_anywhere: bool = True

    def locate(self, uri: str) -> tuple[int, str]:
        """Base path (0 for none) and address below it.

        Raises:
            InvalidInputError: The address is below no base path, and may not be anywhere.
        """
        if not scheme_of(uri) and not uri.startswith("/"):
            raise InvalidInputError(f"external blob {uri!r} is no absolute address, like file:///folder/name")
        address = parse_address(uri)
        for number, base in self.bases.items():
            folder = parse_address(base)
            if address.is_below(folder) and address.path != folder.path:
                return number, address.path[len(folder.path.rstrip("/")) :].lstrip("/")
        if not self.may_be_anywhere:
            raise InvalidInputError(
                f"external blob {uri!r} is below no base path of the table; allow_external_blob_outside_bases=True "
                "takes it nevertheless"
            )
        return 0, uri


@frozen
class StagedBlobs:
    """Blob files beside one data file.

    Attributes:
        store: The dataset.
        data_path: Path of the data file.
        external: Which external blobs are taken.
    """

    store: Store
    data_path: str
    external: ExternalBlobs

    def open(self, blob_id: int) -> ObjectWriter:
        """Begin a blob file."""
        return self.store.writer(blob_file_path(self.data_path, blob_id))

    def locate(self, uri: str) -> tuple[int, str]:
        """See `ExternalBlobs.locate`."""
        return self.external.locate(uri)
