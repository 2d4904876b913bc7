"""A bad run is undone: its tables go back to the version before it, unless others changed them since."""

import dagster as dg
import pyarrow as pa
import pytest

from lance_dagster import LanceResource, build_rollback_job


@dg.asset
def prices(context: dg.AssetExecutionContext) -> pa.Table:
    return pa.table({"price": [int(context.run.tags.get("price", "1"))]})


@dg.asset(metadata={"mode": "append"})
def log(prices: pa.Table) -> pa.Table:
    return prices


@dg.asset
def untouched() -> pa.Table:
    return pa.table({"a": [1]})


JOB = build_rollback_job([prices, log, untouched, "missing"])


@pytest.fixture
def job(root, instance):
    def execute(run_id, **config):
        return JOB.execute_in_process(
            run_config={"ops": {"roll_back_run": {"config": {"run_id": run_id, **config}}}},
            resources={"lance": LanceResource(root=root)},
            instance=instance,
            raise_on_error=False,
        )

    return execute


@pytest.fixture
def bad_run(run):
    run(prices, log, untouched)
    return run(prices, log).run_id


def values(tables, name, column="price"):
    return tables.dataset(name).to_table()[column].to_pylist()


def test_a_run_is_undone_as_a_commit(job, bad_run, tables, instance):
    assert (len(values(tables, "log")), tables.dataset("untouched").version) == (2, 1)
    assert job(bad_run, dry_run=True).success
    assert tables.dataset("log").version == 2
    assert job(bad_run[:8]).success
    assert (len(values(tables, "log")), tables.dataset("log").version) == (1, 3)
    assert tables.dataset("prices").version == 3
    assert tables.dataset("untouched").version == 1
    event = instance.get_latest_materialization_event(dg.AssetKey("log")).asset_materialization
    assert event.tags["dagster/data_version"] == "3"
    assert event.metadata["lance/rolled_back"].value == bad_run
    # Once is enough.
    assert job(bad_run).success
    assert tables.dataset("log").version == 3


def test_what_others_changed_since_is_not_undone_by_accident(job, bad_run, run, tables):
    run(prices, log)
    result = job(bad_run)
    (failure,) = result.get_step_failure_events()
    assert "Nothing was rolled back." in failure.step_failure_data.error_display_string
    assert len(values(tables, "log")) == 3
    tables.dataset("prices").insert(pa.table({"price": [7]}))
    assert not job(bad_run).success
    assert job(bad_run, force=True).success
    assert (values(tables, "log"), values(tables, "prices")) == ([1], [1])


def test_the_first_version_of_a_table_cannot_be_undone(job, run, tables):
    first = run(prices).run_id
    assert not job(first).success
    assert tables.dataset("prices").version == 1


def test_compaction_after_the_run_is_no_obstacle(job, bad_run, tables):
    tables.compact("log")
    assert job(bad_run, tables=["log"]).success
    assert len(values(tables, "log")) == 1
    assert tables.dataset("prices").version == 2
