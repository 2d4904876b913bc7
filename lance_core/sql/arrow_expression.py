"""Filters given as pyarrow expressions, with the meaning that they have in pylance.

pylance hands an expression to DataFusion, lance_core to Arrow's own engine (Acero). The two differ in two functions,
which are taken out of the expression and computed here: comparisons of floats (`lance_core.sql.float_order`), and
``isin``, which is the ``IN`` of SQL: null for a null, and for what is not found in a list with a null. A third,
``if_else``, gets a condition without nulls.

pyarrow lets nobody look into an expression but by pickling it. The pickle is an Arrow IPC file with one row: literals
and options of functions are its columns, the nodes of the tree are key-value pairs of its schema's metadata, in prefix
order:

| key                | value                                                                                       |
|--------------------|---------------------------------------------------------------------------------------------|
| `field_ref`        | name of a column                                                                            |
| `nested_field_ref` | number of `field_ref` pairs that follow, one for each step of a path                        |
| `literal`          | number of a column                                                                          |
| `call`             | name of a function; its arguments follow, perhaps `options`, and `end` with the same name   |
| `options`          | number of a column                                                                          |

Source: pickles of pyarrow 20 to 26.
"""

from __future__ import annotations

import struct
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from lance_core.common.frozen import NamedTuple, mutable, replace
from lance_core.encoding.kernels import TRUE_SCALAR, scalar
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.arrow_kinds import is_text
from lance_core.format.schema import is_json_field
from lance_core.sql import float_order, pruning
from lance_core.sql.arrow_types import coerce, is_number
from lance_core.sql.kernels import pc
from lance_core.sql.terms import Term, and_, apply, converted, joined, literal_term, or_
from lance_core.sql.text_functions import like_condition, match_condition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyarrow.compute import Expression

    from lance_core.sql.arrow_types import Datum
    from lance_core.sql.pruning import Condition

_Entry: TypeAlias = tuple[str, str]
_LOGIC = {"and_kleene": and_, "or_kleene": or_}
_MOST_PARTS = 128
"""Conditions joined by AND or OR that are handed to Acero together."""


class _Node(NamedTuple):
    """A node of an expression.

    Attributes:
        kind: ``field_ref``, ``literal`` or ``call``.
        name: Name of a function, or number of a column.
        path: Names of a column and of fields below it.
        arguments: Arguments of a function.
        options: Number of the column with a function's options.
    """

    kind: str
    name: str = ""
    path: tuple[str, ...] = ()
    arguments: tuple[_Node, ...] = ()
    options: int | None = None


def translate(expression: Expression, schema: pa.Schema) -> tuple[tuple[str, ...], Term]:
    """Make a pyarrow expression ready to run.

    Args:
        expression: The expression.
        schema: All columns that may be named.

    Returns:
        The top-level columns it reads, and its term, with what it asks of single columns.

    Raises:
        InvalidInputError: An unknown column, or types that do not fit.
        UnsupportedError: Columns that are named by their place, or functions that cannot be pickled.
    """
    try:
        rebuild, (pickled,) = expression.__reduce__()
    except pa.ArrowNotImplementedError as error:
        raise UnsupportedError(
            f"cannot translate filter {expression}: {error}. Name columns as in pc.field('a') and "
            "pc.field('a', 'b'), or write the filter in SQL"
        ) from error
    with pa.ipc.open_file(pickled) as file:
        values = file.get_batch(0) if file.num_record_batches else pa.record_batch({})
    translator = _Translator(rebuild, values, schema)
    try:
        node = _tree(_metadata(memoryview(pickled)))
        term = replace(translator.term(node), asks=_asked(node, values, schema))
    except RecursionError as error:
        raise InvalidInputError("the filter is nested too deeply; write it with AND and OR only, or in SQL") from error
    except (pa.ArrowException, ValueError, TypeError, KeyError) as error:
        names = ", ".join(schema.names)
        raise InvalidInputError(f"filter {expression} does not fit the columns {names}: {error}") from error
    return tuple(dict.fromkeys(translator.columns)), term


# --------------------------------------------------------------------------------------------------- reading pickles


def _metadata(file: memoryview) -> list[_Entry]:
    """Return the metadata of an IPC file's schema; pyarrow would return one pair for each key.

    The file begins with 8 bytes of magic, 4 of a mark and 4 of a length. The schema follows as a flatbuffer: field 2
    of a ``Message`` is the ``Schema``, whose field 2 has tables with a key and a value.
    """
    message = file[16:]
    schema = _table(message, _field(message, _table(message, 0), 2))
    pairs = _table(message, _field(message, schema, 2))
    (count,) = struct.unpack_from("<I", message, pairs)
    tables = [_table(message, pairs + 4 + 4 * position) for position in range(count)]
    return [
        (_string(message, _field(message, table, 0)), _string(message, _field(message, table, 1))) for table in tables
    ]


