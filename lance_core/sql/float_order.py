"""Compare floating-point numbers in IEEE 754 total order, as pylance does.

From the smallest: negative NaN, -inf, negative numbers, -0.0, 0.0, positive numbers, inf, NaN. Arrow's kernels take
zeros for equal and answer false for NaN, so this module compares the bits. ``0.0 / 0.0`` is a negative NaN on x86.

The bits of a float read as a signed integer are in order among positive values, and read as an unsigned integer they
are in reverse order among negative values. A comparison with a constant needs no more than that.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import pyarrow as pa

from lance_core.encoding.kernels import scalar
from lance_core.sql.kernels import pc

Values: TypeAlias = Any
"""An Arrow array or chunked array of floats, or a scalar that stands for all rows."""

_SIGNED = {16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_UNSIGNED = {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}
MIRRORED = {"equal": "equal", "not_equal": "not_equal", "less": "greater", "greater": "less"} | {
    "less_equal": "greater_equal",
    "greater_equal": "less_equal",
}
"""Comparisons and what they become when the two sides change places."""


def order_keys(values: Values) -> Values:
    """Return signed integers of the same width that compare as the floats do; `from_order_keys` is the inverse."""
    bits = float_bits(values)
    below_sign = scalar((1 << (bits.type.bit_width - 1)) - 1, bits.type)
    return pc.if_else(pc.less(bits, scalar(0, bits.type)), pc.bit_wise_xor(bits, below_sign), bits)


def from_order_keys(keys: Values) -> Values:
    """Return the floats that `order_keys` made integers of."""
    floats = {16: pa.float16(), 32: pa.float32(), 64: pa.float64()}[keys.type.bit_width]
    return _viewed(order_keys(_viewed(keys, floats)), floats)


def float_bits(values: Values) -> Values:
    """Return the bits of floats as signed integers: equal where the floats are, which holds for NaN, too."""
    return _viewed(values, _SIGNED[values.type.bit_width])


def compare(name: str, left: Values, right: Values) -> Values:
    """Compare floats; constant zeros compare as equal to zeros of either sign, as in pylance's filters.

    Args:
        name: Name of an Arrow comparison kernel, such as ``less_equal``.
        left: Values, or a scalar.
        right: Values of the same type, or a scalar; not both are scalars.

    Returns:
        Booleans, null where a side is.
    """
    if isinstance(left, pa.Scalar):
        name, left, right = MIRRORED[name], right, left
    if not isinstance(right, pa.Scalar) or right.as_py() != 0:
        return compare_exactly(name, left, right)
    if name in {"equal", "not_equal"}:
        unsigned = _UNSIGNED[left.type.bit_width]
        without_sign = pc.shift_left(_viewed(left, unsigned), scalar(1, unsigned))
        return getattr(pc, name)(without_sign, scalar(0, unsigned))
    zero = -0.0 if name in {"less", "greater_equal"} else 0.0
    return compare_exactly(name, left, scalar(zero, pa.float64()).cast(right.type))


def compare_exactly(name: str, left: Values, right: Values) -> Values:
    """Compare floats by their bits, so that -0.0 is less than 0.0; arguments as for `compare`."""
    if isinstance(left, pa.Scalar):
        name, left, right = MIRRORED[name], right, left
    if name in {"equal", "not_equal"}:
        return getattr(pc, name)(float_bits(left), float_bits(right))
    if not isinstance(right, pa.Scalar):
        return getattr(pc, name)(order_keys(left), order_keys(right))
    bits = float_bits(right)
    if not bits.is_valid or bits.as_py() >= 0:
        return getattr(pc, name)(float_bits(left), bits)
    unsigned = _UNSIGNED[left.type.bit_width]
    return getattr(pc, MIRRORED[name])(_viewed(left, unsigned), _viewed(right, unsigned))


def membership_bits(options: pa.Array) -> pa.Array:
    """Return the bits of the values of an ``IN``; zeros stand for zeros of either sign."""
    bits = float_bits(options)
    magnitude = scalar((1 << (bits.type.bit_width - 1)) - 1, bits.type)
    if not pc.any(pc.equal(pc.bit_wise_and(bits, magnitude), scalar(0, bits.type))).as_py():
        return bits
    return pa.concat_arrays([bits, pa.array([0, -(1 << (bits.type.bit_width - 1))], bits.type)])


def _viewed(values: Values, kind: pa.DataType) -> Values:
    """Return the same bits in another type of the same width."""
    if isinstance(values, pa.ChunkedArray):
        return pa.chunked_array([chunk.view(kind) for chunk in values.chunks], kind)
    return pa.repeat(values, 1).view(kind)[0] if isinstance(values, pa.Scalar) else values.view(kind)
