"""Encodings and layouts as text that a person reads.

A frozen value becomes its name and what it holds: ``General(zstd, Variable(32))``. What is empty, zero or false is left
out; bytes are told by their number. New encodings need nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from enum import Enum


def notation(value: object) -> str:
    """Text for an encoding, a layout or a part of one."""
    match value:
        case Enum():
            return value.name.lower()
        case bytes():
            return f"{len(value)} bytes"
        case str() | int() | float():
            return str(value)
        case Sequence():
            return f"[{', '.join(notation(item) for item in value)}]"
        case _ if is_dataclass(value):
            return f"{type(value).__name__}{_arguments(value)}"
        case _:
            return repr(value)


def _arguments(value: object) -> str:
    parts: list[str] = []
    for field in fields(value):  # type: ignore[arg-type] the caller checked
        content = getattr(value, field.name)
        if content is True:
            parts.append(field.name)
        elif content is not None and content is not False and content not in (0, "", ()):
            parts.append(notation(content) if not field.kw_only else f"{field.name}={notation(content)}")
    return f"({', '.join(parts)})" if parts else ""
