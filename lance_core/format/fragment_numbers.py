"""The numbers of all fragments of a manifest: ids, rows, deleted rows.

Fragments that one writer made look alike: the same fields, numbers of the same length. Where many such records follow
each other, they are a matrix, and a number is a few of its columns. All others are walked field by field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lance_core.format import wire

if TYPE_CHECKING:
    from lance_core.format.fragment import Fragment

ID, PHYSICAL_ROWS, NUM_DELETED_ROWS, HAS_DELETIONS = range(4)
"""Rows of what `scan` returns."""

_ID, _DELETION_FILE, _PHYSICAL_ROWS = 1, 3, 4  # numbers of the fields of DataFragment
_VARINTS = ((_ID, ID), (_PHYSICAL_ROWS, PHYSICAL_ROWS))
_VARINT, _BYTES = 0, 2  # wire types
_NUM_DELETED_ROWS = 4  # of DeletionFile

_BLOCK = 1 << 13
_FEWEST_ALIKE = 1 << 10
"""For fewer records of one size, looking for their likeness costs more than it saves."""


def of_fragment(fragment: Fragment) -> tuple[int, int, int, int]:
    """The numbers of a decoded fragment, in the order of the rows of `scan`."""
    return fragment.id, fragment.physical_rows, fragment.num_deleted_rows, int(fragment.deletion_file is not None)


def scan(data: wire.Bytes, bounds: wire.Ints) -> npt.NDArray[np.int64]:
    """Numbers of all fragments.

    Args:
        data: Encoded ``DataFragment`` messages, each behind its key and length.
        bounds: Where the first of these frames begins and each ends, shape (n + 1,).

    Returns:
        Shape (4, n).

    Raises:
        CorruptDataError: A record is damaged.
    """
    numbers = np.zeros((4, len(bounds) - 1), np.int64)
    rest = np.ones(len(bounds) - 1, bool)
    for first, behind in _runs(np.diff(bounds)):
        shape = _shape(data[bounds[first] : bounds[first + 1]])
        if shape is None:
            continue
        for start in range(first, behind, _BLOCK):
            some = slice(start, min(start + _BLOCK, behind))
            frames = data[bounds[some.start] : bounds[some.stop]].reshape(some.stop - some.start, -1)
            rest[some] = ~_scan_alike(frames, shape, numbers[:, some])
    places = np.flatnonzero(rest)
    for start in range(0, len(places), _BLOCK):
        _walk(data, bounds, places[start : start + _BLOCK], numbers)
    return numbers


def _runs(sizes: wire.Ints) -> list[tuple[int, int]]:
    """Where many sizes in a row are the same."""
    edges = np.concatenate([[0], np.flatnonzero(sizes[1:] != sizes[:-1]) + 1, [len(sizes)]])
    long = np.flatnonzero(np.diff(edges) >= _FEWEST_ALIKE)
    return list(zip(edges[long].tolist(), edges[long + 1].tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class _Shape:
    """What records must have in common to be read as columns.

    Attributes:
        columns: Bytes of the frame that keys, lengths and numbers take, which bits of them must be the same, and what
            they are.
        numbers: Row of the result, and the bytes with its number.
    """

    columns: list[tuple[int, int, int]]
    numbers: list[tuple[int, range]]


def _shape(frame: wire.Bytes) -> _Shape | None:
    """The shape of a record; None if it has something in it that is not looked at in columns."""
    position = wire.header_size(frame, 0)
    columns: list[tuple[int, int]] = []
    values: dict[int, range] = {}
    for _, numbers, lengths, behind in wire.walk_fields(frame, np.array([position]), np.array([len(frame)])):
        key, number, after = int(frame[position]), int(numbers[0]), int(behind[0])
        if key >= 0x80 or key & 7 not in {_VARINT, _BYTES} or number == _DELETION_FILE:
            return None
        is_number = key & 7 == _VARINT
        mask = 0x80 if is_number else 0xFF  # of a number, only how long it is
        columns += [(position, 0xFF), *((column, mask) for column in range(position + 1, after))]
        if is_number:
            values[number] = range(position + 1, after)
        position = after if is_number else after + int(lengths[0])
    return _Shape(
        [(column, mask, int(frame[column]) & mask) for column, mask in columns],
        [(row, values[number]) for number, row in _VARINTS if number in values],
    )


def _scan_alike(frames: wire.Bytes, shape: _Shape, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Write the numbers of the records of a shape.

    Args:
        frames: One frame in each row.
        shape: The shape of one of them.
        numbers: What to write to, shape (4, n).

    Returns:
        Which records these are.
    """
    alike = np.ones(len(frames), bool)
    for column, mask, expected in shape.columns:
        alike &= frames[:, column] & mask == expected
    for row, columns in shape.numbers:
        for place, column in enumerate(columns):
            numbers[row] |= (frames[:, column] & 0x7F).astype(np.int64) << 7 * place
    if not alike.all():
        numbers[:, ~alike] = 0
    return alike


def _walk(data: wire.Bytes, bounds: wire.Ints, places: wire.Ints, numbers: npt.NDArray[np.int64]) -> None:
    """Write the numbers of the fragments at some places, whatever they look like."""
    starts, ends = wire.contents(data, bounds[places]), bounds[places + 1]
    found = wire.scan_fields(data, starts, ends, numbers=(_ID, _DELETION_FILE, _PHYSICAL_ROWS))
    numbers[ID, places], numbers[PHYSICAL_ROWS, places] = found[_ID][0], found[_PHYSICAL_ROWS][0]
    sizes, positions = found[_DELETION_FILE]
    is_there = positions >= 0
    if is_there.any():
        deletions = wire.scan_fields(data, positions, positions + sizes, numbers=(_NUM_DELETED_ROWS,))
        numbers[NUM_DELETED_ROWS, places] = deletions[_NUM_DELETED_ROWS][0]
        numbers[HAS_DELETIONS, places] = is_there
