"""The logical schema: fields with ids, as stored in manifests and data files.

Source: messages ``Schema`` and ``Field`` of package ``lance.file``. Fields are listed depth first; ``parent_id`` is -1
at the top level. ``logical_type`` is the Arrow type in words (`logical_type_of`, `arrow_type_of`). Lists, large lists,
maps and structs have child fields; a fixed-size list of primitives has none (its item type stands in the text).

Not supported, as in pylance 14.0.2: decimals of 32 and 64 bits, unions, run-end-encoded and list-view types, intervals,
fixed-size lists of strings or lists.
"""

from __future__ import annotations

from dataclasses import field
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_core._proto import file_pb2
from lance_core.common.frozen import frozen, replace
from lance_core.errors import CorruptDataError, InvalidInputError, UnsupportedError
from lance_core.format.extensions import EXTENSION_METADATA_KEY, EXTENSION_NAME_KEY, extension_metadata
from lance_core.format.field_keys import clustering_key_position, is_primary_key, primary_key_position

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lance_core.format.dictionary_values import LegacyDictionary

MAX_DEPTH = 100
"""Nesting that is believed; deeper schemas are taken for damage."""
MAX_TYPE_LENGTH = 2000
"""Characters of a logical type that are believed."""

_MANY_FIELDS, _MANY_SCHEMAS, _LARGE_SCHEMA = 1 << 12, 16, 1 << 20
"""Arrow fields and schemas that are remembered, and bytes of a schema that is not."""

JSON = "json"
"""Logical type of JSON, which is stored as JSONB (`lance_core.encoding.jsonb`) and read as text."""
_ARROW_JSON, _LANCE_JSON = b"arrow.json", b"lance.json"
BLOB_EXTENSION = "lance.blob.v2"
BLOB_KEY = "lance-encoding:blob"
_PACKED_KEYS = ("lance-encoding:packed", "packed")

