"""FSST symbol tables: their bytes, how symbols are chosen, and how texts are taken apart into them.

A table has up to 255 symbols of 1 to 8 bytes. On disk it takes 2312 bytes: count (u8), terminator (u8), suffix limit
(u8), switch (u8), ``TSSF``; 8 bytes for each symbol; one length byte for each symbol; zeros. Switch 0: the data is not
compressed. Terminator and suffix limit are hints for the encoder of pylance.

Texts are taken apart from left to right, the longest symbol first. One position follows from the one before, so that
the only thing to do for many at once is many texts: each step finds the next symbol of all of them.

Source: message ``Fsst``; Boncz, Neumann, Leis: FSST, VLDB 2020.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.common.frozen import frozen
from lance_core.encoding.kernels import gather, gather_words, join_ranges, starts_of
from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_core.encoding.values import Bytes, Int64s

TABLE_BYTES = 2312
MAX_SYMBOLS = 255
LITERAL = 256
"""Tokens from here on are bytes without a symbol."""

_MAGIC = b"TSSF"
_SYMBOL_BYTES = 8
_SLOTS = 1 << 12
_PREFIX, _MIX, _SHIFT = 0xFFFFFF, 0x9E3779B1, 20
"""First three bytes of a word, times an odd number, less its lowest bits: the slot."""
_PIECE_BYTES = 128
_PIECES_AT_ONCE = 1 << 14
_SAMPLE_BYTES = 1 << 15
_ROUNDS = 5
_NUM_TOKENS = 512
_TOKEN_BITS = 9
_LONE_BYTE_BONUS = 8
"""A byte without a symbol takes two codes, and breaks what stands around it."""


def parse_table(table: bytes) -> tuple[Bytes, npt.NDArray[np.uint64]] | None:
    """Return the symbols of a table; None if its data is not compressed.

    Returns:
        Shape (symbols,): bytes of each; and the symbols as uint64, the first byte lowest, zeros behind the last.

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
    lengths = np.frombuffer(table, np.uint8, count, 8 + count * _SYMBOL_BYTES)
    if count and not 1 <= int(lengths.min()) <= int(lengths.max()) <= _SYMBOL_BYTES:
        raise CorruptDataError("FSST symbol with a length outside of 1 to 8")
    unused_bits = 64 - 8 * lengths.astype(np.uint64)
    return lengths, np.frombuffer(table, "<u8", count, 8) << unused_bits >> unused_bits


def encode_table(symbols: Sequence[bytes]) -> bytes:
    """Return a table on disk; without symbols one that says that the data is not compressed."""
    padded_symbols = b"".join(symbol.ljust(_SYMBOL_BYTES, b"\0") for symbol in symbols)
    head = bytes((len(symbols), 0, len(symbols), bool(symbols)))
    return (head + _MAGIC + padded_symbols + bytes(map(len, symbols))).ljust(TABLE_BYTES, b"\0")


@frozen
class Texts:
    """Texts cut into pieces, each followed by enough zeros to read a whole word at its last byte.

    Attributes:
        data: The bytes of all pieces.
        starts: Shape (pieces,).
        ends: Shape (pieces,).
        firsts: Shape (texts + 1,): first piece of each text, and the end.
    """

    data: Bytes
    starts: Int64s
    ends: Int64s
    firsts: Int64s


