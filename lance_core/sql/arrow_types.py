"""Types of SQL values: what two sides become when they meet, and what ``CAST`` does.

The rules are those of the native implementation (DataFusion), measured: arithmetic and comparisons have a common type
of their own, ``CAST`` cuts off fractions, rounds decimals half away from zero, and fails where a value does not fit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from lance_core.encoding.kernels import scalar
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.arrow_kinds import is_bytes, is_text
from lance_core.sql.kernels import pc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Datum: TypeAlias = Any
"""An Arrow array, or an Arrow scalar that stands for all rows."""

_is = pa.types
UTC_NAMES = ("UTC", "+00:00", "Z")
_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 20}
_SIGNED = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}
_BITS_OF_OTHERS = 1_024
_WIDE_INTEGER = pa.decimal128(20, 0)


def kind_of(data_type: pa.DataType) -> str:
    """Return a name for types whose values can be compared with one another."""
    if is_number(data_type):
        return "number"
    if is_text(data_type):
        return "text"
    if is_bytes(data_type) or _is.is_fixed_size_binary(data_type):
        return "binary"
    if _is.is_date(data_type) or _is.is_timestamp(data_type):
        return "day or time"
    return "boolean" if _is.is_boolean(data_type) else str(data_type)


def is_number(kind: pa.DataType) -> bool:
    """True for integers, floats and decimals."""
    return bool(_is.is_integer(kind) or _is.is_floating(kind) or _is.is_decimal(kind))


def is_any_list(data_type: pa.DataType) -> bool:
    """True for lists of every kind."""
    return bool(_is.is_list(data_type) or _is.is_large_list(data_type) or _is.is_fixed_size_list(data_type))


def shape_path(path: str, field: pa.Field) -> str:
    """Return the path of the value below a column that is read most cheaply, to learn where the column is null.

    It tells how long lists are as well. Structs with metadata are stored as one (blobs, packed structs).

    Args:
        path: Name or dotted path of the column.
        field: Its Arrow field.
    """
    return min(_leaf_paths(path, field), key=lambda leaf: leaf[1])[0]


def _leaf_paths(path: str, field: pa.Field) -> Iterator[tuple[str, int]]:
    """Yield the paths of values below a field, and their bits."""
    kind = field.type
    if _is.is_struct(kind) and kind.num_fields and not field.metadata:
        for index in range(kind.num_fields):
            yield from _leaf_paths(f"{path}.{kind.field(index).name}", kind.field(index))
    elif _is.is_list(kind) or _is.is_large_list(kind):
        yield from _leaf_paths(f"{path}.{kind.value_field.name}", kind.value_field)
    else:
        yield path, kind.bit_width if _is.is_primitive(kind) else _BITS_OF_OTHERS


def decimal_for(kind: pa.DataType) -> pa.DataType:
    """Return the decimal type that holds an integer type."""
    return pa.decimal128(_INTEGER_DIGITS[kind.bit_width], 0) if _is.is_integer(kind) else kind


def arithmetic_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the common type of two numbers before they are added; None if decimals keep their own types."""
    if left.equals(right) or (_is.is_integer(left) and _is.is_integer(right)):
        return left if left.equals(right) else _integer_type(left, right)
    floats = [kind for kind in (left, right) if _is.is_floating(kind)]
    return max(floats, key=lambda kind: kind.bit_width) if floats else None


