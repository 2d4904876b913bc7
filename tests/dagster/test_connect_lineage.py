"""Column lineage of Spark Connect: read from the plan that the client builds, without a server."""

import warnings
from types import SimpleNamespace

import pyarrow as pa
import pytest

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    from pyspark.sql.connect import functions as F  # noqa: N812 - the usual name
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.plan import DataSource, LocalRelation, Read
    from pyspark.sql.connect.window import Window

import lance_core
from lance_dagster.lineage.column_lineage import frame_lineage
from lance_dagster.lineage.connect_plan import connect_sources
from lance_dagster.tables import Tables

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")

SCHEMAS = {"t": ["id", "city", "km", "stops", "Addr"], "c": ["id", "name"]}
CLIENT = SimpleNamespace(_user_id=None)
SESSION = SimpleNamespace(client=CLIENT, session_id="s")


def table(address, session=SESSION):
    return DataFrame(DataSource(format="lance", options={"path": address}), session)


@pytest.fixture
def trips():
    return table("t")


@pytest.fixture
def cities():
    return table("c")


def sources(frame, names):
    """Each column with what it is made from, as text."""
    relation = frame._plan.plan(CLIENT)
    made = connect_sources(relation, names.split(), schema_of=SCHEMAS.__getitem__)
    return {name: " ".join(sorted(".".join(source) for source in deps)) for name, deps in made.items() if deps}


def test_expressions_and_new_names(trips):
    frame = (
        trips.withColumn("far", F.when(F.col("km") > F.col("id"), "yes").otherwise("no"))
        .withColumnRenamed("city", "town")
        .withColumn("TOWN", F.upper("town"))
        .withColumn("now", F.lit(1))
        .drop("stops", "Addr")
    )
    assert sources(frame, "id town km far now") == {"id": "t.id", "town": "t.city", "km": "t.km", "far": "t.id t.km"}


def test_rows_chosen_or_ordered_do_not_make_columns(trips):
    frame = trips.where("km > 1").dropDuplicates(["id"]).orderBy("km").limit(3).sample(0.5).repartition(2).distinct()
    assert sources(frame.select("city"), "city") == {"city": "t.city"}


def test_names_of_all_forms(trips):
    frame = trips.alias("x").select("x.id", F.col("`city`"), trips["km"], F.col("addr.street"), F.col("x.*"))
    made = sources(frame, "a b c d id city km stops Addr")
    assert made | {"d": "t.Addr"} == made
    assert (made["a"], made["b"], made["c"], made["stops"]) == ("t.id", "t.city", "t.km", "t.stops")


def test_sql_texts_of_columns(trips):
    frame = trips.selectExpr("id + km * 2 AS n", "upper(city)", "*").where("n > 1")
    made = sources(frame, "n u id city km stops Addr")
    assert (made["n"], made["u"], made["km"]) == ("t.id t.km", "t.city", "t.km")
    assert sources(trips.select(F.expr("no ( sql").alias("x")), "x") == {"x": "t.Addr t.city t.id t.km t.stops"}


def test_joins(trips, cities):
    assert sources(trips.join(cities, "id", "left").select("id", "name", "km"), "id name km") == {
        "id": "t.id", "name": "c.name", "km": "t.km",
    }  # fmt: skip
    assert sources(trips.join(cities, "id", "full").select("id"), "id") == {"id": "c.id t.id"}
    assert sources(trips.join(cities, "id", "right").select("id"), "id") == {"id": "c.id"}
    joined = trips.join(cities, trips["id"] == cities["id"])
    assert sources(joined.select(cities["id"], trips["id"]), "a b") == {"a": "c.id", "b": "t.id"}
    assert sources(joined.drop(trips["id"]).select("id"), "id") == {"id": "c.id"}
    assert sources(trips.join(cities, "id", "left_semi").select("*"), "id city km stops Addr")["id"] == "t.id"


def test_aggregates(trips):
    frame = (
        trips.groupBy("city").agg(F.sum("km").alias("km"), F.count("*"), F.max("id")).withColumnRenamed("max(id)", "m")
    )
    assert sources(frame, "city km n m")["m"] == "t.id"
    assert sources(frame, "city km n m")["km"] == "t.km"
    pivoted = trips.groupBy("id").pivot("city", ["x", "y"]).agg(F.sum("km"))
    assert sources(pivoted, "id x y") == {"id": "t.id", "x": "t.city t.km", "y": "t.city t.km"}


def test_unions(trips, cities):
    left, right = trips.select("id", "city"), cities.select("id", "name")
    assert sources(left.union(right), "id city") == {"id": "c.id t.id", "city": "c.name t.city"}
    by_name = left.unionByName(right, allowMissingColumns=True)
    assert sources(by_name, "id city name") == {"id": "c.id t.id", "city": "t.city", "name": "c.name"}
    assert sources(left.exceptAll(right), "id city") == {"id": "t.id", "city": "t.city"}


def test_windows_generators_and_unpivots(trips):
    ranked = trips.withColumn("rank", F.row_number().over(Window.partitionBy("city").orderBy("km")))
    assert sources(ranked, "id city km stops Addr rank")["rank"] == "t.city t.km"
    assert sources(trips.select("id", F.explode("stops")), "id col") == {"id": "t.id", "col": "t.stops"}
    exploded = trips.select(F.posexplode("stops").alias("at", "stop"))
    assert sources(exploded, "at stop") == {"at": "t.stops", "stop": "t.stops"}
    long = trips.unpivot("id", ["km", "city"], "what", "value")
    assert sources(long, "id what value") == {"id": "t.id", "value": "t.city t.km"}


def test_new_names_for_all_columns(trips):
    assert sources(trips.select("id", "km").toDF("a", "b"), "a b") == {"a": "t.id", "b": "t.km"}


def test_what_only_the_server_knows_has_no_sources(trips):
    view = DataFrame(Read("some_view"), SESSION)
    assert sources(view.select("x"), "x") == {}
    local = DataFrame(LocalRelation(pa.table({"id": [1]})), SESSION)
    assert sources(local.join(trips.select("id", "km"), "id"), "id km")["km"] == "t.km"


def test_frames_of_connect_have_a_lineage(tmp_path, monkeypatch):
    """Of the tables of assets only; other places are nobody's."""
    lance_core.write_dataset(pa.table({"id": [1], "km": [2.0]}), tmp_path / "tables" / "trips.lance")
    lance_core.write_dataset(pa.table({"n": [1]}), tmp_path / "elsewhere.lance")
    frame = table(str(tmp_path / "tables" / "trips.lance")).crossJoin(table(str(tmp_path / "elsewhere.lance")))
    monkeypatch.setattr(DataFrame, "columns", ["id", "km", "n"])
    lineage = frame_lineage(frame, Tables(root=str(tmp_path / "tables")))
    assert {name: [dep.column_name for dep in deps] for name, deps in lineage.deps_by_column.items()} == {
        "id": ["id"], "km": ["km"],
    }  # fmt: skip
    assert frame_lineage("no frame", Tables(root=str(tmp_path))) is None
