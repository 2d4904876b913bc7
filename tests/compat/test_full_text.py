"""Full-text searches of both libraries give the same rows and scores, on indices that either of them built."""

import random
from functools import partial
from pathlib import Path

import lance
import lance.query as their_queries
import pyarrow as pa
import pytest

import lance_core
import lance_core.query as our_queries
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.format.index.inverted_index import LANGUAGES, TextOptions, text_options
from lance_core.index.text.analyzer import Analyzer
from lance_core.index.text.characters import stop_words

pytestmark = [
    pytest.mark.filterwarnings("ignore:The 'list_indices' method is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning"),
]

VOCABULARY = [f"w{number:02d}" for number in range(40)] + ["Straße", "naïve", "running", "runs", "the", "of", "ΣΑΣ"]
RARITY = [1 / (number + 1) for number in range(len(VOCABULARY))]
COLUMNS = ("t", "u")


def texts(rng, count):
    return [
        None if rng.random() < 0.03 else " ".join(rng.choices(VOCABULARY, RARITY, k=rng.randint(0, 25)))
        for _ in range(count)
    ]


def rows(rng, count, first=0):
    table = {"id": range(first, first + count), "t": texts(rng, count), "u": texts(rng, count)}
    return pa.table(table, pa.schema([("id", pa.int64()), ("t", pa.string()), ("u", pa.string())]))


def random_query(rng, queries, *, is_fuzzy, depth=0):
    """Return a query of one of both libraries; the same state of the generator makes the same one."""
    operators = [queries.FullTextOperator.AND, queries.FullTextOperator.OR]
    part = partial(random_query, rng, queries, is_fuzzy=is_fuzzy, depth=depth + 1)
    kind, column, words = rng.random(), rng.choice(COLUMNS), " ".join(rng.choices(VOCABULARY, k=rng.randint(1, 3)))
    if kind < 0.3 or depth > 1:
        return queries.MatchQuery(words, column, operator=rng.choice(operators), boost=rng.choice([1.0, 2.5]))
    if kind < 0.5:
        fuzzy = {"fuzziness": rng.choice([1, 2]), "prefix_length": rng.randint(0, 2)} if is_fuzzy else {}
        return queries.MatchQuery(
            words, column, max_expansions=rng.choice([3, 50]), operator=rng.choice(operators), **fuzzy
        )
    if kind < 0.65:
        return queries.PhraseQuery(words, column, slop=rng.choice([0, 1, 3]))
    if kind < 0.7:
        return queries.CombinedFieldsQuery(
            words, list(COLUMNS), boosts=rng.choice([None, [1.5, 2.0]]), operator=rng.choice(operators)
        )
    if kind < 0.77:
        return queries.MultiMatchQuery(words, list(COLUMNS), boosts=rng.choice([None, [1.0, 2.0]]))
    if kind < 0.85:
        return queries.BoostQuery(part(), part(), negative_boost=0.4)
    others = [queries.Occur.SHOULD, queries.Occur.MUST_NOT, queries.Occur.MUST]
    return queries.BooleanQuery([(queries.Occur.MUST, part())] + [(rng.choice(others), part()) for _ in range(2)])


def scores(dataset, query, **options):
    found = dataset.to_table(columns=["id", "_score"], full_text_query=query, **options).to_pylist()
    return {row["id"]: row["_score"] for row in found}


def same(uri, seed, count, *, is_fuzzy=True, **options):
    ours, theirs = lance_core.dataset(uri), lance.dataset(uri)
    found = 0
    for number in range(count):
        here = scores(ours, random_query(random.Random(seed + number), our_queries, is_fuzzy=is_fuzzy), **options)
        there = scores(theirs, random_query(random.Random(seed + number), their_queries, is_fuzzy=is_fuzzy), **options)
        assert here == pytest.approx(there, abs=3e-5)
        assert list(here.values()) == sorted(here.values(), reverse=True)
        found += len(here)
    assert found


def index(dataset, **options):
    for column in COLUMNS:
        dataset.create_scalar_index(column, "INVERTED", with_position=True, **options)