def comparison_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Return the common type for a comparison of two values of one kind.

    Raises:
        UnsupportedError: Decimals with floats, of which one would lose digits.
    """
    if is_number(left) and is_number(right):
        if any(map(_is.is_decimal, (left, right))):
            if any(map(_is.is_floating, (left, right))):
                raise UnsupportedError(f"cannot compare {left} with {right}. CAST one of them")
            return _wider_decimal(decimal_for(left), decimal_for(right))
        return arithmetic_type(left, right) or left
    if left.equals(right):
        return left
    if is_text(left):
        return pa.large_string()
    if kind_of(left) == "binary":
        return pa.large_binary()
    return _timestamp_type(left, right)


def _integer_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if _is.is_signed_integer(left) == _is.is_signed_integer(right):
        return max(left, right, key=lambda kind: kind.bit_width)
    unsigned, signed = (right, left) if _is.is_signed_integer(left) else (left, right)
    width = max(2 * unsigned.bit_width, signed.bit_width)
    return _SIGNED[width] if width <= 64 else _WIDE_INTEGER


def _wider_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    if whole + scale <= 38:
        return pa.decimal128(whole + scale, scale)
    if whole + scale <= 76:
        return pa.decimal256(whole + scale, scale)
    raise UnsupportedError(f"cannot compare {left} with {right}")


_UNITS = ("s", "ms", "us", "ns")


def _timestamp_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """Days and times meet as times of the finer unit; a zone other than UTC meets only itself."""
    both = (left, right)
    if not all(map(_is.is_temporal, both)):
        raise UnsupportedError(f"cannot compare {left} with {right}")
    if all(map(_is.is_date, both)):
        return pa.date64()
    units = [kind.unit for kind in both if _is.is_timestamp(kind)]
    zones = {kind.tz if _is.is_timestamp(kind) else None for kind in both}
    if len(zones) > 1 and any(zone not in (None, *UTC_NAMES) for zone in zones):
        raise UnsupportedError(f"cannot compare {left} with {right}")
    zone = next((zone for zone in zones if zone is not None), None)
    return pa.timestamp(max(units, key=_UNITS.index), zone)


def coerce(values: Datum, target: pa.DataType) -> Datum:
    """Return an implicit cast, which only ever loses digits of floats."""
    if values.type.equals(target):
        return values
    if _is.is_timestamp(values.type) and _is.is_timestamp(target) and values.type.tz != target.tz:
        return pc.cast(pc.cast(values, pa.timestamp(values.type.unit)), target)  # both are UTC or without a zone
    if _is.is_date(values.type) and _is.is_timestamp(target) and target.tz is not None:
        return pc.cast(pc.cast(values, pa.timestamp(target.unit)), target)
    if _is.is_float16(target) and not _is.is_float32(values.type):
        values = pc.cast(values, pa.float32(), safe=False)
    if _is.is_decimal(target) and _is.is_integer(values.type):
        values = pc.cast(values, pa.decimal128(20, 0))
    return pc.cast(values, target, safe=not _is.is_floating(target))


def element_at(lists: pa.Array, number: int) -> pa.Array:
    """One item of each list, counted from 1, or backwards from -1; null if there is no such item."""
    lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), scalar(0)), np.int64)
    ends = np.cumsum(lengths)
    is_there = (lengths >= abs(number)) & (number != 0)
    index = ends - lengths + number - 1 if number > 0 else ends + number
    flat = pc.list_flatten(lists)
    if not len(flat):
        return pa.nulls(len(lists), flat.type)
    return flat.take(pa.array(np.where(is_there, index, 0), mask=~is_there))


# ------------------------------------------------------------------------------------------------------------ CAST


def cast(values: Datum, target: pa.DataType) -> Datum:
    """Convert values as ``CAST`` does.

    Args:
        values: Array or scalar.
        target: The type wanted.

    Raises:
        pa.ArrowInvalid: A value does not fit.
        UnsupportedError: There is no such cast here.
    """
    source = values.type
    if source.equals(target):
        return values
    if _is.is_null(source):
        return pc.cast(values, target)
    if isinstance(values, pa.Scalar):
        return cast(pa.array([values.as_py()], source) if not values.is_valid else pa.repeat(values, 1), target)[0]
    for is_source, is_target, rule in _CASTS:
        if is_source(source) and is_target(target):
            return rule(values, target)
    raise UnsupportedError(f"cannot CAST {source} to {target}")


def _plain(values: pa.Array, target: pa.DataType) -> pa.Array:
    return pc.cast(values, target)


def _loose(values: pa.Array, target: pa.DataType) -> pa.Array:
    return coerce(values, target) if _is.is_float16(target) else pc.cast(values, target, safe=False)


def _float_to_integer(values: pa.Array, target: pa.DataType) -> pa.Array:
    return pc.cast(pc.trunc(_wide_float(values)), target)


def _wide_float(values: pa.Array) -> pa.Array:
    return pc.cast(values, pa.float32()) if _is.is_float16(values.type) else values


def _decimal_to_integer(values: pa.Array, target: pa.DataType) -> pa.Array:
    return pc.cast(pc.trunc(values), target)


def _decimal_to_decimal(values: pa.Array, target: pa.DataType) -> pa.Array:
    if values.type.scale > target.scale:
        values = pc.round(values, ndigits=target.scale, round_mode="half_towards_infinity")
    return pc.cast(values, target)


def _integer_to_decimal(values: pa.Array, target: pa.DataType) -> pa.Array:
    return pc.cast(pc.cast(values, pa.decimal128(20, 0)), target)


def _float_to_decimal(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Scaled as a float and then rounded half away from zero: 0.15 to one digit is 0.2."""
    scaled = pc.round(
        pc.multiply(pc.cast(values, pa.float64()), 10.0**target.scale), round_mode="half_towards_infinity"
    )
    whole = pc.cast(scaled, pa.int64())
    if pc.any(pc.greater(pc.abs(scaled), 10.0**target.precision - 1)).as_py():
        raise pa.ArrowInvalid(f"a value does not fit into {target}")
    low = np.asarray(pc.fill_null(whole, scalar(0)))
    parts = np.stack([low, low >> 63], axis=1)
    return pa.Array.from_buffers(target, len(values), [_validity(values), pa.py_buffer(parts)])


