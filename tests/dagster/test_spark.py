"""The IO manager with real Spark frames: partitions, rows outside, loads, retries."""

from datetime import UTC, date, datetime

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

import lance_core
from lance_core.errors import InvalidInputError
from lance_dagster import (
    CompactionPolicy,
    ExecutionPolicy,
    LanceIOManager,
    LanceResource,
    build_maintenance_assets,
    io_manager,
)
from lance_dagster.report import report_output

pytestmark = pytest.mark.spark

DAYS = dg.DailyPartitionsDefinition("2026-11-01", end_date="2026-11-08")
LETTERS = dg.StaticPartitionsDefinition(["a", "b", "c"])
MULTI = dg.MultiPartitionsDefinition({"day": DAYS, "letter": LETTERS})


@pytest.fixture(scope="module")
def spark(new_session):
    return new_session(**{"shuffle.partitions": "2", "session.timeZone": "America/St_Johns"})


@pytest.fixture
def go(root, instance, spark):
    """Materialize with Spark as the default type."""

    def materialize(*assets, partition_key=None, partition_range=None, tags=None, **kwargs):
        if partition_range is not None:
            start, end = partition_range
            tags = {"dagster/asset_partition_range_start": start, "dagster/asset_partition_range_end": end}
        resources = {"io_manager": LanceIOManager(root=root, spark=spark), "lance": LanceResource(root=root)}
        return dg.materialize(
            list(assets), instance=instance, resources=resources, partition_key=partition_key, tags=tags, **kwargs
        )

    return materialize


def daily(make, **metadata):
    @dg.asset(name="asset", partitions_def=DAYS, metadata={"partition_expr": "day", **metadata})
    def asset(context):
        return make(list(context.partition_keys))

    return asset


DAY_TYPES = {
    "string": lambda key: key,
    "date": date.fromisoformat,
    "timestamp": lambda key: datetime.fromisoformat(key).replace(hour=1, tzinfo=UTC),
    "timestamp_ntz": lambda key: datetime.fromisoformat(key).replace(hour=1),
}


@pytest.mark.parametrize("type_", DAY_TYPES)
def test_ranges_and_keys_replace_only_themselves(go, spark, tables, type_):
    stamp = iter(range(1, 9))

    def make(keys):
        rows = [(DAY_TYPES[type_](key), key) for key in keys]
        return spark.createDataFrame(rows, f"day {type_}, key string").withColumn("stamp", F.lit(next(stamp)))

    asset = daily(make)
    go(asset, partition_range=("2026-11-01", "2026-11-04"))
    result = go(asset, partition_range=("2026-11-02", "2026-11-03"))
    go(asset, partition_key="2026-11-05")
    rows = tables.dataset("asset").to_table(columns=["key", "stamp"]).to_pylist()
    assert {row["key"][-1]: row["stamp"] for row in rows} == {"1": 1, "2": 2, "3": 2, "4": 1, "5": 3}
    assert len(rows) == 5
    assert tables.dataset("asset").version == 3
    events = result.asset_materializations_for_node("asset")
    assert {event.partition: event.metadata["dagster/partition_row_count"].value for event in events} == {
        "2026-11-02": 1,
        "2026-11-03": 1,
    }
    assert {event.metadata["lance/rows_written"].value for event in events} == {2}
    assert {event.metadata["lance/operation"].value for event in events} == {"replace_where"}


def test_rows_outside_stop_the_job_before_anything_is_seen(go, spark, tables):
    def make(keys):
        return spark.createDataFrame([(key, 1) for key in [*keys, "2026-12-24"]], "day string, n int")

    with pytest.raises(InvalidInputError, match="2026-12-24"):
        go(daily(make), partition_key="2026-11-01")
    assert not tables.exists("asset")


def test_a_null_in_the_partition_column_is_outside(go, spark, tables):
    def make(keys):
        return spark.createDataFrame([(keys[0],), (None,)], "day string")

    with pytest.raises(Exception, match="column day is null"):
        go(daily(make), partition_key="2026-11-01")
    assert not tables.exists("asset")


def test_rows_outside_are_dropped_if_wanted(go, spark, tables):
    def make(keys):
        return spark.createDataFrame([(keys[0],), (None,), ("2026-12-24",)], "day string")

    go(daily(make, **{"lance/out_of_partition": "drop"}), partition_key="2026-11-01")
    assert tables.dataset("asset").to_table().to_pydict() == {"day": ["2026-11-01"]}


