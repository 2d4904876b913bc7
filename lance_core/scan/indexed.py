"""Scans and indices: what the indices of a version know of a filter's answer.

Nothing here knows a kind of index: segments are asked through `lance_core.index.protocol`. An answer counts for the
fragments that the segment covers and that still exist; all other rows are read and filtered.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from lance_core.common.frozen import frozen, replace
from lance_core.encoding.kernels import distinct
from lance_core.errors import CorruptDataError, NotFoundError, UnsupportedError
from lance_core.format.index.row_sets import rows_of_treemap
from lance_core.format.table.fragment_reuse import find_fragment_reuse
from lance_core.format.table.index_metadata import holds_row_ids, index_fields
from lance_core.format.table.paths import INDICES_FOLDER
from lance_core.index import answer as answers
from lance_core.index import row_sets
from lance_core.index.answer import ADDRESS_SHIFT, UNKNOWN_ANSWER, RowAnswer
from lance_core.index.column import find_column, path_of
from lance_core.index.files import SegmentFiles
from lance_core.index.moved import MovedSegment, load_later_moves, original_segment
from lance_core.index.protocol import (
    CountingSegment,
    DerivedSegment,
    KeyedSegment,
    RowCounts,
    SampledSegment,
    SetSegment,
)
from lance_core.index.row_sets import RowSets, rows_of_fragments
from lance_core.scan.fragment_columns import FragmentColumns
from lance_core.scan.fragment_reader import FragmentReader, codes_of_ids, offsets_of_ids, readers_of, row_places
from lance_core.scan.plan import Residuals
from lance_core.sql.ternary import ANY, FALSE, NULL

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

    import pyarrow as pa
    from pyroaring import BitMap64

    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.index_metadata import IndexMetadata
    from lance_core.format.table.manifest import Manifest
    from lance_core.index.column import IndexedColumn
    from lance_core.index.moved import LaterMoves
    from lance_core.index.protocol import ReadKind, Segment
    from lance_core.scan.open_files import OpenFiles
    from lance_core.scan.plan import ScanPlan
    from lance_core.sql.pruning import Condition, Question

Int64s: TypeAlias = npt.NDArray[np.int64]


def with_index_answer(plan: ScanPlan, manifest: Manifest, files: OpenFiles) -> ScanPlan:
    """Return a plan that knows what the version's indices know; deleted rows may be missing from its answer.

    Raises:
        CorruptDataError: A file of an index is damaged.
        NotFoundError: It is missing.
    """
    asked = _asked_version(plan, manifest, files)
    if asked is None:
        return plan
    asks, source = asked
    return _with_answers(plan, manifest, source, _ask_indices(asks, source, with_sets=False))


def count_by_indices(plan: ScanPlan, manifest: Manifest, files: OpenFiles) -> int | ScanPlan:
    """Count the rows that a filter matches from what indices know; a plan to count with if these do not tell.

    The sizes of what they keep tell for a question to one column, or ``NOT`` of it, if no row is deleted and each has
    one entry. Else sets of rows tell, if each row is in one.

    Raises:
        CorruptDataError: A file of an index is damaged.
        NotFoundError: It is missing.
    """
    asked = _asked_version(plan, manifest, files)
    if asked is None:
        return plan
    asks, source = asked
    if not manifest.fragments.has_deletions and len(asks) == 1:
        from lance_core.index.evaluate import count  # noqa: PLC0415 brings Arrow's kernels along

        counts = count(asks[0], manifest.num_rows, source.count)
        if counts is not None:
            return counts.true
    answers = _ask_indices(asks, source, with_sets=True)
    sets = [answer for answer in answers if isinstance(answer, RowSets)]
    if len(sets) == len(answers):
        return source.num_live(reduce(row_sets.and_, sets).true)
    return _with_answers(plan, manifest, source, answers)


def _asked_version(
    plan: ScanPlan, manifest: Manifest, files: OpenFiles
) -> tuple[list[Condition], _IndexedVersion] | None:
    """Return what each part of a plan's predicate asks, and the indices that may know of it; None if there are none."""
    predicate = plan.predicate
    if predicate is None or predicate.asks is None or manifest.index_section is None:
        return None
    from lance_core.index.evaluate import questions, simplified, tells_null_from_false  # noqa: PLC0415 for tables with indices
    from lance_core.sql.pruning import UNKNOWN  # noqa: PLC0415 as above

    asks = [simplified(part.asks or UNKNOWN) for part in predicate.parts or (predicate,)]
    # The predicate may read one leaf of a column that is asked for its nulls, and asks for members of JSON documents.
    paths = dict.fromkeys([*predicate.columns, *(question.column for part in asks for question in questions(part))])
    source = _IndexedVersion(manifest, files, list(paths), tells_null=any(map(tells_null_from_false, asks)))
    return (asks, source) if source.has_segments else None


