"""Parts of writing that depend on the generation of the file format."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from lance_core.common.frozen import frozen, mutable
from lance_core.encoding.arrow_values import as_type, without_views
from lance_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_core.encoding.layouts.page import EncodedPage
    from lance_core.encoding.repdef import Levels
    from lance_core.encoding.values import Bytes

Put: TypeAlias = "Callable[[bytes | Bytes], tuple[int, int]]"
"""Writes a buffer where one may begin; its position in the file and its size."""


@mutable
class Leaf:
    """A leaf of what a column has collected.

    Attributes:
        levels: Its levels.
        array: The values that have a slot.
        page: The page that has all of it; None if the leaf is better off alone.
    """

    levels: Levels
    array: pa.Array
    page: EncodedPage | None = None


Leaves: TypeAlias = "dict[int, Leaf]"
"""Leaves of a top-level field, by their number."""


@frozen(kw_only=True)
class RowGroups:
    """Row groups of a file of version 0.1.

    Attributes:
        max_rows: Rows of a row group.
        ends: Where the first row groups end, counted in rows from the beginning of the file. Files beside each other
            in a fragment need the same row groups: pylance 14.0.2 pairs them by their numbers.
    """

    max_rows: int = 1024
    ends: tuple[int, ...] = ()


@frozen(kw_only=True)
class WrittenDataFile:
    """A finished data file, as a manifest describes it.

    Attributes:
        num_rows: Rows.
        size: Bytes.
        field_ids: Fields that have a column: leaves; in version 2.0 lists and structs too; in version 0.1 all fields,
            ascending.
        column_indices: Their columns, in the same order; none in version 0.1.
        major: Major version.
        minor: Minor version.
    """

    num_rows: int
    size: int
    field_ids: tuple[int, ...]
    column_indices: tuple[int, ...]
    major: int
    minor: int


def fit_arrays(batch: pa.RecordBatch, schema: pa.Schema) -> list[pa.Array]:
    """Return the columns of a batch in the types of a file's schema.

    Args:
        batch: Columns in the order of the schema.
        schema: Arrow schema of the file.

    Raises:
        InvalidInputError: Other names or types than the schema's.
    """
    if batch.schema.equals(schema):
        return batch.columns
    if batch.schema.names != schema.names:
        raise InvalidInputError(f"columns {batch.schema.names} do not match the schema's {schema.names}")
    return [
        _conform(array, kind, name) for array, kind, name in zip(batch.columns, schema.types, schema.names, strict=True)
    ]


def _conform(array: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
    """Return an array in the schema's type.

    Raises:
        InvalidInputError: It is of another type.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if _is_same(array.type, kind):
        return array
    plain = without_views(array.type)
    if plain != array.type and _is_same(plain, kind):
        return as_type(array, plain)
    raise InvalidInputError(f"column {name!r} is {array.type}, but the schema says {kind}")


def _is_same(ours: pa.DataType, theirs: pa.DataType) -> bool:
    """True if types differ at most in the names of list items and in what is nullable."""
    if ours == theirs:
        return True
    if ours.id != theirs.id or ours.num_fields != theirs.num_fields:
        return False
    if pa.types.is_fixed_size_list(ours) and ours.list_size != theirs.list_size:
        return False
    if not pa.types.is_nested(ours):
        return False
    pairs = [(ours.field(i), theirs.field(i)) for i in range(ours.num_fields)]
    if pa.types.is_struct(ours) and any(field.name != other.name for field, other in pairs):
        return False
    return all(_is_same(field.type, other.type) for field, other in pairs)
