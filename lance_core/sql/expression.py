"""Values computed from the columns of a table: SQL expressions over record batches.

`make_expression` is what computed columns, new columns and updates share.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_core.common.frozen import frozen, replace
from lance_core.errors import InvalidInputError, UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_MADE = 64


@frozen(kw_only=True)
class Expression:
    """A value for each row.

    Attributes:
        text: The SQL.
        columns: Top-level names and dotted paths that must be in the batches it is asked about.
        type: Arrow type of the values.
        nullable: False if no value is ever null.
        compute: Record batch to array or scalar; `evaluate` is what to call.
    """

    text: str
    columns: tuple[str, ...]
    type: pa.DataType
    nullable: bool
    compute: Callable[[pa.RecordBatch], pa.Array | pa.Scalar]

    def evaluate(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the values for a batch.

        Args:
            batch: Rows with at least `columns`.

        Returns:
            One value of `type` for each row.

        Raises:
            InvalidInputError: A value cannot be computed (division by zero, a cast that fails).
        """
        try:
            values = self.compute(batch)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidInputError(f"expression {self.text!r} fails on the data: {error}") from error
        if isinstance(values, pa.Scalar):
            return pa.repeat(values, batch.num_rows)
        return values


class ExactSql(str):
    """SQL in which a constant 0.0 is not equal to -0.0, as in all of a pylance query but its ``WHERE``."""

    __slots__ = ()


_made: deque[tuple[str, bool, pa.Schema, Expression]] = deque(maxlen=_MOST_MADE)


def make_expression(sql: str, schema: pa.Schema) -> Expression:
    """Check an expression against a schema and make it ready to run; what is asked again is not parsed again.

    Expressions depend on nothing but the text and the schema: no function of `lance_core.sql` tells the time.

    Args:
        sql: What could stand in a list of columns, such as ``price * 1.2``; see also `ExactSql`.
        schema: All columns that may be named.

    Raises:
        InvalidInputError: Syntax, an unknown column, types that do not fit.
        UnsupportedError: SQL that is not supported; the message names it.
    """
    is_exact = isinstance(sql, ExactSql)
    for text, exact, known_schema, expression in list(_made):
        if text == sql and exact == is_exact and known_schema.equals(schema, check_metadata=True):
            return expression
    from lance_core.sql.parse import parse_value  # noqa: PLC0415 the SQL parser is slow to import

    columns, term = parse_value(sql, schema, is_exact=is_exact)
    made = Expression(text=sql, columns=columns, type=term.type, nullable=term.nullable, compute=term.evaluate)
    _made.appendleft((sql, is_exact, schema, made))
    return made


def assigned(expression: Expression, field: pa.Field) -> Expression:
    """Return the expression in the type of the column it is assigned to, as by ``CAST``.

    Args:
        expression: What is assigned.
        field: The column.

    Raises:
        UnsupportedError: There is no such cast.
    """
    target = field.type
    if expression.type.equals(target):
        return expression
    from lance_core.sql.arrow_types import cast  # noqa: PLC0415 keeps `import lance_core` light

    inner = expression.compute

    def evaluate(batch: pa.RecordBatch) -> pa.Array | pa.Scalar:
        return cast(inner(batch), target)

    try:
        cast(pa.array([], expression.type), target)
    except (UnsupportedError, pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise UnsupportedError(
            f"the expression {expression.text!r} gives {expression.type}, but column {field.name!r} is {target}"
        ) from error
    return replace(expression, type=target, compute=evaluate)
