"""Protocol of a kind of index.

A kind reads, builds and rewrites the files of *segments*: parts of an index that cover some fragments. All else is done
for every kind alike: `lance_core.scan.indexed` asks segments, restricts their answers to the fragments that they cover
and combines them; `lance_core.change.indices` builds, extends and drops indices in commits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from lance_core.common.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyroaring import BitMap64

    from lance_core.index.answer import RowAnswer
    from lance_core.index.column import IndexedColumn
    from lance_core.index.files import SegmentFiles
    from lance_core.index.row_sets import RowSets
    from lance_core.sql.pruning import Question

Int64s: TypeAlias = npt.NDArray[np.int64]

MODEL = "model"
"""Option with what was trained on the column; without it `IndexKind.build` trains anew."""

Relocation: TypeAlias = "Callable[[Int64s], Int64s]"
"""New row address of each row address; -1 if the row is gone."""


@frozen(kw_only=True)
class SegmentContent:
    """Content of an index's files, as its entry describes it.

    Attributes:
        index_version: Version of the kind's layout.
        details: Content of the message with the details of the kind.
    """

    index_version: int
    details: bytes


@frozen(kw_only=True)
class SegmentTarget:
    """A segment that is to be written.

    Attributes:
        files: Its files.
        column: Its column.
        with_stable_row_ids: The table has stable row ids.
    """

    files: SegmentFiles
    column: IndexedColumn
    with_stable_row_ids: bool


class FragmentColumn(Protocol):
    """The values of the indexed column in one fragment."""

    @property
    def fragment_id(self) -> int:
        """Id of the fragment."""
        ...

    def batches(self, *, by_row_id: bool = False) -> Iterator[tuple[Int64s, pa.Array]]:
        """Read live rows in order: row addresses, or stable row ids, and values, of the same length."""
        ...

    def arrays(self) -> Iterator[pa.Array]:
        """Read the values of all rows in order, deleted rows included."""
        ...


class Segment(Protocol):
    """One segment, opened. It may be asked by several threads and lives as long as the open dataset."""

    @property
    def options(self) -> Mapping[str, Any]:
        """Options that it was built with; under `MODEL` what was trained."""
        ...

    @property
    def statistics(self) -> Mapping[str, Any]:
        """Numbers about it for users."""
        ...

    def answer(self, question: Question, *, tells_null: bool) -> RowAnswer | None:
        """Answer a question about the column.

        Args:
            question: The question.
            tells_null: If false, ``FALSE | NULL`` will do for rows that do not match.

        Returns:
            What is known of all rows, as if the segment covered all fragments; None if the question cannot be answered,
            or reading the rows is cheaper. Rows are numbered by address, or by row id if the entry says that the
            segment holds row ids.

        Raises:
            CorruptDataError: A file is damaged.
        """
        ...


@runtime_checkable
class SampledSegment(Segment, Protocol):
    """A segment that answers about a few rows for less than about all."""

    def answer_among(self, question: Question, rows: BitMap64, *, tells_null: bool) -> RowAnswer | None:
        """Answer a question as `Segment.answer` does, but for some rows only.

        Args:
            question: The question.
            rows: Numbers of these rows; what the answer says of others means nothing.
            tells_null: As for `Segment.answer`.
        """
        ...


@frozen
class RowCounts:
    """Rows for which a condition is true, and for which it is null."""

    true: int
    null: int = 0

    def opposite(self, num_rows: int) -> RowCounts:
        """Return the counts of ``NOT`` the condition among so many rows; null stays null."""
        return RowCounts(num_rows - self.true - self.null, self.null)


@runtime_checkable
class CountingSegment(Segment, Protocol):
    """A segment with one entry for each row, which knows how many a question is true for before it knows which."""

    def count_entries(self) -> int:
        """Count all rows, those with null included; may read the whole index."""
        ...

    def count(self, question: Question) -> RowCounts | None:
        """Count the rows for which a question other than for inequality is true or null; None if it is not answered.

        Raises:
            CorruptDataError: A file is damaged.
        """
        ...


@runtime_checkable
class SetSegment(Segment, Protocol):
    """A segment with one entry for each row, which answers with sets of rows."""

    def sets(self, question: Question) -> RowSets | None:
        """Return the rows for which a question other than for inequality is true or null; it is false for all others.

        Returns:
            The rows, numbered as for `Segment.answer`; None as there, or if the answer of some rows is not known.

        Raises:
            CorruptDataError: A file is damaged.
        """
        ...


@runtime_checkable
class EntrySegment(Segment, Protocol):
    """A segment with an entry for each row and key, which an audit compares with the column."""

    def entries(self) -> Iterator[tuple[pa.Array, Int64s]]:
        """Read all entries: keys and the row of each."""
        ...

    def expected_entries(self, values: pa.Array, rows: Int64s) -> Iterator[tuple[pa.Array, Int64s]]:
        """Return the entries that some rows must have.

        Args:
            values: Values of the column.
            rows: Number of the row of each, by address or row id as in `entries`.
        """
        ...


@runtime_checkable
class KeyedSegment(Segment, Protocol):
    """A segment that knows the value of each row."""

    def find(self, values: pa.Array) -> tuple[Int64s, Int64s] | None:
        """Find the rows that have one of some values.

        Args:
            values: Distinct values of the column's type, none of which is null, NaN or zero of a float.

        Returns:
            For each row the position of its value, and its number; None if reading the column is cheaper.

        Raises:
            CorruptDataError: A file is damaged.
        """
        ...


@runtime_checkable
class ZonedSegment(Segment, Protocol):
    """A segment that describes runs of rows; an audit compares these runs with the rows that it covers."""

    @property
    def zones(self) -> tuple[Int64s, Int64s]:
        """Address of the first row of each run, ascending, and of the row behind its last one."""
        ...

    @property
    def ambiguous(self) -> frozenset[int]:
        """Fragments whose runs overlap, so that some are stale: nothing is answered about them, and no run is told."""
        ...

    @property
    def misread(self) -> frozenset[int]:
        """Fragments whose runs are described in a way from which pylance answers wrongly."""
        ...

    def null_rows(self) -> Int64s | None:
        """Addresses of the rows that are null, also in fragments that the segment covers no more; None if not told."""
        ...


@runtime_checkable
class DerivedSegment(Segment, Protocol):
    """A segment over what a function of SQL returns for the column."""

    @property
    def subject(self) -> str:
        """Name under which questions are asked."""
        ...

    def values_of(self, column: pa.Array) -> pa.Array:
        """Return the values that are indexed for some rows.

        Args:
            column: Values of the column, as they are stored.

        Raises:
            InvalidInputError: The function is not defined for a value.
        """
        ...


class UnreadSegment:
    """A segment of a layout that is not read: it answers nothing, so that its rows are scanned."""

    options: Mapping[str, Any] = {}
    statistics: Mapping[str, Any] = {}

    def answer(self, question: Question, *, tells_null: bool) -> RowAnswer | None:
        """Return None."""
        del question, tells_null


class ReadKind(Protocol):
    """A kind of index whose segments can be asked."""

    def open(self, files: SegmentFiles, column: IndexedColumn) -> Segment:
        """Open a segment.

        Raises:
            CorruptDataError: A file is damaged or fits another column.
            NotFoundError: A file is missing.
        """
        ...


class IndexKind(ReadKind, Protocol):
    """A kind of index that can be built."""

    @property
    def name(self) -> str:
        """Name in `create_scalar_index`."""
        ...

    @property
    def type_url(self) -> str:
        """Name of the message with its details."""
        ...

    @property
    def index_versions(self) -> Collection[int]:
        """Versions of the layout that can be read; segments of others are not asked."""
        ...

    @property
    def default_options(self) -> Mapping[str, Any]:
        """Options of `build` with their defaults; numbers are at least 1."""
        ...

    def takes(self, kind: pa.DataType) -> bool:
        """Return whether values of a type can be indexed."""
        ...

    def build(
        self, target: SegmentTarget, fragments: Iterable[FragmentColumn], options: Mapping[str, Any]
    ) -> SegmentContent:
        """Write a segment that covers some fragments.

        Args:
            target: Where it is written.
            fragments: Values of the column; may be gone through several times.
            options: All options of the kind.
        """
        ...


@runtime_checkable
class CheckedKind(IndexKind, Protocol):
    """A kind that checks its options itself; those of all others are numbers of at least 1."""

    def check_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return all options.

        Raises:
            InvalidInputError: An unknown option, or a value that does not fit.
            UnsupportedError: A value that lance_core does not support.
        """
        ...


