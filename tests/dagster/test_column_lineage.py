"""Column lineage read from Spark's plans: every way in which columns come to be."""

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.window import Window

import lance_core
from lance_core import spark as lance_spark
from lance_dagster import LanceIOManager
from lance_dagster.lineage.column_lineage import frame_lineage, lineage_table
from lance_dagster.tables import Tables

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    root = tmp_path_factory.mktemp("lineage")
    trips = pa.table({"id": [1, 2], "city": ["x", "y"], "km": [1.0, 2.0], "stops": [["a"], ["b", "c"]]})
    lance_core.write_dataset(trips, root / "raw" / "trips.lance")
    lance_core.write_dataset(pa.table({"id": [1, 2], "name": ["x", "y"]}), root / "cities.lance")
    return root


@pytest.fixture(scope="module")
def spark(new_session, place):
    session = new_session(**{"shuffle.partitions": "2"})
    lance_spark.read_lance(session, str(place / "raw" / "trips.lance")).createOrReplaceTempView("trips")
    lance_spark.read_lance(session, str(place / "cities.lance")).createOrReplaceTempView("cities")
    return session


@pytest.fixture(scope="module")
def trips(spark, place):
    return lance_spark.read_lance(spark, str(place / "raw" / "trips.lance"))


@pytest.fixture(scope="module")
def cities(spark, place):
    return lance_spark.read_lance(spark, str(place / "cities.lance"))


@pytest.fixture(scope="module")
def lineage(place):
    """For each column of a frame what it is made from, as text: `t.id` is of raw/trips, `c.id` of cities."""
    letters = {"raw/trips": "t", "cities": "c"}

    def of(frame):
        found = frame_lineage(frame, Tables(root=str(place)))
        return {
            name: " ".join(f"{letters[dep.asset_key.to_user_string()]}.{dep.column_name}" for dep in deps)
            for name, deps in ({} if found is None else found.deps_by_column).items()
        }

    return of


def test_expressions_and_new_names(trips, lineage):
    shout = F.udf(lambda a, b: f"{a}{b}", "string")
    frame = (
        trips.withColumn("far", F.when(F.col("km") > F.col("id"), "yes").otherwise("no"))
        .withColumnRenamed("city", "town")
        .withColumn("both", shout("town", "km"))
        .withColumn("now", F.lit(1))
        .drop("stops")
    )
    assert lineage(frame) == {"id": "t.id", "town": "t.city", "km": "t.km", "far": "t.id t.km", "both": "t.city t.km"}


def test_rows_chosen_or_ordered_do_not_make_columns(trips, lineage):
    frame = trips.where("km > 1").dropDuplicates(["id"]).orderBy("km").limit(3).sample(0.5).repartition(2).distinct()
    assert lineage(frame.select("city")) == {"city": "t.city"}


def test_joins(trips, cities, lineage):
    assert lineage(trips.join(cities, "id", "left").select("id", "name", "km")) == {
        "id": "t.id", "name": "c.name", "km": "t.km",
    }  # fmt: skip
    assert lineage(trips.join(cities, "id", "full").select("id")) == {"id": "c.id t.id"}
    assert lineage(trips.join(cities, "id", "left_semi").select("id")) == {"id": "t.id"}
    assert lineage(trips.crossJoin(cities.select("name")).select("name", "id")) == {"name": "c.name", "id": "t.id"}


def test_a_table_joined_with_itself(trips, lineage):
    far = trips.groupBy("city").agg(F.max("km").alias("most"))
    frame = trips.alias("l").join(far.alias("r"), F.col("l.city") == F.col("r.city")).select("l.id", "r.city", "most")
    assert lineage(frame) == {"id": "t.id", "city": "t.city", "most": "t.km"}


def test_aggregates(trips, lineage):
    frame = trips.groupBy(F.upper("city").alias("town")).agg(
        F.sum("km").alias("total"), F.count("*").alias("n"), F.count_if(F.col("id") > 1).alias("some")
    )
    assert lineage(frame) == {"town": "t.city", "total": "t.km", "some": "t.id"}


