"""Metadata of fragments: the public form of what a manifest says of one."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from lance_core.common.frozen import frozen
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.table.fragment import DataFile, DeletionFile, ExternalFile, Fragment, RowLineageColumn

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_core.format.table.fragment import LineageSequence


@frozen
class FragmentMetadata:
    """A fragment as the manifest describes it; picklable and convertible to JSON.

    Attributes:
        id: Unique in the table; 0 for a staged fragment whose commit assigns it.
        files: Data files.
        physical_rows: Rows in the data files, deleted ones included.
        deletion_file: None if no row is deleted.
        row_id_meta: Encoded stable row ids, None without them; a marker if they lie in a data file.
        created_at_version_meta: Encoded versions in which the rows were added.
        last_updated_at_version_meta: Encoded versions in which the rows were last changed.
    """

    id: int
    files: Sequence[DataFile]
    physical_rows: int
    deletion_file: DeletionFile | None = None
    row_id_meta: LineageSequence | None = None
    created_at_version_meta: LineageSequence | None = None
    last_updated_at_version_meta: LineageSequence | None = None

    @property
    def num_deletions(self) -> int:
        """Rows that are deleted."""
        return 0 if self.deletion_file is None else self.deletion_file.num_deleted_rows

    @property
    def num_rows(self) -> int:
        """Rows that are left."""
        return self.physical_rows - self.num_deletions

    def data_files(self) -> list[DataFile]:
        """Return the data files."""
        return list(self.files)

    def to_json(self) -> dict[str, Any]:
        """Return a value made of dicts, lists, numbers and text only, as in pylance."""
        return {
            "id": self.id,
            "files": [_file_to_json(file) for file in self.files],
            "physical_rows": self.physical_rows,
            "deletion_file": None if self.deletion_file is None else self.deletion_file.asdict(),
            "row_id_meta": _lineage_to_json(self.row_id_meta),
            "created_at_version_meta": _lineage_to_json(self.created_at_version_meta),
            "last_updated_at_version_meta": _lineage_to_json(self.last_updated_at_version_meta),
        }

    @staticmethod
    def from_json(json_data: str | Mapping[str, Any]) -> FragmentMetadata:
        """Read what `to_json` made, as text or as a dict.

        Raises:
            InvalidInputError: Something else.
        """
        try:
            data = json.loads(json_data) if isinstance(json_data, str) else json_data
            deletion = data["deletion_file"]
            return FragmentMetadata(
                id=data["id"],
                files=[_file_from_json(file) for file in data["files"]],
                physical_rows=data["physical_rows"],
                deletion_file=None if deletion is None else DeletionFile.from_dict(deletion),
                row_id_meta=_lineage_from_json(data["row_id_meta"]),
                created_at_version_meta=_lineage_from_json(data["created_at_version_meta"]),
                last_updated_at_version_meta=_lineage_from_json(data["last_updated_at_version_meta"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"cannot read the JSON of a fragment: {error!r}") from error


_FILE_KEYS = tuple(DataFile.__dataclass_fields__)


def _file_to_json(file: DataFile) -> dict[str, Any]:
    return {name: getattr(file, name) for name in _FILE_KEYS} | {
        "fields": list(file.fields),
        "column_indices": list(file.column_indices),
    }


def _file_from_json(data: Mapping[str, Any]) -> DataFile:
    values: dict[str, Any] = {name: data[name] for name in _FILE_KEYS}
    values |= {name: tuple(data[name]) for name in ("fields", "column_indices")}
    return DataFile(**values)


_IN_DATA_FILE = ":column"


def _lineage_to_json(sequence: LineageSequence | None) -> str | None:
    if sequence is None:
        return None
    if isinstance(sequence, ExternalFile):
        raise UnsupportedError(
            f"row ids and row versions in the file {sequence.path!r} have no JSON form. Load the fragment first"
        )
    return base64.b64encode(sequence).decode() if isinstance(sequence, bytes) else _IN_DATA_FILE


def _lineage_from_json(text: str | None) -> LineageSequence | None:
    if text is None:
        return None
    return RowLineageColumn() if text == _IN_DATA_FILE else base64.b64decode(text, validate=True)


def to_metadata(fragment: Fragment) -> FragmentMetadata:
    """Return the public form of a fragment."""
    return FragmentMetadata(
        id=fragment.id,
        files=list(fragment.files),
        physical_rows=fragment.physical_rows,
        deletion_file=fragment.deletion_file,
        row_id_meta=fragment.row_id_sequence,
        created_at_version_meta=fragment.created_at_version_sequence,
        last_updated_at_version_meta=fragment.last_updated_at_version_sequence,
    )


def from_metadata(metadata: FragmentMetadata) -> Fragment:
    """Return the inner form of a fragment."""
    return Fragment(
        id=metadata.id,
        files=tuple(metadata.files),
        physical_rows=metadata.physical_rows,
        deletion_file=metadata.deletion_file,
        row_id_sequence=metadata.row_id_meta,
        created_at_version_sequence=metadata.created_at_version_meta,
        last_updated_at_version_sequence=metadata.last_updated_at_version_meta,
    )
