"""Numbers as people read them."""

from __future__ import annotations

from datetime import timedelta

_BYTE_UNITS = ("bytes", "kB", "MB", "GB", "TB")
_MINUTE_S = 60
_HOUR_S = 3600
_AN_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)


def bytes_text(num_bytes: float) -> str:
    """Return a size in decimal units: ``"1.2 GB"``."""
    value, unit = float(num_bytes), 0
    while value >= 999.5 and unit < len(_BYTE_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    if value == 1 and unit == 0:
        return "1 byte"
    return f"{value:,.0f} {_BYTE_UNITS[unit]}" if unit == 0 or value >= 99.5 else f"{value:.3g} {_BYTE_UNITS[unit]}"


def seconds_text(seconds: float) -> str:
    """Return a duration: ``"0.12 s"``, ``"3 min 20 s"``, ``"2 h 5 min"``."""
    if seconds < _MINUTE_S:
        return f"{seconds:.3g} s"
    if seconds < _HOUR_S:
        return f"{int(seconds // _MINUTE_S)} min {int(seconds % _MINUTE_S)} s"
    return f"{int(seconds // _HOUR_S)} h {int(seconds % _HOUR_S // _MINUTE_S)} min"


def count_text(number: int, noun: str) -> str:
    """Return a number with its noun: ``"1 row"``, ``"12,000 rows"``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def age_text(age: timedelta) -> str:
    """Return an age: ``"7 days"``, ``"12 hours"``, ``"1 min 30 s"``."""
    if age % _DAY == timedelta(0):
        return count_text(age // _DAY, "day")
    return count_text(age // _AN_HOUR, "hour") if age % _AN_HOUR == timedelta(0) else seconds_text(age.total_seconds())
