"""Fsst: strings as codes of a table of up to 255 symbols of 1 to 8 bytes (`symbol_table`).

Code 255: the next byte stands for itself. A code never stands for bytes of two values.
Source: message ``Fsst``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.encoding.codecs import symbol_table, variable
from lance_core.encoding.codecs.codec import Codec, not_in_blocks, num_buffers
from lance_core.encoding.codecs.symbol_table import LITERAL, parse_table
from lance_core.encoding.kernels import (
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
    import numpy.typing as npt

    from lance_core.encoding.values import Bytes, Chunks, Int64s, Values
    from lance_core.format.file.encodings import Encoding

_ESCAPE = 255
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
    """Decode all values.

    Raises:
        CorruptDataError: A bad table, an unknown code, a value that ends within an escape.
    """
    if _symbols(table) is None:
        return values
    codes = values.data[: int(values.offsets[-1])]
    escapes = _find_escapes(codes, values.offsets)
    meanings = _meanings(table, has_escapes=len(escapes) > 0)
    literals = codes[escapes + 1]
    codes = _hide_literals(codes, escapes, meanings)
    text, offsets, literal_positions = _expand(codes, meanings, values.offsets, escapes + 1)
    if len(literal_positions):
        text[literal_positions] = literals
    dtype: np.dtype[Any] = values.offsets.dtype
    return VariableValues(offsets.astype(dtype) if len(text) < 1 << 31 else offsets, text)


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
class _Meanings:
    """The meanings of codes, also of those that nobody may write.

    Attributes:
        num_symbols: Codes below it may be written.
        literal: The code that a literal gets; 256 if none of 8 bits is left for it.
        lengths: Shape (codes,): bytes of each symbol.
        texts: Shape (codes,): the symbols, each in the low bytes of a uint64, zeros behind it.
    """

    num_symbols: int
    literal: int
    lengths: Bytes
    texts: npt.NDArray[np.uint64]


_symbols = lru_cache(maxsize=_TABLES_KEPT)(parse_table)


@lru_cache(maxsize=_TABLES_KEPT)
def _meanings(table: bytes, *, has_escapes: bool) -> _Meanings:
    """Return the symbols of a table; escapes mean nothing, literals and codes without symbol some byte."""
    symbols = _symbols(table)
    assert symbols is not None  # noqa: S101 - callers ask for nothing else
    num_symbols = len(symbols[0])
    alone = np.flatnonzero(symbols[0] == 1)
    literal = int(alone[0]) if len(alone) else num_symbols
    literal += has_escapes and literal == _ESCAPE
    lengths = np.ones(max(_ESCAPE, literal) + 1, np.uint8)
    texts = np.full(len(lengths), ord("?"), "<u8")
    lengths[:num_symbols], texts[:num_symbols] = symbols
    if has_escapes:
        lengths[_ESCAPE] = texts[_ESCAPE] = 0
    return _Meanings(num_symbols, literal, lengths, texts)


def _lookup(meanings: _Meanings, *, by_pairs: bool) -> tuple[pa.Array, pa.Array]:
    """Make what codes, or pairs of them, are looked up in: pair ``second << 8 | first``.

    Returns:
        Bytes of each symbol or pair, uint8; and their text, binaries of 8 or 16 bytes with zeros at the end.
    """
    lengths, texts = meanings.lengths, meanings.texts
    if by_pairs:  # numpy shifts by 64 bits or more to zero
        lengths, texts = lengths[: _ESCAPE + 1], texts[: _ESCAPE + 1]
        bits = lengths.astype(np.uint64) * np.uint64(8)
        pairs = np.empty((*texts.shape, *texts.shape, 2), "<u8")
        pairs[:, :, 0] = texts | texts[:, None] << bits
        np.right_shift(texts[:, None], np.uint64(64) - bits, out=pairs[:, :, 1])
        lengths, texts = (lengths + lengths[:, None]).reshape(-1), pairs
    kind = pa.binary(texts.nbytes // len(lengths))
    return numbers_array(lengths), pa.Array.from_buffers(kind, len(lengths), [None, pa.py_buffer(texts)])


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


def _expand(
    codes: npt.NDArray[Any], meanings: _Meanings, offsets: npt.NDArray[Any], literals: Int64s
) -> tuple[Bytes, Int64s, Int64s]:
    """Replace codes by symbols.

    Args:
        codes: Shape (n,).
        meanings: What they mean.
        offsets: Ascending positions in ``codes``, 0 to n each.
        literals: Likewise.

    Returns:
        The text, which may be changed, and where in it offsets and literals lie.
    """
    # A symbol is written with the zeros behind it, over which the next one is written: texts of one size are moved in
    # a fraction of the time that Arrow's `take` needs for strings, whose sizes the processor cannot predict.
    by_pairs = codes.dtype == np.uint8 and len(codes) >= _PAIRS_PAY_AT
    lengths, texts = _lookup(meanings, by_pairs=by_pairs)
    per_text, width = 1 + by_pairs, texts.type.byte_width
    is_odd = len(codes) % per_text  # code 0 fills up the last pair
    indices = (np.append(codes, np.uint8(0)) if is_odd else codes).view("<u2") if by_pairs else codes
    sizes = numbers_of(take_inside(lengths, indices))
    size = int(np.add.reduce(sizes, dtype=np.int64))
    out = empty(size + width, np.uint8)
    firsts = np.arange(0, len(codes) + 1, _TEXTS_IN_CACHE * per_text).astype(offsets.dtype)
    cuts = [[*wanted.searchsorted(firsts).tolist(), len(wanted)] for wanted in (offsets, literals)]
    positions = np.empty(len(offsets), np.int64), np.empty(len(literals), np.int64)
    done = 0
    for block, first in enumerate(firsts.tolist()):
        part = slice(first // per_text, first // per_text + _TEXTS_IN_CACHE)
        bounds = starts_of(sizes[part])
        taken = view_buffer(take_inside(texts, indices[part]).buffers()[1])
        put_words(out[done:], bounds[:-1], taken.view((np.void, width)))
        for wanted, cut, moved in zip((offsets, literals), cuts, positions, strict=True):
            low, high = cut[block : block + 2]
            wanted_codes = wanted[low:high]
            if not len(wanted_codes):
                continue
            moved[low:high] = bounds.take((wanted_codes - first) // per_text) + done
            if by_pairs:  # the first half of a pair whose second is marked
                halves = meanings.lengths.take(codes.take(wanted_codes & -2, mode="clip"))
                moved[low:high] += halves * (wanted_codes & 1).astype(np.uint8)
        done += int(bounds[-1])
    return out[: size - int(meanings.lengths[0]) if is_odd else size], positions[0], positions[1]


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
