"""Find conditions of a long chain that differ in their literals only, so that they can be computed together.

``(a = 1 AND s = 'x') OR (a = 2 AND s = 'y') OR ...`` compares the same columns in the same way again and again; so does
``NOT (a = 1 AND s = 'x') AND NOT ...``, which is the opposite of a chain of OR.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlglot import expressions as exp

from lance_core.common.frozen import NamedTuple
from lance_core.sql.arithmetic import literal_arrays
from lance_core.sql.float_order import MIRRORED
from lance_core.sql.split import Chain, Part, number_of
from lance_core.sql.terms import by_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from lance_core.sql.split import Shape
    from lance_core.sql.terms import Term

Node: TypeAlias = Any
"""A node of sqlglot's tree, a `Chain` or a `Part`."""

MANY = 16
"""Conditions that are worth a group."""

_KERNELS = {
    exp.EQ: "equal",
    exp.NEQ: "not_equal",
    exp.LT: "less",
    exp.LTE: "less_equal",
    exp.GT: "greater",
    exp.GTE: "greater_equal",
}
_OPPOSITES = {
    "equal": "not_equal",
    "not_equal": "equal",
    "less": "greater_equal",
    "less_equal": "greater",
    "greater": "less_equal",
    "greater_equal": "less",
}


class Comparison(NamedTuple):
    """A comparison in all conditions of a group.

    Attributes:
        subject: What is compared; it has a column and no literal that differs.
        kernel: Name of an Arrow comparison kernel.
        literals: What it is compared with, one array for each type; in the order of the conditions if there is one.
    """

    subject: Node
    kernel: str
    literals: list[pa.Array]


class Group(NamedTuple):
    """Conditions that differ in their literals only.

    Attributes:
        positions: Their places in the chain.
        comparisons: What each of them demands; all must hold.
    """

    positions: list[int]
    comparisons: list[Comparison]


def find_groups(parts: Sequence[Node], *, is_and: bool, term: Callable[[Node], Term]) -> Iterator[Group]:
    """Find the groups of a chain.

    Args:
        parts: What the chain joins.
        is_and: It joins by AND; then the groups are those of the opposite conditions, joined by OR.
        term: Translates a node.

    Yields:
        Groups of at least `MANY` conditions.
    """
    alike: dict[tuple[object, ...], list[tuple[int, list[tuple[Part, bool]]]]] = defaultdict(list)
    for position, part in enumerate(parts):
        leaves: list[tuple[Part, bool]] = []
        if _collect(part, leaves, is_opposite=is_and):
            key = tuple((id(leaf.shape), opposite, *map(str.isdigit, leaf.literals)) for leaf, opposite in leaves)
            alike[key].append((position, leaves))
    for members in alike.values():
        if len(members) >= MANY:
            comparisons = _comparisons([leaves for _, leaves in members], term)
            if comparisons is not None:
                yield Group([position for position, _ in members], comparisons)


def _collect(node: Node, leaves: list[tuple[Part, bool]], *, is_opposite: bool) -> bool:
    """Collect what a condition demands; return False if it is no list of demands."""
    if isinstance(node, Part):
        leaves.append((node, is_opposite))
        return not node.lists
    if isinstance(node, exp.Not):
        return _collect(node.this, leaves, is_opposite=not is_opposite)
    if not isinstance(node, Chain) or (node.kind is exp.And) == is_opposite:
        return False
    return all(_collect(part, leaves, is_opposite=is_opposite) for part in node.parts)


def _comparisons(
    members: Sequence[Sequence[tuple[Part, bool]]], term: Callable[[Node], Term]
) -> list[Comparison] | None:
    """Return the comparisons of conditions, given their leaves; None if they are something else."""
    result: list[Comparison] = []
    for leaves in zip(*members, strict=True):
        first, is_opposite = leaves[0]
        triples = _parsed(first.shape, is_opposite=is_opposite)
        for subject, kernel, operand in triples:
            literals = _literals(operand, [leaf for leaf, _ in leaves], term)
            if literals is None:
                return None
            result.append(Comparison(subject, kernel, literals))
        if not triples:
            return None
    return result


def _parsed(shape: Shape, *, is_opposite: bool) -> list[tuple[Node, str, Node]]:
    """Return the comparisons of a shape as subject, kernel and operand; none if it is something else."""
    node = shape.node
    while isinstance(node, exp.Paren | exp.Not):
        is_opposite ^= isinstance(node, exp.Not)
        node = node.this
    if isinstance(node, exp.Between):
        sides = [("greater_equal", node.args["low"]), ("less_equal", node.args["high"])]
        is_plain = not is_opposite and not node.args.get("symmetric")
        triples = [(node.this, kernel, operand) for kernel, operand in sides] if is_plain else []
    elif type(node) in _KERNELS:
        kernel = _KERNELS[type(node)]
        kernel = _OPPOSITES[kernel] if is_opposite else kernel
        triples = [(node.this, kernel, node.expression)]
        if node.this.find(exp.Column) is None:
            triples = [(node.expression, MIRRORED[kernel], node.this)]
    else:
        triples = []
    varying = {id(literal) for literal in shape.literals}
    for subject, _, operand in triples:
        is_fixed = not any(id(literal) in varying for literal in subject.find_all(exp.Literal))
        if subject.find(exp.Column) is None or not is_fixed or operand.find(exp.Column) is not None:
            return []
    return triples


def _literals(operand: Node, parts: Sequence[Part], term: Callable[[Node], Term]) -> list[pa.Array] | None:
    """Return what the parts of one shape have in the place of an operand; None if it is no literal."""
    is_negative = isinstance(operand, exp.Neg)
    literal = operand.this if is_negative else operand
    positions = [position for position, other in enumerate(parts[0].shape.literals) if other is literal]
    if positions and literal.is_string and not is_negative:
        return literal_arrays([part.literals[positions[0]] for part in parts])
    if positions and not literal.is_string:
        numbers = [number_of(part.literals[positions[0]]) for part in parts]
        return literal_arrays([-number for number in numbers] if is_negative else numbers)
    scalars: list[pa.Scalar] = []
    for part in parts:
        part.filled()
        value = term(operand).literal
        if value is None:
            return None
        scalars.append(value)
    return by_type(scalars)
