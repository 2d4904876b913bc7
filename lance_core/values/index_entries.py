"""Entries of a manifest's index section as users see them; names as in pylance."""

from __future__ import annotations

from dataclasses import field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from lance_core.common.frozen import frozen
from lance_core.errors import InvalidInputError
from lance_core.format.table.index_metadata import IndexFields, IndexMetadata, index_fields, make_index

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@frozen
class IndexFile:
    """A file of an index.

    Attributes:
        path: Below the folder of the index.
        size_bytes: Its size.
    """

    path: str
    size_bytes: int


@frozen(slots=False)
class Index:
    """An index, or one segment of it.

    Attributes:
        uuid: Identity, hyphenated; names a folder below ``_indices/``.
        name: Name of the index; segments share it.
        fields: Ids of the indexed fields.
        dataset_version: Version that it was built on.
        fragment_ids: Fragments that it covers.
        index_version: Version of the index's format.
        created_at: When it was built; None if that is not recorded.
        base_id: Base path that it lies below; None for the dataset itself.
        files: Its files; None if they are not recorded.
        index_details: Type URL and content of its description; None if there is none.
        covering_fields: Ids of fields whose values the index stores.
    """

    uuid: str
    name: str
    fields: Sequence[int]
    dataset_version: int
    fragment_ids: Iterable[int]
    index_version: int
    created_at: datetime | None = None
    base_id: int | None = None
    files: Sequence[IndexFile] | None = None
    index_details: tuple[str, bytes] | None = None
    covering_fields: Sequence[int] = field(default_factory=list[int])


def to_public(index: IndexMetadata) -> Index:
    """Return the public form of an entry."""
    fields = index_fields(index)
    return Index(
        uuid=index.uuid_text,
        name=fields.name,
        fields=list(fields.fields),
        dataset_version=fields.dataset_version,
        fragment_ids=set(fields.fragment_ids or ()),
        index_version=fields.index_version,
        created_at=None if fields.created_at is None else _EPOCH + timedelta(milliseconds=fields.created_at),
        base_id=fields.base_id,
        files=[IndexFile(path, size) for path, size in fields.files] or None,
        index_details=fields.details,
        covering_fields=list(fields.covering_fields),
    )


def from_public(index: Index) -> IndexMetadata:
    """Return the inner form of an entry.

    Raises:
        InvalidInputError: A value that no entry can have.
    """
    if not isinstance(index, Index):  # pyright: ignore[reportUnnecessaryIsInstance] callers are not checked
        raise InvalidInputError(f"expected an Index, not {index!r}")
    try:
        created = index.created_at
        return make_index(
            IndexFields(
                uuid=uuid_bytes(index.uuid),
                name=index.name,
                fields=tuple(index.fields),
                dataset_version=index.dataset_version,
                fragment_ids=frozenset(index.fragment_ids),
                index_version=index.index_version,
                created_at=None if created is None else (created - _EPOCH) // timedelta(milliseconds=1),
                base_id=index.base_id,
                files=tuple((file.path, file.size_bytes) for file in index.files or ()),
                details=index.index_details,
                covering_fields=tuple(index.covering_fields),
            )
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"index {index.name!r} cannot be written: {error}") from error


def uuid_bytes(text: str) -> bytes:
    """Return the 16 bytes of a hyphenated uuid.

    Raises:
        InvalidInputError: Not a uuid.
    """
    try:
        return UUID(text).bytes
    except (ValueError, AttributeError, TypeError) as error:
        raise InvalidInputError(f"{text!r} is not a UUID") from error
