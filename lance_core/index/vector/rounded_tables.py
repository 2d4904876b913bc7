"""Look up sums for the bytes of codes in tables that are rounded to bytes.

Python maps bytes to bytes twice as fast as numpy looks numbers up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lance_core.index.vector.comparisons import Bytes, Keys
    from lance_core.index.vector.distances import Doubles, Int64s, Vectors

_LEVELS = 255
_SPARSE = 2
"""Rows are looked up alone if there are so many times as many: picking them takes longer than looking up all others."""


class RoundedTables:
    """Tables for each byte of codes, rounded to levels.

    Args:
        tables: Shape (tables, bytes, 256); its memory is used up.

    Attributes:
        margin: By how much sums may be off; infinite or NaN if some number is.
    """

    def __init__(self, tables: Vectors) -> None:
        self._dtype = tables.dtype
        least = tables.min(axis=2)
        # Whole numbers follow from a product with 1 / step, which must be finite.
        smallest = 4 * float(np.finfo(tables.dtype).tiny)
        self._step = max(float((tables.max(axis=2) - least).max(initial=0)) / _LEVELS, smallest)
        tables -= least[..., None]
        tables *= 1 / self._step
        levels = tables.astype(np.uint8)  # rounded down
        self._levels = [[line.tobytes() for line in table] for table in levels]
        self._order = np.argsort(-levels.max(axis=(0, 2), initial=0).astype(np.int64))
        half = self._step * tables.shape[1] / 2
        self._starts = least.sum(axis=1, dtype=np.float64) + half
        self.margin = half * (1 + 1e-4) if np.isfinite(self._starts).all() else np.inf

    def totals(self, codes: Sequence[Bytes], fixed: Doubles, terms: Keys | None, limit: float) -> Keys:
        """Return the sum for each row of codes, by the table of these codes, or the one for all.

        Args:
            codes: Each of shape (bytes, rows).
            fixed: Shape (codes,): what is added to each of their rows.
            terms: Shape (all rows,): what is added besides.
            limit: Larger sums may become infinite.

        Returns:
            Shape (all rows,).
        """
        lengths = [numbers.shape[1] for numbers in codes]
        starts = np.repeat((self._starts + fixed).astype(self._dtype), lengths)
        if terms is not None:
            starts += terms
        bounds = limit - starts
        bounds *= 1 / self._step
        near, levels = self._within(codes, bounds)
        totals = np.full(len(starts), np.inf, self._dtype)
        totals[near] = starts[near] + np.multiply(levels, self._step, dtype=self._dtype)
        return totals

    def _within(self, codes: Sequence[Bytes], bounds: Keys) -> tuple[Int64s, npt.NDArray[np.unsignedinteger]]:
        """Return the places of the rows whose levels are within their bounds, and their levels."""
        order = self._order  # bytes with large levels first
        rows: Int64s | None = None
        levels = np.zeros(len(bounds), np.uint16 if len(order) * _LEVELS < 1 << 16 else np.uint32)
        # Levels are not negative: rows that some of them bring over their bound need no others.
        for chosen in np.split(order, [len(order) // 2, len(order) * 3 // 4]):
            self._add_levels(levels, codes, chosen.tolist(), rows)
            near = np.flatnonzero(~(levels > bounds))
            if len(near) * _SPARSE < len(levels):
                rows = near if rows is None else rows[near]
                levels, bounds = levels[near], bounds[near]
        near = np.flatnonzero(~(levels > bounds))
        return near if rows is None else rows[near], levels[near]

    def _add_levels(
        self,
        levels: npt.NDArray[np.unsignedinteger],
        codes: Sequence[Bytes],
        chosen: Sequence[int],
        rows: Int64s | None,
    ) -> None:
        """Add the levels of some bytes of each row, or of some rows."""
        # A sum over all lines at once would change the type of all levels first, which takes eight times as long.
        parts = [] if rows is None or len(self._levels) == 1 else _rows_of_codes(rows, codes)
        for at in chosen:
            if len(self._levels) == 1:
                line = b"".join([stored[at] for stored in codes])
                if rows is not None:
                    line = np.frombuffer(line, np.uint8)[rows].tobytes()
                levels += np.frombuffer(line.translate(self._levels[0][at]), np.uint8)
            else:
                lines = [stored[at] for stored in codes]
                if rows is not None:
                    lines = [line[part] for line, part in zip(lines, parts, strict=True)]
                tables = zip(lines, self._levels, strict=True)
                line = b"".join([line.tobytes().translate(table[at]) for line, table in tables])
                levels += np.frombuffer(line, np.uint8)


def _rows_of_codes(rows: Int64s, codes: Sequence[Bytes]) -> list[Int64s]:
    """Return the places of rows in each of the codes that have them, which come one after the other."""
    ends = np.cumsum([stored.shape[1] for stored in codes])
    parts = np.split(rows, np.searchsorted(rows, ends[:-1]))
    return [part - start for part, start in zip(parts, [0, *ends[:-1].tolist()], strict=True)]
