"""Statistics of the row groups of files of version 0.1, by the rules of the specification and of pylance 14.0.2.

Bounds are only bounds: they may be loose, and they ignore NaN. They are kept as the bytes that the statistics pages
hold: fixed-width values little-endian, booleans as one byte, strings and binaries as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from lance_core.common.frozen import frozen
from lance_core.encoding.arrow_values import null_mask, offset_dtype, to_values, words_of
from lance_core.encoding.kernels import gather, starts_of
from lance_core.encoding.values import VariableValues
from lance_core.format.arrow_kinds import is_text

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.values import Bytes

pc: Any = pyarrow.compute  # its functions are made when it is imported, type checkers do not see them

_MAX_BYTES = 64
"""Longer strings and binaries are cut to a prefix of at most so many bytes."""

_KINDS = frozenset(
    kind.id
    for kind in (
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()),
        *(pa.uint64(), pa.float32(), pa.float64(), pa.date32(), pa.date64(), pa.decimal128(1)),
        *(pa.string(), pa.binary(), pa.large_string(), pa.large_binary()),
    )
)
_DECIMAL_BOUNDS = (-(2**127)).to_bytes(16, "little", signed=True), (2**127 - 1).to_bytes(16, "little", signed=True)


@frozen
class GroupStatistics:
    """Statistics of one column in one row group.

    Attributes:
        null_count: Number of nulls.
        minimum: Bytes that no value is less than; None if unknown.
        maximum: Likewise the other end.
        has_nan: True if values are NaN, which the bounds ignore.
    """

    null_count: int
    minimum: bytes | None
    maximum: bytes | None
    has_nan: bool = False


def has_statistics(kind: pa.DataType) -> bool:
    """Return whether files keep statistics of columns of this type."""
    return kind.id in _KINDS


def group_statistics(array: pa.Array) -> GroupStatistics:
    """Return the statistics of the values of one row group.

    Args:
        array: Values of a type that `has_statistics`.
    """
    kind = array.type
    if offset_dtype(kind) is not None:
        return GroupStatistics(array.null_count, *_string_bounds(array))
    if pa.types.is_boolean(kind):
        has_true, has_false = bool(array.true_count), bool(array.false_count)
        return GroupStatistics(
            array.null_count, bytes([has_true and not has_false]), bytes([has_true or not has_false])
        )
    if pa.types.is_decimal(kind):
        return GroupStatistics(array.null_count, *_decimal_bounds(array))
    values: npt.NDArray[Any] = words_of(array)
    is_null = null_mask(array)
    if is_null is not None:
        values = values[~is_null]
    if pa.types.is_floating(kind):
        floats = values.view(f"<f{kind.bit_width // 8}")
        return GroupStatistics(array.null_count, *_float_bounds(floats), has_nan=bool(np.isnan(floats).any()))
    sign = "u" if pa.types.is_unsigned_integer(kind) else "i"
    values = values.view(f"<{sign}{kind.bit_width // 8}")
    limits = np.iinfo(values.dtype)
    low, high = (values.min(), values.max()) if len(values) else (limits.min, limits.max)
    return GroupStatistics(array.null_count, *(values.dtype.type(bound).tobytes() for bound in (low, high)))


def _float_bounds(values: npt.NDArray[Any]) -> tuple[bytes, bytes]:
    """Zero is -0.0 as a minimum and +0.0 as a maximum; without any number the bounds are the infinities."""
    make = values.dtype.type
    numbers = values[~np.isnan(values)]
    if not len(numbers):
        return make(-np.inf).tobytes(), make(np.inf).tobytes()
    low, high = numbers.min(), numbers.max()
    return (low or make(-0.0)).tobytes(), (high or make(0.0)).tobytes()


def _decimal_bounds(array: pa.Array) -> tuple[bytes, bytes]:
    if array.null_count == len(array):
        return _DECIMAL_BOUNDS
    bounds = pc.min_max(array)
    low, high = (pa.array([bounds[name]], array.type).buffers()[1].to_pybytes()[:16] for name in ("min", "max"))
    return low, high


def _string_bounds(array: pa.Array) -> tuple[bytes | None, bytes | None]:
    """If any value was cut, the maximum is increased, even if it was not cut itself, as pylance does."""
    of_text = is_text(array.type)
    if array.null_count:
        array = array.drop_null()
    if not len(array):
        return None, None
    values = to_values(array)
    assert isinstance(values, VariableValues)  # noqa: S101 for the type checker: the caller asked
    is_cut = int(np.diff(values.offsets).max()) > _MAX_BYTES
    bounds = pc.min_max(_prefixes(values, of_text=of_text) if is_cut else array.cast(pa.large_binary()))
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if is_cut:
        high = _next_text(high) if of_text else _next_binary(high)
    return low, high


def _prefixes(values: VariableValues, *, of_text: bool) -> pa.Array:
    """Return the first 64 bytes of each value; of text as many whole characters as fit."""
    offsets = values.offsets.astype(np.int64)
    starts, ends = offsets[:-1], offsets[1:].copy()
    data: Bytes = np.ascontiguousarray(values.data)
    long = np.flatnonzero(ends - starts > _MAX_BYTES)
    cuts = starts[long] + _MAX_BYTES
    if of_text:
        # A cut inside of a character has a continuation byte (10xxxxxx) behind it; a character has at most three.
        for _ in range(3):
            cuts -= (data[cuts] & 0xC0) == 0x80
    ends[long] = cuts
    sizes = ends - starts
    buffers = [None, pa.py_buffer(starts_of(sizes)), pa.py_buffer(gather(data, starts, sizes))]
    return pa.Array.from_buffers(pa.large_binary(), len(sizes), buffers)


def _next_text(text: bytes) -> bytes | None:
    """Return the text with its last byte increased that leaves it valid UTF-8; None if there is no such byte."""
    for at in range(len(text) - 1, -1, -1):
        for byte in range(text[at] + 1, 256):
            larger = text[:at] + bytes([byte]) + text[at + 1 :]
            try:
                larger.decode()
            except UnicodeDecodeError:
                continue
            return larger
    return None


def _next_binary(data: bytes) -> bytes | None:
    """Return the bytes plus one as a big-endian number; None if all of them are 0xff."""
    number = int.from_bytes(data, "big") + 1
    return None if number >> 8 * len(data) else number.to_bytes(len(data), "big")
