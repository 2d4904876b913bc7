"""Values in one JSON document that a path leads to; see `lance_core.sql.json_path` for paths."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from lance_core.sql.json_path import Descendants, Exists, Items, Literal, Logic, Member, Path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from lance_core.sql.json_path import Comparison, Condition, Position, Step

Document: TypeAlias = Any
"""Value that `json.loads` returns; members in the order in which JSONB stores them."""

_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def find_all(document: Document, path: Path | Condition) -> list[Document]:
    """Find the values at a path.

    Args:
        document: The whole document.
        path: From `parse_path`.

    Returns:
        The values in the order of the document; for a condition its answer: true, false or null.
    """
    if isinstance(path, Path):
        return _follow(path, document, document)
    return [_answer(path, document, document)]


def _follow(path: Path, document: Document, current: Document) -> list[Document]:
    values = [current if path.is_relative else document]
    for step in path.steps:
        values = [inner for value in values for inner in _inner(value, step, document)]
    return values


def _inner(value: Document, step: Step, document: Document) -> Iterator[Document]:
    if isinstance(step, Member):
        yield from _members(value, step)
    elif isinstance(step, Items):
        yield from _items(value, step)
    elif isinstance(step, Descendants):
        yield from _descendants(value, step, 0)
    elif _answer(step.condition, document, value):
        yield value


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
        if step.ranges is None:
            yield value
        return
    items = cast("list[Document]", value)
    if step.ranges is None:
        yield from items
        return
    for first, last in step.ranges:
        start, end = _index(first, len(items)), _index(last, len(items))
        yield from items[max(0, start) : max(0, end + 1)]


def _index(position: Position, count: int) -> int:
    return position.number + count - 1 if position.is_last else position.number


def _descendants(value: Document, step: Descendants, depth: int) -> Iterator[Document]:
    if step.highest is not None and depth > step.highest:
        return
    if depth >= step.lowest:
        yield value
    for inner in _children(value):
        yield from _descendants(inner, step, depth + 1)


def _children(value: Document) -> list[Document]:
    if isinstance(value, dict):
        return list(cast("dict[str, Document]", value).values())
    return cast("list[Document]", value) if isinstance(value, list) else []


# ------------------------------------------------------------------------------------------------------- conditions


def _answer(condition: Condition, document: Document, current: Document) -> bool | None:
    """Return the answer of a condition; null if a part of it has none, even if other parts would decide."""
    if isinstance(condition, Exists):
        return bool(_follow(condition.path, document, current))
    if isinstance(condition, Logic):
        answers = [_answer(part, document, current) for part in condition.conditions]
        if None in answers:
            return None
        return all(answers) if condition.needs_all else any(answers)
    return _compare_all(condition, document, current)


def _compare_all(condition: Comparison, document: Document, current: Document) -> bool | None:
    """Return the first answer of a pair that is not false, as pylance does."""
    rights = _operands(condition.right, document, current)
    for left in _operands(condition.left, document, current):
        for right in rights:
            answer = _compare(condition.operator, left, right)
            if answer is not False:
                return answer
    return False


def _operands(side: Path | Literal, document: Document, current: Document) -> list[Document]:
    """Return the values of a side of a comparison; the items of arrays in their place."""
    if isinstance(side, Literal):
        return [side.value]
    values = list[Document]()
    for value in _follow(side, document, current):
        values += cast("list[Document]", value) if isinstance(value, list) else [value]
    return values


def _compare(operator: str, left: Document, right: Document) -> bool | None:
    kinds = {_kind(left), _kind(right)}
    if None in kinds:
        return None
    if operator == "starts with":
        return left.startswith(right) if kinds == {"string"} else None
    if len(kinds) > 1:
        return True if operator == "!=" else None
    if left is None:
        left = right = 0
    elif isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
    return _COMPARE[operator](left, right)


def _kind(value: Document) -> str | None:
    """Return the kind of values that a value is compared with; None for arrays and objects."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, str):
        return "string"
    return None if isinstance(value, list | dict) else "number"
