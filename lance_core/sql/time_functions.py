"""Functions of SQL on days and times; values with a zone are supported if that is UTC."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lance_core.encoding.kernels import scalar
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.sql.arrow_types import UTC_NAMES, cast
from lance_core.sql.kernels import pc
from lance_core.sql.terms import Term, apply, literal_term
from lance_core.sql.text_functions import written

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_TRUNCATED = ("year", "quarter", "month", "week", "day", "hour", "minute", "second", "millisecond", "microsecond")


def _time(term: Term, what: str) -> Term:
    kind = term.type
    if pa.types.is_null(kind):
        return literal_term(scalar(None, pa.timestamp("us")))
    if not (pa.types.is_date(kind) or pa.types.is_timestamp(kind)):
        raise InvalidInputError(f"{what} needs a day or time, not {kind}")
    if pa.types.is_timestamp(kind) and kind.tz not in (None, *UTC_NAMES):
        raise UnsupportedError(f"{what} does not support values of type {kind}")
    return term


def date_part(part: str | None, term: Term) -> Term:
    """Return a number out of a day or time: int32, but a double for ``epoch`` (seconds since 1970)."""
    value = _time(term, "date_part")
    if part is None:
        return literal_term(scalar(None, pa.int32()))
    rule = _PARTS.get(part.lower().removesuffix("s") if part.lower() not in _PARTS else part.lower())
    if rule is None:
        raise UnsupportedError(f"date_part does not support {part!r}; the parts are: {', '.join(_PARTS)}")
    return apply(lambda values: rule(_as_time(values)), (value,), "date_part")


def _as_time(values: pa.Array) -> pa.Array:
    return pc.cast(values, pa.timestamp("us")) if pa.types.is_date(values.type) else values


def _small(kernel: Callable[..., pa.Array]) -> Callable[[pa.Array], pa.Array]:
    return lambda values: pc.cast(kernel(values), pa.int32())


def _epoch(values: pa.Array) -> pa.Array:
    ticks = pc.cast(pc.cast(values, pa.int64()), pa.float64(), safe=False)
    return pc.divide(ticks, float(_NANOSECONDS["s"] // _NANOSECONDS[values.type.unit]))


def _below_minute(per_second: int) -> Callable[[pa.Array], pa.Array]:
    """Seconds and their fraction as a whole number of smaller units."""

    def part(values: pa.Array) -> pa.Array:
        nanoseconds = pc.add(
            pc.multiply(pc.second(values), _NANOSECONDS["s"]),
            pc.cast(pc.round(pc.multiply(pc.subsecond(values), 1e9)), pa.int64()),
        )
        return pc.cast(pc.divide(nanoseconds, _NANOSECONDS["s"] // per_second), pa.int32())

    return part


_PARTS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "year": _small(pc.year),
    "quarter": _small(pc.quarter),
    "month": _small(pc.month),
    "week": _small(pc.iso_week),
    "day": _small(pc.day),
    "doy": _small(pc.day_of_year),
    "dow": _small(lambda values: pc.day_of_week(values, count_from_zero=True, week_start=7)),
    "hour": _small(pc.hour),
    "minute": _small(pc.minute),
    "second": _small(pc.second),
    "millisecond": _below_minute(1_000),
    "microsecond": _below_minute(1_000_000),
    "epoch": _epoch,
}


def _date_part(terms: Sequence[Term]) -> Term:
    return date_part(written(terms[0], "date_part"), terms[1])


def _date_trunc(terms: Sequence[Term]) -> Term:
    """Return the beginning of the unit; weeks begin on Monday. Days become times of nanoseconds."""
    unit, value = written(terms[0], "date_trunc"), _time(terms[1], "date_trunc")
    if unit is None:
        return literal_term(scalar(None, value.type))
    if unit.lower() not in _TRUNCATED:
        raise UnsupportedError(f"date_trunc does not support {unit!r}; the units are: {', '.join(_TRUNCATED)}")

    def truncate(values: pa.Array) -> pa.Array:
        times = pc.cast(values, pa.timestamp("ns")) if pa.types.is_date(values.type) else values
        truncated = pc.floor_temporal(times, unit=unit.lower(), week_starts_monday=True)
        return pc.cast(truncated, times.type)

    return apply(truncate, (value,), "date_trunc")


def _to(name: str, target: pa.DataType) -> Callable[[Sequence[Term]], Term]:
    def build(terms: Sequence[Term]) -> Term:
        return apply(lambda values: cast(values, target), (terms[0],), name)

    return build


TIME_FUNCTIONS: Mapping[str, tuple[int, int, Callable[[Sequence[Term]], Term]]] = {
    "date_part": (2, 2, _date_part),
    "datepart": (2, 2, _date_part),
    "date_trunc": (2, 2, _date_trunc),
    "datetrunc": (2, 2, _date_trunc),
    "to_date": (1, 1, _to("to_date", pa.date32())),
    "date": (1, 1, _to("date", pa.date32())),
    "to_timestamp_seconds": (1, 1, _to("to_timestamp_seconds", pa.timestamp("s"))),
    "to_timestamp_millis": (1, 1, _to("to_timestamp_millis", pa.timestamp("ms"))),
    "to_timestamp_micros": (1, 1, _to("to_timestamp_micros", pa.timestamp("us"))),
    "to_timestamp_nanos": (1, 1, _to("to_timestamp_nanos", pa.timestamp("ns"))),
}
"""Name to fewest arguments, most arguments and meaning."""
