"""Predicates over record batches.

A predicate comes from SQL text (`lance_core.sql.comparisons`, `lance_core.sql.parse`) or from a
``pyarrow.compute.Expression``. Rows for which it is null do not match, as in a SQL ``WHERE``.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa

from lance_core.common.frozen import frozen
from lance_core.encoding.arrow_values import as_mask, mask_array
from lance_core.encoding.dictionary_encoded import DictionaryEncoded
from lance_core.encoding.kernels import scalar
from lance_core.errors import InvalidInputError, LanceError
from lance_core.sql.kernels import nulls_as_false, pc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyarrow.compute import Expression

    from lance_core.encoding.repdef import Mask
    from lance_core.sql.pruning import Condition
    from lance_core.sql.terms import Conjunct, Term

_FEWER_ITEMS = 4
"""Items of a dictionary are asked instead of values if there are so many times as many values."""


@frozen(kw_only=True)
class Predicate:
    """A boolean question about each row.

    Attributes:
        text: The predicate as it was given, for messages and transactions.
        columns: Top-level names and dotted paths that must be in the batches asked about.
        evaluate: Record batch to boolean array or scalar; null means unknown.
        asks: What is asked of single columns, for `lance_core.sql.pruning`; None if that is not known.
        parts: Predicates whose ``AND`` it is, each of other columns; empty if it is not known to have several.
    """

    text: str
    columns: tuple[str, ...]
    evaluate: Callable[[pa.RecordBatch], pa.Array | pa.Scalar]
    asks: Condition | None = None
    parts: tuple[Predicate, ...] = ()

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return a mask of the rows that match.

        Args:
            batch: Rows with at least `columns`.

        Returns:
            One boolean for each row, no nulls.

        Raises:
            InvalidInputError: A value cannot be computed (division by zero, a cast that fails).
        """
        if any(pa.types.is_dictionary(kind) for kind in batch.schema.types):
            if self.parts:
                return reduce(pc.and_, [part.mask(batch) for part in self.parts])
            mask = self._mask_of_dictionary(batch)
            if mask is not None:
                return mask_array(mask)
        try:
            answer = self.evaluate(batch)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise InvalidInputError(f"predicate {self.text!r} fails on the data: {error}") from error
        if isinstance(answer, pa.Scalar):
            return pa.repeat(scalar(answer.as_py() is True), batch.num_rows)
        return nulls_as_false(answer)

    def mask_of_items(self, values: DictionaryEncoded) -> Mask | None:
        """Ask each item of a dictionary once.

        Args:
            values: Values of the only column.

        Returns:
            Shape (n,), which values match; None if they are to be asked themselves: there are not many for each item,
            or the question fails for an item, which perhaps no value is.
        """
        if len(values.items) * _FEWER_ITEMS > len(values):
            return None
        try:
            return values.spread(as_mask(self.mask(pa.RecordBatch.from_arrays([values.questions()], [*self.columns]))))
        except LanceError:
            return None

    def _mask_of_dictionary(self, batch: pa.RecordBatch) -> Mask | None:
        """Return which rows match by the items of the only column; None if it is not of dictionary type."""
        if len(self.columns) != 1 or self.columns[0] not in batch.schema.names:
            return None
        column = batch.column(self.columns[0])
        return self.mask_of_items(DictionaryEncoded.of(column)) if pa.types.is_dictionary(column.type) else None


def make_predicate(condition: str | Expression, schema: pa.Schema) -> Predicate:
    """Check a condition against a schema and make it ready to run.

    Args:
        condition: SQL text or a pyarrow expression.
        schema: All columns that may be named.

    Raises:
        InvalidInputError: Syntax, an unknown column, types that do not fit, no boolean result.
        UnsupportedError: SQL that is not supported; the message names it.
    """
    if isinstance(condition, str):
        from lance_core.sql.comparisons import parse_comparisons  # noqa: PLC0415 keeps `import lance_core` light

        columns, term = parse_comparisons(condition, schema) or _parsed(condition, schema)
        parts = _parts(condition, term)
        return Predicate(text=condition, columns=columns, evaluate=term.evaluate, asks=term.asks, parts=parts)
    return _from_expression(condition, schema)


def _parsed(condition: str, schema: pa.Schema) -> tuple[tuple[str, ...], Term]:
    from lance_core.sql.parse import parse_condition  # noqa: PLC0415 the SQL parser is slow to import

    return parse_condition(condition, schema)


def _parts(text: str, term: Term) -> tuple[Predicate, ...]:
    """Return the parts of a conjunction; those that read the same columns are one."""
    from lance_core.sql.terms import and_, joined  # noqa: PLC0415 as above

    groups: dict[frozenset[str], list[Conjunct]] = {}
    for conjunct in term.conjuncts:
        groups.setdefault(frozenset(conjunct.columns), []).append(conjunct)
    if len(groups) < 2:
        return ()
    terms = [joined(and_, [conjunct.term for conjunct in group]) for group in groups.values()]
    return tuple(
        Predicate(text=text, columns=tuple(dict.fromkeys(group[0].columns)), evaluate=part.evaluate, asks=part.asks)
        for group, part in zip(groups.values(), terms, strict=True)
    )


def conjunction(parts: Sequence[Predicate]) -> Predicate:
    """Return the ``AND`` of some parts of a predicate, at least one."""
    columns = tuple(dict.fromkeys([name for part in parts for name in part.columns]))

    def evaluate(batch: pa.RecordBatch) -> pa.Array | pa.Scalar:
        return reduce(pc.and_kleene, [part.mask(batch) for part in parts])

    return parts[0] if len(parts) == 1 else Predicate(text=parts[0].text, columns=columns, evaluate=evaluate)


def _from_expression(condition: Expression, schema: pa.Schema) -> Predicate:
    if not isinstance(condition, pc.Expression):
        raise InvalidInputError(f"a filter must be SQL text or a pyarrow expression, not {type(condition).__name__}")
    from lance_core.sql.arrow_expression import translate  # noqa: PLC0415 most conditions are SQL

    columns, term = translate(condition, schema)
    if not pa.types.is_boolean(term.type):
        raise InvalidInputError(f"filter {condition} gives {term.type}, not a boolean")
    return Predicate(text=str(condition), columns=columns, evaluate=term.evaluate, asks=term.asks)
