"""Paths into JSON documents, such as ``$.orders[*]?(@.price > 10).name``, as a syntax tree.

The grammar is pylance's. A path has these steps, and the leading ``$`` may be left out before the first one:

| step               | written as                                                                                |
|--------------------|-------------------------------------------------------------------------------------------|
| member             | ``.name``, ``:name``, ``."a name"``, ``["a name"]``; ``.*`` for all members               |
| items              | ``[0]``, ``[0, 2]``, ``[last]``, ``[last-1]``, ``[1 to last]``; ``[*]`` for all items     |
| descendants        | ``.**``, ``.**{2}``, ``.**{1 to 3}``, ``.**{1 to last}``                                  |
| filter             | ``?(condition)``                                                                          |

A condition compares ``@`` (the value to filter), ``$`` (the document) and literals by ``== != <> < <= > >=`` and
``starts with``, and has ``exists(@.name)``, ``&&``, ``||`` and parentheses. A condition may also stand in place of the
path. Arithmetic and literals that are not finite are refused. Decimal literals, empty strings and filters inside of
comparisons are accepted too, which pylance 14.0.2 takes for syntax errors.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, NoReturn, TypeAlias, cast

from lance_core.common.frozen import frozen
from lance_core.errors import InvalidInputError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable


@frozen
class Member:
    """The member of an object.

    Attributes:
        name: Its key; None for all members.
    """

    name: str | None


@frozen
class Position:
    """The position of an item in an array.

    Attributes:
        number: Its index.
        is_last: The index counts from the last item.
    """

    number: int
    is_last: bool = False


@frozen
class Items:
    """Items of an array.

    Attributes:
        ranges: First and last position of each range; one item is a range too. None for all items, where a value
            that is no array is its own only item.
    """

    ranges: tuple[tuple[Position, Position], ...] | None


@frozen
class Descendants:
    """A value and all that is inside of it, each value before what it contains.

    Attributes:
        lowest: Least depth; 0 is the value itself.
        highest: Greatest depth; None for no bound.
    """

    lowest: int = 0
    highest: int | None = None


@frozen
class Filter:
    """Only values for which a condition is true."""

    condition: Condition


Step: TypeAlias = Member | Items | Descendants | Filter


@frozen
class Path:
    """Steps to follow one after the other.

    Attributes:
        steps: None of them for the value itself.
        is_relative: The path starts at the value to filter (``@``), not at the document.
    """

    steps: tuple[Step, ...]
    is_relative: bool = False


@frozen
class Literal:
    """A null, boolean, number or string."""

    value: str | float | None


@frozen
class Comparison:
    """A comparison of all values on the left with all on the right.

    Attributes:
        operator: One of ``== != < <= > >=`` and ``starts with``.
        left: Values on the left.
        right: Values on the right.
    """

    operator: str
    left: Path | Literal
    right: Path | Literal


@frozen
class Exists:
    """True if a path leads to a value."""

    path: Path


@frozen
class Logic:
    """Several conditions as one.

    Attributes:
        needs_all: All of them must be true, not only one.
        conditions: At least two.
    """

    needs_all: bool
    conditions: tuple[Condition, ...]


Condition: TypeAlias = Comparison | Exists | Logic

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_POSITION = r"(?:-?\d+|last(?:\s*[-+]\s*\d+)?)"
_RANGE = rf"{_POSITION}(?:\s*to\s*{_POSITION})?"
_FIRST = re.compile(r"\w+")
_STEP = re.compile(
    rf"\s*(?:[.:](?P<name>\w+|{_QUOTED})|\[\s*(?P<key>{_QUOTED})\s*\]|(?P<members>\.\*(?!\*))"
    rf"|(?P<items>\[\s*\*\s*\])|\[\s*(?P<ranges>{_RANGE}(?:\s*,\s*{_RANGE})*)\s*\]"
    r"|(?P<all>\.\*\*)(?:\{\s*(?P<lowest>\d+)(?P<more>\s*to\s*(?P<highest>\d+|last))?\s*\})?|(?P<filter>\?\s*\())"
)
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_LITERAL = re.compile(rf"\s*(?P<word>null\b|true\b|false\b)|\s*(?P<number>{_NUMBER})(?!\w)|\s*(?P<string>{_QUOTED})")
_OPERATOR = re.compile(r"\s*(==|!=|<>|<=|>=|<|>|starts with)")
_START = re.compile(r"\s*([$@])")
_EXISTS = re.compile(r"\s*exists\s*\(")
_CONDITION = re.compile(rf"\s*(?:\(|exists\s*\(|@|(?:{_LITERAL.pattern}){_OPERATOR.pattern})")
"""How a text starts that is a condition, whatever follows, and no path."""
_ARITHMETIC = re.compile(r"\s*[-+*/%]")
_NOT_FINITE = re.compile(r"\s*[-+]?(?:nan|inf|infinity)\b", re.IGNORECASE)
_LITERALS = {"null": None, "true": True, "false": False}
_MIN_INTEGER, _MAX_INTEGER = -(2**63), 2**64 - 1
_MAX_DEPTH = 50


@lru_cache(maxsize=256)
def parse_path(text: str) -> Path | Condition:
    """Parse a path, or a condition in its place.

    Args:
        text: The path.

    Raises:
        InvalidInputError: Not a path.
        UnsupportedError: Arithmetic; numbers that are not finite; strings that are not Unicode; conditions nested more
            than 50 deep.
    """
    if _CONDITION.match(text):
        return _Parser(text).whole(_Parser.condition)
    start = _START.match(text)
    if start is None:
        return _Parser(text).whole(_Parser.path)
    parser = _Parser(text)
    path = parser.path()
    return path if parser.is_at_end() else _Parser(text).whole(_Parser.condition)


class _Parser:
    """Recursive descent; ``_at`` is the position of the next character."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def whole(self, parse: Callable[[_Parser], Path | Condition]) -> Path | Condition:
        """Parse all of the text."""
        parsed = parse(self)
        if not self.is_at_end():
            self._refuse()
        return parsed

    def is_at_end(self) -> bool:
        """Return whether only spaces are left."""
        return not self._text[self._at :].strip()

    def path(self) -> Path:
        """Parse a path; its start may be left out."""
        start = self._next(_START)
        path_steps = list[Step]()
        if start is None:
            self._at = len(self._text) - len(self._text.lstrip())
            first = self._next(_FIRST)
            if first is not None:
                path_steps.append(Member(first.group()))
        while step := self._next(_STEP):
            path_steps.append(self._step(step))
        return Path(tuple(path_steps), is_relative=start is not None and start[1] == "@")

    def condition(self) -> Condition:
        """Parse alternatives, which bind less than ``&&``."""
        return self._logic("||", lambda: self._logic("&&", self._term, needs_all=True), needs_all=False)

    def _logic(self, operator: str, parse: Callable[[], Condition], *, needs_all: bool) -> Condition:
        conditions = [parse()]
        while self._next(re.compile(rf"\s*{re.escape(operator)}")):
            conditions.append(parse())
        return conditions[0] if len(conditions) == 1 else Logic(needs_all=needs_all, conditions=tuple(conditions))

    def _term(self) -> Condition:
        if self._next(re.compile(r"\s*\(")):
            return self._nested()
        if self._next(_EXISTS):
            if not _START.match(self._text, self._at):
                self._refuse()
            path = self.path()
            self._expect(")")
            return Exists(path)
        left, operator = self._operand(), self._next(_OPERATOR)
        if operator is None:
            self._refuse()
        return Comparison("!=" if operator[1] == "<>" else operator[1], left, self._operand())

    def _nested(self) -> Condition:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise UnsupportedError(f"the JSON path {self._text[:40]!r}... has conditions nested over {_MAX_DEPTH} deep")
        condition = self.condition()
        self._depth -= 1
        self._expect(")")
        return condition

    def _operand(self) -> Path | Literal:
        if _START.match(self._text, self._at):
            return self.path()
        literal = self._next(_LITERAL)
        if literal is None:
            self._refuse()
        if literal["word"]:
            return Literal(_LITERALS[literal["word"]])
        return Literal(self._string(literal["string"]) if literal["string"] else _number(literal["number"]))

    def _step(self, step: re.Match[str]) -> Step:
        if step["members"]:
            return Member(None)
        if step["items"]:
            return Items(None)
        if step["ranges"]:
            return Items(tuple(_range(text) for text in step["ranges"].split(",")))
        if step["all"]:
            return _descendants(step)
        if step["filter"]:
            return Filter(self._nested())
        name: str = step["name"] or step["key"]
        if name == '""':
            self._at = step.start()
            self._refuse()
        return Member(self._string(name) if name.startswith('"') else name)

    def _string(self, quoted: str) -> str:
        try:
            value = cast("str", json.loads(quoted))
            value.encode()
        except UnicodeEncodeError as error:
            raise UnsupportedError(f"{quoted} in a JSON path is not supported: it is no Unicode") from error
        except ValueError as error:
            raise InvalidInputError(f"{quoted} in a JSON path is not a JSON string: {error}") from error
        return value

    def _next(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Step over a pattern if the text goes on with it."""
        match = pattern.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return match

    def _expect(self, character: str) -> None:
        if self._next(re.compile(rf"\s*{re.escape(character)}")) is None:
            self._refuse()

    def _refuse(self) -> NoReturn:
        if _NOT_FINITE.match(self._text, self._at):
            raise UnsupportedError(f"the JSON path {self._text!r} has a number that is not finite; compare with others")
        if _ARITHMETIC.match(self._text, self._at):
            raise UnsupportedError(f"the JSON path {self._text!r} has arithmetic, which is not supported")
        raise InvalidInputError(
            f"the JSON path {self._text!r} cannot be parsed from {self._text[self._at :]!r}; write it as '$.name[0]', "
            "other names than words in double quotes, and a filter as '?(@.name == 1)'"
        )


def _number(text: str) -> float:
    """Return an integer of up to 64 bits, else a float."""
    try:
        number = int(text)
    except ValueError:
        return float(text)
    return number if _MIN_INTEGER <= number <= _MAX_INTEGER else float(text)


def _range(text: str) -> tuple[Position, Position]:
    first, _, last = "".join(text.split()).partition("to")
    return _position(first), _position(last or first)


def _position(text: str) -> Position:
    return Position(int(text.removeprefix("last") or 0), is_last=text.startswith("last"))


def _descendants(step: re.Match[str]) -> Descendants:
    if step["lowest"] is None:
        return Descendants()
    highest: str = step["highest"] if step["more"] else step["lowest"]
    return Descendants(int(step["lowest"]), None if highest == "last" else int(highest))
