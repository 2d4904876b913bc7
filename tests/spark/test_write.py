import json
from pathlib import Path

import lance
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import functions as F  # noqa: N812 everybody's name for it

import lance_core
from lance_core.errors import DatasetAlreadyExistsError, InvalidInputError
from lance_core.spark import read_lance, write_lance

pytestmark = pytest.mark.spark


@pytest.fixture
def numbers(spark):
    return spark.range(0, 100, numPartitions=2).selectExpr("id", "cast(id as string) s")


def rows(uri, **options):
    return lance_core.dataset(uri, **options).to_table()


def test_append_creates_and_then_adds(numbers, uri, data_files):
    first = write_lance(numbers, uri)
    assert (first.version, first.num_rows, first.num_files, first.written) == (1, 100, 2, True)
    second = write_lance(numbers.limit(3), uri)
    assert (second.version, second.num_rows) == (2, 3)
    assert first.num_bytes == sum(Path(uri, "data", name).stat().st_size for name in data_files()) - second.num_bytes
    assert sorted(rows(uri)["id"].to_pylist()) == sorted([*range(100), *rows(uri)["id"].to_pylist()[100:]])
    assert rows(uri, version=1).num_rows == 100


def test_spark_s_own_way_to_write(numbers, uri):
    numbers.write.format("lance").mode("append").save(uri)
    numbers.limit(5).write.format("lance").mode("overwrite").option("max_rows_per_file", 2).save(uri)
    dataset = lance_core.dataset(uri)
    assert (dataset.version, dataset.count_rows()) == (2, 5)
    assert max(fragment.physical_rows for fragment in dataset.get_fragments()) <= 2


def test_columns_are_matched_by_name(numbers, uri):
    write_lance(numbers, uri)
    write_lance(numbers.select("s", F.lit(7).cast("int").alias("id")).limit(1), uri)
    assert rows(uri).slice(100).to_pylist() == [{"id": 7, "s": "0"}]


def test_a_frame_that_does_not_fit_is_refused_before_any_task_runs(numbers, uri, data_files):
    write_lance(numbers, uri)
    before = data_files()
    broken = numbers.select(F.expr("raise_error('a task ran')").cast("string").alias("id"), F.lit(1).alias("more"))
    with pytest.raises(InvalidInputError, match=r"'more' does not exist.*'id' is string"):
        write_lance(broken, uri)
    with pytest.raises(AnalysisException, match=r"'more' does not exist.*'id' is string"):
        broken.write.format("lance").mode("append").save(uri)
    assert data_files() == before


def test_empty_partitions_and_empty_frames(spark, numbers, uri):
    write_lance(numbers.filter("id < 3").repartition(8), uri)
    assert rows(uri).num_rows == 3
    nothing = write_lance(numbers.filter("id < 0"), uri)
    assert (nothing.version, nothing.num_rows, nothing.num_files) == (2, 0, 0)
    cleared = write_lance(spark.createDataFrame([], numbers.schema), uri, mode="overwrite")
    assert (cleared.version, rows(uri).num_rows, rows(uri).schema.names) == (3, 0, ["id", "s"])


def test_an_empty_frame_creates_an_empty_table(numbers, uri):
    assert write_lance(numbers.filter("id < 0"), uri).version == 1
    assert rows(uri).num_rows == 0


def test_overwrite_takes_the_new_schema(numbers, uri):
    write_lance(numbers, uri)
    write_lance(numbers.select(F.col("id").alias("x")), uri, mode="overwrite")
    assert rows(uri).schema.names == ["x"]
    assert rows(uri, version=1).schema.names == ["id", "s"]


@pytest.mark.parametrize("mode", ["error", "create"])
def test_modes_that_only_create(numbers, uri, mode):
    write_lance(numbers, uri, mode=mode)
    with pytest.raises(DatasetAlreadyExistsError):
        write_lance(numbers, uri, mode=mode)
    assert lance_core.dataset(uri).version == 1


def test_mode_ignore_leaves_a_table_alone(numbers, uri):
    assert write_lance(numbers, uri, mode="ignore").written
    again = write_lance(numbers, uri, mode="ignore")
    assert (again.version, again.written, again.num_rows) == (1, False, 0)


