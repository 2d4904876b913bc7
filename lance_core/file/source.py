"""The bytes of one data file, the end of which is read when it is opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from lance_core.encoding.plans import Found, Spots, found_in, spot_ranges
from lance_core.errors import CorruptDataError
from lance_core.store.base import MappedReader

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        self._mapped = source if isinstance(source, MappedReader) else None

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
            wanted = next(steps)
            while True:
                wanted = steps.send(self._answer(wanted))
        except StopIteration as stop:
            return stop.value

    def _answer(self, wanted: Sequence[tuple[int, int] | Spots]) -> list[Any]:
        """Buffers for ranges, memory for spots; all in one read."""
        if self._mapped is not None:
            spots = [one for one in wanted if isinstance(one, Spots)]
            ranges = [one for one in wanted if not isinstance(one, Spots)]
            read = iter(self._source.read_ranges(ranges) if ranges else [])
            found = self._find(self._mapped, spots) if spots else None
            return [found if isinstance(one, Spots) else next(read) for one in wanted]
        lists = [spot_ranges(one) if isinstance(one, Spots) else [one] for one in wanted]
        read = iter(self._source.read_ranges([one for ranges in lists for one in ranges]))
        parts = [[next(read) for _ in ranges] for ranges in lists]
        return [
            found_in(ranges, buffers) if isinstance(one, Spots) else buffers[0]
            for one, ranges, buffers in zip(wanted, lists, parts, strict=True)
        ]

    def _find(self, source: MappedReader, spots: Sequence[Spots]) -> Found:
        starts = spots[0].starts if len(spots) == 1 else np.concatenate([one.starts for one in spots])
        ends = spots[0].ends if len(spots) == 1 else np.concatenate([one.ends for one in spots])
        if len(starts) and (starts.min() < 0 or ends.max() > self.size or (ends < starts).any()):
            raise CorruptDataError(f"a page reaches beyond the end of the file of {self.size} bytes")
        source.announce(starts, ends)
        return Found(np.frombuffer(source.mapped, np.uint8))
