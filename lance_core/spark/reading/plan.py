"""Divide a table into partitions for Spark tasks.

A Python task costs about 30 ms on top of its work, so small fragments share one; a big fragment is cut by rows so
that no task runs much longer than the others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# A fragment may exceed the share of a partition by this much before it is cut.
_SLACK = 1.25
# The smallest share of a full partition that is worth a task of its own when there are idle ones.
_SMALLEST = 1 / 16


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentSize:
    """Rows of a fragment (deleted ones included) and its bytes on disk (0 if not known)."""

    num_rows: int
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Rows [start, end) of a fragment, deleted ones included; ``index`` is its place in the list."""

    index: int
    start: int
    end: int


def plan_partitions(
    sizes: Sequence[FragmentSize], *, split_rows: int, split_bytes: int, min_partitions: int
) -> list[tuple[Piece, ...]]:
    """Group pieces of fragments into partitions of about equal work, in the order of the table.

    Args:
        sizes: The fragments, in order.
        split_rows: Rows in a full partition.
        split_bytes: Bytes in a full partition.
        min_partitions: Partitions to aim at, as long as they are not smaller than a sixteenth of a full one.

    Returns:
        Partitions that cover every row of every fragment once; none for a table without rows.
    """
    weights = [max(size.num_rows / split_rows, size.num_bytes / split_bytes) for size in sizes]
    total = sum(weights)
    count = max(math.ceil(round(total, 6)), min(min_partitions, int(total / _SMALLEST)), 1)
    share = total / count
    return list(_group(_cut(sizes, weights, share * _SLACK), share))


def _cut(sizes: Iterable[FragmentSize], weights: Iterable[float], limit: float) -> Iterator[tuple[Piece, float]]:
    for index, (size, weight) in enumerate(zip(sizes, weights, strict=True)):
        parts = min(math.ceil(weight / limit), size.num_rows) if size.num_rows else 0
        for i in range(parts):
            start, end = size.num_rows * i // parts, size.num_rows * (i + 1) // parts
            yield Piece(index=index, start=start, end=end), weight / parts


def _group(pieces: Iterable[tuple[Piece, float]], share: float) -> Iterator[tuple[Piece, ...]]:
    """Neighbours whose middles fall into the same share of the work belong together."""
    done = 0.0
    shares: dict[int, list[Piece]] = {}
    for piece, weight in pieces:
        shares.setdefault(int((done + weight / 2) / share), []).append(piece)
        done += weight
    return (tuple(group) for group in shares.values())
