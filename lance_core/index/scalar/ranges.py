"""Questions as ranges of sorted values: what B-trees and bitmap indices share."""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.format.arrow_kinds import is_text
from lance_core.sql.pruning import Comparison, Membership, Prefix, Question, Range

Int64s: TypeAlias = npt.NDArray[np.int64]
Side: TypeAlias = Literal["left", "right"]


class Positions(Protocol):
    """Finds values among the sorted ones."""

    def __call__(self, values: pa.Array, *sides: Side) -> list[Int64s] | None:
        """Return the first place that is not less than each value (left), or that is greater (right).

        Returns:
            Shape (values,) for each side; None if a scan is cheaper.
        """
        ...


def question_ranges(
    question: Question, kind: pa.DataType, positions: Positions, *, first: int, end: int
) -> tuple[Int64s, Int64s] | None:
    """Return the ranges of sorted values for which a question is true.

    Args:
        question: A question other than for nulls and inequality.
        kind: Type of the values.
        positions: Finds values.
        first: Place of the first value that is not null.
        end: Place behind the last one.

    Returns:
        Starts and ends of the ranges; None if values in order do not answer the question, or must not.
    """
    match question:
        case Comparison():
            values = fitting(pa.repeat(question.value, 1), kind)
            return None if values is None else _compared(question.operator, values, positions, first, end)
        case Range():
            ends = [fitting(pa.repeat(part.value, 1), kind) for part in (question.low, question.high)]
            given = [values for values in ends if values is not None]
            return _between(question, pa.concat_arrays(given), positions) if len(given) == len(ends) else None
        case Membership():
            values = fitting(question.values, kind)
            return None if values is None else _equal(values, positions)
        case Prefix():
            return _beginning_with(question.text, kind, positions, end)
        case _:
            return None


def fitting(values: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Return the values of a question in the column's type; None if an index must not answer for them.

    Zeros and NaN among floats are left to the scan: whether zeros of both signs are equal depends on the expression.
    """
    if is_text(kind) and is_text(values.type):
        return values.cast(kind)
    if not values.type.equals(kind):
        return None
    if pa.types.is_floating(kind):
        numbers = values.to_numpy(zero_copy_only=False)
        return None if (np.isnan(numbers) | (numbers == 0)).any() else values
    return values


def _compared(
    operator: str, values: pa.Array, positions: Positions, first: int, end: int
) -> tuple[Int64s, Int64s] | None:
    if operator == "equal":
        return _equal(values, positions)
    side: Side = "left" if operator in {"less", "greater_equal"} else "right"
    bounds = positions(values, side)
    if bounds is None:
        return None
    if operator in {"less", "less_equal"}:
        return np.array([first]), bounds[0]
    return bounds[0], np.array([end])


def _between(question: Range, ends: pa.Array, positions: Positions) -> tuple[Int64s, Int64s] | None:
    """Return the range of the values between two."""
    bounds = positions(ends, "left", "right")
    if bounds is None:
        return None
    left, right = bounds
    start = right[:1] if question.low.operator == "greater" else left[:1]
    end = left[1:] if question.high.operator == "less" else right[1:]
    return start, np.maximum(start, end)


def _equal(values: pa.Array, positions: Positions) -> tuple[Int64s, Int64s] | None:
    bounds = positions(values.unique(), "left", "right")
    return None if bounds is None else (bounds[0], bounds[1])


def _beginning_with(text: str, kind: pa.DataType, positions: Positions, end: int) -> tuple[Int64s, Int64s] | None:
    """Return the range of the texts that begin with a text: up to the smallest that is greater than all of them."""
    if not is_text(kind):
        return None
    behind = _successor(text)
    ends = [text] if behind is None else [text, behind]
    bounds = positions(pa.array(ends, kind), "left")
    if bounds is None:
        return None
    return bounds[0][:1], np.array([end]) if behind is None else bounds[0][1:]


def _successor(text: str) -> str | None:
    """Return the smallest text that is greater than all that begin with a text; None if there is none."""
    for length in range(len(text), 0, -1):
        code = ord(text[length - 1]) + 1
        if code <= 0x10FFFF:
            return text[: length - 1] + chr(0xE000 if 0xD800 <= code <= 0xDFFF else code)
    return None
