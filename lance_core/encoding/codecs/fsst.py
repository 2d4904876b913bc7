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
from lance_core.encoding.kernels import chunk_counts, empty, fitting_count, starts_of, take_inside, view_buffer
from lance_core.encoding.values import VariableValues
from lance_core.errors import CorruptDataError
from lance_core.format.file.encodings import Fsst, PackedVariable, Variable

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.values import Bytes, Chunks, Int64s, Values
    from lance_core.format.file.encodings import Encoding

_ESCAPE = 255
_PAIRS_PAY_AT = 1 << 17
"""Codes from which on a table of all pairs, which takes about a millisecond, pays."""
_BLOCK_CODES = 1 << 25
"""Codes that are looked up at once; they stand for at most 256 MiB of text. Even, so that pairs stay whole."""
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
    parts, offsets, literal_positions = _expand(codes, meanings, values.offsets, escapes + 1)
    text = parts[0] if len(parts) == 1 else _join(parts)
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
        lengths: Shape (codes,): bytes of each word.
        texts: The words, an Arrow array.
    """

    num_symbols: int
    literal: int
    lengths: Bytes
    texts: pa.Array


@lru_cache(maxsize=_TABLES_KEPT)
def _symbols(table: bytes) -> list[bytes] | None:
    return parse_table(table)


@lru_cache(maxsize=_TABLES_KEPT)
def _meanings(table: bytes, *, has_escapes: bool) -> _Meanings:
    """Return the words of a table; escapes mean nothing, literals some byte."""
    symbols = _symbols(table) or []
    num_symbols = len(symbols)
    meanings = [*symbols, *[b"?"] * (_ESCAPE + 1 - num_symbols)]
    literal = next((code for code, word in enumerate(symbols) if len(word) == 1), num_symbols)
    if has_escapes:
        meanings[_ESCAPE] = b""
        if literal == _ESCAPE:
            meanings.append(b"?")
            literal += 1
    return _Meanings(
        num_symbols, literal, np.array(list(map(len, meanings)), np.uint8), pa.array(meanings, pa.binary())
    )


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


def _join(parts: list[Bytes]) -> Bytes:
    """Pieces of text end to end."""
    out = empty(sum(map(len, parts)), np.uint8)
    if parts:
        np.concatenate(parts, out=out)
    return out


def _expand(
    codes: npt.NDArray[Any], meanings: _Meanings, offsets: npt.NDArray[Any], literals: Int64s
) -> tuple[list[Bytes], npt.NDArray[Any], npt.NDArray[Any]]:
    """Replace codes by words.

    Args:
        codes: Shape (n,).
        meanings: What they mean.
        offsets: Ascending positions in ``codes``, 0 to n each.
        literals: Likewise.

    Returns:
        The text in pieces, and where in it offsets and literals lie.
    """
    lengths = meanings.lengths
    by_pairs = codes.dtype == np.uint8 and len(codes) >= _PAIRS_PAY_AT
    lookup = _all_pairs(meanings.texts) if by_pairs else meanings.texts
    if len(codes) <= _BLOCK_CODES:
        text, bounds = _look_up(codes, lookup, lengths, by_pairs=by_pairs)
        positions_of = [
            _positions_in_text(codes, bounds, lengths, wanted, by_pairs=by_pairs) for wanted in (offsets, literals)
        ]
        return [text], positions_of[0], positions_of[1]
    parts: list[Bytes] = []
    positions_of = [np.zeros(len(offsets), np.int64), np.zeros(len(literals), np.int64)]
    done = 0
    for low in range(0, len(codes), _BLOCK_CODES):
        block = codes[low : low + _BLOCK_CODES]
        text, bounds = _look_up(block, lookup, lengths, by_pairs=by_pairs)
        for wanted, positions in zip((offsets, literals), positions_of, strict=True):
            # A mark on the border is the end of one block and the start of the next, which is the same place.
            start, stop = np.searchsorted(wanted, (low, low + len(block) + 1))
            positions[start:stop] = _positions_in_text(
                block, bounds, lengths, wanted[start:stop] - low, by_pairs=by_pairs
            )
            positions[start:stop] += done
        parts.append(text)
        done += len(text)
    return parts, positions_of[0], positions_of[1]


def _positions_in_text(
    codes: npt.NDArray[Any],
    bounds: npt.NDArray[Any],
    lengths: Bytes,
    wanted: npt.NDArray[Any],
    *,
    by_pairs: bool,
) -> npt.NDArray[Any]:
    """Return the positions of some codes in the text.

    Args:
        codes: Shape (n,).
        bounds: Where the word of each code or pair starts in the text, and the end.
        lengths: Bytes of each word.
        wanted: Ascending positions in ``codes``, 0 to n each.
        by_pairs: Whether ``bounds`` are of pairs.
    """
    if not by_pairs:
        return bounds.take(wanted)
    positions = bounds.take(wanted >> 1)
    before = lengths.take(codes.take(wanted & -2, mode="clip"))  # the first half of a pair whose second is marked
    before *= (wanted & 1).astype(np.uint8)
    positions += before
    return positions


def _look_up(
    codes: npt.NDArray[Any], lookup: pa.Array, lengths: Bytes, *, by_pairs: bool
) -> tuple[Bytes, npt.NDArray[Any]]:
    """Words of codes end to end, where they may be changed, and where that of each code or pair starts (and ends)."""
    is_odd = by_pairs and len(codes) % 2
    if by_pairs:  # code 0 fills up the last pair
        codes = (np.append(codes, np.uint8(0)) if is_odd else codes).view("<u2")
    taken = take_inside(lookup, codes)  # which has a word for each code
    text, bounds = view_buffer(taken.buffers()[2]), np.frombuffer(taken.buffers()[1], np.int32, len(taken) + 1)
    return text[: len(text) - int(lengths[0])] if is_odd else text, bounds


def _all_pairs(meanings: pa.Array) -> pa.Array:
    """Make the meaning of each pair of codes: entry ``second << 8 | first``."""
    order = np.arange(1 << 16, dtype="<u2").view(np.uint8)
    singles = take_inside(meanings, order)
    offsets = np.frombuffer(singles.buffers()[1], np.int32)[: len(order) + 1 : 2].copy()
    return pa.Array.from_buffers(pa.binary(), 1 << 16, [None, pa.py_buffer(offsets), singles.buffers()[2]])


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
