"""Division of a projection among the files of a fragment, and assembly of whole columns.

A fragment may have several data files, each with other columns; a column that is in none reads as null. Fields of one
struct may lie in different files, also if the struct is inside of lists: then each file has the lists' lengths. Files
that were written when rows were deleted already may have other lists in the places of these rows.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import NamedTuple, frozen, replace
from lance_core.encoding.arrow_values import null_mask, pack_bits
from lance_core.encoding.kernels import aranges, starts_of
from lance_core.encoding.leaves import is_list_field, list_items
from lance_core.encoding.v2_0.nesting import list_array
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    from lance_core.encoding.repdef import Mask
    from lance_core.encoding.values import Int64s
    from lance_core.format.schema import Field
    from lance_core.format.table.fragment import DataFile

_Part: TypeAlias = "tuple[Field, pa.Array]"
"""The part of a field that one file has, with its values."""


@frozen(kw_only=True)
class FilePart:
    """The part of a projection that one data file contributes.

    Attributes:
        file: The data file.
        schema: The part of the projection that is in this file.
        columns: Column index in the file for the id of each leaf of `schema`, and of its lists and structs where
            files have columns for them; see `lance_core.file.read.reader.DataFileReader.scan`.
    """

    file: DataFile
    schema: Schema
    columns: Mapping[int, int]


class _Share(NamedTuple):
    """The part of a projection in a file with such columns; no schema if it is empty."""

    projection: Schema
    fields: Sequence[int]
    indices: Sequence[int]
    columns: Mapping[int, int]
    schema: Schema | None
    lost: str | None
    """Name of a leaf that is listed without a column; None if there is none."""


_ONLY_LEAVES = (2, 1)
"""First version of files in which only leaves have columns."""

_cached_shares: deque[_Share] = deque(maxlen=8)
"""What was worked out last: files of a table mostly have the same columns, and are asked for the same."""


def split_projection(projection: Schema, files: Sequence[DataFile]) -> tuple[FilePart, ...]:
    """Distribute the fields of a projection over the files that hold them; unneeded files are left out."""
    shares = [(file, _share(projection, file)) for file in files]
    for file, share in shares:
        if share.lost is not None and (file.file_major_version, file.file_minor_version) >= _ONLY_LEAVES:
            raise CorruptDataError(f"the manifest names no column for field {share.lost!r}", path=file.path)
    return tuple(
        FilePart(file=file, schema=share.schema, columns=share.columns)
        for file, share in shares
        if share.schema is not None
    )


def _share(projection: Schema, file: DataFile) -> _Share:
    fields, indices = file.fields, file.column_indices
    for entry in _cached_shares.copy():
        if entry.fields == fields and entry.indices == indices and entry.projection == projection:
            return entry
    wanted = {field.id: field for field in projection.walk()}
    # negative ids are tombstones and row lineage
    pairs = [(field, index) for field, index in zip(fields, _column_indices(file), strict=True) if field in wanted]
    # negative indices belong to fields without a column, which in files since 2.1 are parents only
    lost = next((wanted[field].name for field, index in pairs if index < 0 and wanted[field].is_leaf), None)
    columns = {field: index for field, index in pairs if index >= 0}
    pruned_fields = tuple([pruned for field in projection.fields if (pruned := _prune(field, columns)) is not None])
    share = _Share(
        projection,
        fields,
        indices,
        columns,
        Schema(pruned_fields, projection.metadata) if pruned_fields else None,
        lost,
    )
    _cached_shares.appendleft(share)
    return share


def is_legacy(file: DataFile) -> bool:
    """True for files of version 0.1."""
    return file.file_major_version == 0 and file.file_minor_version < 3


def _column_indices(file: DataFile) -> Sequence[int]:
    if not file.column_indices and is_legacy(file):
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
    children = tuple(pruned for child in field.children if (pruned := _prune(child, leaves)) is not None)
    if field.struct_list_size and field.id in leaves:
        raise UnsupportedError(
            f"Field {field.name!r} is a fixed-size list of structs in a data file of version 2.0, which neither "
            f"lance_core nor pylance can read. Write the data again with file version 2.2."
        )
    if not children:
        return None
    return (
        field
        if len(children) == len(field.children) and children == field.children
        else replace(field, children=children)
    )


def lost_fields(projection: Schema, parts: Sequence[FilePart]) -> list[tuple[Field, ...]]:
    """Find lists, maps and structs of a projection of which no file has anything.

    Fields outside of the projection may still tell where they are null and how long their lists are.

    Returns:
        For each the fields from the top-level one to it.
    """
    nested = [field for field in projection.special_fields if field.children]
    if not nested or (len(parts) == 1 and parts[0].schema.fields == projection.fields):
        return []
    there = {leaf.id for part in parts for leaf in part.schema.leaves()}
    return [path for field in nested for path in _lost(field, there)]


def _lost(field: Field, there: Container[int]) -> Iterator[tuple[Field, ...]]:
    if field.is_leaf:
        return
    if not any(leaf.id in there for leaf in field.leaves()):
        yield (field,)
        return
    for child in field.children:
        yield from ((field, *path) for path in _lost(child, there))


def part_with_shape(file: DataFile, stored: Schema, path: Sequence[Field]) -> FilePart | None:
    """Return a leaf below a field that a file has; its levels say where the field is null and how long its lists are.

    Args:
        file: The file, of version 2.1 or newer.
        stored: Its schema.
        path: The fields from the top-level one to the one in question.

    Returns:
        A part of the file that holds only this leaf; None if the file has none.
    """
    wanted = path[-1]
    same = next(
        (
            candidate
            for candidate in stored.walk()
            if (candidate.id, candidate.logical_type) == (wanted.id, wanted.logical_type)
        ),
        None,
    )
    columns = dict(zip(file.fields, _column_indices(file), strict=True))
    for leaf in () if same is None else same.leaves():
        if columns.get(leaf.id, -1) < 0:
            continue
        only = {leaf.id: columns[leaf.id]}
        field = None if same is None else _prune(same, only)
        for parent in reversed(path[:-1]):
            field = None if field is None else replace(parent, children=(field,))
        if field is not None:
            return FilePart(file=file, schema=Schema((field,)), columns=only)
    return None


def join_columns(
    projection: Schema,
    parts: Sequence[tuple[Schema, Sequence[pa.Array]]],
    num_rows: int,
    live_mask: Callable[[], Mask | None] = lambda: None,
) -> list[pa.Array]:
    """Put the columns of a projection together.

    Args:
        projection: What is wanted.
        parts: For each file its fields and their values, all ``num_rows`` long.
        num_rows: Rows.
        live_mask: Returns which of the rows are not deleted, shape (num_rows,); None if all are live.

    Returns:
        One array for each field of the projection.

    Raises:
        CorruptDataError: A column that is not nullable is in no file, or files differ in the lengths of a list.
    """
    parts_by_field: dict[int, list[_Part]] = {}
    for schema, arrays in parts:
        for field, array in zip(schema.fields, arrays, strict=True):
            parts_by_field.setdefault(field.id, []).append((field, array))
    return [_join(field, parts_by_field.get(field.id, []), num_rows, live_mask) for field in projection.fields]


def _join(field: Field, parts: Sequence[_Part], num_rows: int, live_mask: Callable[[], Mask | None]) -> pa.Array:
    if not parts:
        if not field.nullable:
            raise CorruptDataError(f"column {field.name!r} is not nullable, but no file of the fragment holds it")
        return pa.nulls(num_rows, field.to_arrow().type)
    if len(parts) == 1 and parts[0][0] == field:
        return parts[0][1]
    first = parts[0][1]
    is_null = null_mask(first)
    bitmap = None if is_null is None else pack_bits(~is_null)
    kind = field.to_arrow().type
    if is_list_field(field):
        return _join_lists(field, kind, parts, live_mask)
    if field.struct_list_size:
        size = field.struct_list_size
        items = [
            (child_field.children[0], array.values.slice(array.offset * size, num_rows * size))
            for child_field, array in parts
        ]
        child = _join(field.children[0], items, num_rows * size, lambda: _repeated(live_mask(), size))
        return pa.Array.from_buffers(kind, num_rows, [bitmap], children=[child])
    columns: list[pa.Array] = []
    for child in field.children:
        inner = [
            (child_field, array.field(index))
            for parent, array in parts
            for index, child_field in enumerate(parent.children)
            if child_field.id == child.id
        ]
        columns.append(_join(child, inner, num_rows, live_mask))
    return pa.Array.from_buffers(kind, num_rows, [bitmap], children=columns)


def _join_lists(
    field: Field, kind: pa.DataType, parts: Sequence[_Part], live_mask: Callable[[], Mask | None]
) -> pa.Array:
    """Lists with the lengths of the first part."""
    masks = [null_mask(array) for _, array in parts]
    sizes, _ = list_items(parts[0][1], masks[0])
    inner: list[_Part] = []
    for (part_field, array), is_null in zip(parts, masks, strict=True):
        own_sizes, items = list_items(array, is_null)
        if (own_sizes != sizes).any():
            items = _fitted(field.name, items, own_sizes, sizes, live_mask())
        inner.append((part_field.children[0], items))
    child = _join(field.children[0], inner, int(sizes.sum()), lambda: _repeated(live_mask(), sizes))
    validity = None if masks[0] is None else ~masks[0]
    if not pa.types.is_map(kind):
        return list_array(field.name, kind, sizes, validity, child)
    entries = pa.StructArray.from_arrays([child.field(0), child.field(1)], fields=[kind.key_field, kind.item_field])
    lists = list_array(field.name, pa.list_(entries.type), sizes, validity, entries)
    return pa.Array.from_buffers(kind, len(sizes), lists.buffers()[:2], children=[entries])


def _fitted(name: str, items: pa.Array, item_starts: Int64s, sizes: Int64s, is_live: Mask | None) -> pa.Array:
    """Items of lists with the lengths ``item_starts`` for lists with the lengths ``sizes``: null where they differ.

    Raises:
        CorruptDataError: They differ in a row that is not deleted.
    """
    differs = item_starts != sizes
    if is_live is None or (differs & is_live).any():
        raise CorruptDataError(f"The files of a fragment differ in the lengths of the list {name!r}.")
    is_missing = np.repeat(differs, sizes)
    target_indices = np.zeros(len(is_missing), np.int64)
    target_indices[~is_missing] = aranges(starts_of(item_starts)[:-1][~differs], item_starts[~differs])
    return items.take(pa.array(target_indices, mask=is_missing))


def _repeated(is_live: Mask | None, counts: Int64s | int) -> Mask | None:
    return None if is_live is None else np.repeat(is_live, counts)