def _table(data: memoryview, at: int) -> int:
    """Follow an offset to a table, vector or string."""
    return at + struct.unpack_from("<I", data, at)[0]


def _field(data: memoryview, table: int, number: int) -> int:
    """Return the position of a field of a table."""
    (back,) = struct.unpack_from("<i", data, table)
    (offset,) = struct.unpack_from("<H", data, table - back + 4 + 2 * number)
    return table + offset


def _string(data: memoryview, at: int) -> str:
    start = _table(data, at)
    (size,) = struct.unpack_from("<I", data, start)
    return str(data[start + 4 : start + 4 + size], "utf-8")


def _tree(entries: Sequence[_Entry]) -> _Node:
    """Read all nodes; chains of OR may be deeper than Python's stack."""
    calls: list[_Open] = [_Open("")]
    rest = iter(entries)
    for key, value in rest:
        if key == "call":
            calls.append(_Open(value))
        elif key == "end":
            call = calls.pop()
            calls[-1].arguments.append(_call(call))
        elif key == "options":
            calls[-1].options = int(value)
        elif key == "nested_field_ref":
            calls[-1].arguments.append(_Node("field_ref", path=tuple(next(rest)[1] for _ in range(int(value)))))
        elif key == "field_ref":
            calls[-1].arguments.append(_Node(key, path=(value,)))
        elif key == "literal":
            calls[-1].arguments.append(_Node(key, value))
        else:
            raise UnsupportedError(f"pyarrow expressions with a {key!r} are not supported")
    return calls[0].arguments[0]


@mutable
class _Open:
    """A call whose arguments are being read."""

    name: str
    arguments: list[_Node] = field(default_factory=list[_Node])
    options: int | None = None


def _call(call: _Open) -> _Node:
    """Return a call; where the condition of ``if_else`` is null, the second value is taken, as by ``CASE``."""
    arguments = tuple(call.arguments)
    if call.name == "if_else":
        condition = arguments[0]
        is_valid = _Node("call", "is_valid", arguments=(condition,))
        arguments = (_Node("call", "and_kleene", arguments=(condition, is_valid)), *arguments[1:])
    return _Node("call", call.name, arguments=arguments, options=call.options)


def _entries(node: _Node) -> Iterator[_Entry]:
    """Write a node as `_tree` reads it."""
    if node.kind == "literal":
        yield node.kind, node.name
    elif node.kind == "field_ref":
        yield from (("field_ref", name) for name in node.path)
    else:
        yield "call", node.name
        for argument in node.arguments:
            yield from _entries(argument)
        if node.options is not None:
            yield "options", str(node.options)
        yield "end", node.name


# -------------------------------------------------------------------------------------------------------- translating


