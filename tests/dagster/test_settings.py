"""Misspelt settings: refused where they are meant for lance_dagster, warned about where they look like it."""

import re
import warnings
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from pydantic import ValidationError

import lance_dagster
from lance_core.errors import InvalidInputError
from lance_dagster import (
    LanceIOManager,
    LanceResource,
    SparkSessionResource,
    build_lance_checks,
    build_maintenance_assets,
    build_observable_table,
    check_definitions,
)
from lance_dagster.metadata import REPORTED_KEYS
from lance_dagster.setting_keys import ASSET, INPUT, READ_SETTINGS, RUN_TAGS, WRITE_SETTINGS, check_keys

ROWS = pa.table({"a": [1, 2]})


def asset_of(metadata=None, *, name="asset", tags=None, given=None):
    @dg.asset(name=name, metadata=metadata, tags=tags)
    def asset(context: dg.AssetExecutionContext) -> pa.Table:
        context.add_output_metadata(given or {})
        return ROWS

    return asset


def downstream_of(metadata):
    @dg.asset(ins={"asset": dg.AssetIn(metadata=metadata)})
    def down(asset: pa.Table) -> None:
        assert asset.num_rows

    return down


@pytest.fixture
def messages(instance):
    """Warnings in the logs of a run."""

    def of(result):
        records = instance.all_logs(result.run_id)
        return [record.user_message for record in records if record.level == 30]

    return of


@pytest.fixture
def go(root, instance):
    def materialize(*assets, tags=None, **kwargs):
        resources = {"io_manager": LanceIOManager(root=root)}
        return dg.materialize(list(assets), instance=instance, resources=resources, tags=tags, **kwargs)

    return materialize


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("lance/moed", "lance/mode"),
        ("lance/Mode", "lance/mode"),
        ("lance/schema-mode", "lance/schema_mode"),
        ("lance/brnch", "lance/branch"),
        ("lance/merge_key", "lance/merge_keys"),
        ("lance/out_of_partitions", "lance/out_of_partition"),
    ],
)
def test_a_misspelt_setting_with_the_prefix_is_refused(run, tables, key, meant):
    run(asset_of())
    for kwargs in ({"metadata": {key: "append"}}, {"given": {key: "append"}}):
        with pytest.raises(InvalidInputError, match=f"Unknown .*{key}.*Did you mean '{meant}'"):
            run(asset_of(**kwargs))
    assert tables.dataset("asset").version == 1


def test_a_misspelt_run_tag_is_refused_before_anything_is_computed(go, tables):
    computed = []

    @dg.asset
    def asset() -> pa.Table:
        computed.append(1)
        return ROWS

    go(asset)
    for tag, message in [
        ("lance/moed", "Unknown run tag 'lance/moed'. Did you mean 'lance/mode'?"),
        ("lance/filter", "run tag 'lance/filter' has no effect. It is a setting for the metadata of an input"),
        ("lance/xyz", "Unknown run tag 'lance/xyz'. The prefix 'lance/' is for: 'lance/branch'"),
    ]:
        with pytest.raises(dg.DagsterResourceFunctionError) as failure:
            go(asset, tags={tag: "append"})
        assert message in str(failure.value.__cause__)
    assert computed == [1]
    assert tables.dataset("asset").version == 1


def test_run_tags_of_others_and_of_our_sensors_are_fine(go, messages):
    tags = {"dagster/priority": "1", "model": "gpt", "branch": "main", "lance/table": "asset", "lance/version": "3"}
    assert messages(go(asset_of(), tags=tags)) == []


def test_a_misspelt_setting_of_an_input_is_refused(go):
    go(asset_of())
    for metadata, message in [
        ({"lance/filtre": "a > 1"}, "Did you mean 'lance/filter'"),
        ({"lance/uri": "elsewhere"}, "It is a setting for the metadata of the asset that writes the table"),
    ]:
        with pytest.raises(InvalidInputError, match=message):
            go(asset_of(), downstream_of(metadata), selection=["down"])


def test_a_misspelt_place_of_a_table_that_others_write_is_refused(go):
    spec = dg.AssetSpec("asset", metadata={"lance/url": "elsewhere"})
    with pytest.raises(InvalidInputError, match="Did you mean 'lance/uri'"):
        go(spec, downstream_of({}), selection=["down"])


@pytest.mark.parametrize("key", ["lance/mode", "lance/moed"])
def test_a_setting_among_the_tags_of_an_asset_is_refused(go, key):
    with pytest.raises(InvalidInputError, match=f"asset tag '{key}' has no effect.*'lance/mode'"):
        go(asset_of(tags={key: "append"}))


NEAR_MISSES = [
    ({"mod": "append"}, "mode"),
    ({"moed": "append"}, "mode"),
    ({"Mode": "append"}, "mode"),
    ({"write_mode": "append"}, "mode"),
    ({"lance.mode": "append"}, "lance/mode"),
    ({"Lance/mode": "append"}, "lance/mode"),
    ({"lance_mod": "append"}, "lance/mode"),
    ({"schema-mode": "add"}, "schema_mode"),
    ({"merge_key": ["a"]}, "merge_keys"),
    ({"primarykey": "a"}, "primary_key"),
    ({"partion_expr": "a"}, "partition_expr"),
    ({"out_of_partition": "drop"}, "lance/out_of_partition"),
]
UNRELATED = [
    {"model": "resnet"},
    {"code": "x", "node": "n1", "owner": "me", "tags": ["a"], "uri": "s3://x", "version": "v2", "columns": ["a"]},
    {"dagster/uri": "x", "dagster/table_name": "t", "iceberg/mode": "append", "mode_of_transport": "append"},
    {"branches": 3, "merge": "append", "partition": "daily", "filter": "x"},
]


