"""Answers of indices: every rule of three-valued logic holds for each row, whatever is known of it."""

import operator
import os
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from lance_core.errors import CorruptDataError, InvalidInputError
from lance_core.index import answer as answers
from lance_core.index.evaluate import count, evaluate, simplified, tells_null_from_false
from lance_core.index.protocol import RowCounts
from lance_core.index.row_sets import RowSets
from lance_core.sql.pruning import And, Comparison, Constant, FillNull, IsNull, Not, Or, Range, Unknown
from lance_core.sql.ternary import ANY, FALSE, NULL, TRUE, code_of

IS_DEEP = os.environ.get("LANCE_TESTS") == "deep"

NUM_ROWS = 12
ROWS = np.arange(NUM_ROWS)
VALUES = (True, False, None)


def kleene_and(left, right):
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


def opposite(value):
    return None if value is None else not value


def kleene_or(left, right):
    return opposite(kleene_and(opposite(left), opposite(right)))


def values_of(code):
    return {value for value in VALUES if code_of(value) & code}


def step_function(codes):
    """An answer with these codes for the first rows, and nothing known of any other."""
    return answers.of_ranges(ROWS, ROWS + 1, np.array(codes, np.uint8), elsewhere=ANY)


def every_row():
    return BitMap64(range(NUM_ROWS))


def codes_of(known, *, tells_null=True):
    """The codes of all rows, whether a step function or sets tell them."""
    return (known.answer(tells_null=tells_null) if isinstance(known, RowSets) else known).at(ROWS)


codes = st.lists(st.integers(1, ANY), min_size=NUM_ROWS, max_size=NUM_ROWS)


@pytest.mark.parametrize(("rule", "truth"), [(answers.and_, kleene_and), (answers.or_, kleene_or)])
def test_and_and_or_keep_every_possible_answer_and_no_other(rule, truth):
    left, right = zip(*product(range(1, ANY + 1), repeat=2), strict=True)
    rows = np.arange(len(left))
    sides = [answers.of_ranges(rows, rows + 1, np.array(side, np.uint8), elsewhere=ANY) for side in (left, right)]
    found = rule(*sides).at(rows)
    for row in rows:
        expected = {truth(a, b) for a, b in product(values_of(left[row]), values_of(right[row]))}
        assert values_of(found[row]) == expected


@given(codes)
def test_not_and_fill_null(one):
    answer = step_function(one)
    assert [values_of(code) for code in answers.not_(answer).at(ROWS)] == [
        {opposite(value) for value in values_of(code)} for code in one
    ]
    for value in (True, False):
        filled = answers.fill_null(answer, value=value).at(ROWS)
        expected = [{value if each is None else each for each in values_of(code)} for code in one]
        assert [values_of(code) for code in filled] == expected


def conditions(leaves, *, most):
    """Conditions of so many leaves at most."""
    return st.recursive(
        leaves,
        lambda inner: (
            st.builds(Not, inner)
            | st.builds(And, inner, inner)
            | st.builds(Or, inner, inner)
            | st.builds(FillNull, inner, st.booleans())
        ),
        max_leaves=most,
    )


TREES = conditions(
    st.sampled_from([Constant(True), Constant(False), Constant(None), Unknown(), *map(IsNull, "abc")]),  # noqa: FBT003
    most=8,
)


def truth_of(condition, values, unknown):
    match condition:
        case Constant():
            return condition.value
        case Unknown():
            return unknown
        case Not():
            return opposite(truth_of(condition.inner, values, unknown))
        case FillNull():
            inner = truth_of(condition.inner, values, unknown)
            return condition.value if inner is None else inner
        case And():
            return kleene_and(truth_of(condition.left, values, unknown), truth_of(condition.right, values, unknown))
        case Or():
            return kleene_or(truth_of(condition.left, values, unknown), truth_of(condition.right, values, unknown))
    return values[condition.column]


@pytest.mark.slow
@given(condition=TREES, data=st.data())
@settings(max_examples=3000 if IS_DEEP else 100, deadline=None)
def test_no_possible_answer_of_a_condition_is_lost(condition, data):
    """For all values that the codes of the columns allow, the answer is one that the evaluated codes allow."""
    known = {name: data.draw(codes) for name in "abc"}
    found = codes_of(evaluate(condition, lambda question: step_function(known[question.column]), rows=every_row))
    for row in range(NUM_ROWS):
        for chosen in product(*(values_of(known[name][row]) for name in "abc"), VALUES):
            truth = truth_of(condition, dict(zip("abc", chosen[:3], strict=True)), chosen[3])
            assert code_of(truth) & found[row]


