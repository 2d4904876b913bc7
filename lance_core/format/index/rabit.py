"""RaBitQ codes of a vector index (``IVF_RQ``): the sign of each rotated item, and more bits of it.

The residual (vector - centroid; with cosine of vectors of length one) is rotated, so that all items are about equally
large. ``num_bits`` from 1 to 9 are kept of each of its ``code_dim`` items: its sign, and an unsigned number of
``num_bits - 1`` bits, the extra bits. Columns of ``auxiliary.idx`` beside ``_rowid``:

    _rabit_codes         a bit for each item, 1 if it is not negative, the first one lowest. If ``packed``, the rows of
                         a partition are stored in blocks of 32, and in a block byte after byte: 16 bytes with the
                         lower halves of this byte of all rows, 16 with the upper ones. In each, byte j is of row
                         ``ORDER[j]`` (lower half) and of 16 rows on (upper half). The last rows, fewer than 32, are
                         stored byte after byte of all of them
    __blocked_ex_codes   the extra bits, in blocks of 64 items; the last one is filled up with zeros
    __add_factors, __scale_factors, __error_factors        float32, for estimates by the sign. The error, times the
                         distance of a query to the centroid, is 1.9 standard deviations of the difference to the
                         estimate by all bits
    __add_factors_ex, __scale_factors_ex                   float32, for those by all bits

A block of extra bits, by their number; a run is 16 items:

    1      a bit for each item, the first one lowest
    2      16 bytes, two bits of an item of each run, the first run lowest
    4      8 bytes for each run: its first 8 items in the lower halves, the others in the upper ones
    5      32 bytes, the lower four bits: of the first and second run, then of the third and fourth
    6      48 bytes, of the first three runs; the upper two bits of a byte hold two bits of an item of the fourth run
    8      a byte for each item
    3, 7   those of one bit less, then 8 bytes with the top bits. So has 5. In byte j they are of the items j and j + 8
           of the first run, of the second one, and so on

``storage_metadata`` has ``num_bits``, ``code_dim``, ``packed``, ``query_estimator`` and the rotation:
``rotation_type`` "fast" with the bits of ``fast_rotation_signs``, or "matrix" with the number of a global buffer in
``rotate_mat_position``, which holds a ``Tensor``.
Source: what pylance 14.0.2 writes, and which distances it tells for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Bytes: TypeAlias = npt.NDArray[np.uint8]

SIGN_COLUMN, EXTRA_COLUMN = "_rabit_codes", "__blocked_ex_codes"
SIGN_FACTORS, EXTRA_FACTORS = ("__add_factors", "__scale_factors"), ("__add_factors_ex", "__scale_factors_ex")
ORDER = np.array([0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15])
BLOCK_ROWS = 32
FAST_ROUNDS = 4
_BLOCK_ITEMS, _RUN_ITEMS, _MOST_BITS = 64, 16, 9
_ADVICE = "build the index again with pylance 14, or compare all vectors with use_index=False"


@frozen(kw_only=True)
class RabitLayout:
    """Layout of RaBitQ codes.

    Attributes:
        num_bits: Bits of an item, with the sign.
        size: Dimensions, also of a rotated vector.
        is_packed: Signs are stored in blocks of rows.
        flips: Shape (rounds, size), True where a round of the fast rotation turns the sign; None with a matrix.
        matrix_buffer: Number of the global buffer with the matrix; None with the fast rotation.
    """

    num_bits: int
    size: int
    is_packed: bool
    flips: npt.NDArray[np.bool_] | None
    matrix_buffer: int | None

    @property
    def num_extra(self) -> int:
        """Extra bits of an item."""
        return self.num_bits - 1

    @property
    def columns(self) -> pa.DataType:
        """Columns that estimates need, as a struct."""
        signs = pa.field(SIGN_COLUMN, pa.list_(pa.uint8(), self.size // 8))
        if not self.num_extra:
            return pa.struct([signs, *(pa.field(name, pa.float32()) for name in SIGN_FACTORS)])
        blocks = -(-self.size // _BLOCK_ITEMS)
        extra = pa.field(EXTRA_COLUMN, pa.list_(pa.uint8(), blocks * _BLOCK_ITEMS // 8 * self.num_extra))
        return pa.struct([signs, extra, *(pa.field(name, pa.float32()) for name in EXTRA_FACTORS)])


def decode_rabit_layout(details: Mapping[str, Any], names: Sequence[str], size: int) -> RabitLayout:
    """Decode the metadata of the codes.

    Args:
        details: ``storage_metadata``.
        names: Columns of the file.
        size: Dimensions of the vectors.

    Raises:
        UnsupportedError: An older version of pylance wrote them in another layout.
        ValueError: They contradict each other. So do KeyError and TypeError.
    """
    num_bits, width = int(details["num_bits"]), int(details["code_dim"])
    if details.get("query_estimator") != "raw_query":
        raise UnsupportedError(f"the IVF_RQ index was written for another estimate of distances; {_ADVICE}")
    if num_bits > 1 and EXTRA_COLUMN not in names:
        raise UnsupportedError(f"the IVF_RQ index stores its extra bits in another order than pylance 14; {_ADVICE}")
    if not 1 <= num_bits <= _MOST_BITS or width != size or size % 8:
        raise ValueError(f"{num_bits} bits of {width} items for vectors of {size}")
    flips = matrix_buffer = None
    rotation = details.get("rotation_type", "matrix")
    if rotation == "fast":
        signs = np.frombuffer(bytes(details["fast_rotation_signs"]), np.uint8).reshape(FAST_ROUNDS, size // 8)
        flips = np.unpackbits(signs, axis=1, bitorder="little").astype(np.bool_)
    elif rotation == "matrix":
        matrix_buffer = int(details["rotate_mat_position"])
    else:
        raise UnsupportedError(f"the IVF_RQ index has a rotation {rotation!r} that lance_core does not know; {_ADVICE}")
    return RabitLayout(
        num_bits=num_bits, size=size, is_packed=bool(details["packed"]), flips=flips, matrix_buffer=matrix_buffer
    )


def decode_signs(stored: Bytes, *, is_packed: bool) -> Bytes:
    """Return the bytes of signs of a partition, shape (bytes, rows), from those of its column, shape (rows, bytes)."""
    num_rows, num_bytes = stored.shape
    if not is_packed:
        return np.ascontiguousarray(stored.T)
    flat, whole = stored.reshape(-1), num_rows // BLOCK_ROWS * BLOCK_ROWS
    halves = flat[: whole * num_bytes].reshape(-1, num_bytes, 2, BLOCK_ROWS // 2)
    signs = np.empty((num_bytes, num_rows), np.uint8)
    lower, upper = halves[:, :, 0].transpose(1, 0, 2), halves[:, :, 1].transpose(1, 0, 2)
    blocks = np.empty((num_bytes, whole // BLOCK_ROWS, BLOCK_ROWS), np.uint8)
    blocks[:, :, ORDER] = lower & 15 | upper << 4
    blocks[:, :, ORDER + BLOCK_ROWS // 2] = lower >> 4 | upper & 0xF0
    signs[:, :whole] = blocks.reshape(num_bytes, whole)
    signs[:, whole:] = flat[whole * num_bytes :].reshape(num_bytes, -1)
    return signs


def decode_extra(stored: Bytes, num_bits: int, size: int) -> Bytes:
    """Return the extra bits of each item, shape (rows, size), from those of the column, shape (rows, bytes)."""
    num_rows = len(stored)
    blocks = stored.reshape(num_rows, -1, _BLOCK_ITEMS // 8 * num_bits)
    values: npt.NDArray[Any]
    if num_bits == 1:
        values = np.unpackbits(stored, axis=1, bitorder="little")
    elif num_bits == 8:
        values = stored
    else:
        values = _runs(blocks, num_bits)
        if num_bits % 2:
            top = np.unpackbits(blocks[:, :, -8:], axis=2, bitorder="little").reshape(*blocks.shape[:2], 8, 4, 2)
            values |= top.transpose(0, 1, 3, 4, 2).reshape(values.shape) << (num_bits - 1)
    return np.ascontiguousarray(values.reshape(num_rows, -1)[:, :size])


def _runs(blocks: Bytes, num_bits: int) -> npt.NDArray[Any]:
    """Return the lower bits of each item, shape (rows, blocks, runs, items of a run)."""
    run = _RUN_ITEMS
    if num_bits == 4:
        parts = blocks.reshape(*blocks.shape[:2], 4, 1, run // 2)
        return np.concatenate([parts & 15, parts >> 4], axis=3).reshape(*blocks.shape[:2], 4, run)
    if num_bits < 4:
        return np.stack([blocks[:, :, :run] >> shift & 3 for shift in (0, 2, 4, 6)], axis=2)
    if num_bits == 5:
        pairs = blocks[:, :, : 2 * run].reshape(*blocks.shape[:2], 2, run)
        return np.stack([pairs & 15, pairs >> 4], axis=3).reshape(*blocks.shape[:2], 4, run)
    first = blocks[:, :, : 3 * run].reshape(*blocks.shape[:2], 3, run)
    last = first[:, :, 0] >> 6 | first[:, :, 1] >> 6 << 2 | first[:, :, 2] >> 6 << 4
    return np.concatenate([first & 63, last[:, :, None]], axis=2)
