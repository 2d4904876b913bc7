"""Parse long conditions: chains of AND and OR, and lists of literals.

sqlglot takes a fifth of a millisecond for each comparison and a twentieth for each item of a list. Of a long text, the
parts of chains are taken for themselves, and parts that differ in their literals only are parsed once. A text with
anything else than this module knows (comments, double quotes, unusual literals) is left to sqlglot as a whole.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlglot import expressions as exp

from lance_core.common.frozen import NamedTuple, frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

Node: TypeAlias = Any
"""A node of sqlglot's tree, a `Chain` or a `Part`."""

LONG = 256
"""Characters from which a text is split; shorter ones are parsed as fast as a whole."""

_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?(?![\w.])"
_TEXT = r"'(?:[^']|'')*+'"
_TOKEN = (
    rf"(?P<numbers>[iI][nN]\s*\(\s*-?{_NUMBER}(?:\s*,\s*-?{_NUMBER})++\s*\))"
    rf"|(?P<texts>[iI][nN]\s*\(\s*{_TEXT}(?:\s*,\s*{_TEXT})++\s*\))"
    rf"|(?P<number>{_NUMBER})|(?P<text>{_TEXT})"
    r"|(?P<name>`[^`]*`)|(?P<word>[^\W\d]\w*)|(?P<open>[(\[])|(?P<close>[)\]])|(?P<mark>[-+*/%=<>!|,.&^~:?])"
)
_LIST_KINDS = ("numbers", "texts")
_LITERAL_KINDS = ("number", "text", *_LIST_KINDS)
_NOT_KNOWN = ('"', "--", "/*", "#", "{", "$", "@", ";", "``", "\\")
_KEYWORDS = ("AND", "OR", "NOT", "BETWEEN", "CASE", "END")
_CLAUSES = ("GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET", "WINDOW", "QUALIFY", "UNION", "EXCEPT", "INTERSECT", "FETCH")
_FIRST_MARK = 7_000_000_000_000


@frozen
class Chain:
    """Conditions that are joined by AND or by OR.

    Attributes:
        kind: ``exp.And`` or ``exp.Or``.
        parts: At least two.
    """

    kind: type[Any]
    parts: Sequence[Node]


@frozen
class Shape:
    """A parsed condition without its literals.

    Attributes:
        node: The tree.
        literals: Nodes of single literals.
        lists: IN conditions whose values are a list of literals.
    """

    node: Node
    literals: Sequence[Node]
    lists: Sequence[Node]


@frozen
class Part:
    """A condition whose shape was parsed with other literals.

    Attributes:
        shape: What it has in common with others.
        literals: Its own literals, as text.
        lists: Its own lists, as they are written.
    """

    shape: Shape
    literals: Sequence[str]
    lists: Sequence[str]

    def filled(self) -> Node:
        """Return the tree with this part's literals; it holds until another part of the same shape is filled."""
        for node, text in zip(self.shape.literals, self.literals, strict=True):
            node.set("this", text)
        for node, text in zip(self.shape.lists, self.lists, strict=True):
            node.args["values"] = text
        return self.shape.node


class _Token(NamedTuple):
    kind: str
    start: int
    end: int
    word: str
    has_gap: bool


def split(sql: str, parse: Callable[[str], Node]) -> Node:
    """Parse a condition.

    Args:
        sql: The condition.
        parse: Makes a tree of a text; called with parts of the condition, and with those in other literals.

    Returns:
        What ``parse`` returns for the whole, or a tree of chains that means the same.
    """
    tokens = None if len(sql) < LONG or any(text in sql for text in _NOT_KNOWN) else _tokens(sql)
    partners = None if tokens is None else _partners(tokens)
    if tokens is None or partners is None:
        return parse(sql)
    return _Splitter(sql, tokens, partners, parse).tree(0, len(tokens))


