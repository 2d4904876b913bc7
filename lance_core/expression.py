"""SQL expressions over record batches, as filters and computed columns understand them.

Example:
    ``make_expression("date_trunc('day', at)", batch.schema).evaluate(batch)``
"""

from lance_core.sql.expression import Expression, make_expression

__all__ = ["Expression", "make_expression"]
