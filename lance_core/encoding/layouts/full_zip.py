"""Full-zip pages: large values, each with its levels and length right in front of it.

Buffer 0 holds the entries one after the other; buffer 1, present for lists and for values of variable width, is the
repetition index: the position of each row's first entry, then the end (unsigned words of 1, 2, 4 or 8 bytes).

An entry is a control word ``rep << bits_def | def`` of 0, 1, 2 or 4 bytes (no levels, up to 8, 16, 32 bits), then

* fixed width: the value, if it has a slot (also under a null);
* variable width: length (4 or 8 bytes) and bytes, if it has a slot and is not null.

Source: message ``FullZipLayout``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.common.frozen import frozen
from lance_core.encoding import registry
from lance_core.encoding.codecs import fixed_size_list, flat, packed_struct
from lance_core.encoding.kernels import empty, gather, gather_words, join_ranges, starts_of
from lance_core.encoding.layouts.page import Decoded, EncodedPage
from lance_core.encoding.repdef import Levels, max_def, max_rep, max_visible_def
from lance_core.encoding.strategy import MOST_WALKED_ROWS
from lance_core.encoding.values import FixedListValues, FixedValues, StructValues, VariableValues
from lance_core.errors import CorruptDataError
from lance_core.format.file.encodings import Flat
from lance_core.format.file.page_layout import FullZipLayout

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from lance_core.encoding.options import PageOptions
    from lance_core.encoding.repdef import Mask
    from lance_core.encoding.values import Bytes, Int64s, LeafValues
    from lance_core.format.file.encodings import Encoding

_BEYOND_ROW = "an entry of a full-zip page reaches beyond its row"


@frozen(kw_only=True)
class Entries:
    """Entries of some rows.

    Attributes:
        control: Control word of each.
        payloads: Where the value of each begins, behind control word and length.
        sizes: Bytes of each value, 0 if there is none.
    """

    control: npt.NDArray[np.uint32]
    payloads: Int64s
    sizes: Int64s


def control_bytes(layout: FullZipLayout) -> int:
    """Return bytes of a control word."""
    bits = layout.bits_rep + layout.bits_def
    return 0 if bits == 0 else 1 if bits <= 8 else 2 if bits <= 16 else 4


def has_index(layout: FullZipLayout) -> bool:
    """True if the page has a repetition index."""
    return layout.bits_per_offset is not None or max_rep(layout.layers) > 0


def stride(layout: FullZipLayout) -> int:
    """Return bytes of each row in a page without index."""
    return control_bytes(layout) + (layout.bits_per_value or 0) // 8


def kind_of(layout: FullZipLayout) -> tuple[object, ...]:
    """Return what pages are alike in whose rows can be decoded together."""
    widths = layout.bits_rep, layout.bits_def, layout.bits_per_value, layout.bits_per_offset
    return layout.values, layout.layers, widths


def is_alike(ours: FullZipLayout, theirs: FullZipLayout) -> bool:
    """True if rows of two pages can be decoded together."""
    return kind_of(ours) == kind_of(theirs)


def index_width(index_size: int, num_rows: int) -> int:
    """Return bytes of a word of the repetition index.

    Raises:
        CorruptDataError: The index does not fit the page.
    """
    width = index_size // (num_rows + 1)
    if width not in (1, 2, 4, 8):
        raise CorruptDataError(f"a repetition index of {index_size} bytes for {num_rows} rows")
    return width


def index_ranges(rows: range | Int64s, width: int) -> list[tuple[int, int]]:
    """Return the parts of the repetition index that tell where some rows lie."""
    if isinstance(rows, range):
        return [(rows.start * width, (rows.stop + 1) * width)]
    if int(rows[-1]) - int(rows[0]) < 64 * len(rows):
        return [(int(rows[0]) * width, (int(rows[-1]) + 2) * width)]
    return [(row * width, (row + 2) * width) for row in rows.tolist()]


def row_ranges(parts: list[Bytes], rows: range | Int64s, width: int, size: int) -> tuple[Int64s, Int64s]:
    """Start and end of each row in buffer 0.

    Args:
        parts: What `index_ranges` asked for.
        rows: The same rows.
        width: Bytes of a word.
        size: Bytes of buffer 0.

    Raises:
        CorruptDataError: Positions that go back or leave the page.
    """
    row_index = np.concatenate([np.ascontiguousarray(part).view(f"<u{width}") for part in parts])
    if (row_index > np.uint64(size)).any():
        raise CorruptDataError("a repetition index points beyond its page")
    row_index = row_index.astype(np.int64)
    if isinstance(rows, range):
        starts, ends = row_index[:-1], row_index[1:]
    elif (len(parts) == 1 and len(rows) > 1) or len(row_index) != 2 * len(rows):
        entry_indices = rows - rows[0]
        starts, ends = row_index[entry_indices], row_index[entry_indices + 1]
    else:
        starts, ends = row_index[0::2], row_index[1::2]
    if (ends < starts).any():
        raise CorruptDataError("a repetition index goes back")
    return starts, ends


def decode_even(layout: FullZipLayout, memory: Bytes, num_rows: int, kind: pa.DataType | None = None) -> Decoded:
    """Decode rows of a page without index.

    Args:
        layout: Layout of the page.
        memory: Exactly the rows, one after the other.
        num_rows: Number of rows.
        kind: Arrow type of the leaf; see `registry.decode_rows`.
    """
    width, skip = stride(layout), control_bytes(layout)
    if len(memory) != width * num_rows:
        raise CorruptDataError(f"{num_rows} rows of {width} bytes in {len(memory)} bytes")
    rows = memory.reshape(num_rows, width)
    definition = None
    if skip:
        control = np.ascontiguousarray(rows[:, :skip]).view(f"<u{skip}").reshape(-1)
        definition = (control & np.uint32((1 << layout.bits_def) - 1)).astype(np.uint16)
    values = registry.decode_rows(layout.values, rows[:, skip:], kind)
    return Decoded(levels=Levels(layout.layers, None, definition), values=values, num_slots=num_rows)


def decode_rows(
    layout: FullZipLayout, memory: Bytes, starts: Int64s, ends: Int64s, kind: pa.DataType | None = None
) -> Decoded:
    """Decode rows of a page with index.

    Args:
        layout: Layout of the page.
        memory: Holds the rows.
        starts: Where each row starts in memory.
        ends: Where each row ends.
        kind: Arrow type of the leaf; see `registry.decode_rows`.

    Raises:
        CorruptDataError: Entries that do not fit their rows.
    """
    if max_rep(layout.layers) == 0:
        entries = _read_entries(layout, memory, starts)
        last = entries.payloads + entries.sizes
        if (last != ends).any():
            raise CorruptDataError("an entry of a full-zip page does not fill its row")
    elif layout.bits_rep == 0:
        raise CorruptDataError("a full-zip page with lists has no repetition levels")
    else:
        entries = _walk(layout, memory, starts, ends)
    rep = (entries.control >> layout.bits_def).astype(np.uint16) if max_rep(layout.layers) else None
    definition = None
    if layout.bits_def:
        definition = (entries.control & np.uint32((1 << layout.bits_def) - 1)).astype(np.uint16)
    levels = Levels(layout.layers, rep, definition)
    visible = slice(None) if definition is None else definition <= max_visible_def(layout.layers)
    payloads, sizes = entries.payloads[visible], entries.sizes[visible]
    if layout.bits_per_value is not None:
        width = layout.bits_per_value // 8
        rows = gather(memory, payloads, sizes).reshape(len(payloads), width)
        values = registry.decode_rows(layout.values, rows, kind)
    else:
        raw = VariableValues(starts_of(sizes), gather(memory, payloads, sizes))
        values = registry.decode_strings(layout.values, raw)
    return Decoded(levels=levels, values=values, num_slots=len(payloads))


def _read_entries(layout: FullZipLayout, memory: Bytes, at: Int64s) -> Entries:
    """Return the entries that begin at some positions."""
    skip = control_bytes(layout)
    if len(at) and int(at.max()) + skip > len(memory):
        raise CorruptDataError("an entry of a full-zip page reaches beyond its end")
    control = gather_words(memory, at, f"<u{skip}").astype(np.uint32) if skip else np.zeros(len(at), np.uint32)
    definition = control & np.uint32((1 << layout.bits_def) - 1)
    payloads = at + skip
    if layout.bits_per_value is not None:
        sizes = np.where(definition <= max_visible_def(layout.layers), layout.bits_per_value // 8, 0).astype(np.int64)
    else:
        payloads, sizes = _read_lengths(layout, memory, payloads, definition == 0)
    if len(at) and int((payloads + sizes).max()) > len(memory):
        raise CorruptDataError("an entry of a full-zip page reaches beyond its end")
    return Entries(control=control, payloads=payloads, sizes=sizes)


def _read_lengths(layout: FullZipLayout, memory: Bytes, at: Int64s, has_value: Mask) -> tuple[Int64s, Int64s]:
    width = (layout.bits_per_offset or 0) // 8
    sizes = np.zeros(len(at), np.int64)
    length_offsets = at[has_value]
    if len(length_offsets) and int(length_offsets.max()) + width > len(memory):
        raise CorruptDataError("a length in a full-zip page lies beyond its end")
    lengths = gather_words(memory, length_offsets, f"<u{width}")
    if len(lengths) and int(lengths.max()) > len(memory):
        raise CorruptDataError("a value of a full-zip page is longer than the page")
    sizes[has_value] = lengths
    return at + width * has_value, sizes


def _walk(layout: FullZipLayout, memory: Bytes, starts: Int64s, ends: Int64s) -> Entries:
    """Return all entries of many rows: the k-th entry of all rows at once, until few rows are left."""
    steps_of_walk: list[Int64s] = []
    at, until = starts, ends
    while len(at) > MOST_WALKED_ROWS:
        entries = _read_entries(layout, memory, at)
        steps_of_walk.append(at)
        following = entries.payloads + entries.sizes
        if (following > until).any():
            raise CorruptDataError(_BEYOND_ROW)
        is_open = following < until
        at, until = following[is_open], until[is_open]
    rest = [_row_entries(layout, memory, start, end) for start, end in zip(at.tolist(), until.tolist(), strict=True)]
    return _read_entries(layout, memory, np.sort(np.concatenate([*steps_of_walk, *rest])))


def _row_entries(layout: FullZipLayout, memory: Bytes, at: int, end: int) -> Int64s:
    """Return where each entry of a row begins; all that is read is checked by `_read_entries`."""
    view, skip, mask = memory.data, control_bytes(layout), (1 << layout.bits_def) - 1
    size, last_visible = layout.bits_per_value, max_visible_def(layout.layers)
    width = (layout.bits_per_offset or 0) // 8
    positions: list[int] = []
    while not positions or at < end:
        positions.append(at)
        definition = int.from_bytes(view[at : at + skip], "little") & mask
        at += skip
        if size is not None:
            at += size // 8 if definition <= last_visible else 0
        elif definition == 0:
            at += width + int.from_bytes(view[at : at + width], "little")
    if at != end:
        raise CorruptDataError(_BEYOND_ROW)
    return np.array(positions, np.int64)


def encode(decoded: Decoded, options: PageOptions) -> EncodedPage:
    """Encode a page.

    Args:
        decoded: Levels and values, at least one of them; no booleans.
        options: How to write.
    """
    levels, values = decoded.levels, decoded.values
    control = _control_words(levels)
    visible = None
    if levels.rep is not None and levels.definition is not None:
        visible = levels.definition <= max_visible_def(levels.layers)
    strings, rows, encoding = _zippable(values, options)
    if strings is not None:
        has_value = None if levels.definition is None else levels.definition == 0
        data, sizes = _zip_strings(control, strings, visible, has_value)
        bits_per_value, bits_per_offset = None, strings.offsets.dtype.itemsize * 8
    else:
        data, sizes = _zip_rows(control, rows, visible)
        bits_per_value, bits_per_offset = rows.shape[1] * 8, None
    layout = FullZipLayout(
        bits_rep=max_rep(levels.layers).bit_length(),
        bits_def=_def_bits(levels),
        bits_per_value=bits_per_value,
        bits_per_offset=bits_per_offset,
        num_items=len(sizes),
        num_visible_items=decoded.num_slots,
        values=encoding,
        layers=levels.layers,
    )
    buffers = [data]
    if has_index(layout):
        buffers.append(_encode_index(levels, sizes))
    return EncodedPage(layout=layout, buffers=buffers)


def _zippable(values: LeafValues | None, options: PageOptions) -> tuple[VariableValues | None, Bytes, Encoding]:
    """Return values of variable width, or rows of bytes (the other is none or empty), and how they are encoded."""
    match values:
        case StructValues():
            encoding, strings = packed_struct.encode_variable(values)
            return strings, np.empty((0, 0), np.uint8), encoding
        case VariableValues():
            from lance_core.encoding.choose_strings import encode_zipped  # noqa: PLC0415 readers do not choose

            encoding, encoded = encode_zipped(values, options)
            return encoded, np.empty((0, 0), np.uint8), encoding
        case _:
            rows, encoding = _fixed_rows(values)
            return None, rows, encoding


def _control_words(levels: Levels) -> Bytes | None:
    """Return an array of shape (entries, bytes of a control word); None if there are no levels."""
    rep, definition = levels.rep, levels.definition
    bits_def = _def_bits(levels)
    bits = bits_def + max_rep(levels.layers).bit_length()
    if bits == 0:
        return None
    control_words = np.uint32(0) if definition is None else definition.astype(np.uint32)
    if rep is not None:
        control_words = control_words | (rep.astype(np.uint32) << np.uint32(bits_def))
    width = 1 if bits <= 8 else 2 if bits <= 16 else 4
    return np.asarray(control_words).astype(f"<u{width}").view(np.uint8).reshape(-1, width)


def _def_bits(levels: Levels) -> int:
    # As many as the layers need, not as occur: pylance 14.0.2 cannot join pages of lists with and without levels.
    return 0 if levels.definition is None else max_def(levels.layers).bit_length()


def _fixed_rows(values: LeafValues | None) -> tuple[Bytes, Encoding]:
    """Return an array of shape (n, bytes per value): validity bits of the items, then the items."""
    match values:
        case FixedValues(data):
            width = flat.bits_of(values) // 8
            return flat.to_bytes(data).reshape(-1, width), Flat(width * 8)
        case FixedListValues():
            lists, items = fixed_size_list.flatten(values)
            rows = flat.to_bytes(items.data).reshape(len(values), -1)
            bits = [
                _row_bitmap(list_layer.validity, len(values)) for list_layer in lists if list_layer.validity is not None
            ]
            return np.hstack([*bits, rows]) if bits else rows, fixed_size_list.encoding_of(values)
        case _:
            raise ValueError("not values of fixed width")


def _row_bitmap(validity: Mask, num_rows: int) -> Bytes:
    return np.packbits(validity.reshape(num_rows, -1), axis=1, bitorder="little")


def _zip_rows(control: Bytes | None, rows: Bytes, visible: Mask | None) -> tuple[Bytes, Int64s]:
    """Entries of fixed-width values, and the size of each."""
    if control is None:
        return rows.reshape(-1), np.full(len(rows), rows.shape[1], np.int64)
    skip, width = control.shape[1], rows.shape[1]
    if visible is None or visible.all():
        out: Bytes = empty(len(rows) * (skip + width), np.uint8)
        entries = out.reshape(len(rows), skip + width)
        entries[:, :skip] = control
        entries[:, skip:] = rows
        return out, np.full(len(rows), skip + width, np.int64)
    joined = _join(control, np.full(len(control), skip), rows.reshape(-1), starts_of(visible * width))
    return joined, skip + visible * np.int64(width)


def _zip_strings(
    control: Bytes | None, values: VariableValues, visible: Mask | None, has_value: Mask | None
) -> tuple[Bytes, Int64s]:
    """Entries of values of variable width, and the size of each."""
    width, num_entries = values.offsets.dtype.itemsize, len(values) if control is None else len(control)
    lengths = np.diff(values.offsets)
    if visible is not None:
        spread = np.zeros(num_entries, lengths.dtype)
        spread[visible] = lengths
        lengths = spread
    data = values.data
    if has_value is not None and lengths[~has_value].any():  # bytes left under nulls
        slots = has_value if visible is None else has_value[visible]
        data = gather(
            data, values.offsets[:-1][slots].astype(np.int64), np.diff(values.offsets)[slots].astype(np.int64)
        )
        lengths = np.where(has_value, lengths, 0)
    heads = lengths.astype(f"<u{width}").view(np.uint8).reshape(-1, width)
    if control is not None:
        heads = np.hstack([control, heads])
    head_sizes = np.full(num_entries, heads.shape[1], np.int64)
    if has_value is not None:
        head_sizes = np.where(has_value, head_sizes, heads.shape[1] - width)
    bounds = starts_of(lengths.astype(np.int64))
    return _join(heads, head_sizes, data[: int(bounds[-1])], bounds), head_sizes + lengths


def _join(heads: Bytes, head_sizes: Int64s, data: Bytes, bounds: Int64s) -> Bytes:
    """Return the first bytes of each head, followed by its part of the data."""
    starts = np.arange(len(heads), dtype=np.int64) * heads.shape[1]
    packed = gather(heads.reshape(-1), starts, head_sizes)
    return join_ranges((packed, starts_of(head_sizes)), (data, bounds))[0][: len(packed) + int(bounds[-1])]


def _encode_index(levels: Levels, sizes: Int64s) -> Bytes:
    bounds = starts_of(sizes)
    if levels.rep is not None:
        bounds = np.append(bounds[:-1][levels.rep == max_rep(levels.layers)], bounds[-1])
    end = int(bounds[-1])
    width = 1 if end < 2**8 else 2 if end < 2**16 else 4 if end < 2**32 else 8
    return bounds.astype(f"<u{width}").view(np.uint8)
