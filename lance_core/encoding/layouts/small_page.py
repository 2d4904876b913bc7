"""Mini-block pages of few values: the layout of `mini_block`, written chunk by chunk.

A commit of a thousand rows writes such a page for each column. Samples and arrays of all chunks cost more there than
the work itself, and a chunk more or less costs nothing; so fewer encodings are considered (what compresses whole chunks
well is left to `mini_block`), and their sizes are known, not guessed.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.encoding import registry
from lance_core.encoding.choose_dictionary import encode_dictionary
from lance_core.encoding.codecs import dictionary, fastlanes, flat, variable
from lance_core.encoding.codecs.fastlanes import BLOCK
from lance_core.encoding.kernels import chunk_counts, fitting_count
from lance_core.encoding.layouts.chunk_table import encode_repetition_index, level_bounds
from lance_core.encoding.layouts.page import EncodedPage
from lance_core.encoding.options import PageOptions
from lance_core.encoding.repdef import max_rep
from lance_core.encoding.values import FixedValues, VariableValues
from lance_core.format.encodings import Flat, InlineBitpacking, OutOfLineBitpacking, Variable
from lance_core.format.page_layout import MiniBlockLayout
from lance_core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_core.encoding.layouts.page import Decoded
    from lance_core.encoding.repdef import LevelArray, Mask
    from lance_core.encoding.values import Bytes, Int64s
    from lance_core.format.encodings import Encoding

MAX_VALUES = 4 * BLOCK
_MAX_LEVELS = 8 * BLOCK
_MAX_PLAIN_BYTES = 1 << 12
"""Strings of more bytes may be worth a codec."""
_MAX_STRING_BYTES = 1 << 16
_MAX_MEAN_BYTES = 256
_CHUNK_BYTES = 1 << 13
_MAX_CHUNK = 1 << 15

PACKED_PAYS = 0.85
_DICTIONARY_PAYS = 0.8
PACKED_WELL = 0.125
"""Of the flat bytes: nothing saves much on values packed so well."""
RUNS_PAY = 0.75
_FEW_BYTES = 512
"""Runs that take less than this are not worth the time, if there is a dictionary of that size."""
DICTIONARY_WIDTH = 8
"""Bytes of words for which a dictionary is tried; one of anything shorter saves little."""
LEAST_FOR_DICTIONARY = 100
_LOOKED_AT = 64
_LEVEL_BITS = 16
_PAD = b"\xfe"
_FREE = {version: PageOptions(version=version) for version in ("2.1", "2.2")}

_Buffer = bytes | memoryview


@frozen
class _Values:
    """Encoded values: how, the values in each chunk, and the one value buffer of each chunk."""

    encoding: Encoding
    counts: Int64s
    buffers: list[_Buffer]
    items: FixedValues | VariableValues | None = None


def encode(decoded: Decoded, options: PageOptions) -> EncodedPage | None:
    """Encode a page of few values; None if they are not so few, or if there may be a better way.

    Args:
        decoded: Levels and values, at least one of them.
        options: How to write.
    """
    levels = decoded.levels
    num_levels = max(0 if one is None else len(one) for one in (levels.rep, levels.definition))
    if decoded.num_slots > MAX_VALUES or num_levels > _MAX_LEVELS or options != _FREE.get(options.version):
        return None
    values = _encode_values(decoded.values)
    if values is None:
        return None
    bounds = level_bounds(levels, values.counts)
    starts = bounds.tolist()
    rep = None if levels.rep is None else _encode_levels(levels.rep, starts)
    definition = None if levels.definition is None else _encode_levels(levels.definition, starts)
    is_large = options.has_large_chunks
    pieces = [one[1] for one in (rep, definition) if one]
    buffers = join_chunks(values.buffers, values.counts, pieces, starts, is_large=is_large)
    if buffers is None:
        return None
    items = None if values.items is None else encode_dictionary(values.items, options)
    if items is not None:
        buffers.append(items[1])
    if levels.rep is not None:
        buffers.append(encode_repetition_index(levels.rep, bounds, max_rep(levels.layers)))
    layout = MiniBlockLayout(
        rep=None if rep is None else rep[0],
        definition=None if definition is None else definition[0],
        values=values.encoding,
        dictionary=None if items is None else items[0],
        num_dictionary_items=0 if values.items is None else len(values.items),
        layers=levels.layers,
        num_buffers=registry.num_buffers(values.encoding),
        has_repetition_index=levels.rep is not None,
        num_items=decoded.num_slots,
        has_large_chunk=is_large,
    )
    return EncodedPage(layout=layout, buffers=buffers)


def _bytes(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def _encode_values(values: object) -> _Values | None:
    match values:
        case FixedValues(data) if data.dtype == np.bool_:
            packed = np.packbits(data.view(np.uint8), bitorder="little")
            return _Values(Flat(1), np.array([len(data)]), [packed.data])
        case FixedValues(data) if data.ndim == 1 and flat.bits_of(values) in flat.WORD_BITS:
            return _encode_words(values)
        case VariableValues(offsets, _):
            num_bytes = int(offsets[-1])
            return _encode_strings(values, num_bytes) if are_short(num_bytes, len(values)) else None
        case _:
            return None


def _encode_words(values: FixedValues) -> _Values | None:
    data = np.ascontiguousarray(values.data)
    width = data.dtype.itemsize
    blocks, widths = _blocks(data)
    best = min(data.nbytes, sum(widths) * (BLOCK // 8) + len(widths) * width)
    if best <= data.nbytes * PACKED_WELL:
        return _packed(blocks, widths, len(data))
    run_bytes = max(_FEW_BYTES, (1 + int(np.count_nonzero(data[1:] != data[:-1]))) * (width + 1))
    if width == DICTIONARY_WIDTH and repeats(data[None])[0]:
        built = _with_dictionary(values, min(best, run_bytes))
        if built is not None:
            return built
    if run_bytes <= best * RUNS_PAY:
        return None
    if best <= data.nbytes * PACKED_PAYS:
        return _packed(blocks, widths, len(data))
    counts = chunk_counts(len(data), words_per_chunk(width))
    return _Values(Flat(width * 8), counts, cut(data.data.cast("B"), counts, width))


def are_short(num_bytes: int, count: int) -> bool:
    """Whether strings of so many bytes belong here."""
    return num_bytes <= min(_MAX_STRING_BYTES, _MAX_MEAN_BYTES * count)


def _encode_strings(values: VariableValues, num_bytes: int) -> _Values | None:
    built = _with_dictionary(values, num_bytes + 2 * len(values))
    if built is not None or num_bytes > _MAX_PLAIN_BYTES:
        return built
    width = values.offsets.dtype.itemsize
    mean = num_bytes / len(values) + width
    chunks = variable.encode_chunks(values, chunk_counts(len(values), fitting_count(mean, _CHUNK_BYTES)))
    memory = chunks.buffers[0].data
    ranges = zip(chunks.starts[0].tolist(), chunks.sizes[0].tolist(), strict=True)
    return _Values(Variable(width * 8), chunks.counts, [memory[start : start + size] for start, size in ranges])


def words_per_chunk(width: int) -> int:
    """Values of some bytes in a chunk that are stored as they are."""
    return fitting_count(width, _CHUNK_BYTES)


def repeats(rows: npt.NDArray[Any]) -> Mask:
    """Whether some values of each row, spread over all of it, are such that a dictionary may pay; shape (n,)."""
    some = rows[:, :: -(-rows.shape[1] // _LOOKED_AT)].copy()
    some.sort(axis=1)
    distinct = 1 + (some[:, 1:] != some[:, :-1]).sum(axis=1)
    return distinct * 4 <= some.shape[1] * 3


def _with_dictionary(values: FixedValues | VariableValues, most: int) -> _Values | None:
    """Packed places in a dictionary, if that leaves enough of what it takes otherwise."""
    count = len(values)
    built = dictionary.build(values, most=count // 2) if count >= LEAST_FOR_DICTIONARY else None
    if built is None:
        return None
    indices, items = built
    blocks, widths = _blocks(indices.data)
    if not dictionary_pays(sum(widths) * (BLOCK // 8), items, most):
        return None
    packed = _packed(blocks, widths, count)
    return _Values(packed.encoding, packed.counts, packed.buffers, items)


def dictionary_pays(packed_bytes: int, items: FixedValues | VariableValues, most: int) -> bool:
    """Whether packed places and the items leave enough of what the values take otherwise."""
    item_bytes = items.data.nbytes + (items.offsets.nbytes if isinstance(items, VariableValues) else 0)
    return packed_bytes + item_bytes <= most * _DICTIONARY_PAYS


def _blocks(data: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], list[int]]:
    """Values in blocks of 1024, zero behind the last, and the bits that each block needs."""
    num_blocks = -(-len(data) // BLOCK)
    padded = np.zeros(num_blocks * BLOCK, data.dtype)
    padded[: len(data)] = data
    blocks = padded.reshape(num_blocks, BLOCK)
    return blocks, [int(one).bit_length() for one in np.bitwise_or.reduce(blocks, axis=1).tolist()]


def _packed(blocks: npt.NDArray[Any], widths: list[int], count: int) -> _Values:
    """Chunks of one block each, behind its width."""
    kind = blocks.dtype
    buffers: list[_Buffer] = [
        width.to_bytes(kind.itemsize, "little") + fastlanes.pack(blocks[at : at + 1], width).tobytes()
        for at, width in enumerate(widths)
    ]
    return _Values(InlineBitpacking(kind.itemsize * 8), chunk_counts(count, BLOCK), buffers)


def cut(memory: memoryview, counts: Int64s, width: int) -> list[_Buffer]:
    """The memory of each chunk."""
    pieces: list[_Buffer] = []
    start = 0
    for count in counts.tolist():
        pieces.append(memory[start : start + count * width])
        start += count * width
    return pieces


def _encode_levels(levels: LevelArray, starts: list[int]) -> tuple[Encoding, list[_Buffer]]:
    """Levels of each chunk, packed to one width if that saves bytes; a last block may be raw."""
    width = max(1, int(levels.max()).bit_length())
    memory = np.ascontiguousarray(levels).data.cast("B")
    pieces: list[_Buffer] = []
    for start, end in pairwise(starts):
        whole, tail = divmod(end - start, BLOCK)
        packs_tail = width * (BLOCK - tail) < (_LEVEL_BITS - width) * tail
        stop = end if packs_tail else start + whole * BLOCK
        packed = fastlanes.pack(_blocks(levels[start:stop])[0], width)
        pieces.append(packed.transpose(1, 0, 2).tobytes() + memory[stop * 2 : end * 2])
    if sum(map(len, pieces)) < len(memory):
        return OutOfLineBitpacking(_LEVEL_BITS, width), pieces
    return Flat(_LEVEL_BITS), [memory[start * 2 : end * 2] for start, end in pairwise(starts)]


def join_chunks(
    values: Sequence[_Buffer], counts: Int64s, levels: list[list[_Buffer]], starts: list[int], *, is_large: bool
) -> list[Bytes] | None:
    """Chunk metadata and chunks; None if a chunk is too large for version 2.1.

    Args:
        values: Encoded values of each chunk.
        counts: Their numbers.
        levels: For repetition and definition levels, as far as there are any, those of each chunk.
        starts: The first level of each chunk, and the end.
        is_large: For version 2.2 and newer.
    """
    sizes, pieces = _chunks(starts, levels, values, is_large=is_large)
    if not is_large and max(sizes) > _MAX_CHUNK:
        return None
    return [_bytes(_words(sizes, counts.tolist(), is_large=is_large)), _bytes(b"".join(pieces))]


def _chunks(
    starts: list[int], levels: list[list[_Buffer]], values: Sequence[_Buffer], *, is_large: bool
) -> tuple[list[int], list[_Buffer]]:
    """Bytes of each chunk, and what they consist of, end to end."""
    header = struct.Struct("<H" + "H" * len(levels) + ("I" if is_large else "H"))
    sizes: list[int] = []
    pieces: list[_Buffer] = []
    for at, parts in enumerate(zip(*levels, values, strict=True)):
        head = header.pack(starts[at + 1] - starts[at], *map(len, parts))
        size = 0
        for part in (head, *parts):
            padding = -len(part) % 8
            pieces += (part, _PAD * padding)
            size += len(part) + padding
        sizes.append(size)
    return sizes, pieces


def _words(sizes: list[int], counts: list[int], *, is_large: bool) -> bytes:
    """Chunk metadata; see `chunk_table.encode_words`."""
    logs = [count.bit_length() - 1 for count in counts[:-1]]
    words = [(size // 8 - 1) << 4 | log for size, log in zip(sizes, [*logs, 0], strict=True)]
    return struct.pack(f"<{len(words)}{'I' if is_large else 'H'}", *words)


@lru_cache(maxsize=256)
def frames(sizes: tuple[int, ...], count: int, *, is_large: bool) -> tuple[bytes, list[bytes], list[bytes]]:
    """What stands around chunks without levels.

    Args:
        sizes: Bytes of the values of each chunk, all of which fit.
        count: Values in all chunks but the last.
        is_large: For version 2.2 and newer.

    Returns:
        Chunk metadata; for each chunk what stands before the bytes of its values, and behind them.
    """
    header = struct.Struct("<HI" if is_large else "<HH")
    heads = [header.pack(0, size).ljust(8, _PAD) for size in sizes]
    pads = [_PAD * (-size % 8) for size in sizes]
    whole = [8 + size + len(pad) for size, pad in zip(sizes, pads, strict=True)]
    return _words(whole, [count] * len(sizes), is_large=is_large), heads, pads
