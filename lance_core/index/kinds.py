"""The registry of index kinds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.index.vector_index import decode_details
from lance_core.format.table.index_metadata import index_fields
from lance_core.index.protocol import CheckedKind, MovableKind
from lance_core.index.scalar.bitmap import BITMAP, LABEL_LIST
from lance_core.index.scalar.bloom import BLOOM_FILTER
from lance_core.index.scalar.btree import BTREE
from lance_core.index.scalar.json_member import json_member_kind
from lance_core.index.scalar.ngram import NGRAM
from lance_core.index.scalar.zone_map import ZONE_MAP
from lance_core.index.text.inverted import INVERTED
from lance_core.index.text.minhash import MINHASH
from lance_core.index.vector.kind import VECTOR
from lance_core.index.vector.train import INDEX_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_core.format.table.index_metadata import IndexFields, IndexMetadata
    from lance_core.index.column import IndexedColumn
    from lance_core.index.protocol import IndexKind, ReadKind
    from lance_core.index.scalar.json_member import JsonMemberKind

KINDS: dict[str, IndexKind] = {
    kind.name: kind for kind in (BTREE, BITMAP, LABEL_LIST, NGRAM, ZONE_MAP, BLOOM_FILTER, INVERTED, MINHASH)
}
"""By name in `create_scalar_index`."""


_ALIASES = {"FTS": INVERTED.name}


def kind_named(name: str) -> IndexKind:
    """Return the kind of a name, in upper or lower case; ``VECTOR`` is that of vector indices.

    Raises:
        UnsupportedError: lance_core does not build this kind.
    """
    upper = str(name).upper()
    kind = VECTOR if name == VECTOR.name else KINDS.get(_ALIASES.get(upper, upper))
    if kind is None:
        raise UnsupportedError(f"lance_core builds indices of type {', '.join(KINDS)}, not {name}")
    return kind


def check_build(kind: IndexKind, column: IndexedColumn, options: Mapping[str, Any]) -> dict[str, Any]:
    """Check that an index can be built.

    Args:
        kind: The kind.
        column: The column.
        options: What the caller asks for.

    Returns:
        All options of the kind.

    Raises:
        InvalidInputError: An option that the kind does not have, or a value that does not fit.
        UnsupportedError: A type that the kind does not take.
    """
    if not kind.takes(column.type):
        raise UnsupportedError(
            f"column {column.path!r} has type {column.type}, for which {kind.name} indices cannot be built"
        )
    if isinstance(kind, CheckedKind):
        return kind.check_options(options)
    for name, value in options.items():
        if name not in kind.default_options:
            raise InvalidInputError(f"a {kind.name} index has no option {name!r}")
        if isinstance(value, int) and value < 1:
            raise InvalidInputError(f"{name} must be at least 1, not {value}")
    return {**kind.default_options, **options}


def kind_of(fields: IndexFields) -> IndexKind | None:
    """Return the kind of a segment; None if its kind or version is unknown, so that it must not be asked."""
    if fields.details is None:
        return None
    url = fields.details[0].lower()
    kind = next((kind for kind in (*KINDS.values(), VECTOR) if kind.type_url.lower() == url), None)
    if kind is VECTOR and decode_details(fields.details[1]).index_type not in INDEX_TYPES:
        return None  # such as one with a graph, which is searched but not built
    return kind if kind is not None and fields.index_version in kind.index_versions else None


def readers_of(fields: IndexFields, column: IndexedColumn) -> tuple[ReadKind | None, Sequence[str]]:
    """Return what reads an index over a column, and the names under which questions are asked; None for none."""
    kind = kind_of(fields)
    if kind is not None:
        return kind if kind.takes(column.type) else None, (column.path,)
    member = _member_kind(fields)
    if member is None or member.key is None:
        return None, ()
    return member, member.subjects(column)


def mover_of(fields: IndexFields, column: IndexedColumn) -> MovableKind | None:
    """Return what tells a segment over a column where rows went; None for kinds that cannot."""
    kind = kind_of(fields)
    if kind is None:
        return _member_kind(fields)
    return kind if isinstance(kind, MovableKind) and kind.takes(column.type) else None


def _member_kind(fields: IndexFields) -> JsonMemberKind | None:
    return json_member_kind(fields, {BTREE.type_url: BTREE, BITMAP.type_url: BITMAP})


def kind_of_index(index: IndexMetadata) -> IndexKind | None:
    """As `kind_of`, for an encoded entry."""
    return kind_of(index_fields(index))
