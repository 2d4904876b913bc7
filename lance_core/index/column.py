"""Columns that indices are over: top-level columns and fields of structs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_core.common.frozen import frozen
from lance_core.common.hints import did_you_mean
from lance_core.errors import InvalidInputError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from lance_core.format.schema import Field, Schema


@frozen(kw_only=True)
class IndexedColumn:
    """A column of an index.

    Attributes:
        path: Name, or dotted path inside structs.
        projection: Schema with what must be read for it.
        leaf: The field itself.
    """

    path: str
    projection: Schema
    leaf: Field

    @property
    def type(self) -> pa.DataType:
        """Arrow type of the values."""
        return self.leaf.to_arrow().type

    @property
    def path_names(self) -> list[str]:
        """Names of the fields on the way from the top-level column to the leaf."""
        names: list[str] = []
        field = self.projection.fields[0]
        while field is not self.leaf:
            field = field.children[0]
            names.append(field.name)
        return names

    def of(self, top: pa.Array) -> pa.Array:
        """Return the values of rows of the top-level column."""
        if not self.is_nested:
            return top
        import pyarrow.compute as pc  # noqa: PLC0415 keeps `import lance_core` light

        kernels: Any = pc
        for name in self.path_names:
            top = kernels.struct_field(top, name)
        return top

    @property
    def is_nested(self) -> bool:
        """True if it lies inside a struct, which may be null where the column is not."""
        return self.projection.fields[0] is not self.leaf


def find_column(schema: Schema, path: str) -> IndexedColumn | None:
    """Return a column; None if there is none of this path, or it lies inside a list or map."""
    top = path if path in schema.names else path.split(".", 1)[0]
    if top not in schema.names:
        return None
    projection = schema.select([path])
    leaf = projection.fields[0]
    for _ in path[len(top) :].split(".")[1:]:
        if leaf.logical_type != "struct":
            return None
        leaf = leaf.children[0]
    return IndexedColumn(path=path, projection=projection, leaf=leaf)


def column_to_index(schema: Schema, path: str) -> IndexedColumn:
    """Find the column for a new index.

    Raises:
        InvalidInputError: There is no such column.
        UnsupportedError: It lies inside a list or map.
    """
    column = find_column(schema, path)
    if column is not None:
        return column
    if path.split(".", 1)[0] in schema.names:
        raise UnsupportedError(f"column {path!r} lies inside a list or map; index a column or a field of structs")
    hint = did_you_mean(path, schema.names)
    raise InvalidInputError(f"no column {path!r}; the table has {', '.join(schema.names)}.{hint}")


def path_of(schema: Schema, field_id: int) -> str:
    """Return the dotted path of a field; a text that is none if the schema does not have it."""
    path = next((path for path, field in _paths(schema.fields) if field.id == field_id), None)
    return f"(field {field_id})" if path is None else path


def _paths(fields: Sequence[Field], above: str = "") -> Iterator[tuple[str, Field]]:
    for field in fields:
        yield above + field.name, field
        yield from _paths(field.children, f"{above}{field.name}.")