def test_rollups_pivots_and_unpivots(trips, lineage):
    assert lineage(trips.rollup("city", "id").agg(F.sum("km").alias("total"))) == {
        "city": "t.city", "id": "t.id", "total": "t.km",
    }  # fmt: skip
    assert lineage(trips.groupBy("id").pivot("city", ["x", "y"]).sum("km")) == {
        "id": "t.id", "x": "t.city t.km", "y": "t.city t.km",
    }  # fmt: skip
    unpivoted = trips.select(F.col("id").cast("double"), "km", "city").unpivot("city", ["id", "km"], "kind", "value")
    assert lineage(unpivoted) == {"city": "t.city", "value": "t.id t.km"}


def test_windows(trips, lineage):
    by_city = Window.partitionBy("city").orderBy("km")
    frame = trips.select("id", F.row_number().over(by_city).alias("rank"), F.lag("id").over(by_city).alias("before"))
    assert lineage(frame) == {"id": "t.id", "rank": "t.city t.km", "before": "t.city t.id t.km"}


def test_unions_are_by_position(trips, cities, lineage):
    frame = trips.select("id", "city").union(cities.select("id", F.col("name")))
    assert lineage(frame) == {"id": "c.id t.id", "city": "c.name t.city"}
    assert lineage(frame.join(trips.drop("city"), "id").select("city", "km")) == {"city": "c.name t.city", "km": "t.km"}
    by_name = cities.select(F.col("name").alias("city"), "id").unionByName(trips.select("id", "city"))
    assert lineage(by_name) == {"city": "c.name t.city", "id": "c.id t.id"}
    assert lineage(trips.select("city", "city").union(cities.select("id", "name")).toDF("a", "b")) == {
        "a": "c.id t.city", "b": "c.name t.city",
    }  # fmt: skip
    assert lineage(trips.select("id").exceptAll(cities.select("id"))) == {"id": "t.id"}


def test_explode_and_higher_order_functions(trips, lineage):
    frame = trips.select("id", F.posexplode("stops").alias("at", "stop")).withColumn("s", F.concat("stop", F.col("id")))
    assert lineage(frame) == {"id": "t.id", "at": "t.stops", "stop": "t.stops", "s": "t.id t.stops"}
    assert lineage(trips.select(F.transform("stops", lambda s: F.concat(s, "city")).alias("x"))) == {
        "x": "t.city t.stops"
    }


def test_functions_over_batches_read_everything_they_are_given(trips, lineage):
    frame = trips.select("id", "km").mapInArrow(lambda batches: batches, "a long, b double")
    assert lineage(frame) == {"a": "t.id t.km", "b": "t.id t.km"}


def test_sql_with_common_tables_and_subqueries(spark, lineage):
    frame = spark.sql("""
        WITH near AS (SELECT id, city AS town FROM trips WHERE km < 10),
             named AS (SELECT n.id, n.town, c.name FROM near n JOIN cities c ON n.id = c.id)
        SELECT a.town, b.name, a.id + b.id AS sum,
               (SELECT max(km) FROM trips t WHERE t.city = a.town) AS most,
               a.id IN (SELECT id FROM cities) AS known
        FROM near a JOIN named b ON a.id = b.id
    """)
    assert lineage(frame) == {
        "town": "t.city",
        "name": "c.name",
        "sum": "t.id",
        "most": "t.km",
        "known": "c.id t.id",
    }


def test_sql_lateral(spark, lineage):
    frame = spark.sql("""
        SELECT t.id, d.name, s.stop FROM trips t,
        LATERAL (SELECT name, t.km AS k FROM cities c WHERE c.id = t.id) d LATERAL VIEW explode(t.stops) s AS stop
    """)
    assert lineage(frame) == {"id": "t.id", "name": "c.name", "stop": "t.stops"}


def test_sql_recursion(spark, lineage):
    frame = spark.sql("""
        WITH RECURSIVE walk(id, at, steps) AS (
            SELECT id, city, 0L FROM trips UNION ALL
            SELECT w.id, c.name, w.steps + c.id FROM walk w JOIN cities c ON w.id = c.id WHERE w.steps < 3
        ) SELECT id, at, steps FROM walk
    """)
    assert lineage(frame) == {"id": "t.id", "at": "c.name t.city", "steps": "c.id"}


