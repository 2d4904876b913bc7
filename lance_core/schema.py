"""Schemas with field ids as users see them, and Arrow schemas as JSON. Names and arguments as in pylance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_core.common.frozen import frozen, replace
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.extensions import with_types
from lance_core.format.schema import Field, Schema, arrow_type_of, logical_type_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


@frozen
class LanceField:
    """One field of a `LanceSchema`. Made by `LanceSchema.fields`.

    Attributes:
        inner: The field as lance_core keeps it.
    """

    inner: Field

    def __repr__(self) -> str:
        return f"LanceField(name={self.inner.name!r}, id={self.inner.id}, type={self.inner.logical_type!r})"

    def name(self) -> str:
        """Name of the field."""
        return self.inner.name

    def id(self) -> int:
        """Return number of the field, stable for the life of the dataset."""
        return self.inner.id

    def children(self) -> list[LanceField]:
        """Child fields."""
        return [LanceField(child) for child in self.inner.children]

    def to_arrow(self) -> pa.Field:
        """Return the Arrow field."""
        return with_types(pa.schema([self.inner.to_arrow()])).field(0)

    @property
    def metadata(self) -> dict[str, str]:
        """Metadata of the Arrow field."""
        return {key: value.decode(errors="replace") for key, value in self.inner.metadata.items()}

    def is_unenforced_primary_key(self) -> bool:
        """True if the field belongs to the declared (not checked) primary key."""
        return self.inner.unenforced_primary_key

    def unenforced_primary_key_position(self) -> int | None:
        """Place in that key, from 1; None if not given."""
        return self.inner.unenforced_primary_key_position or None

    def is_unenforced_clustering_key(self) -> bool:
        """True if the field belongs to the declared clustering key."""
        return self.inner.unenforced_clustering_key

    def unenforced_clustering_key_position(self) -> int | None:
        """Place in that key, from 1; None if not given."""
        return self.inner.unenforced_clustering_key_position or None


@frozen
class LanceSchema:
    """The fields of a dataset with their ids.

    Attributes:
        inner: The schema as lance_core keeps it.
    """

    inner: Schema

    @staticmethod
    def from_pyarrow(schema: pa.Schema) -> LanceSchema:
        """Number the fields of an Arrow schema depth first, from 0; the ids may not be those of a certain dataset.

        Raises:
            UnsupportedError: A type that Lance cannot hold.
        """
        return LanceSchema(Schema.from_arrow(schema))

    def to_pyarrow(self) -> pa.Schema:
        """Return the Arrow schema."""
        return with_types(self.inner.to_arrow())

    def fields(self) -> list[LanceField]:
        """Return the top-level fields."""
        return [LanceField(field) for field in self.inner.fields]

    def field(self, name: str) -> LanceField | None:
        """Return the field of a name or dotted path; None if there is none.

        Args:
            name: Parts with dots in their names stand in backticks.
        """
        return self._find(_split_path(name), str)

    def field_case_insensitive(self, name: str) -> LanceField | None:
        """As `field`; if there is none, one whose name differs in upper and lower case only."""
        names = _split_path(name)
        return self._find(names, str) or self._find([step.lower() for step in names], str.lower)

    def unenforced_primary_key(self) -> list[LanceField]:
        """Return the fields of the declared primary key, in its order."""
        return self._key("unenforced_primary_key")

    def unenforced_clustering_key(self) -> list[LanceField]:
        """Return the fields of the declared clustering key, in its order."""
        return self._key("unenforced_clustering_key")

    def _key(self, name: str) -> list[LanceField]:
        """Return the fields of a key, which has an attribute of its name and one of its position."""
        parts = [field for field in self.inner.walk() if getattr(field, name)]
        return [
            LanceField(part) for part in sorted(parts, key=lambda part: (getattr(part, f"{name}_position"), part.id))
        ]

    def _find(self, names: Sequence[str], spelled: Callable[[str], str]) -> LanceField | None:
        fields, match = self.inner.fields, None
        for step in names:
            match = next((field for field in fields if spelled(field.name) == step), None)
            if match is None:
                return None
            fields = match.children
        return None if match is None else LanceField(match)


def _split_path(path: str) -> list[str]:
    """Return the names in a dotted path."""
    path_names = [""]
    is_quoted = False
    for character in path:
        if character == "`":
            is_quoted = not is_quoted
        elif character == "." and not is_quoted:
            path_names.append("")
        else:
            path_names[-1] += character
    return path_names


def to_inner(schema: LanceSchema | Schema | pa.Schema) -> Schema:
    """Return the form that is committed; fields of an Arrow schema are numbered from 0.

    Raises:
        InvalidInputError: Not a schema.
        UnsupportedError: A type that Lance cannot hold.
    """
    if isinstance(schema, LanceSchema):
        return schema.inner
    if isinstance(schema, pa.Schema):
        return Schema.from_arrow(schema)
    if isinstance(schema, Schema):  # pyright: ignore[reportUnnecessaryIsInstance] callers are not checked
        return schema
    raise InvalidInputError(f"expected a LanceSchema or pyarrow.Schema, not a {type(schema).__name__}")


def projected(table: Schema, schema: pa.Schema) -> Schema:
    """Return the fields of a table that an Arrow schema names, with their ids.

    Raises:
        InvalidInputError: A field that the table does not have, or has with another type.
    """
    wanted = Schema.from_arrow(schema)
    return Schema(tuple(_projected(table.fields, field, "") for field in wanted.fields), wanted.metadata)


def _projected(fields: Sequence[Field], wanted: Field, parent: str) -> Field:
    path = f"{parent}{wanted.name}"
    match = next((field for field in fields if field.name == wanted.name), None)
    if match is None:
        raise InvalidInputError(f"there is no field {path!r} in the table")
    if match.logical_type != wanted.logical_type:
        raise InvalidInputError(f"field {path!r} is {match.logical_type}, not {wanted.logical_type}")
    children = tuple(_projected(match.children, child, f"{path}.") for child in wanted.children)
    return replace(match, nullable=wanted.nullable, metadata=wanted.metadata, children=children)


# ------------------------------------------------------------------------------------------------------ as JSON


def schema_to_json(schema: pa.Schema) -> dict[str, Any]:
    """Return an Arrow schema as dicts, lists and text.

    Raises:
        UnsupportedError: A type that Lance cannot hold, or a map.
    """
    json_schema: dict[str, Any] = {"fields": [_field_to_json(field) for field in schema]}
    return json_schema | _metadata_to_json(schema.metadata)


def json_to_schema(schema_json: Mapping[str, Any]) -> pa.Schema:
    """Return the Arrow schema that `schema_to_json` was given.

    Raises:
        InvalidInputError: Something else.
    """
    try:
        fields = [_field_from_json(field) for field in schema_json["fields"]]
        return pa.schema(fields, metadata=schema_json.get("metadata"))
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidInputError(f"cannot read the JSON of a schema: {error!r}") from error


def _metadata_to_json(metadata: Mapping[bytes, bytes] | None) -> dict[str, Any]:
    return {"metadata": {key.decode(): value.decode() for key, value in metadata.items()}} if metadata else {}


def _field_to_json(field: pa.Field) -> dict[str, Any]:
    kind = field.type
    if pa.types.is_map(kind):
        raise UnsupportedError(f"field {field.name!r} is a map, which has no JSON form (also in pylance)")
    json_field: dict[str, Any] = {"name": field.name, "type": {"type": _json_name(kind, field.name)}}
    if pa.types.is_nested(kind):
        children = [kind.value_field] if hasattr(kind, "value_field") else [kind.field(i) for i in range(len(kind))]
        json_field["type"]["fields"] = [_field_to_json(child) for child in children]
    if pa.types.is_fixed_size_list(kind) or pa.types.is_fixed_size_binary(kind):
        size = kind.list_size if pa.types.is_fixed_size_list(kind) else kind.byte_width
        json_field["type"]["length"] = size
    return json_field | {"nullable": field.nullable} | _metadata_to_json(field.metadata)


def _json_name(kind: pa.DataType, name: str) -> str:
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return "list" if pa.types.is_list(kind) else "large_list"
    is_sized = pa.types.is_fixed_size_list(kind) or pa.types.is_fixed_size_binary(kind)
    text = logical_type_of(kind, name)
    return text.partition(":")[0] if is_sized else text


def _field_from_json(data: Mapping[str, Any]) -> pa.Field:
    described, name = data["type"], data["name"]
    children = [_field_from_json(child) for child in described.get("fields", ())]
    kind = _type_from_json(described, name, children)
    return pa.field(name, kind, nullable=data["nullable"], metadata=data.get("metadata"))


def _type_from_json(described: Mapping[str, Any], name: str, children: Sequence[pa.Field]) -> pa.DataType:
    match described["type"]:
        case "struct":
            return pa.struct(children)
        case "list" | "large_list" | "fixed_size_list" as text if len(children) != 1:
            raise InvalidInputError(f"field {name!r}: a {text} must have one child field, not {len(children)}")
        case "list":
            return pa.list_(children[0])
        case "large_list":
            return pa.large_list(children[0])
        case "fixed_size_list":
            return pa.list_(children[0], described["length"])
        case "fixed_size_binary":
            return pa.binary(described["length"])
        case text:
            return arrow_type_of(Field(id=0, name=name, logical_type=text))
