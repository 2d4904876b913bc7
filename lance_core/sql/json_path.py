"""Paths into JSON documents, such as ``$.orders[0].price``.

The grammar is the part of pylance's that it answers for every document: members (``.name``, ``:name``, ``."a name"``,
``["a name"]``), items (``[0]``, ``[0, 2]``, ``[last]``, ``[last-1]``) and wildcards (``.*``, ``[*]``). The leading
``$`` may be left out before a member or an item. Ranges, filters and recursion are refused.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, cast

from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

Document: TypeAlias = Any
"""Value that `json.loads` returns; members in the order in which JSONB stores them."""


@frozen
class Member:
    """The member of an object.

    Attributes:
        name: Its key; None for all members.
    """

    name: str | None


@frozen
class Items:
    """Items of an array.

    Attributes:
        positions: Pairs of an index and whether it counts from the last item; None for all items, where a value that is
            no array is its own only item.
    """

    positions: tuple[tuple[int, bool], ...] | None


Step: TypeAlias = Member | Items

_QUOTED = r'"(?:[^"\\]|\\.)+"'
_POSITION = r"(?:-?\d+|last(?:\s*[-+]\s*\d+)?)"
_FIRST = re.compile(r"\w+")
_STEP = re.compile(
    rf"\s*(?:[.:](?P<name>\w+|{_QUOTED})|\[\s*(?P<key>{_QUOTED})\s*\]|(?P<members>\.\*(?!\*))"
    rf"|(?P<items>\[\s*\*\s*\])|\[\s*(?P<positions>{_POSITION}(?:\s*,\s*{_POSITION})*)\s*\])"
)
_REFUSED = (
    (re.compile(r"\s*(?:\.\*\*|\.\.)"), "recursion (.. or .**)"),
    (re.compile(r"\s*\?"), "a filter (?)"),
    (re.compile(r"\s*\[[^\]]*\bto\b"), "a range (to)"),
    (re.compile(r"\s*[-+*/=<>!&|]"), "an operator"),
)


@lru_cache(maxsize=256)
def parse_path(text: str) -> tuple[Step, ...]:
    """The steps of a path; none for the whole document.

    Args:
        text: The path.

    Raises:
        InvalidInputError: Not a path.
        UnsupportedError: Recursion, filters, ranges and operators.
    """
    at, parsed = len(text) - len(text.lstrip()), list[Step]()
    first = _FIRST.match(text, at)
    if text.startswith("$", at):
        at += 1
    elif first is not None:
        at = first.end()
        parsed.append(Member(first.group()))
    while text[at:].strip():
        match = _STEP.match(text, at)
        if match is None:
            _refuse(text, at)
        parsed.append(_step(match))
        at = match.end()
    return tuple(parsed)


def _refuse(text: str, at: int) -> NoReturn:
    for pattern, what in _REFUSED:
        if pattern.match(text, at):
            raise UnsupportedError(f"the JSON path {text!r} has {what}, which is not supported")
    raise InvalidInputError(
        f"the JSON path {text!r} cannot be parsed from {text[at:]!r}; write it as '$.name[0]', "
        "and other names than words in double quotes"
    )


def _step(match: re.Match[str]) -> Step:
    if match["members"]:
        return Member(None)
    if match["items"]:
        return Items(None)
    if match["positions"]:
        return Items(tuple(_position("".join(part.split())) for part in match["positions"].split(",")))
    name: str = match["name"] or match["key"]
    if not name.startswith('"'):
        return Member(name)
    try:
        return Member(cast("str", json.loads(name)))
    except ValueError as error:
        raise InvalidInputError(f"{name} in a JSON path is not a JSON string: {error}") from error


def _position(text: str) -> tuple[int, bool]:
    is_last = text.startswith("last")
    return int(text.removeprefix("last") or 0), is_last


def find_all(document: Document, path: tuple[Step, ...]) -> list[Document]:
    """Return the values at a path.

    Args:
        document: The whole document.
        path: From `parse_path`.
    """
    documents = [document]
    for step in path:
        follow = _members if isinstance(step, Member) else _items
        documents = [inner for document in documents for inner in follow(document, cast("Any", step))]
    return documents


def _members(value: Document, step: Member) -> Iterator[Document]:
    if not isinstance(value, dict):
        return
    members = cast("dict[str, Document]", value)
    if step.name is None:
        yield from members.values()
    elif step.name in members:
        yield members[step.name]


def _items(value: Document, step: Items) -> Iterator[Document]:
    if not isinstance(value, list):
        if step.positions is None:
            yield value
        return
    items = cast("list[Document]", value)
    if step.positions is None:
        yield from items
        return
    for number, is_last in step.positions:
        index = number + len(items) - 1 if is_last else number
        if 0 <= index < len(items):
            yield items[index]
