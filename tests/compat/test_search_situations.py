"""Each kind of index for searches, on branches, in clones, after a deferred remap and after updates of stable ids."""

import json
import random

import lance
import lance.query as their_queries
import numpy as np
import pyarrow as pa
import pytest

import lance_core
import lance_core.query as our_queries

pytestmark = pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")

ROWS, SIZE = 200, 8
PARTS = {"num_sub_vectors": 4, "num_bits": 4}
NEAREST = {"column": "v", "q": [0.3, -0.2] * (SIZE // 2), "k": 20, "nprobes": 4, "refine_factor": 20}
WORDS = [f"w{number}" for number in range(20)]
BASE = " ".join(random.Random(0).choices(WORDS, k=40))
KINDS = {
    "flat": ("v", "IVF_FLAT", {}),
    "pq": ("v", "IVF_PQ", PARTS),
    "sq": ("v", "IVF_SQ", {}),
    "graph": ("v", "IVF_HNSW_SQ", {}),
    "rabit": ("v", "IVF_RQ", {}),
    "text": ("t", "INVERTED", {"with_position": True}),
    "lists": ("l", "INVERTED", {"with_position": True}),
    "json": ("j", "INVERTED", {"with_position": True}),
    "near duplicates": ("d", "MINHASHLSH", {}),
}
OF_PYLANCE = ("graph", "rabit")


def rows(first, count):
    """Return rows, some without a vector or with one that is no number, some without a text."""
    rng = np.random.default_rng(first)
    vectors = rng.normal(size=(count, SIZE)).astype(np.float32).tolist()
    texts = [" ".join(rng.choice(WORDS, 6)) for _ in range(count)]
    documents = [json.dumps({"s": text, "n": {"k": int(number)}}) for number, text in enumerate(texts)]
    near = [
        " ".join([*BASE.split()[: 40 - number % 9], *texts[number].split()[: number % 9]]) for number in range(count)
    ]
    vectors[3], vectors[7], texts[5], documents[6], near[8] = None, [float("nan")] * SIZE, None, None, None
    return pa.table(
        {
            "id": range(first, first + count),
            "v": pa.array(vectors, pa.list_(pa.float32(), SIZE)),
            "t": texts,
            "l": [None if text is None else text.split() for text in texts],
            "j": pa.array(documents, pa.json_()),
            "d": near,
        }
    )


def searches(kind, queries):
    """Return the arguments of searches that an index answers, and the column with their order."""
    column = KINDS[kind][0]
    if column == "v":
        return [{"nearest": NEAREST}, {"nearest": NEAREST, "filter": "id % 3 = 0", "prefilter": True}], "_distance"
    if column == "d":
        return [{"nearest": queries.MinHashQuery(BASE, "d"), "limit": 1000}], "_distance"
    texts = ("s,str,w3;s,str,w9", "n.k,number,12") if column == "j" else ("w3 w9", "w5")
    phrase = queries.PhraseQuery("s,str,w3 w9" if column == "j" else "w3 w9", column)
    return [{"full_text_query": query} for query in (*(queries.MatchQuery(text, column) for text in texts), phrase)], (
        "_score"
    )


def found(dataset, asked, order):
    table = dataset.to_table(columns=["id", order], **asked)
    return dict(zip(table["id"].to_pylist(), table[order].to_pylist(), strict=True))


def assert_same(kind, ours, theirs):
    """Searches by index are those of pylance; for vectors also those without an index."""
    asked, order = searches(kind, our_queries)
    for mine, other in zip(asked, searches(kind, their_queries)[0], strict=True):
        here, there = found(ours, mine, order), found(theirs, other, order)
        assert here
        assert here == pytest.approx(there, abs=3e-5)
        if KINDS[kind][0] == "v":
            exact = found(ours, {**mine, "nearest": {**NEAREST, "use_index": False}}, order)
            assert here == pytest.approx(exact, abs=3e-5)


def make(uri, kind, builder, table=None, **settings):
    column, index_type, options = KINDS[kind]
    table = rows(0, ROWS) if table is None else table
    lance.write_dataset(table, uri, max_rows_per_file=100, data_storage_version="2.2", **settings)
    dataset = builder.dataset(uri)
    if column == "v":
        dataset.create_index("v", index_type, num_partitions=4, **options)
    else:
        dataset.create_scalar_index(column, index_type, **options)


def go_on(kind, builder, opened):
    """Change a branch or clone, and search it after each change."""

    def check():
        assert_same(kind, opened(lance_core), opened(lance))

    check()
    opened(lance_core).insert(rows(1000, 60))
    opened(lance).delete("id % 9 = 2")
    check()
    opened(builder).optimize.optimize_indices(num_indices_to_merge=0)
    assert len(opened(lance_core).snapshot.manifest.indices) == 2
    check()
    opened(lance_core).optimize.compact_files()
    check()
    assert opened(lance_core).verify(level="indices").is_ok


CASES = [
    (kind, builder) for kind in KINDS for builder in (lance, lance_core) if builder is lance or kind not in OF_PYLANCE
]


@pytest.mark.parametrize(("kind", "builder"), CASES)
def test_indices_go_on_on_a_branch(tmp_path, kind, builder):
    uri = str(tmp_path / "t")
    make(uri, kind, builder)
    lance_core.dataset(uri).create_branch("other")

    def opened(library):
        return library.dataset(uri).checkout_version(("other", None))

    go_on(kind, builder, opened)
    assert_same(kind, lance_core.dataset(uri), lance.dataset(uri))
    assert lance_core.dataset(uri).count_rows() == ROWS


@pytest.mark.parametrize("cloner", [lance, lance_core])
@pytest.mark.parametrize(("kind", "builder"), CASES)
def test_indices_go_on_in_a_shallow_clone(tmp_path, kind, builder, cloner):
    uri, clone = str(tmp_path / "t"), str(tmp_path / "clone")
    make(uri, kind, builder)
    cloner.dataset(uri).shallow_clone(clone, cloner.dataset(uri).version)
    go_on(kind, builder, lambda library: library.dataset(clone))
    assert_same(kind, lance_core.dataset(uri), lance.dataset(uri))
    assert lance_core.dataset(uri).count_rows() == ROWS


@pytest.mark.parametrize(("kind", "builder"), CASES)
def test_rows_are_found_after_a_compaction_that_defers_the_remap(tmp_path, kind, builder):
    uri = str(tmp_path / "t")
    make(uri, kind, builder)
    lance.dataset(uri).delete("id % 9 = 2")
    lance_core.dataset(uri).optimize.compact_files(defer_index_remap=True)
    ours = lance_core.dataset(uri)
    assert ours.snapshot.manifest.fragments.ids.tolist() == [2]
    if kind == "graph":
        with pytest.raises(pa.ArrowInvalid, match="HNSW graph has"):
            lance.dataset(uri).to_table(nearest=NEAREST)
        return assert_same(kind, ours, ours)
    assert_same(kind, ours, lance.dataset(uri))
    ours.optimize.optimize_indices()
    return assert_same(kind, lance_core.dataset(uri), lance.dataset(uri))


@pytest.mark.parametrize(("kind", "builder"), CASES)
def test_rows_with_stable_ids_are_found_by_what_they_hold_after_an_update(tmp_path, kind, builder):
    """pylance 14.0.2 also finds them by what they held before, so that a table that never held it is the judge."""
    uri, other = str(tmp_path / "t"), str(tmp_path / "other")
    make(uri, kind, builder, enable_stable_row_ids=True)
    changed = rows(500, 40).set_column(0, "id", pa.array(range(20, 60)))
    lance_core.dataset(uri).merge_insert("id").when_matched_update_all().execute(changed)
    for _ in range(2):
        ours = lance_core.dataset(uri)
        make(other, kind, builder, ours.to_table().sort_by("id"), mode="overwrite")
        asked, order = searches(kind, our_queries)
        for each in asked:
            here, there = (found(dataset, each, order) for dataset in (ours, lance_core.dataset(other)))
            assert here.keys() == there.keys() != set()
            if order == "_distance":  # scores depend on the texts that a segment has
                assert here == pytest.approx(there, abs=3e-5)
        ours.optimize.optimize_indices()
    assert lance_core.verify(uri, level="indices").is_ok
