"""Moving many byte ranges at once: what all codecs of this package stand on."""

from __future__ import annotations

import importlib
import sys
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.encoding.values import Chunks
from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.values import Bytes, Int64s

MAX_OUTPUT_BYTES = 1 << 40
"""Nothing larger is ever allocated on the word of a file."""

_MOST_BYTES_ONE_BY_ONE = 1 << 12
"""So many bytes are moved one by one faster than it takes to look for a better way."""

_MOST_RANGES_JOINED = 128
"""So many ranges are cut out and joined by Python faster than Arrow is asked for them. The memory is that of Arrow's
pool, as in all other cases."""

_MOST_JOINED_BEFORE_IMPORT, _MOST_TAKEN_BEFORE_IMPORT = 1 << 13, 1 << 20
"""More ranges that Python joins and numbers that numpy looks up, all in all, in a process that has not imported Arrow's
kernels, which takes 5 ms: so many cost 3 ms and 1 ms more than by Arrow. A process that streams text pays it once, not
40 ms for each million rows."""

_MOST_TAKEN_BY_NUMPY = 1 << 14
"""Up to so many numbers, numpy looks them up faster than Arrow."""

_KERNELS = "pyarrow._compute"

_MOST_EMPTY = 1 << 15
"""Elements without bytes, of 8 bytes each, that are added so that Arrow makes less room."""

_MANY_RANGES = 1 << 14
"""From so many ranges on where they start takes 128 KiB, which numpy may map anew, page by page, every time."""

WORD_BYTES = 8
_LEADING_BYTES = np.array([(1 << 8 * size) - 1 for size in range(WORD_BYTES + 1)], np.uint64)
"""The first bytes of a little-endian word."""

MAX_CHUNK_VALUES = 1 << 32
MAX_VALUE_BITS = 1 << 30
"""Limits of what is taken for real; their product fits int64."""


def empty(count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return an uninitialised array in Arrow's memory pool.

    The pool keeps its pages; fresh numpy arrays pay a page fault for every 4 KiB.

    Raises:
        CorruptDataError: Nobody can want that many bytes.
    """
    size = int(count) * np.dtype(dtype).itemsize
    if not 0 <= size <= MAX_OUTPUT_BYTES:
        raise CorruptDataError(f"decoded values would need {size} bytes")
    if size == 0:
        return np.empty(0, dtype)
    try:
        return np.frombuffer(pa.allocate_buffer(size), dtype)
    except (MemoryError, pa.ArrowException) as error:
        raise CorruptDataError(f"decoded values would need {size} bytes of memory") from error


class Scratch(threading.local):
    """Memory for what is needed on the way only; each thread has its own, and uses it again and again.

    What goes back to the pool is given back to the system a moment later: a scan that takes 4 MiB a hundred times would
    pay for pages and for their zeros each time, which takes as long as to unpack numbers into them. Nor does it come
    from there: what stays keeps the pool from giving back what lies around it.
    """

    def __init__(self) -> None:
        self._memory = np.empty(0, np.uint8)

    def array(self, count: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Return an uninitialised array; the one before is overwritten."""
        size = count * np.dtype(dtype).itemsize
        if size > len(self._memory):
            self._memory = np.empty(size, np.uint8)
        return self._memory[:size].view(dtype)


def starts_of(sizes: Int64s | Bytes | npt.NDArray[np.bool_]) -> Int64s:
    """Return an array of shape (n + 1,): where each of n adjoining ranges starts, and where the last one ends."""
    if len(sizes) >= _MANY_RANGES:
        out: Int64s = empty(len(sizes) + 1, np.int64)
        out[0] = 0
        out[1:] = sizes
        np.add.accumulate(out[1:], out=out[1:])  # numpy would make a copy of numbers of another type first
        return out
    out = np.empty(len(sizes) + 1, np.int64)
    out[0] = 0
    np.add.accumulate(sizes, out=out[1:])
    return out


def distinct(numbers: Int64s) -> Int64s:
    """Return each number once, ascending; `numpy.unique` builds a hash table, which takes many times as long."""
    ordered = np.sort(numbers)
    is_first = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]


