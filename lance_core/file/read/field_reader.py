"""Fields of data files as readers see them, whatever the version of the file."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from lance_core.common.frozen import NamedTuple
from lance_core.encoding.arrow_values import needs_settling, settled
from lance_core.encoding.kernels import check_places, take_inside

if TYPE_CHECKING:
    from lance_core.encoding.plans import Plan, ReadPlan, Rows
    from lance_core.encoding.values import Int64s
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


def selected_rows(coroutine: ReadPlan[list[list[pa.Array]]], selected: Int64s) -> ReadPlan[list[list[pa.Array]]]:
    """Read rows of fields, and pick some of them, counted from the first."""
    return [pick_joined(arrays, selected) for arrays in (yield from coroutine)]


def pick_joined(arrays: list[pa.Array], selected: Int64s | None) -> list[pa.Array]:
    """Return some of the consecutive rows of a field as one array."""
    array = joined(arrays)
    if selected is None:
        return [array]
    check_places(selected, len(array))
    return [take_inside(array, selected)]


def joined(arrays: list[pa.Array]) -> pa.Array:
    """Return consecutive rows of a field as one array."""
    return settled(arrays[0]) if len(arrays) == 1 else pa.concat_arrays(arrays)


def are_settled(schema: pa.Schema) -> bool:
    """Return whether no array of these fields has to be copied before others work with it."""
    return not any(needs_settling(kind) for kind in schema.types)


def num_bytes_of(arrays: list[pa.Array], num_rows: int) -> int:
    """Return the bytes of consecutive rows of a field; to ask an array for them takes as long as to decode some."""
    kind = arrays[0].type
    return num_rows * kind.bit_width // 8 if pa.types.is_primitive(kind) else sum([array.nbytes for array in arrays])


def cuts_of(arrays: list[list[pa.Array]], num_rows: int) -> list[int]:
    """Return the starts of consecutive arrays of any field, and the end of all."""
    ends = {end for arrays_of_field in arrays for end in accumulate(map(len, arrays_of_field)) if 0 < end < num_rows}
    return [0, *sorted(ends), num_rows]


def sliced(arrays: list[pa.Array], start: int, length: int) -> pa.Array:
    """Return some rows out of consecutive arrays; a copy only if they come from more than one."""
    if len(arrays) == 1:
        return settled(arrays[0] if len(arrays[0]) == length else arrays[0].slice(start, length))
    chunks = pa.chunked_array(arrays).slice(start, length).chunks
    return settled(chunks[0]) if len(chunks) == 1 else pa.concat_arrays(chunks)