class _Translator:
    """Makes terms of the nodes of one expression, and remembers the columns that they read."""

    def __init__(self, rebuild: Callable[[pa.Buffer], Expression], values: pa.RecordBatch, schema: pa.Schema) -> None:
        self._rebuild, self._values, self._schema = rebuild, values, schema
        self._terms: dict[int, tuple[_Node, Term | None]] = {}
        self.columns: list[str] = []

    def term(self, node: _Node) -> Term:
        """Return the term of a node."""
        return self._own_term(node) or self._engine_term(node)

    def _own_term(self, node: _Node) -> Term | None:
        """Return the term of what is computed here; None for calls that Acero computes."""
        if id(node) not in self._terms:
            self._terms[id(node)] = (node, self._new_term(node))
        return self._terms[id(node)][1]

    def _new_term(self, node: _Node) -> Term | None:
        if node.kind == "literal":
            return literal_term(self._values.column(int(node.name))[0])
        if node.kind == "field_ref":
            return self._column(node.path)
        if node.name == "is_in" and node.options is not None:
            return self._is_in(node, self._values.column(node.options)[0]["value_set"].values)
        if node.name in float_order.MIRRORED:
            return self._comparison(node)
        return self._long_chain(node) if node.name in _LOGIC else None

    def _column(self, path: Sequence[str]) -> Term:
        name, *rest = path
        kind = self._schema.field(name).type
        for step in rest:
            kind = kind.field(step).type
        self.columns.append(".".join(path))

        def read(batch: pa.RecordBatch) -> pa.Array:
            values = batch.column(name)
            return pc.struct_field(values, rest) if rest else values

        return Term(type=kind, evaluate=read)

    def _comparison(self, node: _Node) -> Term | None:
        left, right = map(self.term, node.arguments)
        common = _float_type(left.type, right.type)
        if common is None:
            return None
        sides = (converted(left, common), converted(right, common))
        return apply(partial(float_order.compare, node.name), sides, node.name, kind=pa.bool_())

    def _is_in(self, node: _Node, options: pa.Array) -> Term:
        value = self.term(node.arguments[0])
        common = _float_type(value.type, options.type)
        if common is None:
            answer = self._engine_term(node)
        else:
            sought = float_order.membership_bits(coerce(options, common))
            answer = apply(
                lambda values: pc.is_in(float_order.float_bits(values), value_set=sought),
                (converted(value, common),),
                node.name,
                kind=pa.bool_(),
            )
        return apply(partial(_with_nulls, options), (value, answer), node.name, kind=pa.bool_())

    def _long_chain(self, node: _Node) -> Term | None:
        """Return the term of a long chain of AND or OR: in groups, because Acero takes quadratic time; else None."""
        parts = _parts(node)
        if len(parts) <= _MOST_PARTS:
            return None
        groups = [parts[at : at + _MOST_PARTS] for at in range(0, len(parts), _MOST_PARTS)]
        return joined(_LOGIC[node.name], [self.term(_balanced(node.name, group)) for group in groups])

    def _engine_term(self, node: _Node) -> Term:
        """Return the term of a call that Acero computes, from columns that hold what is computed here."""
        inputs: dict[object, Term] = {}
        expression = self._expression(self._emptied(node, inputs))
        return apply(partial(_run, expression), tuple(inputs.values()), node.name)

    def _emptied(self, node: _Node, inputs: dict[object, Term]) -> _Node:
        """Replace the parts of a call that are computed here by columns ``"0"``, ``"1"`` and so on."""
        if node.name in _LOGIC:
            return _balanced(node.name, [self._replaced(part, inputs) for part in _parts(node)])
        return node._replace(arguments=tuple(self._replaced(argument, inputs) for argument in node.arguments))

    def _replaced(self, node: _Node, inputs: dict[object, Term]) -> _Node:
        if node.kind == "literal":
            return node
        term = self._own_term(node)
        if term is None:
            return self._emptied(node, inputs)
        key = node.path or id(node)
        inputs.setdefault(key, term)
        return _Node("field_ref", path=(str([*inputs].index(key)),))

    def _expression(self, node: _Node) -> Expression:
        metadata = pa.KeyValueMetadata(list(_entries(node)))
        file = pa.BufferOutputStream()
        values = self._values.replace_schema_metadata(metadata)
        with pa.ipc.new_file(file, values.schema) as writer:
            writer.write_batch(values)
        return self._rebuild(file.getvalue())


def _parts(node: _Node) -> list[_Node]:
    """Return what a chain of AND or OR joins."""
    pending, parts = [node], list[_Node]()
    while pending:
        part = pending.pop()
        if part.kind == "call" and part.name == node.name:
            pending += reversed(part.arguments)
        else:
            parts.append(part)
    return parts


def _balanced(name: str, parts: Sequence[_Node]) -> _Node:
    """Join nodes by AND or OR: neighbours in pairs, so that the tree stays low."""
    terms = list(parts)
    while len(terms) > 1:
        pairs = [_Node("call", name, arguments=pair) for pair in zip(terms[::2], terms[1::2], strict=False)]
        terms = pairs + terms[2 * len(pairs) :]
    return terms[0]


def _float_type(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """Return the type in which floats are compared with something; None if neither is a float."""
    both = (left, right)
    floats = [kind for kind in both if pa.types.is_floating(kind)]
    if not floats or not all(is_number(kind) or pa.types.is_null(kind) for kind in both):
        return None
    has_decimal = any(map(pa.types.is_decimal, both))
    return pa.float64() if has_decimal else max(floats, key=lambda kind: kind.bit_width)


def _with_nulls(options: pa.Array, values: Datum, value: Datum) -> Datum:
    """Make the answer of ``IN`` null where SQL does not know it."""
    if not len(options):
        return value
    unknown = scalar(None, pa.bool_())
    if options.null_count:
        value = pc.if_else(value, value, unknown)
    return pc.if_else(pc.is_null(values), unknown, value)


def _run(expression: Expression, *columns: Datum) -> Datum:
    """Let Acero compute an expression over columns ``"0"``, ``"1"`` and so on."""
    from pyarrow import acero  # noqa: PLC0415 takes its time, and few conditions need it

    num_rows = max((len(column) for column in columns if not isinstance(column, pa.Scalar)), default=1)
    arrays = [pa.repeat(column, num_rows) if isinstance(column, pa.Scalar) else column for column in columns]
    table = pa.table(arrays or [pa.nulls(1)], names=[str(position) for position in range(len(arrays) or 1)])
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(table))
    project = acero.Declaration("project", acero.ProjectNodeOptions([expression], ["answer"]))
    answer = acero.Declaration.from_sequence([source, project]).to_table(use_threads=False)
    return answer.column(0).combine_chunks()


