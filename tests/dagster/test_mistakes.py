"""Mistakes of users: each is refused with the words that help, before anything is written, and early where that can be.

A row says what is done and the words that the message must have.
"""

import sys
import warnings
from datetime import timedelta
from pathlib import Path

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest
from pydantic import ValidationError
from pyspark.errors import PySparkException

import lance_core
from lance_core.errors import InvalidInputError, LanceError, NotFoundError, SparkTaskError, UnsupportedError
from lance_dagster import (
    CleanupPolicy,
    CompactionPolicy,
    DeletionPolicy,
    ExecutionPolicy,
    LanceIOManager,
    LanceResource,
    RetentionPolicy,
    SparkSessionResource,
    build_lance_checks,
    build_maintenance_assets,
    build_retention_asset,
    build_table_sensor,
    build_wipe_job,
    check_definitions,
    lance_asset_metadata,
)
from lance_dagster.components import LanceMaintenanceComponent
from lance_dagster.spark_errors import task_errors

ROWS = pa.table({"id": [1, 2], "day": ["a", "b"], "at": pa.array([1.0, 2.0])})
LETTERS = dg.StaticPartitionsDefinition(["a", "b"])
TWO = dg.MultiPartitionsDefinition({"day": LETTERS, "kind": LETTERS})


def asset_of(metadata=None, *, value=ROWS, name="asset", **options):
    @dg.asset(name=name, metadata=metadata, **options)
    def asset():
        return value

    return asset


def reader_of(metadata, annotation=pa.Table):
    @dg.asset(ins={"asset": dg.AssetIn(metadata=metadata, dagster_type=annotation)})
    def reader(asset):
        return asset

    return reader


class TaskFailed(PySparkException):
    """A failed Spark job as pyspark tells it, without Spark."""

    def __init__(self, condition, **parameters):
        super().__init__(message="\n".join(["trace"] * 200))
        self.condition, self.parameters = condition, parameters

    def getCondition(self):  # noqa: N802 - pyspark's name
        return self.condition

    def getMessageParameters(self):  # noqa: N802 - likewise
        return self.parameters


# ------------------------------------------------------------------- what the definitions tell: no run is needed for it

DEFINITIONS = {
    "unknown key": ([asset_of({"lance/moed": "append"})], ["'lance/moed'", "Did you mean 'lance/mode'"]),
    "unknown key of an input": ([reader_of({"lance/filtre": "x"})], ["Input asset", "Did you mean 'lance/filter'"]),
    "setting among tags": ([asset_of(tags={"lance/mode": "append"})], ["asset tag 'lance/mode'", "no effect"]),
    "write setting on an input": ([reader_of({"lance/mode": "append"})], ["asset that writes the table"]),
    "read setting on an asset": ([asset_of({"lance/filter": "x"})], ["metadata of an input"]),
    "misspelt mode": ([asset_of({"mode": "appned"})], ["Asset asset", "'appned'", "Did you mean 'append'"]),
    "mode in capitals": ([asset_of({"mode": "APPEND"})], ["'APPEND'", "Did you mean 'append'"]),
    "mode of Spark": ([asset_of({"mode": "errorifexists"})], ["mode is one of", "'error'"]),
    "mode is no text": ([asset_of({"mode": 3})], ["mode is one of", "found 3"]),
    "partitions without any": ([asset_of({"mode": "replace_partitions"})], ["needs a partitioned asset"]),
    "misspelt schema_mode": ([asset_of({"schema_mode": "strikt"})], ["'strikt'", "Did you mean 'strict'"]),
    "schema_mode of Delta": ([asset_of({"schema_mode": "merge"})], ["schema_mode is one of", "'add'"]),
    "misspelt out_of_partition": ([asset_of({"lance/out_of_partition": "dropp"})], ["Did you mean 'drop'"]),
    "merge_keys is a number": ([asset_of({"merge_keys": 3})], ["'merge_keys' is a list of names", "found 3"]),
    "merge_keys is empty": ([asset_of({"merge_keys": []})], ["'merge_keys' is a list of names", "found []"]),
    "merge_keys twice": ([asset_of({"merge_keys": ["id", "id"]})], ["'merge_keys'", "twice", "['id', 'id']"]),
    "merge_keys with a comma too many": ([asset_of({"merge_keys": "id,"})], ["'merge_keys'", "empty"]),
    "partition_expr for one dimension only": (
        [asset_of({"partition_expr": "day"}, partitions_def=TWO)],
        ["'partition_expr'", "dimensions day, kind", "'day'"],
    ),
    "partition_expr of another dimension": (
        [asset_of({"partition_expr": {"day": "day", "knid": "id"}}, partitions_def=TWO)],
        ["dimensions day, kind", "knid"],
    ),
    "partition_expr is a list": (
        [asset_of({"partition_expr": ["day"]}, partitions_def=LETTERS)],
        ["'partition_expr'", "['day']"],
    ),
    "two of version, tag and time": ([reader_of({"version": 1, "tag": "x"})], ["'version' and 'tag'"]),
    "tag and branch": ([reader_of({"tag": "x", "branch": "b"})], ["either 'tag' or 'branch'"]),
    "version is a tag": ([reader_of({"version": "release"})], ["a tag goes under 'tag'", "'release'"]),
    "misspelt read": ([reader_of({"read": "materialised"})], ["Did you mean 'materialized'"]),
    "materialized version": ([reader_of({"read": "materialized", "version": 2})], ["chooses the version"]),
    "columns is text": ([reader_of({"columns": "id"})], ["'columns' is a list of names", "'id'"]),
    "columns twice": ([reader_of({"columns": ["id", "id"]})], ["'columns'", "twice"]),
    "two assets, one table": (
        [asset_of(name="one"), asset_of({"lance/uri": "/tables/one.lance"}, name="two")],
        ["'one' and 'two'", "both write the table", "lance/uri"],
    ),
    "one table with a slash": (
        [asset_of({"lance/uri": "s3://b/t/"}, name="one"), asset_of({"lance/uri": "s3://b/t"}, name="two")],
        ["'one' and 'two'", "both write"],
    ),
    "names that differ in case": (
        [asset_of(name="users"), asset_of(name="Users")],
        ["'Users' and 'users'", "differ only in case", "Rename"],
    ),
    "mode of other tools": ([asset_of({"mode": "upsert"})], ["mode is one of", "'merge'"]),
}


