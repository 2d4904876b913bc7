"""Typed parts of SQL and what comparisons and logic mean.

The meaning is that of the native implementation (DataFusion): three-valued logic; a literal takes the type of the
column it is compared with or the comparison is refused; floats are in total order (`lance_core.sql.float_order`).
"""

from __future__ import annotations

from decimal import Decimal
from functools import partial, reduce
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from lance_core.common.frozen import NamedTuple, frozen, replace
from lance_core.encoding.arrow_values import binary_to_json
from lance_core.encoding.kernels import scalar
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.schema import is_json_field
from lance_core.sql import float_order, pruning
from lance_core.sql.arrow_types import UTC_NAMES, coerce, comparison_type, is_text, kind_of
from lance_core.sql.kernels import ValueSet, pc
from lance_core.sql.pruning import UNKNOWN, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lance_core.sql.arrow_types import Datum
    from lance_core.sql.pruning import Condition

_T = TypeVar("_T")


class Conjunct(NamedTuple):
    """A part of a conjunction.

    Attributes:
        columns: Names and dotted paths that it reads; some may be there twice.
        term: A boolean.
    """

    columns: tuple[str, ...]
    term: Term


@frozen(kw_only=True)
class Term:
    """A value for each row.

    Attributes:
        type: Arrow type of the value.
        evaluate: Record batch to array, or to scalar if all rows have the same value.
        literal: The value, if it was written in the text and has not been given a type by its context yet.
        path: Name or dotted path, if the value is that of a column; else empty.
        member: Name for questions, if the value is that of a member of a JSON column; else empty. See
            `lance_core.format.index.json_index.member_name`.
        asks: What a boolean value asks of single columns, for `lance_core.sql.pruning`.
        nullable: False if it is never null.
        conjuncts: The parts of a chain of ``AND``; empty for all else.
        is_json: It is the text of a JSON column.
        as_stored: Record batch to the values as JSONB where the batch has them so, else to their text; None if this is
            no JSON column.
    """

    type: pa.DataType
    evaluate: Callable[[pa.RecordBatch], Datum]
    literal: pa.Scalar | None = None
    path: str = ""
    member: str = ""
    asks: Condition = UNKNOWN
    nullable: bool = True
    conjuncts: tuple[Conjunct, ...] = ()
    is_json: bool = False
    as_stored: Callable[[pa.RecordBatch], Datum] | None = None

    @property
    def subject(self) -> str:
        """Name under which indices are asked about the value; empty if they cannot know it."""
        return self.path or self.member


def literal_term(value: pa.Scalar) -> Term:
    """Return a value written in the text."""
    is_answer = pa.types.is_boolean(value.type) or pa.types.is_null(value.type)
    asks = pruning.Constant(value.as_py()) if is_answer else UNKNOWN
    return Term(type=value.type, evaluate=lambda _: value, literal=value, asks=asks, nullable=not value.is_valid)


def column_term(path: str, field: pa.Field, read: Callable[[pa.RecordBatch], Datum]) -> Term:
    """Return the values of a column."""
    is_answer = pa.types.is_boolean(field.type)
    asks = pruning.Comparison(path, "equal", scalar(True)) if is_answer else UNKNOWN  # noqa: FBT003 a value
    if not is_json_field(field):
        return Term(type=field.type, evaluate=read, path=path, asks=asks, nullable=field.nullable)

    def read_text(batch: pa.RecordBatch) -> Datum:
        values = read(batch)
        return binary_to_json(values) if pa.types.is_large_binary(values.type) else values

    return Term(type=field.type, evaluate=read_text, path=path, nullable=field.nullable, is_json=True, as_stored=read)


