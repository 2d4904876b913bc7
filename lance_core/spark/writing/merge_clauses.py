"""Clauses of a merge, and the expressions by which Spark evaluates them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

from lance_core.errors import InvalidInputError
from lance_core.spark.common.names import find_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column
    from pyspark.sql.types import StructField

    from lance_core.spark.common.conditions import Condition

SOURCE, TARGET = "source", "target"
"""What the two sides are called in conditions and values."""

SIDES: Mapping[str, str] = {SOURCE: SOURCE, TARGET: TARGET}
"""The side that each qualifier of a column stands for, in lower case."""


class When(Enum):
    """Rows that a clause applies to."""

    MATCHED = "matched"
    NOT_MATCHED = "not matched"
    NOT_MATCHED_BY_SOURCE = "not matched by source"


class Action(IntEnum):
    """Action on a row, as sent to the tasks."""

    INSERT = 0
    UPDATE = 1
    DELETE = 2
    FAIL = 3
    REPEATED = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One rule; of several for the same rows, the first one whose condition is true counts.

    Attributes:
        when: Which rows.
        action: What becomes of them.
        condition: Spark SQL, or a column of Spark; None for all.
        values: Likewise for each column; None for all columns of the source.
        names: The side that each qualifier of a column stands for.
    """

    when: When
    action: Action
    condition: Condition | None = None
    values: Mapping[str, Condition] | None = None
    names: Mapping[str, str] = field(default_factory=lambda: SIDES)

    @property
    def expressions(self) -> list[Condition]:
        """The condition and the values."""
        given = [] if self.condition is None else [self.condition]
        return [*given, *(self.values or {}).values()]

    def spelled_as(self, table: Sequence[str]) -> Clause:
        """Return the clause with the columns that it sets spelled as a table does."""
        if self.values is None:
            return self
        return replace(self, values={find_name(name, table): value for name, value in self.values.items()})

    def column(self, expression: Condition) -> Column:
        """Return an expression as Spark evaluates it on joined rows."""
        if not isinstance(expression, str):
            return expression
        return F.expr(f"({qualified(expression, self.when, self.names).sql})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """SQL text whose columns all say which side they are of.

    Attributes:
        sql: The text.
        target: Columns of the table in it.
    """

    sql: str
    target: frozenset[str]


def qualified(text: str, when: When, names: Mapping[str, str] = SIDES) -> Text:
    """Say of each column in a text which side it is of, where only one side has rows.

    Args:
        text: The text.
        when: Rows that it is about.
        names: The side that each qualifier stands for.

    Raises:
        InvalidInputError: It is no SQL, or a column may be of either side.
    """
    import sqlglot  # noqa: PLC0415 slow to import
    from sqlglot import exp  # noqa: PLC0415
    from sqlglot.errors import SqlglotError  # noqa: PLC0415

    try:
        tree = sqlglot.parse_one(text, dialect="spark")
    except SqlglotError as error:
        raise InvalidInputError(f"cannot parse {text!r} as SQL: {error}") from error
    side = {When.NOT_MATCHED: SOURCE, When.NOT_MATCHED_BY_SOURCE: TARGET}.get(when)
    named: set[str] = set()
    for column in list(tree.find_all(exp.Column)):
        parts = [part.name for part in column.parts]
        qualifier, name = names.get(parts[0].lower(), ""), parts[-1]
        if qualifier and len(parts) > 1:
            name = parts[1]
            column.parts[0].replace(exp.to_identifier(qualifier))
        elif side is not None:
            qualifier, name = side, parts[0]
            replacement: Any = exp.Column(this=column.parts[0].copy(), table=exp.to_identifier(side))
            for part in column.parts[1:]:
                replacement = exp.Dot(this=replacement, expression=part.copy())
            tree = replacement if column is tree else tree
            column.replace(replacement)
        else:
            raise InvalidInputError(f"{text!r} is ambiguous. Write 'source.{parts[0]}' or 'target.{parts[0]}'")
        named |= {name} if qualifier == TARGET else set()
    return Text(sql=tree.sql(dialect="spark"), target=frozenset(named))


def check_clauses(clauses: Sequence[Clause], table: Sequence[str]) -> None:
    """Refuse merges that do nothing, clauses that can never count, and columns that are not there.

    Raises:
        InvalidInputError: One of these.
    """
    if not clauses:
        raise InvalidInputError("the merge has no action. Call one of the 'when_...' methods")
    closed: set[When] = set()
    for clause in clauses:
        if clause.when in closed:
            raise InvalidInputError(
                f"a clause for rows that are {clause.when.value} follows one without a condition and would never apply"
            )
        if clause.condition is None:
            closed.add(clause.when)
        if clause.values is not None and not clause.values:
            raise InvalidInputError(f"the clause for rows that are {clause.when.value} has no values")
        unknown = [name for name in clause.values or () if name not in table]
        if unknown:
            raise InvalidInputError(f"there is no column {', '.join(unknown)}; the columns are: {', '.join(table)}")


def keeps(clause: Clause, name: str, source: Sequence[str]) -> bool:
    """Return whether rows that a clause updates keep their value of a column."""
    return clause.action is Action.UPDATE and name not in (source if clause.values is None else clause.values)


def changed_columns(clauses: Sequence[Clause], table: Sequence[str], source: Sequence[str]) -> list[str]:
    """Return the columns of the table that may have other values in updated rows."""
    updates = [clause for clause in clauses if clause.action is Action.UPDATE]
    return [name for name in table if not all(keeps(clause, name, source) for clause in updates)]


def named_columns(clauses: Sequence[Clause], table: Sequence[str]) -> set[str]:
    """Columns of the table that texts of conditions and values name, as the table spells them."""
    texts = [(clause, text) for clause in clauses for text in clause.expressions if isinstance(text, str)]
    names = {name for clause, text in texts for name in qualified(text, clause.when, clause.names).target}
    return {find_name(name, table) for name in names}


def kept_columns(clauses: Sequence[Clause], table: Sequence[str], source: Sequence[str]) -> set[str]:
    """Columns of the table that must be read, besides the key: all of them if columns of Spark may name them."""
    needed = named_columns(clauses, table)
    if any(not isinstance(expression, str) for clause in clauses for expression in clause.expressions):
        needed |= set(table)
    needed |= {name for name in table if any(keeps(clause, name, source) for clause in clauses)}
    unknown = needed - set(table)
    if unknown:
        raise InvalidInputError(f"there is no column {', '.join(sorted(unknown))}; the columns are: {', '.join(table)}")
    return needed


def clause_number(clauses: Sequence[Clause]) -> Column:
    """Return the number of the clause for a row of the join, or null. Needs ``source``, ``target``, ``_rowaddr``."""
    has_source, has_target = F.col(SOURCE).isNotNull(), F.col("_rowaddr").isNotNull()
    rows = {
        When.MATCHED: has_source & has_target,
        When.NOT_MATCHED: has_source & ~has_target,
        When.NOT_MATCHED_BY_SOURCE: ~has_source & has_target,
    }
    choice = F.lit(None).cast("int")
    for number, clause in reversed(list(enumerate(clauses))):
        asked = rows[clause.when]
        if clause.condition is not None:
            asked &= clause.column(clause.condition)
        choice = F.when(asked, F.lit(number)).otherwise(choice)
    return choice


def is_repeated(clauses: Sequence[Clause], keys: Sequence[Column]) -> Column | None:
    """True for rows of the source whose key is that of another one, if both would be inserted; null is no key.

    None where this is no error: nothing is inserted, rows that match are kept, or rows do not match by a key.
    """
    inserts = [clause for clause in clauses if clause.action is Action.INSERT]
    if not inserts or not keys or all(clause.when is not When.MATCHED for clause in clauses):
        return None
    inserted = F.lit(False)  # noqa: FBT003 Spark's way
    for clause in inserts:
        inserted |= F.lit(True) if clause.condition is None else clause.column(clause.condition)  # noqa: FBT003
    count = F.count(F.when(inserted, 1)).over(Window.partitionBy(*keys)) > 1
    for key in keys:
        count &= key.isNotNull()
    return count


def action_of(clauses: Sequence[Clause], number: Column) -> Column:
    """Return the action on the row."""
    action = F.lit(None).cast("tinyint")
    for index, clause in enumerate(clauses):
        action = F.when(number == index, F.lit(int(clause.action)).cast("tinyint")).otherwise(action)
    return action


def new_value(
    clauses: Sequence[Clause], number: Column, column: StructField, source: Sequence[str], *, is_read: bool
) -> Column:
    """Return the new value of a column, in its Spark type; null in rows that are deleted.

    Args:
        clauses: What to do.
        number: Which clause counts.
        column: Of the table.
        source: Columns of the source.
        is_read: Whether its values in the table are there; if not, rows that keep them have null.
    """
    name, kind = column.name, column.dataType
    choice = F.lit(None).cast(kind)
    for index, clause in enumerate(clauses):
        value = None if not is_read and keeps(clause, name, source) else _value(clause, name, source)
        if value is not None:
            choice = F.when(number == index, value.cast(kind)).otherwise(choice)
    return choice.alias(name)


def _value(clause: Clause, name: str, source: Sequence[str]) -> Column | None:
    if clause.action not in {Action.INSERT, Action.UPDATE}:
        return None
    if clause.values is None and name in source:
        return F.col(SOURCE).getField(name)
    if clause.values is not None and name in clause.values:
        return clause.column(clause.values[name])
    return F.col(TARGET).getField(name) if clause.action is Action.UPDATE else None