@pytest.mark.parametrize("builder", [lance, lance_core])
def test_searches_agree_through_the_life_of_a_table(tmp_path: Path, builder):
    rng = random.Random(3)
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(rng, 500), uri, max_rows_per_file=150)
    index(builder.dataset(uri))
    same(uri, 0, 25)
    lance.dataset(uri).delete("id % 7 = 3")
    same(uri, 100, 8)
    lance_core.write_dataset(rows(rng, 120, 1000), uri, mode="append")
    same(uri, 200, 12, is_fuzzy=False)  # pylance looks for near words in indices only
    builder.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    assert len(lance.dataset(uri).list_indices()) == 4
    same(uri, 300, 12)
    builder.dataset(uri).optimize.optimize_indices(num_indices_to_merge=5)
    assert len(lance.dataset(uri).list_indices()) == 2
    same(uri, 400, 12)
    lance.dataset(uri).update({"t": "'w00 fox'"}, where="id % 11 = 5")
    same(uri, 500, 8, is_fuzzy=False)
    builder.dataset(uri).optimize.compact_files(target_rows_per_fragment=1000)
    same(uri, 600, 8, is_fuzzy=False)


def test_partitions_of_small_memory_are_searched_as_one_index(tmp_path: Path):
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(random.Random(4), 400), uri, max_rows_per_file=100)
    index(lance_core.dataset(uri), max_memory_bytes=10_000)
    assert len(list(tmp_path.glob("t/_indices/*/part_*_docs.lance"))) > 4
    same(uri, 0, 20)
    merged = lance_core.dataset(uri)
    merged.optimize.compact_files()
    same(uri, 50, 5)


def test_stable_row_ids_are_found_after_compaction(tmp_path: Path):
    rng, uri = random.Random(5), str(tmp_path / "t")
    lance.write_dataset(rows(rng, 300), uri, max_rows_per_file=60, enable_stable_row_ids=True)
    index(lance_core.dataset(uri))
    lance_core.dataset(uri).delete("id % 3 = 0")
    lance_core.dataset(uri).optimize.compact_files()
    same(uri, 0, 15)
    lance_core.dataset(uri).update({"t": "'w00 fox'"}, where="id % 11 = 5")
    same(uri, 40, 10, is_fuzzy=False)


@pytest.mark.parametrize("prefilter", [True, False])
def test_filters_limits_and_columns_as_pylance(tmp_path: Path, prefilter):
    rng, uri = random.Random(6), str(tmp_path / "t")
    lance.write_dataset(rows(rng, 300), uri, max_rows_per_file=100)
    index(lance_core.dataset(uri))
    lance_core.write_dataset(rows(rng, 50, 400), uri, mode="append")
    same(uri, 0, 10, is_fuzzy=False, filter="id % 2 = 0", prefilter=prefilter)
    ours, theirs = lance_core.dataset(uri), lance.dataset(uri)
    for options in (
        {"limit": 5},
        {"limit": 5, "offset": 2},
        {"limit": 8, "filter": "id % 2 = 0", "prefilter": prefilter},
        {"limit": 9, "offset": 1, "filter": "id % 2 = 0", "prefilter": prefilter},
        {"limit": 4, "fast_search": True},
    ):
        found = [scores(dataset, "w03 w07 w11 naive", **options) for dataset in (ours, theirs)]
        assert list(found[0].values()) == pytest.approx(list(found[1].values()), abs=3e-5)
    for options in (
        {"columns": ["id"], "with_row_id": True},
        {"columns": ["_score", "id"], "with_row_address": True},
        {"columns": {"x": "id + 1"}},
        {"columns": []},
        {},
        {"columns": ["id"], "order_by": ["id"], "limit": 6},
        {"columns": ["id"], "filter": "_score > 1.0", "limit": 6},
    ):
        query = {"query": "w03 w07 w11 naive", "columns": ["t"]}
        found = [dataset.to_table(full_text_query=query, **options) for dataset in (ours, theirs)]
        assert found[0].schema == found[1].schema
        assert found[0].num_rows == found[1].num_rows
    assert ours.scanner(full_text_query="w03").count_rows() == theirs.scanner(full_text_query="w03").count_rows()
    builder = lance_core.scanner.ScannerBuilder(ours).full_text_search("w03", columns=["u"]).limit(3)
    assert builder.to_scanner().to_table().num_rows == 3