def find_column(path: Sequence[str], schema: pa.Schema, *, is_copied: bool = False) -> tuple[Term, pa.Field]:
    """Return the values of the column or struct field at a path of names, and its field, null where it or a parent is.

    Args:
        path: At least one name; found exactly, else without regard to case.
        schema: All columns.
        is_copied: Values that a dictionary holds stay in it.

    Raises:
        InvalidInputError: There is no such column.
    """
    top = _match(path[0], schema.names)
    names, field = [top], schema.field(top)
    for name in path[1:]:
        if not pa.types.is_struct(field.type):
            raise InvalidInputError(f"{'.'.join(names)} is {field.type} and has no field {name!r}")
        names.append(_match(name, [inner.name for inner in field.type]))
        inner = field.type.field(names[-1])
        field = inner.with_nullable(inner.nullable or field.nullable)
    is_dictionary = pa.types.is_dictionary(field.type) and not is_copied
    shown = field.with_type(field.type.value_type) if is_dictionary else field

    def read(batch: pa.RecordBatch) -> pa.Array:
        values = batch.column(top)
        for name in names[1:]:
            values = pc.struct_field(values, name)
        return pc.cast(values, shown.type) if is_dictionary else values

    return column_term(".".join(names), shown, read), field


def _match(name: str, names: Sequence[str]) -> str:
    if name in names:
        return name
    folded = [name_ for name_ in names if name_.lower() == name.lower()]
    if len(folded) == 1:
        return folded[0]
    import difflib  # noqa: PLC0415 for the message only

    near = difflib.get_close_matches(name, names, n=3) or names[:20]
    raise InvalidInputError(f"there is no column {name!r}. Did you mean {', '.join(near)}? Text needs single quotes")


def apply(
    function: Callable[..., Datum],
    terms: Sequence[Term],
    what: str,
    asks: Condition = UNKNOWN,
    *,
    kind: pa.DataType | None = None,
) -> Term:
    """Call a kernel on the values of some terms.

    Args:
        function: Kernel; at least one of its arguments is an array.
        terms: Its arguments.
        what: Its name for the error message.
        asks: What the answer asks of single columns.
        kind: Type of the result if the kernel is known to take these types; else both are found out on empty input.

    Raises:
        InvalidInputError: The kernel does not take these types.
    """

    def evaluate(batch: pa.RecordBatch) -> Datum:
        values = [term.evaluate(batch) for term in terms]
        if all(isinstance(value, pa.Scalar) for value in values):
            return function(*(pa.repeat(value, 1) for value in values))[0]
        return function(*values)

    kind = _result_type(function, terms, what) if kind is None else kind
    return Term(type=kind, evaluate=evaluate, asks=asks, nullable=any(term.nullable for term in terms))


def _result_type(function: Callable[..., Datum], terms: Sequence[Term], what: str) -> pa.DataType:
    empty = [pa.nulls(0, term.type) for term in terms]
    try:
        return function(*empty).type
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        types = ", ".join(str(term.type) for term in terms)
        raise InvalidInputError(f"{what} does not take {types}") from error


def converted(term: Term, target: pa.DataType) -> Term:
    """Return the term with an implicit cast."""
    if term.type.equals(target):
        return term
    if pa.types.is_null(term.type):
        return literal_term(scalar(None, target))
    return apply(lambda values: coerce(values, target), (term,), f"conversion to {target}")


def boolean(term: Term, what: str) -> Term:
    """Return the term itself, which must be boolean or the literal NULL."""
    if pa.types.is_null(term.type):
        return literal_term(scalar(None, pa.bool_()))
    if not pa.types.is_boolean(term.type):
        raise InvalidInputError(f"{what} needs a boolean, not {term.type}")
    return term


