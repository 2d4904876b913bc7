"""Types that can be written to each file version since 2.1. Types that pylance 14.0.2 cannot read back are refused.

Types of Arrow that have no words at all are refused by `lance_core.format.schema.logical_type_of` already.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lance_core.errors import UnsupportedError

if TYPE_CHECKING:
    from lance_core.format.schema import Field, Schema

_OLD_VERSION = "2.1"
_DICTIONARY_ITEMS = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "halffloat", "float", "double"),
    *("string", "binary", "large_string", "large_binary"),
)


def check_writable_types(schema: Schema, version: str) -> None:
    """Refuse fields that files of a version cannot hold, or that pylance cannot read beside each other.

    Args:
        schema: All fields of a file.
        version: "2.1" or newer.

    Raises:
        UnsupportedError: Names the field, what is wrong with it, and what to do.
    """
    for field in schema.special_fields:
        _check(field, version, field.name, ())
        if len(schema.fields) > 1 and field.logical_type == "struct" and not field.children:
            raise UnsupportedError(
                f"field {field.name!r}: struct without fields beside other columns, which pylance reads as null then; "
                f"file version 2.0 holds it, {version} does not"
            )


def _check(field: Field, version: str, path: str, parents: tuple[Field, ...]) -> None:
    problem = _problem(field, version, parents)
    if problem is not None:
        raise UnsupportedError(f"field {path!r}: {problem}")
    if field.is_leaf:
        return
    for child in field.children:
        _check(child, version, f"{path}.{child.name}", (*parents, field))


def _problem(field: Field, version: str, parents: tuple[Field, ...]) -> str | None:
    text = field.logical_type
    if field.is_blob:
        return _blob_problem(field, version, parents)
    if field.is_packed:
        return _packed_problem(field, version)
    if text.startswith("dict:"):
        return _dictionary_problem(text)
    if field.struct_list_size:
        return _struct_list_problem(field, version, parents)
    if text == "map" and version == _OLD_VERSION:
        return "maps need file version 2.2"
    if text == "struct" and len({_items(child) for child in field.children}) > 1:
        return "fixed-size list of structs beside fields of the same struct; pylance cannot read it"
    if text == "struct" and not field.children and parents:
        return "struct without fields inside of another type; pylance cannot read it"
    if text == "fixed_size_binary:0" and version == _OLD_VERSION:
        return "binary of width 0 needs file version 2.2"
    return None


def _items(field: Field) -> int:
    """Entries of the columns below a field for each of its rows, as far as fixed-size lists of structs make them."""
    if field.is_leaf:
        return 1
    return (field.struct_list_size or 1) * max(map(_items, field.children))


def _blob_problem(field: Field, version: str, parents: tuple[Field, ...]) -> str | None:
    if field.extension_name:
        return f"blobs ({field.extension_name}) need file version 2.2" if version == _OLD_VERSION else None
    if version != _OLD_VERSION:
        return "blobs of file version 2.2 and newer are of type lance.blob.v2; see lance_core.blob_field"
    if field.logical_type != "large_binary":
        return f"blobs are large_binary, not {field.logical_type}"
    if any(_is_list(parent) for parent in parents):
        return "blobs inside of lists need file version 2.2"
    return None


def _is_list(field: Field) -> bool:
    return field.logical_type.startswith(("list", "large_list")) or field.logical_type == "map"


def _packed_problem(field: Field, version: str) -> str | None:
    kinds = [child.to_arrow().type for child in field.children]
    for child, kind in zip(field.children, kinds, strict=True):
        if _is_unpackable(kind):
            return f"packed struct with field {child.name!r} of type {kind}"
    has_variable = any(not _is_fixed(kind) for kind in kinds)
    if has_variable and version == _OLD_VERSION:
        return "packed struct with fields of variable width, or fixed-size lists, needs file version 2.2"
    return None


def _is_unpackable(kind: pa.DataType) -> bool:
    if pa.types.is_fixed_size_list(kind):
        return _is_unpackable(kind.value_type) or not _is_fixed(kind.value_type)
    return pa.types.is_nested(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind) or _is_dictionary(kind)


def _is_dictionary(kind: pa.DataType) -> bool:
    return pa.types.is_dictionary(kind)


def _is_fixed(kind: pa.DataType) -> bool:
    return pa.types.is_primitive(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_decimal(kind)


def _dictionary_problem(text: str) -> str | None:
    items = text[len("dict:") :].rsplit(":", 2)[0]
    return None if items in _DICTIONARY_ITEMS else f"dictionary of {items}; write its values without dictionary"


def _struct_list_problem(field: Field, version: str, parents: tuple[Field, ...]) -> str | None:
    if version == _OLD_VERSION:
        return "fixed-size lists of structs need file version 2.2"
    if any(_is_list(parent) for parent in parents):
        return "fixed-size list of structs inside of a list"
    if any(_is_list(inner) for inner in field.walk()):
        return "fixed-size list of structs that hold lists"
    return None
