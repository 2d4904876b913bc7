"""Which file of a fragment holds which part of a projection, and how the parts become whole columns.

A fragment may have several data files, each with other columns; a column that is in none reads as null. Fields of one
struct may lie in different files.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.schema import Schema
from lance_core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_core.format.fragment import DataFile
    from lance_core.format.schema import Field


@frozen(kw_only=True)
class FilePart:
    """What one data file contributes.

    Attributes:
        file: The data file.
        schema: The part of the projection that is in this file.
        columns: Column index in the file for the id of each leaf of `schema`, and of its lists and structs where
            files have columns for them; see `lance_core.file.reader.DataFileReader.scan`.
    """

    file: DataFile
    schema: Schema
    columns: Mapping[int, int]


class _Share(NamedTuple):
    """What of a projection is in a file with such columns; no schema if that is nothing."""

    projection: Schema
    fields: Sequence[int]
    indices: Sequence[int]
    columns: Mapping[int, int]
    schema: Schema | None


_known: deque[_Share] = deque(maxlen=8)
"""What was worked out last: files of a table mostly have the same columns, and are asked for the same."""


def split_projection(projection: Schema, files: Sequence[DataFile]) -> tuple[FilePart, ...]:
    """Distribute the fields of a projection over the files that hold them; unneeded files are left out."""
    shares = [(file, _share(projection, file)) for file in files]
    return tuple(
        FilePart(file=file, schema=one.schema, columns=one.columns) for file, one in shares if one.schema is not None
    )


def _share(projection: Schema, file: DataFile) -> _Share:
    fields, indices = file.fields, file.column_indices
    for known in list(_known):
        if known.fields == fields and known.indices == indices and known.projection == projection:
            return known
    wanted = {field.id for field in projection.walk()}
    pairs = zip(fields, _column_indices(file), strict=True)
    # negative ids are tombstones and row lineage, negative indices belong to fields without a column
    columns = {field: index for field, index in pairs if field in wanted and index >= 0}
    kept = tuple([one for field in projection.fields if (one := _prune(field, columns)) is not None])
    share = _Share(projection, fields, indices, columns, Schema(kept, projection.metadata) if kept else None)
    _known.appendleft(share)
    return share


def is_legacy(file: DataFile) -> bool:
    """True for files of version 0.1."""
    return file.file_major_version == 0 and file.file_minor_version < 3


def _column_indices(file: DataFile) -> Sequence[int]:
    if not file.column_indices:
        # Files of version 0.1 list no columns: their page table has a row for each id from the first one on.
        return [field - file.fields[0] for field in file.fields]
    if len(file.column_indices) != len(file.fields):
        raise CorruptDataError(
            f"the manifest lists {len(file.fields)} fields and {len(file.column_indices)} columns", path=file.path
        )
    return file.column_indices


def _prune(field: Field, leaves: Mapping[int, int]) -> Field | None:
    """The field with those leaves only."""
    if field.is_leaf:
        return field if field.id in leaves else None
    children = tuple(kept for child in field.children if (kept := _prune(child, leaves)) is not None)
    if not children:
        return None
    return (
        field
        if len(children) == len(field.children) and children == field.children
        else replace(field, children=children)
    )


def join_columns(
    projection: Schema, parts: Sequence[tuple[Schema, Sequence[pa.Array]]], num_rows: int
) -> list[pa.Array]:
    """Put the columns of a projection together.

    Args:
        projection: What is wanted.
        parts: For each file its fields and their values, all ``num_rows`` long.
        num_rows: Rows.

    Returns:
        One array for each field of the projection.

    Raises:
        CorruptDataError: A column that is not nullable is in no file.
        UnsupportedError: Fields of a struct inside a list lie in different files.
    """
    if len(parts) == 1 and parts[0][0].fields == projection.fields:
        return list(parts[0][1])
    found: dict[int, list[tuple[Field, pa.Array]]] = {}
    for schema, arrays in parts:
        for field, array in zip(schema.fields, arrays, strict=True):
            found.setdefault(field.id, []).append((field, array))
    return [_join(field, found.get(field.id, []), num_rows) for field in projection.fields]


def _join(field: Field, parts: Sequence[tuple[Field, pa.Array]], num_rows: int) -> pa.Array:
    if not parts:
        if not field.nullable:
            raise CorruptDataError(f"column {field.name!r} is not nullable, but no file of the fragment holds it")
        return pa.nulls(num_rows, field.to_arrow().type)
    if len(parts) == 1 and parts[0][0] == field:
        return parts[0][1]
    if field.logical_type != "struct":
        raise UnsupportedError(f"parts of the list {field.name!r} are missing or in different files; rewrite the table")
    columns: list[pa.Array] = []
    for child in field.children:
        inner = [
            (one, array.field(index))
            for parent, array in parts
            for index, one in enumerate(parent.children)
            if one.id == child.id
        ]
        columns.append(_join(child, inner, num_rows))
    first = parts[0][1]
    mask = first.is_null() if first.null_count else None
    return pa.StructArray.from_arrays(columns, fields=[child.to_arrow() for child in field.children], mask=mask)
