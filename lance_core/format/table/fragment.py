"""Fragments of a manifest: which data files hold which columns of which rows, and which rows are deleted.

Source: messages ``DataFragment``, ``DataFile`` and ``DeletionFile`` of package ``lance.table``. Not supported:
``overlays`` (feature flag 64). ``metadata`` and ``clustering_id`` are reserved by the format and not modelled: they
survive in fragments that a commit does not touch and are dropped from those it does, as pylance does.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from google.protobuf.message import DecodeError

from lance_core._proto import table_pb2
from lance_core.common.frozen import NamedTuple, frozen
from lance_core.errors import CorruptDataError, InvalidInputError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

TOMBSTONE_FIELD_ID = -2
"""Stands in ``DataFile.fields`` for a column that a newer file replaces."""


class DeletionFileType(StrEnum):
    """Layout of a deletion file; equal to the text that pylance uses for it."""

    ARROW_ARRAY = "array"
    BITMAP = "bitmap"


_DELETION_TYPES = tuple(DeletionFileType)
"""By their numbers."""


@frozen(kw_only=True)
class DataFile:
    """One data file of a fragment (message ``DataFile``).

    Attributes:
        path: File name below ``data/`` of its base.
        fields: Id of the field that each listed column belongs to; -2 is a tombstone, other negative ids are row
            lineage columns.
        column_indices: Column in the file for each of ``fields``.
        file_major_version: Major file version.
        file_minor_version: Minor file version.
        file_size_bytes: Size of the file, 0 if the writer did not record it.
        base_id: Entry of ``Manifest.base_paths`` that the file lies below; None for the dataset itself.
    """

    path: str
    fields: tuple[int, ...]
    column_indices: tuple[int, ...]
    file_major_version: int
    file_minor_version: int
    file_size_bytes: int = 0
    base_id: int | None = None

    def field_ids(self) -> list[int]:
        """Return the ids in `fields`."""
        return list(self.fields)


@frozen(kw_only=True)
class DeletionFile:
    """The file that lists a fragment's deleted rows (message ``DeletionFile``).

    Attributes:
        file_type: Layout.
        read_version: Version that the delete read; part of the file name.
        id: Random number; part of the file name.
        num_deleted_rows: Rows listed in the file.
        base_id: As in ``DataFile``.
    """

    file_type: DeletionFileType
    read_version: int
    id: int
    num_deleted_rows: int
    base_id: int | None = None

    def asdict(self) -> dict[str, Any]:
        """Return the attributes as a dict, in the order of pylance."""
        return {
            "read_version": self.read_version,
            "id": self.id,
            "file_type": str(self.file_type),
            "num_deleted_rows": self.num_deleted_rows,
            "base_id": self.base_id,
        }

    def json(self) -> str:
        """Return the attributes as JSON."""
        return json.dumps(self.asdict())

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> DeletionFile:
        """Read what `asdict` made; KeyError, TypeError or ValueError if it is something else."""
        return DeletionFile(
            file_type=DeletionFileType(data["file_type"]),
            read_version=data["read_version"],
            id=data["id"],
            num_deleted_rows=data["num_deleted_rows"],
            base_id=data.get("base_id"),
        )

    @staticmethod
    def from_json(text: str) -> DeletionFile:
        """Read what `json` made.

        Raises:
            InvalidInputError: Something else.
        """
        try:
            return DeletionFile.from_dict(json.loads(text))
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"cannot read the JSON of a deletion file: {error!r}") from error

    def path(self, fragment_id: int, base_uri: str | None = None) -> str:
        """Path of the file below its dataset or base path.

        Args:
            fragment_id: Id of its fragment.
            base_uri: Address to put before the path.
        """
        suffix = "arrow" if self.file_type == DeletionFileType.ARROW_ARRAY else "bin"
        inner = f"_deletions/{fragment_id}-{self.read_version}-{self.id}.{suffix}"
        return inner if base_uri is None else f"{base_uri.rstrip('/')}/{inner}"


@frozen
class RowLineageColumn:
    """Marker: a sequence is stored as a column of a data file, not in the manifest."""


def file_version_of(file: DataFile) -> str:
    """Return the version of a data file as users write it, for example ``2.1``."""
    numbers = (file.file_major_version, file.file_minor_version)
    # lance 0.15 and 0.16 called version 2.0 by its first number
    return "2.0" if numbers == (0, 3) else f"{numbers[0]}.{numbers[1]}"


@frozen(kw_only=True)
class ExternalFile:
    """A sequence is stored in a part of a file (message ``ExternalFile``).

    The specification has it; pylance 14.0.2 no longer reads or writes it. Manifests that were loaded from a store hold
    the bytes instead: see `lance_core.table.completion`.

    Attributes:
        path: Path of the file below the root of the table.
        offset: First byte.
        size: Number of bytes.
    """

    path: str
    offset: int
    size: int


LineageSequence: TypeAlias = bytes | RowLineageColumn | ExternalFile
"""Location of the ids or versions of a fragment's rows: the manifest, a data file, or another file."""


