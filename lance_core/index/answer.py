"""Answers of an index to a condition, before rows are read.

An answer is a step function: rows between two bounds have the same code of `lance_core.sql.ternary`, the set of answers
that are still possible. Rows are numbered by address, or by stable row id until `lance_core.scan.indexed` translates.
One type carries all that indices say:

    exact      every code has one bit: the index knows the answer of each row
    at most    codes with `TRUE` and other bits: these rows may match and must be asked
    at least   rows whose code is `TRUE` match, whatever the others do
    unknown    `ANY`: rows that no index covers

The rules of three-valued logic hold for each row, so that answers of different indices can be combined.
"""

from __future__ import annotations

from functools import partial, reduce
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from lance_core.common.frozen import frozen, replace
from lance_core.encoding.kernels import aranges, distinct, starts_of
from lance_core.errors import CorruptDataError, InvalidInputError
from lance_core.sql import ternary
from lance_core.sql.ternary import ANY, FALSE, NULL, TRUE

if TYPE_CHECKING:
    from collections.abc import Callable

    from lance_core.sql.ternary import Codes

Int64s: TypeAlias = npt.NDArray[np.int64]

ADDRESS_SHIFT = 32
OFFSET_MASK = (1 << ADDRESS_SHIFT) - 1
"""The parts of a row address: the fragment is above the shift, the offset of the row below it."""

_FRAGMENT_ROWS = 1 << ADDRESS_SHIFT

_NO_ROWS = np.empty(0, np.int64)


@frozen(kw_only=True)
class RowAnswer:
    """Possible answers of a condition for all rows.

    Attributes:
        bounds: Shape (n,), row numbers where the code changes, ascending and distinct.
        codes: Shape (n + 1,): ``codes[i]`` belongs to rows from ``bounds[i - 1]`` up to but not including
            ``bounds[i]``, the first and the last code to all rows before and behind.
        is_exact: False if rows that can only be true must be asked all the same, as zones of a zone map.
    """

    bounds: Int64s
    codes: Codes
    is_exact: bool = True

    def at(self, rows: Int64s) -> Codes:
        """Return the codes of some rows."""
        return self.codes[self.bounds.searchsorted(rows, "right")]

    def may_match_at(self, rows: Int64s) -> npt.NDArray[np.bool_]:
        """Return for some rows whether they may match."""
        return (self.at(rows) & TRUE) != 0

    @property
    def is_unknown(self) -> bool:
        """True if nothing is known of any row."""
        return not len(self.bounds) and int(self.codes[0]) == ANY

    def may_match(self, fragment_ids: Int64s, num_rows: Int64s) -> npt.NDArray[np.bool_]:
        """Return for some fragments whether any of their rows may match.

        Args:
            fragment_ids: Shape (n,).
            num_rows: Shape (n,), physical rows of each.
        """
        starts = fragment_ids << ADDRESS_SHIFT
        return self._has_any((self.codes & TRUE) != 0, starts, starts + num_rows)

    def decides(self, fragment_ids: Int64s, num_rows: Int64s) -> npt.NDArray[np.bool_]:
        """Return for some fragments whether each of their rows is known to match or not; arguments as `may_match`."""
        is_open = (self.codes & TRUE != 0) & (self.codes != TRUE) if self.is_exact else self.codes >= 0
        starts = fragment_ids << ADDRESS_SHIFT
        return ~self._has_any(is_open, starts, starts + num_rows)

    def stray(self, fragment_ids: Int64s, num_rows: Int64s) -> Int64s:
        """Return those of some fragments that have no row of which something else is told than of the last row."""
        starts = fragment_ids << ADDRESS_SHIFT
        is_told = self.codes != self.codes[-1]
        return fragment_ids[self._has_any(is_told, starts + num_rows, starts + (_FRAGMENT_ROWS - 1))]

    def _has_any(self, flags: npt.NDArray[np.bool_], starts: Int64s, ends: Int64s) -> npt.NDArray[np.bool_]:
        """Return for some ranges of rows whether any row has a code that is flagged."""
        low, high = self.bounds.searchsorted(starts, "right"), self.bounds.searchsorted(ends)
        before = starts_of(flags)
        return before[high + 1] > before[low]

    def of_fragment(self, fragment_id: int, num_rows: int) -> FragmentAnswer:
        """Return what is known of the rows of one fragment."""
        first = fragment_id << ADDRESS_SHIFT
        low = int(self.bounds.searchsorted(first, "right"))
        high = int(self.bounds.searchsorted(first + num_rows))
        bounds = np.empty(high - low + 2, np.int64)
        bounds[0], bounds[1:-1], bounds[-1] = 0, self.bounds[low:high] - first, num_rows
        return FragmentAnswer(bounds=bounds, codes=self.codes[low : high + 1], is_exact=self.is_exact)


