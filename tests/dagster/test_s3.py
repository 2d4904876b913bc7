"""The IO manager with its tables on an S3 service."""

import dagster as dg
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import UnsafeStoreError
from lance_dagster import LanceIOManager, LanceResource


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


def test_secrets_are_not_reported(s3, instance):
    options = {**s3.storage_options, "aws_secret_access_key": "a-secret-to-look-for"}
    manager = LanceIOManager(root=s3.uri, storage_options=options)
    dg.materialize([source], partition_key="a", instance=instance, resources={"io_manager": manager})
    events = instance.all_logs(instance.get_runs()[0].run_id)
    assert events
    assert not [event for event in events if "a-secret-to-look-for" in str(event)]


def test_an_unsafe_service_is_refused(s3, instance):
    options = {**s3.storage_options, "client_max_retries": "1"}
    s3.fail("PUT", "", "ignore-condition", times=1000)
    manager = LanceIOManager(root=s3.uri, storage_options=options)
    with pytest.raises(UnsafeStoreError):
        dg.materialize([source], partition_key="a", instance=instance, resources={"io_manager": manager})