def _ask_indices(asks: list[Condition], source: _IndexedVersion, *, with_sets: bool) -> list[RowAnswer | RowSets]:
    """Return what indices know of each part; ``with_sets`` also asks for sets where these need not be combined."""
    from lance_core.index.evaluate import evaluate, questions  # noqa: PLC0415 as above

    num_questions = sum([1 for part in asks for _ in questions(part)])
    ask = source.ask_sets if with_sets or num_questions > 1 else source.ask
    return [evaluate(part, ask, source.rows, tells_null=source.tells_null) for part in asks]


def _with_answers(
    plan: ScanPlan, manifest: Manifest, source: _IndexedVersion, parts: list[RowAnswer | RowSets]
) -> ScanPlan:
    from lance_core.index.evaluate import joined  # noqa: PLC0415 as above

    answer = joined(parts, is_and=True, tells_null=source.tells_null)
    answer = answer.answer(tells_null=source.tells_null) if isinstance(answer, RowSets) else answer
    if answer.is_unknown:
        return plan
    residuals = _residuals(manifest, parts) if len(parts) > 1 else None
    return replace(plan, index_answer=answer, index_names=tuple(source.asked), residuals=residuals)


def _residuals(manifest: Manifest, parts: Sequence[RowAnswer | RowSets]) -> Residuals | None:
    """Return what answers to the parts of a predicate leave of it; None if that is all or nothing in each fragment."""
    order = np.argsort(manifest.fragments.ids)
    ids = manifest.fragments.ids.astype(np.int64)[order]
    num_rows = manifest.fragments.physical_rows.astype(np.int64)[order]
    undecided = np.zeros((len(ids), len(parts)), np.bool_)
    for number, part in enumerate(parts):
        if not isinstance(part, RowSets):
            undecided[:, number] = ~part.decides(ids, num_rows)
    count = np.count_nonzero(undecided, axis=1)
    return Residuals(ids, undecided) if ((count > 0) & (count < len(parts))).any() else None


def has_index(manifest: Manifest, files: OpenFiles, paths: Sequence[str]) -> bool:
    """Return whether a segment over one of some columns can be asked."""
    return _IndexedVersion(manifest, files, paths, tells_null=False).has_segments


@frozen(kw_only=True)
class KeyedRows:
    """Rows that have one of some values, as far as indices know.

    Attributes:
        answer: What they know of all rows.
        fragment_ids: Fragments of which they know the rows and their values.
        rows: Shape (n,), addresses of these rows, ascending; deleted rows may be among them.
        numbers: Shape (n,), position of the value of each.
    """

    answer: RowAnswer = UNKNOWN_ANSWER
    fragment_ids: frozenset[int] = frozenset()
    rows: Int64s
    numbers: Int64s


_NO_KEYED_ROWS = KeyedRows(rows=np.empty(0, np.int64), numbers=np.empty(0, np.int64))


def rows_with_values(manifest: Manifest, files: OpenFiles, path: str, values: pa.Array) -> KeyedRows:
    """Return what the version's indices know of the rows whose column equals one of some values.

    Args:
        manifest: The version.
        files: The dataset's open files.
        path: The column.
        values: Distinct values of its type, none of which is null or NaN.

    Raises:
        CorruptDataError: A file of an index is damaged.
        NotFoundError: It is missing.
    """
    if manifest.index_section is None:
        return _NO_KEYED_ROWS
    source = _IndexedVersion(manifest, files, [path], tells_null=False)
    return source.find(path, values) if source.has_segments else _NO_KEYED_ROWS


@frozen(kw_only=True)
class _CoveringSegment:
    """A segment that can be asked.

    Attributes:
        index: Its entry.
        kind: What reads it.
        column: The column.
        subjects: Names under which questions are asked.
        fragment_ids: Shape (n,), existing fragments that it covers, ascending.
        num_rows: Shape (n,), their physical rows.
    """

    index: IndexMetadata
    kind: ReadKind
    column: IndexedColumn
    subjects: Sequence[str]
    fragment_ids: Int64s
    num_rows: Int64s


