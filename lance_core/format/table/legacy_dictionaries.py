"""Values of dictionary columns of tables of version 0.1, which lie in the manifest file.

``Field.dictionary`` says where, and how many there are. Strings come first, end to end, and behind them u64 positions
in the file, one more than there are strings; ``offset`` is that of the positions. Values of fixed width stand at
``offset``. Each manifest file has its own copy, so that they move along from version to version.

Source: message ``Dictionary`` of package ``lance.file`` and tables written by pylance 14.0.2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import replace
from lance_core.errors import CorruptDataError, LanceError
from lance_core.format.dictionary_values import LegacyDictionary
from lance_core.format.schema import Schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_core.format.schema import Field

_STRINGS = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


def is_legacy_dictionary(field: Field) -> bool:
    """True for fields of dictionary type."""
    return field.logical_type.startswith("dict:")


def decode_dictionaries(schema: Schema, data: bytes, path: str | None) -> Schema:
    """Read the values of all dictionary fields of a schema.

    Args:
        schema: Schema of the manifest.
        data: The manifest file.
        path: Its name, for error messages.

    Returns:
        The schema, whose dictionary fields hold their values; fields of unknown types hold none.

    Raises:
        CorruptDataError: Values outside of the file.
    """

    def decoded(field: Field) -> Field:
        if not is_legacy_dictionary(field) or field.dictionary is None:
            return field
        return replace(field, values=_decode(field, *field.dictionary, data, path))

    return _mapped(schema, decoded)


def _decode(field: Field, offset: int, count: int, data: bytes, path: str | None) -> LegacyDictionary | None:
    try:
        kind = field.to_arrow().type.value_type
        is_text = kind in _STRINGS
        size = 8 * (count + 1) if is_text else (count * kind.bit_width + 7) // 8
    except (LanceError, ValueError):  # a type that no table has; its column is refused when it is read
        return None
    if offset < 0 or count < 0 or offset + size > len(data):
        raise CorruptDataError(f"the dictionary of {field.name!r} lies outside the manifest", path=path, offset=offset)
    if not is_text:
        return LegacyDictionary(count, data[offset : offset + size], None)
    positions = np.frombuffer(data, "<i8", count + 1, offset)
    first, last = int(positions[0]), int(positions[-1])
    if first < 0 or last > len(data) or (positions[1:] < positions[:-1]).any():
        raise CorruptDataError(f"the dictionary of {field.name!r} lies outside the manifest", path=path, offset=offset)
    return LegacyDictionary(count, data[first:last], (positions - first).tobytes())


def place_dictionaries(schema: Schema, start: int = 0) -> tuple[Schema, bytes]:
    """Lay the values of dictionary fields out one behind the other.

    Args:
        schema: Schema whose dictionary fields hold their values.
        start: Position in the file of what is returned.

    Returns:
        The schema, whose fields tell where their values are, and the bytes.
    """
    parts: list[bytes] = []
    position = start

    def placed(field: Field) -> Field:
        nonlocal position
        values = field.values
        if values is None or not is_legacy_dictionary(field):
            return field
        at, position = position, position + len(values.data)
        parts.append(values.data)
        if values.ends is not None:
            parts.append((np.frombuffer(values.ends, "<i8") + at).tobytes())
            at, position = position, position + len(values.ends)
        return replace(field, dictionary=(at, values.num_values))

    return _mapped(schema, placed), b"".join(parts)


def with_values(schema: Schema, find: Callable[[Field], LegacyDictionary | None]) -> Schema:
    """Give the dictionary fields of a schema other values."""
    return _mapped(schema, lambda field: replace(field, values=find(field)) if is_legacy_dictionary(field) else field)


def _mapped(schema: Schema, change: Callable[[Field], Field]) -> Schema:
    """Change fields, parents before their children; the schema itself if nothing changes."""

    def mapped(field: Field) -> Field:
        changed = change(field)
        children = tuple([mapped(child) for child in field.children])
        return changed if children == field.children else replace(changed, children=children)

    fields = tuple([mapped(field) for field in schema.fields])
    return schema if fields == schema.fields else Schema(fields, schema.metadata)
