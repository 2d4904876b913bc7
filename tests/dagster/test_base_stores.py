"""Tables with files at another store: every entrance of Dagster opens it with the settings given for it."""

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from dagster._serdes import serialize_value

import lance_core
from lance_core import DatasetBasePath
from lance_core.errors import UntrustedPlaceError
from lance_dagster import DeletionPolicy, LanceIOManager, LanceResource, build_lance_checks, build_maintenance_assets

CANARY = "canary-that-nobody-may-see"


@pytest.fixture
def cold(s3, root):
    """A local table whose twenty rows lie in a bucket; gives the settings that open the bucket."""
    place = f"{s3.uri}/cold"
    params = {place: {**s3.storage_options, "aws_secret_access_key": CANARY}}
    for start in (0, 10):
        lance_core.write_dataset(
            pa.table({"id": list(range(start, start + 10)), "day": ["a", "b"] * 5}),
            f"{root}/cold.lance",
            mode="append" if start else "create",
            initial_bases=None if start else [DatasetBasePath(place, "cold", is_dataset_root=True)],
            target_bases=["cold"],
            base_store_params=params,
        )
    return params


class Deployment:
    """What a user has: resources with or without the settings."""

    def __init__(self, root, instance, params):
        self.manager = LanceIOManager(root=root, base_store_params=params)
        self.lance = LanceResource(root=root, base_store_params=params)
        self.instance = instance

    def run(self, *assets, **options):
        resources = {"io_manager": self.manager, "lance": self.lance}
        return dg.materialize(list(assets), instance=self.instance, resources=resources, **options)


COLD = dg.AssetSpec("cold", metadata={"dagster/io_manager_key": "io_manager"})


def load(type_):
    def work(there):
        seen = []

        @dg.asset(ins={"cold": dg.AssetIn(dagster_type=type_)})
        def reader(cold):
            seen.append(len(cold.collect() if isinstance(cold, pl.LazyFrame) else cold))
            return pa.table({"n": seen})

        there.run(COLD, reader, selection=[reader])
        return seen == [20]

    return work


def store(**metadata):
    def work(there):
        @dg.asset(metadata=metadata)
        def cold() -> pa.Table:
            return pa.table({"id": [5, 30], "day": ["x", "x"]})

        there.run(cold)
        return there.lance.dataset("cold").count_rows() == 21

    return work


def maintain(name, **policies):
    def work(there):
        there.lance.dataset("cold").delete("id = 3")
        assets = build_maintenance_assets("cold", **policies)
        result = there.run(next(one for one in assets if one.key.path[-1] == name))
        (event,) = result.get_asset_materialization_events()
        is_skipped = event.step_materialization_data.materialization.metadata["lance/skipped"].value
        return not is_skipped and there.lance.dataset("cold").to_table().num_rows == 19

    return work


def check(**rules):
    def work(there):
        checks = build_lance_checks("cold", **rules)
        result = there.run(COLD, checks, selection=dg.AssetSelection.checks(checks))
        found = result.get_asset_check_evaluations()
        return bool(found) and all(one.passed for one in found)

    return work


def publish(there):
    dataset = there.lance.dataset("cold")
    if "trial" not in dataset.branches.list():
        dataset.create_branch("trial")
    return there.lance.publish("cold", "trial").count_rows() == 20


ENTRANCES = {
    "load arrow": load(pa.Table),
    "load pandas": load(pd.DataFrame),
    "load polars": load(pl.DataFrame),
    "load lazily": load(pl.LazyFrame),
    "merge": store(mode="merge", merge_keys=["id"]),
    "compaction": maintain("compaction"),
    "materialized deletions": maintain("materialize_deletions", deletions=DeletionPolicy(threshold=0)),
    "check values": check(not_null=["id"], unique=["id"]),
    "publish": publish,
    "resource reads": lambda there: there.lance.dataset("cold").to_table().num_rows == 20,
    "resource compacts": lambda there: there.lance.compact("cold").fragments_removed == 2,
    "resource writes": lambda there: (
        there.lance.write("cold", pa.table({"id": [99], "day": ["x"]}), target_bases=["cold"]).count_rows() == 21
    ),
}


@pytest.mark.parametrize("entrance", ENTRANCES)
def test_other_stores_are_opened_with_their_own_settings(root, instance, cold, entrance):
    with pytest.raises(UntrustedPlaceError, match=r"base_store_params=.*/cold"):
        ENTRANCES[entrance](Deployment(root, instance, {}))
    assert ENTRANCES[entrance](Deployment(root, instance, cold))


def test_the_check_of_files_fails_without_the_settings(root, instance, cold):
    assert [check(integrity="full")(Deployment(root, instance, params)) for params in ({}, cold)] == [False, True]


def test_settings_of_other_stores_stay_secret(root, cold, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("KEY_OF_THE_STORE", CANARY)
    (tmp_path / "home").mkdir()
    ((place, options),) = cold.items()
    params = {place: {**options, "aws_secret_access_key": dg.EnvVar("KEY_OF_THE_STORE")}}

    @dg.asset(deps=["cold"])
    def reader(lance: LanceResource):
        assert lance.base_store_params[place]["aws_secret_access_key"] == CANARY
        return pa.table({"n": [lance.dataset("cold").to_table().num_rows]})

    with dg.DagsterInstance.local_temp(str(tmp_path / "home"), overrides={"telemetry": {"enabled": False}}) as instance:
        there = Deployment(root, instance, params)
        run = there.run(reader, *build_maintenance_assets("cold"))
        told = [serialize_value(event) for event in instance.all_logs(run.run_id)]
        told.append(serialize_value(instance.get_job_snapshot(run.dagster_run.job_snapshot_id)))
    opened = Deployment(root, None, cold)
    told += [repr(one) for one in (there.manager, there.lance, opened.manager, opened.lance, opened.lance.tables)]
    told.append("".join(capfd.readouterr()))
    assert not [text for text in told if CANARY in text]
    assert not [one for one in tmp_path.rglob("*") if one.is_file() and CANARY.encode() in one.read_bytes()]
