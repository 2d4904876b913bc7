"""Kernels of full-text indices: blocks of postings, positions, words that are nearly spelt like another."""

import importlib

import numpy as np
import pyarrow as pa
import pytest
import snowballstemmer
from hypothesis import given, settings
from hypothesis import strategies as st

import lance_core
from lance_core.errors import CorruptDataError, InvalidInputError
from lance_core.format.index.fst import Fst
from lance_core.format.index.inverted_index import LANGUAGES, TextOptions
from lance_core.format.index.posting_blocks import (
    decode_positions,
    decode_positions_of,
    decode_postings,
    encode_positions,
    encode_postings,
    encode_varints,
    pack,
    unpack,
    varints,
)
from lance_core.index.text import analyzer as analyzers
from lance_core.index.text import inverted_partition
from lance_core.index.text.analyzer import Analyzer
from lance_core.index.text.characters import stop_words
from lance_core.index.text.inverted_words import NearPattern, near_words
from lance_core.query import BooleanQuery, FullTextOperator, MatchQuery, MultiMatchQuery, Occur, PhraseQuery
from lance_core.scan import indexed

SCORE = b"\0\0\0\0"


def with_bounds(data, sizes):
    """Blocks and the size of each, as those who decode them want them."""
    return data, np.concatenate([[0], np.cumsum(sizes)])


def words_of(lengths, seed):
    rng = np.random.default_rng(seed)
    documents = [np.sort(rng.choice(10 ** rng.integers(4, 9), length, replace=False)) for length in lengths]
    frequencies = rng.integers(1, rng.choice([2, 5]), sum(lengths)).astype(np.uint32)
    return np.concatenate(documents).astype(np.int64), frequencies, np.array(lengths, np.int64)


def distance(left, right):
    row = list(range(len(right) + 1))
    for count, one in enumerate(left):
        after = [count + 1]
        for place, other in enumerate(right):
            after.append(min(after[-1] + 1, row[place + 1] + 1, row[place] + (one != other)))
        row = after
    return row[-1]


@pytest.mark.parametrize("bits", [0, 1, 7, 13, 31, 32])
def test_numbers_of_any_width_are_packed_and_unpacked(bits):
    numbers = np.random.default_rng(bits).integers(0, 1 << bits, (3, 128), np.uint64).astype(np.uint32)
    packed = pack(numbers, bits)
    assert packed.shape == (3, 16 * bits)
    assert (numbers == unpack(packed, bits).T).all()


def test_packed_numbers_lie_in_four_lanes():
    numbers = np.zeros((1, 128), np.uint32)
    numbers[0, 5] = 3  # the second of lane 1
    assert pack(numbers, 2).view("<u4").tolist() == [[0, 3 << 2, 0, 0, 0, 0, 0, 0]]


@given(st.lists(st.integers(0, 2**32 - 1), max_size=30))
@settings(max_examples=30)
def test_variable_length_integers_come_back(numbers):
    data, lengths = encode_varints(np.array(numbers, np.uint32))
    assert lengths.sum() == len(data)
    assert varints(data, path="x").tolist() == numbers


@given(
    lengths=st.lists(st.sampled_from([1, 2, 5, 127, 128, 129, 256, 300]), min_size=1, max_size=6),
    seed=st.integers(0, 99),
)
@settings(max_examples=20, deadline=None)
def test_postings_and_positions_come_back(lengths, seed):
    documents, frequencies, counts = words_of(lengths, seed)
    blocks = encode_postings(documents, frequencies, counts, SCORE)
    found = decode_postings(*with_bounds(*blocks), counts, path="x")
    assert (found[0] == documents).all()
    assert (found[1] == frequencies).all()
    sizes = np.array([min(128, count - first) for count in lengths for first in range(0, count, 128)], np.int64)
    rng = np.random.default_rng(seed)
    frequencies[: seed % 3] = 300  # more than fit in one group
    positions = np.concatenate([np.cumsum(rng.integers(1, 99, count)) for count in frequencies.tolist()])
    blocks = encode_positions(positions, frequencies, sizes)
    assert (decode_positions(*with_bounds(*blocks), frequencies, sizes, path="x") == positions).all()


