"""Conditions and values as users of Spark write them: SQL text or columns.

Texts that Lance's SQL understands are evaluated while reading, as Lance does. Spark evaluates all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.spark.session import is_connect

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
    """The column that a text stands for."""
    return F.expr(condition) if isinstance(condition, str) else condition


def quoted(name: str) -> str:
    """A column's name as Spark's expressions take it, whatever is in it."""
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
        _ = frame.schema  # Connect looks at a plan only when it is asked
    except AnalysisException as error:
        message = reason.message if isinstance(reason, InvalidInputError | UnsupportedError) else str(reason)
        raise InvalidInputError(f"{message}; Spark: {str(error).splitlines()[0]}") from error
    return frame


def translated(table: DataFrame, condition: Condition, reason: Exception) -> str:
    """Return Lance's SQL for a condition of Spark; it is true for the same rows.

    Args:
        table: All columns of the table, from `read_lance`.
        condition: The condition.
        reason: Why Lance refused it.

    Raises:
        InvalidInputError: Spark does not understand it, either.
        UnsupportedError: It has no translation; says which part.
    """
    if is_connect(table.sparkSession):
        raise reason
    frame = analyzed(lambda: table.where(column_of(condition)), reason)
    classic: Any = frame
    query = classic._jdf.queryExecution()  # noqa: SLF001 there is no public way
    plan = query.optimizedPlan()
    kind = str(plan.nodeName())
    if kind.startswith("LocalRelation"):
        return "false"
    jvm: Any = table.sparkSession._jvm  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    if plan.getClass().getSimpleName() != "DataSourceV2ScanRelation":
        rest = plan.condition().sql() if kind == "Filter" else condition
        raise UnsupportedError(f"Only Spark can evaluate {rest}, and this condition is evaluated without Spark")
    # py4j must not call a method of the scan by its name: the planner's classes of other sessions have the same names
    return str(jvm.java.util.Objects.toString(plan.scan())).partition("] where ")[2] or "true"