@frozen(kw_only=True)
class OpenSegment:
    """A segment of a version, opened.

    Attributes:
        index: Its entry.
        column: Its column.
        segment: What its kind knows.
        subject: Name under which questions are asked.
        fragment_ids: Existing fragments that it covers, ascending.
        by_row_id: Its entries are stable row ids, not addresses.
        answer: Returns what it knows of a question, by address and for these fragments only; None for no answer. If it
            is given rows, what it says of others means nothing.
        derive: Returns what is indexed of some values of the column; None if these are indexed themselves.
    """

    index: IndexMetadata
    column: IndexedColumn
    segment: Segment
    subject: str
    fragment_ids: Int64s
    by_row_id: bool
    answer: Callable[[Question, BitMap64 | None], RowAnswer | None]
    derive: Callable[[pa.Array], pa.Array] | None = None

    def batches(self, files: OpenFiles, fragment: Fragment) -> Iterator[tuple[Int64s, pa.Array]]:
        """Read the live rows of a fragment: addresses, and the values that are indexed.

        Args:
            files: The dataset's open files.
            fragment: The fragment.
        """
        for column in FragmentColumns(files, [fragment], self.column):
            for rows, values in column.batches():
                yield rows, values if self.derive is None else self.derive(values)


def open_segment(manifest: Manifest, files: OpenFiles, index: IndexMetadata) -> OpenSegment | None:
    """Open a segment of a version; None if it is never asked: of an unknown kind, or covering no existing fragment.

    Raises:
        CorruptDataError: A file is damaged.
        NotFoundError: A file is missing.
    """
    column = find_column(manifest.schema, path_of(manifest.schema, index.fields[0])) if len(index.fields) == 1 else None
    if column is None:
        return None
    version = _IndexedVersion(manifest, files, [column.path], tells_null=True)
    covering = version.covering(index)
    if covering is None:
        return None
    segment = version.open(covering)
    original = original_segment(segment)
    derived = original if isinstance(original, DerivedSegment) else None

    by_row_id = manifest.uses_stable_row_ids and holds_row_ids(index)
    sampled = segment if isinstance(segment, SampledSegment) and not by_row_id else None

    def answer(question: Question, rows: BitMap64 | None) -> RowAnswer | None:
        if rows is None or sampled is None:
            answer = segment.answer(question, tells_null=True)
        else:
            answer = sampled.answer_among(question, rows, tells_null=True)
        return None if answer is None else version.restricted(answer, covering)

    return OpenSegment(
        index=index,
        column=column,
        segment=segment,
        subject=column.path if derived is None else derived.subject,
        fragment_ids=covering.fragment_ids,
        by_row_id=by_row_id,
        answer=answer,
        derive=None if derived is None else derived.values_of,
    )


def segments_over(manifest: Manifest, files: OpenFiles, column: IndexedColumn, type_url: str) -> Sequence[OpenSegment]:
    """Return the segments of the first index of a kind over a column; those of the last version are kept."""
    key = column.leaf.id, type_url
    return files.searched_segments(manifest, key, lambda: _segments_over(manifest, files, column, type_url))


def _segments_over(manifest: Manifest, files: OpenFiles, column: IndexedColumn, type_url: str) -> Sequence[OpenSegment]:
    result: dict[str, list[OpenSegment]] = {}
    for index in manifest.indices:
        fields = index_fields(index)
        if fields.details is None or fields.details[0].lower() != type_url.lower():
            continue
        if fields.fields != (column.leaf.id,):
            continue
        with naming_index(index.name):
            opened = open_segment(manifest, files, index)
        if opened is not None:
            result.setdefault(index.name, []).append(opened)
    return next(iter(result.values()), ())


def document_rows(manifest: Manifest, files: OpenFiles, opened: OpenSegment) -> Callable[[Int64s], Int64s]:
    """Return a function that finds the rows of a segment's entries; -1 for those that are not there any more."""
    fragments = manifest.fragments.select(opened.fragment_ids.tolist())
    locate = row_places(files, fragments, by_row_id=opened.by_row_id)
    moves = opened.segment.moves if isinstance(opened.segment, MovedSegment) else None
    return locate if moves is None else lambda rows: locate(moves(rows))


