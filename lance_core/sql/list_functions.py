"""Functions of SQL on lists and structs; items are counted from 1."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.encoding.kernels import scalar
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.arrow_kinds import is_text
from lance_core.sql import pruning
from lance_core.sql.arrow_types import comparison_type, element_at, is_any_list
from lance_core.sql.choices import common
from lance_core.sql.float_order import compare_exactly
from lance_core.sql.kernels import nulls_as_false, pc
from lance_core.sql.pruning import UNKNOWN
from lance_core.sql.terms import Term, apply, converted, literal_term, unify
from lance_core.sql.text_functions import written, written_number

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import numpy.typing as npt

    from lance_core.sql.arrow_types import Datum
    from lance_core.sql.pruning import Condition


def _list(term: Term, what: str) -> Term:
    if not is_any_list(term.type):
        raise InvalidInputError(f"{what} needs a list, not {term.type}")
    return term


def _lengths(lists: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(pc.fill_null(pc.list_value_length(lists), scalar(0)), np.int64)


def _length(terms: Sequence[Term]) -> Term:
    value = _list(terms[0], "array_length")
    return apply(lambda lists: pc.cast(pc.list_value_length(lists), pa.uint64()), (value,), "array_length")


def _empty(terms: Sequence[Term]) -> Term:
    value = _list(terms[0], "empty")
    return apply(lambda lists: pc.equal(pc.list_value_length(lists), 0), (value,), "empty")


def element(terms: Sequence[Term]) -> Term:
    """One item of a list."""
    value, number = _list(terms[0], "array_element"), written_number(terms[1], "array_element")
    if number is None:
        return literal_term(scalar(None, value.type.value_type))
    term = apply(lambda lists: element_at(lists, number), (value,), "array_element")
    return Term(type=term.type, evaluate=term.evaluate)


def _has(terms: Sequence[Term]) -> Term:
    """Return whether a list has an item; null if the list or the item is."""
    value = _list(terms[0], "array_has")
    sought = unify(_item(value), terms[1], strict=terms[1].literal is not None)[1]
    kind = comparison_type(value.type.value_type, sought.type)

    def look(lists: pa.Array, wanted: Datum) -> pa.Array:
        parents = np.repeat(np.arange(len(lists)), _lengths(lists))
        flat = pc.cast(pc.list_flatten(lists), kind)
        other = wanted if isinstance(wanted, pa.Scalar) else wanted.take(pa.array(parents))
        equal = partial(compare_exactly, "equal") if pa.types.is_floating(kind) else pc.equal
        answer = _any_of(equal(flat, other), parents, len(lists))
        missing = pc.is_null(lists)
        missing = pc.or_(missing, pc.is_null(wanted))
        return pc.if_else(missing, scalar(None, pa.bool_()), answer)

    asks = UNKNOWN if terms[1].literal is None else _items_condition(value, [sought], needs_all=False)
    return apply(look, (value, converted(sought, kind)), "array_has", asks)


def _item(value: Term) -> Term:
    """Return a term of the type of a list's items."""
    return Term(type=value.type.value_type, evaluate=value.evaluate)


def _items_condition(value: Term, sought: Sequence[Term], *, needs_all: bool) -> Condition:
    """Return what is asked of a list column by literals that were made to fit its items."""
    kind = value.type.value_type
    if not value.path or not sought or not all(_is_like(term.type, kind) for term in sought):
        return UNKNOWN
    items = [term.evaluate(_NO_ROWS).cast(kind) for term in sought]
    if not all(item.is_valid for item in items):
        return UNKNOWN
    return pruning.HasItems(value.path, pa.array(items, kind), needs_all)


def _is_like(left: pa.DataType, right: pa.DataType) -> bool:
    return left.equals(right) or (is_text(left) and is_text(right))


def _any_of(hits: pa.Array, parents: npt.NDArray[np.int64], num_rows: int) -> pa.Array:
    answer = np.zeros(num_rows, np.bool_)
    answer[parents[np.asarray(nulls_as_false(hits))]] = True
    return pa.array(answer)


