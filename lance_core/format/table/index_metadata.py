"""Entries of a manifest's index section.

lance_core keeps the entries of kinds that it does not know byte for byte, and takes away the fragments for which they
no longer hold; readers with index support then scan those instead.

Source: message ``IndexMetadata`` of package ``lance.table``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError
from pyroaring import BitMap

from lance_core._proto import table_pb2
from lance_core.common.frozen import frozen
from lance_core.errors import CorruptDataError
from lance_core.format.table.bitmap import decode_bitmap

if TYPE_CHECKING:
    from collections.abc import Collection


@frozen(kw_only=True)
class IndexMetadata:
    """One index, or one segment of it.

    Attributes:
        uuid: 16 bytes; its hexadecimal form names a folder below ``_indices/``.
        name: Name of the index; segments share it.
        fields: Ids of the indexed fields.
        covering_fields: Ids of fields whose values the index stores.
        record: The whole encoded message.
    """

    uuid: bytes
    name: str
    fields: tuple[int, ...]
    covering_fields: tuple[int, ...]
    record: bytes

    @classmethod
    def from_proto(cls, pb: table_pb2.IndexMetadata) -> IndexMetadata:
        """Turn a parsed message into a value (for the modules of this package)."""
        return cls(
            uuid=pb.uuid.uuid,
            name=pb.name,
            fields=tuple(pb.fields),
            covering_fields=tuple(pb.covering_fields),
            record=pb.SerializeToString(),
        )

    @property
    def uuid_text(self) -> str:
        """The uuid as it is written in paths, hyphenated."""
        digits = self.uuid.hex()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    @property
    def fragment_ids(self) -> frozenset[int] | None:
        """Fragments that the index covers; None if the writer did not record them."""
        return _decoded_fields(self.record).fragment_ids

    @property
    def base_id(self) -> int | None:
        """Base path that the index lies below; None for the dataset itself."""
        return _decoded_fields(self.record).base_id


@frozen(kw_only=True)
class IndexFields:
    """The fields of an index entry.

    Attributes:
        uuid: 16 bytes.
        name: Name of the index.
        fields: Ids of the indexed fields.
        dataset_version: Version that the index was built on.
        fragment_ids: Fragments that it covers; None if that is not recorded.
        index_version: Version of the index's format.
        created_at: Unix milliseconds; None if not recorded.
        base_id: Base path that it lies below; None for the dataset itself.
        files: Path and size of each file; empty if not recorded.
        details: Type URL and content of its description; None if there is none.
        covering_fields: Ids of fields whose values the index stores.
    """

    uuid: bytes
    name: str
    fields: tuple[int, ...]
    dataset_version: int
    fragment_ids: frozenset[int] | None = None
    index_version: int = 0
    created_at: int | None = None
    base_id: int | None = None
    files: tuple[tuple[str, int], ...] = ()
    details: tuple[str, bytes] | None = None
    covering_fields: tuple[int, ...] = ()


def index_fields(index: IndexMetadata) -> IndexFields:
    """Decode an entry field by field.

    Raises:
        CorruptDataError: Its set of fragments is damaged.
    """
    return _decoded_fields(index.record)


@lru_cache(maxsize=64)
def _decoded_fields(record: bytes) -> IndexFields:
    """Decode an entry; each search and filter asks for the same ones."""
    pb = table_pb2.IndexMetadata.FromString(record)
    return IndexFields(
        uuid=pb.uuid.uuid,
        name=pb.name,
        fields=tuple(pb.fields),
        dataset_version=pb.dataset_version,
        fragment_ids=frozenset(_covered(pb)) if pb.fragment_bitmap else None,
        index_version=pb.index_version,
        created_at=pb.created_at if pb.HasField("created_at") else None,
        base_id=pb.base_id if pb.HasField("base_id") else None,
        files=tuple((file.path, file.size_bytes) for file in pb.files),
        details=(pb.index_details.type_url, pb.index_details.value) if pb.HasField("index_details") else None,
        covering_fields=tuple(pb.covering_fields),
    )


def index_kind(index: IndexMetadata) -> str:
    """Kind of an index as pylance calls it, for example ``BTree``; ``Unknown`` if the entry does not tell."""
    details = index_fields(index).details
    name = "" if details is None else details[0].rpartition(".")[2].removesuffix("IndexDetails")
    return name or "Unknown"


def make_index(fields: IndexFields) -> IndexMetadata:
    """Encode an entry."""
    pb = table_pb2.IndexMetadata(
        uuid=table_pb2.UUID(uuid=fields.uuid),
        fields=fields.fields,
        name=fields.name,
        dataset_version=fields.dataset_version,
        index_version=fields.index_version,
        created_at=fields.created_at,
        base_id=fields.base_id,
        files=[table_pb2.IndexFile(path=path, size_bytes=size) for path, size in fields.files],
        covering_fields=fields.covering_fields,
    )
    if fields.fragment_ids is not None:
        pb.fragment_bitmap = BitMap(fields.fragment_ids).serialize()
    if fields.details is not None:
        pb.index_details.type_url, pb.index_details.value = fields.details
    return IndexMetadata.from_proto(pb)


def with_base_id(index: IndexMetadata, base_id: int | None) -> IndexMetadata:
    """Return the same index at another place."""
    pb = table_pb2.IndexMetadata.FromString(index.record)
    pb.ClearField("base_id")
    if base_id is not None:
        pb.base_id = base_id
    return IndexMetadata.from_proto(pb)


@frozen(kw_only=True)
class RewrittenIndex:
    """An index whose files were rewritten for the new row addresses.

    Attributes:
        old_id: Uuid of the entry that is replaced, 16 bytes.
        new_id: Uuid of the new files, 16 bytes.
        type_url: Kind of the index, None to keep what the entry says.
        details: Description of the index that goes with it.
        index_version: Version of the index's format.
        files: Path and size of each new file; empty if the writer did not record them.
    """

    old_id: bytes
    new_id: bytes
    type_url: str | None = None
    details: bytes = b""
    index_version: int = 0
    files: tuple[tuple[str, int], ...] = ()


def with_new_files(index: IndexMetadata, rewritten: RewrittenIndex) -> IndexMetadata:
    """Return the entry of an index whose files were rewritten; the version that it was built on stays, as in pylance.

    Args:
        index: The entry before.
        rewritten: What replaces its files.
    """
    pb = table_pb2.IndexMetadata.FromString(index.record)
    pb.uuid.uuid = rewritten.new_id
    pb.index_version = rewritten.index_version
    if rewritten.type_url is not None:
        pb.index_details.type_url, pb.index_details.value = rewritten.type_url, rewritten.details
    pb.ClearField("files")
    pb.files.extend(table_pb2.IndexFile(path=path, size_bytes=size) for path, size in rewritten.files)
    pb.ClearField("base_id")
    return IndexMetadata.from_proto(pb)


_LAST_VERSION_WITH_ROW_IDS = {
    "bitmap": 0,
    "btree": 0,
    "inverted": 2,
    "json": 0,
    "labellist": 1,
    "minhashlsh": 0,
    "ngram": 0,
    "rtree": 0,
    "vector": 2,
}
"""By kind in lower case, the newest index version that knows rows by id. Measured with pylance 0.39 and 14.0.2: a
compaction of theirs keeps the files of such an index and changes its fragments only. Since version 1 a B-tree holds
row addresses; kinds that are missing here know rows by fragment."""


def holds_row_ids(index: IndexMetadata) -> bool:
    """Return whether an index of a table with stable row ids knows rows by id and not by address.

    Kinds and index versions that are not known count as holding addresses, which is the safe answer.
    """
    last = _LAST_VERSION_WITH_ROW_IDS.get(index_kind(index).lower())
    return last is not None and index_fields(index).index_version <= last


_SHOWING_MOVED_ROWS = {"bitmap", "labellist"}
"""Kinds in lower case. Measured with pylance 14.0.2: where such an index has several segments of row ids, all entries
count, also those of rows that were updated since and are covered by another segment."""


def shows_moved_rows(index: IndexMetadata) -> bool:
    """Return whether pylance answers from entries of rows that have moved to the fragments of another segment."""
    return index_kind(index).lower() in _SHOWING_MOVED_ROWS and holds_row_ids(index)


def with_changed_coverage(
    index: IndexMetadata, *, removed: Collection[int] = (), added: Collection[int] = ()
) -> IndexMetadata:
    """Return the same index over other fragments; unchanged if it does not record which fragments it covers.

    Args:
        index: The index.
        removed: Ids of fragments that it no longer covers.
        added: Ids of fragments that it covers from now on.
    """
    pb = table_pb2.IndexMetadata.FromString(index.record)
    if not pb.fragment_bitmap:
        # Absent means unknown, and readers derive it from the index itself, which we cannot change.
        return index
    before = _covered(pb)
    after = before - BitMap(removed) | BitMap(added)
    if after == before:
        return index
    pb.fragment_bitmap = after.serialize()
    return IndexMetadata.from_proto(pb)


def _covered(pb: table_pb2.IndexMetadata) -> BitMap:
    return decode_bitmap(pb.fragment_bitmap, f"the fragments of index {pb.name!r}")


@lru_cache(maxsize=8)
def decode_index_section(data: bytes) -> tuple[IndexMetadata, ...]:
    """Decode an ``IndexSection`` message.

    Raises:
        CorruptDataError: Not an index section.
    """
    try:
        section = table_pb2.IndexSection.FromString(data)
    except DecodeError as error:
        raise CorruptDataError(f"the index section cannot be decoded: {error}") from error
    return tuple(IndexMetadata.from_proto(pb) for pb in section.indices)


def encode_index_section(indices: Collection[IndexMetadata]) -> bytes:
    """Encode as an ``IndexSection`` message."""
    return table_pb2.IndexSection(
        indices=[table_pb2.IndexMetadata.FromString(index.record) for index in indices]
    ).SerializeToString()