@runtime_checkable
class ZonedKind(IndexKind, Protocol):
    """A kind that tells about runs of rows in which deleted rows count like others: no deletion files are read for it.

    Attributes:
        counts_deleted_rows: True: it calls `FragmentColumn.arrays` only.
    """

    counts_deleted_rows: bool


@runtime_checkable
class TrainedKind(IndexKind, Protocol):
    """A kind that learns a model before it builds; segments that are built apart share one as the option `MODEL`."""

    def train(self, column: IndexedColumn, fragments: Iterable[FragmentColumn], options: Mapping[str, Any]) -> Any:
        """Learn the model of an index.

        Args:
            column: The column.
            fragments: Its values.
            options: All options of the kind.

        Raises:
            InvalidInputError: There is nothing to learn from.
        """
        ...


@runtime_checkable
class MovableKind(ReadKind, Protocol):
    """A kind whose segments can be made of others.

    Compaction remaps such segments: it rewrites one with the new addresses of the rows that moved, in the commit that
    replaces the fragments. Segments of all other kinds lose the rewritten fragments and are built anew.
    """

    @property
    def type_url(self) -> str:
        """See `IndexKind`."""
        ...

    def rewrite(self, target: SegmentTarget, segments: Sequence[tuple[Segment, Relocation]]) -> SegmentContent:
        """Write one segment from others without reading the column: to merge them, or after rows moved.

        Args:
            target: Where it is written.
            segments: Segments that hold row addresses, and where each of their rows is now. Rows of several old
                fragments may be in one new fragment, and rows of one in several; live rows keep their order.
        """
        ...


@runtime_checkable
class RewritableKind(IndexKind, MovableKind, Protocol):
    """A kind that is built here, and whose segments can be made of others: new ones are merged with those there are."""