TOKENIZERS = [
    {},
    {"stem": False, "remove_stop_words": False},
    {"base_tokenizer": "whitespace", "language": "German"},
    {"base_tokenizer": "raw", "max_token_length": None},
    {"base_tokenizer": "ngram"},
    {"base_tokenizer": "ngram", "min_ngram_length": 2, "max_ngram_length": 4, "prefix_only": True, "stem": True},
    {"custom_stop_words": ["foo", "Bar"], "max_token_length": 6},
    {"lower_case": False, "ascii_folding": False},
]
PIECES = [
    "The ",
    "Fox",
    "Straße",
    "e\u0301",
    "ΣΑΣ",
    "İ",
    "\u2163",
    "中文",
    "\U0001d415",
    "हिन्दी",
    "don't",
    "--",
    "\u00a0",
    "  ",
]
PIECES += ["\n", "foo", "bar", "Bar", "x" * 40, "runnings", "å", "٣", "²", "_", "\uff46\uff55ll", "\U0001f600"]


@pytest.mark.parametrize("options", TOKENIZERS, ids=str)
def test_texts_become_the_same_words(options):
    rng = random.Random(7)
    analyzer = Analyzer(text_options(options))
    for _ in range(150):
        text = "".join(rng.choices(PIECES, k=rng.randint(0, 8)))
        found = analyzer.tokens(text)
        expected = [(token.text, token.position) for token in lance.tokenize(text, **options)]
        first = found[0][1] if found else 0
        assert [(word, position - first) for word, position in found] == expected, text


@pytest.mark.parametrize("language", LANGUAGES)
def test_stems_and_stop_words_of_word_lists(language):
    """The stop words of all languages are words that inflect, and none is unknown to its own language."""
    words = [*sorted(stop_words(language)), *sorted(stop_words("English"))[::5], "universities", "internationalement"]
    plain = {"base_tokenizer": "raw", "language": language, "ascii_folding": False, "max_token_length": None}
    for remove in (False, True):
        analyzer = Analyzer(TextOptions(remove_stop_words=remove, **plain))
        expected = [[token.text for token in lance.tokenize(word, remove_stop_words=remove, **plain)] for word in words]
        assert [[stem for stem, _ in analyzer.tokens(word)] for word in words] == expected


def test_tables_without_an_index_are_searched_row_by_row(tmp_path: Path):
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(random.Random(8), 200), uri)
    ours, theirs = lance_core.dataset(uri), lance.dataset(uri)
    query = {"query": "w03 running", "columns": ["t"]}
    assert scores(ours, query) == pytest.approx(scores(theirs, query), abs=3e-5)
    with pytest.raises(InvalidInputError, match="no column has a full-text index"):
        ours.to_table(full_text_query="w03")


def test_what_cannot_be_searched_is_refused_by_name(tmp_path: Path):
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(random.Random(9), 50), uri)
    dataset = lance_core.dataset(uri)
    for tokenizer in ("jieba/default", "lindera/ipadic", "icu"):
        with pytest.raises(UnsupportedError, match=tokenizer):
            dataset.create_scalar_index("t", "FTS", base_tokenizer=tokenizer)
    with pytest.raises(InvalidInputError, match="'language' must be one of"):
        dataset.create_scalar_index("t", "INVERTED", language="Klingon")
    with pytest.raises(UnsupportedError, match="int64"):
        dataset.create_scalar_index("id", "INVERTED")
    lance.dataset(uri).create_scalar_index("t", "INVERTED", base_tokenizer="icu")
    with pytest.raises(UnsupportedError, match="icu"):
        lance_core.dataset(uri).to_table(full_text_query="w03")
    lance_core.write_dataset(rows(random.Random(9), 5), uri, mode="append")
    lance_core.dataset(uri).optimize.optimize_indices()  # leaves it to pylance
    lance_core.dataset(uri).create_scalar_index("u", "FTS")
    with pytest.raises(InvalidInputError, match="has no positions"):
        lance_core.dataset(uri).to_table(full_text_query=our_queries.PhraseQuery("w03 w01", "u"))
    with pytest.raises(InvalidInputError, match="full-text searches need texts"):
        lance_core.dataset(uri).to_table(full_text_query=our_queries.MatchQuery("w03", "id"))
    with pytest.raises(InvalidInputError, match="must be text, a query"):
        lance_core.dataset(uri).to_table(full_text_query=3)