def aranges(starts: Int64s, sizes: Int64s) -> Int64s:
    """``concatenate([arange(s, s + n) for s, n in zip(starts, sizes)])``."""
    # All numbers are counted through. Number k of range i is then bounds[i] + k, so that it is right once its range is
    # shifted by starts[i] - bounds[i].
    bounds = starts_of(sizes)
    return np.arange(bounds[-1], dtype=np.int64) + np.repeat(starts - bounds[:-1], sizes)


def gather(memory: Bytes, starts: Int64s, sizes: Int64s) -> Bytes:
    """Return the bytes of many ranges of one memory, end to end.

    Args:
        memory: Shape (m,).
        starts: Shape (n,), positions in ``memory``; the ranges must lie inside.
        sizes: Shape (n,), bytes.

    Returns:
        Shape (sizes.sum(),); a view if the ranges adjoin and hold more than a few bytes, else a copy.
    """
    if len(starts) == 0:
        return memory[:0]
    if len(starts) == 1:
        return memory[int(starts[0]) : int(starts[0] + sizes[0])]
    if np.add.reduce(sizes) <= _MOST_BYTES_ONE_BY_ONE:
        return memory[aranges(starts, sizes)]
    ends = starts + sizes
    if (starts[1:] == ends[:-1]).all():
        return memory[int(starts[0]) : int(ends[-1])]
    if _are_joined(len(starts)):
        return _joined(memory, starts, ends)
    return _take(memory, starts, ends, np.arange(len(starts)))


