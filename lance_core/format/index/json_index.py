"""Indices over a member of JSON documents: an index of another kind over the values at a path.

The files are those of the other kind. All values are of one type, which only the files tell: int64, float64, text or
boolean; pylance builds no index over members of several types. Rows whose document is null, lacks the path or has null
there count as null. Source: message ``JsonIndexDetails`` of package ``lance.index.pb``, and what pylance 14.0.2 writes.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from lance_core._proto import vector_pb2
from lance_core.common.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

TYPE_URL = "/lance.index.pb.JsonIndexDetails"
VERSION = 0
_KEY = re.compile(r"(?:\$\.)?([A-Za-z_][A-Za-z0-9_]*)")

GETTERS: Mapping[str, str] = {
    "int64": "json_get_int",
    "double": "json_get_float",
    "string": "json_get_string",
    "bool": "json_get_bool",
}
"""Arrow types of values in such indices, and the functions of SQL that return them."""


@frozen(kw_only=True)
class JsonDetails:
    """Description of an index in its entry.

    Attributes:
        path: Path in the documents.
        target_url: Name of the message with the details of the other kind.
    """

    path: str
    target_url: str

    @property
    def key(self) -> str | None:
        """The member of documents that the path leads to; None for other paths.

        ``json_get_int(doc, 'a.b')`` looks for a member of that name, an index over ``a.b`` for one inside of ``a``.
        """
        match = _KEY.fullmatch(self.path)
        return None if match is None else match.group(1)


def decode_details(data: bytes) -> JsonDetails | None:
    """Decode a ``JsonIndexDetails`` message; None if it is damaged."""
    try:
        pb = vector_pb2.JsonIndexDetails.FromString(data)
    except DecodeError:
        return None
    return JsonDetails(path=pb.path, target_url=pb.target_details.type_url)


def member_name(column: str, kind: pa.DataType, key: str) -> str:
    """Return the name under which questions about a member are asked; a column cannot have it.

    Args:
        column: Name of the JSON column, or dotted path inside structs.
        kind: Type of the values.
        key: Key of the member.
    """
    return f"{GETTERS[str(kind)]}({column},\0{key})"