def _has_several(name: str, merge: Callable[[pa.Array, pa.Array], pa.Array], start: bool) -> Callable[..., Term]:
    """``array_has_any`` and ``array_has_all`` with a list that is written in the SQL."""

    def build(terms: Sequence[Term]) -> Term:
        value = _list(terms[0], name)
        wanted = terms[1].literal
        if wanted is None or not wanted.is_valid or not is_any_list(wanted.type):
            raise UnsupportedError(f"{name} supports only lists that are written in the SQL text")
        literals = [literal_term(scalar(item)) for item in wanted.as_py()]
        items = [_has((value, literal)) for literal in literals]
        sought = [unify(_item(value), literal, strict=True)[1] for literal in literals]
        asks = _items_condition(value, sought, needs_all=start)

        def look(lists: pa.Array, *answers: Datum) -> Datum:
            total = pa.repeat(scalar(start), len(lists))
            for answer in answers:
                total = merge(total, answer)
            return pc.if_else(pc.is_null(lists), scalar(None, pa.bool_()), total)

        return apply(look, (value, *items), name, asks)

    return build


def make_array(terms: Sequence[Term]) -> Term:
    """Return a list of values; a literal if all of them are."""
    if not terms:
        raise UnsupportedError("empty lists are not supported")
    items = common(terms, "make_array")
    kind = pa.list_(items[0].type)
    literals = [term.literal for term in terms]
    if all(literal is not None for literal in literals):
        values = [term.evaluate(_NO_ROWS) for term in items]
        return literal_term(scalar([value.as_py() for value in values], kind))

    def build(*columns: Datum) -> pa.Array:
        num_rows = max(len(column) for column in columns if not isinstance(column, pa.Scalar))
        arrays = [pa.repeat(column, num_rows) if isinstance(column, pa.Scalar) else column for column in columns]
        order = np.arange(num_rows * len(arrays)).reshape(len(arrays), num_rows).T.reshape(-1)
        values = pa.concat_arrays(arrays).take(pa.array(order))
        offsets = pa.array(np.arange(num_rows + 1, dtype=np.int32) * len(arrays))
        return pa.ListArray.from_arrays(offsets, values, type=kind)

    result = apply(build, items, "make_array")
    return Term(type=result.type, evaluate=result.evaluate)


_NO_ROWS = pa.record_batch({"row": pa.nulls(1)})


def _struct(names: Sequence[str], terms: Sequence[Term]) -> Term:
    fields = [pa.field(name, term.type) for name, term in zip(names, terms, strict=True)]

    def build(*columns: Datum) -> pa.Array:
        num_rows = max(len(column) for column in columns if not isinstance(column, pa.Scalar))
        arrays = [pa.repeat(column, num_rows) if isinstance(column, pa.Scalar) else column for column in columns]
        return pa.StructArray.from_arrays(arrays, fields=fields)

    result = apply(build, terms, "struct")
    return Term(type=result.type, evaluate=result.evaluate)


def _named_struct(terms: Sequence[Term]) -> Term:
    if len(terms) % 2:
        raise InvalidInputError("named_struct takes names and values in turn")
    names = [written(term, "named_struct") or "" for term in terms[::2]]
    if len(set(names)) < len(names):
        raise InvalidInputError("named_struct has the same name twice")
    return _struct(names, terms[1::2])


def field(term: Term, name: str | None) -> Term:
    """Return a field of a struct."""
    if not pa.types.is_struct(term.type) or name is None or term.type.get_field_index(name) < 0:
        raise InvalidInputError(f"{term.type} has no field {name!r}")
    result = apply(lambda values: pc.struct_field(values, name), (term,), "get_field")
    return Term(type=result.type, evaluate=result.evaluate)


LIST_FUNCTIONS: Mapping[str, tuple[int, int, Callable[[Sequence[Term]], Term]]] = {
    "array_length": (1, 1, _length),
    "list_length": (1, 1, _length),
    "cardinality": (1, 1, _length),
    "empty": (1, 1, _empty),
    "array_has": (2, 2, _has),
    "array_contains": (2, 2, _has),
    "list_has": (2, 2, _has),
    "list_contains": (2, 2, _has),
    "array_has_any": (2, 2, _has_several("array_has_any", pc.or_, start=False)),
    "array_has_all": (2, 2, _has_several("array_has_all", pc.and_, start=True)),
    "array_element": (2, 2, element),
    "list_element": (2, 2, element),
    "make_array": (1, 1000, make_array),
    "struct": (1, 1000, lambda terms: _struct([f"c{index}" for index in range(len(terms))], terms)),
    "named_struct": (2, 1000, _named_struct),
    "get_field": (2, 2, lambda terms: field(terms[0], written(terms[1], "get_field"))),
}
"""Name to fewest arguments, most arguments and meaning."""

SHAPE_FUNCTIONS = frozenset(name for name, (_, _, build) in LIST_FUNCTIONS.items() if build in (_length, _empty))
"""Functions that ask nothing of a list but its length."""
