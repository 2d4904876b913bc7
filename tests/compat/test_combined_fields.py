"""Searches of several columns as one text give the rows and scores of pylance."""

import itertools
import random
from pathlib import Path

import lance
import lance.query as their_queries
import pyarrow as pa
import pytest

import lance_core
import lance_core.query as our_queries
from lance_core.errors import InvalidInputError

pytestmark = pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")

WORDS = ["red", "green", "blue", "apple", "apples", "car", "cars", "running", "the", "of"]
COLUMNS = ["title", "text", "meta.note"]
SEARCHES = list(
    itertools.product(
        ["apple", "red car", "the cars running", "blue nothing", "green green", "", "the"],
        [["title", "text"], ["text", "meta.note", "title"], ["title"]],
        [None, (1.0, 2.5, 7.25)],
        ["OR", "AND"],
    )
)


def rows(rng: random.Random, count: int, first: int = 0) -> pa.Table:
    def text(most: int) -> str | None:
        return None if rng.random() < 0.2 else " ".join(rng.choices(WORDS, k=rng.randint(0, most)))

    return pa.table(
        {
            "id": range(first, first + count),
            "title": pa.array([text(3) for _ in range(count)], pa.string()),
            "text": pa.array([text(12) for _ in range(count)], pa.large_string()),
            "meta": pa.array([{"note": text(6)} for _ in range(count)], pa.struct([("note", pa.string())])),
        }
    )


def scores(dataset, queries, search, **options):
    words, columns, boosts, operator = search
    query = queries.CombinedFieldsQuery(
        words,
        columns,
        boosts=None if boosts is None else list(boosts[: len(columns)]),
        operator=queries.FullTextOperator(operator),
    )
    found = dataset.to_table(columns=["id", "_score"], full_text_query=query, **options).to_pylist()
    return {row["id"]: row["_score"] for row in found}


def same(uri, searches=SEARCHES, **options):
    ours, theirs = lance_core.dataset(uri), lance.dataset(uri)
    total = 0
    for search in searches:
        here = scores(ours, our_queries, search, **options)
        assert here == pytest.approx(scores(theirs, their_queries, search, **options), abs=1e-5), search
        assert list(here.values()) == sorted(here.values(), reverse=True)
        total += len(here)
    assert total


@pytest.mark.parametrize("builder", [lance, lance_core])
def test_scores_agree_through_the_life_of_a_table(tmp_path: Path, builder):
    rng, uri = random.Random(1), str(tmp_path / "t")
    lance.write_dataset(rows(rng, 120), uri, max_rows_per_file=50)
    for column in COLUMNS:
        builder.dataset(uri).create_scalar_index(column, "INVERTED", with_position=column == "text")
    same(uri)
    lance.dataset(uri).delete("id % 7 = 3")
    same(uri, SEARCHES[::2])
    lance_core.write_dataset(rows(rng, 40, 1000), uri, mode="append")
    same(uri, SEARCHES[1::2])
    same(uri, SEARCHES[::3], fast_search=True)
    same(uri, SEARCHES[::3], filter="id > 60", prefilter=True)
    same(uri, SEARCHES[::3], filter="id > 60")
    builder.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    same(uri, SEARCHES[::2])
    builder.dataset(uri).optimize.compact_files(target_rows_per_fragment=1000)
    same(uri, SEARCHES[1::2])


@pytest.mark.parametrize("indexed", [["title"], ["meta.note", "text"]])
def test_columns_without_an_index_have_the_words_of_the_others(tmp_path: Path, indexed):
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(random.Random(2), 90), uri, max_rows_per_file=40)
    for column in indexed:
        lance_core.dataset(uri).create_scalar_index(column, "INVERTED", stem=False)
    same(uri, [search for search in SEARCHES if len(search[1]) == 3])


def test_stable_row_ids_keep_their_lengths(tmp_path: Path):
    rng, uri = random.Random(3), str(tmp_path / "t")
    lance.write_dataset(rows(rng, 120), uri, max_rows_per_file=50, enable_stable_row_ids=True)
    for column in COLUMNS:
        lance_core.dataset(uri).create_scalar_index(column, "INVERTED")
    lance.dataset(uri).delete("id % 5 = 1")
    lance_core.dataset(uri).optimize.compact_files()
    same(uri, SEARCHES[::2])


def test_one_column_scores_as_a_match_of_distinct_words(tmp_path: Path):
    uri = str(tmp_path / "t")
    dataset = lance_core.write_dataset(rows(random.Random(4), 50), uri)
    dataset.create_scalar_index("text", "INVERTED")

    def found(query):
        table = dataset.to_table(columns=["id", "_score"], full_text_query=query)
        return dict(zip(table["id"].to_pylist(), table["_score"].to_pylist(), strict=True))

    combined = found(our_queries.CombinedFieldsQuery("red car red", ["text"]))
    assert combined == pytest.approx(found(our_queries.MatchQuery("red car", "text")), abs=1e-6)


def test_parts_of_other_queries(tmp_path: Path):
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(random.Random(5), 80), uri)
    for column in COLUMNS:
        lance_core.dataset(uri).create_scalar_index(column, "INVERTED")

    def found(library, queries):
        query = queries.CombinedFieldsQuery("red car", ["title", "text"]) & queries.MatchQuery("blue", "meta.note")
        table = library.dataset(uri).to_table(columns=["id", "_score"], full_text_query=query)
        return dict(zip(table["id"].to_pylist(), table["_score"].to_pylist(), strict=True))

    here = found(lance_core, our_queries)
    assert here
    assert here == pytest.approx(found(lance, their_queries), abs=1e-5)


@pytest.mark.parametrize(
    ("columns", "boosts", "message"),
    [
        ([], None, "at least one column"),
        (["a", "a"], None, "twice: a, a"),
        (["a", "b"], [1.0], "2 columns have 1 'boosts'"),
        (["a", "b"], [1.0, 0.5], "from 1 to 1,048,576"),
        (["a", "b"], [1.0, float("nan")], "from 1 to 1,048,576"),
        (["a", "b"], [1.0, float("inf")], "from 1 to 1,048,576"),
    ],
)
def test_wrong_columns_and_factors_are_refused_by_both(columns, boosts, message):
    with pytest.raises(InvalidInputError, match=message):
        our_queries.CombinedFieldsQuery("w", columns, boosts=boosts)
    with pytest.raises(ValueError, match="Invalid"):
        their_queries.CombinedFieldsQuery("w", columns, boosts=boosts)


def test_columns_whose_words_differ_are_refused_by_both(tmp_path: Path):
    uri = str(tmp_path / "t")
    lance.write_dataset(rows(random.Random(6), 20), uri)
    search = ("red", ["title", "text"], None, "OR")
    with pytest.raises(InvalidInputError, match="none of the columns title, text has a full-text index"):
        scores(lance_core.dataset(uri), our_queries, search)
    with pytest.raises(Exception, match="requires an inverted index"):
        scores(lance.dataset(uri), their_queries, search)
    lance_core.dataset(uri).create_scalar_index("title", "INVERTED")
    lance_core.dataset(uri).create_scalar_index("text", "INVERTED", stem=False)
    with pytest.raises(InvalidInputError, match="title, text have different options"):
        scores(lance_core.dataset(uri), our_queries, search)
    with pytest.raises(Exception, match="share the same tokenizer"):
        scores(lance.dataset(uri), their_queries, search)