@frozen(kw_only=True)
class Fragment:
    """A range of rows that share data files (message ``DataFragment``).

    Attributes:
        id: Unique in the table; 0 in a transaction whose commit assigns it.
        files: Data files, all ``physical_rows`` long.
        physical_rows: Rows in the data files, deleted rows included.
        deletion_file: None if no row is deleted.
        row_id_sequence: Encoded ``RowIdSequence``, or where it is (tables with stable row ids only).
        last_updated_at_version_sequence: Encoded ``RowDatasetVersionSequence``.
        created_at_version_sequence: Encoded ``RowDatasetVersionSequence``.
    """

    id: int
    files: tuple[DataFile, ...]
    physical_rows: int
    deletion_file: DeletionFile | None = None
    row_id_sequence: LineageSequence | None = None
    last_updated_at_version_sequence: LineageSequence | None = None
    created_at_version_sequence: LineageSequence | None = None

    @property
    def num_deleted_rows(self) -> int:
        """Rows that are deleted."""
        return 0 if self.deletion_file is None else self.deletion_file.num_deleted_rows

    @property
    def num_rows(self) -> int:
        """Rows that are left."""
        return self.physical_rows - self.num_deleted_rows


def lineage_sequences(fragment: Fragment) -> tuple[LineageSequence | None, ...]:
    """Return the locations of a fragment's row ids and of the versions that created and last changed its rows."""
    return (
        fragment.row_id_sequence,
        fragment.created_at_version_sequence,
        fragment.last_updated_at_version_sequence,
    )


class FragmentTotals(NamedTuple):
    """Numbers that are summed over fragments.

    Attributes:
        physical_rows: Rows in the data files.
        num_deleted_rows: Those of them that are deleted.
        num_data_files: Data files.
        num_bytes: Bytes in the data files, as far as writers recorded them.
        num_deletion_files: Deletion files.
    """

    physical_rows: int
    num_deleted_rows: int
    num_data_files: int
    num_bytes: int
    num_deletion_files: int


# --------------------------------------------------------------------------------------------------- values <-> bytes


def decode_fragment(record: bytes) -> Fragment:
    """Decode one ``DataFragment`` message.

    Raises:
        CorruptDataError: Not a fragment.
        UnsupportedError: The fragment has data overlays.
    """
    try:
        return from_proto(table_pb2.DataFragment.FromString(record))
    except DecodeError as error:
        raise CorruptDataError(f"a fragment record cannot be decoded: {error}") from error


def decode_totals(record: bytes) -> FragmentTotals:
    """Return the numbers in one ``DataFragment`` message; errors are those of `decode_fragment`."""
    fragment = decode_fragment(record)
    num_bytes = sum(file.file_size_bytes for file in fragment.files)
    num_deletion_files = int(fragment.deletion_file is not None)
    return FragmentTotals(
        fragment.physical_rows, fragment.num_deleted_rows, len(fragment.files), num_bytes, num_deletion_files
    )


def encode_fragment(fragment: Fragment) -> bytes:
    """Encode as one ``DataFragment`` message."""
    return to_proto(fragment).SerializeToString()


