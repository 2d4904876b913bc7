"""Conditions and values as users of Spark write them: SQL text or columns.

Texts that Lance's SQL understands are evaluated while reading, as Lance does. Spark evaluates all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

from lance_core.errors import InvalidInputError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame

Condition: TypeAlias = str | Column
"""SQL text, or a column of Spark."""


def refusal(texts: Iterable[Condition], check: Callable[[], Any]) -> InvalidInputError | UnsupportedError | None:
    """Return why Spark must evaluate conditions or values; None if Lance does.

    Args:
        texts: The conditions and values.
        check: Raises what Lance's SQL has against them.
    """
    if not all(isinstance(text, str) for text in texts):
        return UnsupportedError("Lance does not evaluate columns of Spark")
    try:
        check()
    except (InvalidInputError, UnsupportedError) as error:
        return error
    return None


def column_of(condition: Condition) -> Column:
    """Return the column that a text stands for."""
    return F.expr(condition) if isinstance(condition, str) else condition


def quoted(name: str) -> str:
    """Return a column's name as Spark's expressions take it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def analyzed(make: Callable[[], DataFrame], reason: Exception) -> DataFrame:
    """Make a DataFrame with conditions that Lance refused.

    Args:
        make: Makes it.
        reason: Why Lance refused them.

    Raises:
        InvalidInputError: Spark does not understand them, either.
    """
    try:
        frame = make()
        # Connect looks at a plan only when it is asked, and knows the schema of a filter without that.
        _ = frame.select(F.lit(1)).schema
    except AnalysisException as error:
        message = reason.message if isinstance(reason, InvalidInputError | UnsupportedError) else str(reason)
        raise InvalidInputError(f"{message}; Spark: {str(error).splitlines()[0]}") from error
    return frame