def cut_where(sql: str) -> tuple[str, str] | None:
    """Take the condition out of a long query.

    Args:
        sql: The query.

    Returns:
        The query with a short condition in place of its own, and its own; None if the query is short, has no
        condition, or has something that this module does not know.
    """
    tokens = None if len(sql) < LONG or any(text in sql for text in _NOT_KNOWN) else _tokens(sql)
    partners = None if tokens is None else _partners(tokens)
    if tokens is None or partners is None:
        return None
    keywords = _outer_keywords(sql, tokens, partners)
    begin = next((at for at, word in keywords if word == "WHERE"), len(tokens))
    end = next((at for at, word in keywords if at > begin and word in _CLAUSES), len(tokens))
    if end <= begin + 1:
        return None
    first, last = tokens[begin].end, tokens[end - 1].end
    return f"{sql[:first]} TRUE {sql[last:]}", sql[first:last]


def without_table(sql: str, names: Collection[str]) -> str:
    """Take the names of a table away before those of columns.

    Args:
        sql: A condition from `cut_where`.
        names: What the table may be called, in small letters.
    """
    tokens = _tokens(sql) or []
    pieces, at = list[str](), 0
    for before, token, dot in zip([None, *tokens], tokens, tokens[1:], strict=False):
        is_first = before is None or sql[before.start : before.end] != "."
        is_name = token.kind in ("word", "name") and sql[token.start : token.end].strip("`").lower() in names
        if is_first and is_name and sql[dot.start : dot.end] == ".":
            pieces.append(sql[at : token.start])
            at = dot.end
    return "".join([*pieces, sql[at:]])


def _outer_keywords(sql: str, tokens: Sequence[_Token], partners: dict[int, int]) -> list[tuple[int, str]]:
    """Return the words outside of parentheses, with their places."""
    found_words: list[tuple[int, str]] = []
    at = 0
    while at < len(tokens):
        token = tokens[at]
        if token.kind == "word":
            found_words.append((at, sql[token.start : token.end].upper()))
        at = partners.get(at, at) + 1
    return found_words


def list_items(text: str) -> list[int] | list[float] | list[str] | list[int | float]:
    """Return the values of a list that `Part.filled` put into a tree."""
    if "'" in text:
        return [literal[1:-1].replace("''", "'") for literal in re.findall(_TEXT, text)]
    items = text[text.index("(") + 1 : -1].split(",")
    try:
        return list(map(int, items))
    except ValueError:
        return [number_of(literal) for literal in items]


def number_of(text: str) -> int | float:
    """Return the value of a number as it is written."""
    try:
        return int(text)
    except ValueError:
        return float(text)


def _tokens(sql: str) -> list[_Token] | None:
    """Return the tokens of a text; None if there is something unknown in it."""
    result: list[_Token] = []
    at, before = 0, ""
    for match in re.finditer(_TOKEN, sql):
        kind, (start, end) = str(match.lastgroup), match.span()
        if start > at and not sql[at:start].isspace():
            return None
        if kind == "text" and before == "word" and start == at:  # x'00' and the like
            return None
        word = match.group().upper() if kind == "word" else ""
        result.append(_Token(kind, start, end, word if word in _KEYWORDS else "", start > at))
        at, before = end, kind
    return None if sql[at:].strip() else result


def _partners(tokens: Sequence[_Token]) -> dict[int, int] | None:
    """For each opening parenthesis and CASE the place of its end; None if they do not match."""
    partners: dict[int, int] = {}
    opened: list[int] = []
    for position, token in enumerate(tokens):
        if token.kind == "open" or token.word == "CASE":
            opened.append(position)
        elif token.kind == "close" or token.word == "END":
            if not opened or (token.word == "END") != (tokens[opened[-1]].word == "CASE"):
                return None
            partners[opened.pop()] = position
    return None if opened else partners


