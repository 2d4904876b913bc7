"""Pages of any number of columns at once, mostly in the layout of `mini_block`, which has the chunks of larger pages.

Arrays of all chunks of one page cost more than the work itself, so columns of one length and width take the steps
together, and get the pages that they would get alone. What encoding a page gets is decided by `choose`,
`choose_dictionary` and `choose_strings`, as for other pages; what they leave to runs, or to codecs for whole chunks, is
left to `mini_block`. A commit of a thousand rows writes a small page for each column: its sizes are known, not guessed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import NamedTuple
from lance_core.encoding.arrow_values import as_mask
from lance_core.encoding.choose import (
    LARGE_VALUE_BYTES,
    SMALL_CHUNK_BYTES,
    Way,
    choose_words,
    flat_count,
    is_packed_well,
)
from lance_core.encoding.choose_dictionary import build_dictionary, saves_bytes, string_bytes, word_bytes
from lance_core.encoding.choose_strings import may_be_compressed
from lance_core.encoding.codecs import dictionary, fastlanes, variable
from lance_core.encoding.codecs.fastlanes import BLOCK
from lance_core.encoding.kernels import chunk_counts, fitting_count, view_buffer
from lance_core.encoding.layouts import constant
from lance_core.encoding.layouts.page_parts import SMALL_VALUES, EncodedValues, assemble_page, stack_columns
from lance_core.encoding.repdef import NO_LEVELS, null_slots
from lance_core.encoding.values import FixedValues, VariableValues
from lance_core.format.file.encodings import Flat, InlineBitpacking, Variable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_core.encoding.layouts.page import Decoded, EncodedPage
    from lance_core.encoding.layouts.page_parts import Buffer
    from lance_core.encoding.options import PageOptions
    from lance_core.encoding.repdef import Levels
    from lance_core.encoding.values import Chunks

MAX_VALUES = 1 << 16
AT_ONCE = 64
"""Columns that are encoded together; with more, or more bytes, they leave the cache."""

_BYTES_AT_ONCE = AT_ONCE * SMALL_VALUES * 8
_MAX_LEVELS = 8 * BLOCK
_MAX_STRING_BYTES = 1 << 16
_DICTIONARY_WIDTH = 8
"""Bytes of values for which a dictionary is tried; one of anything shorter saves little."""
_LEAST_FOR_DICTIONARY = 100
_LOOKED_AT = 64
_SORTED_VALUES = 256
"""Up to so many values it takes less time to sort all columns together than to hash each of them."""
_MAX_SAME_ITEMS = 2

OFFSETS: dict[int, np.dtype[Any]] = {
    kind.id: np.dtype(offsets)
    for offsets, kinds in (("<i4", (pa.string(), pa.binary())), ("<i8", (pa.large_string(), pa.large_binary())))
    for kind in kinds
}
"""Type of the offsets, by the number of the Arrow type."""

_Built: TypeAlias = "tuple[FixedValues, FixedValues | VariableValues]"
"""Values as indices and items, from `build_dictionary`."""


class _Candidate(NamedTuple):
    """Values as indices into a dictionary.

    Attributes:
        indices: Shape (n,), unsigned.
        items: The dictionary.
        otherwise: Bytes that the values take without dictionary.
    """

    indices: npt.NDArray[Any]
    items: FixedValues | VariableValues
    otherwise: float


def encode(decoded: Decoded, options: PageOptions, built: _Built | None = None) -> EncodedPage | None:
    """Encode a page, known not to be all the same; None if there may be a better way.

    Args:
        decoded: Levels and values, at least one of them.
        options: How to write.
        built: The values as indices and items, if these save bytes; only for pages that are not small.
    """
    levels, values = decoded.levels, decoded.values
    if not may_be_encoded(levels, decoded.num_slots) or not options.asks_nothing:
        return None
    if built is not None:
        (best,) = _encode_items([built], options)
        return None if best is None else assemble_page(best, levels, options.version)
    match values:
        case FixedValues(data) if data.dtype == np.bool_:
            bits = np.packbits(data.view(np.uint8), bitorder="little").tobytes()
            return assemble_page(_flags(bits, len(data), options), levels, options.version)
        case FixedValues(data) if data.ndim == 1:
            return encode_words([data], options, [levels], may_be_constant=False)[0]
        case VariableValues() if decoded.num_slots <= SMALL_VALUES:
            return encode_strings([dictionary.to_arrow(values)], options, [levels], may_be_constant=False)[0]
        case _:
            return None


def may_be_encoded(levels: Levels, num_slots: int) -> bool:
    """Return whether a page has values, but neither more of them nor more levels than this module takes."""
    most = MAX_VALUES if levels.rep is None else SMALL_VALUES
    if not 0 < num_slots <= most or (levels.rep is not None and len(levels.rep) > _MAX_LEVELS):
        return False
    return levels.definition is None or int(np.count_nonzero(levels.definition)) < len(levels.definition)


def encode_words(
    columns: Sequence[npt.NDArray[Any]],
    options: PageOptions,
    levels: Sequence[Levels] = (),
    *,
    may_be_constant: bool = True,
) -> list[EncodedPage | None]:
    """Encode pages of fixed-width values of 8, 16, 32 or 64 bits.

    Args:
        columns: Unsigned integers of one type, at least one and at most `MAX_VALUES`; all equally many.
        options: How to write; nothing that a field asks for.
        levels: Levels of each column, without lists if it is no small page; none if no column has any.
        may_be_constant: Look for columns of one value.

    Returns:
        The page of each column; None if there may be a better way.
    """
    count, width = len(columns[0]), columns[0].itemsize
    levels = levels or [NO_LEVELS] * len(columns)
    pages: list[EncodedPage | None] = []
    step = max(1, min(AT_ONCE, _BYTES_AT_ONCE // (count * width)))
    for low in range(0, len(columns), step):
        stacked = _stacked(columns[low : low + step], columns[0].dtype)
        some = levels[low : low + step]
        constants = [
            _constant_page(row, changes, column_levels, options)
            if may_be_constant and not (changes and column_levels is NO_LEVELS)
            else None
            for row, changes, column_levels in zip(stacked.data, stacked.changes, some, strict=True)
        ]
        encoded = _encode_stacked(stacked, [page is not None for page in constants], options)
        pages += [
            page if values is None else assemble_page(values, column_levels, options.version)
            for page, values, column_levels in zip(constants, encoded, some, strict=True)
        ]
    return pages


def _constant_page(row: npt.NDArray[Any], changes: int, levels: Levels, options: PageOptions) -> EncodedPage | None:
    """Return the page of words that are all the same; None if they are not, or another page is better."""
    if not constant.is_worth_it(levels, len(row), options):
        return None
    is_null = null_slots(levels)
    if changes:
        if is_null is None or changes > 2 * int(np.count_nonzero(is_null)):  # one before and one behind each null
            return None
        valid = row[~is_null]
        if (valid != valid[0]).any():
            return None
    first = 0 if is_null is None else int(is_null.argmin())
    return constant.encode_single(levels, row[first : first + 1].view(np.uint8), None)


def encode_flags(
    columns: Sequence[pa.Array], options: PageOptions, levels: Sequence[Levels]
) -> list[EncodedPage | None]:
    """Encode pages of booleans.

    Args:
        columns: Booleans, at least one and at most `MAX_VALUES`.
        options: As in `encode_words`.
        levels: Likewise.

    Returns:
        The page of each column; None if there may be a better way.
    """
    pages: list[EncodedPage | None] = []
    for array, column_levels in zip(columns, levels, strict=True):
        is_same = array.true_count in (0, len(array) - array.null_count)
        if is_same and constant.is_worth_it(column_levels, len(array), options):
            pages.append(constant.encode_single(column_levels, np.array([array.true_count > 0]).view(np.uint8), None))
            continue
        bits = np.packbits(as_mask(array), bitorder="little").tobytes()
        pages.append(assemble_page(_flags(bits, len(array), options), column_levels, options.version))
    return pages


def _flags(bits: bytes, count: int, options: PageOptions) -> EncodedValues:
    """Booleans as chunks."""
    per_chunk = min(count, flat_count(1, options))
    step = -(-per_chunk // 8)
    return EncodedValues(Flat, 1, count, per_chunk, [bits[at : at + step] for at in range(0, len(bits), step)])


class _Stacked(NamedTuple):
    """Columns of equally many words.

    Attributes:
        blocks: Shape (columns, blocks, 1024), zero behind the last value.
        data: Shape (columns, n): the same without those zeros.
        widths: Bits that each block of each column needs.
        packed_bytes: Bytes of each column if its blocks are packed, each behind its width.
        changes: How often a value of each column is another one than that before it.
    """

    blocks: npt.NDArray[Any]
    data: npt.NDArray[Any]
    widths: list[list[int]]
    packed_bytes: list[int]
    changes: list[int]


def _stacked(columns: Sequence[npt.NDArray[Any]], kind: np.dtype[Any]) -> _Stacked:
    blocks = stack_columns(columns, kind)
    data, widths = blocks.reshape(len(columns), -1)[:, : len(columns[0])], _widths(blocks)
    heads = blocks.shape[1] * kind.itemsize
    packed_bytes = [sum(block_widths) * (BLOCK // 8) + heads for block_widths in widths]
    has_changed = (data[:, 1:] != data[:, :-1]).view(np.uint8)
    changes = np.add.reduce(has_changed, axis=1, dtype=np.uint32).tolist()
    return _Stacked(blocks, data, widths, packed_bytes, changes)


def _encode_stacked(
    stacked: _Stacked, is_done: Sequence[bool], options: PageOptions, *, is_index: bool = False
) -> list[EncodedValues | None]:
    """Encode words as `choose_words` says; what may have runs is left to others."""
    data = stacked.data
    (num_columns, count), width = data.shape, data.itemsize
    is_small = count <= SMALL_VALUES
    # Plain numbers: what is decided for each column takes less time than a dozen arrays of so few.
    run_bytes = [(1 + changes) * (width + 1) for changes in stacked.changes]
    encoded: list[EncodedValues | None] = [None] * num_columns
    if width == _DICTIONARY_WIDTH and not is_index:
        if is_small:
            encoded = _repeated_in_small(stacked, run_bytes, is_done, options)
        else:
            encoded = _repeated_in_large(stacked, is_done, options)
    per_chunk, packed = flat_count(width * 8, options, is_small=is_small), list[int]()
    for at, row in enumerate(data):
        if is_done[at] or encoded[at] is not None:
            continue
        match choose_words(row, stacked.packed_bytes[at], run_bytes[at], options, is_small=is_small):
            case Way.PACKED:
                packed.append(at)
            case Way.PLAIN:
                encoded[at] = _plain(row, per_chunk)
            case Way.RUNS:
                continue
            case encoding, chunks:
                pieces = _pieces(chunks)
                encoded[at] = EncodedValues(Flat, width * 8, count, per_chunk, pieces, compressed=encoding)
    _pack_some(stacked, packed, encoded)
    return encoded


def _pieces(chunks: Chunks) -> list[Buffer]:
    """Return the first buffer of each chunk."""
    memory = chunks.buffers[0].data
    ranges = zip(chunks.starts[0].tolist(), chunks.sizes[0].tolist(), strict=True)
    return [memory[start : start + size] for start, size in ranges]


def _repeated_in_large(stacked: _Stacked, is_done: Sequence[bool], options: PageOptions) -> list[EncodedValues | None]:
    """Encode columns whose samples have values twice as indices and items, where `build_dictionary` says so."""
    data = stacked.data
    some = np.sort(data[:, dictionary.sparse_positions(data.shape[1])], axis=1)
    repeats = (some[:, 1:] == some[:, :-1]).any(axis=1).tolist()
    return _encode_items(
        [
            build_dictionary(FixedValues(row), options) if may_repeat and not done else None
            for row, may_repeat, done in zip(data, repeats, is_done, strict=True)
        ],
        options,
    )


def _encode_items(columns: Sequence[_Built | None], options: PageOptions) -> list[EncodedValues | None]:
    """Encode the indices of columns that are indices and items; those of one type together."""
    encoded: list[EncodedValues | None] = [None] * len(columns)
    alike: dict[np.dtype[Any], dict[int, _Built]] = {}
    for at, built in enumerate(columns):
        if built is not None:
            alike.setdefault(built[0].data.dtype, {})[at] = built
    for kind, members in alike.items():
        stacked = _stacked([indices.data for indices, _ in members.values()], kind)
        indices = _encode_stacked(stacked, [False] * len(members), options, is_index=True)
        for (at, built), values in zip(members.items(), indices, strict=True):
            encoded[at] = None if values is None else values._replace(items=built[1])
    return encoded


def _pack_some(stacked: _Stacked, columns: Sequence[int], encoded: list[EncodedValues | None]) -> None:
    """Pack some columns."""
    bits, count = stacked.blocks.itemsize * 8, stacked.data.shape[1]
    for at, buffers in zip(columns, _pack(stacked.blocks, stacked.widths, columns), strict=True):
        encoded[at] = EncodedValues(InlineBitpacking, bits, count, BLOCK, buffers)


def _plain(data: npt.NDArray[Any], per_chunk: int, items: FixedValues | VariableValues | None = None) -> EncodedValues:
    """Return values, or indices of items, as they are."""
    memory, step = data.data.cast("B"), per_chunk * data.itemsize
    buffers: list[Buffer] = [memory[start : start + step] for start in range(0, len(memory), step)]
    return EncodedValues(Flat, data.itemsize * 8, len(data), per_chunk, buffers, items)


def _repeated_in_small(
    stacked: _Stacked, run_bytes: Sequence[int], is_done: Sequence[bool], options: PageOptions
) -> list[EncodedValues | None]:
    """Encode columns of which a sample has values twice as indices and items, where packing does little."""
    data, count = stacked.data, stacked.data.shape[1]
    if count < _LEAST_FOR_DICTIONARY:
        return [None] * len(data)
    candidates: list[_Candidate | None] = [None] * len(data)
    plain_bytes, is_whole = data[0].nbytes, count <= _SORTED_VALUES
    some = data[:, :: 1 if is_whole else -(-count // _LOOKED_AT)].copy()
    some.sort(axis=1)
    is_first = np.ones(some.shape, np.bool_)
    np.not_equal(some[:, 1:], some[:, :-1], out=is_first[:, 1:])
    distinct = is_first.sum(axis=1)
    may_pay = distinct * 2 <= count if is_whole else distinct * 4 <= some.shape[1] * 3
    for at in may_pay.nonzero()[0].tolist():
        packed_bytes = stacked.packed_bytes[at]
        if is_done[at] or is_packed_well(plain_bytes, packed_bytes):
            continue
        most = word_bytes(plain_bytes, packed_bytes, run_bytes[at], is_small=True)
        if is_whole:
            items = some[at][is_first[at]]
            candidates[at] = _Candidate(items.searchsorted(data[at]), FixedValues(items), most)
            continue
        built = dictionary.build(FixedValues(data[at]), most=count // options.dict_divisor)
        if built is not None:
            candidates[at] = _Candidate(built[0].data, built[1], most)
    return _with_dictionaries(candidates, count, options)


def encode_strings(
    columns: Sequence[pa.Array], options: PageOptions, levels: Sequence[Levels] = (), *, may_be_constant: bool = True
) -> list[EncodedPage | None]:
    """Encode small pages of strings.

    Args:
        columns: Strings or binaries without nulls, at least one and at most `SMALL_VALUES`; all equally many.
        options: As in `encode_words`.
        levels: Likewise.
        may_be_constant: Likewise.

    Returns:
        The page of each column; None if there may be a better way.
    """
    pages: list[EncodedPage | None] = []
    is_short = len(columns[0]) < _LEAST_FOR_DICTIONARY
    levels = levels or [NO_LEVELS] * len(columns)
    for low in range(0, len(columns), AT_ONCE):
        some = columns[low : low + AT_ONCE]
        candidates = [None if is_short else _find_distinct(array, options) for array in some]
        encoded = _with_dictionaries(candidates, len(columns[0]), options)
        for array, candidate, values, column_levels in zip(
            some, candidates, encoded, levels[low : low + AT_ONCE], strict=True
        ):
            # Null slots hold nothing, mostly: an item beside the one that all others have.
            page = None
            if may_be_constant and (candidate is None or len(candidate.items) <= _MAX_SAME_ITEMS):
                page = _constant_strings(array, column_levels, options)
            if page is None:
                best = _plain_strings(array, options) if values is None else values
                page = None if best is None else assemble_page(best, column_levels, options.version)
            pages.append(page)
    return pages


def _constant_strings(array: pa.Array, levels: Levels, options: PageOptions) -> EncodedPage | None:
    """Return the page of strings that are all the same; None if they are not, or another page is better."""
    if not constant.is_worth_it(levels, len(array), options):
        return None
    offsets, _ = _offsets_of(array)
    is_null = null_slots(levels)
    value = constant.constant_value(VariableValues(offsets, view_buffer(array.buffers()[2])), is_null)
    return None if value is None else constant.encode_single(levels, value, offsets.dtype)


def _offsets_of(array: pa.Array) -> tuple[npt.NDArray[Any], int]:
    """Offsets of strings, and the bytes of all of them."""
    kind = OFFSETS[array.type.id]
    offsets: npt.NDArray[Any] = np.frombuffer(array.buffers()[1], kind, len(array) + 1, array.offset * kind.itemsize)
    return offsets, int(offsets[-1]) - int(offsets[0])


def _find_distinct(array: pa.Array, options: PageOptions) -> _Candidate | None:
    """Strings as indices into a dictionary, if that may pay."""
    offsets, num_bytes = _offsets_of(array)
    count = len(array)
    if num_bytes > min(_MAX_STRING_BYTES, LARGE_VALUE_BYTES * count):
        return None
    encoded = array.dictionary_encode()
    items = encoded.dictionary
    if len(items) > count // options.dict_divisor:
        return None
    _, bounds, data = items.buffers()
    item_offsets: npt.NDArray[Any] = np.frombuffer(bounds, offsets.dtype, len(items) + 1)
    indices: npt.NDArray[Any] = np.frombuffer(encoded.indices.buffers()[1], "<u4", count)
    return _Candidate(indices, VariableValues(item_offsets, view_buffer(data)), string_bytes(num_bytes, count))


def _plain_strings(array: pa.Array, options: PageOptions) -> EncodedValues | None:
    """Strings behind their offsets; None if a codec may pay, or values are better zipped."""
    offsets, num_bytes = _offsets_of(array)
    count = len(array)
    if may_be_compressed(num_bytes, options) or num_bytes > LARGE_VALUE_BYTES * count:
        return None
    strings = VariableValues(offsets, view_buffer(array.buffers()[2]))
    per_chunk = fitting_count(variable.mean_bytes(strings), SMALL_CHUNK_BYTES)
    chunks = variable.encode_chunks(strings, chunk_counts(count, per_chunk))
    return EncodedValues(Variable, offsets.itemsize * 8, count, per_chunk, _pieces(chunks))


def _with_dictionaries(
    columns: Sequence[_Candidate | None], count: int, options: PageOptions
) -> list[EncodedValues | None]:
    """Packed indices and items of each column, if these leave enough of what the values take otherwise."""
    alike: dict[str, list[int]] = {}
    encoded_columns: list[EncodedValues | None] = [None] * len(columns)
    for at, candidate in enumerate(columns):
        if candidate is None:
            continue
        num_items = len(candidate.items)
        kind = np.dtype(dictionary.index_dtype(num_items))
        # Blocks of packed values are filled up: of a hundred values that takes more than their bytes.
        flat_bytes = count * kind.itemsize
        if flat_bytes > -(-count // BLOCK) * (BLOCK // 8) * (num_items - 1).bit_length():
            alike.setdefault(kind.str, []).append(at)
        elif saves_bytes(flat_bytes, candidate.items, candidate.otherwise, options):
            per_chunk = flat_count(kind.itemsize * 8, options, is_small=True)
            encoded_columns[at] = _plain(candidate.indices.astype(kind, copy=False), per_chunk, candidate.items)
    for kind, positions in alike.items():
        some = [candidate for at in positions if (candidate := columns[at]) is not None]
        blocks = stack_columns([candidate.indices for candidate in some], np.dtype(kind))
        widths = _widths(blocks)
        sizes = [sum(block_widths) * (BLOCK // 8) for block_widths in widths]
        pays = [
            at
            for at, (size, candidate) in enumerate(zip(sizes, some, strict=True))
            if saves_bytes(size, candidate.items, candidate.otherwise, options)
        ]
        for at, buffers in zip(pays, _pack(blocks, widths, pays), strict=True):
            encoded_columns[positions[at]] = EncodedValues(
                InlineBitpacking, blocks.itemsize * 8, count, BLOCK, buffers, some[at].items
            )
    return encoded_columns


def _widths(blocks: npt.NDArray[Any]) -> list[list[int]]:
    """Return the bits that each block of each column needs."""
    per_column = blocks.shape[1]
    widths = [word.bit_length() for word in np.bitwise_or.reduce(blocks, axis=2).ravel().tolist()]
    return [widths[at : at + per_column] for at in range(0, len(widths), per_column)]


def _pack(blocks: npt.NDArray[Any], widths: list[list[int]], columns: Sequence[int]) -> list[list[bytes]]:
    """Return the chunks of some columns, each of one block: its width, and its packed values."""
    if not columns:
        return []
    # The blocks of all columns that need the same width are packed together, then dealt out in the order of columns.
    flat_widths = [width for column in columns for width in widths[column]]
    some = (blocks if len(columns) == len(blocks) else blocks[columns]).reshape(-1, BLOCK)
    packed = [width.to_bytes(blocks.itemsize, "little") for width in flat_widths]
    for width in {*flat_widths} - {0}:
        chosen = [at for at, other in enumerate(flat_widths) if other == width]
        alike = some if len(chosen) == len(some) else some[chosen]
        values = np.ascontiguousarray(fastlanes.pack(alike, width).transpose(1, 0, 2))
        for at, block in zip(chosen, values.reshape(len(chosen), -1), strict=True):
            packed[at] += block.tobytes()
    per_column = blocks.shape[1]
    return [packed[at : at + per_column] for at in range(0, len(packed), per_column)]