def cast_literal(value: pa.Scalar, target: pa.DataType) -> pa.Scalar:
    """Give a literal the type of what it meets.

    Raises:
        InvalidInputError: Another kind of value, or one that the type cannot hold.
    """
    if value.type.equals(target):
        return value
    if pa.types.is_null(value.type):
        return scalar(None, target)
    if pa.types.is_date(target) and pa.types.is_timestamp(value.type):
        return value  # a cast would cut off the time of day; the kernels compare days with times
    fraction_lost = pa.types.is_integer(target) and pa.types.is_floating(value.type)
    if kind_of(value.type) != kind_of(target) or fraction_lost:
        raise InvalidInputError(f"{_show(value)} ({value.type}) cannot be compared with {target}{_hint(value, target)}")
    try:
        if pa.types.is_timestamp(target):
            return _cast_timestamp(value, target)
        if pa.types.is_decimal(target):
            return scalar(Decimal(repr(value.as_py()) if pa.types.is_floating(value.type) else value.as_py()), target)
        return pc.cast(value, target, safe=not pa.types.is_floating(target))
    except (pa.ArrowInvalid, ArithmeticError) as error:
        raise InvalidInputError(f"{_show(value)} does not fit into {target}") from error


def _show(value: pa.Scalar) -> str:
    return repr(value.as_py())


def _hint(value: pa.Scalar, target: pa.DataType) -> str:
    if pa.types.is_string(value.type) and kind_of(target) == "day or time":
        word = "date" if pa.types.is_date(target) else "timestamp"
        return f"; write {word} {value.as_py()!r}"
    return ""


def _cast_timestamp(value: pa.Scalar, target: pa.DataType) -> pa.Scalar:
    """Literals without an offset are local time of the column's zone; days and offsets need a zone of UTC."""
    is_local = pa.types.is_timestamp(value.type) and value.type.tz is None
    if not is_local and target.tz not in (None, *UTC_NAMES):
        what = "an offset" if pa.types.is_timestamp(value.type) else "no time of day"
        raise UnsupportedError(f"cannot compare a literal with {what} with {target}")
    if not pa.types.is_timestamp(value.type):
        value = pc.cast(value, pa.timestamp("us"))
    if value.type.tz is None and target.tz is not None:
        return pc.cast(pc.assume_timezone(value, target.tz), target)
    return pc.cast(value, target)


def unify(left: Term, right: Term, *, strict: bool = True) -> tuple[Term, Term]:
    """Make two sides comparable.

    Args:
        left: One side.
        right: The other.
        strict: A literal takes the type of the column it meets, or is refused.

    Raises:
        InvalidInputError: Different kinds of values.
    """
    for side, other in ((left, right), (right, left)):
        if side.literal is None or other.literal is not None:
            continue
        if pa.types.is_floating(side.type) and pa.types.is_decimal(other.type):
            exact = literal_term(scalar(Decimal(repr(side.literal.as_py()))))
            return (exact, other) if side is left else (other, exact)
        if (strict and other.path) or pa.types.is_null(side.type) or not _is_comparable(side.type, other.type):
            fitted = literal_term(cast_literal(side.literal, other.type))
            return (fitted, other) if side is left else (other, fitted)
    if pa.types.is_null(left.type):
        return literal_term(scalar(None, right.type)), right
    if pa.types.is_null(right.type):
        return left, literal_term(scalar(None, left.type))
    if not _is_comparable(left.type, right.type):
        raise InvalidInputError(f"cannot compare {left.type} with {right.type}")
    return left, right


def _is_comparable(left: pa.DataType, right: pa.DataType) -> bool:
    return kind_of(left) == kind_of(right)


def compare(name: str, left: Term, right: Term, *, strict: bool = True, is_exact: bool = False) -> Term:
    """Compare two terms.

    Args:
        name: Name of an Arrow comparison kernel.
        left: One side.
        right: The other.
        strict: As in `unify`.
        is_exact: A constant 0.0 is not equal to -0.0. In pylance it is in filters, but not in functions and queries.

    Returns:
        A boolean term, null if a side is null.

    Raises:
        InvalidInputError: Sides that cannot be compared.
        UnsupportedError: A type without order, such as a list.
    """
    left, right = unify(left, right, strict=strict)
    if pa.types.is_nested(left.type) or pa.types.is_nested(right.type):
        raise UnsupportedError(f"cannot compare values of type {left.type}")
    if left.literal is not None and right.literal is None:
        name, left, right = float_order.MIRRORED[name], right, left
    asks = _comparison(name, left, right)
    common = comparison_type(left.type, right.type)
    kernel = getattr(pc, name)
    if pa.types.is_floating(common):
        kernel = partial(float_order.compare_exactly if is_exact else float_order.compare, name)
    return apply(kernel, (converted(left, common), converted(right, common)), name, asks, kind=_known_answer(common))


