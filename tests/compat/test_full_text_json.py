"""Full-text indices over JSON: both libraries find the same rows, with the same scores, in either's index."""

import json
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

WORDS = ["red", "Foxes", "the", "running dogs", "Straße, naïve", "a\nb", "", "quick fox", "5", "null"]
SPECIAL = [
    '"a quick fox"',
    "5",
    "true",
    '["red", [["fox"]], {"": 1}]',
    '{"": {"x": {"": "red"}}, "n": 1e400}',
    '{"c,d": "red", "a.b": "fox", "K\u00e9y Red": "v"}',
    '{"n": [1, -2.50, 1e10, 1e300, 12345678901234567890, 0.00001, -1.5e-5, 1e-6, -0.0, 0, 3.0]}',
    '{"s": "' + "y" * 39 + " " + "z" * 40 + '"}',
    "{}",
    "[]",
    '{"s": null}',
]
QUERIES = [
    "s,str,red",
    "s,str,Quick foxes",
    "s,str,running, dogs",
    "s,str,the",
    "t.u,str,fox",
    "t.u,str,red;s,str,red",
    "t.v,number,3",
    "t.v,number,3.0",
    "s,null,null",
    "b,bool,true",
    "b,bool,TRUE",
    ",str,fox",
    ",number,5",
    "c,str,red",
    "a.b,str,fox",
    "n,number,0.00001",
    "n,number,1e+300",
    "nothing,str,red",
    "s,number,5",
    "s,str,",
]


def rows(seed: int, count: int, first: int = 0) -> pa.Table:
    rng = random.Random(seed)

    def value(depth: int = 0):
        kind = rng.random()
        if kind < 0.5 or depth > 1:
            return " ".join(rng.choices(WORDS, k=rng.randint(0, 4)))
        if kind < 0.6:
            return [value(depth + 1) for _ in range(rng.randint(0, 3))]
        return rng.choice([None, True, False, 3, 3.0, -0.25, 10**15, {"x": "red"}])

    documents = [
        None
        if rng.random() < 0.1
        else json.dumps(
            {"s": value(), "t": {"u": value(), "v": rng.choice([3, 3.0, 4])}, "b": rng.choice([True, False, "true"])}
        )
        for _ in range(count)
    ]
    documents[: len(SPECIAL)] = SPECIAL[:count]
    return pa.table({"id": range(first, first + count), "j": pa.array(documents, pa.json_())})


def found(library, uri, query, **options):
    table = library.dataset(uri).to_table(columns=["id", "_score"], full_text_query=query, **options)
    return dict(zip(table["id"].to_pylist(), table["_score"].to_pylist(), strict=True))


def same(uri, make, **options):
    here = found(lance_core, uri, make(our_queries), **options)
    assert here == pytest.approx(found(lance, uri, make(their_queries), **options), abs=3e-5)
    return len(here)


def same_searches(uri):
    total = 0
    for text in QUERIES:
        total += same(uri, lambda queries, text=text: queries.MatchQuery(text, "j"))
        total += same(
            uri, lambda queries, text=text: queries.MatchQuery(text, "j", operator=queries.FullTextOperator.AND)
        )
    assert total > 0


def written(uri, table, **options):
    lance.write_dataset(table, uri, max_rows_per_file=40, data_storage_version="2.2", **options)


