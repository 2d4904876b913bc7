"""Matching of rows in a merge: by a key, or by any condition on both sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

from lance_core.errors import InvalidInputError
from lance_core.spark.session import is_connect
from lance_core.spark.writing.merge_clauses import SIDES, SOURCE, TARGET, When, qualified

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

    from lance_core.spark.common.conditions import Condition


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """Matching of rows.

    Attributes:
        on: Columns of the key; none for the primary key that the schema declares.
        condition: Instead of a key: a condition on ``source`` and ``target``.
        names: Columns of the table that the condition names; None for all of them.
    """

    on: tuple[str, ...] = ()
    condition: Column | None = None
    names: frozenset[str] | None = frozenset()

    @classmethod
    def of(cls, condition: Condition, sides: Mapping[str, str]) -> Matching:
        """Read a condition; equal columns of both sides that have the same names are a key.

        Args:
            condition: SQL text or a column of Spark.
            sides: The side that each qualifier stands for.

        Raises:
            InvalidInputError: It is no SQL, or a column may be of either side.
        """
        if not isinstance(condition, str):
            return cls(condition=condition, names=None)
        text = qualified(condition, When.MATCHED, sides)
        on = _key(text.sql)
        return cls(on=on) if on else cls(condition=F.expr(text.sql), names=text.target)


def _key(sql: str) -> tuple[str, ...]:
    """Return the columns of ``source.a = target.a AND ...``; none if it is another condition."""
    import sqlglot  # noqa: PLC0415 slow to import
    from sqlglot import exp  # noqa: PLC0415

    tree: Any = sqlglot.parse_one(sql, dialect="spark")
    parts: list[Any] = list(tree.flatten()) if isinstance(tree, exp.And) else [tree]
    names: list[str] = []
    for part in parts:
        equal = part.unnest() if isinstance(part, exp.Paren) else part
        sides: list[Any] = [equal.left, equal.right] if isinstance(equal, exp.EQ) else []
        if not sides or not all(isinstance(side, exp.Column) and len(side.parts) == 2 for side in sides):
            return ()
        if {side.table for side in sides} != {SOURCE, TARGET} or sides[0].name != sides[1].name:
            return ()
        names.append(sides[0].name)
    return tuple(names)


def sides_of(source: DataFrame, target: str | None) -> Mapping[str, str]:
    """Return the side that each qualifier stands for: the aliases of both sides, besides ``source`` and ``target``.

    Raises:
        InvalidInputError: Both sides have the same alias.
    """
    aliases = {TARGET: target, SOURCE: alias_of(source)}
    sides = dict(SIDES)
    for side, alias in aliases.items():
        if alias is not None and sides.setdefault(alias.lower(), side) != side:
            raise InvalidInputError(f"The alias {alias!r} stands for the other side of the merge. Choose another one.")
    return sides


def alias_of(frame: DataFrame) -> str | None:
    """Return the alias of a DataFrame; None if it has none."""
    unknown: Any = frame
    if is_connect(frame.sparkSession):
        return getattr(unknown._plan, "_alias", None)  # noqa: SLF001 there is no public way
    plan = unknown._jdf.queryExecution().logical()  # noqa: SLF001
    return str(plan.alias()) if plan.nodeName() == "SubqueryAlias" else None