def _known_answer(common: pa.DataType) -> pa.DataType | None:
    """Return the type of a comparison's answer, if Arrow is known to compare values of this type."""
    kind = pa.types
    is_simple = kind.is_integer(common) or kind.is_floating(common) or kind.is_boolean(common) or is_text(common)
    return pa.bool_() if is_simple else None


def _comparison(name: str, left: Term, right: Term) -> Condition:
    """Return the demand of a comparison of a column with a literal; None for other comparisons."""
    if right.literal is None:
        return UNKNOWN
    if not right.literal.is_valid:
        return pruning.Constant(None)
    is_number = kind_of(left.type) == "number"
    is_existing = bool(left.subject) and (not is_number or right.type.equals(left.type))
    return pruning.Comparison(left.subject, name, right.literal) if is_existing else UNKNOWN


def is_null(value: Term) -> Term:
    """``IS NULL``."""
    asks = pruning.IsNull(value.subject) if value.subject else UNKNOWN
    term = apply(pc.is_null, (value,), "IS NULL", asks)
    return Term(type=term.type, evaluate=term.evaluate, asks=asks, nullable=False)


def distinct(left: Term, right: Term, *, strict: bool = True, is_exact: bool = False) -> Term:
    """``IS DISTINCT FROM``: as ``!=``, but null is a value like any other; arguments as for `compare`."""
    unequal = compare("not_equal", left, right, strict=strict, is_exact=is_exact)
    return apply(
        lambda different, a, b: pc.if_else(
            pc.or_(pc.is_null(a), pc.is_null(b)), pc.not_equal(pc.is_null(a), pc.is_null(b)), different
        ),
        (unequal, *unify(left, right, strict=strict)),
        "IS DISTINCT FROM",
        _distinction(unequal, left, right),
    )


def _distinction(unequal: Term, left: Term, right: Term) -> Condition:
    for side, other in ((left, right), (right, left)):
        if side.literal is not None and not side.literal.is_valid:
            return pruning.Not(pruning.IsNull(other.subject)) if other.subject else UNKNOWN
    return UNKNOWN if isinstance(unequal.asks, Unknown) else pruning.FillNull(unequal.asks, value=True)


def is_in(
    value: Term,
    options: Sequence[Term] = (),
    *,
    literals: Sequence[pa.Array] = (),
    strict: bool = True,
    is_exact: bool = False,
) -> Term:
    """``IN``: true if an option is equal, else null if the value or an option is null, else false.

    Args:
        value: What is looked for.
        options: What it may be.
        literals: More options, written in the text: one array for each type.
        strict: As in `unify`.
        is_exact: As in `compare`.

    Raises:
        InvalidInputError: Options that cannot be compared with the value.
        UnsupportedError: Options of a type without order.
    """
    written = by_type([option.literal for option in options if option.literal is not None])
    others = [option for option in options if option.literal is None or value.literal is not None]
    if value.literal is not None:
        others += [literal_term(literal) for array in literals for literal in array]
    term = [compare("equal", value, option, strict=strict, is_exact=is_exact) for option in others]
    if value.literal is None:
        term += [_is_among(value, option, strict=strict, is_exact=is_exact) for option in (*written, *literals)]
    return joined(or_, term)


def by_type(scalars: Sequence[pa.Scalar]) -> list[pa.Array]:
    """Return scalars as one array for each type that they have."""
    groups: dict[pa.DataType, list[pa.Scalar]] = {}
    for value in scalars:
        groups.setdefault(value.type, []).append(value)
    return [pa.concat_arrays([pa.repeat(value, 1) for value in group]) for group in groups.values()]