@given(
    frequencies=st.lists(st.integers(1, 4) | st.just(200), min_size=1, max_size=400),
    most=st.sampled_from([1, 2, 60, 1 << 20, 1 << 32]),
    seed=st.integers(0, 99),
    share=st.sampled_from([0, 0.02, 0.5, 1]),
)
@settings(max_examples=40, deadline=None)
def test_positions_of_some_documents_are_those_among_all(frequencies, most, seed, share):
    rng = np.random.default_rng(seed)
    counts = np.array(frequencies, np.uint32)
    positions = np.concatenate([np.cumsum(rng.integers(most >> 1, most, count)) for count in frequencies]) >> 8
    sizes = np.array([min(128, len(counts) - first) for first in range(0, len(counts), 128)], np.int64)
    chosen = np.flatnonzero(rng.random(len(counts)) < share)
    data, starts = with_bounds(*encode_positions(positions, counts, sizes))
    result = decode_positions_of(data, starts, counts, chosen, path="x")
    of_each = np.split(positions, np.cumsum(counts)[:-1])
    assert result.tolist() == np.concatenate([[], *(of_each[number] for number in chosen)]).tolist()


def outcomes_of_damage(data, decode, num_items):
    """Decode data of which a bit is flipped, sixty times: what became of it."""
    rng = np.random.default_rng(0)
    outcomes = set()
    for _ in range(60):
        damaged = data.copy()
        damaged[rng.integers(len(data))] ^= 1 << rng.integers(8)
        try:
            found = decode(damaged)
        except CorruptDataError:
            outcomes.add("error")
        else:
            outcomes.add("read")
            assert len(found) == num_items
    return outcomes


def test_damaged_postings_are_errors_and_never_wrong_answers():
    documents, frequencies, counts = words_of([300, 5], 1)
    data, ends = with_bounds(*encode_postings(documents, frequencies, counts, SCORE))
    outcomes = outcomes_of_damage(
        data, lambda damaged: decode_postings(damaged, ends, counts, path="x")[0], len(documents)
    )
    assert outcomes == {"error", "read"}  # what a number is, nobody can tell
    with pytest.raises(CorruptDataError, match="blocks"):
        decode_postings(data, ends[:-1], counts, path="x")
    for content in (b"", b"\3" + bytes(20), bytes(8) * 5, b"\3" + bytes(7) + bytes(8) + b"\xff" * 24):
        with pytest.raises(CorruptDataError):
            list(Fst(content, path="x").items())


@given(
    words=st.sets(st.text("abcé", min_size=1, max_size=6), max_size=60),
    word=st.text("abcé", min_size=1, max_size=6),
    most=st.integers(1, 3),
    prefix=st.integers(0, 2),
)
@settings(max_examples=60, deadline=None)
def test_near_words_are_those_within_the_distance_behind_an_equal_prefix(words, word, most, prefix):
    begin, rest = word[:prefix], word[prefix:]
    expected = [one for one in sorted(words) if one.startswith(begin) and distance(one[len(begin) :], rest) <= most]
    pattern = NearPattern(word, most, prefix)
    assert list(near_words(sorted(words), pattern)) == expected
    assert [one for one in sorted(words) if pattern.matches(one)] == expected


def test_words_that_are_left_out_leave_gaps():
    analyzer = Analyzer(TextOptions())
    assert analyzer.tokens("The quick foxes, of Málaga!") == [("quick", 1), ("fox", 2), ("malaga", 4)]


@given(
    text=st.text("aéB1 -_\n的", max_size=12) | st.sampled_from(["The quick foxes, of Málaga!", "running the runner"]),
    tokenizer=st.sampled_from(["simple", "whitespace", "raw", "ngram"]),
    length=st.sampled_from([None, 4]),
)
def test_words_of_a_query_are_those_of_a_document(text, tokenizer, length):
    analyzer = Analyzer(TextOptions(base_tokenizer=tokenizer, max_token_length=length))
    tokens = analyzer.batch(pa.array([text]))
    expected = [tokens.terms[code] for code in tokens.codes.tolist()]
    assert analyzer.tokens(text) == list(zip(expected, tokens.positions.tolist(), strict=True))


