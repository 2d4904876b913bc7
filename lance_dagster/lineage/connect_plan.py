"""Column lineage of a Spark Connect plan: the source columns of each output column. Pure: no Spark, no server.

The input is the proto of the logical plan that a client builds (``spark.connect.Relation``). Nothing in it is resolved:
columns are texts, so this module resolves them as Spark's analyzer does, by name, by the alias of a frame, and by the
id of the plan for ``frame["column"]``. As with classic plans, only values count: a column that merely filters, joins or
sorts rows is no source of others, and where a node tells nothing better, a column counts as made from all that the node
reads. Only the server knows the columns of SQL texts, views and tables of catalogs: they have no sources here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

# A column of a table: (address, name).
Source = tuple[str, str]
_Deps = frozenset[Source]
_Proto = Any

_NONE: _Deps = frozenset()
_STAR = re.compile(r"(?:[^.`\s(]+\.|`[^`]+`\.)?\*")
_NAME_PART = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")
_UNCHANGED = frozenset(
    """
    filter sort limit offset sample deduplicate tail hint repartition repartition_by_expression with_watermark
    collect_metrics fill_na drop_na replace sample_by
    """.split()  # noqa: SIM905 - as a list it would fill a page
)
"""Relations whose columns are those of their input."""
_GENERATED = {"posexplode": ("pos", "col"), "posexplode_outer": ("pos", "col")}
_SEMI = frozenset({"JOIN_TYPE_LEFT_ANTI", "JOIN_TYPE_LEFT_SEMI"})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Column:
    """A column of a relation.

    Args:
        id: The same for as long as the column is passed on.
        name: Its name; None if only the server knows it.
        deps: What it is made from.
        qualifiers: Aliases of the relations that it is of.
    """

    id: int
    name: str | None
    deps: _Deps
    qualifiers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Output:
    """Columns of a relation.

    Args:
        columns: Those that are listed, in order.
        rest: What further columns are made from; None if there are none.
    """

    columns: tuple[_Column, ...]
    rest: _Deps | None = None

    @property
    def deps(self) -> _Deps:
        """Everything that the relation is made from."""
        return _NONE.union(*(column.deps for column in self.columns), self.rest or _NONE)


def connect_sources(
    relation: _Proto, names: Sequence[str], *, schema_of: Callable[[str], Sequence[str]]
) -> dict[str, frozenset[Source]]:
    """Return the sources of each output column.

    Args:
        relation: Root of the plan.
        names: Names of the output columns, in order.
        schema_of: Returns the columns of the table at an address.

    Returns:
        For each column the columns of tables that it is made from: ``(address, name)``.
    """
    output = _Walk(schema_of=schema_of).output(relation)
    if output.rest is None and len(output.columns) == len(names):
        return {name: column.deps for name, column in zip(names, output.columns, strict=True)}
    by_name = {column.name.lower(): column.deps for column in output.columns if column.name is not None}
    return {name: by_name.get(name.lower(), output.rest or _NONE) for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walk:
    schema_of: Callable[[str], Sequence[str]]
    # Columns of the relations that were walked, by the id of their plan.
    plans: dict[int, _Output] = field(default_factory=dict[int, _Output])
    ids: Iterator[int] = field(default_factory=count)

    def output(self, relation: _Proto) -> _Output:
        """Columns of a relation."""
        kind: str = relation.WhichOneof("rel_type") or "unknown"
        node = getattr(relation, kind)
        walk = getattr(self, f"_{kind}", self._any)
        result = self.output(node.input) if kind in _UNCHANGED else walk(node)
        if relation.common.HasField("plan_id"):
            self.plans[relation.common.plan_id] = result
        return result

    def _new(self, name: str | None, deps: _Deps) -> _Column:
        return _Column(id=next(self.ids), name=name, deps=deps)

    def _any(self, node: _Proto) -> _Output:
        """Return a relation that tells nothing of its columns: each counts as made from all that it reads."""
        return _Output(columns=(), rest=_NONE.union(*(self.output(child).deps for child in _relations(node))))

    def _read(self, node: _Proto) -> _Output:
        source = node.data_source
        address = source.options.get("path") or next(iter(source.paths), None)
        if node.WhichOneof("read_type") != "data_source" or source.format != "lance" or not address:
            return _Output(columns=(), rest=_NONE)
        names = self.schema_of(address)
        return _Output(columns=tuple(self._new(name, frozenset({(address, name)})) for name in names))

    def _project(self, node: _Proto) -> _Output:
        base = self.output(node.input) if node.HasField("input") else _Output(columns=())
        return self._named(node.expressions, base)

    def _named(self, expressions: Iterable[_Proto], base: _Output) -> _Output:
        """Columns that expressions make."""
        columns: list[_Column] = []
        rest: _Deps | None = None
        for expression in expressions:
            target = _star_target(expression)
            if target is not None:
                columns += _starred(target, base)
                rest = base.rest if base.rest is not None else rest
                continue
            kind = expression.WhichOneof("expr_type")
            if kind == "unresolved_attribute":
                matches = self._lookup(expression.unresolved_attribute, base)
                if len(matches) == 1 and matches[0].name == _parts(_identifier(expression))[-1]:
                    columns += matches
                    continue
            deps = self._deps(expression, base)
            columns += [self._new(name, deps) for name in _names(expression)]
        return _Output(columns=tuple(columns), rest=rest)

    def _with_columns(self, node: _Proto) -> _Output:
        base = self.output(node.input)
        columns = list(base.columns)
        for alias in node.aliases:
            (name, *_), deps = alias.name, self._deps(alias.expr, base)
            new = self._new(name, deps)
            same = [i for i, column in enumerate(columns) if _same(column.name, name)]
            for i in same:
                columns[i] = new
            if not same:
                columns.append(new)
        return replace(base, columns=tuple(columns))

    def _with_columns_renamed(self, node: _Proto) -> _Output:
        base = self.output(node.input)
        renames = dict(node.rename_columns_map) or {entry.col_name: entry.new_col_name for entry in node.renames}
        columns = base.columns
        for old, new in renames.items():
            columns = tuple(replace(column, name=new) if _same(column.name, old) else column for column in columns)
        return replace(base, columns=columns)

    def _drop(self, node: _Proto) -> _Output:
        base = self.output(node.input)
        names = {name.lower() for name in node.column_names}
        ids = {
            column.id
            for expression in node.columns
            if expression.WhichOneof("expr_type") == "unresolved_attribute"
            for column in self._lookup(expression.unresolved_attribute, base)
        }
        columns = [
            column for column in base.columns if column.id not in ids and (column.name or "").lower() not in names
        ]
        return replace(base, columns=tuple(columns))

    def _to_df(self, node: _Proto) -> _Output:
        base = self.output(node.input)
        if base.rest is not None or len(base.columns) != len(node.column_names):
            return _Output(columns=(), rest=base.deps)
        columns = zip(base.columns, node.column_names, strict=True)
        return _Output(columns=tuple(replace(column, name=name) for column, name in columns))

    def _to_schema(self, node: _Proto) -> _Output:
        base = self.output(node.input)
        names = [entry.name for entry in node.schema.struct.fields]
        columns = [next((column for column in base.columns if _same(column.name, name)), None) for name in names]
        return _Output(
            columns=tuple(
                self._new(name, base.rest or _NONE) if column is None else replace(column, name=name)
                for column, name in zip(columns, names, strict=True)
            )
        )

    def _subquery_alias(self, node: _Proto) -> _Output:
        base = self.output(node.input)
        alias = frozenset({node.alias})
        return replace(base, columns=tuple(replace(column, qualifiers=alias) for column in base.columns))

    def _join(self, node: _Proto) -> _Output:
        left, right = self.output(node.left), self.output(node.right)
        kind = node.JoinType.Name(node.join_type)
        if kind in _SEMI:
            return left
        return self._beside(left, right, node.using_columns, is_right="RIGHT" in kind, is_full="FULL" in kind)

    def _as_of_join(self, node: _Proto) -> _Output:
        return self._beside(self.output(node.left), self.output(node.right), node.using_columns)

    def _lateral_join(self, node: _Proto) -> _Output:
        return self._beside(self.output(node.left), self.output(node.right), ())

    _zip = _lateral_join

    def _beside(
        self, left: _Output, right: _Output, using: Sequence[str], *, is_right: bool = False, is_full: bool = False
    ) -> _Output:
        shared: list[_Column] = []
        for name in using:
            matches = [column for side in (left, right) for column in side.columns if _same(column.name, name)]
            if is_full:
                shared.append(self._new(name, _NONE.union(*(column.deps for column in matches))))
            else:
                shared += matches[-1:] if is_right else matches[:1]
        names = {name.lower() for name in using}
        others = [
            column for side in (left, right) for column in side.columns if (column.name or "").lower() not in names
        ]
        rest = None if left.rest is None and right.rest is None else (left.rest or _NONE) | (right.rest or _NONE)
        return _Output(columns=(*shared, *others), rest=rest)

    def _set_op(self, node: _Proto) -> _Output:
        left, right = self.output(node.left_input), self.output(node.right_input)
        if node.SetOpType.Name(node.set_op_type) == "SET_OP_TYPE_EXCEPT":
            return left
        if left.rest is not None or right.rest is not None:
            return _Output(columns=(), rest=left.deps | right.deps)
        if not node.by_name:
            pairs = zip(left.columns, right.columns, strict=False)
            return _Output(columns=tuple(replace(column, deps=column.deps | other.deps) for column, other in pairs))
        of_right = {(column.name or "").lower(): column for column in right.columns}
        columns = [
            replace(column, deps=column.deps | match.deps)
            if (match := of_right.pop((column.name or "").lower(), None)) is not None
            else column
            for column in left.columns
        ]
        return _Output(columns=(*columns, *of_right.values()))

    def _aggregate(self, node: _Proto) -> _Output:
        base = self.output(node.input)
        grouping = self._named(node.grouping_expressions, base)
        if node.HasField("pivot"):
            values = [self._deps(expression, base) for expression in node.aggregate_expressions]
            rest = _NONE.union(*values, self._deps(node.pivot.col, base))
            return _Output(columns=grouping.columns, rest=rest)
        made = self._named(node.aggregate_expressions, base)
        return _Output(columns=(*grouping.columns, *made.columns))

    def _unpivot(self, node: _Proto) -> _Output:
        base = self.output(node.input)
        ids = self._named(node.ids, base)
        if node.HasField("values"):
            deps = _NONE.union(*(self._deps(expression, base) for expression in node.values.values))
        else:
            passed = {column.id for column in ids.columns}
            deps = _NONE.union(*(column.deps for column in base.columns if column.id not in passed), base.rest or _NONE)
        new = (self._new(node.variable_column_name, _NONE), self._new(node.value_column_name, deps))
        return _Output(columns=(*ids.columns, *new))

    def _with_relations(self, node: _Proto) -> _Output:
        for relation in node.references:
            self.output(relation)
        return self.output(node.root)

    def _deps(self, expression: _Proto, base: _Output) -> _Deps:
        """Return what an expression reads."""
        kind = expression.WhichOneof("expr_type")
        match kind:
            case "unresolved_attribute":
                return _NONE.union(*(column.deps for column in self._lookup(expression.unresolved_attribute, base)))
            case "unresolved_star":
                columns = _starred(_star_target(expression) or "", base)
                return _NONE.union(*(column.deps for column in columns))
            case "expression_string":
                return self._text_deps(expression.expression_string.expression, base)
            case "subquery_expression":
                plan = self.plans.get(expression.subquery_expression.plan_id)
                inside = _NONE if plan is None else plan.deps
                values = expression.subquery_expression.in_subquery_values
                return inside.union(*(self._deps(value, base) for value in values))
            case "unresolved_regex":
                return base.deps
            case None:
                return _NONE
            case _:
                return _NONE.union(*(self._deps(child, base) for child in _expressions(getattr(expression, kind))))

    def _text_deps(self, text: str, base: _Output) -> _Deps:
        """Return what an expression that is SQL text reads; everything if it cannot be parsed."""
        from sqlglot import exp, parse_one  # noqa: PLC0415 - slow to import, and few plans have texts
        from sqlglot.errors import SqlglotError  # noqa: PLC0415

        try:
            parsed = parse_one(text, dialect="spark")
        except SqlglotError:
            return base.deps
        paths = [[part.name for part in column.parts] for column in parsed.find_all(exp.Column)]
        return _NONE.union(*(column.deps for path in paths for column in _matches(path, base)))

    def _lookup(self, attribute: _Proto, base: _Output) -> list[_Column]:
        """Return the columns that a name may mean."""
        plan = self.plans.get(attribute.plan_id) if attribute.HasField("plan_id") else None
        matches = _matches(_parts(attribute.unparsed_identifier), base if plan is None else plan)
        if matches or plan is None:
            return matches
        return _matches(_parts(attribute.unparsed_identifier), base)


def _matches(parts: Sequence[str], base: _Output) -> list[_Column]:
    """Return the columns that a path of names may mean: with a qualifier before them, and fields of structs behind."""
    for position in range(min(len(parts) - 1, 3), -1, -1):
        matches = [
            column
            for column in base.columns
            if _same(column.name, parts[position])
            and (position == 0 or any(_same(parts[position - 1], name) for name in column.qualifiers))
        ]
        if matches:
            return matches
    return [] if base.rest is None else [_Column(id=-1, name=None, deps=base.rest)]


def _starred(target: str, base: _Output) -> list[_Column]:
    return [column for column in base.columns if not target or target in column.qualifiers]


def _same(name: str | None, other: str) -> bool:
    return name is not None and name.lower() == other.lower()


def _parts(identifier: str) -> list[str]:
    """Divide a name at its dots, except in backticks."""
    return [quoted.replace("``", "`") if quoted else plain for quoted, plain in _NAME_PART.findall(identifier)]


def _identifier(expression: _Proto) -> str:
    return expression.unresolved_attribute.unparsed_identifier


def _star_target(expression: _Proto) -> str | None:
    """Return the alias whose columns a star stands for, empty for all; None for other expressions."""
    match expression.WhichOneof("expr_type"):
        case "unresolved_star":
            text = expression.unresolved_star.unparsed_target
        case "expression_string":
            text = expression.expression_string.expression.strip()
            if not _STAR.fullmatch(text):
                return None
        case _:
            return None
    return text.removesuffix("*").removesuffix(".").strip("`")


def _names(expression: _Proto) -> list[str | None]:
    """Return the names of the columns that an expression makes; None for those that only the server knows."""
    match expression.WhichOneof("expr_type"):
        case "alias":
            return list(expression.alias.name)
        case "unresolved_function" if expression.unresolved_function.function_name in _GENERATED:
            return list(_GENERATED[expression.unresolved_function.function_name])
        case _:
            return [_name(expression)]


def _name(expression: _Proto) -> str | None:
    """Return the name that Spark gives a column without an alias, as far as it is simple."""
    match expression.WhichOneof("expr_type"):
        case "unresolved_attribute":
            return _parts(_identifier(expression))[-1]
        case "cast":
            return _name(expression.cast.expr)
        case "unresolved_star":
            return "1"
        case "unresolved_function":
            function = expression.unresolved_function
            names = [_name(argument) for argument in function.arguments]
            if function.function_name in ("explode", "explode_outer"):
                return "col"
            return None if None in names else f"{function.function_name}({', '.join(map(str, names))})"
        case "expression_string":
            return _text_name(expression.expression_string.expression)
        case _:
            return None


def _text_name(text: str) -> str:
    from sqlglot import parse_one  # noqa: PLC0415 - slow to import, and few plans have texts
    from sqlglot.errors import SqlglotError  # noqa: PLC0415

    try:
        return parse_one(text, dialect="spark").alias_or_name or text
    except SqlglotError:
        return text


def _relations(node: _Proto) -> Iterator[_Proto]:
    """Relations right below a node."""
    for _, value in node.ListFields():
        for child in _messages(value):
            if child.DESCRIPTOR.name == "Relation":
                yield child


def _expressions(node: _Proto) -> Iterator[_Proto]:
    """Expressions below a message, down to the first on each way."""
    for _, value in node.ListFields():
        for child in _messages(value):
            if child.DESCRIPTOR.name == "Expression":
                yield child
            else:
                yield from _expressions(child)


def _messages(value: Any) -> Iterator[_Proto]:
    """Return the messages in a field: one, a list or a map of them."""
    if hasattr(value, "ListFields"):
        yield value
    elif not isinstance(value, (str, bytes, int, float)):
        # Containers of protobuf need not have `__iter__`, though they can be iterated over.
        children = value.values() if hasattr(value, "values") else value
        yield from (child for child in iter(children) if hasattr(child, "ListFields"))
