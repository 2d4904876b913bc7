"""Translation of conditions of Spark to Lance's SQL, by the planner rule of classic sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_core.errors import UnsupportedError
from lance_core.spark.common.conditions import analyzed, column_of
from lance_core.spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lance_core.spark.common.conditions import Condition


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
