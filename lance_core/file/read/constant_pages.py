"""The vector kernel for constant pages: those of one column in neighbouring files, which hold a value each; pure."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from lance_core.common.frozen import NamedTuple, mutable
from lance_core.encoding.layouts import constant
from lance_core.encoding.layouts.page import Decoded, to_arrow
from lance_core.encoding.repdef import Levels
from lance_core.file.read.column_read import NO_RANGES
from lance_core.format.file.page_layout import ConstantLayout

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lance_core.encoding.plans import ByteRanges, RangeBuffers
    from lance_core.file.read.column import Column
    from lance_core.file.read.column_read import ColumnRead
    from lance_core.format.file.page_layout import Layers


class ConstantRead(NamedTuple):
    """A column of which one constant page is read.

    Attributes:
        read: The column.
        value: The value of all its rows, from `constant.value_of`.
        layers: Layers of the page.
    """

    read: ColumnRead
    value: bytes
    layers: Layers


def constant_read(read: ColumnRead) -> ConstantRead | None:
    """Return a column if what is read of it is one constant page without levels and nulls; None for another."""
    column, slices = read.column, read.slices
    if len(slices) != 1 or not column.is_simple or not isinstance(slices[0].layout, ConstantLayout):
        return None
    layout = slices[0].layout
    value = constant.value_of(layout, (read.buffers or {}).get(slices[0].number, ()), column.kind)
    return None if value is None else ConstantRead(read, value, layout.layers)


@mutable
class ConstantJob:
    """Constant pages of one column in neighbouring files; the first file takes the rows of all."""

    pages: list[ConstantRead] = field(default_factory=list[ConstantRead])

    @property
    def ranges(self) -> ByteRanges:
        """No byte ranges: all that is needed has been read."""
        return NO_RANGES

    def takes(self, page: ConstantRead) -> bool:
        """Return whether a page is that of the same column in the next file."""
        last = self.pages[-1]
        return (
            page.read.number == last.read.number and page.read.file == last.read.file + 1 and page.layers == last.layers
        )

    def decode(self, _buffers: RangeBuffers) -> None:
        """Decode the rows."""
        first = self.pages[0].read
        values, counts = [page.value for page in self.pages], [len(page.read.rows) for page in self.pages]
        first.arrays.append(constant_array(first.column, self.pages[0].layers, values, counts))


def constant_array(column: Column, layers: Layers, values: Sequence[bytes], counts: Sequence[int]) -> pa.Array:
    """Decode constants of one column in several files.

    Args:
        column: The column in one of them.
        layers: Layers of the pages.
        values: Shape (n,): the value of each page, from `constant.value_of`.
        counts: Shape (n,): how many rows of it are wanted.
    """
    repeated = constant.repeat_each(values, counts, column.kind)
    decoded = Decoded(levels=Levels(layers, None, None), values=repeated, num_slots=len(repeated))
    return to_arrow(decoded, column.path, column.kind, len(repeated))


def constant_jobs(pages: list[ConstantRead]) -> list[ConstantJob]:
    """Put the pages of neighbouring files together."""
    jobs: list[ConstantJob] = []
    for page in pages:
        if not jobs or not jobs[-1].takes(page):
            jobs.append(ConstantJob())
        jobs[-1].pages.append(page)
    return jobs