@pytest.mark.parametrize("text", ['"w03 w01"', '"w03" w01', '"w03 "w01"', ' "w03 w01"', '"w03 w01', '""'])
def test_text_in_double_quotes_is_a_phrase(tmp_path: Path, text):
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(random.Random(13), 400), uri)
    lance_core.dataset(uri).create_scalar_index("t", "INVERTED", with_position=True)
    for query in (text, {"query": text, "columns": ["t"]}):
        found = [scores(dataset, query) for dataset in (lance_core.dataset(uri), lance.dataset(uri))]
        assert found[0] == pytest.approx(found[1], abs=3e-5)
    assert (len(found[0]) < 100) == (text[0] == text[-1] == '"')
    lance_core.dataset(uri).create_scalar_index("u", "INVERTED", with_position=True)
    if text[0] == text[-1] == '"':
        with pytest.raises(InvalidInputError, match="searched in one column, not in t, u"):
            lance_core.dataset(uri).to_table(full_text_query=text)


def test_searches_follow_compactions_that_defer_the_remap(tmp_path: Path):
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(random.Random(10), 200), uri, max_rows_per_file=50)
    index(lance_core.dataset(uri))
    lance_core.dataset(uri).delete("id % 4 = 1")
    lance_core.dataset(uri).optimize.compact_files(defer_index_remap=True)
    same(uri, 0, 8)
    lance_core.dataset(uri).optimize.optimize_indices()
    same(uri, 50, 4)


def test_an_audit_finds_words_that_a_row_does_not_have(tmp_path: Path):
    uri = str(tmp_path / "t")
    table = lance_core.write_dataset(rows(random.Random(11), 120), uri)
    index(table)
    assert lance_core.verify(uri, level="indices").is_ok
    segment = next(tmp_path.glob("t/_indices/*/part_0_docs.lance")).parent
    other = lance_core.write_dataset(rows(random.Random(12), 120), tmp_path / "other")
    index(other)
    wrong = next((tmp_path / "other").glob("_indices/*/part_0_docs.lance")).parent
    for path in segment.iterdir():
        path.write_bytes((wrong / path.name).read_bytes())
    assert not lance_core.verify(uri, level="indices").is_ok


@pytest.mark.parametrize("writers", [(lance, lance_core), (lance_core, lance), (lance_core, lance_core)])
def test_pylance_merges_segments_that_either_library_wrote(tmp_path, writers):
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(random.Random(9), 50), uri)
    writers[0].dataset(uri).create_scalar_index("t", "INVERTED")
    lance.write_dataset(rows(random.Random(10), 20), uri, mode="append")
    writers[1].dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    assert len(lance_core.dataset(uri).describe_indices()[0].segments) == 2
    before = lance_core.dataset(uri).to_table(full_text_query="w03 w01")
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=2)
    merged = lance_core.dataset(uri)
    assert len(merged.describe_indices()[0].segments) == 1
    assert scores(merged, "w03 w01") == pytest.approx(scores(lance.dataset(uri), "w03 w01"), abs=3e-5)
    assert merged.to_table(full_text_query="w03 w01")["_score"].to_pylist() == pytest.approx(
        before["_score"].to_pylist()
    )
    assert merged.verify(level="indices").is_ok


def test_phrases_with_slop_are_found_where_pylance_misses_some(tmp_path: Path):
    """Each word may be so far behind the word before; pylance 14.0.2 does not try all places of a word."""
    uri = str(tmp_path / "t")
    lance.write_dataset(pa.table({"id": [0, 1], "t": ["w02 w08 w02 fox w02", "w02 w02 w02"]}), uri)
    lance_core.dataset(uri).create_scalar_index("t", "INVERTED", with_position=True)
    for slop, ours in ((0, {1}), (1, {0, 1})):
        assert scores(lance_core.dataset(uri), our_queries.PhraseQuery("w02 w02 w02", "t", slop=slop)).keys() == ours
        theirs = scores(lance.dataset(uri), their_queries.PhraseQuery("w02 w02 w02", "t", slop=slop))
        assert theirs.keys() == {1}