@given(condition=TREES, data=st.data())
@settings(max_examples=2000 if IS_DEEP else 70, deadline=None)
def test_sets_of_rows_tell_what_step_functions_tell(condition, data):
    """Whichever questions are answered by sets, and which by step functions, the codes are the same."""
    exact = st.lists(st.sampled_from([TRUE, FALSE, NULL]), min_size=NUM_ROWS, max_size=NUM_ROWS)
    known, with_sets = {name: data.draw(exact) for name in "abc"}, data.draw(st.sets(st.sampled_from("abc")))

    def ask(question):
        one = np.array(known[question.column])
        if question.column not in with_sets:
            return step_function(one)
        return RowSets(*(BitMap64(np.flatnonzero(one == code).tolist()) for code in (TRUE, NULL)))

    expected = codes_of(evaluate(condition, lambda question: step_function(known[question.column]), rows=every_row))
    assert codes_of(evaluate(condition, ask, rows=every_row)).tolist() == expected.tolist()
    blunt = codes_of(evaluate(condition, ask, rows=every_row, tells_null=False), tells_null=False)
    if not tells_null_from_false(condition):
        assert ((blunt & TRUE) == (expected & TRUE)).all()
        assert ((blunt | expected) == blunt).all()


@given(condition=TREES, data=st.data())
@settings(max_examples=2000 if IS_DEEP else 70, deadline=None)
def test_false_and_null_are_one_where_nobody_tells_them_apart(condition, data):
    """Unless a condition tells null from false, rows that may match are the same if indices do not."""
    if tells_null_from_false(condition):
        return
    known = {name: data.draw(st.lists(st.sampled_from([TRUE, FALSE, NULL]), min_size=4, max_size=4)) for name in "abc"}
    blurred = {name: [code if code == TRUE else FALSE | NULL for code in one] for name, one in known.items()}
    rows = np.arange(4)
    sharp, blunt = (
        evaluate(
            condition,
            lambda question, source=source: answers.of_ranges(
                rows, rows + 1, np.array(source[question.column], np.uint8), elsewhere=ANY
            ),
            rows=every_row,
        ).at(rows)
        for source in (known, blurred)
    )
    assert ((sharp & TRUE) == (blunt & TRUE)).all()
    assert ((sharp == TRUE) == (blunt == TRUE)).all()


OPERATORS = {
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
}
COMPARISONS = conditions(
    st.builds(Comparison, st.just("a"), st.sampled_from(sorted(OPERATORS)), st.integers(0, 4).map(pa.scalar))
    | st.sampled_from([IsNull("a"), Constant(True), Constant(None)]),  # noqa: FBT003 as above
    most=6,
)


def compared(question, value):
    match question:
        case IsNull():
            return value is None
        case Range():
            return kleene_and(compared(question.low, value), compared(question.high, value))
    return None if value is None else OPERATORS[question.operator](value, question.value.as_py())


@given(condition=COMPARISONS)
@example(condition=And(*(Comparison("a", "greater", pa.scalar(least)) for least in (1, 3))))
@example(condition=And(*(Comparison("a", "less_equal", pa.scalar(most)) for most in (3, 1))))
@settings(max_examples=3000 if IS_DEEP else 200, deadline=None)
def test_simpler_conditions_are_true_and_null_for_the_same_rows(condition):
    values = [None, 0, 1, 2, 3, 4]
    rows = np.arange(len(values))

    def ask(question):
        found = [code_of(compared(question, value)) for value in values]
        return answers.of_ranges(rows, rows + 1, np.array(found, np.uint8), elsewhere=ANY)

    def ask_counts(question):
        found = [compared(question, value) for value in values]
        return RowCounts(found.count(True), found.count(None))

    expected = evaluate(condition, ask, rows=every_row).at(rows)
    assert evaluate(simplified(condition), ask, rows=every_row).at(rows).tolist() == expected.tolist()
    counts = count(simplified(condition), len(values), ask_counts)
    if counts is not None:
        assert (counts.true, counts.null) == ((expected == TRUE).sum(), (expected == NULL).sum())


some_rows = st.lists(st.integers(0, 30))