def test_the_check_sees_only_rows_that_are_written(go, spark, tables):
    """A row outside that the asset itself filters or joins away is no error."""
    left = spark.createDataFrame([("2026-11-01", 1), ("2026-12-24", 2)], "day string, n int")
    right = spark.createDataFrame([(1,)], "n int")

    go(daily(lambda _: left.join(right, "n").select("day", "n")), partition_key="2026-11-01")
    assert tables.dataset("asset").count_rows() == 1


def test_lists_and_structs_that_are_never_null(go, spark, tables):
    @dg.asset(name="asset", partitions_def=DAYS, metadata={"partition_expr": "day"})
    def asset():
        return spark.sql("SELECT '2026-11-01' AS day, array(1, 2) AS numbers, struct(1 AS a) AS part")

    go(asset, partition_key="2026-11-01")
    assert tables.dataset("asset").to_table().to_pylist() == [
        {"day": "2026-11-01", "numbers": [1, 2], "part": {"a": 1}}
    ]


def test_the_plan_is_computed_once(go, spark, tables):
    counter = spark.sparkContext.accumulator(0)

    def count(key):
        counter.add(1)
        return (key,)

    def make(keys):
        return spark.createDataFrame(spark.sparkContext.parallelize(keys).map(count), "day string")

    go(daily(make), partition_range=("2026-11-01", "2026-11-03"))
    assert counter.value == 3
    assert tables.dataset("asset").count_rows() == 3


def test_two_dimensions(go, spark, tables):
    stamp = iter(range(1, 9))

    @dg.asset(partitions_def=MULTI, metadata={"partition_expr": {"day": "at", "letter": "letter"}})
    def asset(context):
        pairs = [MULTI.get_partition_key_from_str(key).keys_by_dimension for key in context.partition_keys]
        rows = [(date.fromisoformat(pair["day"]), pair["letter"]) for pair in pairs]
        return spark.createDataFrame(rows, "at date, letter string").withColumn("stamp", F.lit(next(stamp)))

    go(asset, partition_range=("2026-11-01|a", "2026-11-02|c"))
    go(asset, partition_range=("2026-11-02|b", "2026-11-02|c"))
    rows = tables.dataset("asset").to_table().to_pylist()
    assert {(row["at"].day, row["letter"]): row["stamp"] for row in rows} == {
        (1, "a"): 1, (1, "b"): 1, (1, "c"): 1, (2, "a"): 1, (2, "b"): 2, (2, "c"): 2,
    }  # fmt: skip


def test_a_pipeline_of_spark_and_arrow(go, spark, tables):
    seen = {}

    @dg.asset
    def raw():
        return spark.range(100).select("id", (F.col("id") % 10).alias("k"), F.lit("x").alias("unused"))

    @dg.asset(ins={"raw": dg.AssetIn(metadata={"columns": ["k", "id"], "filter": "k < 3"})})
    def sums(raw: DataFrame):
        seen["columns"] = raw.columns
        return raw.groupBy("k").agg(F.sum("id").alias("total"))

    @dg.asset
    def small(sums: pa.Table) -> None:
        seen["small"] = {row["k"]: row["total"] for row in sums.to_pylist()}

    @dg.asset
    def default(sums) -> None:
        seen["default"] = isinstance(sums, DataFrame)

    assert go(raw, sums, small, default).success
    assert seen["columns"] == ["k", "id"]
    assert seen["small"] == {k: sum(range(k, 100, 10)) for k in range(3)}
    assert seen["default"]
    assert tables.dataset("raw").count_rows() == 100


def test_a_self_dependent_asset(go):
    seen = []
    mapping = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)

    @dg.asset(
        partitions_def=DAYS,
        ins={"asset": dg.AssetIn(partition_mapping=mapping)},
        metadata={
            "partition_expr": "day",
            "dagster/column_schema": dg.TableSchema([dg.TableColumn("day", "string"), dg.TableColumn("n", "int64")]),
        },
    )
    def asset(context, asset: DataFrame):
        seen.append((asset.columns, asset.count()))
        return asset.agg((F.coalesce(F.sum("n"), F.lit(0)) + 1).alias("n")).select(
            F.lit(context.partition_key).alias("day"), F.col("n").cast("long")
        )

    for key in ("2026-11-01", "2026-11-02", "2026-11-03", "2026-11-01"):
        go(asset, partition_key=key)
    assert seen == [(["day", "n"], 0), (["day", "n"], 1), (["day", "n"], 1), (["day", "n"], 0)]


