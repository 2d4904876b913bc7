"""Kinds of Arrow types that several modules ask about."""

from __future__ import annotations

import pyarrow as pa


def is_text(kind: pa.DataType) -> bool:
    """Return whether values are text, with offsets of either size."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether values are byte strings of any length, with offsets of either size."""
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def is_ordered(kind: pa.DataType) -> bool:
    """Return whether values have an order that indices are built for."""
    types = pa.types
    return bool(
        is_text(kind)
        or is_bytes(kind)
        or types.is_integer(kind)
        or types.is_floating(kind)
        or types.is_boolean(kind)
        or types.is_decimal128(kind)
        or types.is_decimal256(kind)
        or (types.is_temporal(kind) and not types.is_interval(kind))
    )