def test_queries_say_what_is_wrong_with_them():
    with pytest.raises(InvalidInputError, match="at least one query that must or should match"):
        BooleanQuery([(Occur.MUST_NOT, MatchQuery("a", "t"))])
    with pytest.raises(InvalidInputError, match="'boost' must be"):
        MatchQuery("a", "t", boost=-1.0)
    with pytest.raises(InvalidInputError, match="'slop'"):
        PhraseQuery("a", "t", slop=-1)
    with pytest.raises(InvalidInputError, match="2 columns have 1 'boosts'"):
        MultiMatchQuery("a", ["t", "u"], boosts=[1.0])


def test_a_limit_takes_the_first_rows_of_all_whatever_is_deleted_or_left_out(tmp_path):
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{number}" for number in rng.zipf(1.5, 8) % 50) for _ in range(3000)]
    table = lance_core.write_dataset(pa.table({"id": range(3000), "t": texts}), tmp_path / "t")
    table.create_scalar_index("t", "INVERTED", with_position=True)

    def check(query, **options):
        every = table.to_table(columns=["id", "_score"], full_text_query=query, **options)
        assert every["_score"].to_pylist() == sorted(every["_score"].to_pylist(), reverse=True)
        for limit in (0, 1, 5, 40):
            assert table.to_table(columns=["id", "_score"], full_text_query=query, limit=limit, **options).equals(
                every.slice(0, limit)
            )
        return every["id"].to_pylist()

    queries = [
        *("w1 w2 w3", "w7", "w30 w41 w2", MatchQuery("w1 w2", "t", operator=FullTextOperator.AND)),
        *(PhraseQuery("w1 w2", "t"), PhraseQuery("w2 w1", "t", slop=2)),
    ]
    best = [check(query) for query in queries]
    table.delete(f"id IN {tuple({row for rows in best for row in rows[:100]})}")
    for query, before in zip(queries, best, strict=True):
        after = check(query)
        assert after
        assert not set(after) & set(before[:100])
        check(query, filter="id % 7 = 0", prefilter=True)


def test_searches_open_an_index_once_and_follow_the_versions_of_the_table(tmp_path, monkeypatch):
    table = lance_core.write_dataset(pa.table({"id": [0, 1, 2], "t": ["run a", "runs b", "c"]}), tmp_path / "t")
    table.create_scalar_index("t", "INVERTED")
    opened = []
    of_index = indexed.open_segment
    monkeypatch.setattr(indexed, "open_segment", lambda *given: (opened.append(given), of_index(*given))[1])

    def found(word, **options):
        query = MatchQuery(word, "t")
        rows = table.to_table(columns=["id"], full_text_query=query, **options)["id"].to_pylist()
        again = table.to_table(columns=["id"], full_text_query=query, **options)["id"].to_pylist()
        assert rows == again
        return sorted(rows)

    assert found("runs") == [0, 1]
    assert found("run", fast_search=True) == [0, 1]
    assert len(opened) == 1
    table.delete("id = 0")
    assert found("runs") == [1]
    assert len(opened) == 2
    table.insert(pa.table({"id": [3], "t": ["run d"]}))
    assert (found("runs"), found("runs", fast_search=True)) == ([1, 3], [1])
    table.optimize.optimize_indices()
    assert found("runs", fast_search=True) == [1, 3]
    table.create_scalar_index("t", "INVERTED", stem=False, replace=True)
    assert found("runs") == [1]
    table.drop_index("t_idx")
    assert found("runs") == [1]
    table = table.checkout_version(2)
    assert found("runs") == [0, 1]


def test_positions_are_decoded_of_documents_that_may_be_among_the_first(tmp_path, monkeypatch):
    texts = ["a b " + "c " * (number % 1000) for number in range(20_000)]
    table = lance_core.write_dataset(pa.table({"t": texts}), tmp_path / "t")
    table.create_scalar_index("t", "INVERTED", with_position=True, remove_stop_words=False)
    decode, decoded = inverted_partition.decode_positions_of, []
    monkeypatch.setattr(
        inverted_partition,
        "decode_positions_of",
        lambda *given, **path: decoded.append(len(given[3])) or decode(*given, **path),
    )
    for limit, most in ((5, 256), (None, 20_000)):
        found = table.to_table(columns=[], full_text_query=PhraseQuery("a b", "t"), limit=limit)
        assert found.num_rows == (limit or 20_000)
        assert decoded == [most, most]  # once for each word
        decoded.clear()