@pytest.mark.parametrize("mistake", DEFINITIONS)
def test_mistakes_in_definitions(mistake):
    assets, words = DEFINITIONS[mistake]
    resources = {"io_manager": LanceIOManager(root="/tables")}
    with pytest.raises(InvalidInputError) as error:
        check_definitions(dg.Definitions(assets=assets, resources=resources))
    assert not [word for word in words if word not in str(error.value)], str(error.value)


def test_what_is_no_mistake():
    resources = {"io_manager": LanceIOManager(root="/tables"), "other": LanceIOManager(root="/elsewhere")}
    assets = [
        asset_of(name="one"),
        asset_of(name="two"),
        asset_of({"branch": "trial", "lance/uri": "/tables/one.lance"}, name="three"),
        asset_of(name="ONE", io_manager_key="other"),
        asset_of({"partition_expr": "day", "mode": "replace_partitions"}, name="four", partitions_def=LETTERS),
        asset_of({"lance/shared": True}, name="five"),
        asset_of({"lance/shared": True, "lance/uri": "/tables/five.lance"}, name="six"),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert check_definitions(dg.Definitions(assets=assets, resources=resources))


# -------------------------------------------------------------------------------------- arguments: refused where given

ARGUMENTS = {
    "unknown field of the IO manager": (lambda: LanceIOManager(root="x", moed="append"), ["moed", "Extra inputs"]),
    "unknown field of the resource": (lambda: LanceResource(root="x", options={}), ["options", "Extra inputs"]),
    "misspelt mode of the IO manager": (lambda: LanceIOManager(root="x", mode="appned"), ["mode", "'append'"]),
    "misspelt schema_mode": (lambda: LanceIOManager(root="x", schema_mode="strikt"), ["schema_mode", "'strict'"]),
    "misspelt on_retry": (lambda: LanceIOManager(root="x", on_retry="again"), ["on_retry", "'reuse'"]),
    "merge_keys is text": (lambda: LanceIOManager(root="x", merge_keys="id"), ["merge_keys", "list"]),
    "no root": (LanceIOManager, ["root", "valid string"]),
    "storage_options are text": (lambda: LanceIOManager(root="x", storage_options="k=v"), ["storage_options", "dict"]),
    "flat base_store_params": (
        lambda: LanceResource(root="x", base_store_params={"s3://cold": "key"}),
        ["base_store_params", "dict"],
    ),
    "empty root": (lambda: lance_asset_metadata("a", root=" "), ["`root` is empty"]),
    "key part that is a path": (lambda: lance_asset_metadata(["..", "a"], root="x"), ["'..'", "lance/uri"]),
    "key part with the ending": (lambda: lance_asset_metadata(["a.lance"], root="x"), ["'.lance'", "folder"]),
    "key part with a space": (lambda: lance_asset_metadata(["my users"], root="x"), ["'my users'", "letters"]),
    "no rows in a fragment": (lambda: CompactionPolicy(target_rows_per_fragment=0), ["at least 1", "not 0"]),
    "threshold in percent": (lambda: DeletionPolicy(threshold=10), ["between 0 and 1", "10"]),
    "nothing to keep": (lambda: CleanupPolicy(retain_versions=0), ["at least one version must stay"]),
    "no memory": (lambda: ExecutionPolicy(max_memory_bytes=1), ["128 MiB"]),
    "misspelt per": (lambda: build_maintenance_assets("a", per="tabel"), ["per is one of", "Did you mean 'table'"]),
    "fewer rows than none": (lambda: LanceIOManager(root="x", preview_rows=-1), ["preview_rows", "-1"]),
    "retention without a rule": (RetentionPolicy, ["'older_than' or 'keep'", "give one"]),
    "retention of a negative age": (lambda: RetentionPolicy(older_than=timedelta(-1)), ["at least 0", "-1 day"]),
    "retention of letters": (
        lambda: build_retention_asset(
            asset_of({"partition_expr": "day"}, partitions_def=LETTERS), RetentionPolicy(keep=1)
        ),
        ["needs time partitions"],
    ),
    "wiping what has no partitions": (
        lambda: build_wipe_job(asset_of()),
        ["asset has no partitions", "partitions_def"],
    ),
    "more than the most": (lambda: build_lance_checks("a", min_rows=5, max_rows=1), ["min_rows (5)", "max_rows (1)"]),
    "unknown namespace": (
        lambda: LanceResource(root="", namespace={"impl": "glue"}).dataset("a"),
        ["no namespace 'glue'", "there are: dir, rest"],
    ),
    "table of another root": (
        lambda: LanceResource(root="/nowhere").dataset("a/b"),
        ["no table of a/b yet", "materialize it", "[/nowhere/a/b.lance]"],
    ),
    "no versions to look at": (lambda: build_table_sensor("a", max_versions=0), ["at least 1", "not 0"]),
    "checks without a rule": (lambda: build_lance_checks("a"), ["min_rows"]),
    "misspelt rule": (lambda: build_lance_checks("a", minrows=1), ["minrows"]),
    "misspelt option of maintenance": (lambda: build_maintenance_assets("a", compact=None), ["compact"]),
    "misspelt attribute of a component": (
        lambda: LanceMaintenanceComponent(tables=["a"], compation=None),
        ["compation"],
    ),
}


@pytest.mark.parametrize("mistake", ARGUMENTS)
def test_mistakes_in_arguments(mistake):
    work, words = ARGUMENTS[mistake]
    with pytest.raises((LanceError, ValidationError, TypeError, dg.DagsterError)) as error:
        work()
    assert not [word for word in words if word not in str(error.value)], str(error.value)


# --------------------------------------------------------- what only a run tells: refused before anything is written

RUNS = {
    "misspelt run tag": ({"tags": {"lance/moed": "append"}}, ["'lance/moed'", "Did you mean 'lance/mode'"]),
    "misspelt value of a run tag": ({"tags": {"lance/mode": "appned"}}, ["'appned'", "Did you mean 'append'"]),
    "merge without keys": ({"metadata": {"mode": "merge"}}, ["needs the metadata 'merge_keys'", "primary key"]),
    "merge keys that are missing": (
        {"metadata": {"mode": "merge", "merge_keys": ["ids"]}},
        ["['ids']", "not among the columns", "Did you mean 'id'"],
    ),
    "no partition_expr": ({"partitions_def": LETTERS}, ["needs the metadata 'partition_expr'"]),
    "partition_expr of no column": (
        {"partitions_def": LETTERS, "metadata": {"partition_expr": "dya"}},
        ["'dya' of 'partition_expr'", "Did you mean 'day'"],
    ),
    "rows of other partitions": (
        {"partitions_def": LETTERS, "metadata": {"partition_expr": "day"}},
        ["outside of the run's partitions", "Nothing was written", "lance/out_of_partition"],
    ),
    "no table at all": ({"value": None}, ["returned None"]),
    "a list of dicts": ({"value": [{"id": 1}]}, ["list is no frame", "pandas.DataFrame", "type_handlers"]),
    "a number": ({"value": 3}, ["int is no frame"]),
    "a column twice": ({"value": pa.table([[1], [2]], names=["a", "a"])}, ["several columns of the name a", "Rename"]),
    "values of several types": (
        {"value": pd.DataFrame({"id": [1, 2], "mixed": [1, "x"]})},
        ["column 'mixed'", "several types", "astype"],
    ),
    "no columns": ({"value": pa.table({})}, ["at least one column"]),
    "a tag of unknown fields": ({"manager": {"tag_template": "{rn_id}"}}, ["['rn_id']", "{run_id}"]),
    "other columns in an append": (
        {"metadata": {"mode": "append"}, "value": pa.table({"id": [1], "dya": ["a"]})},
        ["dya"],
    ),
    "other types in an append": (
        {"metadata": {"mode": "append"}, "value": pa.table({"id": ["x"], "day": ["a"], "at": [1.0]})},
        ["id", "string", "int64"],
    ),
    "a table where none may be": ({"metadata": {"mode": "error"}}, ["exists", "'error'", "Choose another mode"]),
    "a branch of no name": ({"metadata": {"branch": "a..b"}}, ["a..b"]),
    "misspelt mode at run time": ({"given": {"mode": "appned"}}, ["Did you mean 'append'"]),
    "a place of no service": ({"metadata": {"lance/uri": "s4://bucket/t"}}, ["s4"]),
    "unknown storage option": ({"manager": {"storage_options": {"endpiont": "x"}}}, ["'endpiont'", "'endpoint'"]),
    "other case in an append": (
        {"metadata": {"mode": "append"}, "value": ROWS.rename_columns(["ID", "day", "at"])},
        ["'ID'", "Did you mean 'id'"],
    ),
    "other case in a new column": (
        {"metadata": {"mode": "append", "schema_mode": "add"}, "value": ROWS.append_column("Day", ROWS["day"])},
        ["'Day'", "only in case", "Did you mean 'day'"],
    ),
    "merge keys in another case": ({"metadata": {"mode": "merge", "merge_keys": ["ID"]}}, ["Did you mean 'id'"]),
    "repeated keys in the first merge": (
        {
            "metadata": {"mode": "merge", "merge_keys": ["id"], "lance/uri": "{root}/new.lance"},
            "value": pa.table({"id": [1, 1]}),
        },
        ["id = 1"],
    ),
    "misspelt durable": ({"manager": {"storage_options": {"durabel": "true"}}}, ["'durabel'", "'durable'"]),
}


@pytest.mark.parametrize("mistake", RUNS)
def test_mistakes_in_runs(root, instance, mistake):
    given = dict(RUNS[mistake][0])
    lance_core.write_dataset(ROWS, f"{root}/asset.lance")
    if "lance/uri" in given.get("metadata", {}):
        given["metadata"] = {**given["metadata"], "lance/uri": given["metadata"]["lance/uri"].format(root=root)}
    tags, extra, manager = given.pop("tags", None), given.pop("given", {}), given.pop("manager", {})
    value = given.pop("value", ROWS)

    @dg.asset(name="asset", **given)
    def asset(context: dg.AssetExecutionContext):
        context.add_output_metadata(extra)
        return value

    resources = {"io_manager": LanceIOManager(root=root, **manager)}
    with pytest.raises((LanceError, dg.DagsterResourceFunctionError)) as error:
        dg.materialize(
            [asset],
            instance=instance,
            resources=resources,
            tags=tags,
            partition_key="a" if "partitions_def" in given else None,
        )
    told = str(error.value) + str(error.value.__cause__)
    assert not [word for word in RUNS[mistake][1] if word not in told], told
    assert lance_core.dataset(f"{root}/asset.lance").version == 1


def test_a_run_refuses_two_assets_on_one_table_before_it_writes(root, instance):
    assets = [asset_of(name="one"), asset_of({"lance/uri": f"{root}/one.lance"}, name="two")]
    defs = dg.Definitions(
        assets=assets,
        jobs=[dg.define_asset_job("first", selection="one")],
        resources={"io_manager": LanceIOManager(root=root)},
        executor=dg.in_process_executor,
    )
    with pytest.raises(InvalidInputError, match=r"'one' and 'two' both write the table .*'lance/shared'"):
        defs.resolve_job_def("first").execute_in_process(instance=instance)
    assert not Path(root).exists()


def test_a_root_that_is_no_folder(tmp_path, instance):
    root = tmp_path / "file"
    root.write_text("")
    with pytest.raises(OSError, match="Not a directory") as error:
        dg.materialize([asset_of()], instance=instance, resources={"io_manager": LanceIOManager(root=str(root))})
    assert error.value.__notes__ == ["Storing asset failed. Does `root` name a folder that may be used from here?"]


def test_an_extra_that_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(UnsupportedError, match=r"pip install 'lance-dagster\[spark\]'"):
        _ = SparkSessionResource().spark_session


LOADS = {
    "columns that are missing": ({"columns": ["dya"]}, pa.Table, ["['dya']", "Did you mean 'day'"]),
    "columns in another case": ({"columns": ["ID"]}, pa.Table, ["['ID']", "Did you mean 'id'"]),
    "filter that is no SQL": ({"filter": "id >"}, pa.Table, ["id >", "'expression' missing. Line 1, Col: 4"]),
    "filter of no column": ({"filter": "idd > 1"}, pa.Table, ["idd"]),
    "version that is missing": ({"version": 9}, pa.Table, ["9"]),
    "tag that is missing": ({"tag": "release"}, pa.Table, ["release", "Its tags and branches are: first, audit"]),
    "branch that is missing": ({"branch": "audti"}, pa.Table, ["audti", "Did you mean 'audit'?"]),
    "time that is none": ({"as_of": "yesterday"}, pa.Table, ["'yesterday' is not a point in time", "2026-01-31"]),
    "a part of a dataset": ({"columns": ["id"]}, lance_core.LanceDataset, ["cannot stand for some", "LanceScanner"]),
    "a type that is no frame": ({}, int, ["int"]),
    "does not exist yet": ({}, pd.DataFrame, ["no table of the asset asset yet", "materialize it first"]),
}


@pytest.mark.parametrize("mistake", LOADS)
def test_mistakes_in_loads(root, instance, mistake):
    metadata, annotation, words = LOADS[mistake]
    if mistake != "does not exist yet":
        table = lance_core.write_dataset(ROWS, f"{root}/asset.lance")
        table.tags.create("first")
        table.create_branch("audit")
    resources = {"io_manager": LanceIOManager(root=root)}
    with pytest.raises(LanceError) as error:
        dg.materialize(
            [asset_of(), reader_of(metadata, annotation)], selection=["reader"], instance=instance, resources=resources
        )
    assert not [word for word in words if word not in str(error.value)], str(error.value)


OURS = "Traceback\n  File x, line 1, in f\nlance_core.errors.NotFoundError: there is no such file [/t/data/x.lance]\n"
THEIRS = "".join(f"  File x, line {i}, in f\n" for i in range(100)) + "ZeroDivisionError: division by zero\n"
TASKS = {
    "rows outside": (
        TaskFailed("USER_RAISED_EXCEPTION", errorMessage="A row lies outside"),
        InvalidInputError,
        "A row",
    ),
    "our error": (TaskFailed("PYTHON_EXCEPTION", traceback=OURS), NotFoundError, "there is no such file [/t/data/x"),
    "a function of the user": (TaskFailed("PYTHON_EXCEPTION", traceback=THEIRS), SparkTaskError, "division by zero"),
    "an error of the JVM": (TaskFailed("INTERNAL_ERROR"), SparkTaskError, "A Spark task failed"),
}


@pytest.mark.parametrize("mistake", TASKS)
def test_errors_of_spark_tasks_are_short_and_of_our_classes(mistake):
    failure, class_, words = TASKS[mistake]
    with pytest.raises(class_) as error, task_errors("/t"):
        raise failure
    assert words in str(error.value)
    assert len(str(error.value).splitlines()) <= 15
    assert error.value.__cause__ is failure


def test_there_are_sixty_mistakes():
    assert len(DEFINITIONS) + len(ARGUMENTS) + len(RUNS) + len(LOADS) >= 60
