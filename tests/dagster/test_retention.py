"""Old partitions are deleted in one commit, after a preview; partitions are wiped as a commit."""

from datetime import UTC, datetime, timedelta

import dagster as dg
import pyarrow as pa
import pytest

from lance_core.errors import InvalidInputError
from lance_dagster import LanceResource, RetentionPolicy, build_retention_asset, build_wipe_job

DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-01-06")
KEYS = [f"2026-01-0{day}" for day in range(1, 6)]


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
def events(context: dg.AssetExecutionContext) -> pa.Table:
    return pa.table({"day": [key for key in context.partition_keys for _ in range(2)]})


@pytest.fixture
def written(run):
    run(events, partition_range=(KEYS[0], KEYS[-1]))


def days(tables):
    return sorted(set(tables.dataset("events").to_table()["day"].to_pylist()))


@pytest.mark.usefixtures("written")
def test_retention_previews_and_then_deletes_in_one_commit(run, tables):
    asset = build_retention_asset(events, RetentionPolicy(keep=2))

    def metadata(**config):
        result = run(asset, run_config={"ops": {"events__retention": {"config": config}}})
        (event,) = result.get_asset_materialization_events()
        return event.materialization.metadata

    preview = metadata(dry_run=True)
    assert (preview["lance/rows_deleted"].value, preview["lance/partitions"].value) == (6, KEYS[:3])
    assert days(tables) == KEYS
    before = tables.dataset("events").version
    assert metadata(dry_run=False)["lance/rows_deleted"].value == 6
    assert (days(tables), tables.dataset("events").version) == (KEYS[3:], before + 1)
    assert metadata(dry_run=False)["lance/reason"].value == "no rows to delete"
    assert tables.dataset("events").version == before + 1


def test_a_policy_by_age_counts_from_the_end_of_the_window():
    policy, now = RetentionPolicy(older_than=timedelta(days=2)), datetime(2026, 1, 5, tzinfo=UTC)
    assert policy.expired(DAYS, now) == KEYS[:2]


@pytest.mark.usefixtures("written")
def test_partitions_are_wiped_as_a_commit(root, instance, tables):
    job = build_wipe_job(events)

    def wipe(**config):
        run_config = {"ops": {job.name: {"config": config}}}
        return job.execute_in_process(
            run_config=run_config,
            resources={"lance": LanceResource(root=root)},
            instance=instance,
            raise_on_error=False,
        )

    assert wipe(partitions=[KEYS[1]], dry_run=True).success
    assert days(tables) == KEYS
    result = wipe(partitions=[KEYS[1], KEYS[3]])
    told = [event.asset_observation_data.asset_observation for event in result.all_events if event.is_asset_observation]
    empty = [(one.partition, one.metadata["dagster/partition_row_count"].value) for one in told]
    assert empty == [(KEYS[1], 0), (KEYS[3], 0)]
    assert days(tables) == [KEYS[0], KEYS[2], KEYS[4]]
    assert not wipe(partitions=["2027-01-01"]).success


def test_policies_that_make_no_sense_are_refused():
    for given in ({}, {"keep": 1, "older_than": timedelta(1)}, {"keep": 0}):
        with pytest.raises(InvalidInputError, match="retention policy"):
            RetentionPolicy(**given)