class _IndexedVersion:
    """The indices of a version over the columns of a condition.

    Args:
        manifest: The version.
        files: The dataset's open files.
        paths: Columns of the condition.
        tells_null: See `lance_core.index.protocol.Segment.answer`.
    """

    def __init__(self, manifest: Manifest, files: OpenFiles, paths: Sequence[str], *, tells_null: bool) -> None:
        self._manifest = manifest
        self._files = files
        self.tells_null = tells_null
        self.asked: dict[str, None] = {}
        """Names of the indices that answered a question, in order."""
        columns = [column for path in paths if (column := find_column(manifest.schema, path)) is not None]
        self._segments: dict[str, list[_CoveringSegment]] = {}
        indices = manifest.indices
        self._reuse = find_fragment_reuse(indices)
        for index in indices:
            for column in columns:
                if index.fields == (column.leaf.id,) and (covering := self._covering(index, column)) is not None:
                    for subject in covering.subjects:
                        self._segments.setdefault(subject, []).append(covering)

    def segments(self, path: str) -> Sequence[_CoveringSegment]:
        """Return the segments over a column that can be asked."""
        return self._segments.get(path, ())

    def covering(self, index: IndexMetadata) -> _CoveringSegment | None:
        """Return a segment by its entry; None if it is never asked."""
        segments = (covering for segments in self._segments.values() for covering in segments)
        return next((covering for covering in segments if covering.index.uuid == index.uuid), None)

    @property
    def has_segments(self) -> bool:
        """True if an index may answer a question."""
        return bool(self._segments)

    def ask(self, question: Question) -> RowAnswer:
        """Return what all indices know of the answer to a question."""
        narrowed = UNKNOWN_ANSWER
        for covering in self._segments.get(question.column, ()):
            with naming_index(covering.index.name):
                answer = self.open(covering).answer(question, tells_null=self.tells_null)
                if answer is not None:
                    self.asked[covering.index.name] = None
                    narrowed = answers.narrowed(narrowed, self.restricted(answer, covering))
        return narrowed

    def count(self, question: Question) -> RowCounts | None:
        """Return for how many rows a question is true or null; None if no index has one entry for each row."""
        for name, parts in self._complete(question):
            with naming_index(name):
                counts = [self._count(question, part) for part in parts]
            told = [part for part in counts if part is not None]
            if len(told) == len(parts):
                return RowCounts(sum(part.true for part in told), sum(part.null for part in told))
        return None

    def _complete(self, question: Question) -> Iterator[tuple[str, list[_CoveringSegment]]]:
        """Yield the indices that may answer a question of which each fragment is covered by one segment."""
        by_name: dict[str, list[_CoveringSegment]] = {}
        for covering in self._segments.get(question.column, ()):
            by_name.setdefault(covering.index.name, []).append(covering)
        for name, parts in by_name.items():
            covered = np.concatenate([part.fragment_ids for part in parts])
            if len(covered) == len(self._manifest.fragments) and len(distinct(covered)) == len(covered):
                yield name, parts

    def ask_sets(self, question: Question) -> RowAnswer | RowSets:
        """Return what all indices know of the answer to a question; as sets if an index knows it for each row."""
        from lance_core.sql.pruning import Comparison  # noqa: PLC0415 brings Arrow's kernels along

        if isinstance(question, Comparison) and question.operator == "not_equal":
            equal = self._sets(Comparison(question.column, "equal", question.value))
            sets = None if equal is None else row_sets.not_(equal, self.rows())
        else:
            sets = self._sets(question)
        return self.ask(question) if sets is None else sets

    def _sets(self, question: Question) -> RowSets | None:
        for name, parts in self._complete(question):
            with naming_index(name):
                sets = [self._sets_of(question, part) for part in parts]
            told = [part for part in sets if part is not None]
            if len(told) == len(parts):
                self.asked[name] = None
                return reduce(row_sets.or_, told)
        return None

    def _sets_of(self, question: Question, covering: _CoveringSegment) -> RowSets | None:
        """Return the rows of a segment's fragments for which a question is true or null."""
        segment = None if self._holds_row_ids(covering.index) else self.open(covering)
        sets = segment.sets(question) if isinstance(segment, SetSegment) else None
        if sets is None:
            return None
        is_all = len(covering.fragment_ids) == len(self._manifest.fragments)
        rows = self.rows() if is_all else rows_of_fragments(covering.fragment_ids, covering.num_rows)
        inside = sets.within(rows)
        if len(inside.true) + len(inside.null) < len(sets.true) + len(sets.null):
            stray = rows_of_treemap((sets.true | sets.null) - rows) >> ADDRESS_SHIFT
            stray = stray[np.isin(stray, covering.fragment_ids)]
            if len(stray):
                answers.refuse_stray(int(stray[0]), f"{INDICES_FOLDER}/{covering.index.uuid_text}")
        return inside

    def rows(self) -> BitMap64:
        """Return the rows of the version, deleted ones included."""
        return readers_of(self._files, self._manifest.fragments).rows

    def num_live(self, rows: BitMap64) -> int:
        """Count rows of the version that are not deleted."""
        if not self._manifest.fragments.has_deletions:
            return len(rows)
        return len(rows) - rows.intersection_cardinality(readers_of(self._files, self._manifest.fragments).deleted_rows)

    def _count(self, question: Question, covering: _CoveringSegment) -> RowCounts | None:
        segment = self.open(covering)
        if not isinstance(segment, CountingSegment):
            return None
        # One by row address has the rows of its fragments that were live when it was built; none was deleted since, if
        # none is now. One by row id may also have rows that were deleted before a compaction.
        if self._holds_row_ids(covering.index):
            is_whole = segment.count_entries() == int(covering.num_rows.sum())
        else:
            is_whole = index_fields(covering.index).fragment_ids == frozenset(covering.fragment_ids.tolist())
        return segment.count(question) if is_whole else None

    def find(self, path: str, values: pa.Array) -> KeyedRows:
        """Return what all indices know of the rows that have one of some values."""
        from lance_core.sql.pruning import Membership  # noqa: PLC0415 brings Arrow's kernels along

        combined, covered = UNKNOWN_ANSWER, set[int]()
        parts = [(_NO_KEYED_ROWS.rows, _NO_KEYED_ROWS.numbers)]
        for covering in self.segments(path):
            with naming_index(covering.index.name):
                segment = self.open(covering)
                pairs = self._pairs(segment, covering, values)
                if pairs is None:
                    answer = segment.answer(Membership(path, values), tells_null=False)
                    answer = None if answer is None else self.restricted(answer, covering)
                else:
                    answer = self._within(answers.of_rows(true=pairs[0], elsewhere=FALSE | NULL), covering)
                    new = set(covering.fragment_ids.tolist()) - covered
                    mine = np.isin(pairs[0] >> ADDRESS_SHIFT, np.array(sorted(new), np.int64))
                    parts.append((pairs[0][mine], pairs[1][mine]))
                    covered |= new
                if answer is not None:
                    combined = answers.narrowed(combined, answer)
        rows, numbers = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.argsort(rows, kind="stable")
        return KeyedRows(answer=combined, fragment_ids=frozenset(covered), rows=rows[order], numbers=numbers[order])

    def _pairs(self, segment: Segment, covering: _CoveringSegment, values: pa.Array) -> tuple[Int64s, Int64s] | None:
        """Return the rows that a segment finds, by the addresses that they have now, and the position of each value."""
        moves = segment.moves if isinstance(segment, MovedSegment) else None
        original = segment.segment if isinstance(segment, MovedSegment) else segment
        pairs = original.find(values) if isinstance(original, KeyedSegment) else None
        if pairs is None:
            return None
        numbers, rows = pairs
        if self._holds_row_ids(covering.index):
            return self._addresses(rows, numbers, covering.fragment_ids)
        if moves is None:
            return rows, numbers
        rows = moves(rows)
        return rows[rows >= 0], numbers[rows >= 0]

    def _addresses(self, ids: Int64s, numbers: Int64s, fragment_ids: Int64s) -> tuple[Int64s, Int64s]:
        """Return the addresses of row ids in some fragments, and the number of each.

        A row that was rewritten has its id twice: where it is now, and where it was deleted.
        """
        wanted, inverse = np.unique(ids, return_inverse=True)
        parts = [(np.empty(0, np.int64), np.empty(0, np.int64))]
        for fragment in self._manifest.fragments.select(fragment_ids.tolist()):
            offsets = offsets_of_ids(wanted, FragmentReader(self._files, fragment))
            if offsets is not None:
                every = offsets[inverse]
                is_here = every >= 0
                parts.append((every[is_here] + (fragment.id << ADDRESS_SHIFT), numbers[is_here]))
        addresses, repeated = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return addresses, repeated

    def _covering(self, index: IndexMetadata, column: IndexedColumn) -> _CoveringSegment | None:
        from lance_core.index.kinds import readers_of  # noqa: PLC0415 most tables have no indices

        fields = index_fields(index)
        (kind, subjects), covered = readers_of(fields, column), fields.fragment_ids
        if kind is None or not covered or not self._knows_moves(index):
            return None
        fragments = self._manifest.fragments
        ids = fragments.ids.astype(np.int64)
        wanted = np.sort(np.fromiter(covered, np.int64, len(covered)))
        # `np.isin` takes four times as long for few fragments.
        chosen = np.flatnonzero(wanted.take(np.searchsorted(wanted, ids), mode="clip") == ids)
        if not len(chosen):
            return None
        chosen = chosen[np.argsort(ids[chosen])]
        return _CoveringSegment(
            index=index,
            kind=kind,
            column=column,
            subjects=subjects,
            fragment_ids=ids[chosen],
            num_rows=fragments.physical_rows[chosen].astype(np.int64),
        )

    def open(self, covering: _CoveringSegment) -> Segment:
        """Open a segment; it stays open with the dataset."""
        index = covering.index
        segment = self._files.index_segment(
            index.uuid, lambda: covering.kind.open(SegmentFiles.of(self._files.store, index), covering.column)
        )
        if self._reuse is None or self._holds_row_ids(index):
            return segment
        moves = self._later_moves(self._reuse)
        return segment if moves is None else moves.segment(segment)

    def _knows_moves(self, index: IndexMetadata) -> bool:
        """Return whether the rows of an index can be found, as far as compactions with deferred remap matter."""
        return self._reuse is None or self._holds_row_ids(index) or self._later_moves(self._reuse) is not None

    def _later_moves(self, reuse: IndexMetadata) -> LaterMoves | None:
        return self._files.row_moves(reuse.uuid, lambda: load_later_moves(self._files.store, reuse))

    def _holds_row_ids(self, index: IndexMetadata) -> bool:
        return self._manifest.uses_stable_row_ids and holds_row_ids(index)

    def restricted(self, answer: RowAnswer, covering: _CoveringSegment) -> RowAnswer:
        """Return the answer by row address, for the fragments that the segment covers."""
        if self._holds_row_ids(covering.index):
            return self._by_address(answer, covering.fragment_ids)
        return self._within(answer, covering)

    def _within(self, answer: RowAnswer, covering: _CoveringSegment) -> RowAnswer:
        path = f"{INDICES_FOLDER}/{covering.index.uuid_text}"
        return answers.within(answer, covering.fragment_ids, covering.num_rows, path=path)

    def _by_address(self, answer: RowAnswer, fragment_ids: Int64s) -> RowAnswer:
        """Translate an answer by row id; of fragments whose ids all have the same code no id is looked at."""
        starts: list[Int64s] = []
        ends: list[Int64s] = []
        codes: list[npt.NDArray[np.uint8]] = []
        for fragment in self._manifest.fragments.select(fragment_ids.tolist()):
            edges, fragment_codes = codes_of_ids(answer, FragmentReader(self._files, fragment))
            first = fragment.id << ADDRESS_SHIFT
            starts.append(edges[:-1] + first)
            ends.append(edges[1:] + first)
            codes.append(fragment_codes)
        if not starts:
            return UNKNOWN_ANSWER
        every_start, every_end = np.concatenate(starts), np.concatenate(ends)
        order = np.argsort(every_start, kind="stable")
        return answers.of_ranges(
            every_start[order],
            every_end[order],
            np.concatenate(codes)[order],
            elsewhere=ANY,
            is_exact=answer.is_exact,
        )


@contextmanager
def naming_index(name: str) -> Generator[None]:
    """Tell in errors about files which index they belong to, and what to do."""
    advice = f"remove the index with drop_index({name!r}), or rebuild it with lance_core.repair"
    try:
        yield
    except (CorruptDataError, NotFoundError) as error:
        raise type(error)(f"index {name!r} is damaged: {error.message}; {advice}", path=error.path) from error
    except UnsupportedError as error:
        raise UnsupportedError(f"index {name!r} cannot be read: {error.message}; {advice}", path=error.path) from error