class _BeforeImport:
    """Counts what is done without Arrow's kernels because they are not imported; threads may lose a few.

    Args:
        most: As many as are done, all in all.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0

    def allows(self, number: int) -> bool:
        """Count so many more, and return whether they are done without kernels."""
        if _KERNELS in sys.modules:
            return False
        self._count += number
        return self._count <= self._most


_joined_ranges = _BeforeImport(_MOST_JOINED_BEFORE_IMPORT)
_taken_numbers = _BeforeImport(_MOST_TAKEN_BEFORE_IMPORT)


def _are_joined(num_ranges: int) -> bool:
    """Return whether Python joins so many ranges."""
    return num_ranges <= _MOST_RANGES_JOINED or _joined_ranges.allows(num_ranges)


def _joined(memory: Bytes, starts: Int64s, ends: Int64s, head: bytes = b"", tail: bytes = b"") -> Bytes:
    """Return the bytes between positions, and some before and behind all of them."""
    num_bytes = len(head) + int(np.add.reduce(ends - starts)) + len(tail)
    out, view = empty(num_bytes, np.uint8), np.ascontiguousarray(memory).data
    into, at = out.data, len(head)
    into[:at], into[num_bytes - len(tail) :] = head, tail
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        into[at : at + end - start] = view[start:end]
        at += end - start
    return out


def gather_between(memory: Bytes, starts: Int64s, sizes: Int64s, head: bytes, tail: bytes) -> Bytes:
    """Return some bytes, those of at least one range of a memory as in `gather`, and some more bytes, end to end.

    Returns:
        Shape (len(head) + sizes.sum() + len(tail),); a copy that may be written to.
    """
    ends = starts + sizes
    largest = int(sizes.argmax())
    room = int(sizes[largest])
    if _are_joined(len(starts)) or room < max(len(head), len(tail)):
        return _joined(memory, starts, ends, head, tail)
    # The largest range stands at both ends as well, and is written over there: another copy of all would cost more.
    cut_points = np.empty(len(starts) + 2, np.int64)
    cut_points[0] = cut_points[-1] = largest
    cut_points[1:-1] = np.arange(len(starts))
    taken = _take(memory, starts, ends, cut_points)
    out = taken[room - len(head) : len(taken) - room + len(tail)]
    out[: len(head)] = np.frombuffer(head, np.uint8)
    out[len(out) - len(tail) :] = np.frombuffer(tail, np.uint8)
    return out


def _take(memory: Bytes, starts: Int64s, ends: Int64s, order_indices: Int64s) -> Bytes:
    """Return some of many ranges by Arrow: elements of a binary array are ranges and gaps in turn.

    They are put in order first, because Arrow sizes its output by the last offset minus the first one.
    """
    if (starts[1:] < starts[:-1]).any():
        order = starts.argsort(kind="stable")
        order_indices = order.argsort(kind="stable")[order_indices]
        starts, ends = starts[order], ends[order]
    # Arrow makes room for as many elements of mean size as are taken. Ranges are larger than gaps, so that it would run
    # out, and copying to twice the room takes as long as the take itself: empty elements are taken until there is room.
    # Where gaps are larger, such as those between columns, more elements are empty, so that there is no room for gaps.
    num_ranges, num_taken = len(starts), len(order_indices)
    num_bytes, span = int((ends - starts)[order_indices].sum()), max(1, int(ends[-1] - starts[0]))
    num_empty = min(max(0, num_taken * span // max(1, num_bytes) - 2 * num_ranges), _MOST_EMPTY)
    offsets = np.full(2 * num_ranges + 1 + num_empty, ends[-1], np.int64)
    offsets[: 2 * num_ranges : 2], offsets[1 : 2 * num_ranges : 2] = starts, ends
    num_indices = min(num_bytes * 2 * num_ranges // span + 1, 2 * num_taken)
    indices = np.full(max(num_indices, num_taken), 2 * num_ranges - 1, np.int64)
    np.multiply(order_indices, 2, out=indices[:num_taken])
    return view_buffer(take_inside(binary_array(offsets, memory), indices).buffers()[2])


def binary_array(bounds: Int64s, memory: Bytes) -> pa.Array:
    """The ranges of a memory between neighbouring bounds, as an Arrow array of large binaries, without a copy."""
    buffers = [None, pa.py_buffer(np.ascontiguousarray(bounds, np.int64)), pa.py_buffer(np.ascontiguousarray(memory))]
    return pa.Array.from_buffers(pa.large_binary(), len(bounds) - 1, buffers)


@cache
def _kernels() -> Any:
    """Arrow's kernels by name.

    `pyarrow.compute` wraps each of them in a function when it is imported, which takes 50 ms: more than the first scan
    of a small table.
    """
    return importlib.import_module(_KERNELS)


@cache
def _unchecked() -> Any:
    return _kernels().TakeOptions(boundscheck=False)


def check_places(indices: npt.NDArray[Any], count: int) -> None:
    """Make sure that indices, shape (n,), are among so many values.

    Raises:
        CorruptDataError: An index behind the last value.
    """
    if not len(indices):
        return
    if int(indices.max()) >= count or (indices.dtype.kind == "i" and int(indices.min()) < 0):
        raise CorruptDataError(f"an index points beyond {count} values")


def take_inside(values: pa.Array | pa.RecordBatch, indices: npt.NDArray[Any] | pa.Array) -> Any:
    """Take the rows at some indices, shape (n,), all of which are known to be inside, of an array or a batch.

    Arrow would ask it of each index, which takes longer than to fetch what is there; `check_places` asks for the
    largest one.
    """
    wanted = numbers_array(indices) if isinstance(indices, np.ndarray) else indices
    return _kernels().call_function("take", [values, wanted], _unchecked())


def take_numbers(numbers: npt.NDArray[Any], indices: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return numbers, shape (n,), at some indices, shape (m,), of any width, all of which are known to be inside.

    Arrow takes 0.8 ns for each, numpy 1.8, since it widens indices to 64 bits.
    """
    if len(indices) <= _MOST_TAKEN_BY_NUMPY:
        return numbers.take(indices)
    if _taken_numbers.allows(len(indices)):
        return np.take(numbers, indices, out=empty(len(indices), numbers.dtype), mode="clip")
    taken = take_inside(numbers_array(numbers), indices)
    return view_buffer(taken.buffers()[1]).view(numbers.dtype)[: len(indices)]


