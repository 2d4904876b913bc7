"""Indices of all kinds, built in Spark's tasks as several segments: pylance answers from them, and so do we."""

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import AlreadyExistsError, InvalidInputError
from lance_core.spark import LanceTable, create_index_lance

pytestmark = pytest.mark.spark

ROWS = 400
CONDITIONS = {
    "BTREE": ("k", "k IN (3, 250, 377)"),
    "BITMAP": ("b", "b = 3 OR b IS NULL"),
    "LABEL_LIST": ("l", "array_has(l, 'e2')"),
    "NGRAM": ("t", "contains(t, 'word7')"),
    "BLOOMFILTER": ("k", "k = 312"),
    "ZONEMAP": ("k", "k < 120"),
}


@pytest.fixture(scope="module")
def uri(tmp_path_factory):
    numbers = range(ROWS)
    vectors = np.random.default_rng(0).normal(size=(ROWS, 8)).astype(np.float32)
    columns = {
        "k": pa.array([None if i % 50 == 7 else i for i in numbers]),
        "b": pa.array([None if i % 90 == 1 else i % 7 for i in numbers]),
        "l": pa.array([None if i % 80 == 2 else [f"e{i % 5}", "x"] for i in numbers]),
        "t": pa.array([f"word{i % 11} tail" for i in numbers]),
        "id": pa.array(numbers),
        "v": pa.FixedSizeListArray.from_arrays(vectors.ravel(), 8),
    }
    uri = str(tmp_path_factory.mktemp("kinds") / "t")
    lance.write_dataset(pa.table(columns), uri, max_rows_per_file=100)
    lance.dataset(uri).delete("id % 40 = 9")
    return uri


def segments(uri, name):
    dataset = lance_core.dataset(uri)
    return [index for index in dataset.snapshot.manifest.indices if index.name == name]


@pytest.mark.parametrize("kind", CONDITIONS)
def test_conditions_are_answered(spark, uri, kind):
    column, condition = CONDITIONS[kind]
    create_index_lance(spark, uri, column, kind, name=kind)
    assert len(segments(uri, kind)) > 1
    expected = lance.dataset(uri).to_table(["id"], filter=condition, use_scalar_index=False)["id"].to_pylist()
    assert expected
    for library in (lance, lance_core):
        assert sorted(library.dataset(uri).to_table(["id"], filter=condition)["id"].to_pylist()) == expected
    assert "ScalarIndexQuery" in lance.dataset(uri).scanner(filter=condition).explain_plan()
    assert f"index: {kind}" in lance_core.dataset(uri).scanner(filter=condition).explain_plan()
    assert lance_core.verify(uri, level="indices").is_ok
    lance_core.dataset(uri).drop_index(kind)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("IVF_FLAT", {"metric": "cosine", "num_partitions": 4}),
        ("IVF_PQ", {"num_partitions": 2, "num_sub_vectors": 4, "sample_rate": 100}),
        ("IVF_SQ", {"num_partitions": 2}),
    ],
)
def test_vectors_are_found_by_one_model(spark, uri, kind, options):
    create_index_lance(spark, uri, "v", kind, name="v_idx", index_options=options)
    assert len(segments(uri, "v_idx")) > 1
    query = lance_core.dataset(uri).take([7], columns=["v"])["v"][0].as_py()
    nearest = {"column": "v", "q": query, "k": 5, "nprobes": 4, "refine_factor": 20}
    found = [
        library.dataset(uri).to_table(["id"], nearest=nearest)["id"].to_pylist() for library in (lance, lance_core)
    ]
    assert found[0] == found[1]
    assert found[0][0] == 7
    assert lance_core.verify(uri, level="indices").is_ok
    assert lance_core.dataset(uri).optimize.optimize_indices(index_names=["v_idx"]) == ["v_idx"]
    assert len(segments(uri, "v_idx")) == 1


def test_texts_are_ranked_by_all_segments_together(spark, uri):
    create_index_lance(spark, uri, "t", "INVERTED", index_options={"with_position": True, "stem": False})
    assert len(segments(uri, "t_idx")) > 1
    tables = [
        library.dataset(uri).to_table(["id"], full_text_query="word7 tail", limit=20) for library in (lance, lance_core)
    ]
    scores = [sorted(table["_score"].to_pylist()) for table in tables]
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-5)
    assert lance_core.dataset(uri).to_table(filter="id = 7", full_text_query='"word7 tail"').num_rows == 1


def test_a_table_takes_all_options_of_an_index(spark, uri):
    table = LanceTable.for_path(spark, uri)
    table.create_index("k", "ZONEMAP", name="zones", rows_per_zone=50, fragment_ids=[0, 2])
    table.create_index("k", "BLOOMFILTER", name="filters", number_of_items=40, train=False)
    options = {"memory_limit": 64, "num_workers": 1, "block_size": 128, "with_position": True}
    table.create_index("t", "FTS", name="words", index_options=options)
    table.create_index("v", "IVF_FLAT", name="vectors", index_options={"metric": "dot", "num_partitions": 2})
    dataset = lance_core.dataset(uri)
    described = {index.name: index for index in dataset.describe_indices()}
    covered = {
        name: {number for part in index.segments for number in part.fragment_ids} for name, index in described.items()
    }
    assert (covered["zones"], covered["filters"]) == ({0, 2}, set())
    assert covered["words"] == covered["vectors"] == {0, 1, 2, 3}
    assert {part["rows_per_zone"] for part in dataset.index_statistics("zones")["segments"]} == {50}
    assert {part["metric_type"] for part in dataset.index_statistics("vectors")["segments"]} == {"dot"}
    assert lance.dataset(uri).count_rows("k < 120") == dataset.count_rows("k < 120")
    with pytest.raises(InvalidInputError, match="no fragments"):
        table.create_index("k", "BTREE", fragment_ids=[77])
    for name in ("zones", "filters", "words", "vectors"):
        dataset.drop_index(name)


def test_what_cannot_be_built_is_refused_before_any_task_runs(spark, uri):
    create_index_lance(spark, uri, "k", "BTREE", name="taken")
    for options, error in (
        ({"index_type": "BTREE", "index_options": {"metric": "l2"}}, InvalidInputError),
        ({"index_type": "BTREE", "name": "taken", "replace": False}, AlreadyExistsError),
        ({"index_type": "IVF_PQ", "column": "v"}, InvalidInputError),
    ):
        with pytest.raises(error):
            create_index_lance(spark, uri, **{"column": "k", **options})
