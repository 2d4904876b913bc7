"""Blobs: values that lie beside the pages of their column, and the forms in which a column of them is read.

| form          | version 1 (files before 2.2)  | version 2 (extension ``lance.blob.v2``)                             |
|---------------|-------------------------------|---------------------------------------------------------------------|
| in the schema | ``large_binary``, metadata    | struct ``data``, ``uri`` [, ``position``, ``size``]                 |
|               | ``lance-encoding:blob``       |                                                                     |
| descriptions  | struct ``position``, ``size`` | struct ``kind``, ``position``, ``size``, ``blob_id``, ``blob_uri``  |

What a description of version 2 means:

| kind        | where the bytes are                                                                                |
|-------------|----------------------------------------------------------------------------------------------------|
| 0 inline    | in the data file at ``position``                                                                   |
| 1 packed    | in blob file ``blob_id`` of the data file at ``position``, with others                             |
| 2 dedicated | the whole blob file ``blob_id``                                                                    |
| 3 external  | at ``blob_uri`` (below base path ``blob_id``, unless 0); all of it if ``size`` is 0                |

Blob files lie in a folder named like the data file without its suffix; ``blob_id`` is spelled as 32 binary digits, the
lowest first. Source: ``docs/src/format/table/blob.md`` and tables written by pylance 14.0.2.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import TYPE_CHECKING

from lance_core.common.frozen import replace
from lance_core.errors import InvalidInputError
from lance_core.format.extensions import EXTENSION_NAME_KEY
from lance_core.format.schema import BLOB_EXTENSION, BLOB_KEY, Field, Schema

if TYPE_CHECKING:
    from collections.abc import Callable

INLINE_THRESHOLD_KEY = "lance-encoding:blob-inline-size-threshold"
DEDICATED_THRESHOLD_KEY = "lance-encoding:blob-dedicated-size-threshold"
PACK_THRESHOLD_KEY = "lance-encoding:blob-pack-file-size-threshold"

BLOB_SUFFIX = ".blob"
DEFAULT_INLINE_BYTES = 64 << 10
DEFAULT_DEDICATED_BYTES = 4 << 20
DEFAULT_PACK_BYTES = 1 << 30


class BlobKind(IntEnum):
    """Storage of the bytes of a version 2 blob."""

    INLINE = 0
    PACKED = 1
    DEDICATED = 2
    EXTERNAL = 3


class BlobView(Enum):
    """In which form blob columns are read."""

    DESCRIPTIONS = "blobs_descriptions"
    BYTES = "all_binary"
    VALUES = "values"
    """As they were written: bytes, but external ones as they are named."""


_HANDLING = {
    None: BlobView.DESCRIPTIONS,
    "blobs_descriptions": BlobView.DESCRIPTIONS,
    "all_descriptions": BlobView.DESCRIPTIONS,
    "all_binary": BlobView.BYTES,
}


def blob_view(handling: str | None) -> BlobView:
    """Return the form that users call by these names.

    Raises:
        InvalidInputError: No such form.
    """
    if handling not in _HANDLING:
        names = ", ".join(name for name in _HANDLING if name)
        raise InvalidInputError(f"'blob_handling' must be one of {names}, not {handling!r}")
    return _HANDLING[handling]


def is_second_version(field: Field) -> bool:
    """True for a blob field of version 2."""
    return field.extension_name == BLOB_EXTENSION


def is_first_version(field: Field) -> bool:
    """True for a blob field of version 1 as it is in the schema of a file, which all files before 2.2 have."""
    return field.is_blob and not field.children


def is_described(field: Field) -> bool:
    """True if a blob field is in the form of descriptions."""
    return field.is_blob and not field.extension_name and field.logical_type == "struct"


def needs_bytes(schema: Schema) -> bool:
    """True if a schema asks for more of blobs than their descriptions."""
    return any(field.is_blob and not is_described(field) for top in schema.special_fields for field in top.walk())


def has_blobs(schema: Schema) -> bool:
    """True if there are blobs anywhere in a schema."""
    return any(field.is_blob for top in schema.special_fields for field in top.walk())


def view_schema(schema: Schema, view: BlobView) -> Schema:
    """Return the same schema with its blob fields in another form; ids stay."""
    if not has_blobs(schema):
        return schema
    change = {BlobView.DESCRIPTIONS: described, BlobView.BYTES: _as_bytes, BlobView.VALUES: lambda field: field}[view]
    return Schema(tuple(_map_blobs(field, change) for field in schema.fields), schema.metadata)


def file_schema(schema: Schema) -> Schema:
    """Return the schema that data files hold: blobs of version 2 are described, those of version 1 are not."""
    if not has_blobs(schema):
        return schema
    fields = [
        _map_blobs(column, lambda field: described(field) if field.extension_name else field)
        for column in schema.fields
    ]
    return Schema(tuple(fields), schema.metadata)


def _map_blobs(field: Field, change: Callable[[Field], Field]) -> Field:
    if field.is_blob:
        return change(field)
    if not field.children:
        return field
    return replace(field, children=tuple(_map_blobs(child, change) for child in field.children))


def described(field: Field) -> Field:
    """Return a blob field in the form of descriptions, which is how data files hold it."""
    if is_described(field):
        return field
    if is_second_version(field):
        types = (("kind", "uint8"), ("position", "uint64"), ("size", "uint64"), ("blob_id", "uint32"))
        names = (*types, ("blob_uri", "string"))
        metadata = {BLOB_KEY: b"true", "lance-encoding:packed": b"true"}
    else:
        names, metadata = (("position", "uint64"), ("size", "uint64")), {BLOB_KEY: b"true"}
    nullable = not is_second_version(field)
    children = tuple(Field(id=-1, name=name, logical_type=kind, nullable=nullable) for name, kind in names)
    return Field(
        id=field.id,
        name=field.name,
        logical_type="struct",
        nullable=field.nullable,
        metadata=metadata,
        children=children,
    )


def _as_bytes(field: Field) -> Field:
    metadata = {key: value for key, value in field.metadata.items() if key != EXTENSION_NAME_KEY}
    return replace(field, logical_type="large_binary", metadata=metadata, children=())


def blobs_for_version(schema: Schema, file_version: str) -> Schema:
    """Return the schema of a new table: since file version 2.2 its blobs are of version 2, as in pylance 14.0.2."""
    if not has_blobs(schema) or file_version in ("2.0", "2.1"):
        return schema
    changed = Schema(tuple(_map_blobs(field, _second_version) for field in schema.fields), schema.metadata)
    return Schema.from_arrow(changed.to_arrow())


def _second_version(field: Field) -> Field:
    if is_second_version(field) or field.logical_type not in ("large_binary", "binary"):
        return field
    metadata = {key: value for key, value in field.metadata.items() if key != BLOB_KEY}
    return replace(
        field,
        logical_type="struct",
        metadata=metadata | {EXTENSION_NAME_KEY: BLOB_EXTENSION.encode()},
        extension_name=BLOB_EXTENSION,
        children=(
            Field(id=-1, name="data", logical_type="large_binary"),
            Field(id=-1, name="uri", logical_type="string"),
        ),
    )


def threshold(field: Field, key: str, default: int) -> int:
    """Return a number of bytes in the metadata of a field.

    Raises:
        InvalidInputError: It is no number.
    """
    text = field.metadata.get(key)
    if text is None:
        return default
    if not text.isdigit():
        raise InvalidInputError(f"field {field.name!r}: {key} must be a number, not {text.decode(errors='replace')!r}")
    return int(text)


def blob_file_path(data_file_path: str, blob_id: int) -> str:
    """Path of a blob file, from that of its data file."""
    return f"{blob_folder(data_file_path)}/{f'{blob_id:032b}'[::-1]}{BLOB_SUFFIX}"


def data_path_of_blobs(blob_path: str) -> str:
    """Path of the data file that a blob file belongs to."""
    return f"{blob_path.rpartition('/')[0]}.lance"


def blob_folder(data_file_path: str) -> str:
    """Folder of the blob files of a data file."""
    return data_file_path.removesuffix(".lance")
