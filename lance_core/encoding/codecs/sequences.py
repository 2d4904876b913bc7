"""Integers in blocks of file version 2.3: constants, ranges, differences, dictionaries, and runs of any of them.

| encoding   | block                                                                                      |
|------------|--------------------------------------------------------------------------------------------|
| Constant   | nothing                                                                                    |
| Range      | nothing                                                                                    |
| Delta      | the block of the differences                                                               |
| Dictionary | u64 bytes of the indices, u64 bytes of the items, indices, items; nothing if neither has any |
| BlockRle   | u64 bytes of the run values, run values, run lengths; nothing if neither has any           |
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.encoding.codecs.flat import WORD_BITS, word_dtype
from lance_core.errors import CorruptDataError
from lance_core.format.encodings import BlockRle, Constant, Delta, Dictionary, Flat, Range
from lance_core.limits import check_limit

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.values import Bytes
    from lance_core.format.encodings import Encoding


def has_bytes(encoding: Encoding) -> bool:
    """True if a block of this encoding has a buffer."""
    match encoding:
        case Constant() | Range():
            return False
        case Delta():
            return has_bytes(encoding.deltas)
        case Dictionary():
            return has_bytes(encoding.indices) or has_bytes(encoding.items)
        case BlockRle():
            return has_bytes(encoding.values) or has_bytes(encoding.lengths)
        case _:
            return True


def _check_count(count: int) -> None:
    """Refuse more integers than memory may be taken for: no byte stands for them."""
    check_limit("max_decompressed_bytes", 8 * count, "bytes of integers")


def repeat(value: bytes | None, count: int) -> npt.NDArray[Any]:
    """The little-endian value ``count`` times; there need not be one for none."""
    _check_count(count)
    if value is None:
        if count:
            raise CorruptDataError(f"{count} integers that are null")
        return np.empty(0, np.uint64)
    if len(value) * 8 not in WORD_BITS:
        raise CorruptDataError(f"a constant integer of {len(value)} bytes")
    return np.full(count, int.from_bytes(value, "little"), word_dtype(len(value) * 8))


def spread(encoding: Range, count: int) -> npt.NDArray[Any]:
    """``count`` integers at equal distances."""
    _check_count(count)
    if count and encoding.start + encoding.delta * (count - 1) >= 1 << encoding.bits:
        raise CorruptDataError(f"a range of {count} integers does not fit into {encoding.bits} bits")
    steps = np.arange(count, dtype=np.uint64) * np.uint64(encoding.delta) + np.uint64(encoding.start)
    return steps.astype(word_dtype(encoding.bits))


def add_up(encoding: Delta, deltas: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """The integers that these differences are between."""
    if count == 0:
        return np.empty(0, word_dtype(encoding.bits))
    if encoding.start >= 1 << encoding.bits or (len(deltas) and int(deltas.max()) >= 1 << encoding.bits):
        raise CorruptDataError(f"an integer or a difference does not fit into {encoding.bits} bits")
    out = np.empty(count, word_dtype(encoding.bits))
    out[0] = encoding.start
    out[1:] = deltas
    return np.cumsum(out, dtype=out.dtype)


def split_dictionary(encoding: Dictionary, data: Bytes) -> tuple[Bytes, Bytes]:
    """Blocks of the indices and of the items."""
    if not has_bytes(encoding):
        return data[:0], data[:0]
    head = 16
    sizes = _words(data, 2)
    if head + sum(sizes) > len(data):
        raise CorruptDataError("a dictionary of integers reaches beyond the end of its block")
    return data[head : head + sizes[0]], data[head + sizes[0] : head + sum(sizes)]


def look_up(items: npt.NDArray[Any], indices: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The items at these places."""
    if len(indices) and int(indices.max()) >= len(items):
        raise CorruptDataError(f"an index points beyond {len(items)} integers")
    return items[indices]


def split_runs(encoding: BlockRle, data: Bytes) -> tuple[Bytes, Bytes]:
    """Blocks of the run values and of the run lengths."""
    if not has_bytes(encoding):
        return data[:0], data[:0]
    (size,) = _words(data, 1)
    if 8 + size > len(data):
        raise CorruptDataError("run values reach beyond the end of their block")
    return data[8 : 8 + size], data[8 + size :]


def num_runs(encoding: BlockRle, values: Bytes, lengths: Bytes, count: int) -> int | None:
    """Return the number of runs as far as sizes and run lengths without bytes tell it, else None.

    Args:
        encoding: How the runs are encoded.
        values: Block of the run values.
        lengths: Block of the run lengths.
        count: How many integers the runs stand for.

    Raises:
        CorruptDataError: Run lengths without bytes do not add up to the count.
    """
    for one, block in ((encoding.values, values), (encoding.lengths, lengths)):
        if isinstance(one, Flat) and one.bits in WORD_BITS:
            return len(block) // (one.bits // 8)
    match encoding.lengths:
        case Constant(bytes() as value):
            start, step = int.from_bytes(value, "little"), 0
        case Range(_, start, step):
            pass
        case _:
            return None
    found = bisect_left(range(count), count, key=lambda runs: _total(start, step, runs))
    if _total(start, step, found) != count:
        raise CorruptDataError(f"run lengths of a block do not add up to {count} integers")
    return found


def _total(start: int, step: int, count: int) -> int:
    """Return the sum of ``count`` integers at equal distances."""
    return count * start + step * (count * (count - 1) // 2)


def expand(values: npt.NDArray[Any], lengths: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    """Each value as often as its run is long."""
    if (len(lengths) and int(lengths.max()) > count) or int(lengths.sum(dtype=np.uint64)) != count:
        raise CorruptDataError("run lengths of a block do not add up to its number of integers")
    return np.repeat(values, lengths.astype(np.int64))


def _words(data: Bytes, count: int) -> list[int]:
    if len(data) < 8 * count:
        raise CorruptDataError(f"a block of {len(data)} bytes has no room for its sizes")
    return np.ascontiguousarray(data[: 8 * count]).view("<u8").tolist()