def test_damaged_positions_are_errors_and_never_of_other_documents():
    frequencies = np.random.default_rng(0).integers(1, 5, 300).astype(np.uint32)
    positions = np.concatenate([np.arange(count) * 7 for count in frequencies.tolist()])
    counts = np.array([128, 128, 44])
    data, ends = with_bounds(*encode_positions(positions, frequencies, counts))
    outcomes = outcomes_of_damage(
        data, lambda damaged: decode_positions(damaged, ends, frequencies, counts, path="x"), len(positions)
    )
    assert outcomes == {"error", "read"}
    chosen = np.arange(0, 300, 3)
    outcomes = outcomes_of_damage(
        data,
        lambda damaged: decode_positions_of(damaged, ends, frequencies, chosen, path="x"),
        frequencies[chosen].sum(),
    )
    assert outcomes == {"error", "read"}
    with pytest.raises(CorruptDataError, match="another length"):
        decode_positions(data, ends, frequencies[::-1].copy(), counts, path="x")
    with pytest.raises(CorruptDataError, match="another length"):
        decode_positions_of(data, ends, frequencies[::-1].copy(), chosen, path="x")
    with pytest.raises(CorruptDataError, match="other documents"):
        decode_positions_of(data, ends[:-1], frequencies, chosen, path="x")


def test_the_first_searches_read_only_the_rows_that_they_return(tmp_path, monkeypatch):
    texts = [f"w{number % 7} w{number % 11}" for number in range(3000)]
    path = tmp_path / "t"
    lance_core.write_dataset(pa.table({"text": texts}), path).create_scalar_index("text", "INVERTED")
    expected = lance_core.dataset(path).to_table(full_text_query="w3 w5", limit=5)
    monkeypatch.setattr(inverted_partition, "_TAKE_COST", 1000)
    monkeypatch.setattr(inverted_partition, "_TAKEN_ROW_COST", 1)
    read_columns, names = inverted_partition.read_columns, []
    monkeypatch.setattr(
        inverted_partition, "read_columns", lambda *asked: names.extend(asked[1]) or read_columns(*asked)
    )
    table = lance_core.dataset(path)
    for whole in (False, False, True):
        assert table.to_table(full_text_query="w3 w5", limit=5) == expected
        assert ("_rowid" in names) is whole


@pytest.mark.parametrize("language", LANGUAGES)
def test_stems_are_those_of_the_package_in_python_where_the_one_in_c_is_missing(language, monkeypatch):
    pytest.importorskip("Stemmer", reason="pystemmer has no wheels for this machine")
    stems = TextOptions(base_tokenizer="raw", language=language, remove_stop_words=False)
    endings = ["", "s", "ing", "ation", "er", "en", "es", "ement"]
    texts = pa.array([word + ending for word in sorted(stop_words(language)) for ending in endings])
    in_c = Analyzer(stems).batch(texts)
    module = importlib.import_module(f"snowballstemmer.{language.lower()}_stemmer")
    in_python = getattr(module, f"{language}Stemmer")
    monkeypatch.setattr(snowballstemmer, "stemmer", {language.lower(): in_python()}.__getitem__)
    assert in_c.terms == Analyzer(stems).batch(texts).terms


def test_words_are_remembered_up_to_a_bound(monkeypatch):
    monkeypatch.setattr(analyzers, "_MOST_KNOWN", 10)
    analyzer = Analyzer(TextOptions(stem=False))
    for first in range(0, 40, 4):
        texts = pa.array([f"Word{number} the WÖRD{number} word{number}" for number in range(first, first + 4)])
        tokens = analyzer.batch(texts)
        assert [tokens.terms[code] for code in tokens.codes.tolist()] == [
            word for number in range(first, first + 4) for word in (f"word{number}",) * 3
        ]
        assert tokens.owners.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
        assert tokens.positions.tolist() == [0, 2, 3] * 4
    many = analyzer.batch(pa.array([f"word{number}" for number in range(100)]))
    assert many.terms == [f"word{number}" for number in range(100)]
