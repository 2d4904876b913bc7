"""Places of the numbers in the metadata of a column, where files that are otherwise alike differ.

Source: message ``ColumnMetadata`` of package ``lance.file.v2``, and the constant layout of a page inside of it; see
`lance_core.format.file.file_metadata` and `lance_core.format.file.page_layout`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TypeAlias

from lance_core.common.frozen import NamedTuple
from lance_core.errors import CorruptDataError
from lance_core.format.wire import fields_between

Span: TypeAlias = tuple[int, int]
"""Where bytes begin and end."""

_PAGES, _OFFSETS, _SIZES = 2, 1, 2
_VALUE_PATH = (4, 2, 1, 2, 2, 6)
"""Fields from a page to the value of a constant: encoding, direct, ``Any``, layout, constant layout, value."""


class PageSpans(NamedTuple):
    """Places in the metadata of a column that are about one page.

    Attributes:
        positions: Position of each buffer, as varints.
        sizes: Size of each buffer, likewise.
        value: The value of a constant; None if it is not there.
    """

    positions: list[Span]
    sizes: list[Span]
    value: Span | None


def page_spans(data: bytes) -> list[PageSpans]:
    """Return the places that are about each page.

    Args:
        data: Serialized ColumnMetadata.

    Raises:
        CorruptDataError: Not a message.
    """
    return [
        PageSpans(
            _numbers(data, _only(data, (start, end), _OFFSETS)),
            _numbers(data, _only(data, (start, end), _SIZES)),
            _at(data, (start, end), _VALUE_PATH),
        )
        for number, start, end in fields_between(data, 0, len(data))
        if number == _PAGES
    ]


def _only(data: bytes, inside: Span, number: int) -> Span | None:
    """Return the place of a field; None if it is not there once."""
    spans = [(start, end) for field, start, end in fields_between(data, *inside) if field == number]
    return spans[0] if len(spans) == 1 else None


def _at(data: bytes, inside: Span, path: tuple[int, ...]) -> Span | None:
    """Return the place of a field of a field of a field."""
    span: Span | None = inside
    with suppress(CorruptDataError):  # what is in it may be something else than messages
        for number in path:
            span = _only(data, span, number) if span is not None else None
        return span
    return None


def _numbers(data: bytes, span: Span | None) -> list[Span]:
    """Return the places of packed varints."""
    if span is None:
        return []
    ends = [at + 1 for at in range(*span) if data[at] < 0x80]
    return list(zip([span[0], *ends], ends, strict=False))
