"""Evaluate a condition with the answers of indices to the questions in it."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from lance_core.index import answer as answers
from lance_core.sql.pruning import And, Comparison, Constant, FillNull, Not, Or, Range, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lance_core.index.answer import RowAnswer
    from lance_core.sql.pruning import Condition, Question


def evaluate(condition: Condition, ask: Callable[[Question], RowAnswer]) -> RowAnswer:
    """Return what is known of the answer of a condition.

    Args:
        condition: What is asked.
        ask: Returns what is known of the answer to a question about one column.
    """
    match condition:
        case Constant():
            return answers.certain(condition.value)
        case Unknown():
            return answers.UNKNOWN_ANSWER
        case Not():
            return answers.not_(evaluate(condition.inner, ask))
        case FillNull():
            return answers.fill_null(evaluate(condition.inner, ask), value=condition.value)
        case And():
            return reduce(answers.and_, [evaluate(part, ask) for part in _joined_ranges(condition)])
        case Or():
            return answers.or_(evaluate(condition.left, ask), evaluate(condition.right, ask))
        case _:
            return ask(condition)


_LOW, _HIGH = ("greater", "greater_equal"), ("less", "less_equal")


def _joined_ranges(condition: And) -> Iterator[Condition]:
    """Yield the parts of a conjunction; two that bound a column from both sides become one."""
    open_ends: dict[tuple[str, bool], Comparison] = {}
    for part in _parts(condition):
        if not isinstance(part, Comparison) or part.operator not in (*_LOW, *_HIGH):
            yield part
            continue
        is_low = part.operator in _LOW
        other = open_ends.pop((part.column, not is_low), None)
        if other is not None:
            yield Range(part, other) if is_low else Range(other, part)
        elif (part.column, is_low) in open_ends:
            yield part
        else:
            open_ends[part.column, is_low] = part
    yield from open_ends.values()


def _parts(condition: Condition) -> Iterator[Condition]:
    """Yield the parts of a conjunction, in order."""
    stack = [condition]
    while stack:
        part = stack.pop()
        if isinstance(part, And):
            stack += (part.right, part.left)
        else:
            yield part


def tells_null_from_false(condition: Condition) -> bool:
    """Return whether it matters for which rows a question in the condition is null and for which it is false."""
    match condition:
        case Not() | FillNull():
            return True
        case And() | Or():
            return tells_null_from_false(condition.left) or tells_null_from_false(condition.right)
        case _:
            return False
