"""Values of dictionary columns of tables of version 0.1, which lie in the manifest file.

``Field.dictionary`` says where, and how many there are. Strings come first, end to end, and behind them u64 positions
in the file, one more than there are strings; ``offset`` is that of the positions. Values of fixed width stand at
``offset``. Each manifest file has its own copy, so that they move along from version to version.

Source: message ``Dictionary`` of package ``lance.file`` and tables written by pylance 14.0.2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.errors import CorruptDataError, LanceError
from lance_core.format.schema import Schema
from lance_core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lance_core.format.schema import Field

_STRINGS = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())


@frozen
class LegacyDictionary:
    """The values of one field.

    Attributes:
        num_values: How many.
        data: The values end to end.
        ends: For strings, where each one ends in `data`, as little-endian 64-bit numbers behind a 0; else None.
    """

    num_values: int
    data: bytes
    ends: bytes | None


def is_legacy_dictionary(field: Field) -> bool:
    """True for fields of dictionary type."""
    return field.logical_type.startswith("dict:")


def decode_dictionaries(schema: Schema, data: bytes, path: str | None) -> dict[int, LegacyDictionary]:
    """Read the values of all dictionary fields of a schema.

    Args:
        schema: Schema of the manifest.
        data: The manifest file.
        path: Its name, for error messages.

    Returns:
        By field id; fields without a dictionary, or of types that are not known, are left out.

    Raises:
        CorruptDataError: Values outside of the file.
    """
    found: dict[int, LegacyDictionary] = {}
    for one in schema.walk():
        if is_legacy_dictionary(one) and one.dictionary is not None:
            values = _decode(one, *one.dictionary, data, path)
            if values is not None:
                found[one.id] = values
    return found


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


def place_dictionaries(schema: Schema, known: Mapping[int, LegacyDictionary]) -> tuple[Schema, bytes]:
    """Lay dictionaries out at the beginning of a manifest file.

    Args:
        schema: Schema of the manifest.
        known: Values by field id.

    Returns:
        The schema, whose fields say where their values are, and the bytes.
    """
    if not known:
        return schema, b""
    parts: list[bytes] = []
    places: dict[int, tuple[int, int]] = {}
    position = 0
    for one in schema.walk():
        values = known.get(one.id)
        if values is None or not is_legacy_dictionary(one):
            continue
        if values.ends is None:
            places[one.id] = (position, values.num_values)
            parts.append(values.data)
        else:
            positions = (np.frombuffer(values.ends, "<i8") + position).tobytes()
            places[one.id] = (position + len(values.data), values.num_values)
            parts.extend((values.data, positions))
        position += sum(map(len, parts[-1:] if values.ends is None else parts[-2:]))
    if not places:
        return schema, b""
    return Schema(tuple(_placed(one, places) for one in schema.fields), schema.metadata), b"".join(parts)


def _placed(field: Field, places: Mapping[int, tuple[int, int]]) -> Field:
    children = tuple(_placed(child, places) for child in field.children)
    return replace(field, children=children, dictionary=places.get(field.id, field.dictionary))