@frozen(kw_only=True)
class FragmentAnswer:
    """Possible answers of a condition for the rows of one fragment, deleted rows included.

    Attributes:
        bounds: Shape (n + 1,), row offsets from 0 to the number of rows, ascending.
        codes: Shape (n,), code between each two bounds.
        is_exact: As in `RowAnswer`.
    """

    bounds: Int64s
    codes: Codes
    is_exact: bool

    @property
    def may_match(self) -> npt.NDArray[np.bool_]:
        """Shape (n,): rows between two bounds may match."""
        return (self.codes & TRUE) != 0

    @property
    def num_candidates(self) -> int:
        """Number of rows that may match."""
        return int((self.bounds[1:] - self.bounds[:-1])[self.may_match].sum())

    @property
    def is_decided(self) -> bool:
        """True if each row is known to match or not to match."""
        return self.is_exact and bool(((self.codes == TRUE) | (self.codes & TRUE == 0)).all())

    def may_match_at(self, offsets: Int64s) -> npt.NDArray[np.bool_]:
        """Return for some rows whether they may match."""
        return self.may_match[self.bounds.searchsorted(offsets, "right") - 1]

    def mask(self, start: int, end: int) -> npt.NDArray[np.bool_]:
        """Return which of the rows [start, end) may match."""
        low = int(self.bounds.searchsorted(start, "right"))
        high = int(self.bounds.searchsorted(end))
        lengths = np.diff(np.concatenate([[start], self.bounds[low:high], [end]]))
        return np.repeat(self.may_match[low - 1 : low - 1 + len(lengths)], lengths)

    def candidates(self) -> Int64s:
        """Return the offsets of the rows that may match, ascending."""
        chosen = self.may_match
        starts, ends = self.bounds[:-1][chosen], self.bounds[1:][chosen]
        return aranges(starts, ends - starts)


def certain(value: bool | None) -> RowAnswer:
    """Return the same answer for all rows; None is null."""
    return _everywhere(ternary.code_of(value))


def _everywhere(code: int) -> RowAnswer:
    return RowAnswer(bounds=_NO_ROWS, codes=np.array([code], np.uint8))


UNKNOWN_ANSWER = _everywhere(ANY)


def of_ranges(starts: Int64s, ends: Int64s, codes: Codes, *, elsewhere: int, is_exact: bool = True) -> RowAnswer:
    """Make an answer of ranges of rows.

    Args:
        starts: Shape (n,), first row of each range, ascending.
        ends: Shape (n,), row behind the last one of each, after its start and not after the next start.
        codes: Shape (n,).
        elsewhere: Code of all other rows.
        is_exact: As in `RowAnswer`.

    Raises:
        InvalidInputError: Ranges that are empty or overlap.
    """
    if (starts >= ends).any() or (ends[:-1] > starts[1:]).any():
        raise InvalidInputError("an answer has ranges that are empty, overlap or are out of order")
    # Starts and ends taken in turns are ascending; where a range begins at the end of another, its code counts.
    bounds, behind = np.empty(2 * len(starts), np.int64), np.full(2 * len(starts), elsewhere, np.uint8)
    bounds[::2], bounds[1::2], behind[::2] = starts, ends, codes
    is_last = np.ones(len(bounds), np.bool_)
    np.not_equal(bounds[1:], bounds[:-1], out=is_last[:-1])
    if not is_last.all():
        bounds, behind = bounds[is_last], behind[is_last]
    return RowAnswer(bounds=bounds, codes=np.append(np.uint8(elsewhere), behind), is_exact=is_exact)


def of_rows(
    *, true: Int64s = _NO_ROWS, null: Int64s = _NO_ROWS, undecided: Int64s = _NO_ROWS, elsewhere: int = FALSE
) -> RowAnswer:
    """Make an answer of single rows, in any order.

    Args:
        true: Rows for which the answer is true.
        null: Rows for which it is null.
        undecided: Rows for which it may be anything.
        elsewhere: Code of all other rows; ``FALSE | NULL`` if nobody asked which of them are null.

    Returns:
        The answer; a row that is given twice may have either answer.
    """
    parts = [(rows, code) for rows, code in ((true, TRUE), (null, NULL), (undecided, ANY)) if len(rows)]
    if len(parts) < 2:
        return _of_runs(*parts[0], elsewhere) if parts else _everywhere(elsewhere)
    # No answer has the code 0: it marks rows that are in no part.
    joined = reduce(partial(_combined, np.bitwise_or), [_of_runs(*part, 0) for part in parts])
    return replace(joined, codes=np.where(joined.codes == 0, np.uint8(elsewhere), joined.codes))


def _of_runs(rows: Int64s, code: int, elsewhere: int) -> RowAnswer:
    """Make an answer of rows, in any order and at least one, that have the same code."""
    rows = rows if (rows[1:] > rows[:-1]).all() else distinct(rows)
    firsts, lasts = _runs(rows)
    return of_ranges(firsts, lasts + 1, np.full(len(firsts), code, np.uint8), elsewhere=elsewhere)


