"""Rows that match a condition on one column, of several fragments of a remote store at one go.

Each fragment is opened and its column fetched for itself, while others are waited for. To decode a column and to ask
the condition of it takes a thousand calls, which then serve several fragments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from lance_core.encoding.arrow_values import as_mask
from lance_core.encoding.dictionary_encoded import DictionaryEncoded
from lance_core.errors import LanceError, StoreTimeoutError
from lance_core.file.read.strategy import MOST_FETCHED_ROWS
from lance_core.scan.candidates import candidate_ranges, residual_plan, scattered_candidates
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.fragment_run import FragmentRun

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from lance_core.file.read.several_files import FetchedColumn
    from lance_core.scan.deletions import Offsets
    from lance_core.scan.fragment_run import RowSource
    from lance_core.scan.open_files import OpenFiles
    from lance_core.scan.plan import ScanPlan


class JoinedMatches:
    """Finds the rows of fragments that match; those of some are found when more fragments have been fetched.

    Args:
        files: The dataset's open files.
        plan: Has the predicate.
        find: Finds the rows of fragments that are read one by one; returns fragments that have some.
    """

    def __init__(
        self,
        files: OpenFiles,
        plan: ScanPlan,
        find: Callable[[RowSource, ScanPlan], list[tuple[FragmentReader, Offsets]]],
    ) -> None:
        self._files = files
        self._plan = plan
        self._find = find
        predicate = plan.predicate
        self._joins = files.is_far and predicate is not None and predicate.columns == plan.filter_projection.names
        self._waiting: list[tuple[FragmentReader, FetchedColumn]] = []
        self._num_rows = 0

    def find(self, source: RowSource) -> list[tuple[FragmentReader, Offsets]]:
        """Return the matches that are known by now: of this source, or of others before; none if it has to wait."""
        fetched = self._fetch(source) if isinstance(source, FragmentReader) and self._joins else None
        if fetched is None or not isinstance(source, FragmentReader):
            return self._find(source, self._plan)
        self._waiting.append((source, fetched))
        self._num_rows += source.physical_rows
        return self.rest() if self._num_rows >= MOST_FETCHED_ROWS else []

    def rest(self) -> list[tuple[FragmentReader, Offsets]]:
        """Return the matches of the fragments that wait."""
        waiting, self._waiting, self._num_rows = self._waiting, [], 0
        if not waiting:
            return []
        readers = [reader for reader, _ in waiting]
        try:
            mask = self._mask([fetched for _, fetched in waiting])
        except LanceError:  # of which file is found out, or nobody needs to know
            return [match for reader in readers for match in self._find(reader, self._plan)]
        run = FragmentRun(self._files, readers)
        live = run.live_mask(0, run.physical_rows)
        return run.split(np.flatnonzero(mask if live is None else mask & live))

    def _mask(self, columns: list[FetchedColumn]) -> npt.NDArray[np.bool_]:
        from lance_core.file.read.several_files import decode_columns  # noqa: PLC0415 see `OpenFiles`

        return np.concatenate([answers(self._plan, part) for part in decode_columns(columns)])

    def _fetch(self, reader: FragmentReader) -> FetchedColumn | None:
        """Fetch the condition's column of a fragment; None if its rows are to be found by themselves."""
        plan, end = self._plan, reader.physical_rows
        part = reader.only_part(plan.filter_projection)
        if part is None or end > MOST_FETCHED_ROWS or residual_plan(reader, plan) is None:
            return None
        if scattered_candidates(reader, plan, 0, end) is not None or candidate_ranges(reader, plan, 0, end) != [
            (0, end)
        ]:
            return None
        from lance_core.file.read.several_files import fetch_column  # noqa: PLC0415 as above

        try:
            file = self._files.open(part.file, num_rows=end)
            return fetch_column(file.rows_of(part.schema, part.columns, range(end)))
        except StoreTimeoutError:
            raise
        except LanceError:
            return None


def answers(plan: ScanPlan, part: pa.Array | DictionaryEncoded) -> npt.NDArray[np.bool_]:
    """Evaluate the predicate on the only column; each item of a dictionary is evaluated once, if that is cheaper."""
    assert plan.predicate is not None  # noqa: S101 for the type checker: callers have one
    if isinstance(part, DictionaryEncoded):
        mask = plan.predicate.mask_of_items(part)
        if mask is not None:
            return mask
        part = part.values()
    return as_mask(plan.predicate.mask(pa.RecordBatch.from_arrays([part], names=list(plan.filter_projection.names))))