_SIMPLE_TYPES: dict[str, pa.DataType] = {
    "null": pa.null(),
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "uint8": pa.uint8(),
    "int16": pa.int16(),
    "uint16": pa.uint16(),
    "int32": pa.int32(),
    "uint32": pa.uint32(),
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "halffloat": pa.float16(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "large_string": pa.large_string(),
    "large_binary": pa.large_binary(),
    "date32:day": pa.date32(),
    "date64:ms": pa.date64(),
    "time32:s": pa.time32("s"),
    "time32:ms": pa.time32("ms"),
    "time64:us": pa.time64("us"),
    "time64:ns": pa.time64("ns"),
    "duration:s": pa.duration("s"),
    "duration:ms": pa.duration("ms"),
    "duration:us": pa.duration("us"),
    "duration:ns": pa.duration("ns"),
}
_SIMPLE_NAMES = {arrow: name for name, arrow in _SIMPLE_TYPES.items()} | {
    pa.string_view(): "string",
    pa.binary_view(): "binary",
}
_STRUCT_LIST = "fixed_size_list:struct:"
_BFLOAT16 = "lance.bfloat16"
_BFLOAT16_ITEM = pa.field("item", pa.binary(2), metadata={EXTENSION_NAME_KEY: _BFLOAT16, EXTENSION_METADATA_KEY: ""})
"""The only items of fixed-size lists that have an extension type."""


@frozen(kw_only=True)
class Field:
    """One field of a schema.

    Attributes:
        id: Number of the field, stable for the life of the dataset; -1 if none is given yet.
        name: Name of the field.
        logical_type: Arrow type in words.
        nullable: False if nulls are refused on writing.
        metadata: Arrow field metadata.
        children: Child fields of structs, lists, maps and fixed-size lists of structs.
        extension_name: Name of the Arrow extension type, or empty.
        encoding: Decoration from file version 0.1, kept as read.
        dictionary: Position and length of a dictionary of file version 0.1, whose files share its ``values``.
        unenforced_primary_key: True if the field belongs to the declared (not checked) primary key.
        unenforced_primary_key_position: Place in that key, from 1; 0 if not given.
        unenforced_clustering_key: True if the field belongs to the declared clustering key.
        unenforced_clustering_key_position: Place in that key, from 1; 0 if not given.
    """

    id: int
    name: str
    logical_type: str
    nullable: bool = True
    metadata: Mapping[str, bytes] = field(default_factory=dict)
    children: tuple[Field, ...] = ()
    extension_name: str = ""
    encoding: int = 0
    dictionary: tuple[int, int] | None = None
    values: LegacyDictionary | None = field(default=None, repr=False)
    unenforced_primary_key: bool = False
    unenforced_primary_key_position: int = 0
    unenforced_clustering_key: bool = False
    unenforced_clustering_key_position: int = 0

    @property
    def is_packed(self) -> bool:
        """True for a struct whose children share one column."""
        return self.logical_type == "struct" and any(self.metadata.get(key) == b"true" for key in _PACKED_KEYS)

    @property
    def is_blob(self) -> bool:
        """True for a column whose values lie outside of its pages."""
        return self.extension_name == BLOB_EXTENSION or self.metadata.get(BLOB_KEY) == b"true"

    @property
    def is_leaf(self) -> bool:
        """True if data files hold a column for this field itself."""
        return not self.children or self.is_packed or self.is_blob

    @property
    def struct_list_size(self) -> int:
        """Items of a fixed-size list of structs; 0 for all other fields."""
        text = self.logical_type
        return _number(text[len(_STRUCT_LIST) :], self) if text.startswith(_STRUCT_LIST) else 0

    def walk(self) -> Iterator[Field]:
        """This field and all below it, depth first."""
        yield self
        for child in self.children:
            yield from child.walk()

    def leaves(self) -> Iterator[Field]:
        """Yield the fields at or below this one that have a column, depth first."""
        if self.is_leaf:
            yield self
            return
        for child in self.children:
            yield from child.leaves()

    def to_arrow(self) -> pa.Field:
        """Return the Arrow field.

        Raises:
            UnsupportedError: The type is not supported; the message names it.
            CorruptDataError: The children do not fit the type.
        """
        if not self.metadata and self.logical_type in _SIMPLE_TYPES:
            return _plain_field(self.name, self.logical_type, self.nullable)
        metadata = dict(self.metadata)
        if self.logical_type == JSON:
            metadata |= {EXTENSION_NAME_KEY: _ARROW_JSON, EXTENSION_METADATA_KEY: b""}
        return pa.field(self.name, arrow_type_of(self), nullable=self.nullable, metadata=metadata or None)


@frozen(slots=False)  # with room for what is worked out once
class Schema:
    """The fields of a dataset or data file.

    Attributes:
        fields: Top-level fields.
        metadata: Arrow schema metadata.
    """

    fields: tuple[Field, ...]
    metadata: Mapping[str, bytes] = field(default_factory=dict)

    def __reduce__(self) -> tuple[object, ...]:
        return (Schema, (self.fields, self.metadata))

    @classmethod
    def from_arrow(cls, schema: pa.Schema, first_id: int = 0) -> Schema:
        """Return number the fields of an Arrow schema depth first.

        Args:
            schema: Arrow schema.
            first_id: Id of the first field.

        Raises:
            UnsupportedError: A type that Lance cannot hold.
        """
        numbered: list[Field] = []
        next_id = first_id
        for arrow in schema:
            top, next_id = _from_arrow(arrow, next_id)
            numbered.append(top)
        metadata = {key.decode(): bytes(value) for key, value in (schema.metadata or {}).items()}
        return cls(tuple(numbered), metadata)

    def to_arrow(self) -> pa.Schema:
        """Return the Arrow schema; errors as in `Field.to_arrow`."""
        return self._arrow

    @cached_property
    def _arrow(self) -> pa.Schema:
        return pa.schema([field.to_arrow() for field in self.fields], metadata=dict(self.metadata) or None)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the top-level fields."""
        return tuple([field.name for field in self.fields])

    @cached_property
    def special_fields(self) -> tuple[Field, ...]:
        """Top-level fields that are more than a simple type, which every file version has without parameters."""
        return tuple(
            [
                field
                for field in self.fields
                if field.children or field.metadata or field.extension_name or field.logical_type not in _SIMPLE_TYPES
            ]
        )

    @cached_property
    def encoded(self) -> bytes:
        """The fields as the first field of a message that lists them, as `Manifest` and `Schema` do."""
        return file_pb2.Schema(fields=encode_fields(self)).SerializeToString(deterministic=True)

    @property
    def max_id(self) -> int:
        """Largest field id, -1 if there are no fields."""
        return max((field.id for field in self.walk()), default=-1)

    def walk(self) -> Iterator[Field]:
        """Yield all fields, depth first."""
        for top in self.fields:
            yield from top.walk()

    def leaves(self) -> tuple[Field, ...]:
        """Fields that have a column in data files, depth first."""
        return tuple(leaf for field in self.fields for leaf in field.leaves())

    def select(self, names: Sequence[str]) -> Schema:
        """Keep some fields.

        Args:
            names: Top-level names, or paths whose steps are joined by dots, also into lists (``l.item.x``) and maps
                (``m.entries.value.x``, with the keys). Top-level fields come out in the order asked for, fields
                inside of another in the order of the schema.

        Raises:
            InvalidInputError: A name that does not exist.
        """
        wanted: dict[str, Field] = {}
        by_name = {field.name: field for field in reversed(self.fields)}
        for name in names:
            top = by_name.get(name) or _descend(self.fields, name)
            before = wanted.get(top.name)
            wanted[top.name] = top if before is None else _union(self._field(top.name), before, top)
        return Schema(tuple(wanted.values()), self.metadata)

    def _field(self, name: str) -> Field:
        return next(field for field in self.fields if field.name == name)


def _descend(fields: Sequence[Field], path: str) -> Field:
    """Return the field at a dotted path, inside parents that hold nothing else."""
    for candidate in fields:
        if path == candidate.name:
            return candidate
        if path.startswith(candidate.name + ".") and candidate.children and not candidate.is_blob:
            picked = _descend(candidate.children, path[len(candidate.name) + 1 :])
            if candidate.logical_type == "map":  # a map is read with both its keys and its values
                entries = candidate.children[0]
                children = [
                    next((chosen for chosen in picked.children if chosen.id == child.id), child)
                    for child in entries.children
                ]
                picked = replace(picked, children=tuple(children))
            return replace(candidate, children=(picked,))
    names = ", ".join(candidate.name for candidate in fields)
    raise InvalidInputError(f"there is no field {path!r}; the fields are: {names}")


def _union(full: Field, ours: Field, theirs: Field) -> Field:
    """Combine two selections of one field, in the order of the full field."""
    fields: list[Field] = []
    for child in full.children:
        sides = [match for side in (ours, theirs) for match in side.children if match.id == child.id]
        if sides:
            fields.append(sides[0] if len(sides) == 1 else _union(child, sides[0], sides[1]))
    return replace(full, children=tuple(fields))


def _from_arrow(arrow: pa.Field, next_id: int) -> tuple[Field, int]:
    metadata = {key.decode(): bytes(value) for key, value in (arrow.metadata or {}).items()}
    kind = arrow.type
    if isinstance(kind, pa.BaseExtensionType):
        metadata |= extension_metadata(kind)
        kind = kind.storage_type
    logical_type = _json_type(kind, metadata.get(EXTENSION_NAME_KEY), arrow.name)
    if logical_type is not None:
        metadata |= {EXTENSION_NAME_KEY: _LANCE_JSON, EXTENSION_METADATA_KEY: b""}
    children: list[Field] = []
    own_id = next_id
    next_id += 1
    for child in _arrow_children(kind):
        child_field, next_id = _from_arrow(child, next_id)
        children.append(child_field)
    made = Field(
        id=own_id,
        name=arrow.name,
        logical_type=logical_type or logical_type_of(kind, arrow.name),
        nullable=arrow.nullable,
        metadata=metadata,
        children=tuple(children),
        extension_name=metadata.get(EXTENSION_NAME_KEY, b"").decode(),
        unenforced_primary_key=is_primary_key(metadata),
        unenforced_primary_key_position=primary_key_position(metadata) or 0,
        unenforced_clustering_key_position=clustering_key_position(metadata) or 0,
    )
    return made, next_id


def is_json_field(field: pa.Field) -> bool:
    """True if a field, as `Field.to_arrow` returns it, holds the text of JSON."""
    return bool(field.metadata) and field.metadata.get(EXTENSION_NAME_KEY.encode()) == _ARROW_JSON


def _json_type(kind: pa.DataType, extension: bytes | None, name: str) -> str | None:
    """Return the logical type of JSON; None for all else.

    Raises:
        UnsupportedError: JSON in another storage than text (``arrow.json``) or JSONB (``lance.json``).
    """
    if extension not in (_ARROW_JSON, _LANCE_JSON):
        return None
    stored = (pa.large_binary(),) if extension == _LANCE_JSON else (pa.string(), pa.large_string(), pa.string_view())
    if kind not in stored:
        raise UnsupportedError(
            f"field {name!r}: extension type {extension.decode()} does not support storage of type {kind}"
        )
    return JSON


def _arrow_children(kind: pa.DataType) -> Iterable[pa.Field]:
    if pa.types.is_struct(kind):
        return [kind.field(i) for i in range(kind.num_fields)]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [kind.value_field]
    if pa.types.is_map(kind):
        return [pa.field("entries", pa.struct([kind.key_field, kind.item_field]), nullable=False)]
    if pa.types.is_fixed_size_list(kind) and pa.types.is_struct(kind.value_type):
        return [kind.value_field]
    return []


def logical_type_of(kind: pa.DataType, name: str) -> str:
    """Return the words for an Arrow type.

    Args:
        kind: Arrow type, no extension type.
        name: Field name for the error message.

    Raises:
        UnsupportedError: A type that Lance cannot hold.
    """
    if isinstance(kind, pa.BaseExtensionType):
        raise UnsupportedError(f"field {name!r}: fixed-size lists and dictionaries of {kind} are not supported")
    simple = _SIMPLE_NAMES.get(kind)
    if simple is not None:
        return simple
    if pa.types.is_timestamp(kind):
        return f"timestamp:{kind.unit}:{kind.tz or '-'}"
    if pa.types.is_decimal128(kind) or pa.types.is_decimal256(kind):
        return f"decimal:{kind.bit_width}:{kind.precision}:{kind.scale}"
    if pa.types.is_fixed_size_binary(kind):
        return f"fixed_size_binary:{kind.byte_width}"
    if pa.types.is_struct(kind):
        return "struct"
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        large = "large_" if pa.types.is_large_list(kind) else ""
        return f"{large}list{'.struct' if pa.types.is_struct(kind.value_type) else ''}"
    if pa.types.is_map(kind) and not kind.keys_sorted:
        return "map"
    if pa.types.is_fixed_size_list(kind):
        return f"fixed_size_list:{_fixed_item(kind.value_field, name)}:{kind.list_size}"
    if pa.types.is_dictionary(kind):
        value, index = (logical_type_of(kind_, name) for kind_ in (kind.value_type, kind.index_type))
        return f"dict:{value}:{index}:false"
    raise UnsupportedError(f"field {name!r}: Lance does not support the Arrow type {kind}")


def _fixed_item(item: pa.Field, name: str) -> str:
    kind = item.type
    is_extension = isinstance(kind, pa.BaseExtensionType)
    extension = kind.extension_name if is_extension else _text(item, EXTENSION_NAME_KEY)
    if extension == _BFLOAT16 and (kind.storage_type if is_extension else kind) == pa.binary(2):
        return _BFLOAT16
    if extension:
        raise UnsupportedError(f"field {name!r}: fixed-size list of extension type {extension} is not supported")
    variable = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind) or pa.types.is_dictionary(kind)
    if variable or kind in (pa.string(), pa.binary(), pa.string_view(), pa.binary_view(), pa.null()):
        raise UnsupportedError(f"field {name!r}: fixed-size list of {kind} is not supported")
    text = logical_type_of(kind, name)
    if text == "map" or text.startswith(("list", "large_list")):
        raise UnsupportedError(f"field {name!r}: fixed-size list of {kind} is not supported")
    return text


def _text(field: pa.Field, key: str) -> str:
    return (field.metadata or {}).get(key.encode(), b"").decode()


@lru_cache(maxsize=_MANY_FIELDS)
def _plain_field(name: str, logical_type: str, nullable: bool) -> pa.Field:
    return pa.field(name, _SIMPLE_TYPES[logical_type], nullable=nullable)


def arrow_type_of(column: Field) -> pa.DataType:
    """Return the Arrow type of a field; errors as in `Field.to_arrow`."""
    text = column.logical_type
    if len(text) > MAX_TYPE_LENGTH:
        raise CorruptDataError(f"field {column.name!r}: logical type of {len(text)} characters")
    simple = _SIMPLE_TYPES.get(text)
    if simple is not None:
        return simple
    if text == JSON:
        return pa.string()
    if text == "struct":
        return pa.struct([child.to_arrow() for child in column.children])
    if text in ("list", "list.struct"):
        return pa.list_(_only_child(column).to_arrow())
    if text in ("large_list", "large_list.struct"):
        return pa.large_list(_only_child(column).to_arrow())
    if text == "map":
        entries = _only_child(column).children
        if len(entries) != 2:  # a projection may have dropped the key or the value
            raise InvalidInputError(f"field {column.name!r}: cannot read only the keys or the values of a map")
        # pylance 14.0.2 reads maps with these names, whatever they were.
        key, value = (entry.to_arrow().with_name(name) for entry, name in zip(entries, ("key", "value"), strict=True))
        return pa.map_(key, value)
    if text.startswith(_STRUCT_LIST):
        return pa.list_(_only_child(column).to_arrow(), _number(text[len(_STRUCT_LIST) :], column))
    return _parameterised(text, column)


def _parameterised(text: str, field: Field) -> pa.DataType:
    head, _, rest = text.partition(":")
    parts = rest.split(":")
    try:
        if head == "timestamp" and len(parts) >= 2:
            zone = rest.partition(":")[2]
            return pa.timestamp(parts[0], tz=None if zone == "-" else zone)
        if head == "decimal" and len(parts) == 3 and parts[0] in ("128", "256"):
            make = pa.decimal128 if parts[0] == "128" else pa.decimal256
            return make(int(parts[1]), int(parts[2]))
        if head == "fixed_size_binary":
            return pa.binary(int(rest))
        if head == "fixed_size_list" and len(parts) >= 2:
            inner, _, size = rest.rpartition(":")
            item = _BFLOAT16_ITEM if inner == _BFLOAT16 else _SIMPLE_TYPES.get(inner) or _parameterised(inner, field)
            return pa.list_(item, _number(size, field))
        if head == "dict" and len(parts) >= 3:
            value, index, _ = rest.rsplit(":", 2)
            return pa.dictionary(_SIMPLE_TYPES[index], _SIMPLE_TYPES.get(value) or _parameterised(value, field))
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise CorruptDataError(f"field {field.name!r}: logical type {text!r} makes no sense") from error
    raise UnsupportedError(f"field {field.name!r}: logical type {text!r} is not supported")


def _number(text: str, field: Field) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 2**31:
        raise CorruptDataError(f"field {field.name!r}: bad list size in logical type {field.logical_type!r}")
    return int(text)


def _only_child(field: Field) -> Field:
    if len(field.children) != 1:
        raise CorruptDataError(
            f"field {field.name!r}: {field.logical_type} with {len(field.children)} child fields, not 1"
        )
    return field.children[0]


def encode_fields(schema: Schema) -> list[file_pb2.Field]:
    """Return the messages of a schema, depth first (metadata of the schema itself is the caller's)."""
    encoded: list[file_pb2.Field] = []

    def add(field: Field, parent_id: int) -> None:
        message = file_pb2.Field(
            name=field.name,
            id=field.id,
            parent_id=parent_id if field.id != -1 else -1,  # as pylance 14.0.2 does below blobs
            logical_type=field.logical_type,
            nullable=field.nullable,
            encoding=field.encoding,  # pyright: ignore[reportArgumentType] enums travel as numbers, known or not
            extension_name=field.extension_name,
            metadata=field.metadata,
            unenforced_primary_key=field.unenforced_primary_key,
            unenforced_primary_key_position=field.unenforced_primary_key_position,
            unenforced_clustering_key=field.unenforced_clustering_key,
            unenforced_clustering_key_position=field.unenforced_clustering_key_position,
        )
        if field.dictionary is not None:
            message.dictionary.offset, message.dictionary.length = field.dictionary
        encoded.append(message)
        for child in field.children:
            add(child, field.id)

    for top in schema.fields:
        remembered = _ENCODED.get(id(top))
        if remembered is not None and remembered[0] is top:
            encoded.append(remembered[1])
            continue
        add(top, -1)
        if not top.children:
            _remember(top, encoded[-1])
    return encoded


_ENCODED: dict[int, tuple[Field, file_pb2.Field]] = {}
"""Messages of fields without children by the identity of the field, which lives as long as the entry."""


def _remember(field: Field, message: file_pb2.Field) -> None:
    if len(_ENCODED) >= _MANY_FIELDS:
        _ENCODED.clear()
    _ENCODED[id(field)] = (field, message)


def decode_fields(messages: Iterable[file_pb2.Field], metadata: Mapping[str, bytes]) -> Schema:
    """Rebuild the tree of fields.

    Args:
        messages: Fields, parents before their children.
        metadata: Schema metadata.

    Raises:
        CorruptDataError: An unknown parent, an id that occurs twice, nesting beyond reason.
    """
    encoded = tuple([message.SerializeToString() for message in messages])
    decode = _decode_tree if sum(map(len, encoded)) < _LARGE_SCHEMA else _decode_tree.__wrapped__
    return Schema(decode(encoded), dict(metadata))


@lru_cache(maxsize=_MANY_SCHEMAS)
def _decode_tree(encoded: tuple[bytes, ...]) -> tuple[Field, ...]:
    """Return the top-level fields; all versions and files of a table have few different schemas."""
    listed = [file_pb2.Field.FromString(data) for data in encoded]
    children: dict[int, list[int]] = {}
    positions: dict[int, int] = {}
    depths: list[int] = []
    for position, message in enumerate(listed):
        # pylance 14.0.2 gives the children of a blob v2 field the id -1 and puts them behind their parent.
        is_unnumbered = message.id == -1 and position > 0
        parent = listed[_last_numbered(listed, position)].id if is_unnumbered else message.parent_id
        if parent != -1 and parent not in positions:
            raise CorruptDataError(f"field {message.name!r} names parent {parent}, which is not there")
        if message.id in positions:
            raise CorruptDataError(f"field id {message.id} occurs twice")
        depths.append(0 if parent == -1 else depths[positions[parent]] + 1)
        if depths[-1] > MAX_DEPTH:
            raise CorruptDataError(f"field {message.name!r} is nested more than {MAX_DEPTH} deep")
        children.setdefault(-1 if parent == -1 else positions[parent], []).append(position)
        if message.id != -1:
            positions[message.id] = position

    def build(position: int) -> Field:
        return _decode_field(listed[position], tuple(build(child) for child in children.get(position, ())))

    return tuple(build(position) for position in children.get(-1, ()))


def _last_numbered(listed: Sequence[file_pb2.Field], position: int) -> int:
    return next((at for at in range(position - 1, -1, -1) if listed[at].id != -1), 0)


def _decode_field(message: file_pb2.Field, children: tuple[Field, ...]) -> Field:
    has_dictionary = message.HasField("dictionary")
    return Field(
        id=message.id,
        name=message.name,
        logical_type=message.logical_type,
        nullable=message.nullable,
        metadata=dict(message.metadata) if message.metadata else {},
        children=children,
        extension_name=message.extension_name,
        encoding=int(message.encoding),
        dictionary=(message.dictionary.offset, message.dictionary.length) if has_dictionary else None,
        unenforced_primary_key=message.unenforced_primary_key,
        unenforced_primary_key_position=message.unenforced_primary_key_position,
        unenforced_clustering_key=message.unenforced_clustering_key,
        unenforced_clustering_key_position=message.unenforced_clustering_key_position,
    )
