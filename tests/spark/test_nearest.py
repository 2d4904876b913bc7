"""Joins of queries with their nearest vectors."""

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import InvalidInputError
from lance_core.spark import nearest_lance

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]


@pytest.fixture
def vectors(uri):
    """Forty vectors of four numbers, in three fragments."""
    vectors = np.random.default_rng(1).random((40, 4), np.float32)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), 4)
    lance_core.write_dataset(pa.table({"id": range(40), "v": column}), uri, max_rows_per_file=16)
    return vectors


@pytest.fixture
def queries(spark, vectors):
    """Three queries, of which one has no vector."""
    rows = [("a", vectors[7].tolist()), ("b", (vectors[20] + 1).tolist()), ("c", None)]
    return spark.createDataFrame(rows, "name string, q array<float>").repartition(2)


def nearest(vectors, query, allowed=slice(None)):
    distances = ((vectors - np.float32(query)) ** 2).sum(axis=1)
    order = np.arange(len(vectors))[allowed]
    return order[np.argsort(distances[order])].tolist()


def test_each_query_finds_its_nearest_rows(spark, uri, vectors, queries):
    found = nearest_lance(spark, uri, queries, column="v", query_column="q", k=3)
    assert found.columns == ["name", "q", "id", "_distance"]
    rows = found.orderBy("name", "_distance").collect()
    assert [(row.name, row.id) for row in rows] == [
        *(("a", number) for number in nearest(vectors, vectors[7])[:3]),
        *(("b", number) for number in nearest(vectors, vectors[20] + 1)[:3]),
    ]
    assert rows[0]["_distance"] == 0


def test_a_condition_and_a_version_choose_the_rows_that_are_searched(spark, uri, vectors, queries):
    lance_core.dataset(uri).delete("id < 30")
    asked = {"column": "v", "query_column": "q", "k": 1}
    first = nearest_lance(spark, uri, queries, **asked, version=1, filter="id <> 7").where("name = 'a'").first()
    assert first.id == nearest(vectors, vectors[7])[1]
    newest = nearest_lance(spark, uri, queries, **asked).where("name = 'a'").first()
    assert newest.id == nearest(vectors, vectors[7], slice(30, None))[0]


def test_queries_that_do_not_fit_are_refused(spark, uri, queries):
    with pytest.raises(InvalidInputError, match="'queries' has no column 'nope'"):
        nearest_lance(spark, uri, queries, column="v", query_column="nope")
    with pytest.raises(InvalidInputError, match="no top-level column 'id' of vectors"):
        nearest_lance(spark, uri, queries, column="id", query_column="q")
    with pytest.raises(InvalidInputError, match="both have columns ID, id"):
        nearest_lance(spark, uri, queries.withColumnRenamed("name", "ID"), column="v", query_column="q")
