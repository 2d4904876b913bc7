"""Column lineage of a Spark plan: the source columns of each output column. Pure: no Spark, no JVM.

The input is what ``LogicalPlan.toJSON`` gives for an analyzed plan: all nodes in pre-order, each with its constructor
arguments; an expression among these is a list of nodes of its own, and the plan of a subquery likewise. Attributes are
known by their ``exprId``. Only values count: a column that merely filters, joins or sorts rows is not a source of the
others. Where a node tells nothing better, a column counts as made from everything that the node reads.
"""

from __future__ import annotations

from collections import ChainMap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Json = dict[str, Any]
# A column of a leaf: (exprId of the leaf's first column, name of this one).
Source = tuple[int, str]
# A column of something that is defined in another place of the plan: (kind, its id, position).
_Reference = tuple[str, int, int]
_Deps = frozenset[Source | _Reference]
_Env = ChainMap[int, _Deps] | dict[int, _Deps]

_NONE: _Deps = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Output:
    """Columns of a node.

    Args:
        ids: Their exprIds in order; one may be there twice.
        deps: What each is made from.
    """

    ids: tuple[int, ...]
    deps: dict[int, _Deps]

    def columns(self) -> list[_Deps]:
        return [self.deps[id_] for id_ in self.ids]


@dataclass(slots=True, kw_only=True)
class _Node:
    """A node with the nodes below it."""

    json: Json
    children: list[_Node]

    @property
    def kind(self) -> str:
        return self.json["class"].rpartition(".")[2]


def column_sources(
    plan: Sequence[Json], *, expands: Mapping[int, Sequence[Sequence[Sequence[Json]]]] | None = None
) -> list[frozenset[Source]]:
    """Sources of each output column, in order.

    Args:
        plan: The parsed JSON of an analyzed plan.
        expands: Projections of the plan's ``Expand`` nodes, which the JSON leaves out, by the exprId of the last output
            column: for each projection its expressions.

    Returns:
        For each output column the columns of leaves that it is made from: ``(exprId of the leaf's first, name)``.
    """
    walk = _Walk(expands=expands or {}, definitions={})
    return walk.resolve(walk.output(plan, {}).columns())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walk:
    expands: Mapping[int, Sequence[Sequence[Sequence[Json]]]]
    # What common table expressions and recursions are made from: (kind, id) -> columns.
    definitions: dict[tuple[str, int], list[_Deps]]

    def output(self, plan: Sequence[Json], outer: _Env) -> _Output:
        """Columns of a plan; ``outer`` is what a subquery sees of the query around it."""
        done: dict[int, _Output] = {}
        for node in _post_order(_tree(plan)):
            done[id(node)] = self._node(node, [done.pop(id(child)) for child in node.children], outer)
        (result,) = done.values()
        return result

    def resolve(self, columns: Sequence[_Deps]) -> list[frozenset[Source]]:
        """Replace references by what they stand for; a recursion refers to itself."""
        resolved: list[frozenset[Source]] = []
        for deps in columns:
            seen, todo = set(deps), list(deps)
            while todo:
                current = todo.pop()
                if len(current) == 3:  # a reference
                    kind, id_, position = current
                    columns_there = self.definitions.get((kind, id_), [])
                    more = columns_there[position] - seen if position < len(columns_there) else _NONE
                    seen |= more
                    todo.extend(more)
            resolved.append(frozenset(node for node in seen if len(node) == 2))
        return resolved

    def _node(self, node: _Node, children: list[_Output], outer: _Env) -> _Output:
        json, kind = node.json, node.kind
        below: dict[int, _Deps] = {}
        for child in children:
            below |= child.deps
        env: _Env = ChainMap(below, outer) if outer else below
        if not children:
            return _leaf(json)
        match kind:
            case "Union" | "Intersect":
                return _by_position(children[0].ids, children)
            case "UnionLoop":
                outputs = _by_position([attribute["id"] for attribute in json["outputAttrIds"]], children)
                self.definitions["loop", json["id"]] = outputs.columns()
                return outputs
            case "Except":
                return children[0]
            case "WithCTE":
                return children[json["plan"]]
            case "CTERelationDef":
                self.definitions["cte", json["id"]] = children[0].columns()
                return children[0]
            case "Join" | "AsOfJoin":
                return self._join(json, children)
            case "LateralJoin":
                plans = [value for node in json["right"] for value in _plans(node)]
                return _beside([*children, *(self.output(plan, env) for plan in plans)])
            case "Generate":
                made = self._expression(json["generator"], env)
                unrequired: set[int] = set(json.get("unrequiredChildIndex") or ())
                passed = [id_ for i, id_ in enumerate(children[0].ids) if i not in unrequired]
                new = dict.fromkeys((_id(attribute) for attribute in json["generatorOutput"]), made)
                return _Output(ids=(*passed, *new), deps=below | new)
            case _:
                return self._any_node(json, children, env)

    def _any_node(self, json: Json, children: list[_Output], env: _Env) -> _Output:
        """Return a node that is told by its arguments: what it computes, or the columns it says it has."""
        if "output" in json:
            return self._declared(json, children, env)
        named = next((json[name] for name in ("projectList", "aggregateExpressions") if name in json), None)
        if named is not None:
            return self._named(named, env)
        if "windowExpressions" in json:
            return _beside([*children, self._named(json["windowExpressions"], env)])
        return _beside(children)

    def _named(self, expressions: Sequence[Sequence[Json]], env: _Env) -> _Output:
        ids = tuple(_id(expression) for expression in expressions)
        return _Output(
            ids=ids,
            deps={id_: self._expression(expression, env) for id_, expression in zip(ids, expressions, strict=True)},
        )

    def _expression(self, expression: Sequence[Json], env: _Env) -> _Deps:
        """Return the columns that an expression reads, including those of its subqueries."""
        deps: set[Source | _Reference] = set()
        skipped = 0  # nodes that are still to be passed over
        for node in expression:
            if skipped:
                skipped += node["num-children"] - 1
                continue
            if node["class"].endswith(".AttributeReference"):
                deps |= env.get(node["exprId"]["id"], _NONE)
            for plan in _plans(node):
                # Below a subquery are the columns that bind it to the query around: they only choose its rows.
                skipped = node["num-children"]
                deps.update(*self.output(plan, env).columns())
        return frozenset(deps)

    def _declared(self, json: Json, children: list[_Output], env: _Env) -> _Output:
        """A node that says which columns it has: those from below are known, new ones come from all that it reads."""
        ids = tuple(_id(attribute) for attribute in json["output"])
        projections = self.expands.get(ids[-1]) if ids else None
        if projections:
            made = [
                frozenset[Source | _Reference]().union(*(self._expression(row[i], env) for row in projections))
                for i in range(len(ids))
            ]
            return _Output(ids=ids, deps=dict(zip(ids, made, strict=True)))
        read = frozenset[Source | _Reference]().union(
            *(self._expression(node, env) for name, value in json.items() if name != "output" for node in _lists(value))
        )
        new = read or frozenset[Source | _Reference]().union(*(deps for child in children for deps in child.columns()))
        return _Output(ids=ids, deps={id_: env.get(id_, new) for id_ in ids})

    def _join(self, json: Json, children: list[_Output]) -> _Output:
        joined = str(json["joinType"])
        if "LeftSemi" in joined or "LeftAnti" in joined:
            return children[0]
        return _beside(children)


