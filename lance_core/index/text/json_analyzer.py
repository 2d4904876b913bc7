"""Texts of JSON documents as words: each is a path, a type and a word or value, such as ``author.name,str,mary``.

Keys of a path are joined by dots; items of an array have its path. The types are ``str``, whose texts are cut into
words, ``number``, ``bool`` and ``null``. Queries are such words, too, with semicolons between them. Words are counted
over the whole document, in the order of the sorted keys, and stop words leave no gaps. Source: indices of pylance
14.0.2.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.errors import InvalidInputError
from lance_core.index.text.analyzer import Analyzer, Tokens

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lance_core.format.index.inverted_index import TextOptions

_TYPES = ("str", "number", "bool", "null")


def make_analyzer(options: TextOptions) -> Analyzer:
    """Return what turns the texts of a column into words."""
    return JsonAnalyzer(options) if options.lance_tokenizer == "json" else Analyzer(options)


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


_DECODER = json.JSONDecoder(parse_float=_Number, parse_int=_Number)


class JsonAnalyzer(Analyzer):
    """Turns JSON documents into words. May be used by several threads.

    Args:
        options: The tokenizer of strings and its filters.
    """

    def __init__(self, options: TextOptions) -> None:
        super().__init__(options)
        self._strings = Analyzer(options)

    def tokens(self, text: str) -> list[tuple[str, int]]:
        """Return the words of a query and their places.

        Raises:
            InvalidInputError: Not a path, a type and a value, separated by commas.
        """
        result: list[str] = []
        for triple in text.split(";"):
            path, kind, value = [*triple.split(",", 2), "", ""][:3]
            if triple.count(",") < 2 or kind not in _TYPES:
                raise InvalidInputError(
                    f"{triple!r} cannot be searched in JSON: give a path, a type ({', '.join(_TYPES)}) and words or a "
                    "value, such as 'author.name,str,mary'; semicolons separate several of them"
                )
            values = [word for word, _ in self._strings.tokens(value)] if kind == "str" else [value]
            result += [f"{path},{kind},{word}" for word in values]
        return [(word, position) for position, word in enumerate(result)]

    def prefix_length(self, token: str) -> int:
        """Return the number of characters of the path and type of a word of a query."""
        return len(token) - len(token.split(",", 2)[2])

    def batch(self, texts: pa.Array) -> Tokens:
        """Return the words of documents; null has none."""
        owners: list[int] = []
        prefixes: list[str] = []
        values: list[str] = []
        is_text: list[bool] = []
        for owner, text in enumerate(texts.to_pylist()):
            if text is None:
                continue
            for path, kind, value in _leaves(_DECODER.decode(text), ""):
                owners.append(owner)
                prefixes.append(f"{path},{kind}")
                values.append(value)
                is_text.append(kind == "str")
        texts_at, others_at = np.flatnonzero(is_text), np.flatnonzero(~np.array(is_text, np.bool_))
        cut = self._strings.batch(pa.array([values[at] for at in texts_at.tolist()], pa.large_string()))
        # Words of strings and other values, in the order of the leaves.
        leaves = np.concatenate([texts_at[cut.owners], others_at])
        codes = np.concatenate([cut.codes, len(cut.terms) + np.arange(len(others_at))])
        order = np.argsort(leaves, kind="stable")
        leaves, codes = leaves[order], codes[order]
        spoken = [*cut.terms, *(values[at] for at in others_at.tolist())]
        terms: dict[str, int] = {}
        numbers = [
            terms.setdefault(f"{prefixes[leaf]},{spoken[code]}", len(terms))
            for leaf, code in zip(leaves.tolist(), codes.tolist(), strict=True)
        ]
        documents = np.array(owners, np.int64)[leaves]
        positions = np.arange(len(documents)) - np.searchsorted(documents, documents)
        return Tokens(terms=list(terms), codes=np.array(numbers, np.int64), owners=documents, positions=positions)


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str, str]]:
    """Yield the path, type and text of each value that is no container."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, path)
    elif isinstance(value, _Number):
        yield path, "number", str(value)
    elif isinstance(value, str):
        yield path, "str", value
    elif value is None:
        yield path, "null", "null"
    else:
        yield path, "bool", "true" if value else "false"
