"""Tables of characters: letters and digits, small letters, and what stands for them in ASCII.

The tables are files of this package, measured on pylance 14.0.2, so that words do not depend on the Unicode tables of
the Python that reads or builds an index.
"""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Mapping

Bools: TypeAlias = npt.NDArray[np.bool_]

_CODE_POINTS = 0x110000
_ASCII_SPACES = (9, 10, 12, 13, 32)


@lru_cache(maxsize=1)
def alphanumeric() -> Bools:
    """Return for each code point whether it belongs to words of the tokenizer ``simple``."""
    table = np.zeros(_CODE_POINTS, np.bool_)
    for low, high in _ranges(_lines("characters.txt")["alphanumeric"]):
        table[low : high + 1] = True
    return table


@lru_cache(maxsize=1)
def not_space() -> Bools:
    """Return for each code point whether it belongs to words of the tokenizer ``whitespace``."""
    table = np.ones(_CODE_POINTS, np.bool_)
    table[list(_ASCII_SPACES)] = False
    return table


def lower(word: str) -> str:
    """Put a word in lower case, character by character: a sigma at the end is like any other."""
    if word.isascii():
        return word.lower()
    table = _lower_table()
    return "".join([table.get(character) or character.lower() for character in word])


def fold(word: str) -> str:
    """Replace characters by those of ASCII that stand for them."""
    return word if word.isascii() else word.translate(_fold_table())


def stop_words(language: str) -> frozenset[str]:
    """Return the stop words of a language."""
    return frozenset(_lines("stop_words.txt").get(language, "").split())


@lru_cache(maxsize=1)
def _lower_table() -> Mapping[str, str]:
    pairs = (entry.split("=") for entry in _lines("characters.txt")["lower"].split())
    return {chr(int(code, 16)): _text(codes) for code, codes in pairs}


@lru_cache(maxsize=1)
def _fold_table() -> Mapping[int, str]:
    table: dict[int, str] = {}
    for name, content in _lines("characters.txt").items():
        kind, _, codes = name.partition(":")
        if kind == "fold":
            text = _text(codes)
            table |= {code: text for low, high in _ranges(content) for code in range(low, high + 1)}
    return table


@lru_cache(maxsize=2)
def _lines(name: str) -> Mapping[str, str]:
    text = files("lance_core.index.text").joinpath(name).read_text("utf-8").replace("\n ", " ")
    lines = (line.partition(" ") for line in text.splitlines() if not line.startswith("#"))
    return {line_name: content for line_name, _, content in lines}


def _ranges(content: str) -> list[tuple[int, int]]:
    pairs = (entry.partition("-") for entry in content.split())
    return [(int(low, 16), int(high or low, 16)) for low, _, high in pairs]


def _text(codes: str) -> str:
    return "".join([chr(int(code, 16)) for code in codes.split("+") if code])
