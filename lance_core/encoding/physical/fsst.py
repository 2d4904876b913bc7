"""Fsst: strings as codes of a table of up to 255 symbols of 1 to 8 bytes. Read only.

Symbol table, 2312 bytes: count (u8), terminator (u8), suffix limit (u8), switch (u8), ``TSSF``; 8 bytes for each
symbol; one length byte for each symbol; zeros. Switch 0: the data is not compressed. Code 255: the next byte stands for
itself.
Source: message ``Fsst``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.encoding.physical.memory import empty, starts_of, view_buffer
from lance_core.encoding.values import VariableValues
from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    import numpy.typing as npt

    from lance_core.encoding.values import Bytes, Int64s

TABLE_BYTES = 2312
_MAGIC = b"TSSF"
_ESCAPE = 255
_SYMBOL_BYTES = 8
_PAIRS_PAY_AT = 1 << 18  # codes; a table of all pairs takes about 2 ms
_BLOCK_CODES = 1 << 22


@dataclass(frozen=True, slots=True)
class SymbolTable:
    """Symbols of a page.

    Attributes:
        symbols: Shape (n, 8), uint8.
        lengths: Shape (n,), int64, 1 to 8.
    """

    symbols: Bytes
    lengths: Int64s


def parse_table(table: bytes) -> SymbolTable | None:
    """Symbols of a table; None if its data is not compressed.

    Raises:
        CorruptDataError: Wrong size, magic or lengths.
    """
    if len(table) != TABLE_BYTES or table[4:8] != _MAGIC:
        raise CorruptDataError(f"FSST symbol table of {len(table)} bytes without its magic number")
    count, switch = table[0], table[3]
    if switch not in (0, 1):
        raise CorruptDataError(f"FSST symbol table with switch {switch}")
    if switch == 0:
        return None
    symbols = np.frombuffer(table, np.uint8, count * _SYMBOL_BYTES, 8).reshape(count, _SYMBOL_BYTES)
    lengths = np.frombuffer(table, np.uint8, count, 8 + count * _SYMBOL_BYTES)
    if (lengths < 1).any() or (lengths > _SYMBOL_BYTES).any():
        raise CorruptDataError("FSST symbol with a length outside of 1 to 8")
    return SymbolTable(symbols, lengths.astype(np.int64))


def decode(table: bytes, values: VariableValues) -> VariableValues:
    """Decode all values.

    Raises:
        CorruptDataError: A bad table, an unknown code, a value that ends within an escape.
    """
    symbols = parse_table(table)
    if symbols is None:
        return values
    end = int(values.offsets[-1])
    codes, words, bounds = _resolve_escapes(values.data[:end], symbols, values.offsets)
    lengths = np.array([len(word) for word in words], np.int64)
    if len(codes) and int(codes.max()) >= len(words):
        raise CorruptDataError("FSST code without symbol")
    return _expand(codes, words, lengths, bounds, values.offsets.dtype)


def _resolve_escapes(
    codes: Bytes, table: SymbolTable, offsets: npt.NDArray[Any]
) -> tuple[npt.NDArray[Any], list[bytes], npt.NDArray[Any]]:
    """Codes without escapes, the symbols they mean, and where the codes of each value start.

    Literal bytes become symbols of their own: codes that the table leaves free while there are some.
    """
    words = [row[:n].tobytes() for row, n in zip(table.symbols, table.lengths.tolist(), strict=True)]
    marks = np.flatnonzero(codes == _ESCAPE)
    if len(marks) == 0:
        return codes, words, offsets
    # In a run of 255s every other one is an escape, because the byte after an escape is never one.
    first = np.flatnonzero(np.diff(marks, prepend=-2) != 1)
    rank = np.arange(len(marks)) - np.repeat(first, np.diff(first, append=len(marks)))
    escapes = marks[rank % 2 == 0]
    if escapes[-1] + 1 >= len(codes) or np.isin(escapes + 1, offsets, assume_unique=False).any():
        raise CorruptDataError("FSST value ends within an escape")
    literals = codes[escapes + 1]
    used = np.flatnonzero(np.bincount(literals, minlength=256))
    wide = len(words) + len(used) > 256
    new_codes = np.zeros(256, np.uint16 if wide else np.uint8)
    new_codes[used] = len(words) + np.arange(len(used))
    plain = codes.astype(new_codes.dtype)
    known = np.ones(len(codes), np.bool_)
    known[escapes + 1] = False
    known[escapes] = False
    if (codes[known] >= len(words)).any():
        raise CorruptDataError("FSST code without symbol")
    plain[escapes + 1] = new_codes[literals]
    keep = np.ones(len(codes), np.bool_)
    keep[escapes] = False
    bounds = offsets - np.searchsorted(escapes, offsets)
    return plain[keep], words + [bytes([byte]) for byte in used.tolist()], bounds


def _expand(
    codes: npt.NDArray[Any],
    words: list[bytes],
    lengths: Int64s,
    bounds: npt.NDArray[Any],
    dtype: np.dtype[Any],
) -> VariableValues:
    """Replace codes by words, block by block, and translate the bounds of values."""
    parts: list[Bytes] = []
    offsets: npt.NDArray[Any] = empty(len(bounds), np.int64)
    by_pairs = codes.dtype == np.uint8 and len(codes) >= _PAIRS_PAY_AT
    lookup = _pair_lookup(words) if by_pairs else pa.array(words, pa.binary())
    done = 0
    for low in range(0, max(len(codes), 1), _BLOCK_CODES):
        block = codes[low : low + _BLOCK_CODES]
        start, stop = np.searchsorted(bounds, (low, low + len(block)), side="left")
        inside = bounds[start:stop] - low
        text, positions = _expand_block(block, lookup, lengths, inside, by_pairs=by_pairs)
        parts.append(text)
        offsets[start:stop] = positions + done
        done += len(text)
    offsets[np.searchsorted(bounds, len(codes)) :] = done
    data = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return VariableValues(offsets.astype(dtype) if done < 1 << 31 else offsets, data)


def _expand_block(
    codes: npt.NDArray[Any],
    lookup: pa.Array,
    lengths: Int64s,
    bounds: npt.NDArray[Any],
    *,
    by_pairs: bool,
) -> tuple[Bytes, Int64s]:
    """Words of some codes, end to end, and the position in them of each bound."""
    if not by_pairs:
        taken = lookup.take(pa.array(codes))
        return _text(taken), _offsets(taken)[bounds]
    even = len(codes) // 2 * 2
    taken = lookup.take(pa.array(codes[:even].view("<u2")))
    text, offsets = _text(taken), _offsets(taken)
    if even < len(codes):
        last = np.frombuffer(lookup[int(codes[-1])].as_py()[: int(lengths[codes[-1]])], np.uint8)
        text = np.concatenate((text, last))
    odd = bounds & 1
    return text, offsets[bounds >> 1] + np.where(odd, lengths[codes[bounds - odd]], 0)


def _pair_lookup(words: list[bytes]) -> pa.Array:
    """What each pair of codes means: entry ``second << 8 | first``."""
    words = words + [b""] * (256 - len(words))
    sizes = np.array([len(word) for word in words], np.int64)
    firsts = np.tile(np.arange(256), 256)
    order = np.column_stack((firsts, np.repeat(np.arange(256), 256))).reshape(-1)
    singles = pa.array(words, pa.binary()).take(pa.array(order))
    offsets = starts_of(sizes[order])[::2].astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), 1 << 16, [None, pa.py_buffer(offsets), singles.buffers()[2]])


def _text(array: pa.Array) -> Bytes:
    return view_buffer(array.buffers()[2])


def _offsets(array: pa.Array) -> npt.NDArray[Any]:
    return np.frombuffer(array.buffers()[1], np.int32, len(array) + 1)
