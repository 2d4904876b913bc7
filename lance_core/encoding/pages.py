"""Turn some rows of a top-level field into encoded pages: which layout a page gets, and where pages end."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from lance_core.common.frozen import frozen
from lance_core.encoding.arrow_values import (
    is_fieldless,
    json_to_binary,
    leaf_values,
    offset_dtype,
    slice_leaf,
    spread_over_nulls,
)
from lance_core.encoding.choose import LARGE_VALUE_BYTES, MAX_CHUNK_VALUES
from lance_core.encoding.choose_dictionary import build_dictionary
from lance_core.encoding.choose_strings import is_compressible
from lance_core.encoding.codecs import packed_struct
from lance_core.encoding.layouts import blob, constant, full_zip, mini_block, small_page
from lance_core.encoding.layouts.page import Decoded
from lance_core.encoding.leaves import shred
from lance_core.encoding.repdef import Levels, max_def, max_rep, max_visible_def, null_slots
from lance_core.encoding.values import DictionaryValues, FixedListValues, FixedValues, StructValues, VariableValues
from lance_core.errors import InvalidInputError
from lance_core.format.file.page_layout import Layer, MiniBlockLayout
from lance_core.format.schema import JSON

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from lance_core.encoding.layouts.page import EncodedPage
    from lance_core.encoding.leaves import LeafPath
    from lance_core.encoding.options import PageOptions
    from lance_core.encoding.repdef import Mask
    from lance_core.encoding.values import Int64s, LeafValues, Values

MAX_CHUNK_LEVELS = 2**16 - 1
_LEVEL_BIT_BUDGET = 2**17

_HUGE_VALUE_BYTES = 1 << 20
_MAX_CHUNKED_BYTES = 1 << 12
"""Mean size up to which strings that a codec makes much smaller stand in chunks."""
_MAX_DICTIONARY_VALUE_BYTES = 1 << 12


@frozen
class RowsPage:
    """A page and the number of its rows."""

    num_rows: int
    page: EncodedPage


def encode_leaf(path: LeafPath, array: pa.Array, options: PageOptions) -> Iterator[RowsPage]:
    """Encode one leaf of some rows.

    Args:
        path: The leaf.
        array: At least one row of the top-level field.
        options: How to write, from `page_options`.

    Raises:
        InvalidInputError: A row that no page can hold.
    """
    levels, leaf = shred(path, array)
    if path.leaf.logical_type == JSON:
        leaf = json_to_binary(leaf)
    return encode_shredded(path, levels, leaf, len(array), options)


def encode_blobs(levels: Levels, positions: Int64s, sizes: Int64s, options: PageOptions) -> Iterator[RowsPage]:
    """Encode where blobs of version 1 lie; arguments as in `blob.describing`."""
    rows = blob.describing(levels, positions, sizes)
    inner = Decoded(levels=Levels((Layer.ALL_VALID_ITEM,), None, None), values=rows, num_slots=len(rows))
    page = mini_block.encode(inner, None, options, packed_bits=blob.FIELD_BITS)
    assert page is not None  # noqa: S101 - two descriptions fit any chunk
    assert isinstance(page.layout, MiniBlockLayout)  # noqa: S101 - what `mini_block` encodes
    layout = replace(page.layout, blob_layers=levels.layers)
    yield RowsPage(len(rows), replace(page, layout=layout))


def encode_shredded(
    path: LeafPath, levels: Levels, leaf: pa.Array, num_rows: int, options: PageOptions
) -> Iterator[RowsPage]:
    """Encode the values of a leaf that have a slot; see `encode_leaf`."""
    if is_fieldless(leaf.type):
        yield RowsPage(num_rows, constant.encode_null(Levels((Layer.NULLABLE_ITEM,), None, None), options))
        return
    values = leaf_values(leaf, path.leaf.name)
    if isinstance(values, FixedValues):
        values = FixedValues(spread_over_nulls(values.data, leaf))
    decoded = Decoded(levels=levels, values=values, num_slots=len(leaf))
    for count, part, is_giant in _split(decoded, num_rows):
        yield RowsPage(count, _encode(part, leaf.type, path.leaf.name, options, is_giant=is_giant))


def _split(decoded: Decoded, num_rows: int) -> Iterator[tuple[int, Decoded, bool]]:
    """Cut rows with null or empty lists so that no chunk can collect more levels than it can count.

    Yields:
        Number of rows, the rows, and whether a single row is too large for chunks.
    """
    levels = decoded.levels
    if levels.rep is None or levels.definition is None:
        yield num_rows, decoded, False
        return
    budget = _level_budget(levels)
    if len(levels.rep) <= budget:
        yield num_rows, decoded, False
        return
    visible = levels.definition <= max_visible_def(levels.layers)
    if _most_levels(visible) <= budget:
        yield num_rows, decoded, False
        return
    row_starts = np.append(np.flatnonzero(levels.rep == max_rep(levels.layers)), len(levels.rep))
    slots = np.append(0, np.cumsum(visible))
    row = 0
    while row < num_rows:
        begin = int(row_starts[row])
        following = max(row + 1, int(np.searchsorted(row_starts, begin + budget, side="right")) - 1)
        end = int(row_starts[following])
        low, high = int(slots[begin]), int(slots[end])
        part = Decoded(
            levels=Levels(levels.layers, levels.rep[begin:end], levels.definition[begin:end]),
            values=_rebased(decoded.values, low, high),
            num_slots=high - low,
        )
        yield following - row, part, end - begin > budget
        row = following


def _most_levels(visible: Mask) -> int:
    """Return levels of the largest chunk, if all chunks hold as many values as they may."""
    ends = np.flatnonzero(visible)[MAX_CHUNK_VALUES - 1 :: MAX_CHUNK_VALUES] + 1
    return int(np.diff(ends, prepend=0, append=len(visible)).max())


def _level_budget(levels: Levels) -> int:
    bits = max_rep(levels.layers).bit_length() + max_def(levels.layers).bit_length()
    return min(MAX_CHUNK_LEVELS, _LEVEL_BIT_BUDGET // max(1, bits))


def _rebased(values: LeafValues | None, start: int, end: int) -> LeafValues | None:
    """Return some consecutive values; strings begin at offset 0."""
    part = slice_leaf(values, start, end)
    if isinstance(part, VariableValues):
        first, last = int(part.offsets[0]), int(part.offsets[-1])
        return VariableValues(part.offsets - part.offsets[0], part.data[first:last])
    return part


def _encode(decoded: Decoded, kind: pa.DataType, name: str, options: PageOptions, *, is_giant: bool) -> EncodedPage:
    levels, values = decoded.levels, decoded.values
    is_valid = None if levels.definition is None else levels.definition == 0
    if values is None or not decoded.num_slots or (is_valid is not None and not is_valid.any()):
        return constant.encode_null(levels, options)
    if isinstance(values, StructValues):
        return _encode_struct(decoded, values, name, options, is_giant=is_giant)
    if isinstance(values, DictionaryValues):
        _check_chunks(name, "dictionary type", is_giant=is_giant)
        return _in_chunks(mini_block.encode(decoded, (values.indices, values.items), options), name)
    if constant.is_worth_it(levels, decoded.num_slots, options):
        value = constant.constant_value(values, null_slots(levels))
        if value is not None:
            return constant.encode_single(levels, value, offset_dtype(kind))
    if is_giant:
        return _encode_giant(decoded, name, options)
    may_repeat, built = _mean_bytes(values) <= _MAX_DICTIONARY_VALUE_BYTES, None
    is_looked_up = may_repeat and isinstance(values, VariableValues) and decoded.num_slots > small_page.SMALL_VALUES
    if is_looked_up:
        built = build_dictionary(values, options)
    page = small_page.encode(decoded, options, built)
    if page is not None:
        return page
    if may_repeat and not is_looked_up:
        built = build_dictionary(values, options)
    if built is None and _is_zipped(values, options):
        return full_zip.encode(_as_whole_bytes(decoded), options)
    page = mini_block.encode(decoded, built, options)
    return full_zip.encode(decoded, options) if page is None else page


def _encode_struct(
    decoded: Decoded, values: StructValues, name: str, options: PageOptions, *, is_giant: bool
) -> EncodedPage:
    """Return a packed struct: in chunks if all its fields have a fixed width."""
    fixed = packed_struct.encode_fixed(values)
    if fixed is None:
        return full_zip.encode(decoded, options)
    _check_chunks(name, "packed struct", is_giant=is_giant)
    bits, rows = fixed
    return _in_chunks(mini_block.encode(replace(decoded, values=rows), None, options, packed_bits=bits), name)


def _in_chunks(page: EncodedPage | None, name: str) -> EncodedPage:
    if page is None:
        raise InvalidInputError(f"field {name!r}: values too large for the chunks of file version 2.1")
    return page


def _check_chunks(name: str, what: str, *, is_giant: bool) -> None:
    if is_giant:
        raise InvalidInputError(f"field {name!r}: a row with more than {MAX_CHUNK_LEVELS} lists of {what}")


def _encode_giant(decoded: Decoded, name: str, options: PageOptions) -> EncodedPage:
    """One row with more levels than a chunk can count."""
    values = decoded.values
    if isinstance(values, FixedListValues) and _item_bits(values) == 1:
        raise InvalidInputError(f"field {name!r}: a row with more than {MAX_CHUNK_LEVELS} lists of booleans")
    return full_zip.encode(_as_whole_bytes(decoded), options)


def _as_whole_bytes(decoded: Decoded) -> Decoded:
    """Full-zip pages hold booleans as bytes."""
    values = decoded.values
    if not isinstance(values, FixedValues) or values.data.dtype != np.bool_:
        return decoded
    return replace(decoded, values=FixedValues(values.data.view(np.uint8)))


def _item_bits(values: FixedListValues) -> int:
    items: Values = values
    while isinstance(items, FixedListValues):
        items = items.items
    if isinstance(items, VariableValues) or items.data.dtype == np.bool_:
        return 1
    return items.data[:1].nbytes * 8


def _mean_bytes(values: Values) -> float:
    match values:
        case VariableValues(offsets, _):
            return int(offsets[-1]) / max(1, len(values))
        case FixedValues(data):
            return data.nbytes / max(1, len(data))
        case FixedListValues():
            return 0.0


def _is_zipped(values: Values, options: PageOptions) -> bool:
    """Return whether values are zipped one by one instead of put into chunks."""
    if options.structural_encoding is not None:
        return options.structural_encoding == "fullzip"
    match values:
        case VariableValues(offsets, _):
            lengths: Int64s = np.diff(offsets)
            mean = _mean_bytes(values)
            if mean < LARGE_VALUE_BYTES or int(lengths.max()) >= _HUGE_VALUE_BYTES:
                return mean >= LARGE_VALUE_BYTES or int(lengths.max()) >= _HUGE_VALUE_BYTES
            # A chunk of some values under a codec is far smaller than each of them under it.
            return mean > _MAX_CHUNKED_BYTES or options.compression is not None or not is_compressible(values, options)
        case FixedValues():
            return _mean_bytes(values) >= LARGE_VALUE_BYTES
        case FixedListValues():
            if _is_bit_list(values):
                return False
            lists: Values = values
            count = 1
            while isinstance(lists, FixedListValues):
                count *= lists.dimension
                lists = lists.items
            return count * _item_bits(values) // 8 >= LARGE_VALUE_BYTES


def _is_bit_list(values: Values) -> bool:
    """Lists of booleans; pylance 14.0.2 cannot read them in full-zip pages with null items, or of odd length."""
    return isinstance(values, FixedListValues) and _item_bits(values) == 1