def from_proto(pb: table_pb2.DataFragment) -> Fragment:
    """Turn a parsed message into a value (for the modules of this package)."""
    if pb.overlays:
        raise UnsupportedError(f"fragment {pb.id} has data overlays (feature flag 64), which lance_core does not read")
    return Fragment(
        id=pb.id,
        files=tuple([data_file_from_proto(file) for file in pb.files]),
        physical_rows=pb.physical_rows,
        deletion_file=_deletion_file_from_proto(pb.deletion_file) if pb.HasField("deletion_file") else None,
        row_id_sequence=_sequence_from_proto(pb, "row_id_sequence"),
        last_updated_at_version_sequence=_sequence_from_proto(pb, "last_updated_at_version_sequence"),
        created_at_version_sequence=_sequence_from_proto(pb, "created_at_version_sequence"),
    )


def to_proto(fragment: Fragment) -> table_pb2.DataFragment:
    """Turn a value into a message (for the modules of this package)."""
    pb = table_pb2.DataFragment(
        id=fragment.id,
        files=[data_file_to_proto(file) for file in fragment.files],
        physical_rows=fragment.physical_rows,
    )
    if fragment.deletion_file is not None:
        pb.deletion_file.CopyFrom(_deletion_file_to_proto(fragment.deletion_file))
    if fragment.row_id_sequence is not None:
        _set_sequence(pb, "row_ids", fragment.row_id_sequence)
    if fragment.last_updated_at_version_sequence is not None:
        _set_sequence(pb, "last_updated_at_versions", fragment.last_updated_at_version_sequence)
    if fragment.created_at_version_sequence is not None:
        _set_sequence(pb, "created_at_versions", fragment.created_at_version_sequence)
    return pb


def data_file_from_proto(pb: table_pb2.DataFile) -> DataFile:
    """Turn a parsed message into a value (for the modules of this package)."""
    return DataFile(
        path=pb.path,
        fields=tuple(pb.fields),
        column_indices=tuple(pb.column_indices),
        file_major_version=pb.file_major_version,
        file_minor_version=pb.file_minor_version,
        file_size_bytes=pb.file_size_bytes,
        base_id=pb.base_id if pb.HasField("base_id") else None,
    )


def data_file_to_proto(file: DataFile) -> table_pb2.DataFile:
    """Turn a value into a message (for the modules of this package)."""
    return table_pb2.DataFile(
        path=file.path,
        fields=file.fields,
        column_indices=file.column_indices,
        file_major_version=file.file_major_version,
        file_minor_version=file.file_minor_version,
        file_size_bytes=file.file_size_bytes,
        base_id=file.base_id,
    )


def _deletion_file_from_proto(pb: table_pb2.DeletionFile) -> DeletionFile:
    if not 0 <= pb.file_type < len(_DELETION_TYPES):
        raise UnsupportedError(f"deletion files of type {pb.file_type} are not supported")
    file_type = _DELETION_TYPES[pb.file_type]
    return DeletionFile(
        file_type=file_type,
        read_version=pb.read_version,
        id=pb.id,
        num_deleted_rows=pb.num_deleted_rows,
        base_id=pb.base_id if pb.HasField("base_id") else None,
    )


def _deletion_file_to_proto(file: DeletionFile) -> table_pb2.DeletionFile:
    return table_pb2.DeletionFile(
        file_type=table_pb2.DeletionFile.DeletionFileType.Name(_DELETION_TYPES.index(file.file_type)),
        read_version=file.read_version,
        id=file.id,
        num_deleted_rows=file.num_deleted_rows,
        base_id=file.base_id,
    )


def _sequence_from_proto(pb: table_pb2.DataFragment, oneof: str) -> LineageSequence | None:
    which = pb.WhichOneof(oneof)  # type: ignore[arg-type]
    if which is None:
        return None
    value = getattr(pb, which)
    if isinstance(value, table_pb2.ExternalFile):
        return ExternalFile(path=value.path, offset=value.offset, size=value.size)
    return value if which.startswith("inline_") else RowLineageColumn()


def _set_sequence(pb: table_pb2.DataFragment, name: str, sequence: LineageSequence) -> None:
    if isinstance(sequence, bytes):
        setattr(pb, f"inline_{name}", sequence)
    elif isinstance(sequence, ExternalFile):
        external = table_pb2.ExternalFile(path=sequence.path, offset=sequence.offset, size=sequence.size)
        getattr(pb, f"external_{name}").CopyFrom(external)
    else:
        getattr(pb, f"column_{name}").SetInParent()