def cut(data: Bytes, sizes: Int64s) -> Texts:
    """Cut texts into pieces of at most 128 bytes, so that no text takes many more steps than others.

    Args:
        data: The texts end to end.
        sizes: Bytes of each.
    """
    pieces = -(-sizes // _PIECE_BYTES)
    firsts = starts_of(pieces)
    lengths = np.full(int(firsts[-1]), _PIECE_BYTES, np.int64)
    filled = np.flatnonzero(pieces)
    lengths[firsts[1:][filled] - 1] = sizes[filled] - (pieces[filled] - 1) * _PIECE_BYTES
    if len(lengths) == 0:
        return Texts(data[:0], lengths, lengths, firsts)
    zeros = np.zeros(_SYMBOL_BYTES * len(lengths), np.uint8)
    padded, bounds = join_ranges((data, starts_of(lengths)), (zeros, np.arange(len(lengths) + 1) * _SYMBOL_BYTES))
    return Texts(padded, bounds[:-1], bounds[1:] - _SYMBOL_BYTES, firsts)


@frozen
class SymbolTable:
    """Symbols, and where to look for the one that a word of 8 bytes begins with.

    A step is ``length << 9 | token``; a token is a symbol's number, or ``LITERAL`` + a byte.

    Attributes:
        symbols: Up to 255; their numbers are the codes.
        pairs: Shape (65536,): the step for each two bytes, from symbols of at most two.
        slots: Shape (4096,): the step of the one longer symbol whose first three bytes lead here.
        symbol_words: Shape (4096,): its bytes.
        masks: Shape (4096,): which bytes of a word must be the same.
    """

    symbols: tuple[bytes, ...]
    pairs: npt.NDArray[np.uint16]
    slots: npt.NDArray[np.uint16]
    symbol_words: npt.NDArray[np.uint64]
    masks: npt.NDArray[np.uint64]


def build(candidates: Sequence[bytes]) -> SymbolTable:
    """Return a table of the first 255 candidates for which there is room."""
    symbols: list[bytes] = []
    pairs: npt.NDArray[np.uint16] = (np.arange(1 << 16) & 255 | LITERAL | 1 << _TOKEN_BITS).astype(np.uint16)
    slots = np.zeros(_SLOTS, np.uint16)
    symbol_words = np.ones(_SLOTS, np.uint64)
    masks = np.zeros(_SLOTS, np.uint64)  # nothing masked is never 1
    for symbol in candidates:
        word, size = int.from_bytes(symbol, "little"), len(symbol)
        if size > 2:
            slot = (word & _PREFIX) * _MIX >> _SHIFT & _SLOTS - 1
            if slots[slot]:
                continue
            slots[slot] = size << _TOKEN_BITS | len(symbols)
            symbol_words[slot], masks[slot] = word, (1 << 8 * size) - 1
        symbols.append(symbol)
        if len(symbols) == MAX_SYMBOLS:
            break
    for code, symbol in sorted(enumerate(symbols), key=lambda pair: len(pair[1])):
        if len(symbol) <= 2:
            at = int.from_bytes(symbol, "little")
            pairs[slice(at, None, 256) if len(symbol) == 1 else at] = len(symbol) << _TOKEN_BITS | code
    return SymbolTable(tuple(symbols), pairs, slots, symbol_words, masks)


def _slot_of(symbol_words: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Return the slot for the first three bytes of words."""
    slots = symbol_words & np.uint64(_PREFIX)
    slots *= np.uint64(_MIX)
    slots >>= np.uint64(_SHIFT)
    slots &= np.uint64(_SLOTS - 1)
    return slots


def take_apart(table: SymbolTable, texts: Texts) -> tuple[npt.NDArray[np.uint16], Int64s]:
    """Return the tokens of all pieces, end to end, and how many each piece has."""
    tokens: list[npt.NDArray[np.uint16]] = []
    counts: list[Int64s] = []
    for low in range(0, len(texts.starts), _PIECES_AT_ONCE):
        part = slice(low, low + _PIECES_AT_ONCE)
        some, many = _take_some_apart(table, texts.data, texts.starts[part], texts.ends[part])
        tokens.append(some)
        counts.append(many)
    if not tokens:
        return np.empty(0, np.uint16), np.empty(0, np.int64)
    return np.concatenate(tokens), np.concatenate(counts)


def _take_some_apart(
    table: SymbolTable, data: Bytes, starts: Int64s, ends: Int64s
) -> tuple[npt.NDArray[np.uint16], Int64s]:
    """As `take_apart`, for so many pieces that what is known about them stays in the cache."""
    counts = np.zeros(len(starts), np.int64)
    active: Int64s = np.arange(len(starts))
    at = starts
    rounds: list[tuple[Int64s, Any]] = []
    while len(at):
        next_bytes = gather_words(data, at, "<u8")
        slots = _slot_of(next_bytes)
        is_long = next_bytes & table.masks[slots] == table.symbol_words[slots]
        table_entries = np.where(is_long, table.slots[slots], table.pairs[next_bytes & np.uint64(0xFFFF)])
        rounds.append((active, table_entries & np.uint16(_NUM_TOKENS - 1)))
        at = at + (table_entries >> np.uint16(_TOKEN_BITS))
        is_open = at < ends
        if not is_open.all():
            counts[active[~is_open]] = len(rounds)
            active, at, ends = active[is_open], at[is_open], ends[is_open]
    firsts = starts_of(counts)
    tokens = np.empty(int(firsts[-1]), np.uint16)
    for number, (pieces, matches) in enumerate(rounds):
        tokens[firsts[pieces] + number] = matches
    return tokens, counts


def train(data: Bytes, starts: Int64s, sizes: Int64s) -> SymbolTable:
    """Choose symbols for texts, by a sample of them.

    Begins with no symbols; each round takes the sample apart and looks which symbols, bytes and pairs of neighbours
    would cover most of it.
    """
    texts = _sample(data, starts, sizes)
    table = build(())
    for number in range(_ROUNDS):
        tokens, counts = take_apart(table, texts)
        table = build(_candidates(table, tokens, counts, joins=number < _ROUNDS - 1))
    return table


def _sample(data: Bytes, starts: Int64s, sizes: Int64s) -> Texts:
    """Pieces spread evenly over all texts."""
    filled = np.flatnonzero(sizes)
    starts, sizes = starts[filled], np.minimum(sizes[filled], _PIECE_BYTES)
    wanted = max(1, _SAMPLE_BYTES * len(sizes) // max(1, int(sizes.sum())))
    if wanted < len(sizes):
        chosen = np.linspace(0, len(sizes) - 1, wanted).astype(np.int64)
        starts, sizes = starts[chosen], sizes[chosen]
    return cut(gather(data, starts, sizes), sizes)


def _candidates(table: SymbolTable, tokens: npt.NDArray[np.uint16], counts: Int64s, *, joins: bool) -> list[bytes]:
    """Symbols that are worth having, the best first."""
    texts = [*table.symbols, *[b""] * (LITERAL - len(table.symbols)), *(bytes((byte,)) for byte in range(256))]
    gains: dict[bytes, int] = {}
    singles = np.bincount(tokens, minlength=_NUM_TOKENS)
    for token in np.flatnonzero(singles).tolist():
        text = texts[token]
        bonus = _LONE_BYTE_BONUS if len(text) == 1 else 1
        gains[text] = gains.get(text, 0) + int(singles[token]) * len(text) * bonus
    if joins and len(tokens) > 1:
        is_last = np.zeros(len(tokens), np.bool_)
        is_last[np.cumsum(counts) - 1] = True
        inner = ~is_last[:-1]
        pairs = np.bincount(tokens[:-1][inner].astype(np.int64) << _TOKEN_BITS | tokens[1:][inner])
        for pair in np.flatnonzero(pairs > 1).tolist():
            text = (texts[pair >> _TOKEN_BITS] + texts[pair & _NUM_TOKENS - 1])[:_SYMBOL_BYTES]
            if b"\0" not in text:  # what follows a piece is zeros
                gains[text] = gains.get(text, 0) + int(pairs[pair]) * len(text)
    return sorted(gains, key=lambda text: (-gains[text], text))