def test_temporary_views_over_the_data_source_and_cached_frames(spark, place, lineage):
    spark.sql(f"CREATE TEMPORARY VIEW viewed USING lance OPTIONS (path '{place / 'cities.lance'}')")
    assert lineage(spark.table("viewed").selectExpr("name AS n").cache()) == {"n": "c.name"}


def test_what_is_not_a_table_of_ours_has_no_lineage(spark, trips, tmp_path, lineage):
    made = spark.createDataFrame(pa.table({"id": [1], "here": [2]}))
    assert lineage(made) == {}
    assert lineage(made.join(trips, "id").select("here", "km")) == {"km": "t.km"}
    (tmp_path / "lines.txt").write_text("a")
    assert lineage(spark.read.text(str(tmp_path / "lines.txt"))) == {}


@pytest.mark.parametrize("value", [None, pa.table({"a": [1]}), object()])
def test_other_values_have_none(place, value):
    assert frame_lineage(value, Tables(root=str(place))) is None


def test_a_deep_plan(trips, lineage):
    frame = trips.select("id", "km")
    for step in range(40):
        frame = frame.select("id", (F.col("km") + step).alias("km")).where("km > 0")
    assert lineage(frame) == {"id": "t.id", "km": "t.km"}


def test_the_table_for_people():
    deps = [dg.TableColumnDep(dg.AssetKey(["raw", "t"]), name) for name in ("a|b", "c")]
    shown = lineage_table(dg.TableColumnLineage({"x`y": [*deps, dg.TableColumnDep(dg.AssetKey("u"), "d")]}))
    assert shown.value.splitlines()[2] == r"| `x y` | **raw/t**: `a\|b`, `c`; **u**: `d` |"


@pytest.fixture
def go(spark, place, instance):
    manager = LanceIOManager(root=str(place), spark=spark)

    def materialize(*assets):
        result = dg.materialize(list(assets), instance=instance, resources={"io_manager": manager})
        name = assets[-1].key.path[-1]
        (event,) = result.asset_materializations_for_node(name)
        return event.metadata

    return materialize


def test_materializations_tell_it(go, trips, place):
    elsewhere = str(place / "another" / "place.lance")

    @dg.asset(metadata={"lance/uri": elsewhere})
    def moved():
        return trips.select("id", F.col("km").alias("far"))

    @dg.asset
    def both(moved):
        return moved.join(trips, "id").select("far", "city")

    found = go(moved, both)
    assert found["dagster/column_lineage"].value == dg.TableColumnLineage(
        {
            "far": [dg.TableColumnDep(dg.AssetKey("moved"), "far")],
            "city": [dg.TableColumnDep(dg.AssetKey(["raw", "trips"]), "city")],
        }
    )
    assert found["lance/column_lineage"].value.splitlines()[2:] == [
        "| `far` | **moved**: `far` |",
        "| `city` | **raw/trips**: `city` |",
    ]


def test_what_the_user_gives_wins_and_serves_other_frames(go):
    given = dg.TableColumnLineage({"n": [dg.TableColumnDep(dg.AssetKey("far_away"), "m")]})

    @dg.asset
    def counted(context):
        context.add_output_metadata({"dagster/column_lineage": given})
        return pa.table({"n": [1]})

    found = go(counted)
    assert found["dagster/column_lineage"].value == given
    assert "**far_away**: `m`" in found["lance/column_lineage"].value


def test_without_a_plan_there_is_none(go):
    @dg.asset
    def plain():
        return pa.table({"n": [1]})

    assert not {"dagster/column_lineage", "lance/column_lineage"} & go(plain).keys()


def test_a_plan_that_is_not_understood_is_no_reason_to_fail(go, trips, monkeypatch, capfd):
    def fail(*_args, **_kwargs):
        raise KeyError("exprId")

    monkeypatch.setattr("lance_dagster.lineage.column_lineage.column_sources", fail)

    @dg.asset
    def copied():
        return trips

    found = go(copied)
    assert found["dagster/row_count"].value == 2
    assert "dagster/column_lineage" not in found
    assert "The column lineage of copied is unknown: KeyError('exprId')" in capfd.readouterr().err