# ------------------------------------------------------------------------------------- what is asked of single columns

_RULES = {"and_kleene": pruning.And, "or_kleene": pruning.Or}


def _asked(node: _Node, values: pa.RecordBatch, schema: pa.Schema) -> Condition:
    """Return what an expression asks of single columns, for indices and statistics."""
    if node.kind == "literal":
        return literal_term(values.column(int(node.name))[0]).asks
    if node.kind == "field_ref":
        path, kind = _asked_column(node, schema)
        is_answer = bool(path) and pa.types.is_boolean(kind)
        return pruning.Comparison(path, "equal", TRUE_SCALAR) if is_answer else pruning.UNKNOWN
    if node.name in _RULES:
        return joined(_RULES[node.name], [_asked(part, values, schema) for part in _parts(node)])
    if node.name == "invert":
        return pruning.Not(_asked(node.arguments[0], values, schema))
    if node.name in float_order.MIRRORED:
        return _asked_comparison(node, values, schema)
    path, kind = _asked_column(node.arguments[0], schema) if node.arguments else ("", pa.null())
    options = None if node.options is None else values.column(node.options)[0]
    return _asked_of(node.name, path, kind, options) if path else pruning.UNKNOWN


def _asked_column(node: _Node, schema: pa.Schema) -> tuple[str, pa.DataType]:
    """Return the path and the type of a column that can be asked about; an empty path for all else."""
    if node.kind != "field_ref" or any("." in name for name in node.path):
        return "", pa.null()
    column = schema.field(node.path[0])
    for name in node.path[1:]:
        column = column.type.field(name)
    has_values = pa.types.is_primitive(column.type) or pa.types.is_decimal(column.type) or is_text(column.type)
    return ("", pa.null()) if is_json_field(column) or not has_values else (".".join(node.path), column.type)


def _asked_comparison(node: _Node, values: pa.RecordBatch, schema: pa.Schema) -> Condition:
    name, (left, right) = node.name, node.arguments
    if left.kind == "literal":
        name, left, right = float_order.MIRRORED[name], right, left
    path, kind = _asked_column(left, schema)
    if not path or right.kind != "literal":
        return pruning.UNKNOWN
    written = values.column(int(right.name))
    wanted = _of_type(written, kind)
    if wanted is None:
        return pruning.UNKNOWN
    return pruning.Comparison(path, name, wanted[0]) if wanted.is_valid()[0].as_py() else pruning.Constant(None)


def _asked_of(name: str, path: str, kind: pa.DataType, options: pa.Scalar | None) -> Condition:
    """Return what a function with a column as its only argument asks."""
    if name == "is_valid":
        return pruning.Not(pruning.IsNull(path))
    if options is None:
        return pruning.UNKNOWN
    if name == "is_null":
        return pruning.UNKNOWN if options["nan_is_null"].as_py() else pruning.IsNull(path)
    if name == "is_in":
        written = options["value_set"].values
        wanted = _of_type(written.drop_null(), kind)
        if wanted is None or not len(wanted):
            return pruning.UNKNOWN
        is_among = pruning.Membership(path, wanted)
        return pruning.Or(is_among, pruning.Constant(None)) if written.null_count else is_among
    if name in _TEXT_QUESTIONS and is_text(kind) and not options["ignore_case"].as_py():
        return _TEXT_QUESTIONS[name](path, options["pattern"].as_py())
    return pruning.UNKNOWN


_TEXT_QUESTIONS: dict[str, Callable[[str, str], Condition]] = {
    "starts_with": partial(match_condition, "starts_with"),
    "match_substring": partial(match_condition, "contains"),
    "match_like": like_condition,
}


def _of_type(values: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """Return values in the type of a column; None if they are not the same in it: NaN is not, and 0.1 as a float.

    Arrow compares numbers of other columns with floats as floats, where some that differ are equal.
    """
    if pa.types.is_floating(values.type) and not pa.types.is_floating(kind):
        return None
    try:
        wanted = values.cast(kind)
        return wanted if wanted.cast(values.type).equals(values) else None
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
