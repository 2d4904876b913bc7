"""Arrow extension types: inside lance_core they are their storage and the metadata of its field, users get the types.

Which names have a type is known to pyarrow alone (its own, and what was registered); it is asked through Arrow's C data
interface, which never copies data. A name without a type stays metadata.
"""

from __future__ import annotations

import ctypes
import struct
from collections import deque
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_core.common.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

EXTENSION_NAME_KEY = "ARROW:extension:name"
EXTENSION_METADATA_KEY = "ARROW:extension:metadata"


class _ArrowSchema(ctypes.Structure):
    """The beginning of ``struct ArrowSchema``."""

    _fields_ = [("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p)]


def extension_metadata(kind: pa.BaseExtensionType) -> dict[str, bytes]:
    """Name and parameters of an extension type, as field metadata.

    pyarrow 26.0.1 tells the parameters of its own types only through the C data interface.
    """
    capsule = pa.field("", kind).__arrow_c_schema__()
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = get_pointer(capsule, b"arrow_schema")
    at: int = _ArrowSchema.from_address(address).metadata

    def read_number() -> int:
        nonlocal at
        (number,) = struct.unpack("i", ctypes.string_at(at, 4))
        at += 4
        return int(number)

    def read_text() -> bytes:
        nonlocal at
        size = read_number()
        at += size
        return ctypes.string_at(at - size, size)

    pairs = {read_text().decode(): read_text() for _ in range(read_number())}
    return {
        EXTENSION_NAME_KEY: pairs[EXTENSION_NAME_KEY],
        EXTENSION_METADATA_KEY: pairs.get(EXTENSION_METADATA_KEY, b""),
    }


def names_extensions(schema: pa.Schema) -> bool:
    """True if a field anywhere in a schema names an extension type; all fields are asked when it is first seen."""
    for seen, answer in list(_seen):
        if seen.equals(schema, check_metadata=True):
            return answer
    answer = any(map(_names_extension, schema))
    _seen.appendleft((schema, answer))
    return answer


_seen: deque[tuple[pa.Schema, bool]] = deque(maxlen=8)
"""What was asked last: takes of a table ask the same again and again, and Arrow knows its own schema at once."""


def _names_extension(field: pa.Field) -> bool:
    if field.metadata and EXTENSION_NAME_KEY.encode() in field.metadata:
        return True
    kind = field.type
    return pa.types.is_nested(kind) and any(_names_extension(kind.field(index)) for index in range(kind.num_fields))


def with_types(schema: pa.Schema) -> pa.Schema:
    """Return the schema with the extension types that its fields name."""
    return pa.schema(_Schema(schema)) if names_extensions(schema) else schema


def batches_with_types(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches with the extension types that their fields name; ``schema`` is theirs."""
    if not names_extensions(schema):
        yield from batches
        return
    for batch in batches:
        yield pa.record_batch(_Batch(batch))


def table_with_types(table: pa.Table) -> pa.Table:
    """Return the table with the extension types that its fields name."""
    if not names_extensions(table.schema):
        return table
    return pa.Table.from_batches(batches_with_types(table.schema, table.to_batches()), with_types(table.schema))


@frozen
class _Schema:
    """Hands over a schema, so that it is imported anew."""

    schema: pa.Schema

    def __arrow_c_schema__(self) -> object:
        return self.schema.__arrow_c_schema__()


@frozen
class _Batch:
    """Hands over a batch, so that it is imported anew."""

    batch: pa.RecordBatch

    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return self.batch.__arrow_c_array__(requested_schema)
