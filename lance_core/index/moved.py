"""Segments whose rows moved after they were written: the fragment reuse index tells where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from lance_core.index.protocol import EntrySegment
from lance_core.index.row_moves import moves_of_reuse
from lance_core.table.fragment_reuse import load_fragment_reuse

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from lance_core.format.table.fragment_reuse import ReuseVersion
    from lance_core.format.table.index_metadata import IndexMetadata
    from lance_core.index.answer import RowAnswer
    from lance_core.index.protocol import Segment
    from lance_core.index.row_moves import RowMoves
    from lance_core.sql.pruning import Question
    from lance_core.store.base import Store

Int64s: TypeAlias = npt.NDArray[np.int64]


class LaterMoves:
    """Moves of rows in several compactions, one after the other.

    Args:
        versions: The compactions, the oldest first.

    Raises:
        CorruptDataError: The fragment reuse index is damaged.
    """

    def __init__(self, versions: Sequence[ReuseVersion]) -> None:
        every = [moves_of_reuse(version.groups) for version in versions]
        self._moves: list[RowMoves] = [moves for moves in every if moves is not None]

    def __call__(self, addresses: Int64s) -> Int64s:
        """Return where rows are now; -1 for rows that are gone."""
        for moves in self._moves:
            is_there = addresses >= 0
            if is_there.all():
                addresses = moves(addresses)
            else:
                addresses = addresses.copy()
                addresses[is_there] = moves(addresses[is_there])
        return addresses

    def answer(self, answer: RowAnswer) -> RowAnswer:
        """Return an answer by the addresses that rows have now."""
        for moves in self._moves:
            answer = moves.answer(answer)
        return answer

    def segment(self, segment: Segment) -> Segment:
        """Return a segment as if it were written after the compactions."""
        return MovedEntries(segment, self) if isinstance(segment, EntrySegment) else MovedSegment(segment, self)


def load_later_moves(store: Store, index: IndexMetadata) -> LaterMoves | None:
    """Read the moves that a fragment reuse index tells; None if its layout is not known.

    Args:
        store: The dataset, with its base paths.
        index: Its entry.

    Raises:
        CorruptDataError: It is damaged.
        NotFoundError: Its file is missing.
    """
    versions = load_fragment_reuse(store, index)
    return None if versions is None else LaterMoves(versions)


class MovedSegment:
    """A segment that holds addresses from before some compactions.

    Args:
        segment: The segment.
        moves: Where its rows went.
    """

    def __init__(self, segment: Segment, moves: LaterMoves) -> None:
        self.segment = segment
        self.moves = moves

    @property
    def options(self) -> Mapping[str, Any]:
        """Options that it was built with."""
        return self.segment.options

    @property
    def statistics(self) -> Mapping[str, int]:
        """Numbers about it for users."""
        return self.segment.statistics

    def answer(self, question: Question, *, tells_null: bool) -> RowAnswer | None:
        """Answer a question, by the addresses that rows have now."""
        answer = self.segment.answer(question, tells_null=tells_null)
        return None if answer is None else self.moves.answer(answer)


class MovedEntries(MovedSegment):
    """As `MovedSegment`, for a segment with an entry for each row and key.

    Args:
        segment: The segment.
        moves: Where its rows went.
    """

    def __init__(self, segment: EntrySegment, moves: LaterMoves) -> None:
        super().__init__(segment, moves)
        self._entries = segment

    def entries(self) -> Iterator[tuple[pa.Array, Int64s]]:
        """Read the entries of the rows that still exist."""
        import pyarrow as pa  # noqa: PLC0415 rarely needed

        for keys, rows in self._entries.entries():
            moved = self.moves(rows)
            is_there = moved >= 0
            yield (keys, moved) if is_there.all() else (keys.filter(pa.array(is_there)), moved[is_there])

    def expected_entries(self, values: pa.Array, rows: Int64s) -> Iterator[tuple[pa.Array, Int64s]]:
        """Return the entries that some rows must have."""
        return self._entries.expected_entries(values, rows)


def original_segment(segment: Segment) -> Segment:
    """Return a segment as it was written, also if compactions moved its rows since."""
    return segment.segment if isinstance(segment, MovedSegment) else segment