def fitted(value: Term, literals: pa.Array, *, strict: bool) -> pa.Array:
    """Return literals of one type as `unify` makes them, which looks at the first for all of them if it can."""
    first = unify(value, literal_term(literals[0]), strict=strict)[1].type
    if first.equals(literals.type):
        return literals
    if pa.types.is_integer(first) or pa.types.is_floating(first) or is_text(first):
        try:
            return literals.cast(first, safe=not pa.types.is_floating(first))
        except pa.ArrowInvalid:
            pass  # the message tells which one it is
    one_by_one = [unify(value, literal_term(literal), strict=strict)[1].evaluate(_NO_BATCH) for literal in literals]
    if pa.types.is_decimal(first):  # each has digits of its own
        first = reduce(comparison_type, [literal.type for literal in one_by_one])
    return pa.array([literal.cast(first) for literal in one_by_one], first)


_NO_BATCH = pa.record_batch({"row": pa.nulls(1)})


def _is_among(value: Term, literals: pa.Array, *, strict: bool, is_exact: bool) -> Term:
    """True if the value is one of some literals of one type."""
    if pa.types.is_nested(value.type):
        raise UnsupportedError(f"IN does not support values of type {value.type}")
    if pa.types.is_null(value.type) or pa.types.is_null(literals.type):
        return literal_term(scalar(None, pa.bool_()))
    options = fitted(value, literals, strict=strict)
    common = comparison_type(value.type, options.type)
    wanted = coerce(options, common)
    is_float = pa.types.is_floating(common)
    to_bits = float_order.float_bits if is_exact else float_order.membership_bits
    value_set = ValueSet(to_bits(wanted) if is_float else wanted)

    def evaluate(values: Datum) -> Datum:
        answer = value_set.mask(float_order.float_bits(values) if is_float else values)
        return pc.if_else(pc.is_null(values), scalar(None, pa.bool_()), answer)

    has_nan = is_float and pc.any(pc.is_nan(wanted)).as_py()
    is_existing = bool(value.subject) and common.equals(value.type) and not has_nan
    asks = pruning.Membership(value.subject, wanted) if is_existing else UNKNOWN
    return apply(evaluate, (converted(value, common),), "IN", asks, kind=pa.bool_())


def joined(rule: Callable[[_T, _T], _T], parts: Sequence[_T]) -> _T:
    """Join terms, or what they ask, by AND or OR: neighbours in pairs, so that the tree stays low."""
    left = list(parts)
    while len(left) > 1:
        pairs = [rule(*pair) for pair in zip(left[::2], left[1::2], strict=False)]
        left = pairs + left[2 * len(pairs) :]
    return left[0]


def and_(left: Term, right: Term) -> Term:
    """Kleene ``AND``."""
    asks = pruning.And(left.asks, right.asks)
    return apply(pc.and_kleene, (boolean(left, "AND"), boolean(right, "AND")), "AND", asks, kind=pa.bool_())


def conjunction(conjuncts: Sequence[Conjunct]) -> Term:
    """Kleene ``AND`` of some conditions, which it keeps; a chain among them counts as the conditions in it."""
    parts = [inner for part in conjuncts for inner in part.term.conjuncts or (part,)]
    checked = tuple(part._replace(term=boolean(part.term, "AND")) for part in parts)
    return replace(joined(and_, [part.term for part in conjuncts]), conjuncts=checked)


def or_(left: Term, right: Term) -> Term:
    """Kleene ``OR``."""
    asks = pruning.Or(left.asks, right.asks)
    return apply(pc.or_kleene, (boolean(left, "OR"), boolean(right, "OR")), "OR", asks, kind=pa.bool_())


def not_(term: Term) -> Term:
    """Return the opposite; null stays null."""
    return apply(pc.invert, (boolean(term, "NOT"),), "NOT", pruning.Not(term.asks), kind=pa.bool_())
