"""Fsst: strings as codes of a table of up to 255 symbols of 1 to 8 bytes (`symbol_table`).

Code 255: the next byte stands for itself. A code never stands for bytes of two values.
Source: message ``Fsst``.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.encoding.codecs import symbol_table, variable
from lance_core.encoding.codecs.codec import Codec, not_in_blocks, num_buffers
from lance_core.encoding.codecs.symbol_table import LITERAL, parse_table
from lance_core.encoding.kernels import (
    binary_array,
    chunk_counts,
    empty,
    fitting_count,
    numbers_array,
    numbers_of,
    put_words,
    starts_of,
    take_inside,
    view_buffer,
)
from lance_core.encoding.values import VariableValues
from lance_core.errors import CorruptDataError
from lance_core.format.file.encodings import Fsst, PackedVariable, Variable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_core.encoding.values import Bytes, Chunks, Int64s, Values
    from lance_core.format.file.encodings import Encoding

_ESCAPE = 255
_SYMBOL_BYTES = 8
_PAIRS_PAY_AT = 1 << 17
"""Codes from which on a table of all pairs, which takes a fifth of a millisecond, pays."""
_TEXTS_IN_CACHE = 1 << 16
"""Symbols or pairs that are looked up and written at once, so that they stay in the cache of the processor."""
_TABLES_KEPT = 64
"""Single values need little else than the table of their page, which costs more than they do; each takes some 30 KB."""
_TEXTS_AT_ONCE = 1 << 16
"""Values that are encoded at once: bounds the memory that it takes."""
_CHUNK_BYTES, _PLAIN_CHUNK_BYTES = 1 << 13, 1 << 14


def encode(values: VariableValues) -> tuple[bytes | None, VariableValues]:
    """Choose symbols for some values and encode them.

    Returns:
        The table on disk, and the codes; None and the values themselves if the codes would not be smaller.
    """
    starts = values.offsets[:-1].astype(np.int64)
    sizes = np.diff(values.offsets).astype(np.int64)
    total = int(values.offsets[-1] - values.offsets[0])
    if not total:
        return None, values
    table = symbol_table.train(values.data, starts, sizes)
    parts: list[Bytes] = []
    code_sizes: list[Int64s] = []
    for low in range(0, len(sizes), _TEXTS_AT_ONCE):
        part = slice(low, low + _TEXTS_AT_ONCE)
        texts = symbol_table.cut(values.data[int(starts[low]) :], sizes[part])
        codes, lengths = _to_codes(*symbol_table.take_apart(table, texts))
        parts.append(codes)
        code_sizes.append(np.diff(starts_of(lengths)[texts.firsts]))
    bounds: npt.NDArray[Any] = starts_of(np.concatenate(code_sizes))
    if int(bounds[-1]) + symbol_table.TABLE_BYTES >= total:
        return None, values
    dtype: np.dtype[Any] = values.offsets.dtype
    return symbol_table.encode_table(table.symbols), VariableValues(bounds.astype(dtype), np.concatenate(parts))


def _to_codes(tokens: npt.NDArray[np.uint16], counts: Int64s) -> tuple[Bytes, Int64s]:
    """Tokens as bytes, and how many bytes each piece takes."""
    is_literal = tokens >= LITERAL
    literals = np.flatnonzero(is_literal)
    codes: Bytes = tokens.astype(np.uint8)
    if len(literals) == 0:
        return codes, counts
    bounds = starts_of(counts)
    before = literals.searchsorted(bounds)
    return np.insert(codes, literals, np.uint8(_ESCAPE)), np.diff(bounds + before)


def decode(table: bytes, values: VariableValues) -> VariableValues:
    """Decode all values; errors as `decode_pages`."""
    return decode_pages([table], np.array([0, len(values)]), values)


def decode_pages(tables: Sequence[bytes], bounds: Int64s, values: VariableValues) -> VariableValues:
    """Decode the values of pages, each of which has a table of its own.

    Args:
        tables: The table of each page.
        bounds: Shape (pages + 1,): the first value of each page, and the end.
        values: The codes of all pages.

    Raises:
        CorruptDataError: A bad table, an unknown code, a value that ends within an escape.
    """
    if all(_symbols(table) is None for table in tables):
        return values
    offsets: npt.NDArray[Any] = values.offsets
    parts = [slice(low, high + 1) for low, high in pairwise(bounds.tolist())]
    pages = [_open(table, values.data, offsets[part]) for table, part in zip(tables, parts, strict=True)]
    starts = starts_of(np.array([page.size for page in pages], np.int64))
    out = empty(int(starts[-1]) + 2 * _SYMBOL_BYTES, np.uint8)
    positions = np.zeros(len(offsets), np.int64)
    for page, part, start in zip(pages, parts, starts.tolist(), strict=False):
        text = out[start:]
        moved, literal_positions = _expand(page, text)
        np.add(moved, start, out=positions[part])
        text[literal_positions] = page.literals
    text = out[: int(starts[-1])]
    return VariableValues(positions.astype(offsets.dtype) if len(text) < 1 << 31 else positions, text)


def _find_escapes(codes: Bytes, offsets: npt.NDArray[Any]) -> Int64s:
    """Return positions of the bytes that say that the next one stands for itself."""
    if len(codes) == 0 or int(codes.max()) < _ESCAPE:
        return np.empty(0, np.int64)
    literal_marks = np.flatnonzero(codes == _ESCAPE)
    begins = np.diff(literal_marks, prepend=-2) != 1
    if begins.all():
        escapes = literal_marks
    else:  # in a run of 255s every other one is an escape, because the byte after an escape is never one
        first = np.flatnonzero(begins)
        rank = np.arange(len(literal_marks)) - np.repeat(first, np.diff(first, append=len(literal_marks)))
        escapes = literal_marks[rank % 2 == 0]
    lasts = offsets[np.searchsorted(offsets, 1) :] - 1
    lasts = lasts[codes.take(lasts) == _ESCAPE]  # an escape, or a literal of the same number
    if len(lasts) and (escapes.take(escapes.searchsorted(lasts), mode="clip") == lasts).any():
        raise CorruptDataError("FSST value ends within an escape")
    return escapes


@frozen
class _Page:
    """The codes of a page.

    Attributes:
        codes: Shape (n,), with codes of some byte instead of literals.
        meanings: What they mean.
        offsets: Ascending positions in ``codes``, 0 to n each: where values begin, and the end.
        literal_codes: Likewise: where literals stand.
        literals: As many bytes.
        indices: The codes, or pairs of them.
        sizes: Bytes of the text of each; or where it begins, and the end, if the text is there.
        size: Bytes of all text.
        text: The text, if few codes were looked up already.
    """

    codes: npt.NDArray[Any]
    meanings: _Meanings
    offsets: npt.NDArray[Any]
    literal_codes: Int64s
    literals: Bytes
    indices: npt.NDArray[Any]
    sizes: npt.NDArray[Any]
    size: int
    text: Bytes | None = None


@frozen
class _Meanings:
    """The meanings of codes, also of those that nobody may write.

    Attributes:
        num_symbols: Codes below it may be written.
        literal: The code that a literal gets; 256 if none of 8 bits is left for it.
        lengths: Shape (codes,): bytes of each symbol.
        texts: Shape (codes,): the symbols, each in the low bytes of a uint64, zeros behind it.
        binaries: The symbols, an Arrow array.
    """

    num_symbols: int
    literal: int
    lengths: Bytes
    texts: npt.NDArray[np.uint64]
    binaries: pa.Array


_symbols = lru_cache(maxsize=_TABLES_KEPT)(parse_table)


@lru_cache(maxsize=_TABLES_KEPT)
def _meanings(table: bytes, *, has_escapes: bool) -> _Meanings:
    """Return the symbols of a table; escapes mean nothing, literals and codes without symbol some byte."""
    symbols = _symbols(table)
    if symbols is None:  # each byte means itself
        return _made(_ESCAPE + 1, _ESCAPE, np.ones(_ESCAPE + 1, np.uint8), np.arange(_ESCAPE + 1, dtype="<u8"))
    num_symbols = len(symbols[0])
    alone = np.flatnonzero(symbols[0] == 1)
    literal = int(alone[0]) if len(alone) else num_symbols
    literal += has_escapes and literal == _ESCAPE
    lengths = np.ones(max(_ESCAPE, literal) + 1, np.uint8)
    texts = np.full(len(lengths), ord("?"), "<u8")
    lengths[:num_symbols], texts[:num_symbols] = symbols
    if has_escapes:
        lengths[_ESCAPE] = texts[_ESCAPE] = 0
    return _made(num_symbols, literal, lengths, texts)


def _made(num_symbols: int, literal: int, lengths: Bytes, texts: npt.NDArray[np.uint64]) -> _Meanings:
    padded = texts.view(np.uint8).reshape(-1, _SYMBOL_BYTES)
    data = padded[np.arange(_SYMBOL_BYTES) < lengths[:, None]]
    return _Meanings(num_symbols, literal, lengths, texts, binary_array(starts_of(lengths), data))


def _lengths(meanings: _Meanings, *, of_pairs: bool) -> Bytes:
    """Return the bytes of each symbol or pair: pair ``second << 8 | first``."""
    lengths = meanings.lengths
    return (lengths[: _ESCAPE + 1] + lengths[: _ESCAPE + 1, None]).reshape(-1) if of_pairs else lengths


def _texts(meanings: _Meanings, *, of_pairs: bool) -> pa.Array:
    """Return the text of each symbol or pair: binaries of 8 or 16 bytes with zeros at the end."""
    texts, width = meanings.texts, _SYMBOL_BYTES
    if of_pairs:  # numpy shifts by 64 bits or more to zero
        texts, width = texts[: _ESCAPE + 1], 2 * _SYMBOL_BYTES
        bits = meanings.lengths[: _ESCAPE + 1].astype(np.uint64) * np.uint64(8)
        pairs = np.empty((*texts.shape, *texts.shape, 2), "<u8")
        pairs[:, :, 0] = texts | texts[:, None] << bits
        np.right_shift(texts[:, None], np.uint64(64) - bits, out=pairs[:, :, 1])
        texts = pairs
    return pa.Array.from_buffers(pa.binary(width), texts.nbytes // width, [None, pa.py_buffer(texts)])


def _open(table: bytes, data: Bytes, bounds: npt.NDArray[Any]) -> _Page:
    """Return the codes of a page.

    Args:
        table: Its table.
        data: Holds the codes.
        bounds: Where in it values begin, and the end.
    """
    begin = int(bounds[0])
    codes, offsets = data[begin : int(bounds[-1])], bounds - begin
    escapes = np.empty(0, np.int64) if _symbols(table) is None else _find_escapes(codes, offsets)
    meanings = _meanings(table, has_escapes=len(escapes) > 0)
    literals = codes[escapes + 1]
    codes = _hide_literals(codes, escapes, meanings)
    if len(codes) < _PAIRS_PAY_AT:
        taken = take_inside(meanings.binaries, codes)
        ends = np.frombuffer(taken.buffers()[1], np.int64, len(codes) + 1)
        size = int(ends[-1])
        text = np.empty(0, np.uint8) if not size else view_buffer(taken.buffers()[2])[:size]
        return _Page(codes, meanings, offsets, escapes + 1, literals, codes, ends, size, text)
    by_pairs = codes.dtype == np.uint8
    is_odd = by_pairs and len(codes) % 2  # code 0 fills up the last pair
    indices = (np.append(codes, np.uint8(0)) if is_odd else codes).view("<u2") if by_pairs else codes
    sizes = numbers_of(take_inside(numbers_array(_lengths(meanings, of_pairs=by_pairs)), indices))
    size = int(np.add.reduce(sizes, dtype=np.int64)) - (int(meanings.lengths[0]) if is_odd else 0)
    return _Page(codes, meanings, offsets, escapes + 1, literals, indices, sizes, size)


def _hide_literals(codes: npt.NDArray[Any], escapes: Int64s, meanings: _Meanings) -> npt.NDArray[Any]:
    """Codes with literals that mean some byte, to be replaced by the right one in the text."""
    if len(escapes) == 0:
        if len(codes) and int(codes.max()) >= meanings.num_symbols:
            raise CorruptDataError("FSST code without symbol")
        return codes
    codes = codes.copy()
    codes[escapes + 1] = _ESCAPE
    if meanings.num_symbols < _ESCAPE and ((codes >= meanings.num_symbols) & (codes != _ESCAPE)).any():
        raise CorruptDataError("FSST code without symbol")
    if meanings.literal > _ESCAPE:
        codes = codes.astype(np.uint16)
    codes[escapes + 1] = meanings.literal
    return codes


def _expand(page: _Page, out: Bytes) -> tuple[Int64s, Int64s]:
    """Write the text of a page.

    Args:
        page: The codes.
        out: Takes the text; the 16 bytes behind it are written as well.

    Returns:
        Where in the text values begin (and the last one ends), and where literals lie.
    """
    # A symbol is written with the zeros behind it, over which the next one is written: texts of one size are moved in
    # a fraction of the time that Arrow's `take` needs for strings, whose sizes the processor cannot predict.
    codes, indices, sizes, lengths = page.codes, page.indices, page.sizes, page.meanings.lengths
    if page.text is not None:
        out[: page.size] = page.text
        return sizes.take(page.offsets), sizes.take(page.literal_codes)
    by_pairs = indices.dtype == np.uint16 and codes.dtype == np.uint8
    per_text = 1 + by_pairs
    texts = _texts(page.meanings, of_pairs=by_pairs)
    kind = np.dtype((np.void, texts.type.byte_width))
    firsts = np.arange(0, len(codes) + 1, _TEXTS_IN_CACHE * per_text).astype(page.offsets.dtype)
    wanted_codes = page.offsets, page.literal_codes
    cuts = [[*wanted.searchsorted(firsts).tolist(), len(wanted)] for wanted in wanted_codes]
    positions = np.empty(len(page.offsets), np.int64), np.empty(len(page.literal_codes), np.int64)
    done = 0
    for block, first in enumerate(firsts.tolist()):
        part = slice(first // per_text, first // per_text + _TEXTS_IN_CACHE)
        bounds = starts_of(sizes[part])
        taken = view_buffer(take_inside(texts, indices[part]).buffers()[1])
        put_words(out[done:], bounds[:-1], taken.view(kind))
        for wanted, cut, moved in zip(wanted_codes, cuts, positions, strict=True):
            low, high = cut[block : block + 2]
            here = wanted[low:high]
            if not len(here):
                continue
            moved[low:high] = bounds.take((here - first) // per_text) + done
            if by_pairs:  # the first half of a pair whose second is wanted
                moved[low:high] += lengths.take(codes.take(here & -2, mode="clip")) * (here & 1).astype(np.uint8)
        done += int(bounds[-1])
    return positions


def _offsets_of(encoding: Fsst) -> Variable:
    """Return the encoding of the codes; `_unwrap` has seen to it that offsets are plain."""
    return Variable(encoding.values.offset_bits)


def _unwrap(encoding: Fsst, chunks: Chunks) -> tuple[Encoding, Chunks] | None:
    """Unpack the offsets of the codes."""
    if not isinstance(encoding.values, PackedVariable):
        return None
    plain, chunks = variable.unpack_offsets(encoding.values, chunks)
    return Fsst(encoding.symbol_table, plain), chunks


def _decode(encoding: Fsst, chunks: Chunks) -> VariableValues:
    return decode(encoding.symbol_table, variable.decode(_offsets_of(encoding), chunks))


def _decode_at(encoding: Fsst, chunks: Chunks, chunk_of: Int64s, index: Int64s) -> VariableValues:
    return decode(encoding.symbol_table, variable.decode_at(_offsets_of(encoding), chunks, chunk_of, index))


def _decode_some(encoding: Fsst, chunks: Chunks, positions: Int64s) -> VariableValues | None:
    codes = variable.decode_some(_offsets_of(encoding), chunks, positions)
    return None if codes is None else decode(encoding.symbol_table, codes)


def encode_chunks(values: Values, chunk_bytes: int | None, max_values: int) -> tuple[Encoding, Chunks] | None:
    """Encode strings as chunks; see `Codec.encode`. Strings that do not get smaller stay as they are."""
    if not isinstance(values, VariableValues):
        return None
    table, codes = encode(values)
    target = chunk_bytes or (_PLAIN_CHUNK_BYTES if table is None else _CHUNK_BYTES)
    count = fitting_count(variable.mean_bytes(codes), target, most=max_values)
    plain = Variable(values.offsets.dtype.itemsize * 8)
    chunks = variable.encode_chunks(codes, chunk_counts(len(codes), count))
    return plain if table is None else Fsst(table, plain), chunks


FSST = Codec(
    serves=Fsst,
    decode=_decode,
    decode_at=_decode_at,
    encode=encode_chunks,
    name="fsst",
    num_buffers=lambda encoding: num_buffers(encoding.values),
    unwrap=_unwrap,
    decode_some=_decode_some,
    decode_blocks=not_in_blocks,
    decode_strings=lambda encoding, values: decode(encoding.symbol_table, values),
)
