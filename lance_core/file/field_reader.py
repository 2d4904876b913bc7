"""What reading needs to know of a data file, whatever its version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from lance_core.encoding.plans import Plan, Rows, Steps
    from lance_core.file.outline import FileOutline
    from lance_core.format.schema import Schema


class FieldReader(Protocol):
    """One top-level field of a projection.

    Attributes:
        num_rows: Rows that can be read.
        widths: Decoded bytes of a row in each column, guessed.
    """

    @property
    def num_rows(self) -> int: ...  # noqa: D102 - see above

    @property
    def widths(self) -> list[float]: ...  # noqa: D102 - see above

    def plan(self, rows: Rows, /) -> Plan:
        """Read at least one row; arrays that hold the rows one after the other."""
        ...

    def fresh(self) -> FieldReader:
        """The same field; what it learns about pages is its own."""
        ...

    def forget(self, row: int, /) -> None:
        """Drop what is known of pages before a row."""
        ...


class Content(Protocol):
    """A data file below its footer."""

    def descriptor(self) -> tuple[Schema, int]:
        """Schema and number of rows."""
        ...

    def fields(self, projection: Schema, columns: Mapping[int, int], /) -> list[FieldReader]:
        """Open the fields of a projection; see `lance_core.file.reader.DataFileReader.scan`."""
        ...

    def plan(self, fields: Sequence[FieldReader], rows: Rows, /) -> Steps[list[list[pa.Array]]]:
        """Read at least one row of each of these fields; see `FieldReader.plan`."""
        ...

    def column_numbers(self) -> dict[int, int]:
        """For each field of the file that has a column, by field id, its number."""
        ...

    def outline(self) -> FileOutline:
        """What the file is made of."""
        ...
