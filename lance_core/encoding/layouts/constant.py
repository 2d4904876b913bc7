"""Constant pages: every value is null, or (file version 2.2) every value that is not null is the same.

The number of buffers tells the form:

| inline value | buffers | meaning                                                                             |
|--------------|---------|-------------------------------------------------------------------------------------|
| no           | 0       | all null                                                                            |
| no           | 2       | all null inside lists or structs: repetition levels, definition levels               |
| yes          | 0 or 2  | one value (bytes of its Arrow buffer, at most 32), [levels]                          |
| no           | 1 or 3  | one value in a frame, [levels]                                                       |
| as told      | any     | file version 2.3: one value or none, below sparse layers, which take all buffers     |

Levels are raw 16-bit words, in all-null pages of 2.2 possibly a compressed block. A frame is u32 number of buffers, u32
length of each, and the Arrow buffers themselves (for strings: two offsets, then the bytes).

Source: message ``ConstantLayout``.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.common.late_module import LateModule
from lance_core.encoding import registry
from lance_core.encoding.arrow_values import offset_dtype
from lance_core.encoding.kernels import empty, gather, starts_of
from lance_core.encoding.layouts.page import Decoded, EncodedPage
from lance_core.encoding.repdef import Levels, max_def, max_rep, rows_of_levels, widen
from lance_core.encoding.values import FixedValues, VariableValues
from lance_core.errors import CorruptDataError, InvalidInputError, UnsupportedError
from lance_core.format.file.page_layout import ConstantLayout, Layer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.encoding.layouts import sparse
    from lance_core.encoding.options import PageOptions
    from lance_core.encoding.repdef import LevelArray, Mask
    from lance_core.encoding.values import Bytes, Int64s, Values
    from lance_core.format.file.encodings import Encoding
else:  # levels of file version 2.3
    sparse = LateModule("lance_core.encoding.layouts.sparse")

MAX_INLINE_BYTES = 32
_MAX_RAW_LEVELS = 1024
_LONG_RUN = 1 << 13
"""Values of a run on average: a thousand in each of a hundred runs take twice as long to fill as to repeat."""
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def decode(
    layout: ConstantLayout, buffers: Sequence[Bytes], kind: pa.DataType, *, num_rows: int, rows: range | Int64s
) -> Decoded:
    """Decode some rows of a page.

    Args:
        layout: Layout of the page.
        buffers: All its buffers.
        kind: Arrow type of the leaf.
        num_rows: Rows of the page.
        rows: Rows that are wanted, ascending.

    Raises:
        CorruptDataError: Buffers that do not fit the layout.
        UnsupportedError: A constant of a type that has none.
    """
    is_null = layout.inline_value is None and (layout.sparse is not None or len(buffers) not in (1, 3))
    if layout.sparse is not None:
        every = sparse.decode_levels(layout.sparse, buffers, num_rows)
    else:
        every = _decode_levels(layout, buffers[-2:] if len(buffers) >= 2 else (), num_rows)
    levels, slots = rows_of_levels(every, rows)
    num_slots = len(slots)
    values = None
    if not is_null:
        inline = layout.inline_value
        value = _framed(buffers[0].data, kind) if inline is None else inline
        values = repeat_each([bytes(value)], [num_slots], kind)
    if is_null and levels.definition is None and max_def(levels.layers):
        # Nothing but null leaves is written without levels.
        levels = Levels(levels.layers, levels.rep, np.ones(num_slots, np.uint16))
    return Decoded(levels=levels, values=values, num_slots=num_slots)


def _decode_levels(layout: ConstantLayout, buffers: Sequence[Bytes], num_rows: int) -> Levels:
    if not buffers:
        if max_rep(layout.layers):
            raise CorruptDataError("a constant page with lists lacks its levels")
        return Levels(layout.layers, None, None)
    rep = _decode_one(layout.rep, buffers[0], layout.num_rep_values)
    definition = _decode_one(layout.definition, buffers[1], layout.num_def_values)
    if (rep is None) != (max_rep(layout.layers) == 0):
        raise CorruptDataError("a constant page has repetition levels without lists, or lists without them")
    if rep is None and definition is not None and len(definition) != num_rows:
        raise CorruptDataError(f"a constant page of {num_rows} rows has {len(definition)} levels")
    return Levels(layout.layers, rep, definition)


def _decode_one(encoding: Encoding | None, data: Bytes, count: int) -> LevelArray | None:
    if encoding is None:
        if len(data) % 2:
            raise CorruptDataError("16-bit levels in an odd number of bytes")
        return np.ascontiguousarray(data).view(np.uint16) if len(data) else None
    values = registry.decode_block(encoding, data, count)
    if not isinstance(values, FixedValues) or values.data.dtype != np.uint16:
        raise CorruptDataError("levels that are not 16 bits wide")
    return values.data.view(np.uint16) if count else None


def is_worth_it(levels: Levels, num_slots: int, options: PageOptions) -> bool:
    """Return whether values that are all the same are best put into a page of one value."""
    return options.has_large_chunks and (is_cheap(levels) or num_slots <= _MAX_RAW_LEVELS)


def is_cheap(levels: Levels) -> bool:
    """True if a page of one value costs little: its levels are not compressed."""
    return levels.rep is None and levels.definition is None


def _framed(frame: memoryview, kind: pa.DataType) -> memoryview:
    """Return the value in a frame."""
    dtype = offset_dtype(kind)
    needed = 1 if dtype is None else 2
    head = 4 + 4 * needed
    if len(frame) < head:
        raise CorruptDataError("the frame of a constant is too short")
    count, *lengths = struct.unpack_from(f"<{needed + 1}I", frame)
    if count != needed or head + sum(lengths) > len(frame):
        raise CorruptDataError("the frame of a constant does not fit its type")
    if dtype is None:
        return frame[head : head + lengths[0]]
    if lengths[0] != 2 * np.dtype(dtype).itemsize:
        raise CorruptDataError("the frame of a constant string has no two offsets")
    begin, end = struct.unpack_from("<ii" if dtype == np.int32 else "<qq", frame, head)
    if not 0 <= begin <= end <= lengths[1]:
        raise CorruptDataError("the offsets of a constant string leave its frame")
    at = head + lengths[0]
    return frame[at + begin : at + end]


def value_of(layout: ConstantLayout, buffers: Sequence[pa.Buffer], kind: pa.DataType) -> bytes | None:
    """Return the one value that all rows of a page have; None if there are levels or nulls.

    Args:
        layout: Layout of the page.
        buffers: All its buffers.
        kind: Arrow type of the leaf.

    Raises:
        CorruptDataError: A buffer that does not fit the layout.
    """
    if layout.sparse is not None or max_rep(layout.layers) or pa.types.is_nested(kind) or pa.types.is_null(kind):
        return None
    if layout.inline_value is not None:
        return None if buffers else layout.inline_value
    return bytes(_framed(memoryview(buffers[0]), kind)) if len(buffers) == 1 else None


def repeat_each(values: Sequence[bytes], counts: Sequence[int], kind: pa.DataType) -> Values:
    """Return values, each as often as its page has rows.

    Args:
        values: Shape (n,).
        counts: Shape (n,).
        kind: Arrow type of the leaf.

    Raises:
        CorruptDataError: A value of another width than that of the type.
        UnsupportedError: A type that has no constants.
    """
    if pa.types.is_nested(kind) or pa.types.is_null(kind):
        raise UnsupportedError(f"a constant page of {kind} is not supported")
    if offset_dtype(kind) is not None:
        lengths = np.repeat(np.fromiter(map(len, values), np.int64, len(values)), counts)
        data = b"".join([value * count for value, count in zip(values, counts, strict=True)])
        return VariableValues(starts_of(lengths), np.frombuffer(data, np.uint8))
    is_boolean = pa.types.is_boolean(kind)
    width = 1 if is_boolean else kind.bit_width // 8
    for value in values:
        if len(value) != width:
            raise CorruptDataError(f"a constant of {len(value)} bytes for {kind}")
    data = np.frombuffer(b"".join(values), _UNSIGNED.get(width, np.uint8))
    if is_boolean:
        data = data != 0
    elif width not in _UNSIGNED:
        data = data.reshape(-1, width)
    return FixedValues(_repeated(data, counts))


def _repeated(data: npt.NDArray[Any], counts: Sequence[int]) -> npt.NDArray[Any]:
    """Return values, shape (n,) or (n, width), each as often as told."""
    total = sum(counts)
    if total < _LONG_RUN * len(counts) or data.ndim > 1:
        return np.repeat(data, counts, axis=0)
    # In Arrow's pool: numpy's `repeat` is as fast, but its memory comes from the system, page by page, every time.
    out, start = empty(total, data.dtype), 0
    for value, count in zip(data, counts, strict=True):
        out[start : start + count] = value
        start += count
    return out


def constant_value(values: Values, is_null: Mask | None) -> Bytes | None:
    """Return the one value that all slots hold, or None if they differ or are of a kind that has no constant pages.

    Args:
        values: Values of a page.
        is_null: Slots that do not count, None if all do; one at least counts.
    """
    match values:
        case FixedValues(data):
            visible = data if is_null is None else data[~is_null]
            if (visible[len(visible) // 2] != visible[0]).any() or (visible != visible[0]).any():
                return None
            return np.ascontiguousarray(visible[:1]).view(np.uint8).reshape(-1)
        case VariableValues(offsets, data):
            starts, ends = (
                (offsets[:-1], offsets[1:]) if is_null is None else (offsets[:-1][~is_null], offsets[1:][~is_null])
            )
            return _constant_string(starts.astype(np.int64, copy=False), ends.astype(np.int64, copy=False), data)
        case _:
            return None


def _constant_string(starts: Int64s, ends: Int64s, data: Bytes) -> Bytes | None:
    value = data[int(starts[0]) : int(ends[0])]
    middle = len(starts) // 2
    if not np.array_equal(data[int(starts[middle]) : int(ends[middle])], value) or (ends - starts != len(value)).any():
        return None
    return value if (gather(data, starts, ends - starts).reshape(len(starts), -1) == value).all() else None


def encode_null(levels: Levels, options: PageOptions) -> EncodedPage:
    """Return a page in which every value is null, or hidden behind null and empty lists."""
    levels = _null_within(levels)
    if levels.layers == (Layer.NULLABLE_ITEM,):
        return EncodedPage(layout=ConstantLayout(layers=levels.layers), buffers=[])
    if not options.has_large_chunks:
        return EncodedPage(layout=ConstantLayout(layers=levels.layers), buffers=_raw(levels))
    try:
        rep, definition = _pack(levels.rep), _pack(levels.definition)
    except InvalidInputError:  # too many levels for one block of the writer
        return EncodedPage(layout=ConstantLayout(layers=levels.layers), buffers=_raw(levels))
    layout = ConstantLayout(
        layers=levels.layers,
        rep=rep[0],
        definition=definition[0],
        num_rep_values=0 if levels.rep is None else len(levels.rep),
        num_def_values=0 if levels.definition is None else len(levels.definition),
    )
    return EncodedPage(layout=layout, buffers=[rep[1], definition[1]])


def _null_within(levels: Levels) -> Levels:
    """Let values be null where the struct around them is.

    pylance 14.0.2 takes them as null there in these pages, and then refuses them in a field that is not nullable.
    """
    leaf, *around = levels.layers
    if leaf is Layer.NULLABLE_ITEM or around[:1] != [Layer.NULLABLE_ITEM]:
        return levels
    return widen(levels, (Layer.NULLABLE_ITEM, *around), 0)


def _pack(levels: LevelArray | None) -> tuple[Encoding | None, Bytes]:
    if levels is None:
        return None, np.empty(0, np.uint8)
    from lance_core.encoding.choose_levels import encode_level_chunks  # noqa: PLC0415 readers do not choose

    encoding, chunks = encode_level_chunks(levels, np.array([0, len(levels)]))
    start, size = int(chunks.starts[0, 0]), int(chunks.sizes[0, 0])
    return encoding, chunks.buffers[0][start : start + size]


def encode_single(levels: Levels, value: Bytes, dtype: npt.DTypeLike | None) -> EncodedPage:
    """Return a page in which every value that is not null is the same.

    Args:
        levels: The levels.
        value: Bytes of the value.
        dtype: Type of the offsets of strings; None for others.
    """
    levels = _null_within(levels)
    levels_buffers = [] if is_cheap(levels) else _raw(levels)
    if dtype is None and len(value) <= MAX_INLINE_BYTES:
        layout = ConstantLayout(layers=levels.layers, inline_value=value.tobytes())
        return EncodedPage(layout=layout, buffers=levels_buffers)
    parts = [value] if dtype is None else [np.array([0, len(value)], dtype).view(np.uint8), value]
    head = np.array([len(parts), *map(len, parts)], "<u4").view(np.uint8)
    return EncodedPage(
        layout=ConstantLayout(layers=levels.layers), buffers=[np.concatenate([head, *parts]), *levels_buffers]
    )


def _raw(levels: Levels) -> list[Bytes]:
    nothing = np.empty(0, np.uint8)
    return [
        nothing if level_values is None else level_values.view(np.uint8)
        for level_values in (levels.rep, levels.definition)
    ]
