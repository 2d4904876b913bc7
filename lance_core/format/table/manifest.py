"""Manifest files: everything a version of a table consists of.

    dictionaries                only in tables of version 0.1: `lance_core.format.table.legacy_dictionaries`
    [u32 size][IndexSection]    only if there are indices   <- Manifest.index_section
    [u32 size][Transaction]     unless it is very large     <- Manifest.transaction_section
    section of checksums        not by other writers: `lance_core.format.file.checksums`
    [u32 size][Manifest]                                    <- position in the footer
    i64 position, u16 major = 0, u16 minor = 2, "LANC"

Little endian. Source: message ``Manifest`` of package ``lance.table``. Not supported: ``fragment_tree``, clustering
(reserved by the format; pylance drops them at the next commit, so do we).
"""

from __future__ import annotations

import struct
from dataclasses import field
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf.message import DecodeError

from lance_core._proto import table_pb2
from lance_core.common.frozen import NamedTuple, frozen, replace
from lance_core.common.limits import Limits, check_limit, limits
from lance_core.errors import CorruptDataError, LanceError, UnsupportedError
from lance_core.format import wire
from lance_core.format.blobs import is_second_version
from lance_core.format.file.checksums import MAGIC as CHECKSUMS_MAGIC
from lance_core.format.file.checksums import SECTION_SIZE, check_section, crc32, encode_section
from lance_core.format.file.file_version import LEGACY_FILE_VERSION
from lance_core.format.schema import Field, Schema, decode_fields
from lance_core.format.table import base_path as base_paths_format
from lance_core.format.table import feature_flags
from lance_core.format.table.fragment_list import FRAGMENTS_FIELD, FragmentList
from lance_core.format.table.index_metadata import IndexMetadata, decode_index_section, encode_index_section
from lance_core.format.table.legacy_dictionaries import decode_dictionaries, is_legacy_dictionary, place_dictionaries
from lance_core.format.table.transaction import (
    Transaction,
    decode_transaction,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from lance_core.format.table.base_path import BasePath

MAX_INLINE_TRANSACTION_SIZE = 20 << 20
"""Larger transactions are only in their own file, as pylance has it."""

_FIELDS_FIELD = 1
_MANY_HEADS, _LARGE_HEAD = 16, 1 << 20
_MANY_MANIFESTS, _SMALL_MANIFEST = 32, 1 << 17
_MANY_MADE = 8
_STABLE_ROW_IDS = int(feature_flags.Feature.STABLE_ROW_IDS)
_MANAGED_BLOBS = int(feature_flags.Feature.MANAGED_BLOBS)
_FILE_FORMAT = "lance"
_MAGIC = b"LANC"
_FOOTER = struct.Struct("<qHH4s")
_SIZE = struct.Struct("<I")
_FORMAT_VERSION = (0, 2)
_WRITER = table_pb2.WriterVersion(library="lance-dagster", version="0.1.0")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_USUAL_LIMITS = Limits()  # which no small manifest without base paths goes beyond


@frozen(kw_only=True)
class Manifest:
    """A version of a table (message ``Manifest``).

    Attributes:
        version: Number of the version.
        schema: Fields and schema metadata.
        fragments: Ascending by id in what lance_core writes.
        data_storage_version: File version of new data files, for example "2.2"; "0.1" is the legacy format.
        timestamp: When the version was committed, UTC.
        max_fragment_id: Highest fragment id ever used; None if there never was one.
        next_row_id: First stable row id that is free.
        reader_feature_flags: What a reader must know.
        writer_feature_flags: What a writer must know.
        config: Behaviour of the table.
        table_metadata: Free text about the table.
        base_paths: Other places with files of this table.
        branch: Branch the version is on; None for the main branch.
        tag: Unused by the format.
        transaction_file: Name below ``_transactions/``; empty if there is none.
        max_allocated_field_id: Highest field id ever used (feature flag 32768 only).
        index_section: Encoded ``IndexSection``; None if there are no indices.
        transaction_section: Encoded ``Transaction``; None if it is not in the file.
        has_reliable_counts: False if the writer did not record which one it was: pylance before 0.8.14, which left row
            counts out or recorded wrong ones.
    """

    version: int
    schema: Schema
    fragments: FragmentList
    data_storage_version: str
    timestamp: datetime | None = None
    max_fragment_id: int | None = None
    next_row_id: int = 0
    reader_feature_flags: int = 0
    writer_feature_flags: int = 0
    config: Mapping[str, str] = field(default_factory=dict)
    table_metadata: Mapping[str, str] = field(default_factory=dict)
    base_paths: tuple[BasePath, ...] = ()
    branch: str | None = None
    tag: str = ""
    transaction_file: str = ""
    max_allocated_field_id: int | None = None
    index_section: bytes | None = None
    transaction_section: bytes | None = None
    has_reliable_counts: bool = True

    @property
    def new_file_version(self) -> str:
        """Version of new data files: that of the table, but 2.2 where only that holds the table's blobs.

        pylance 14.0.2 appends files of version 2.2 to tables of 2.0 and 2.1, and makes their blobs version 2 by that.
        """
        has_second_version = any(is_second_version(field) for top in self.schema.special_fields for field in top.walk())
        return (
            "2.2" if has_second_version and self.data_storage_version in ("2.0", "2.1") else self.data_storage_version
        )

    @property
    def indices(self) -> tuple[IndexMetadata, ...]:
        """The index entries, decoded."""
        return () if self.index_section is None else decode_index_section(self.index_section)

    @property
    def uses_stable_row_ids(self) -> bool:
        """True if rows have ids that survive compaction."""
        return bool(self.reader_feature_flags & _STABLE_ROW_IDS)

    @property
    def num_rows(self) -> int:
        """Rows that are not deleted."""
        return self.fragments.total_num_rows

    def inline_transaction(self) -> Transaction | None:
        """Return the transaction inside the manifest file, or None."""
        return None if self.transaction_section is None else decode_transaction(self.transaction_section)


def encode_manifest_pieces(manifest: Manifest) -> list[bytes | memoryview]:
    """Encode a manifest with its sections and footer, as pieces: the records of fragments are not copied."""
    schema, dictionaries = manifest.schema, b""
    if manifest.data_storage_version == LEGACY_FILE_VERSION:
        schema, dictionaries = place_dictionaries(schema)
    parts: list[bytes | memoryview] = [dictionaries]
    position = len(dictionaries)

    def add(section: bytes | None) -> int | None:
        nonlocal position
        if section is None:
            return None
        start = position
        parts.extend((_SIZE.pack(len(section)), section))
        position += _SIZE.size + len(section)
        return start

    index_section = add(manifest.index_section)
    transaction_section = add(manifest.transaction_section)
    pb = _to_proto(manifest)
    if index_section is not None:
        pb.index_section = index_section
    if transaction_section is not None:
        pb.transaction_section = transaction_section
    # In the order of the field numbers; the records in the middle go into the file as they are.
    fields = schema.encoded  # field 1 here as well
    records, rest = manifest.fragments.parts, pb.SerializeToString()
    size = sum(map(len, (fields, *records, rest)))
    behind = (
        _SIZE.pack(size) + fields,
        *records,
        rest + _FOOTER.pack(position + SECTION_SIZE, *_FORMAT_VERSION, _MAGIC),
    )
    before = b"".join(parts)
    pieces = [before + encode_section(crc32(before), _sum(behind)) + behind[0], *behind[1:]]
    return [b"".join(pieces)] if size <= _SMALL_MANIFEST else pieces


def _sum(parts: Iterable[bytes | memoryview]) -> int:
    """Checksum of bytes end to end."""
    total = 0
    for part in parts:
        total = crc32(part, total)
    return total


def decode_manifest_file(data: bytes, *, version: int | None = None, path: str | None = None) -> Manifest:
    """Decode a manifest file.

    Args:
        data: The whole file.
        version: Number in the file's name, if known.
        path: The file, for errors.

    Raises:
        CorruptDataError: The file is damaged, or not the version its name says.
        UnsupportedError: The version uses features that lance_core cannot read.
    """
    bounds, end = _message_bounds(data, path)
    try:
        pb, fields, fragments = _decode_message(memoryview(data)[slice(*bounds)])
    except DecodeError as error:
        raise CorruptDataError(f"the manifest cannot be decoded: {error}", path=path, offset=bounds[0]) from error
    _check(pb, len(fields), len(fragments), version, path)
    manifest = _from_proto(
        pb, Schema(fields, dict(pb.schema_metadata) if pb.schema_metadata else {}), fragments, data, end, path=path
    )
    if pb.reader_feature_flags & _MANAGED_BLOBS and any(field.is_blob for field in manifest.schema.walk()):
        raise UnsupportedError("lance_core does not read managed blobs (feature flag 16384)", path=path)
    return manifest


def decode_known_manifest(data: bytes, *, version: int | None = None, path: str | None = None) -> Manifest:
    """As `decode_manifest_file`; small manifests whose very bytes were decoded before are not decoded again.

    A table that nobody writes to is opened many times in a process: by each asset, check and sensor of a pipeline.
    """
    if len(data) > _SMALL_MANIFEST:
        return decode_manifest_file(data, version=version, path=path)
    try:
        manifest = _made(data) or _decode_small(data, limits())
    except LanceError as error:
        error.path = error.path or path
        raise
    _check_version(manifest.version, version, path)
    return manifest


_MADE: list[tuple[bytes, Manifest]] = []
"""What this process wrote last, with all bytes of the file: who appends again and again finds its own version."""


def _made(data: bytes) -> Manifest | None:
    for value, manifest in _MADE:
        if value == data:
            return manifest
    return None


def remember_manifest(manifest: Manifest, pieces: Sequence[bytes | memoryview]) -> None:
    """Let `decode_known_manifest` know what it would find in a file that was just written.

    Args:
        manifest: The version. One that readers may have to refuse, or that is small for nobody, is not remembered.
        pieces: What `encode_manifest_pieces` made of it.
    """
    data = pieces[0]
    may_be_refused = (
        manifest.base_paths or _has_dictionaries(manifest) or manifest.reader_feature_flags & _MANAGED_BLOBS
    )
    if len(pieces) > 1 or not isinstance(data, bytes) or may_be_refused or limits() != _USUAL_LIMITS:
        return
    _MADE[:] = [(data, manifest), *_MADE[: _MANY_MADE - 1]]  # in one step: other threads may be looking


def _has_dictionaries(manifest: Manifest) -> bool:
    is_legacy = manifest.data_storage_version == LEGACY_FILE_VERSION
    return is_legacy and any(map(is_legacy_dictionary, manifest.schema.walk()))


@lru_cache(maxsize=_MANY_MANIFESTS)
def _decode_small(data: bytes, allowed: Limits) -> Manifest:
    """Return a manifest that the limits of this process allow."""
    del allowed  # what was decoded under other limits is another answer
    return decode_manifest_file(data)


def _message_bounds(data: bytes, path: str | None) -> tuple[tuple[int, int], int]:
    """Return the bounds of the message and the start of the footer, after checking the checksums."""
    size = len(data)
    if size > limits().max_manifest_bytes:
        check_limit("max_manifest_bytes", size, "bytes of a manifest", path=path)
    end = size - _FOOTER.size
    if end < 0:
        raise CorruptDataError(f"the manifest file has only {size} bytes", path=path)
    position, major, _, magic = _FOOTER.unpack_from(data, end)
    if magic != _MAGIC or major != _FORMAT_VERSION[0]:
        raise CorruptDataError(f"the footer of a manifest ends in {magic!r}, version {major}", path=path, offset=end)
    bounds = _bounds(data, position, end, path)
    if not check_section(data, position - SECTION_SIZE, path=path) and bounds[1] != end and CHECKSUMS_MAGIC in data:
        raise CorruptDataError("the footer does not lead to the manifest", path=path, offset=end)
    return bounds, end


def _check(pb: table_pb2.Manifest, num_fields: int, num_fragments: int, version: int | None, path: str | None) -> None:
    _check_version(pb.version, version, path)
    feature_flags.check_readable(pb.reader_feature_flags, pb.writer_feature_flags, path=path)
    if pb.base_paths:
        check_limit("max_base_paths", len(pb.base_paths), "base paths", path=path)
    if not num_fields:
        raise CorruptDataError("the manifest has no fields", path=path)
    if not num_fragments and pb.HasField("fragment_tree"):
        raise UnsupportedError("the fragments are not in the manifest (fragment_tree)", path=path)


def _check_version(stored: int, version: int | None, path: str | None) -> None:
    if version is not None and stored != version:
        raise CorruptDataError(f"the manifest of version {version} contains version {stored}", path=path)


class ManifestFiles(NamedTuple):
    """The files that a version needs, for cleanup; much cheaper to decode than a `Manifest`.

    Attributes:
        timestamp: As in `Manifest`.
        writer_feature_flags: As in `Manifest`.
        fragments: The encoded messages.
        transaction_file: As in `Manifest`.
        base_paths: As in `Manifest`.
        indices: As in `Manifest`.
    """

    timestamp: datetime | None
    writer_feature_flags: int
    fragments: Sequence[bytes]
    transaction_file: str
    base_paths: tuple[BasePath, ...]
    indices: tuple[IndexMetadata, ...]


def manifest_files(manifest: Manifest) -> ManifestFiles:
    """Return the files of a manifest that is decoded already."""
    return ManifestFiles(
        timestamp=manifest.timestamp,
        writer_feature_flags=manifest.writer_feature_flags,
        fragments=manifest.fragments.records,
        transaction_file=manifest.transaction_file,
        base_paths=manifest.base_paths,
        indices=manifest.indices,
    )


def decode_manifest_files(data: bytes, *, version: int | None = None, path: str | None = None) -> ManifestFiles:
    """Decode the files that a manifest refers to; arguments and errors are those of `decode_manifest_file`."""
    bounds, end = _message_bounds(data, path)
    try:
        pb = table_pb2.Manifest.FromString(data[bounds[0] : bounds[1]])
    except DecodeError as error:
        raise CorruptDataError(f"the manifest cannot be decoded: {error}", path=path, offset=bounds[0]) from error
    num_fields, fragments = len(pb.fields), pb.fragments
    if num_fields > limits().max_fields:
        check_limit("max_fields", num_fields, "fields", path=path)
    _check(pb, num_fields, len(fragments), version, path)
    indices: tuple[IndexMetadata, ...] = ()
    if pb.HasField("index_section"):
        indices = decode_index_section(_section(data, pb.index_section, end, path))
    bases = pb.base_paths
    return ManifestFiles(
        _timestamp(pb),
        pb.writer_feature_flags,
        fragments,
        pb.transaction_file,
        tuple([base_paths_format.from_proto(base) for base in bases]) if bases else (),
        indices,
    )


def with_transaction(manifest: Manifest, transaction: Transaction, record: bytes) -> Manifest:
    """Put the transaction that made it into a manifest: a small one whole, a large one by the name of its file.

    Args:
        manifest: The new version.
        transaction: What made it.
        record: The encoded transaction.
    """
    inline = record if len(record) <= MAX_INLINE_TRANSACTION_SIZE else None
    return replace(manifest, transaction_section=inline, transaction_file=transaction.file_name)


def index_section_of(indices: tuple[IndexMetadata, ...]) -> bytes | None:
    """Return the encoded section; None if nothing is left in it."""
    return encode_index_section(indices) if indices else None


def _decode_message(message: memoryview) -> tuple[table_pb2.Manifest, tuple[Field, ...], FragmentList]:
    """Decode the message, whose records of fragments stay where they are.

    Returns:
        Perhaps without fields and fragments; the top-level fields; the fragments.

    Raises:
        DecodeError: Not a manifest.
    """
    data = np.frombuffer(message, np.uint8)
    start = wire.skip_fields(data, FRAGMENTS_FIELD)
    bounds = None if start is None else wire.find_frames(data, start, FRAGMENTS_FIELD)
    if bounds is not None and len(bounds) > 1:
        check_limit("max_fragments", len(bounds) - 1, "fragments")
        first, behind = int(bounds[0]), int(bounds[-1])
        check_limit("max_metadata_bytes", len(message) - (behind - first), "bytes of a manifest besides its fragments")
        decode_head = _decode_head if first < _LARGE_HEAD else _decode_head.__wrapped__
        fields, pb = decode_head(bytes(message[:first])), table_pb2.Manifest.FromString(bytes(message[behind:]))
        if fields is not None and not pb.fragments and not pb.fields:
            return pb, fields, FragmentList.framed((message[first:behind],), bounds - first)
    pb = table_pb2.Manifest.FromString(bytes(message))
    check_limit("max_fragments", len(pb.fragments), "fragments")
    check_limit("max_fields", len(pb.fields), "fields")
    return pb, decode_fields(pb.fields, {}).fields, FragmentList(pb.fragments)


@lru_cache(maxsize=_MANY_HEADS)
def _decode_head(encoded: bytes) -> tuple[Field, ...] | None:
    """Return the fields that lie before the fragments, the same in most versions; None if there is something else."""
    pb = table_pb2.Manifest.FromString(encoded)
    check_limit("max_fields", len(pb.fields), "fields")
    is_alone = [descriptor.number for descriptor, _ in pb.ListFields()] == [_FIELDS_FIELD]
    return decode_fields(pb.fields, {}).fields if is_alone else None


def _section(data: bytes, position: int, end: int, path: str | None) -> bytes:
    return data[slice(*_bounds(data, position, end, path))]


def _bounds(data: bytes, position: int, end: int, path: str | None) -> tuple[int, int]:
    """Content of a section that starts with its size and lies before ``end``."""
    start = position + _SIZE.size
    if position < 0 or start > end:
        raise CorruptDataError(f"a section begins outside the file of {len(data)} bytes", path=path, offset=position)
    (size,) = _SIZE.unpack_from(data, position)
    if start + size > end:
        raise CorruptDataError(f"a section of {size} bytes runs past the end", path=path, offset=position)
    return start, start + size


def _from_proto(
    pb: table_pb2.Manifest, schema: Schema, fragments: FragmentList, data: bytes, end: int, *, path: str | None
) -> Manifest:
    data_storage_version = _data_storage_version(pb, fragments, path)
    if data_storage_version == LEGACY_FILE_VERSION:
        schema = decode_dictionaries(schema, data, path)
    transaction_position = _optional(pb, "transaction_section")
    if transaction_position is None:
        transaction_position = _optional(pb, "transaction_section_deprecated")
    index_position = _optional(pb, "index_section")
    return Manifest(
        version=pb.version,
        schema=schema,
        fragments=fragments,
        data_storage_version=data_storage_version,
        timestamp=_timestamp(pb),
        max_fragment_id=_optional(pb, "max_fragment_id"),
        next_row_id=pb.next_row_id,
        reader_feature_flags=pb.reader_feature_flags,
        writer_feature_flags=pb.writer_feature_flags,
        config=dict(pb.config) if pb.config else {},  # maps that are empty are slow to go through
        table_metadata=dict(pb.table_metadata) if pb.table_metadata else {},
        base_paths=tuple([base_paths_format.from_proto(base) for base in pb.base_paths]),
        branch=pb.branch if pb.HasField("branch") else None,
        tag=pb.tag,
        transaction_file=pb.transaction_file,
        max_allocated_field_id=_optional(pb, "max_allocated_field_id"),
        index_section=None if index_position is None else _section(data, index_position, end, path),
        transaction_section=None if transaction_position is None else _section(data, transaction_position, end, path),
        has_reliable_counts=pb.HasField("writer_version"),
    )


def _optional(pb: table_pb2.Manifest, name: Any) -> Any:
    return getattr(pb, name) if pb.HasField(name) else None


def _data_storage_version(pb: table_pb2.Manifest, fragments: FragmentList, path: str | None) -> str:
    if pb.HasField("data_format"):
        if pb.data_format.file_format != _FILE_FORMAT:
            raise UnsupportedError(f"data files of format {pb.data_format.file_format!r} are not supported", path=path)
        return pb.data_format.version
    # Before the field existed, the files themselves told; 0.2 is how entries of legacy files are numbered.
    files = fragments[0].files if len(fragments) else ()
    if not files or files[0].file_major_version == 0:
        return LEGACY_FILE_VERSION
    return f"{files[0].file_major_version}.{files[0].file_minor_version}"


def _timestamp(pb: table_pb2.Manifest) -> datetime | None:
    if not pb.HasField("timestamp"):
        return None
    since = pb.timestamp
    try:
        return _EPOCH + timedelta(0, since.seconds, since.nanos // 1000)
    except OverflowError:
        return None


def _to_proto(manifest: Manifest) -> table_pb2.Manifest:
    """Everything but the fields and the fragments."""
    pb = table_pb2.Manifest(
        version=manifest.version,
        schema_metadata=dict(manifest.schema.metadata) or None,  # empty maps take time, too
        tag=manifest.tag,
        reader_feature_flags=manifest.reader_feature_flags,
        writer_feature_flags=manifest.writer_feature_flags,
        max_fragment_id=manifest.max_fragment_id,
        transaction_file=manifest.transaction_file,
        writer_version=_WRITER if manifest.has_reliable_counts else None,
        next_row_id=manifest.next_row_id,
        data_format=table_pb2.DataStorageFormat(file_format=_FILE_FORMAT, version=manifest.data_storage_version),
        config=dict(manifest.config) or None,
        base_paths=[base_paths_format.to_proto(base) for base in manifest.base_paths],
        table_metadata=dict(manifest.table_metadata) or None,
        branch=manifest.branch,
        max_allocated_field_id=manifest.max_allocated_field_id,
    )
    if manifest.timestamp is not None:
        since = manifest.timestamp - _EPOCH
        pb.timestamp.seconds = since // timedelta(seconds=1)
        pb.timestamp.nanos = since % timedelta(seconds=1) // timedelta(microseconds=1) * 1000
    return pb