def test_a_retry_does_not_append_twice(go, spark, tables, monkeypatch):
    calls = []

    def dying(*args, **kwargs):
        calls.append(1)
        if len(calls) == 1:
            message = "died after the commit"
            raise RuntimeError(message)
        return report_output(*args, **kwargs)

    monkeypatch.setattr(io_manager, "report_output", dying)

    @dg.asset(metadata={"mode": "append"}, retry_policy=dg.RetryPolicy(max_retries=1))
    def asset():
        return spark.range(5)

    assert go(asset).success
    assert tables.dataset("asset").count_rows() == 5
    go(asset)
    assert tables.dataset("asset").count_rows() == 10


def test_spark_fragments_are_compacted(go, spark, tables):
    @dg.asset
    def asset():
        return spark.range(0, 100, 1, 4)

    maintenance = build_maintenance_assets(asset)
    go(asset)
    assert len(tables.dataset("asset").get_fragments()) == 4
    assert go(asset, *maintenance, selection=maintenance).success
    assert len(tables.dataset("asset").get_fragments()) == 1
    assert sorted(tables.dataset("asset").to_table()["id"].to_pylist()) == list(range(100))


def test_a_merge_touches_only_the_partitions_of_the_run(go, spark, tables, monkeypatch):
    """The keys alone would match rows of other days, too; and the rows never come to the driver."""
    monkeypatch.setattr(DataFrame, "toArrow", None)
    monkeypatch.setattr(type(spark.range(1)), "toArrow", None)
    monkeypatch.setattr(type(spark.range(1)), "collect", None)

    def make(keys):
        rows = [(day, n, stamp) for day in keys + more for n in ids]
        return spark.createDataFrame(rows, "day string, id int, stamp int")

    def stored():
        rows = tables.dataset("asset").to_table().to_pylist()
        found = {(row["day"][-1], row["id"]): row["stamp"] for row in rows}
        assert len(rows) == len(found)
        return found

    stamp, ids, more = 1, (1, 2), []
    asset = daily(make, mode="merge", merge_keys=["id"])
    for day in ("2026-11-01", "2026-11-02"):
        go(asset, partition_key=day)
    assert stored() == {("1", 1): 1, ("1", 2): 1, ("2", 1): 1, ("2", 2): 1}
    stamp, ids = 2, (2, 3)
    result = go(asset, partition_key="2026-11-02")
    expected = {("1", 1): 1, ("1", 2): 1, ("2", 1): 1, ("2", 2): 2, ("2", 3): 2}
    assert stored() == expected
    (event,) = result.asset_materializations_for_node("asset")
    numbers = {key: event.metadata[f"lance/{key}"].value for key in ("operation", "rows_written", "rows_deleted")}
    assert numbers == {"operation": "merge", "rows_written": 2, "rows_deleted": 1}
    version, more = tables.dataset("asset").version, ["2026-11-04"]
    with pytest.raises(Exception, match="outside of the run's partitions"):
        go(asset, partition_key="2026-11-02")
    assert (tables.dataset("asset").version, stored()) == (version, expected)
    stamp = 3
    go(daily(make, mode="merge", merge_keys=["id"], **{"lance/out_of_partition": "drop"}), partition_key="2026-11-02")
    assert stored() == {**expected, ("2", 2): 3, ("2", 3): 3}


def test_a_retried_merge_is_one_commit(go, spark, tables, monkeypatch):
    calls = []

    def dying(*args, **kwargs):
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError
        return report_output(*args, **kwargs)

    monkeypatch.setattr(io_manager, "report_output", dying)

    @dg.asset(metadata={"mode": "merge", "merge_keys": ["id"]}, retry_policy=dg.RetryPolicy(max_retries=1))
    def asset():
        return spark.range(5).withColumn("n", F.lit(len(calls)))

    go(asset)
    assert go(asset).success
    assert len(calls) == 3
    assert tables.dataset("asset").version == 2
    assert tables.dataset("asset").to_table().sort_by("id").to_pydict() == {"id": [0, 1, 2, 3, 4], "n": [1] * 5}


def test_an_expression_is_judged_by_lance_core(go, spark, tables):
    """The session is in another zone, in which these times are of another day."""

    def make(keys):
        rows = [(datetime.fromisoformat(key).replace(hour=1, tzinfo=UTC), key) for key in [*keys, *more]]
        return spark.createDataFrame(rows, "at timestamp, key string")

    more: list[str] = []
    asset = daily(make, partition_expr="date(at)")
    go(asset, partition_range=("2026-11-01", "2026-11-02"))
    go(asset, partition_key="2026-11-02")
    assert sorted(tables.dataset("asset").to_table()["key"].to_pylist()) == ["2026-11-01", "2026-11-02"]
    more = ["2026-11-04"]
    with pytest.raises(Exception, match="outside of the run's partitions"):
        go(asset, partition_key="2026-11-02")
    assert tables.dataset("asset").version == 2
    more = []
    go(
        daily(make, partition_expr="date(at)", mode="merge", merge_keys=["at"]),
        partition_range=("2026-11-02", "2026-11-03"),
    )
    assert sorted(tables.dataset("asset").to_table()["key"].to_pylist()) == ["2026-11-01", "2026-11-02", "2026-11-03"]