def test_an_unknown_mode_is_refused(numbers, uri):
    with pytest.raises(InvalidInputError, match="upsert"):
        write_lance(numbers, uri, mode="upsert")


@pytest.mark.parametrize("mode", ["errorifexists", "ignore"])
def test_modes_that_spark_does_not_hand_on_are_refused_by_spark(numbers, uri, mode):
    with pytest.raises(AnalysisException, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        numbers.write.format("lance").mode(mode).save(uri)


def test_a_token_is_written_once(numbers, uri, data_files):
    token = "run 1"  # noqa: S105 no secret
    first = write_lance(numbers, uri, idempotency_key=token, transaction_properties={"who": "ü"})
    files = data_files()
    write_lance(numbers, uri)
    again = write_lance(numbers, uri, idempotency_key=token)
    assert (again.version, again.written) == (first.version, False)
    properties = lance_core.dataset(uri).read_transaction(1).transaction_properties
    assert (properties["who"], properties["lance_core.token"]) == ("ü", token)
    numbers.write.format("lance").mode("append").option("idempotencyKey", token).save(uri)
    assert lance_core.dataset(uri).version == 2
    assert set(files) <= set(data_files())
    assert len(data_files()) == 4


def test_replace_where_is_one_version(numbers, uri):
    write_lance(numbers, uri)
    fresh = numbers.filter("id >= 90").withColumn("s", F.lit("new")).limit(4)
    result = write_lance(fresh, uri, replace_where="id >= 90")
    assert (result.version, result.num_rows) == (2, 4)
    table = rows(uri)
    assert table.num_rows == 94
    assert table["s"].to_pylist().count("new") == 4


def test_replace_where_creates_a_table(numbers, uri):
    assert write_lance(numbers.filter("id >= 90"), uri, mode="overwrite", replace_where="id >= 90").version == 1
    assert rows(uri).num_rows == 10


def test_replace_where_is_checked_before_any_task_runs(numbers, uri):
    write_lance(numbers, uri)
    with pytest.raises(InvalidInputError, match="idd"):
        write_lance(numbers, uri, replace_where="idd = 1")
    with pytest.raises(InvalidInputError, match="replace_where"):
        write_lance(numbers, uri, mode="create", replace_where="id = 1")
    with pytest.raises(AnalysisException, match="'replace_where' needs mode 'overwrite'"):
        numbers.write.format("lance").mode("append").option("replace_where", "id = 1").save(uri)


def test_a_save_without_a_path_or_with_an_unknown_option_is_refused(numbers, uri):
    with pytest.raises(AnalysisException, match="The path is missing"):
        numbers.write.format("lance").mode("append").save()
    with pytest.raises(AnalysisException, match="Unknown option 'partitionoverwritemode'"):
        numbers.write.format("lance").mode("overwrite").option("partitionOverwriteMode", "dynamic").save(uri)
    with pytest.raises(AnalysisException, match="'max_rows_per_file' must be a positive number of rows, got 'x'"):
        numbers.write.format("lance").mode("append").option("max_rows_per_file", "x").save(uri)
    assert not Path(uri).exists()


def test_a_vector_column_is_made_by_its_metadata_and_kept_by_the_table(numbers, uri):
    vector = F.array(F.col("id").cast("float"), F.lit(1.0).cast("float"))
    marked = numbers.select(vector.alias("v", metadata={"arrow.fixed-size-list.size": 2}))
    write_lance(marked, uri)
    write_lance(numbers.select(vector.alias("v")), uri)
    schema = lance_core.dataset(uri).schema
    assert str(schema.field("v").type) == "fixed_size_list<item: float>[2]"
    assert rows(uri).num_rows == 200
    read = read_lance(numbers.sparkSession, uri)
    assert read.schema["v"].metadata == {"arrow.fixed-size-list.size": 2}
    write_lance(read, uri, mode="overwrite")
    assert lance_core.dataset(uri).schema == schema


def test_a_vector_of_another_length_fails_and_leaves_nothing(numbers, uri, data_files):
    short = F.when(F.col("id") == 99, F.array(F.lit(1.0))).otherwise(F.array(F.lit(1.0), F.lit(2.0)))
    with pytest.raises(Exception, match=r"Column 'v' cannot be converted"):
        write_lance(numbers.select(short.alias("v", metadata={"arrow.fixed-size-list.size": 2})), uri)
    assert data_files() == []


def test_a_table_can_be_overwritten_by_what_was_read_from_it(spark, numbers, uri):
    write_lance(numbers, uri)
    write_lance(read_lance(spark, uri).filter("id < 10"), uri, mode="overwrite")
    assert rows(uri).num_rows == 10


def test_a_null_in_a_column_without_nulls_fails_and_leaves_nothing(numbers, uri, data_files):
    import pyarrow as pa  # noqa: PLC0415 only here

    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    lance_core.write_dataset(schema.empty_table(), uri)
    with pytest.raises(Exception, match="Column 'id' is not nullable"):
        write_lance(numbers.select(F.expr("nullif(id, 99)").alias("id")), uri)
    assert (data_files(), lance_core.dataset(uri).version) == ([], 1)
    assert write_lance(numbers.select("id"), uri).num_rows == 100


def test_options_travel_as_text(numbers, uri):
    options = {"path": uri, "transaction_properties": json.dumps({"a": "b"}), "max_rows_per_file": "10"}
    numbers.write.format("lance").mode("append").options(**options).save()
    dataset = lance_core.dataset(uri)
    assert dataset.read_transaction(1).transaction_properties["a"] == "b"
    assert len(dataset.get_fragments()) == 10


def test_sql_over_temporary_views(spark, numbers, uri):
    write_lance(numbers, uri)
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW lance_view USING lance OPTIONS (path '{uri}')")
    assert spark.sql("SELECT max(id) FROM lance_view").first()[0] == 99
    spark.sql("INSERT INTO lance_view VALUES (1000, 'x')")
    assert lance_core.dataset(uri).count_rows() == 101


def test_tables_of_an_older_file_version(numbers, uri, data_files):
    nested = numbers.selectExpr("id", "array(named_struct('a', id, 's', s)) l", "if(id > 50, null, s) n")
    with pytest.raises(Exception, match=r"'m': files of version 2\.0 cannot hold map"):
        write_lance(numbers.selectExpr("map(s, id) m"), uri, data_storage_version="2.0")
    assert data_files() == []
    write_lance(nested, uri, data_storage_version="2.0")
    write_lance(nested.limit(7), uri)
    dataset = lance_core.dataset(uri)
    files = [file for fragment in dataset.get_fragments() for file in fragment.metadata.files]
    assert {(file.file_major_version, file.file_minor_version) for file in files} == {(2, 0)}
    assert dataset.data_storage_version == "2.0"
    assert dataset.count_rows("n is null") >= 49
    assert read_lance(numbers.sparkSession, uri).filter("l[0].a = id").count() == 107
    with pytest.raises(Exception, match="null structs"):
        write_lance(nested.selectExpr("id", "array(if(id = 3, null, l[0])) l", "n"), uri)
    assert lance_core.dataset(uri).version == 2


def test_tables_of_file_version_0_1_are_written_as_pylance_reads_them(spark, uri):
    frame = spark.range(0, 100, numPartitions=2).selectExpr("id", "cast(id as string) s", "array(id) l")
    write_lance(frame, uri, data_storage_version="legacy")
    write_lance(frame.limit(3), uri)
    write_lance(frame.limit(4), uri, mode="overwrite", replace_where="id < 50")
    theirs = lance.dataset(uri)
    assert theirs.data_storage_version == lance_core.dataset(uri).data_storage_version == "0.1"
    found = theirs.to_table(filter="id >= 0").sort_by("id")
    assert found.equals(rows(uri).sort_by("id"))
    assert found["id"].to_pylist() == [0, 1, 2, 3, *range(50, 100)]
    assert read_lance(spark, uri).filter("s = '77'").collect()[0].l == [77]
    with pytest.raises(PythonException, match=r"'id' has 1 nulls.*0\.1"):
        write_lance(frame.limit(1).selectExpr("cast(null as bigint) id", "s", "l"), uri)
    with pytest.raises(InvalidInputError, match=r"no column 's', 'l'.*0\.1"):
        write_lance(frame.select("id"), uri)
    assert lance.dataset(uri).version == theirs.version
