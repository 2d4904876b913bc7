"""The numbers of all fragments of a manifest: ids, rows, deleted rows, and where their row ids are.

Fragments that one writer made look alike: the same fields, numbers of the same length. Where many such records follow
each other, they are a matrix, and a number is a few of its columns. All others are walked field by field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lance_core.common.frozen import frozen
from lance_core.format import wire
from lance_core.format.table.fragment import ExternalFile, lineage_sequences

if TYPE_CHECKING:
    from lance_core._proto import table_pb2
    from lance_core.format.table.fragment import Fragment

ID, PHYSICAL_ROWS, NUM_DELETED_ROWS, HAS_DELETIONS, LINEAGE = range(5)
"""Rows of what `scan` returns."""

NUM_ROWS_OF_SCAN = 5
HAS_ROW_IDS, HAS_EXTERNAL_SEQUENCE = 1, 2
"""Bits of the row `LINEAGE`: a sequence of row ids is there; a sequence of ids or versions is in another file.

The second means nothing without the first: rows without ids have no versions.
"""

_ID, _DELETION_FILE, _PHYSICAL_ROWS = 1, 3, 4  # numbers of the fields of DataFragment
_ROWS = {_ID: ID, _PHYSICAL_ROWS: PHYSICAL_ROWS}
_VARINT, _BYTES = 0, 2  # wire types
_NUM_DELETED_ROWS = 4  # of DeletionFile
_SEQUENCES = ("row_id_sequence", "last_updated_at_version_sequence", "created_at_version_sequence")  # oneofs, ids first
_LINEAGE_BITS = np.zeros(16, np.int64)  # by the number of a field of DataFragment; higher numbers count as the last
_LINEAGE_BITS[[5, 6, 12]] |= HAS_ROW_IDS
_LINEAGE_BITS[[6, 8, 10]] |= HAS_EXTERNAL_SEQUENCE

_WORD_SIZE = 8
_BLOCK = 1 << 13
_FEWEST_ALIKE = 1 << 10
"""For fewer records of one size, looking for their likeness costs more than it saves."""


def of_fragment(fragment: Fragment) -> tuple[int, int, int, int, int]:
    """Return the numbers of a decoded fragment, in the order of the rows of `scan`."""
    lineage = 0
    if fragment.row_id_sequence is not None:
        is_external = any(isinstance(sequence, ExternalFile) for sequence in lineage_sequences(fragment))
        lineage = HAS_ROW_IDS | (HAS_EXTERNAL_SEQUENCE if is_external else 0)
    is_deleted = int(fragment.deletion_file is not None)
    return fragment.id, fragment.physical_rows, fragment.num_deleted_rows, is_deleted, lineage


def of_message(pb: table_pb2.DataFragment) -> tuple[int, int, int, bool, int]:
    """Return the numbers of a parsed fragment, in the order of the rows of `scan`."""
    is_deleted, ids = pb.HasField("deletion_file"), pb.WhichOneof(_SEQUENCES[0])
    lineage = 0
    if ids is not None:
        is_external = any((pb.WhichOneof(name) or "").startswith("external_") for name in _SEQUENCES)
        lineage = HAS_ROW_IDS | (HAS_EXTERNAL_SEQUENCE if is_external else 0)
    return pb.id, pb.physical_rows, pb.deletion_file.num_deleted_rows if is_deleted else 0, is_deleted, lineage


def scan(data: wire.Bytes, bounds: wire.Ints) -> npt.NDArray[np.int64]:
    """Numbers of all fragments.

    Args:
        data: Encoded ``DataFragment`` messages, each behind its key and length.
        bounds: Where the first of these frames begins and each ends, shape (n + 1,).

    Returns:
        Shape (`NUM_ROWS_OF_SCAN`, n).

    Raises:
        CorruptDataError: A record is damaged.
    """
    numbers = np.zeros((NUM_ROWS_OF_SCAN, len(bounds) - 1), np.int64)
    rest = np.ones(len(bounds) - 1, bool)
    for first, behind in _runs(np.diff(bounds)):
        shape = _shape(data[bounds[first] : bounds[first + 1]].tobytes())
        if shape is None:
            continue
        for start in range(first, behind, _BLOCK):
            some = slice(start, min(start + _BLOCK, behind))
            frames = data[bounds[some.start] : bounds[some.stop]].reshape(some.stop - some.start, -1)
            rest[some] = ~_scan_alike(frames, shape, numbers[:, some])
    rows_left = np.flatnonzero(rest)
    for start in range(0, len(rows_left), _BLOCK):
        _walk(data, bounds, rows_left[start : start + _BLOCK], numbers)
    return numbers


def _runs(sizes: wire.Ints) -> list[tuple[int, int]]:
    """Return the runs of equal sizes."""
    edges = np.concatenate([[0], np.flatnonzero(sizes[1:] != sizes[:-1]) + 1, [len(sizes)]])
    long = np.flatnonzero(np.diff(edges) >= _FEWEST_ALIKE)
    return list(zip(edges[long].tolist(), edges[long + 1].tolist(), strict=True))


@frozen
class _Shape:
    """Layout that records must share to be read as columns, eight bytes at a time.

    Attributes:
        fixed_frames: Where eight bytes of the frame begin, which bits of them must be the same, and what they are.
        numbers: Row of the result, the word that its number is in, the bit at which it begins there, and its bytes.
        lineage: What the row `LINEAGE` says of all of them.
    """

    fixed_frames: list[tuple[int, int, int]]
    numbers: list[tuple[int, int, int, int]]
    lineage: int


def _shape(frame: bytes) -> _Shape | None:
    """Return the shape of a record; None if it has something in it that is not looked at in columns."""
    numbers: dict[int, tuple[int, int, int, int]] = {}
    lineage = 0
    position = _behind_varint(frame, 1)
    if position is None or len(frame) < _WORD_SIZE:
        return None
    fixed = [_word(frame, 0, (1 << 8 * position) - 1)]
    while position < len(frame):
        start, key = position, frame[position]
        position = _behind_varint(frame, start + 1)
        if position is None or key >= 0x80 or key & 7 not in {_VARINT, _BYTES} or key >> 3 == _DELETION_FILE:
            return None
        is_number, size = key & 7 == _VARINT, position - start
        lineage |= int(_LINEAGE_BITS[key >> 3])
        if position > fixed[-1][0] + _WORD_SIZE:
            fixed.append((min(start, len(frame) - _WORD_SIZE), 0, 0))
        first, mask, _ = fixed[-1]
        fixed[-1] = _word(frame, first, mask | _looked_at(size, is_number=is_number) << 8 * (start - first))
        if is_number and (row := _ROWS.get(key >> 3)) is not None:
            numbers[row] = (row, len(fixed) - 1, 8 * (start + 1 - first), size - 1)
        elif not is_number:
            position += _varint(frame[start + 1 : position])
    return _Shape(fixed, [*numbers.values()], lineage) if position == len(frame) else None


def _word(frame: bytes, first: int, mask: int) -> tuple[int, int, int]:
    return first, mask, int.from_bytes(frame[first : first + _WORD_SIZE], "little") & mask


def _looked_at(size: int, *, is_number: bool) -> int:
    """Bits of a key and the varint behind it that must be the same: of a number only how long it is."""
    return 0xFF | (0x80808080808080 & (1 << 8 * (size - 1)) - 1) << 8 if is_number else (1 << 8 * size) - 1


def _behind_varint(frame: bytes, position: int) -> int | None:
    """Return the end of a varint; None if it has none, or does not fit into eight bytes together with its key."""
    for end in range(position + 1, min(position + _WORD_SIZE, len(frame) + 1)):
        if frame[end - 1] < 0x80:
            return end
    return None


def _varint(data: bytes) -> int:
    return sum((byte & 0x7F) << 7 * position for position, byte in enumerate(data))


def _scan_alike(frames: wire.Bytes, shape: _Shape, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Write the numbers of the records of a shape.

    Args:
        frames: One frame in each row.
        shape: The shape of one of them.
        numbers: What to write to, shape (`NUM_ROWS_OF_SCAN`, n).

    Returns:
        Which records these are.
    """
    values = [frames[:, start : start + _WORD_SIZE].view("<u8")[:, 0].copy() for start, _, _ in shape.fixed_frames]
    alike = np.ones(len(frames), bool)
    for word, (_, mask, expected) in zip(values, shape.fixed_frames, strict=True):
        alike &= word & np.uint64(mask) == np.uint64(expected)
    for row, index, bit, size in shape.numbers:
        word = values[index] >> np.uint64(bit)
        value = np.bitwise_and(word, np.uint64(0x7F), out=numbers[row].view(np.uint64))
        for shift in range(1, size):
            word >>= np.uint64(1)
            value |= word & np.uint64(0x7F << 7 * shift)
    if shape.lineage:  # else there are zeros already
        numbers[LINEAGE] = shape.lineage
    if not alike.all():
        numbers[:, ~alike] = 0
    return alike