@given(true=some_rows, null=some_rows, undecided=some_rows)
@example(true=[3, 3, 4], null=[], undecided=[])
def test_single_rows_in_any_order_and_more_than_once(true, null, undecided):
    parts = {"true": true, "null": null, "undecided": undecided}
    answer = answers.of_rows(**{name: np.array(rows, np.int64) for name, rows in parts.items()})
    for row, code in enumerate(answer.at(np.arange(32))):
        expected = TRUE * (row in true) | NULL * (row in null) | ANY * (row in undecided)
        assert code == (expected or FALSE)


@given(codes, st.integers(0, 3), st.integers(0, 4))
def test_rows_of_a_fragment(one, fragment_id, num_rows):
    first = fragment_id << 32
    answer = answers.of_ranges(ROWS + first, ROWS + first + 1, np.array(one, np.uint8), elsewhere=FALSE)
    part = answer.of_fragment(fragment_id, num_rows)
    spread = np.repeat(part.codes, np.diff(part.bounds)).tolist()
    assert spread == one[:num_rows]
    assert part.candidates().tolist() == [row for row, code in enumerate(spread) if code & TRUE]
    assert part.num_candidates == len(part.candidates())
    assert part.may_match_at(np.arange(num_rows)).tolist() == [bool(code & TRUE) for code in spread]
    assert part.is_decided == all(code == TRUE or not code & TRUE for code in part.codes)
    assert not answers.replace(answer, is_exact=False).of_fragment(fragment_id, num_rows).is_decided


@given(codes, st.booleans())
def test_fragments_with_rows_that_may_match_or_must_be_asked(one, is_exact):
    ids, num_rows = np.arange(4) * 2, np.full(4, NUM_ROWS // 4)
    addresses = (np.repeat(ids, num_rows) << 32) + ROWS % (NUM_ROWS // 4)
    answer = answers.of_ranges(addresses, addresses + 1, np.array(one, np.uint8), elsewhere=ANY, is_exact=is_exact)
    of_fragments = np.reshape(one, (4, -1)).tolist()
    assert answer.may_match(ids, num_rows).tolist() == [any(code & TRUE for code in part) for part in of_fragments]
    assert answer.decides(ids, num_rows).tolist() == [
        is_exact and all(code == TRUE or not code & TRUE for code in part) for part in of_fragments
    ]


def test_answers_count_for_covered_fragments_only():
    answer = answers.of_rows(true=np.array([1, (1 << 32) + 1, (2 << 32) + 1]))
    covered = answers.within(answer, np.array([0, 2]), np.array([3, 2]))
    assert answers.within(answer, np.array([], np.int64), np.array([], np.int64)).is_unknown
    for fragment_id, expected in {0: [FALSE, TRUE, FALSE], 1: [ANY, ANY], 2: [FALSE, TRUE], 3: [ANY]}.items():
        part = covered.of_fragment(fragment_id, len(expected))
        assert np.repeat(part.codes, np.diff(part.bounds)).tolist() == expected


def test_a_row_behind_the_end_of_a_fragment_is_damage():
    answer = answers.of_rows(true=np.array([7]))
    with pytest.raises(CorruptDataError, match="fragment 0"):
        answers.within(answer, np.array([0]), np.array([7]))
    assert answers.within(answer, np.array([0]), np.array([8])).at(np.array([7, 1 << 32])).tolist() == [TRUE, ANY]
    assert answers.within(answer, np.array([1]), np.array([5])).at(np.array([7])).tolist() == [ANY]


@pytest.mark.parametrize(("starts", "ends"), [([1], [1]), ([1, 2], [3, 4]), ([5, 1], [6, 2])])
def test_ranges_that_make_no_sense(starts, ends):
    with pytest.raises(InvalidInputError, match="ranges"):
        answers.of_ranges(np.array(starts), np.array(ends), np.full(len(starts), TRUE, np.uint8), elsewhere=ANY)


def test_two_answers_to_one_question_narrow_each_other():
    zones = answers.of_ranges(np.array([0]), np.array([4]), np.array([FALSE], np.uint8), elsewhere=ANY, is_exact=False)
    rows = answers.of_rows(true=np.array([5]), elsewhere=FALSE | NULL)
    both = answers.narrowed(zones, rows)
    assert both.at(np.array([3, 4, 5])).tolist() == [FALSE, FALSE | NULL, TRUE]
    assert not both.is_exact
    assert not answers.narrowed(rows, zones).is_exact
