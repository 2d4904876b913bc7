"""The bytes of one data file, the end of which is read when it is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_core.encoding.plans import Ranges, Steps
    from lance_core.store.base import ObjectReader

_T = TypeVar("_T")

TAIL_SIZE = 1 << 16
"""Bytes read first: footer, tables and, unless the file has very many columns, all metadata."""


class FileBytes:
    """A file whose end is at hand.

    Args:
        source: The file.
    """

    def __init__(self, source: ObjectReader) -> None:
        self._source = source
        self._tail_start = max(0, source.size - TAIL_SIZE)
        self.tail: pa.Buffer = source.read_ranges([(self._tail_start, source.size)])[0]

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self._source.size

    def fetch(self, ranges: Ranges) -> list[pa.Buffer]:
        """Ranges of the metadata, most of which came with the first read."""
        missing = [one for one in ranges if one[0] < self._tail_start]
        read = iter(self._source.read_ranges(missing) if missing else [])
        return [
            next(read) if start < self._tail_start else self.tail.slice(start - self._tail_start, end - start)
            for start, end in ranges
        ]

    def run(self, steps: Steps[_T]) -> _T:
        """Read what a decoder asks for, until it has its result."""
        try:
            ranges = next(steps)
            while True:
                ranges = steps.send(self._source.read_ranges(ranges))
        except StopIteration as stop:
            return stop.value