def _walk(data: wire.Bytes, bounds: wire.Ints, record_rows: wire.Ints, numbers: npt.NDArray[np.int64]) -> None:
    """Write the numbers of the fragments at some places, whatever they look like."""
    starts, ends = wire.contents(data, bounds[record_rows]), bounds[record_rows + 1]
    numbers_found = np.zeros((NUM_ROWS_OF_SCAN, len(record_rows)), np.int64)
    deletions = np.full(len(record_rows), -1, np.int64), np.zeros(len(record_rows), np.int64)
    for rows, keys, values, positions in wire.walk_fields(data, starts, ends):
        for key, row in _ROWS.items():
            hit = keys == key
            numbers_found[row, rows[hit]] = values[hit]
        hit = keys == _DELETION_FILE
        deletions[0][rows[hit]], deletions[1][rows[hit]] = positions[hit], positions[hit] + values[hit]
        numbers_found[LINEAGE, rows] |= _LINEAGE_BITS[np.minimum(keys, len(_LINEAGE_BITS) - 1)]
    numbers_found[HAS_DELETIONS] = deletions[0] >= 0
    if numbers_found[HAS_DELETIONS].any():
        counts = wire.scan_fields(data, *deletions, numbers=(_NUM_DELETED_ROWS,))
        numbers_found[NUM_DELETED_ROWS] = counts[_NUM_DELETED_ROWS][0]
    numbers[:, record_rows] = numbers_found