def _leaf(json: Json) -> _Output:
    """Columns that are read, or defined in another place."""
    output = json.get("output") or ()
    ids = tuple(_id(attribute) for attribute in output)
    for kind, key in (("cte", "cteId"), ("loop", "loopId")):
        if key in json:
            return _Output(ids=ids, deps={id_: frozenset({(kind, json[key], i)}) for i, id_ in enumerate(ids)})
    return _Output(
        ids=ids,
        deps={id_: frozenset({(ids[0], attribute[0]["name"])}) for id_, attribute in zip(ids, output, strict=True)},
    )


def _beside(children: Sequence[_Output]) -> _Output:
    deps: dict[int, _Deps] = {}
    for child in children:
        deps |= child.deps
    return _Output(ids=tuple(id_ for child in children for id_ in child.ids), deps=deps)


def _by_position(ids: Sequence[int], children: Sequence[_Output]) -> _Output:
    columns = zip(*(child.columns() for child in children), strict=True)
    return _Output(ids=tuple(ids), deps={id_: _NONE.union(*column) for id_, column in zip(ids, columns, strict=True)})


def _id(expression: Sequence[Json]) -> int:
    """Identity of a named expression."""
    return expression[0]["exprId"]["id"]


def _lists(value: Any) -> Iterator[Sequence[Json]]:
    """Yield the expressions in an argument: one, or a list of them."""
    if isinstance(value, list) and value:
        if isinstance(value[0], dict) and "class" in value[0]:
            yield value
        else:
            for node in value:
                yield from _lists(node)


def _plans(expression: Json) -> Iterator[Sequence[Json]]:
    """Plans inside of one node of an expression: of a subquery."""
    plan = expression.get("plan")
    if isinstance(plan, list) and plan and isinstance(plan[0], dict):
        yield plan


def _tree(plan: Sequence[Json]) -> _Node:
    stack: list[_Node] = []
    for json in reversed(plan):
        children = [stack.pop() for _ in range(json["num-children"])]
        stack.append(_Node(json=json, children=children))
    (root,) = stack
    return root


def _post_order(root: _Node) -> list[_Node]:
    """Nodes, those below before those above; plans may be deeper than Python can call itself."""
    order, stack = list[_Node](), [root]
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(node.children)
    order.reverse()
    return order
