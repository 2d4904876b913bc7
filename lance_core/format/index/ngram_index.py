"""Indices of trigrams: the rows of each trigram of a text column.

An index folder holds one Lance file, ``ngram_postings.lance``, with a row for each trigram, ascending:

    tokens          uint32, number of the trigram; 0 has the rows whose text is null
    posting_list    binary, not null and not compressed: a Roaring treemap as in `lance_core.format.index.row_sets`: of
                    row addresses; of row ids in tables with stable row ids

Texts are put in lower case, then letters and digits of other scripts are replaced by those of ASCII that they stand
for. A trigram is three ASCII letters or digits in a row, with the number ``(a * 37 + b) * 37 + c``: digits count from 1
and small letters from 11. Source: what pylance 14.0.2 writes, measured with each code point below 0x20000.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

FILE_NAME = "ngram_postings.lance"
TYPE_URL = "/lance.table.NGramIndexDetails"
VERSION = 0
NULL_TOKEN = 0
TRIGRAM = 3
NGRAM_SCHEMA = pa.schema(
    [
        pa.field("tokens", pa.uint32()),
        pa.field("posting_list", pa.binary(), nullable=False, metadata={"lance-encoding:compression": "none"}),
    ]
)
_BASE = 37

_LETTERS = {
    "æ": "ae", "Æ": "AE", "𐞃": "ae", "ð": "d", "đ": "d", "ø": "o", "𐞢": "o", "þ": "th", "ß": "ss", "ħ": "h", "Ħ": "H",
    "𐞕": "h", "\u0131": "i", "ĸ": "k", "ł": "l", "ŋ": "n", "œ": "oe", "ŧ": "t", "\ua7f1": "S",
}  # fmt: skip
"""Letters that Unicode does not decompose into those of ASCII."""

_OUTLINED = {chr(0x1CCD6 + index): text for index, text in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")}
"""Characters of Unicode 16, which Python's tables may lack."""


def _numbers() -> npt.NDArray[np.uint32]:
    """Return the number of each byte; 0 for those that are no ASCII letter or digit."""
    numbers = np.zeros(256, np.uint32)
    for code in range(128):
        if chr(code).isalnum():
            # Capital letters come from characters like the modifier letter A, which has no small letter; pylance
            # subtracts below zero and keeps the lowest eight bits.
            numbers[code] = code - ord("0") + 1 if chr(code).isdigit() else (code - ord("a") + 11) & 0xFF
    return numbers


_NUMBERS = _numbers()
_IS_LETTER = np.array([code < 128 and chr(code).isalnum() for code in range(256)])


@lru_cache(maxsize=1 << 14)
def _folded(character: str) -> str:
    """Return the ASCII letters and digits of a character in lower case; ``#`` if it has none."""
    if character.isascii():
        return character
    pieces = (_OUTLINED.get(letter) or unicodedata.normalize("NFKD", letter) for letter in character)
    return "".join(
        "".join(letter if letter.isascii() else _LETTERS.get(letter, "") for letter in piece) or "#" for piece in pieces
    )


def fold(text: str) -> bytes:
    """Return a text as trigrams are made of it: ASCII, with other bytes in place of all that is no letter or digit."""
    if text.isascii():
        return text.lower().encode()
    return "".join(_folded(character.lower()) for character in text).encode()


def trigrams(text: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.uint32], ...]:
    """Return all trigrams of folded texts.

    Args:
        text: Shape (n,), bytes of texts that follow one another.
        ends: Shape (texts,), where each of them ends, ascending.

    Returns:
        Number of each trigram, and of the text that has it.
    """
    if len(text) < TRIGRAM:
        return np.empty(0, np.uint32), np.empty(0, np.uint32)
    numbers, is_letter = _NUMBERS[text], _IS_LETTER[text]
    first, second, third = numbers[:-2], numbers[1:-1], numbers[2:]
    is_inside = is_letter[:-2] & is_letter[1:-1] & is_letter[2:]
    inner = ends[:-1]
    for back in (1, 2):  # trigrams must not reach from one text into the next
        is_inside[inner[(inner >= back) & (inner - back < len(is_inside))] - back] = False
    positions = np.flatnonzero(is_inside)
    tokens = (first[positions] * _BASE + second[positions]) * _BASE + third[positions]
    return tokens, np.searchsorted(ends, positions, side="right").astype(np.uint32)


def certain_trigrams(text: str) -> list[int]:
    """Return trigrams that every text has which contains this one, whatever Unicode tables its index was built with.

    Characters are folded one by one, so runs of ASCII letters and digits stay together.
    """
    ascii_text = "".join(character if character.isascii() else "#" for character in text).lower().encode()
    tokens, _ = trigrams(np.frombuffer(ascii_text, np.uint8), np.array([len(ascii_text)], np.int64))
    return sorted(set(tokens.tolist()))