@pytest.mark.parametrize(("metadata", "meant"), NEAR_MISSES, ids=str)
def test_near_misses_of_bare_keys_warn_in_the_log_and_where_definitions_are_built(run, messages, metadata, meant):
    (key,) = metadata
    expected = f"metadata key '{key}' has no effect. Did you mean '{meant}'?"
    for asset in (asset_of(metadata), asset_of(given=metadata)):
        (message,) = messages(run(asset))
        assert message.endswith(expected)
    with pytest.warns(UserWarning, match=re.escape(expected)):
        build_maintenance_assets([asset_of(metadata)])


@pytest.mark.parametrize("metadata", UNRELATED, ids=lambda value: str(list(value)))
def test_keys_of_others_are_fine(run, messages, metadata):
    assert messages(run(asset_of(metadata))) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        build_maintenance_assets([asset_of(metadata)])


@pytest.mark.parametrize(
    ("metadata", "meant"), [({"column": ["a"]}, "columns"), ({"filters": "a > 0"}, "filter"), ({"asof": 1.0}, "as_of")]
)
def test_near_misses_on_inputs_warn(go, messages, metadata, meant):
    result = go(asset_of(), downstream_of(metadata))
    assert [message for message in messages(result) if f"Did you mean '{meant}'" in message]


def test_a_bare_mode_among_the_run_tags_warns(go, messages):
    (message,) = messages(go(asset_of(), tags={"mode": "append"}))
    assert message == "The run tag 'mode' has no effect. Did you mean 'lance/mode'?"


def test_a_self_dependent_asset_runs_without_warnings(run, messages):
    @dg.asset(
        partitions_def=dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-04"),
        metadata={"partition_expr": "day"},
        ins={
            "counts": dg.AssetIn(partition_mapping=dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)),
        },
    )
    def counts(context: dg.AssetExecutionContext, counts: pa.Table) -> pa.Table:
        return pa.table({"day": [context.partition_key], "n": [counts.num_rows]})

    for day in ("2026-01-01", "2026-01-02", "2026-01-02"):
        assert messages(run(counts, partition_key=day)) == []


def test_every_builder_that_sees_a_definition_checks_it():
    wrong = asset_of({"lance/moed": "append"})
    builders = [
        lambda: build_maintenance_assets(wrong),
        lambda: build_lance_checks(wrong, min_rows=1),
        lambda: build_observable_table("asset", metadata={"lance/moed": "append"}),
        lambda: check_definitions(dg.Definitions(assets=[wrong], resources={"io_manager": LanceIOManager(root="x")})),
    ]
    for build in builders:
        with pytest.raises(InvalidInputError, match=r"Asset asset: Unknown .*Did you mean 'lance/mode'"):
            build()


def test_definitions_are_checked_as_a_whole():
    resources = {"io_manager": LanceIOManager(root="x")}

    def check(*assets, **kwargs):
        return check_definitions(dg.Definitions(assets=list(assets), resources=resources, **kwargs))

    good = check(asset_of({"mode": "append"}), downstream_of({"columns": ["a"]}))
    assert isinstance(good, dg.Definitions)
    with pytest.raises(InvalidInputError, match=r"Input asset of asset down: .*Did you mean 'lance/columns'"):
        check(asset_of(), downstream_of({"lance/colums": ["a"]}))
    with pytest.raises(InvalidInputError, match=r"Job nightly: Unknown run tag 'lance/moed'"):
        check(asset_of(), jobs=[dg.define_asset_job("nightly", tags={"lance/moed": "append"})])
    with pytest.warns(UserWarning, match=r"Asset asset: The asset metadata key 'mod' has no effect"):
        check(asset_of({"mod": "append"}))
    # Assets of other IO managers may say what they like.
    check(_stored_elsewhere())


def _stored_elsewhere():
    @dg.asset(metadata={"mod": "append"}, io_manager_key="other")
    def elsewhere() -> int:
        return 1

    return elsewhere


@pytest.mark.parametrize(
    "make",
    [
        lambda: LanceIOManager(root="x", moed="append"),
        lambda: LanceResource(root="x", storage_option={}),
        lambda: SparkSessionResource(config={}),
    ],
)
def test_misspelt_fields_of_resources_are_refused(make):
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        make()


def test_every_setting_is_accepted_where_it_is_read():
    assert check_keys(ASSET, {f"lance/{name}": "x" for name in WRITE_SETTINGS}) == []
    assert check_keys(RUN_TAGS, {f"lance/{name}": "x" for name in WRITE_SETTINGS}) == []
    assert check_keys(INPUT, {f"lance/{name}": "x" for name in READ_SETTINGS}) == []
    assert check_keys(ASSET, dict.fromkeys(REPORTED_KEYS, 1)) == []


def test_all_keys_that_the_package_writes_are_listed():
    """A new metadata key belongs into REPORTED_KEYS, or users who override it are refused."""
    sources = "\n".join(path.read_text() for path in Path(lance_dagster.__file__).parent.rglob("*.py"))
    written = set(re.findall(r"[\"'](lance/[a-z_]+)[\"']", sources))
    settings = {f"lance/{name}" for name in WRITE_SETTINGS | READ_SETTINGS}
    assert {key.removesuffix("_before") for key in written} - settings <= REPORTED_KEYS