@pytest.mark.parametrize("builder", [lance, lance_core])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"base_tokenizer": "whitespace", "stem": False, "lower_case": False},
        {"base_tokenizer": "raw", "max_token_length": None},
        {"base_tokenizer": "ngram"},
        {"remove_stop_words": False, "ascii_folding": False},
    ],
)
def test_words_of_documents_are_those_of_pylance(tmp_path: Path, builder, options):
    uri = str(tmp_path / "t")
    written(uri, rows(1, 100))
    builder.dataset(uri).create_scalar_index("j", "INVERTED", with_position=True, **options)
    same_searches(uri)
    assert lance_core.verify(uri, level="indices").is_ok


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("builder", [lance, lance_core])
def test_documents_stay_indexed_through_changes(tmp_path: Path, builder, stable):
    uri = str(tmp_path / "t")
    written(uri, rows(2, 90), enable_stable_row_ids=stable)
    builder.dataset(uri).create_scalar_index("j", "INVERTED", with_position=True)
    lance.dataset(uri).delete("id % 7 = 3")
    lance_core.write_dataset(rows(3, 30, 1000), uri, mode="append")
    same_searches(uri)
    if not stable:  # pylance 14.0.2 also finds rows of stable ids by texts that they had before an update
        changed = lance_core.dataset(uri).to_table(["id"], filter="id % 13 = 5")["id"]
        documents = pa.array(['{"s": "red", "b": true}'] * len(changed), pa.json_())
        merge = lance_core.dataset(uri).merge_insert("id").when_matched_update_all()
        merge.execute(pa.table({"id": changed, "j": documents}))
        same_searches(uri)
    for num_merged in (0, 5):
        builder.dataset(uri).optimize.optimize_indices(num_indices_to_merge=num_merged)
        same_searches(uri)
    builder.dataset(uri).optimize.compact_files()
    same_searches(uri)
    assert lance_core.verify(uri, level="indices").is_ok


@pytest.mark.parametrize("builder", [lance, lance_core])
def test_phrases_near_words_and_other_queries(tmp_path: Path, builder):
    uri = str(tmp_path / "t")
    written(uri, rows(4, 120))
    builder.dataset(uri).create_scalar_index("j", "INVERTED", with_position=True)
    total = 0
    for text in ("s,str,quick fox", "s,str,the red the fox", "t.u,str,running dogs", "s,str,fox", "b,bool,true"):
        for slop in (0, 2):
            total += same(uri, lambda queries, text=text, slop=slop: queries.PhraseQuery(text, "j", slop=slop))
    for text in ("s,str,quik", "t,str,red", "s,str,rd fx", "t.u,str,dgo", "n,number,1", "s,str,Red"):
        for distance, prefix in ((1, 0), (2, 0), (2, 1), (2, 20)):
            total += same(
                uri,
                lambda queries, text=text, distance=distance, prefix=prefix: queries.MatchQuery(
                    text, "j", fuzziness=distance, prefix_length=prefix
                ),
            )
    total += same(uri, lambda queries: queries.MultiMatchQuery("s,str,red", ["j"]))
    total += same(uri, lambda queries: queries.CombinedFieldsQuery("s,str,red;t.u,str,red", ["j"]))
    total += same(uri, lambda queries: queries.MatchQuery("s,str,red", "j") & queries.MatchQuery("t.v,number,3", "j"))
    total += same(uri, lambda _: "s,str,red")
    total += same(uri, lambda _: '"s,str,quick fox"')
    total += same(uri, lambda queries: queries.MatchQuery("s,str,red", "j"), filter="id > 50", prefilter=True)
    assert total > 100


def test_documents_inside_structs(tmp_path: Path):
    uri = str(tmp_path / "t")
    documents = rows(5, 50)["j"].combine_chunks()
    written(uri, pa.table({"id": range(50), "s": pa.StructArray.from_arrays([documents], ["j"])}))
    lance_core.dataset(uri).create_scalar_index("s.j", "INVERTED")
    assert same(uri, lambda queries: queries.MatchQuery("s,str,red", "s.j"))


def test_without_an_index_documents_are_searched_as_text(tmp_path: Path):
    uri = str(tmp_path / "t")
    written(uri, rows(6, 50))
    assert same(uri, lambda queries: queries.MatchQuery("red", "j"))
    assert same(uri, lambda queries: queries.MatchQuery("s,str,red", "j"))


@pytest.mark.parametrize("text", ["red", "s,str", "", "s,string,red", " s , str ,red", "s,str,red;", "c,d,str,red"])
def test_words_without_path_and_type_are_refused_by_both(tmp_path: Path, text):
    uri = str(tmp_path / "t")
    written(uri, rows(7, 20))
    lance_core.dataset(uri).create_scalar_index("j", "INVERTED")
    with pytest.raises(InvalidInputError, match="give a path, a type"):
        found(lance_core, uri, our_queries.MatchQuery(text, "j"))
    with pytest.raises(Exception, match="Invalid triple"):
        found(lance, uri, their_queries.MatchQuery(text, "j"))
