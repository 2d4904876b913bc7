"""Sorted words of full-text indices: as transducers, which are written here too, and as columns of older files."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_core.format.index import fst
from lance_core.format.index.fst import Fst
from lance_core.format.index.fst_build import encode_fst
from lance_core.index.text.inverted_words import ColumnWords, NearPattern, TransducerWords

WORDS = sorted(["", "fox", "foxes", "fax", "fix", "dog", "straße", "日本", "日曜"])


@settings(max_examples=100, deadline=None)
@given(st.sets(st.one_of(st.text("ab", min_size=1).map(str.encode), st.binary(min_size=1, max_size=4))))
def test_words_are_read_as_they_were_written(words):
    ordered = sorted(words)
    written = Fst(encode_fst(ordered), path="x")
    assert list(written.items()) == [(word, number) for number, word in enumerate(ordered)]
    assert [written.get(word) for word in ordered] == list(range(len(ordered)))
    assert written.get(b"no such word") is None


@pytest.mark.parametrize("count", [32, 33, 63, 64, 256])
def test_nodes_of_many_transitions(count):
    words = [bytes((first, second)) for first in range(count) for second in (0, 255)]
    assert [word for word, _ in Fst(encode_fst(words), path="x").items()] == words


def test_common_begins_and_ends_are_written_once():
    words = sorted(
        f"{begin}{middle}{end}".encode() for begin in "abcdef" for middle in range(1000) for end in ("ing", "")
    )
    assert len(encode_fst(words)) < sum(map(len, words)) / 4


def test_each_node_of_common_ends_is_decoded_once(monkeypatch):
    words = sorted(f"{begin}{middle}ing".encode() for begin in "abcdef" for middle in range(1000))
    decoded, inner = [], Fst._node

    def node(fst, address):
        decoded.append(address)
        return inner(fst, address)

    monkeypatch.setattr(Fst, "_node", node)
    assert [word for word, _ in Fst(encode_fst(words), path="x").items()] == words
    assert len(decoded) == len(set(decoded))


def test_words_are_read_though_few_nodes_are_remembered(monkeypatch):
    words = sorted(f"{begin}{middle}ing".encode() for begin in "abcdef" for middle in range(100))
    monkeypatch.setattr(fst, "_MOST_SHARED", 2)
    assert [word for word, _ in Fst(encode_fst(words), path="x").items()] == words


@pytest.mark.parametrize("form", ["transducer", "columns"])
def test_both_forms_answer_alike(form):
    if form == "transducer":
        words = TransducerWords(encode_fst([word.encode() for word in WORDS]), path="x")
    else:
        words = ColumnWords(pa.array(WORDS), pa.array(range(len(WORDS)), pa.uint32()))
    assert list(words.items()) == [(word, number) for number, word in enumerate(WORDS)]
    assert [words.get(word) for word in ("fox", "日曜", "cat")] == [WORDS.index("fox"), WORDS.index("日曜"), None]
    assert list(words.near(NearPattern("fox", 1, 0))) == ["fax", "fix", "fox"]