def numbers_array(numbers: npt.NDArray[Any], is_null: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Numbers, shape (n,), as an Arrow array without a copy.

    What most processes do makes its arrays this way: the first ``pa.array`` of a process imports pandas if it is
    installed, which is 300 modules, some 20 MiB and a fifth of a second.

    Args:
        numbers: The numbers.
        is_null: Shape (n,): where there are nulls instead; None if nowhere.
    """
    data = pa.py_buffer(np.ascontiguousarray(numbers))
    bitmap = None if is_null is None else pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), [bitmap, data])


def numbers_of(array: pa.Array) -> npt.NDArray[Any]:
    """Return the values of an Arrow array of numbers without nulls, shape (n,): `numbers_array` backwards.

    ``to_numpy`` imports pandas, too.
    """
    return np.from_dlpack(array)


def scalar(value: object, kind: pa.DataType | None = None) -> pa.Scalar:
    """A Python value as an Arrow scalar; None, truth values, numbers and strings without pandas, see `numbers_array`.

    Args:
        value: The value.
        kind: Its type; None for the one that Arrow infers.
    """
    if value is None:
        return pa.nulls(1, pa.null() if kind is None else kind)[0]
    if kind is not None and pa.types.is_decimal(kind):
        return pa.scalar(value, kind)
    if isinstance(value, bool):
        array = pa.Array.from_buffers(pa.bool_(), 1, [None, pa.py_buffer(bytes([value]))])
    elif isinstance(value, float) or (isinstance(value, int) and -(2**63) <= value < 2**64):
        array = numbers_array(np.array([value]))
    elif isinstance(value, (str, bytes)):
        data = value.encode() if isinstance(value, str) else value
        bounds = pa.py_buffer(np.array([0, len(data)], np.int32))
        inferred = pa.string() if isinstance(value, str) else pa.binary()
        array = pa.Array.from_buffers(inferred, 1, [None, bounds, pa.py_buffer(data)])
    else:
        return pa.scalar(value, kind)
    return array[0] if kind is None or array.type == kind else array.cast(kind)[0]


FALSE_SCALAR, TRUE_SCALAR = scalar(False), scalar(True)  # noqa: FBT003 the value


def view_buffer(buffer: pa.Buffer | None) -> Bytes:
    """Return the bytes of an Arrow buffer (None counts as empty)."""
    return np.empty(0, np.uint8) if buffer is None or not buffer.size else np.frombuffer(buffer, np.uint8)


def gather_words(memory: Bytes, starts: Int64s, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """One little-endian word at each of many byte positions, which must lie inside ``memory``."""
    kind = np.dtype(dtype)
    if len(starts) == 0:
        return np.empty(0, kind)
    # Words at every byte, overlapping: numpy reads those that are not aligned.
    return np.ndarray((len(memory) - kind.itemsize + 1,), kind, memory.data, 0, (1,))[starts]


def leading_words(memory: Bytes, starts: Int64s, sizes: Int64s) -> npt.NDArray[np.uint64]:
    """Return the first 8 bytes of each piece of memory as little-endian numbers; zeros stand behind its end.

    Args:
        memory: The bytes.
        starts: Shape (n,): where the pieces begin.
        sizes: Shape (n,): how many bytes they have; none if it is negative.
    """
    if len(memory) < WORD_BYTES:
        memory = np.append(memory, np.zeros(WORD_BYTES, np.uint8))
    behind = starts - (len(memory) - WORD_BYTES)
    if not len(behind) or behind.max() <= 0:
        numbers = gather_words(memory, starts, "<u8")
    else:
        np.maximum(behind, 0, out=behind)
        numbers = gather_words(memory, starts - behind, "<u8")
        numbers >>= (behind << 3).astype(np.uint64)  # what lies before a piece at the end of the memory
    if len(sizes) and sizes.min() < WORD_BYTES:
        numbers &= _LEADING_BYTES.take(sizes, mode="clip")
    return numbers


def put_words(memory: Bytes, starts: Int64s, values: npt.NDArray[Any]) -> None:
    """Write one word at each of many byte positions, which must lie inside ``memory``."""
    np.ndarray((len(memory) - values.itemsize + 1,), values.dtype, memory.data, 0, (1,))[starts] = values


def gather_windows(memory: Bytes, starts: Int64s, width: int) -> Bytes:
    """``width`` bytes at each of many positions, which must lie inside ``memory``: shape (n, width)."""
    if len(starts) == 0 or width == 0:
        return np.empty((len(starts), width), np.uint8)
    # Whole windows at every byte: numpy moves one as a piece in a tenth of the time that it takes for a row of bytes.
    kind = np.dtype((np.void, width))
    windows = np.ndarray((len(memory) - width + 1,), kind, memory.data, 0, (1,))[starts]
    return windows.view(np.uint8).reshape(len(starts), width)


def check_chunks(chunks: Chunks, num_buffers: int) -> None:
    """Make sure that all ranges lie in their memory.

    Raises:
        CorruptDataError: Buffers are missing or reach beyond the page.
    """
    count = len(chunks.counts)
    if len(chunks.buffers) != num_buffers or chunks.starts.shape != (num_buffers, count):
        raise CorruptDataError(f"chunks have {len(chunks.buffers)} value buffers where the encoding has {num_buffers}")
    if chunks.sizes.shape != chunks.starts.shape:
        raise CorruptDataError("chunks have a different number of buffer positions and buffer sizes")
    if count == 0 or chunks.is_inside:
        return
    if min(np.minimum.reduce(chunks.starts, axis=None), np.minimum.reduce(chunks.sizes, axis=None)) < 0:
        raise CorruptDataError("chunk with a negative position or size")
    if np.minimum.reduce(chunks.counts) < 0 or np.maximum.reduce(chunks.counts) > MAX_CHUNK_VALUES:
        raise CorruptDataError("chunk with an impossible number of values")
    ends = np.maximum.reduce(chunks.starts.view(np.uint64) + chunks.sizes.view(np.uint64), axis=1).tolist()
    if any(end > len(memory) for memory, end in zip(chunks.buffers, ends, strict=True)):
        raise CorruptDataError("a chunk's value buffer reaches beyond the end of its page")


def check_sizes(sizes: Int64s, needed: Int64s | int, what: str) -> None:
    """Make sure that each chunk's buffer holds what its count needs.

    Raises:
        CorruptDataError: A buffer is too short.
    """
    if np.count_nonzero(sizes < needed):
        at = int((sizes < needed).nonzero()[0][0])
        least = int(np.broadcast_to(needed, sizes.shape)[at])
        raise CorruptDataError(f"{what}: chunk {at} has {int(sizes[at])} bytes where {least} are needed")


def join_ranges(*parts: tuple[Bytes, Int64s]) -> tuple[Bytes, Int64s]:
    """Range 0 of each part, then range 1 of each part, and so on, end to end.

    Args:
        parts: Memory and the n + 1 ascending bounds of its n adjoining ranges.

    Returns:
        The joined bytes and their n + 1 bounds.
    """
    if len(parts[0][1]) == 2:  # the bounds of one range
        whole = np.concatenate([memory[bounds[0] : bounds[1]] for memory, bounds in parts])
        return whole, np.array([0, len(whole)], np.int64)
    arrays = [binary_array(bounds, memory) for memory, bounds in parts]
    joined = _kernels().call_function("binary_join_element_wise", [*arrays, _nothing()])
    return view_buffer(joined.buffers()[2]), np.frombuffer(joined.buffers()[1], np.int64, len(joined) + 1)


@cache
def _nothing() -> pa.Scalar:
    """Return the empty bytes between ranges that are joined."""
    return scalar(b"", pa.large_binary())


def one_buffer(memory: Bytes, bounds: Int64s, counts: Int64s) -> Chunks:
    """Chunks whose only value buffers adjoin in one memory."""
    return Chunks(buffers=(memory,), starts=bounds[None, :-1], sizes=(bounds[1:] - bounds[:-1])[None, :], counts=counts)


def chunk_counts(num_values: int, per_chunk: int) -> Int64s:
    """``per_chunk`` values for every chunk, the rest for the last one."""
    counts = np.full(-(-num_values // per_chunk), per_chunk, np.int64)
    if num_values % per_chunk:
        counts[-1] = num_values % per_chunk
    return counts


def fitting_count(value_bytes: float, target_bytes: int, *, least: int = 2, most: int = 4096) -> int:
    """Return the largest power of two of values that stays within a chunk size, within limits."""
    count = least
    while count < most and count * 2 * value_bytes <= target_bytes:
        count *= 2
    return count
