"""Rows of a file that are read together with those of others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.common.frozen import NamedTuple
from lance_core.file.read.column_read import ColumnRead
from lance_core.file.read.plan import LeavesField

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from lance_core.encoding.plans import Rows
    from lance_core.file.read.field_reader import Opened
    from lance_core.file.source import FileBytes


class Wanted(NamedTuple):
    """Rows of a file.

    Attributes:
        file: The file.
        opened: The fields that are wanted.
        rows: At least one, ascending, all of them there.
    """

    file: FileBytes
    opened: Opened
    rows: Rows

    @property
    def fields(self) -> Sequence[LeavesField]:
        """The fields that are read."""
        return [field for field in self.opened.fields if isinstance(field, LeavesField)]

    @property
    def files(self) -> list[FileBytes]:
        """The file; see `lance_core.file.read.alike_files.AlikeFiles`."""
        return [self.file]

    @property
    def contents(self) -> list[pa.Buffer | None]:
        """All bytes of the file, if it has been read."""
        return [self.file.content]

    def reads(self, *, numbers: Sequence[int], first: int, base_bits: int) -> list[list[ColumnRead]]:
        """Return the read of each leaf; see `lance_core.file.read.alike_files.AlikeFiles`."""
        leaves = [leaf for field in self.fields for leaf in field.leaves]
        rows, base = self.rows, first << base_bits
        return [
            [ColumnRead(column, cached, rows, number=number, file=first, base=base)]
            for number, (column, cached) in zip(numbers, leaves, strict=True)
        ]
