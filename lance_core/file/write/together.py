"""Pages of columns that are alike, encoded at one go."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import mutable
from lance_core.encoding.arrow_values import spread_over_nulls
from lance_core.encoding.layouts.small_page import (
    MAX_VALUES,
    OFFSETS,
    SMALL_VALUES,
    encode_flags,
    encode_strings,
    encode_words,
    may_be_encoded,
)
from lance_core.encoding.leaves import shred
from lance_core.encoding.repdef import NO_LEVELS
from lance_core.errors import InvalidInputError
from lance_core.file.write.field_writer import Leaf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from lance_core.encoding.layouts.page import EncodedPage
    from lance_core.encoding.options import PageOptions
    from lance_core.file.write.field_writer import Leaves
    from lance_core.file.write.v2_0 import FieldWriterV20
    from lance_core.file.write.v2_1 import FieldWriterV21

_BYTES_AT_ONCE = 1 << 23
"""Rows of neighbouring columns whose pages are in memory together."""

FIXED_WIDTH: dict[int, np.dtype[Any]] = {
    kind.id: np.dtype(f"<u{kind.bit_width // 8}")
    for kind in (
        *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
        *(pa.float16(), pa.float32(), pa.float64()),
        *(pa.date32(), pa.date64(), pa.time32("s"), pa.time64("us"), pa.timestamp("s"), pa.duration("s")),
    )
}
"""Words that values consist of, by the number of the Arrow type."""

_BOOL = pa.bool_().id

_Encode: TypeAlias = "Callable[..., list[EncodedPage | None]]"


@mutable
class Collected:
    """Rows of one top-level field that wait for their page.

    Attributes:
        writer: Encodes them.
        arrays: The rows.
        num_bytes: Bytes of the rows as Arrow data.
        num_rows: Number of the rows.
        num_owned: Leading arrays that share no memory with other columns.
        owned_bytes: Bytes of their rows.
    """

    writer: FieldWriterV20 | FieldWriterV21
    arrays: list[pa.Array] = field(default_factory=list)
    num_bytes: int = 0
    num_rows: int = 0
    num_owned: int = 0
    owned_bytes: int = 0

    def as_one(self) -> pa.Array:
        """Return the rows as one array."""
        self.arrays = [joined(self.arrays)]
        return self.arrays[0]

    def unshare(self) -> None:
        """Copy rows that keep memory alive that other columns need no longer."""
        shared = self.arrays[self.num_owned :]
        if any(_shares_memory(array) for array in shared):
            self.arrays[self.num_owned :] = [joined(shared) if len(shared) > 1 else pa.concat_arrays(shared)]
        self.num_owned, self.owned_bytes = len(self.arrays), self.num_bytes


def num_bytes_of(array: pa.Array) -> int:
    """As ``array.nbytes``, which takes longer than all else that is done to a small array of words as it comes in."""
    kind = FIXED_WIDTH.get(array.type.id)
    return array.nbytes if kind is None or array.buffers()[0] is not None else kind.itemsize * len(array)


def encode_together(
    columns: Iterable[Collected], options: PageOptions
) -> Iterator[tuple[list[Collected], list[Leaves]]]:
    """Encode what columns have collected.

    Args:
        columns: Fields, with the rows that wait for their page.
        options: How to write leaves of which nothing but the type is said.

    Yields:
        Neighbouring columns, and leaves of each, as far as they were looked at.
    """
    some: list[Collected] = []
    num_bytes = 0
    for column in columns:
        some.append(column)
        num_bytes += column.num_bytes
        if num_bytes >= _BYTES_AT_ONCE:
            yield some, encode_leaves(some, options)
            some, num_bytes = [], 0
    yield some, encode_leaves(some, options)


def encode_leaves(columns: Sequence[Collected], options: PageOptions) -> list[Leaves]:
    """Encode what columns have collected at one go; arguments as in `encode_together`.

    Returns:
        For each column its leaves, as far as they were looked at.
    """
    groups: dict[tuple[_Encode, int, int], list[tuple[Any, Leaf]]] = {}
    leaves_of_columns: list[Leaves] = [{} for _ in columns]
    for leaves, column in zip(leaves_of_columns, columns, strict=True):
        if not column.arrays or column.num_rows > MAX_VALUES:
            continue
        array = column.arrays[0] if len(column.arrays) == 1 else column.as_one()
        writer = column.writer
        for number in writer.free_leaves:
            leaves[number] = leaf = Leaf(*shred(writer.paths[number], array))
            grouped = _values_of(leaf)
            if grouped is not None:
                groups.setdefault(grouped[:3], []).append((grouped[3], leaf))
    for (encode, _, _), members in groups.items():
        values, encoded = zip(*members, strict=True)
        for leaf, page in zip(encoded, encode(values, options, [leaf.levels for leaf in encoded]), strict=True):
            leaf.page = page
    return leaves_of_columns


def _values_of(leaf: Leaf) -> tuple[_Encode, int, int, Any] | None:
    """Return what encodes a leaf together with others, their width and number of values, and the leaf's values."""
    array, levels = leaf.array, leaf.levels
    count, identity = len(array), array.type.id
    if not count or (levels is not NO_LEVELS and not may_be_encoded(levels, count)):
        return None
    kind = FIXED_WIDTH.get(identity)
    if kind is not None:
        values = np.frombuffer(array.buffers()[1], kind, count, array.offset * kind.itemsize)
        return encode_words, kind.itemsize, count, spread_over_nulls(values, array) if array.null_count else values
    if identity == _BOOL:
        return encode_flags, 1, count, array
    if identity not in OFFSETS or count > SMALL_VALUES:
        return None
    if array.null_count:
        array = pa.Array.from_buffers(array.type, count, [None, *array.buffers()[1:]], 0, array.offset)
    return encode_strings, identity, count, array


def _shares_memory(array: pa.Array) -> bool:
    """Return whether an array keeps more than twice its own bytes alive, as a column of a batch from a pipe does."""
    largest = 0
    for part in array.buffers():
        buffer = part
        while buffer is not None:
            largest = max(largest, buffer.size)
            buffer = buffer.parent
    return largest > 2 * array.nbytes


def joined(arrays: list[pa.Array]) -> pa.Array:
    """Arrays as one.

    Raises:
        InvalidInputError: Their dictionaries have too many values together; pylance 14.0.2 could not read them.
    """
    if len(arrays) == 1:
        return arrays[0]
    try:
        return pa.concat_arrays(arrays)
    except pa.ArrowInvalid as error:
        raise InvalidInputError(f"batches of {arrays[0].type} do not fit together: {error}") from error
