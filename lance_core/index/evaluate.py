"""Evaluate a condition with the answers of indices to the questions in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.index import answer as answers
from lance_core.sql.pruning import And, Constant, FillNull, Not, Or, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

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
            return answers.and_(evaluate(condition.left, ask), evaluate(condition.right, ask))
        case Or():
            return answers.or_(evaluate(condition.left, ask), evaluate(condition.right, ask))
        case _:
            return ask(condition)


def tells_null_from_false(condition: Condition) -> bool:
    """Return whether it matters for which rows a question in the condition is null and for which it is false."""
    match condition:
        case Not() | FillNull():
            return True
        case And() | Or():
            return tells_null_from_false(condition.left) or tells_null_from_false(condition.right)
        case _:
            return False
