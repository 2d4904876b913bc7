"""Conditions on a part of texts are asked of few texts where few have the part."""

import re

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_core.sql import find_text, text_functions
from lance_core.sql.find_text import ask_with_parts
from lance_core.sql.predicate import make_predicate

TEXTS = st.lists(st.none() | st.text("ab7é", max_size=12), max_size=60)


def substring_condition(part):
    """Return the condition, and a list of how many texts it was asked of each time."""
    asked = []

    def ask(values):
        asked.append(len(values))
        return pc.match_substring(values, part)

    return ask, asked


def regular_expression(pattern):
    """The regular expression that whole texts match if they match a pattern of LIKE."""
    pieces = re.findall(r"\\.|.", pattern, re.DOTALL)
    return "".join({"%": ".*", "_": "."}.get(piece) or re.escape(piece[-1]) for piece in pieces)


@given(
    TEXTS,
    st.text("ab7é", max_size=7),
    st.sampled_from([pa.string(), pa.large_string()]),
    st.integers(0, 9),
    st.sampled_from([(0.01, 1.3), (0.25, 1_000), (10, 1_000)]),
)
def test_answers_are_those_of_all_texts(texts, part, kind, skipped, most):
    values = pa.array(texts, kind).slice(skipped)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(find_text, "_FEWEST_BYTES", 1)
        patch.setattr(find_text, "_BLOCK_BYTES", 20)
        for name, value in zip(("_MOST_POSITIONS", "_MOST_NS"), most, strict=True):
            patch.setattr(find_text, name, value)
        answers = ask_with_parts(substring_condition(part)[0], values, [part] if part else [])
    answers.validate(full=True)
    assert answers.to_pylist() == [None if text is None else part in text for text in texts[skipped:]]


@given(TEXTS, st.text("ab7é%_\\", max_size=7), st.booleans())
def test_like_matches_whole_texts(texts, pattern, negate):
    batch = pa.record_batch({"s": pa.array(texts, pa.string())})
    sql = f"s {'NOT ' if negate else ''}LIKE '{pattern}'"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(find_text, "_FEWEST_BYTES", 1)
        answers = make_predicate(sql, batch.schema).evaluate(batch)
    matches = re.compile(regular_expression(pattern), re.DOTALL).fullmatch
    assert answers.to_pylist() == [None if text is None else (matches(text) is None) == negate for text in texts]


@pytest.mark.parametrize("sql", ["s LIKE '%/97/%'", "s LIKE 'https%/97/%_'", "contains(s, '/97/')"])
def test_only_texts_that_may_match_are_asked(monkeypatch, sql):
    texts = [f"https://example.com/{number % 977}/?id={number}" for number in range(5_000)]
    batch = pa.record_batch({"s": [*texts, None]})
    asked = []
    monkeypatch.setattr(find_text, "take_inside", lambda values, rows: asked.append(len(rows)) or values.take(rows))
    matches = make_predicate(sql, batch.schema).mask(batch).to_pylist()
    assert matches == ["/97/" in text for text in texts] + [False]
    assert asked == [6]


def test_a_part_across_two_texts_is_not_in_either():
    values = pa.array(["x" * 70_000 + "need", "le", "a needle", "needle"])
    ask, asked = substring_condition("needle")
    assert ask_with_parts(ask, values, ["needle"]).to_pylist() == [False, False, True, True]
    assert asked == [4]
    values = pa.array([*values.to_pylist(), *["other"] * 100])
    assert pc.indices_nonzero(ask_with_parts(ask, values, ["needle"])).to_pylist() == [2, 3]
    assert asked == [4, 3]


def test_bytes_under_a_null_do_not_count():
    texts = [f"text of number {number}" for number in range(5_000)]
    _, bounds, data = pa.array(texts).buffers()
    bits = bytearray(b"\xff" * 625)
    bits[4000 // 8] &= ~1
    values = pa.Array.from_buffers(pa.string(), 5_000, [pa.py_buffer(bytes(bits)), bounds, data])
    ask, asked = substring_condition("4000")
    answers = ask_with_parts(ask, values, ["4000"])
    assert (asked, answers.null_count, answers[4000].as_py(), pc.any(answers).as_py()) == ([1], 1, None, False)


def test_a_part_that_many_texts_have_is_asked_of_all():
    values = pa.array([f"https://example.com/{number}" for number in range(5_000)])
    for part in ("example", "e", ""):
        ask, asked = substring_condition(part)
        assert ask_with_parts(ask, values, [part] if part else []).true_count == 5_000
        assert asked == [5_000]
    ask, asked = substring_condition("later")  # the first texts do not tell that many have it
    values = pa.array(["at first"] * 5_000 + ["later"] * 5_000)
    assert ask_with_parts(ask, values, ["later"]).true_count == 5_000
    assert asked == [10_000]


@given(
    texts=st.lists(st.none() | st.text("aBcKks\u017f\u212a é", max_size=6), max_size=8),
    pattern=st.text("abCkKS\u212a%_é\\", max_size=5),
    kind=st.sampled_from([pa.string(), pa.large_string()]),
    start=st.integers(0, 2),
)
def test_letters_of_either_case_match(texts, pattern, kind, start):
    values = pa.array(texts, kind).slice(start)
    rows = pa.record_batch({"s": values})

    mask = make_predicate(f"s ilike '{pattern}'", rows.schema).mask(rows)

    matches = re.compile(regular_expression(folded(pattern)), re.DOTALL).fullmatch
    assert mask.to_pylist() == [text is not None and matches(folded(text)) is not None for text in values.to_pylist()]


def folded(text):
    """Letters that ILIKE takes for the same, among those of the test: a long s is an s, the sign for Kelvin a k."""
    return text.lower().replace("\u017f", "s")


def test_ascii_texts_are_searched_in_small_letters(monkeypatch):
    calls = []
    monkeypatch.setattr(
        text_functions, "ask_with_parts", lambda ask, values, parts: (calls.append(parts), ask(values))[1]
    )
    rows = pa.record_batch({"s": ["Some Words", "some WORDS", "other", None]})

    mask = make_predicate("s ilike '%ME wo%'", rows.schema).mask(rows)

    assert mask.to_pylist() == [True, True, False, False]
    assert set(calls) == {("me wo",)}