def _validity(values: pa.Array) -> pa.Buffer | None:
    return None if not values.null_count else pc.is_valid(values).buffers()[1]


def _to_boolean(values: pa.Array, _: pa.DataType) -> pa.Array:
    return pc.not_equal(values, scalar(0, values.type))


def _ticks(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Days, or units since 1970, as a number."""
    wide = pa.int32() if _is.is_date32(values.type) else pa.int64()
    return cast(values.view(wide), target)


def _from_ticks(values: pa.Array, target: pa.DataType) -> pa.Array:
    return pc.cast(values, pa.int32() if _is.is_date32(target) else pa.int64()).view(target)


def _to_time(values: pa.Array, target: pa.DataType) -> pa.Array:
    source = values.type
    zones = {kind.tz for kind in (source, target) if _is.is_timestamp(kind) and kind.tz not in UTC_NAMES}
    if zones - {None}:
        raise UnsupportedError(f"cannot CAST {source} to {target}")
    if _is.is_timestamp(source) and source.tz is not None:
        values = pc.cast(values, pa.timestamp(source.unit))
    if _is.is_timestamp(target) and target.tz is not None:
        values = pc.cast(values, pa.timestamp(target.unit), safe=False)
    return pc.cast(values, target, safe=False)


def _float_to_text(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Return the shortest digits that give the value back; fixed notation for what is neither large nor tiny."""
    show = np.dtype(values.type.to_pandas_dtype()).type
    texts = [None if value is None else _float_text(show(value)) for value in values.to_pylist()]
    return pa.array(texts, target)


def _float_text(value: Any) -> str:
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else ("inf" if value > 0 else "-inf")
    is_single = value.dtype.itemsize < 8
    digits, exponent = np.format_float_scientific(value, unique=True, trim="-").split("e")
    power, smallest, largest = int(exponent), -6 if is_single else -5, 13 if is_single else 16
    if smallest <= power < largest:
        return np.format_float_positional(value, unique=True, trim="0")
    return f"{digits}e{power}"


def _time_to_text(values: pa.Array, target: pa.DataType) -> pa.Array:
    """ISO 8601 with 0, 3, 6 or 9 digits of a second."""
    if values.type.tz not in (None, *UTC_NAMES):
        raise UnsupportedError(f"cannot CAST {values.type} to {target}")
    text = pc.cast(pc.cast(values, pa.timestamp(values.type.unit)), pa.string())
    text = pc.replace_substring_regex(text, r"^(\S+) (.*)$", r"\1T\2")
    text = pc.replace_substring_regex(text, r"\.000000000$|\.000000$|\.000$", "")
    text = pc.replace_substring_regex(text, r"\.(\d{3})(000000|000)$", r".\1")
    text = pc.replace_substring_regex(text, r"\.(\d{6})000$", r".\1")
    return pc.cast(text if values.type.tz is None else pc.binary_join_element_wise(text, "Z", ""), target)


def _text_to_time(values: pa.Array, target: pa.DataType) -> pa.Array:
    """With an offset or without one; what is finer than the unit is cut off."""
    distinct = {text: parse_time(text) for text in pc.unique(values).to_pylist() if text is not None}
    times = pa.array([None if text is None else distinct[text] for text in values.to_pylist()], pa.timestamp("ns"))
    return pc.cast(times, target, safe=False)


def parse_time(text: str) -> Any:
    """Return a scalar of nanoseconds without a zone, in UTC if the text has an offset.

    Raises:
        pa.ArrowInvalid: It is no time.
    """
    for kind in (pa.timestamp("ns"), pa.timestamp("ns", "UTC")):
        try:
            return pc.cast(pc.cast(scalar(text), kind), pa.timestamp("ns"))
        except pa.ArrowInvalid:
            continue
    raise pa.ArrowInvalid(f"{text!r} is not a timestamp. Write it as 'YYYY-MM-DD hh:mm:ss'")


def _is_binary(kind: pa.DataType) -> bool:
    return kind_of(kind) == "binary"


def _is_utc_date_or_time(kind: pa.DataType) -> bool:
    return bool(_is.is_date(kind) or _is.is_timestamp(kind))


def _to_list(values: pa.Array, target: pa.DataType) -> pa.Array:
    return (_loose if _is.is_floating(target.value_type) else _plain)(values, target)


_CASTS: tuple[
    tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool], Callable[[pa.Array, pa.DataType], pa.Array]],
    ...,
] = (
    (is_text, is_text, _plain),
    (is_text, _is_binary, _plain),
    (_is_binary, is_text, _plain),
    (_is_binary, _is_binary, _plain),
    (is_text, _is.is_timestamp, _text_to_time),
    (is_text, lambda kind: bool(_is.is_date(kind) or _is.is_boolean(kind) or is_number(kind)), _plain),
    (_is.is_integer, _is.is_integer, _plain),
    (_is.is_integer, _is.is_floating, _loose),
    (_is.is_integer, _is.is_decimal, _integer_to_decimal),
    (lambda kind: bool(_is.is_integer(kind) or _is.is_boolean(kind)), is_text, _plain),
    (_is.is_integer, _is_utc_date_or_time, _from_ticks),
    (_is.is_floating, _is.is_integer, _float_to_integer),
    (_is.is_floating, _is.is_floating, _loose),
    (_is.is_floating, _is.is_decimal, _float_to_decimal),
    (_is.is_floating, is_text, _float_to_text),
    (
        lambda kind: bool(_is.is_integer(kind) or _is.is_float32(kind) or _is.is_float64(kind)),
        _is.is_boolean,
        _to_boolean,
    ),
    (_is.is_decimal, _is.is_integer, _decimal_to_integer),
    (_is.is_decimal, _is.is_floating, _loose),
    (_is.is_decimal, _is.is_decimal, _decimal_to_decimal),
    (_is.is_decimal, is_text, _plain),
    (_is.is_boolean, is_number, _plain),
    (_is.is_date, is_text, _plain),
    (_is.is_timestamp, is_text, _time_to_text),
    (_is_utc_date_or_time, _is.is_integer, _ticks),
    (_is_utc_date_or_time, _is_utc_date_or_time, _to_time),
    (is_any_list, is_any_list, _to_list),
)


def written_time(value: str) -> pa.Scalar:
    """Return a time as written in SQL: in microseconds if that is enough, else nanoseconds, with a zone if it has one.

    Raises:
        InvalidInputError: The text is no time.
    """
    parse_time(value)
    for kind in (pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.timestamp("ns", "UTC")):
        try:
            return pc.cast(scalar(value), kind)
        except pa.ArrowInvalid:
            continue
    raise InvalidInputError(f"{value!r} is not a timestamp. Write it as 'YYYY-MM-DD hh:mm:ss'")
