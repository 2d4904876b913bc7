"""One segment of a vector index, opened."""

from __future__ import annotations

from lance_core.frozen import frozen


@frozen(kw_only=True)
class Probes:
    """Number of partitions of an index that are searched.

    Attributes:
        minimum: Partitions that are searched in any case.
        maximum: Partitions at most; None for all.
        effort: From 0 to 1: the share, on a geometric scale, of the partitions that are searched at first.
    """

    minimum: int
    maximum: int | None
    effort: float
