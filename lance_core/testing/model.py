"""A table held in memory as plain values: what a history of changes must have made of it.

Rows are known by a column ``k`` of unique numbers, which no change but the end of a row touches. The model says what
each change does to the values, to the versions in which rows were created and last updated, to columns, settings and
free text; how the rows are spread over fragments and files is none of its business.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lance_core.common.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from random import Random

KEY = "k"


@frozen(kw_only=True)
class Condition:
    """A condition on rows, as SQL and as Python.

    Attributes:
        sql: The predicate.
        is_true: The same for the values of a row; null counts as false.
    """

    sql: str
    is_true: Callable[[Mapping[str, Any]], bool]


@frozen(kw_only=True)
class ModelRow:
    """One row.

    Attributes:
        values: Its values by column.
        created: Version that brought it.
        updated: Version that changed it last.
    """

    values: Mapping[str, Any]
    created: int
    updated: int


@frozen(kw_only=True)
class TableState:
    """One version of a table.

    Attributes:
        schema: Arrow schema, with metadata.
        rows: Rows by key, in no order.
        config: Settings.
        metadata: Free text.
        indices: Name of an index to its column.
        ids: Row ids by key, as far as they were seen.
        used_ids: All row ids that were ever given up to this version.
    """

    schema: pa.Schema
    rows: Mapping[int, ModelRow]
    config: Mapping[str, str] = field(default_factory=dict[str, str])
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    indices: Mapping[str, str] = field(default_factory=dict[str, str])
    ids: Mapping[int, int] = field(default_factory=dict[int, int])
    used_ids: frozenset[int] = frozenset()

    # ----------------------------------------------------------------------------------------------------- what it is

    def matching(self, condition: Condition) -> set[int]:
        """Keys of rows for which a condition is true."""
        return {key for key, row in self.rows.items() if condition.is_true(row.values)}

    def table(self) -> pa.Table:
        """Return all rows, by key, without metadata of the schema."""
        names = self.schema.names
        values = [{name: self.rows[key].values[name] for name in names} for key in sorted(self.rows)]
        return pa.Table.from_pylist(values, schema=self.schema.remove_metadata())

    def columns(self, is_such: Callable[[pa.DataType], bool]) -> list[str]:
        """Names of columns of some types, without the key."""
        return [field.name for field in self.schema if field.name != KEY and is_such(field.type)]

    def has_null(self, column: str) -> bool:
        """True if a row has null there."""
        return any(row.values[column] is None for row in self.rows.values())

    # -------------------------------------------------------------------------------------------------- changes of rows

    def appended(self, rows: Iterable[Mapping[str, Any]], version: int) -> TableState:
        """With new rows; columns that they lack are null."""
        empty = dict.fromkeys(self.schema.names)
        new = {row[KEY]: ModelRow(values=empty | dict(row), created=version, updated=version) for row in rows}
        return replace(self, rows={**self.rows, **new})

    def without(self, keys: Iterable[int]) -> TableState:
        """Without some rows."""
        gone = set(keys)
        return replace(self, rows={key: row for key, row in self.rows.items() if key not in gone})

    def changed(self, keys: Iterable[int], change: Callable[[Mapping[str, Any]], Any], version: int) -> TableState:
        """With new values, which a function makes of the old ones, in some columns of some rows."""
        rows = dict(self.rows)
        for key in keys:
            row = rows[key]
            rows[key] = replace(row, values={**row.values, **change(row.values)}, updated=version)
        return replace(self, rows=rows)

    def overwritten(self, schema: pa.Schema, rows: Iterable[Mapping[str, Any]], version: int) -> TableState:
        """With other rows and columns; settings and free text stay."""
        state = replace(self, schema=schema, rows={}, indices={}, ids={})
        return state.appended(rows, version)

    # ----------------------------------------------------------------------------------------------- changes of columns

    def with_column(
        self, column: pa.Field, value: Callable[[Mapping[str, Any]], Any], version: int | None
    ) -> TableState:
        """With a new column at the end; ``version`` is None if that does not count as an update of the rows."""
        rows = {
            key: replace(row, values={**row.values, column.name: value(row.values)}, updated=version or row.updated)
            for key, row in self.rows.items()
        }
        return replace(self, schema=self.schema.append(column), rows=rows)

    def with_field(self, path: Sequence[str], change: Callable[[pa.Field], pa.Field | None]) -> TableState:
        """With another field at a path: of another name, type or nullability, or, if it is None, without it."""
        schema = pa.schema(_fields(list(self.schema), path, change), self.schema.metadata)
        rows = {
            key: replace(row, values=_values(row.values, list(self.schema), path, change))
            for key, row in self.rows.items()
        }
        return replace(self, schema=schema, rows=rows)

    def stamped(self, version: int) -> TableState:
        """With all rows updated in a version."""
        return replace(self, rows={key: replace(row, updated=version) for key, row in self.rows.items()})


def _fields(
    fields: Sequence[pa.Field], path: Sequence[str], change: Callable[[pa.Field], pa.Field | None]
) -> list[pa.Field]:
    made: list[pa.Field] = []
    for column in fields:
        if column.name != path[0]:
            made.append(column)
        elif len(path) > 1:
            made.append(column.with_type(pa.struct(_fields(list(column.type), path[1:], change))))
        else:
            made += [new for new in [change(column)] if new is not None]
    return made


def _values(
    values: Mapping[str, Any],
    fields: Sequence[pa.Field],
    path: Sequence[str],
    change: Callable[[pa.Field], pa.Field | None],
) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for column in fields:
        value = values[column.name]
        if column.name != path[0]:
            made[column.name] = value
        elif len(path) > 1:
            made[column.name] = None if value is None else _values(value, list(column.type), path[1:], change)
        else:
            new = change(column)
            made |= {} if new is None else {new.name: value}
    return made


# ------------------------------------------------------------------------------------------------------- random parts


def make_value(kind: pa.DataType, number: int, *, nullable: bool) -> Any:
    """Return a value of a type that a number stands for; every fifth is null."""
    if nullable and number % 5 == 3:
        return None
    if pa.types.is_integer(kind):
        return number % 100
    if pa.types.is_floating(kind):
        return number / 4
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return f"t{number % 7}"
    if pa.types.is_list(kind):
        return [make_value(kind.value_type, number + child, nullable=True) for child in range(number % 4)]
    if pa.types.is_struct(kind):
        children = enumerate(kind)
        return {
            field.name: make_value(field.type, number + position, nullable=field.nullable)
            for position, field in children
        }
    raise NotImplementedError(str(kind))


def make_rows(schema: pa.Schema, keys: Iterable[int], salt: int) -> list[dict[str, Any]]:
    """Return rows with these keys."""
    return [
        {
            field.name: key
            if field.name == KEY
            else make_value(field.type, key + salt + position, nullable=field.nullable)
            for position, field in enumerate(schema)
        }
        for key in keys
    ]


def make_condition(state: TableState, random: Random) -> Condition:
    """Return a condition on one of the columns."""
    top = max(state.rows, default=10)
    low, step = random.randrange(top + 1), random.randrange(2, 6)
    choices = [
        Condition(sql=f"k = {low}", is_true=lambda row: row[KEY] == low),
        Condition(sql=f"k >= {low} AND k < {low + 9}", is_true=lambda row: low <= row[KEY] < low + 9),
        Condition(sql=f"k % {step} = 1", is_true=lambda row: row[KEY] % step == 1),
        Condition(sql=f"k IN ({low}, {low + 3}, 9999)", is_true=lambda row: row[KEY] in {low, low + 3, 9999}),
    ]
    name = random.choice(state.schema.names)
    kind = state.schema.field(name).type
    if name != KEY:
        choices.append(Condition(sql=f"{name} IS NULL", is_true=lambda row: row[name] is None))
        choices.append(Condition(sql=f"{name} IS NOT NULL", is_true=lambda row: row[name] is not None))
    if pa.types.is_integer(kind):
        choices.append(_compare(name, "<", low % 100, lambda value: value < low % 100))
        choices.append(_compare(name, ">=", low % 100, lambda value: value >= low % 100))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        choices.append(_compare(name, "=", f"'t{step}'", lambda value: value == f"t{step}"))
    return random.choice(choices)


def _compare(name: str, sign: str, literal: Any, is_true: Callable[[Any], bool]) -> Condition:
    return Condition(sql=f"{name} {sign} {literal}", is_true=lambda row: row[name] is not None and is_true(row[name]))