class _Splitter:
    """Makes the tree of a text."""

    def __init__(
        self, sql: str, tokens: Sequence[_Token], partners: dict[int, int], parse: Callable[[str], Node]
    ) -> None:
        self._sql, self._tokens, self._partners, self._parse = sql, tokens, partners, parse
        self._shapes: dict[str, Shape | None] = {}

    def tree(self, low: int, high: int) -> Node:
        """Return the tree of the tokens [low, high)."""
        for kind, word in ((exp.Or, "OR"), (exp.And, "AND")):
            cuts = self._cuts(low, high, word)
            if cuts:
                bounds = zip([low, *(cut + 1 for cut in cuts)], [*cuts, high], strict=True)
                return Chain(kind, [self.tree(*pair) for pair in bounds])
        if self._is_wrapped(low, high):
            return self.tree(low + 1, high - 1)
        if low < high and self._tokens[low].word == "NOT" and self._is_wrapped(low + 1, high):
            return exp.Not(this=self.tree(low + 2, high - 1))
        return self._leaf(low, high)

    def _is_wrapped(self, low: int, high: int) -> bool:
        return low < high and self._partners.get(low) == high - 1 and self._sql[self._tokens[low].start] == "("

    def _cuts(self, low: int, high: int, word: str) -> list[int]:
        """Return the positions of a joining word outside of parentheses."""
        cuts: list[int] = []
        at, ranges = low, 0
        while at < high:
            token = self._tokens[at]
            if token.word == "BETWEEN":
                ranges += 1
            elif token.word == "AND" and ranges:
                ranges -= 1
            elif token.word == word:
                cuts.append(at)
            at = self._partners.get(at, at) + 1
        return cuts

    def _leaf(self, low: int, high: int) -> Node:
        tokens = self._tokens[low:high]
        if not tokens:
            return self._parse("")
        texts = [self._sql[token.start : token.end] for token in tokens]
        key = "".join(
            (" " if token.has_gap else "") + (f"\0{token.kind}" if token.kind in _LITERAL_KINDS else text)
            for token, text in zip(tokens, texts, strict=True)
        ).lstrip()
        if key not in self._shapes:
            self._shapes[key] = self._shape(tokens, texts)
        shape = self._shapes[key]
        if shape is None:
            return self._parse(self._sql[tokens[0].start : tokens[-1].end])
        pairs = list(zip(tokens, texts, strict=True))
        literals = [text for token, text in pairs if token.kind in _LITERAL_KINDS and token.kind not in _LIST_KINDS]
        unquoted = [literal[1:-1].replace("''", "'") if literal[0] == "'" else literal for literal in literals]
        return Part(shape, unquoted, [text for token, text in pairs if token.kind in _LIST_KINDS])

    def _shape(self, tokens: Sequence[_Token], texts: Sequence[str]) -> Shape | None:
        """Parse with literals that can be told apart; None if not each of them is found again."""
        literal_kinds: list[tuple[str, bool]] = []
        pieces: list[str] = []
        for token, text in zip(tokens, texts, strict=True):
            mark, is_list = str(_FIRST_MARK + len(literal_kinds)), token.kind in _LIST_KINDS
            quoted = f"'{mark}'" if token.kind in ("text", "texts") else mark
            if token.kind in _LITERAL_KINDS:
                literal_kinds.append((mark, is_list))
                text = f"IN ({quoted})" if is_list else quoted  # noqa: PLW2901 it stands for the literal
            pieces.append(" " + text if token.has_gap else text)
        node = self._parse("".join(pieces))
        nodes = {literal.name: literal for literal in node.find_all(exp.Literal)}
        if len(nodes) != len(literal_kinds) or any(mark not in nodes for mark, _ in literal_kinds):
            return None
        lists = [nodes[mark].parent for mark, is_list in literal_kinds if is_list]
        if not all(isinstance(node, exp.In) and len(node.expressions) == 1 for node in lists):
            return None
        return Shape(node, [nodes[mark] for mark, is_list in literal_kinds if not is_list], lists)
