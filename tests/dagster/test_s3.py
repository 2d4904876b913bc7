"""The IO manager with its tables on an S3 service."""

import dagster as dg
import pyarrow as pa
import pytest
from dagster._serdes import serialize_value

import lance_core
from lance_core.errors import UnsafeStoreError
from lance_core.store.cloud import object_client
from lance_dagster import LanceIOManager, LanceResource, build_lance_checks, build_maintenance_assets

CANARY = "canary-that-nobody-may-see"


@dg.asset(
    key_prefix="silver", metadata={"partition_expr": "day"}, partitions_def=dg.StaticPartitionsDefinition(["a", "b"])
)
def source(context) -> pa.Table:
    return pa.table({"day": [context.partition_key] * 3, "x": [1, 2, 3]})


@dg.asset
def total(source: pa.Table) -> pa.Table:
    return pa.table({"sum": [sum(source.column("x").to_pylist())]})


@pytest.mark.parametrize("ending", ["", "/"])
def test_tables_lie_below_the_address(s3, instance, ending):
    manager = LanceIOManager(root=f"{s3.uri}/tables{ending}", storage_options=s3.storage_options)
    for day in ("a", "b", "a"):
        assert dg.materialize([source], partition_key=day, instance=instance, resources={"io_manager": manager}).success
    done = dg.materialize([total, source], selection=[total], instance=instance, resources={"io_manager": manager})
    (event,) = done.asset_materializations_for_node("total")
    assert event.metadata["dagster/uri"].value == f"{s3.uri}/tables/total.lance"
    dataset = lance_core.dataset(f"{s3.uri}/tables/silver/source.lance", storage_options=s3.storage_options)
    assert dataset.version == 3
    assert dataset.count_rows() == 6
    tables = LanceResource(root=f"{s3.uri}/tables{ending}", storage_options=s3.storage_options)
    assert tables.dataset("total").to_table().to_pydict() == {"sum": [12]}


def test_a_process_starts_once(s3, instance):
    """What a process pays for its start at an object store, such as the test of the service, no step pays again."""
    manager = LanceIOManager(root=f"{s3.uri}/tables", storage_options=s3.storage_options)
    num_clients = object_client._client.cache_info().misses
    s3.requests()
    for day in ("a", "b", "a"):
        assert dg.materialize([source], partition_key=day, instance=instance, resources={"io_manager": manager}).success
    assert dg.materialize(
        [total, source], selection=[total], instance=instance, resources={"io_manager": manager}
    ).success
    assert object_client._client.cache_info().misses - num_clients == 1
    assert len({path for method, path in s3.requests() if method == "PUT" and "/.tmp_" in path}) == 1


@dg.asset(metadata={"lance/uri": "s3://there-is-no-such-bucket/lost.lance"})
def lost() -> pa.Table:
    return pa.table({"x": [1]})


def test_a_secret_stays_secret(s3, tmp_path, monkeypatch, caplog, capfd):
    """Work and failures with a key from the environment: it is in no event, log, file of Dagster or of the tables."""
    monkeypatch.setenv("KEY_OF_THE_STORE", CANARY)
    caplog.set_level("DEBUG")
    options = {**s3.storage_options, "aws_secret_access_key": dg.EnvVar("KEY_OF_THE_STORE")}
    manager = LanceIOManager(root=s3.uri, storage_options=options, preview_rows=5)
    defs = dg.Definitions(
        assets=[source, total, lost, *build_maintenance_assets([source])],
        asset_checks=[build_lance_checks(source, min_rows=1, integrity="full")],
        resources={"io_manager": manager, "lance": LanceResource(root=s3.uri, storage_options=options)},
        executor=dg.in_process_executor,
    )
    job = defs.resolve_implicit_global_asset_job_def()
    overrides = {"telemetry": {"enabled": False}}
    with dg.DagsterInstance.local_temp(str(tmp_path), overrides=overrides) as instance:
        partitioned = {"asset_selection": [source.key], "partition_key": "a"}
        others = {"asset_selection": [key for key in job.asset_layer.executable_asset_keys if key != source.key]}
        runs = [
            job.execute_in_process(instance=instance, raise_on_error=False, **chosen)
            for chosen in (partitioned, partitioned, others)
        ]
        assert [run.success for run in runs] == [True, True, False]
        assert "NoSuchBucket" in str([event for event in runs[2].all_events if event.is_failure])
        told = [serialize_value(event) for run in runs for event in instance.all_logs(run.run_id)]
        told += [serialize_value(instance.get_job_snapshot(run.dagster_run.job_snapshot_id)) for run in runs]
    opened = LanceResource(root=s3.uri, storage_options={**options, "aws_secret_access_key": CANARY})
    dataset = opened.dataset("silver/source")
    told += [repr(thing) for thing in (manager, opened, opened.tables, dataset, dataset.scanner())]
    assert not [text for text in told if CANARY in text]
    assert CANARY not in caplog.text + "".join(capfd.readouterr())
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and CANARY.encode() in path.read_bytes()]
    client, bucket = s3.s3_client(), s3.uri.removeprefix("s3://")
    stored = [found["Key"] for found in client.list_objects_v2(Bucket=bucket)["Contents"]]
    assert len(stored) > 10
    assert not [key for key in stored if CANARY.encode() in client.get_object(Bucket=bucket, Key=key)["Body"].read()]


def test_an_unsafe_service_is_refused(s3, instance):
    options = {**s3.storage_options, "client_max_retries": "1"}
    s3.fail("PUT", "", "ignore-condition", times=1000)
    manager = LanceIOManager(root=s3.uri, storage_options=options)
    with pytest.raises(UnsafeStoreError):
        dg.materialize([source], partition_key="a", instance=instance, resources={"io_manager": manager})
