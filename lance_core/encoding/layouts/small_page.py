"""Mini-block pages of few values, of any number of columns at once: the layout of `mini_block`.

A commit of a thousand rows writes such a page for each column. Samples, and arrays of all chunks of one page, cost more
there than the work itself, and a chunk more or less costs nothing. So fewer encodings are considered (what compresses
whole chunks well is left to `mini_block`), their sizes are known, not guessed, and columns of one length and width take
the steps together.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import NamedTuple
from lance_core.encoding.choose_dictionary import encode_dictionary
from lance_core.encoding.codecs import dictionary, fastlanes, variable
from lance_core.encoding.codecs.fastlanes import BLOCK
from lance_core.encoding.kernels import chunk_counts, fitting_count, view_buffer
from lance_core.encoding.layouts.chunk_table import encode_repetition_index, level_bounds
from lance_core.encoding.layouts.page import EncodedPage
from lance_core.encoding.repdef import Levels, max_rep
from lance_core.encoding.values import FixedValues, VariableValues
from lance_core.format.file.encodings import Flat, InlineBitpacking, OutOfLineBitpacking, Variable
from lance_core.format.file.page_layout import Layer, MiniBlockLayout, encode_layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_core.encoding.layouts.page import Decoded
    from lance_core.encoding.options import PageOptions
    from lance_core.encoding.repdef import LevelArray
    from lance_core.format.file.encodings import Encoding

MAX_VALUES = 4 * BLOCK
AT_ONCE = 64
"""Columns that are encoded together; with more, they leave the cache."""
NO_LEVELS = Levels((Layer.ALL_VALID_ITEM,), None, None)

_MAX_LEVELS = 8 * BLOCK
_MAX_PLAIN_BYTES = 1 << 12
"""Strings of more bytes may be worth a codec."""
_MAX_STRING_BYTES = 1 << 16
_MAX_MEAN_BYTES = 256
_CHUNK_BYTES = 1 << 13
_MAX_CHUNK = 1 << 15

_PACKED_PAYS = 0.85
_DICTIONARY_PAYS = 0.8
_PACKED_WELL = 0.125
"""Of the flat bytes: nothing saves much on values packed so well."""
_RUNS_PAY = 0.75
_LEAST_RUN_BYTES = 512
"""Runs that take less than this are not worth the time, if there is a dictionary of that size."""
_DICTIONARY_WIDTH = 8
"""Bytes of values for which a dictionary is tried; one of anything shorter saves little."""
_LEAST_FOR_DICTIONARY = 100
_LOOKED_AT = 64
_LEVEL_BITS = 16
_PAD = b"\xfe"

OFFSETS: dict[int, np.dtype[Any]] = {
    kind.id: np.dtype(offsets)
    for offsets, kinds in (("<i4", (pa.string(), pa.binary())), ("<i8", (pa.large_string(), pa.large_binary())))
    for kind in kinds
}
"""Type of the offsets, by the number of the Arrow type."""

_Buffer: TypeAlias = bytes | memoryview


class _Values(NamedTuple):
    """Encoded values of a page.

    Attributes:
        kind: How they are encoded: `Flat`, `InlineBitpacking` or `Variable`.
        bits: The parameter of the encoding.
        num_values: How many they are.
        per_chunk: Values in each chunk but the last.
        buffers: The value buffer of each chunk.
        items: Items of the dictionary, if there is one.
    """

    kind: type[Flat | InlineBitpacking | Variable]
    bits: int
    num_values: int
    per_chunk: int
    buffers: Sequence[_Buffer]
    items: FixedValues | VariableValues | None = None


class _Candidate(NamedTuple):
    """Values as indices into a dictionary.

    Attributes:
        indices: Shape (n,), unsigned.
        items: The dictionary.
        most: Bytes that the values take otherwise.
    """

    indices: npt.NDArray[Any]
    items: FixedValues | VariableValues
    most: int


def encode(decoded: Decoded, options: PageOptions) -> EncodedPage | None:
    """Encode a page of few values, known not to be all the same; None if there may be a better way.

    Args:
        decoded: Levels and values, at least one of them.
        options: How to write.
    """
    levels, values = decoded.levels, decoded.values
    num_levels = max(0 if side is None else len(side) for side in (levels.rep, levels.definition))
    if decoded.num_slots > MAX_VALUES or num_levels > _MAX_LEVELS or not options.asks_nothing:
        return None
    match values:
        case FixedValues(data) if data.dtype == np.bool_:
            bits = np.packbits(data.view(np.uint8), bitorder="little").tobytes()
            return _page(_Values(Flat, 1, len(data), len(data), [bits]), levels, options.version)
        case FixedValues(data) if data.ndim == 1:
            return encode_words([data], options.version, levels, may_be_constant=False)[0]
        case VariableValues():
            return encode_strings([dictionary.to_arrow(values)], options.version, levels, may_be_constant=False)[0]
        case _:
            return None


def encode_words(
    columns: Sequence[npt.NDArray[Any]], version: str, levels: Levels = NO_LEVELS, *, may_be_constant: bool = True
) -> list[EncodedPage | None]:
    """Encode pages of fixed-width values of 8, 16, 32 or 64 bits.

    Args:
        columns: Unsigned integers of one type, at least one and at most `MAX_VALUES`; all equally many.
        version: Version of the file, by name.
        levels: Levels of each column.
        may_be_constant: Leave columns of one value to the constant layout, where the version has it.

    Returns:
        The page of each column; None if there may be a better way.
    """
    leaves_constants = may_be_constant and version != "2.1"
    encoded: list[_Values | None] = []
    for low in range(0, len(columns), AT_ONCE):
        encoded += _encode_words(columns[low : low + AT_ONCE], leaves_constants=leaves_constants)
    return [None if values is None else _page(values, levels, version) for values in encoded]


def _encode_words(columns: Sequence[npt.NDArray[Any]], *, leaves_constants: bool) -> list[_Values | None]:
    count, width = len(columns[0]), columns[0].itemsize
    blocks = _stack(columns, columns[0].dtype)
    data = blocks.reshape(len(columns), -1)[:, :count]
    widths, plain = _widths(blocks), count * width
    changes = (data[:, 1:] != data[:, :-1]).sum(axis=1).tolist()
    # Plain numbers: what is decided for each column takes less time than a dozen arrays of so few.
    heads = blocks.shape[1] * width
    best = [min(plain, sum(block_widths) * (BLOCK // 8) + heads) for block_widths in widths]
    run_bytes = [(1 + changing) * (width + 1) for changing in changes]
    encoded_columns: list[_Values | None] = [None] * len(columns)
    if width == _DICTIONARY_WIDTH and count >= _LEAST_FOR_DICTIONARY:
        encoded_columns = _with_dictionaries(_find_repeated(data, best, run_bytes), count)
    packed: list[int] = []
    for at, (size, changing, of_runs) in enumerate(zip(best, changes, run_bytes, strict=True)):
        if encoded_columns[at] is not None or (leaves_constants and not changing):
            continue
        has_runs = of_runs <= size * _RUNS_PAY >= _LEAST_RUN_BYTES
        if size <= plain * _PACKED_WELL or (size <= plain * _PACKED_PAYS and not has_runs):
            packed.append(at)
        elif not has_runs:
            per_chunk = fitting_count(width, _CHUNK_BYTES)
            memory, step = data[at].data.cast("B"), per_chunk * width
            pieces = [memory[start : start + step] for start in range(0, plain, step)]
            encoded_columns[at] = _Values(Flat, width * 8, count, per_chunk, pieces)
    for at, buffers in zip(packed, _pack(blocks, widths, packed), strict=True):
        encoded_columns[at] = _Values(InlineBitpacking, width * 8, count, BLOCK, buffers)
    return encoded_columns


def _find_repeated(
    data: npt.NDArray[Any], packed_bytes: Sequence[int], run_bytes: Sequence[int]
) -> list[_Candidate | None]:
    """Rows of values as indices into dictionaries, where a sample has repeated values and packing does little."""
    some = data[:, :: -(-data.shape[1] // _LOOKED_AT)].copy()
    some.sort(axis=1)
    distinct = 1 + (some[:, 1:] != some[:, :-1]).sum(axis=1)
    candidates: list[_Candidate | None] = [None] * len(data)
    for at in (distinct * 4 <= some.shape[1] * 3).nonzero()[0].tolist():
        if packed_bytes[at] <= data[0].nbytes * _PACKED_WELL:
            continue
        built = dictionary.build(FixedValues(data[at]), most=data.shape[1] // 2)
        if built is not None:
            candidates[at] = _Candidate(
                built[0].data, built[1], min(packed_bytes[at], max(_LEAST_RUN_BYTES, run_bytes[at]))
            )
    return candidates


def encode_strings(
    columns: Sequence[pa.Array], version: str, levels: Levels = NO_LEVELS, *, may_be_constant: bool = True
) -> list[EncodedPage | None]:
    """Encode pages of strings.

    Args:
        columns: Strings or binaries without nulls, at least one and at most `MAX_VALUES`; all equally many.
        version: Version of the file, by name.
        levels: Levels of each column.
        may_be_constant: As in `encode_words`.

    Returns:
        The page of each column; None if there may be a better way.
    """
    pages: list[EncodedPage | None] = []
    leaves_constants, is_short = may_be_constant and version != "2.1", len(columns[0]) < _LEAST_FOR_DICTIONARY
    for low in range(0, len(columns), AT_ONCE):
        some = columns[low : low + AT_ONCE]
        candidates = [None if is_short else _find_distinct(array) for array in some]
        for array, candidate, values in zip(
            some, candidates, _with_dictionaries(candidates, len(columns[0])), strict=True
        ):
            if leaves_constants and (is_short or (candidate is not None and len(candidate.items) == 1)):
                pages.append(None)
                continue
            best = _plain_strings(array) if values is None else values
            pages.append(None if best is None else _page(best, levels, version))
    return pages


def _offsets_of(array: pa.Array) -> tuple[npt.NDArray[Any], int]:
    """Offsets of strings, and the bytes of all of them."""
    kind = OFFSETS[array.type.id]
    offsets: npt.NDArray[Any] = np.frombuffer(array.buffers()[1], kind, len(array) + 1, array.offset * kind.itemsize)
    return offsets, int(offsets[-1]) - int(offsets[0])


def _find_distinct(array: pa.Array) -> _Candidate | None:
    """Strings as indices into a dictionary, if that may pay."""
    offsets, num_bytes = _offsets_of(array)
    count = len(array)
    if num_bytes > min(_MAX_STRING_BYTES, _MAX_MEAN_BYTES * count):
        return None
    encoded = array.dictionary_encode()
    items = encoded.dictionary
    if len(items) > count // 2:
        return None
    _, bounds, data = items.buffers()
    item_offsets: npt.NDArray[Any] = np.frombuffer(bounds, offsets.dtype, len(items) + 1)
    indices: npt.NDArray[Any] = np.frombuffer(encoded.indices.buffers()[1], "<u4", count)
    return _Candidate(indices, VariableValues(item_offsets, view_buffer(data)), num_bytes + 2 * count)


def _plain_strings(array: pa.Array) -> _Values | None:
    """Strings behind their offsets; None if a codec may pay, or values are better zipped."""
    offsets, num_bytes = _offsets_of(array)
    count = len(array)
    if num_bytes > min(_MAX_PLAIN_BYTES, _MAX_MEAN_BYTES * count):
        return None
    strings = VariableValues(offsets, view_buffer(array.buffers()[2]))
    per_chunk = fitting_count(variable.mean_bytes(strings), _CHUNK_BYTES)
    chunks = variable.encode_chunks(strings, chunk_counts(count, per_chunk))
    memory = chunks.buffers[0].data
    ranges = zip(chunks.starts[0].tolist(), chunks.sizes[0].tolist(), strict=True)
    buffers = [memory[start : start + size] for start, size in ranges]
    return _Values(Variable, offsets.itemsize * 8, count, per_chunk, buffers)


def _with_dictionaries(columns: Sequence[_Candidate | None], count: int) -> list[_Values | None]:
    """Packed indices and items of each column, if these leave enough of what the values take otherwise."""
    alike: dict[str, list[int]] = {}
    for at, candidate in enumerate(columns):
        if candidate is not None:
            alike.setdefault(dictionary.index_dtype(len(candidate.items)), []).append(at)
    encoded_columns: list[_Values | None] = [None] * len(columns)
    for kind, positions in alike.items():
        some = [candidate for at in positions if (candidate := columns[at]) is not None]
        blocks = _stack([candidate.indices for candidate in some], np.dtype(kind))
        widths = _widths(blocks)
        pays = [at for at, block_widths in enumerate(widths) if _pays(sum(block_widths) * (BLOCK // 8), some[at])]
        for at, buffers in zip(pays, _pack(blocks, widths, pays), strict=True):
            encoded_columns[positions[at]] = _Values(
                InlineBitpacking, blocks.itemsize * 8, count, BLOCK, buffers, some[at].items
            )
    return encoded_columns


def _pays(packed_bytes: int, candidate: _Candidate) -> bool:
    items = candidate.items
    item_bytes = items.data.nbytes + (items.offsets.nbytes if isinstance(items, VariableValues) else 0)
    return packed_bytes + item_bytes <= candidate.most * _DICTIONARY_PAYS


def _stack(columns: Sequence[npt.NDArray[Any]], kind: np.dtype[Any]) -> npt.NDArray[Any]:
    """Columns of equally many values as one type, shape (columns, blocks, 1024), zero behind the last value."""
    count = len(columns[0])
    num_blocks = -(-count // BLOCK)
    padded = np.zeros((len(columns), num_blocks * BLOCK), kind)
    for row, values in zip(padded, columns, strict=True):
        row[:count] = values
    return padded.reshape(len(columns), num_blocks, BLOCK)


def _widths(blocks: npt.NDArray[Any]) -> list[list[int]]:
    """Return the bits that each block of each column needs."""
    per_column = blocks.shape[1]
    widths = [word.bit_length() for word in np.bitwise_or.reduce(blocks, axis=2).ravel().tolist()]
    return [widths[at : at + per_column] for at in range(0, len(widths), per_column)]


def _pack(blocks: npt.NDArray[Any], widths: list[list[int]], columns: Sequence[int]) -> list[list[bytes]]:
    """Return the chunks of some columns, each of one block: its width, and its packed values."""
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


def _page(values: _Values, levels: Levels, version: str) -> EncodedPage | None:
    """Put a page together; None if a chunk is too large for version 2.1."""
    is_large = version != "2.1"
    items, num_items = None, 0
    buffers: list[Any] = []
    if values.items is not None:
        items, block = encode_dictionary(values.items)
        num_items, buffers = len(values.items), [block]
    if levels.definition is None and levels.layers == NO_LEVELS.layers:
        table, heads, pads = _frames(tuple(map(len, values.buffers)), values.per_chunk, is_large=is_large)
        chunks = b"".join([part for parts in zip(heads, values.buffers, pads, strict=True) for part in parts])
        layout, encoded = _layout_of(values.kind, values.bits, values.num_values, items, num_items, is_large=is_large)
        return EncodedPage(layout=layout, buffers=[table, chunks, *buffers], encoded_layout=encoded)
    counts = chunk_counts(values.num_values, values.per_chunk)
    bounds = level_bounds(levels, counts)
    encoded_levels = [_encode_levels(side, bounds.tolist()) for side in (levels.rep, levels.definition)]
    pieces = [side[1] for side in encoded_levels if side is not None]
    joined = _join_chunks(values, pieces, bounds.tolist(), is_large=is_large)
    if joined is None:
        return None
    if levels.rep is not None:
        buffers.append(encode_repetition_index(levels.rep, bounds, max_rep(levels.layers)))
    rep, definition = [None if side is None else side[0] for side in encoded_levels]
    layout = MiniBlockLayout(
        rep=rep,
        definition=definition,
        values=values.kind(values.bits),
        dictionary=items,
        num_dictionary_items=num_items,
        layers=levels.layers,
        num_buffers=1,
        has_repetition_index=levels.rep is not None,
        num_items=values.num_values,
        has_large_chunk=is_large,
    )
    return EncodedPage(layout=layout, buffers=[*joined, *buffers])


@lru_cache(maxsize=64)
def _layout_of(
    kind: type[Flat | InlineBitpacking | Variable],
    bits: int,
    count: int,
    items: Encoding | None,
    num_items: int,
    *,
    is_large: bool,
) -> tuple[MiniBlockLayout, bytes]:
    """Return the layout of a page without levels, as value and as bytes."""
    layout = MiniBlockLayout(
        rep=None,
        definition=None,
        values=kind(bits),
        dictionary=items,
        num_dictionary_items=num_items,
        layers=NO_LEVELS.layers,
        num_buffers=1,
        has_repetition_index=False,
        num_items=count,
        has_large_chunk=is_large,
    )
    return layout, encode_layout(layout)


@lru_cache(maxsize=256)
def _frames(sizes: tuple[int, ...], per_chunk: int, *, is_large: bool) -> tuple[bytes, list[bytes], list[bytes]]:
    """Make what stands around chunks without levels.

    Args:
        sizes: Bytes of the values of each chunk, all of which fit.
        per_chunk: Values in all chunks but the last.
        is_large: For version 2.2 and newer.

    Returns:
        Chunk metadata; for each chunk what stands before the bytes of its values, and behind them.
    """
    header = struct.Struct("<HI" if is_large else "<HH")
    heads = [header.pack(0, size).ljust(8, _PAD) for size in sizes]
    pads = [_PAD * (-size % 8) for size in sizes]
    whole = [8 + size + len(pad) for size, pad in zip(sizes, pads, strict=True)]
    return _chunk_words(whole, per_chunk, is_large=is_large), heads, pads


def _chunk_words(sizes: list[int], per_chunk: int, *, is_large: bool) -> bytes:
    """Chunk metadata; see `chunk_table.encode_words`."""
    log = per_chunk.bit_length() - 1
    entries = [(size // 8 - 1) << 4 | log for size in sizes[:-1]]
    entries.append((sizes[-1] // 8 - 1) << 4)
    return struct.pack(f"<{len(entries)}{'I' if is_large else 'H'}", *entries)


def _encode_levels(levels: LevelArray | None, starts: list[int]) -> tuple[Encoding, list[_Buffer]] | None:
    """Return levels of each chunk, packed to one width if that saves bytes; a last block may be raw."""
    if levels is None:
        return None
    width = max(1, int(levels.max()).bit_length())
    memory = np.ascontiguousarray(levels).data.cast("B")
    pieces: list[_Buffer] = []
    for start, end in pairwise(starts):
        whole, tail = divmod(end - start, BLOCK)
        packs_tail = width * (BLOCK - tail) < (_LEVEL_BITS - width) * tail
        stop = end if packs_tail else start + whole * BLOCK
        packed = fastlanes.pack(_stack([levels[start:stop]], levels.dtype)[0], width)
        pieces.append(packed.transpose(1, 0, 2).tobytes() + memory[stop * 2 : end * 2])
    if sum(map(len, pieces)) < len(memory):
        return OutOfLineBitpacking(_LEVEL_BITS, width), pieces
    return Flat(_LEVEL_BITS), [memory[start * 2 : end * 2] for start, end in pairwise(starts)]


def _join_chunks(
    values: _Values, levels: list[list[_Buffer]], starts: list[int], *, is_large: bool
) -> list[bytes] | None:
    """Chunk metadata and chunks with levels; None if a chunk is too large for version 2.1.

    Args:
        values: Encoded values.
        levels: For repetition and definition levels, as far as there are any, those of each chunk.
        starts: The first level of each chunk, and the end.
        is_large: For version 2.2 and newer.
    """
    header = struct.Struct("<H" + "H" * len(levels) + ("I" if is_large else "H"))
    sizes: list[int] = []
    pieces: list[_Buffer] = []
    for at, parts in enumerate(zip(*levels, values.buffers, strict=True)):
        head = header.pack(starts[at + 1] - starts[at], *map(len, parts))
        size = 0
        for part in (head, *parts):
            padding = -len(part) % 8
            pieces += (part, _PAD * padding)
            size += len(part) + padding
        sizes.append(size)
    if not is_large and max(sizes) > _MAX_CHUNK:
        return None
    return [_chunk_words(sizes, values.per_chunk, is_large=is_large), b"".join(pieces)]
