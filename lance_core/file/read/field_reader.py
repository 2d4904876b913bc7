"""What reading needs to know of a data file, whatever its version."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import pyarrow as pa

from lance_core.encoding.arrow_values import settled
from lance_core.encoding.kernels import check_places, take_inside

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lance_core.encoding.coded import Coded
    from lance_core.encoding.plans import Plan, Rows, Steps
    from lance_core.encoding.values import Int64s
    from lance_core.file.outline import FileOutline
    from lance_core.file.read.plan import Column
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


@runtime_checkable
class PagedField(Protocol):
    """A field whose columns consist of pages that are decoded page by page."""

    @property
    def columns(self) -> list[Column]:
        """Its leaves."""
        ...


@runtime_checkable
class JoinedField(PagedField, Protocol):
    """A field that is put together from what its leaves come to."""

    def join(self, leaves: list[list[pa.Array]], /) -> list[pa.Array]:
        """The field, from the arrays of its leaves."""
        ...


class Opened(NamedTuple):
    """The fields of a projection in one file.

    Attributes:
        projection: What was asked for.
        columns: And where it is.
        schema: Of the answer.
        fields: The fields.
        num_rows: Rows that all of them have.
        is_settled: No array has to be copied before others work with it.
    """

    projection: Schema
    columns: dict[int, int]
    schema: pa.Schema
    fields: list[FieldReader]
    num_rows: int
    is_settled: bool


class Content(Protocol):
    """A data file below its footer."""

    def descriptor(self) -> tuple[Schema, int]:
        """Schema and number of rows."""
        ...

    def fields(self, projection: Schema, columns: Mapping[int, int], /) -> list[FieldReader]:
        """Open the fields of a projection; see `lance_core.file.read.reader.DataFileReader.scan`."""
        ...

    def plan(self, fields: Sequence[FieldReader], rows: Rows, /) -> Steps[list[list[pa.Array]]]:
        """Read at least one row of each of these fields; see `FieldReader.plan`."""
        ...

    def plan_some(self, fields: Sequence[FieldReader], rows: range, kept: Int64s, /) -> Steps[list[list[pa.Array]]]:
        """Read consecutive rows, and leave out most or some of them.

        Args:
            fields: The fields.
            rows: What is read.
            kept: Shape (n,), at least one: which of them are wanted, counted from the first, ascending.
        """
        ...

    def plan_coded(self, field: FieldReader, rows: range, /) -> Steps[list[pa.Array | Coded]]:
        """Read consecutive rows of one field, at least one; places in dictionaries may stand for values."""
        ...

    def column_numbers(self) -> dict[int, int]:
        """For each field of the file that has a column, by field id, its number."""
        ...

    def outline(self) -> FileOutline:
        """What the file is made of."""
        ...


def kept_rows(steps: Steps[list[list[pa.Array]]], kept: Int64s) -> Steps[list[list[pa.Array]]]:
    """Some rows of each field, counted from the first one that was read."""
    return [[_kept(joined(arrays), kept)] for arrays in (yield from steps)]


def _kept(array: pa.Array, kept: Int64s) -> pa.Array:
    check_places(kept, len(array))
    return take_inside(array, kept)


def arrays_of(field: FieldReader, rows: Rows) -> Steps[list[pa.Array | Coded]]:
    """The rows of a field as arrays."""
    arrays: list[pa.Array | Coded] = []
    arrays += yield from field.plan(rows)
    return arrays


def joined(arrays: list[pa.Array]) -> pa.Array:
    """Consecutive rows of a field as one array."""
    return settled(arrays[0]) if len(arrays) == 1 else pa.concat_arrays(arrays)