def test_columns_are_added_and_filled(go, spark, tables):
    go(daily(lambda keys: spark.createDataFrame([(keys[0], 1)], "day string, n int")), partition_key="2026-11-01")
    more = daily(lambda keys: spark.createDataFrame([(keys[0], "x")], "day string, m string"), schema_mode="add")
    go(more, partition_key="2026-11-02")
    assert tables.dataset("asset").to_table().to_pylist() == [
        {"day": "2026-11-01", "n": 1, "m": None},
        {"day": "2026-11-02", "n": None, "m": "x"},
    ]


def test_a_first_merge_with_repeated_keys_stores_nothing(go, spark, tables):
    def asset_of(query):
        @dg.asset(name="asset", metadata={"mode": "merge", "merge_keys": ["id"]})
        def asset():
            return spark.sql(query)

        return asset

    for _ in range(2):
        with pytest.raises(Exception, match="more than one row has id = 1; give one row for each key"):
            go(asset_of("select explode(array(1, 2, 1)) as id, 'x' as v"))
        assert not tables.exists("asset")
    go(asset_of("select explode(array(1, null, null)) as id, 'x' as v"))
    assert tables.dataset("asset").count_rows() == 3


def test_a_branch_is_written_and_read(go, spark, tables):
    @dg.asset
    def asset():
        return spark.range(3)

    @dg.asset
    def down(asset: DataFrame) -> None:
        seen.append(asset.count())

    seen: list[int] = []
    go(asset)
    go(asset, down, tags={"lance/branch": "audit", "lance/mode": "append"})
    assert seen == [6]
    assert tables.dataset("asset").count_rows() == 3
    assert lance_core.dataset(tables.uri("asset"), branch="audit").count_rows() == 6


def test_settings_of_stores_are_in_no_plan(root, instance, spark):
    """Spark shows plans in its own UI and writes them into its event log."""
    canary = "nobody-may-see-this"
    manager = LanceIOManager(root=root, spark=spark, storage_options={"token": canary})
    plans = []

    @dg.asset
    def asset():
        return spark.range(3)

    @dg.asset
    def down(asset: DataFrame):
        made = asset.selectExpr("id + 1 AS id").join(asset, "id")
        plans.append(made._jdf.queryExecution().toString())
        return made

    assert dg.materialize([asset, down], instance=instance, resources={"io_manager": manager}).success
    assert "id" in plans[0]
    assert canary not in plans[0]
    assert not [event for event in instance.all_logs(instance.get_runs()[0].run_id) if canary in str(event)]


def test_other_stores_are_opened_in_the_tasks_with_their_own_settings(s3, root, instance, spark):
    place = f"{s3.uri}/cold"
    params = {place: s3.storage_options}
    bases = {"initial_bases": [lance_core.DatasetBasePath(place, "cold", is_dataset_root=True)]}
    for start in (0, 10, 20, 30):
        data = pa.table({"id": list(range(start, start + 10))})
        options = {"target_bases": ["cold"], "base_store_params": params, **({} if start else bases)}
        lance_core.write_dataset(data, f"{root}/cold.lance", mode="append" if start else "create", **options)

    @dg.asset(metadata={"mode": "merge", "merge_keys": ["id"]})
    def cold():
        return spark.createDataFrame([(5,), (99,)], "id bigint")

    assets = build_maintenance_assets(
        "cold",
        compaction=CompactionPolicy(target_rows_per_fragment=20),
        execution=ExecutionPolicy(spark_from_bytes=0),
        spark_resource_key="spark",
    )
    resources = {
        "io_manager": LanceIOManager(root=root, spark=spark, base_store_params=params),
        "lance": LanceResource(root=root, base_store_params=params),
        "spark": spark,
    }
    done = dg.materialize([assets[0]], instance=instance, resources=resources)
    (event,) = done.get_asset_materialization_events()
    assert event.step_materialization_data.materialization.metadata["lance/engine"].value == "spark"
    assert dg.materialize([cold], instance=instance, resources=resources).success
    assert lance_core.dataset(f"{root}/cold.lance").count_rows() == 41
