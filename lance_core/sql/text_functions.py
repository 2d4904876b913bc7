"""Functions of SQL on text; characters are Unicode code points and are counted from 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lance_core.encoding.kernels import scalar
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.arrow_kinds import is_text
from lance_core.sql import pruning
from lance_core.sql.arrow_types import cast, element_at
from lance_core.sql.find_text import ask_with_parts, is_ascii
from lance_core.sql.kernels import pc
from lance_core.sql.pruning import UNKNOWN
from lance_core.sql.terms import Term, apply, cast_literal, literal_term

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from lance_core.sql.arrow_types import Datum
    from lance_core.sql.pruning import Condition

_MAX_REPEATED = 1 << 24
"""Characters that ``repeat`` and the padding functions make of one value at most."""

_WILDCARDS = {"%": ".*", "_": "."}
"""Of ``LIKE``, and what they are in a regular expression."""


def text(term: Term, what: str) -> Term:
    """Return the term itself, which must be text or NULL."""
    if pa.types.is_null(term.type):
        return literal_term(scalar(None, pa.string()))
    if not is_text(term.type):
        raise InvalidInputError(f"{what} needs text, not {term.type}; CAST it AS STRING")
    return term


def written(term: Term, what: str) -> str | None:
    """Return the text of a literal; None if it is NULL."""
    if term.literal is None:
        raise UnsupportedError(f"{what} supports only arguments that are written in the SQL text")
    return cast_literal(term.literal, pa.string()).as_py()


def written_number(term: Term, what: str) -> int | None:
    """Return the value of a literal whole number; None if it is NULL."""
    if term.literal is None:
        raise UnsupportedError(f"{what} supports only numbers that are written in the SQL text")
    return cast_literal(term.literal, pa.int64()).as_py()


def null_text() -> Term:
    """NULL as text."""
    return literal_term(scalar(None, pa.string()))


# ------------------------------------------------------------------------------------------------------- matching


def like(word: str, value: Term, pattern: Term, *, fold: bool, escape: str | None = None) -> Term:
    """``LIKE``, and ``ILIKE`` with ``fold``; the pattern is written in the SQL."""
    if pattern.literal is None:
        raise UnsupportedError(f"{word} supports only patterns that are written in the SQL text")
    if pa.types.is_null(pattern.type):
        return literal_term(scalar(None, pa.bool_()))
    if not is_text(value.type):
        raise InvalidInputError(f"{word} needs text, not {value.type}")
    if escape not in (None, "\\"):
        raise UnsupportedError(f"{word} supports no ESCAPE other than the backslash")
    wanted = written(pattern, word) or ""
    asks = UNKNOWN if fold or not value.path else like_condition(value.path, wanted)
    # Arrow compares one end, or both, in less time than it takes to look for their parts.
    is_sought = wanted.count("%") + wanted.count("_") > 1

    def matches(values: pa.Array, pattern: str) -> pa.Array:
        parts = _literal_parts(pattern) if is_sought else ()
        return ask_with_parts(lambda texts: _match_like(texts, pattern), values, parts)

    def matches_folded(values: pa.Array) -> pa.Array:
        # Letters of all texts are made small in a tenth of the time that Arrow takes to look for them in both cases.
        if wanted.isascii() and is_ascii(values):
            return matches(pc.ascii_lower(values), wanted.lower())
        return _match_like(values, wanted, ignore_case=True)

    return apply(matches_folded if fold else lambda values: matches(values, wanted), (value,), word, asks)


def _match_like(texts: pa.Array, pattern: str, *, ignore_case: bool = False) -> pa.Array:
    """Return which texts match a pattern, in which a backslash takes the next character as it is.

    Arrow's kernel drops a backslash at the end, and takes others for a part of the text if wildcards stand at the ends
    of the pattern only.
    """
    if "\\" not in pattern:
        return pc.match_like(texts, pattern, ignore_case=ignore_case)
    return pc.match_substring_regex(texts, _regular_expression(pattern), ignore_case=ignore_case)


def _regular_expression(pattern: str) -> str:
    """Return the regular expression of RE2 that matches the same texts."""
    characters = iter(pattern)
    parts: list[str] = []
    for character in characters:
        if character in _WILDCARDS:
            parts.append(_WILDCARDS[character])
        else:
            literal = next(characters, character) if character == "\\" else character
            parts.append(f"\\x{{{ord(literal):x}}}")
    return rf"(?s)\A{''.join(parts)}\z"


def _literal_parts(pattern: str) -> tuple[str, ...]:
    """Return the texts between wildcards; none of a pattern with an escape."""
    return () if "\\" in pattern else tuple(part for part in pattern.replace("_", "%").split("%") if part)


def like_condition(path: str, pattern: str) -> Condition:
    """Return what ``LIKE`` asks of a column.

    A text that matches begins with what stands before the first wildcard or escape, and contains what is between
    wildcards.
    """
    prefix = pattern[: min((pattern.index(mark) for mark in "%_\\" if mark in pattern), default=len(pattern))]
    begins = pruning.Prefix(path, prefix, is_exact=pattern == prefix + "%")
    texts = _literal_parts(pattern[len(prefix) :])
    if not texts:
        return begins
    contains = pruning.Contains(path, texts)
    return pruning.And(begins, contains) if prefix else contains


def _contains(values: pa.Array, part: str) -> pa.Array:
    return ask_with_parts(lambda texts: pc.match_substring(texts, part), values, (part,) if part else ())


def _matcher(name: str, kernel: Callable[..., Datum]) -> Callable[[Sequence[Term]], Term]:
    def build(terms: Sequence[Term]) -> Term:
        value, part = text(terms[0], name), written(terms[1], name)
        if part is None:
            return literal_term(scalar(None, pa.bool_()))
        return apply(lambda values: kernel(values, part), (value,), name, match_condition(name, value.path, part))

    return build


def match_condition(name: str, path: str, part: str) -> Condition:
    """Return what ``starts_with`` or ``contains`` asks of a column; unknown if its path is empty."""
    if not path:
        return UNKNOWN
    return pruning.Prefix(path, part, is_exact=True) if name == "starts_with" else pruning.Contains(path, (part,))


def _regexp_like(terms: Sequence[Term]) -> Term:
    """Return whether a regular expression matches anywhere; flag ``i`` ignores case."""
    value, pattern = text(terms[0], "regexp_match"), written(terms[1], "regexp_match")
    flags = written(terms[2], "regexp_match") if len(terms) > 2 else ""
    if pattern is None or flags is None:
        return literal_term(scalar(None, pa.bool_()))
    if flags not in ("", "i"):
        raise UnsupportedError(f"regexp_match does not support flags {flags!r}")
    return apply(
        lambda values: pc.match_substring_regex(values, pattern, ignore_case=flags == "i"), (value,), "regexp_match"
    )


def _regexp_replace(terms: Sequence[Term]) -> Term:
    name = "regexp_replace"
    value, (pattern, new) = text(terms[0], name), (written(term, name) for term in terms[1:3])
    flags = written(terms[3], name) if len(terms) > 3 else ""
    if pattern is None or new is None or flags is None:
        return null_text()
    if set(flags) - set("gi"):
        raise UnsupportedError(f"{name} does not support flags {flags!r}")
    pattern = f"(?i){pattern}" if "i" in flags else pattern
    limit = None if "g" in flags else 1
    return apply(
        lambda values: pc.replace_substring_regex(values, pattern, new, max_replacements=limit), (value,), name
    )


# -------------------------------------------------------------------------------------------------- parts of text


def substring(terms: Sequence[Term]) -> Term:
    """Characters from a place on, counted from 1, at most so many."""
    value = text(terms[0], "substring")
    numbers = [written_number(term, "substring") for term in terms[1:]]
    if None in numbers:
        return null_text()
    start, *rest = (number or 0 for number in numbers)
    if rest and rest[0] < 0:
        raise InvalidInputError(f"cannot take a substring of {rest[0]} characters")
    first = max(start - 1, 0)
    last = max(start - 1 + rest[0], 0) if rest else None
    return apply(lambda values: pc.utf8_slice_codeunits(values, first, last), (value,), "substring")


def _end(name: str) -> Callable[[Sequence[Term]], Term]:
    """``left`` and ``right``; a negative number leaves so many characters out at the other end."""

    def build(terms: Sequence[Term]) -> Term:
        value, count = text(terms[0], name), written_number(terms[1], name)
        if count is None:
            return null_text()
        first, last = (0, count) if name == "left" else (-count, None)
        if name == "right" and count == 0:
            last = 0
        return apply(lambda values: pc.utf8_slice_codeunits(values, first, last), (value,), name)

    return build


def _split_part(terms: Sequence[Term]) -> Term:
    value, mark, part_number = text(terms[0], "split_part"), written(terms[1], "split_part"), terms[2]
    number = written_number(part_number, "split_part")
    if mark is None or number is None:
        return null_text()
    if number == 0 or not mark:
        raise InvalidInputError(
            "split_part needs a separator and a part number other than 0: parts count from 1, or from -1 backwards"
        )

    def part(values: pa.Array) -> pa.Array:
        text = element_at(pc.split_pattern(values, mark), number)
        return pc.if_else(pc.is_null(values), scalar(None, values.type), pc.fill_null(text, scalar("")))

    return apply(part, (value,), "split_part")


def _padded(name: str, kernel: Callable[..., Datum]) -> Callable[[Sequence[Term]], Term]:
    """To exactly so many characters: filled up with spaces, or cut off at the end."""

    def build(terms: Sequence[Term]) -> Term:
        value, width = text(terms[0], name), written_number(terms[1], name)
        fill = written(terms[2], name) if len(terms) > 2 else " "
        if width is None or fill is None:
            return null_text()
        if len(fill) != 1:
            raise UnsupportedError(f"{name} supports only one fill character, not {fill!r}")
        if width > _MAX_REPEATED:
            raise InvalidInputError(f"{name} does not support a width of {width} characters")
        size = max(width, 0)
        return apply(lambda values: pc.utf8_slice_codeunits(kernel(values, size, fill), 0, size), (value,), name)

    return build


def _repeat(terms: Sequence[Term]) -> Term:
    value, count = text(terms[0], "repeat"), written_number(terms[1], "repeat")
    if count is None:
        return null_text()
    if count > _MAX_REPEATED:
        raise InvalidInputError(f"cannot repeat text {count} times")
    return apply(lambda values: pc.binary_repeat(values, max(count, 0)), (value,), "repeat")


def trim(where: str, terms: Sequence[Term]) -> Term:
    """Take characters away from the ends: spaces, or those of a second argument."""
    kernel = _TRIMS[where]
    value, trimmed = text(terms[0], "trim"), written(terms[1], "trim") if len(terms) > 1 else " "
    if trimmed is None:
        return null_text()
    return apply(lambda values: kernel(values, trimmed) if trimmed else values, (value,), "trim")


_TRIMS = {"BOTH": pc.utf8_trim, "LEADING": pc.utf8_ltrim, "TRAILING": pc.utf8_rtrim}


def _replace(terms: Sequence[Term]) -> Term:
    value, (old, new) = text(terms[0], "replace"), (written(term, "replace") for term in terms[1:])
    if old is None or new is None:
        return null_text()
    if not old:
        raise UnsupportedError("cannot replace empty text")
    return apply(lambda values: pc.replace_substring(values, old, new), (value,), "replace")


def position(terms: Sequence[Term]) -> Term:
    """Return the position of a part, in characters from 1; 0 if it is missing."""
    value, part = text(terms[0], "strpos"), written(terms[1], "strpos")
    if part is None:
        return literal_term(scalar(None, pa.int32()))

    def find(values: pa.Array) -> pa.Array:
        if part.isascii() and pc.all(pc.string_is_ascii(values)).as_py() is not False:
            return pc.cast(pc.add(pc.find_substring(values, part), 1), pa.int32())
        # The kernel counts bytes; so what stands before the part is measured in characters.
        before = (
            pc.list_element(pc.split_pattern(values, part, max_splits=1), 0)
            if part
            else pc.utf8_slice_codeunits(values, 0, 0)
        )
        positions = pc.add(pc.utf8_length(before), scalar(1, pa.int32()))
        return pc.if_else(pc.match_substring(values, part), pc.cast(positions, pa.int32()), scalar(0, pa.int32()))

    return apply(find, (value,), "strpos")


# ------------------------------------------------------------------------------------------------------- joining


def as_text(term: Term) -> Term:
    """Any value as text, as ``CAST`` shows it."""
    if pa.types.is_null(term.type):
        return null_text()
    return term if is_text(term.type) else apply(lambda values: cast(values, pa.string()), (term,), "CAST")


def joined(left: Term, right: Term) -> Term:
    """``||``: null if a side is null."""
    if pa.types.is_binary(left.type) and pa.types.is_binary(right.type):
        return apply(lambda a, b: pc.binary_join_element_wise(a, b, b""), (left, right), "||")
    return _join((as_text(left), as_text(right)), lambda value: value, "||")


def _join(terms: Sequence[Term], change: Callable[[Datum], Datum], what: str) -> Term:
    """Each value changed, and all of them in a row."""
    kind = pa.large_string() if any(pa.types.is_large_string(term.type) for term in terms) else pa.string()

    def join(*values: Datum) -> Datum:
        return pc.binary_join_element_wise(*(change(pc.cast(value, kind)) for value in values), scalar("", kind))

    return apply(join, terms, what)


def _concat(terms: Sequence[Term]) -> Term:
    """Unlike ``||``, nulls are left out."""
    return _join([as_text(term) for term in terms], lambda value: pc.fill_null(value, scalar("")), "concat")


def _concat_ws(terms: Sequence[Term]) -> Term:
    """With a mark between the values that are not null."""
    mark = written(terms[0], "concat_ws")
    if mark is None:
        return null_text()

    def marked(value: Datum) -> Datum:
        empty = scalar("", value.type)
        return pc.fill_null(pc.binary_join_element_wise(scalar(mark, value.type), value, empty), scalar(""))

    marked_values = _join([as_text(term) for term in terms[1:]], marked, "concat_ws")
    return apply(lambda values: pc.utf8_slice_codeunits(values, len(mark)), (marked_values,), "concat_ws")


def _plain(name: str, kernel: Callable[[Datum], Datum], result: pa.DataType | None = None) -> Callable[..., Term]:
    def build(terms: Sequence[Term]) -> Term:
        value = text(terms[0], name)
        return apply(
            lambda values: kernel(values) if result is None else pc.cast(kernel(values), result), (value,), name
        )

    return build


_LENGTH = _plain("length", pc.utf8_length, pa.int32())

TEXT_FUNCTIONS: Mapping[str, tuple[int, int, Callable[[Sequence[Term]], Term]]] = {
    "lower": (1, 1, _plain("lower", pc.utf8_lower)),
    "upper": (1, 1, _plain("upper", pc.utf8_upper)),
    "reverse": (1, 1, _plain("reverse", pc.utf8_reverse)),
    "length": (1, 1, _LENGTH),
    "char_length": (1, 1, _LENGTH),
    "character_length": (1, 1, _LENGTH),
    "octet_length": (1, 1, _plain("octet_length", pc.binary_length, pa.int32())),
    "starts_with": (2, 2, _matcher("starts_with", pc.starts_with)),
    "ends_with": (2, 2, _matcher("ends_with", pc.ends_with)),
    "contains": (2, 2, _matcher("contains", _contains)),
    "regexp_match": (2, 3, _regexp_like),
    "regexp_like": (2, 3, _regexp_like),
    "regexp_replace": (3, 4, _regexp_replace),
    "replace": (3, 3, _replace),
    "substr": (2, 3, substring),
    "substring": (2, 3, substring),
    "left": (2, 2, _end("left")),
    "right": (2, 2, _end("right")),
    "lpad": (2, 3, _padded("lpad", pc.utf8_lpad)),
    "rpad": (2, 3, _padded("rpad", pc.utf8_rpad)),
    "repeat": (2, 2, _repeat),
    "split_part": (3, 3, _split_part),
    "strpos": (2, 2, position),
    "instr": (2, 2, position),
    "trim": (1, 2, lambda terms: trim("BOTH", terms)),
    "btrim": (1, 2, lambda terms: trim("BOTH", terms)),
    "ltrim": (1, 2, lambda terms: trim("LEADING", terms)),
    "rtrim": (1, 2, lambda terms: trim("TRAILING", terms)),
    "concat": (1, 1000, _concat),
    "concat_ws": (2, 1000, _concat_ws),
}
"""Name to fewest arguments, most arguments and meaning."""