def _runs(numbers: Int64s) -> tuple[Int64s, Int64s]:
    """Return the first and the last ones of ascending numbers, at least one, that follow one another."""
    is_edge = np.ones(len(numbers) + 1, np.bool_)
    np.not_equal(numbers[1:], numbers[:-1] + 1, out=is_edge[1:-1])
    return numbers[is_edge[:-1]], numbers[is_edge[1:]]


def not_(answer: RowAnswer) -> RowAnswer:
    """Return the answer of ``NOT``."""
    return replace(answer, codes=ternary.not_(answer.codes))


def fill_null(answer: RowAnswer, *, value: bool) -> RowAnswer:
    """Return the same answer with ``value`` in place of null."""
    return replace(answer, codes=ternary.fill_null(answer.codes, value=value))


def and_(left: RowAnswer, right: RowAnswer) -> RowAnswer:
    """Return the answer of Kleene's ``AND``."""
    return _combined(ternary.and_, left, right)


def or_(left: RowAnswer, right: RowAnswer) -> RowAnswer:
    """Return the answer of Kleene's ``OR``."""
    return _combined(ternary.or_, left, right)


def narrowed(left: RowAnswer, right: RowAnswer) -> RowAnswer:
    """Return what two answers to the same question say together."""
    bounds, left_codes, right_codes = _aligned(left, right)  # zones stay apart: plans tell that an index was asked
    is_exact = left.is_exact and right.is_exact
    return RowAnswer(bounds=bounds, codes=left_codes & right_codes, is_exact=is_exact)


def within(answer: RowAnswer, fragment_ids: Int64s, num_rows: Int64s, *, path: str | None = None) -> RowAnswer:
    """Return an answer for the rows of some fragments; of all others nothing is known.

    Args:
        answer: The answer, by row address.
        fragment_ids: Fragments that it holds for, ascending.
        num_rows: Physical rows of each.
        path: The index, for errors.

    Raises:
        CorruptDataError: The answer names a row behind the last one of a fragment.
    """
    if not len(fragment_ids):
        return UNKNOWN_ANSWER
    stray = answer.stray(fragment_ids, num_rows)
    if len(stray):
        refuse_stray(int(stray[0]), path)
    # Fragments whose ids follow one another share their bounds: addresses behind a last row do not count.
    firsts, lasts = _runs(fragment_ids)
    starts, ends = firsts << ADDRESS_SHIFT, (lasts << ADDRESS_SHIFT) + (_FRAGMENT_ROWS - 1)
    covered = of_ranges(starts, ends, np.ones(len(starts), np.uint8), elsewhere=0)
    bounds, codes, is_covered = _aligned(answer, covered)
    return replace(answer, bounds=bounds, codes=np.where(is_covered, codes, np.uint8(ANY)))


def refuse_stray(fragment_id: int, path: str | None) -> None:
    """Tell that an index names a row behind the last one of a fragment.

    Raises:
        CorruptDataError: Always.
    """
    raise CorruptDataError(f"an index has rows behind the last one of fragment {fragment_id}", path=path)


def _combined(rule: Callable[[Codes, Codes], Codes], left: RowAnswer, right: RowAnswer) -> RowAnswer:
    bounds, left_codes, right_codes = _aligned(left, right)
    codes = rule(left_codes, right_codes)
    is_change = codes[1:] != codes[:-1]
    if not is_change.all():  # what comes next has less to go through
        bounds, codes = bounds[is_change], np.append(codes[:1], codes[1:][is_change])
    return RowAnswer(bounds=bounds, codes=codes, is_exact=left.is_exact and right.is_exact)


def _aligned(left: RowAnswer, right: RowAnswer) -> tuple[Int64s, Codes, Codes]:
    """Return the bounds of two answers together, and the codes of each between them; one code if that is everywhere."""
    if left.bounds is right.bounds or not len(right.bounds):
        return left.bounds, left.codes, right.codes
    if len(left.bounds) < len(right.bounds):
        bounds, right_codes, left_codes = _aligned(right, left)
        return bounds, left_codes, right_codes
    # The fewer bounds are put between the others, which are copied as they are.
    at = left.bounds.searchsorted(right.bounds)
    is_new = left.bounds.take(at, mode="clip") != right.bounds
    new_at = at[is_new]
    bounds = np.insert(left.bounds, new_at, right.bounds[is_new])
    left_codes = np.insert(left.codes, new_at + 1, left.codes[new_at])
    before = at + np.cumsum(is_new) - is_new
    lengths = np.diff(np.concatenate([[-1], before, [len(bounds)]]))
    return bounds, left_codes, np.repeat(right.codes, lengths)
