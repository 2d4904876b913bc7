"""A step that failed after its commit is not written twice; a wanted second run is."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from unittest.mock import Mock

import dagster as dg
import pyarrow as pa
import pytest

from lance_dagster import LanceIOManager, LanceResource, io_manager, report
from lance_dagster.report import report_output
from lance_dagster.versions.tags import is_run_tag, run_tag


@pytest.fixture
def failing_once(monkeypatch):
    """The first report after a commit fails, as if the process had died."""
    calls = []

    def dying(*args, **kwargs):
        calls.append(1)
        if len(calls) == 1:
            message = "died after the commit"
            raise RuntimeError(message)
        return report_output(*args, **kwargs)

    monkeypatch.setattr(io_manager, "report_output", dying)
    return calls


def appending(policy=None):
    @dg.asset(metadata={"mode": "append"}, retry_policy=policy)
    def asset():
        return pa.table({"a": [1]})

    return asset


def test_a_retry_takes_over_the_commit(run, tables, metadata_of, failing_once):
    result = run(appending(dg.RetryPolicy(max_retries=1)))
    assert result.success
    assert len(failing_once) == 2
    assert tables.dataset("asset").count_rows() == 1
    metadata = metadata_of(result)
    assert metadata["lance/idempotent_replay"] is True
    assert metadata["lance/version"] == 1
    assert metadata["lance/tag"] == run_tag(result.run_id)


def test_a_retry_finds_its_commit_below_those_of_others(run, tables, failing_once, root):
    other = LanceIOManager(root=root)
    assert not failing_once

    @dg.asset(name="asset", metadata={"mode": "append"}, retry_policy=dg.RetryPolicy(max_retries=1))
    def asset(context):
        if context.retry_number:
            for i in range(15):
                by_hand = dg.build_output_context(
                    asset_key=context.asset_key,
                    step_key=f"{i}",
                    run_id="b" * 32,
                    definition_metadata={"mode": "append"},
                )
                other.handle_output(by_hand, pa.table({"a": [2]}))
        return pa.table({"a": [1]})

    run(asset)
    assert tables.dataset("asset").count_rows(filter="a = 1") == 1


def test_rewrite_on_retry_is_a_choice(run, tables, root, failing_once):
    run(appending(dg.RetryPolicy(max_retries=1)), manager=LanceIOManager(root=root, on_retry="rewrite"))
    assert len(failing_once) == 2
    assert tables.dataset("asset").count_rows() == 2


def test_a_new_run_appends_again(run, tables):
    run(appending())
    run(appending())
    assert tables.dataset("asset").count_rows() == 2


def job_of(asset, root):
    return dg.Definitions(
        assets=[asset],
        jobs=[dg.define_asset_job("job", selection=[asset])],
        resources={"io_manager": LanceIOManager(root=root)},
        executor=dg.in_process_executor,
    ).resolve_job_def("job")


def reexecution_of(job, result, instance):
    """Run the job again as a re-execution of an earlier run."""
    root_run_id = instance.get_run_by_id(result.run_id).get_root_run_id() or result.run_id
    run = instance.create_run_for_job(job, parent_run_id=result.run_id, root_run_id=root_run_id)
    from dagster._core.execution.api import execute_run  # noqa: PLC0415 - a test looks inside

    return execute_run(dg._core.definitions.job_base.InMemoryJob(job), run, instance, raise_on_error=False)


def test_a_reexecution_of_a_step_that_died_takes_over_its_commit(root, instance, tables, failing_once):
    job = job_of(appending(), root)
    result = job.execute_in_process(instance=instance, raise_on_error=False)
    assert not result.success
    assert reexecution_of(job, result, instance).success
    assert len(failing_once) == 2
    assert tables.dataset("asset").count_rows() == 1


def test_a_reexecution_of_a_finished_step_writes_again(root, instance, tables):
    job = job_of(appending(), root)
    result = job.execute_in_process(instance=instance)
    assert reexecution_of(job, result, instance).success
    assert tables.dataset("asset").count_rows() == 2


def test_other_partitions_of_a_run_are_other_commits(run, tables):
    letters = dg.StaticPartitionsDefinition(["a", "b"])

    @dg.asset(partitions_def=letters, metadata={"partition_expr": "x", "mode": "append"})
    def asset(context):
        return pa.table({"x": [context.partition_key]})

    run(asset, partition_key="a")
    run(asset, partition_key="b")
    assert tables.dataset("asset").count_rows() == 2


def test_overwriting_again_is_not_skipped_if_somebody_wrote_in_between(run, tables, root, failing_once):
    @dg.asset(name="asset", retry_policy=dg.RetryPolicy(max_retries=1))
    def asset(context):
        if context.retry_number:
            by_hand = dg.build_output_context(asset_key=context.asset_key, step_key="other", run_id="b" * 32)
            LanceIOManager(root=root).handle_output(by_hand, pa.table({"a": [2]}))
        return pa.table({"a": [1]})

    run(asset)
    assert len(failing_once) >= 2
    assert tables.dataset("asset").to_table().to_pydict() == {"a": [1]}


def test_each_run_has_its_tag(run, tables):
    runs = [run(appending()) for _ in range(3)]
    assert tables.tags("asset") == {run_tag(one.run_id): i + 1 for i, one in enumerate(runs)}


def test_a_second_commit_of_a_run_gets_a_tag_of_its_own(root, tables):
    manager = LanceIOManager(root=root)
    for _ in range(2):
        context = dg.build_output_context(
            asset_key=dg.AssetKey("asset"),
            step_key=f"step{_}",
            run_id="0123abcd" * 4,
            definition_metadata={"mode": "append"},
        )
        manager.handle_output(context, pa.table({"a": [1]}))
    assert tables.tags("asset") == {"run-0123abcd": 1, "run-0123abcd-v2": 2}


def test_no_tags_if_not_wanted(run, tables, root):
    run(appending(), manager=LanceIOManager(root=root, tag_runs=False))
    assert tables.tags("asset") == {}


def test_a_tag_that_cannot_be_made_only_warns(run, tables, monkeypatch):
    monkeypatch.setattr(report, "tag_version", Mock(side_effect=OSError("no room")))
    assert run(appending()).success
    assert tables.dataset("asset").count_rows() == 1


@pytest.mark.parametrize(
    ("name", "is_ours"),
    [
        ("run-0123abcd", True),
        ("run-0123abcd-v12", True),
        ("run-0123abc", False),
        ("run-final-version", False),
        ("my-run-0123abcd", False),
        ("v1", False),
    ],
)
def test_names_of_run_tags(name, is_ours):
    assert is_run_tag(name) is is_ours


def tick(minutes=0):
    """Tags of the runs that a schedule asks for."""
    time = datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=minutes)
    return {"dagster/schedule_name": "each_minute", ".dagster/scheduled_execution_time": time.isoformat()}


def test_the_same_tick_of_two_daemons_counts_once(root, tables):
    """Each daemon has its own instance, so that Dagster cannot know of the other's run."""
    job = job_of(appending(), root)
    runs = []
    before = tick(1)
    for tags in (before, before, tick()):
        with dg.DagsterInstance.ephemeral() as instance:
            runs.append(job.execute_in_process(instance=instance, tags=tags))
    values = [run.asset_materializations_for_node("asset")[0].metadata for run in runs]
    assert [one["lance/version"].value for one in values] == [1, 1, 2]
    assert values[1]["lance/idempotent_replay"].value is True
    assert tables.dataset("asset").count_rows() == 2
    assert tables.tags("asset") == {run_tag(run.run_id): version for run, version in zip(runs, (1, 1, 2), strict=True)}


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_the_same_tick_at_the_same_time_counts_once(root, tables, mode):
    LanceResource(root=root).write("asset", pa.table({"a": [0]}), mode="create")
    together = threading.Barrier(4, timeout=60)

    @dg.asset(metadata={"mode": mode, "merge_keys": ["a"]})
    def asset():
        return pa.table({"a": [1]})

    class Together(LanceIOManager):
        def _earlier_commit(self, *args):
            found = super()._earlier_commit(*args)
            together.wait()  # nobody has found anything, all are about to write
            return found

    def run(tags):
        with dg.DagsterInstance.ephemeral() as instance:
            resources = {"io_manager": Together(root=root)}
            done = dg.materialize([asset], instance=instance, resources=resources, tags=tags)
            return done.asset_materializations_for_node("asset")[0].metadata["lance/version"].value

    with ThreadPoolExecutor(4) as pool:
        versions = list(pool.map(run, [tick()] * 4))
    assert set(versions) == {2}
    assert tables.dataset("asset").version == 2
    assert tables.dataset("asset").count_rows("a = 1") == 1


def test_a_tick_that_is_run_again_on_purpose_counts_again(root, instance, tables):
    job = job_of(appending(), root)
    result = job.execute_in_process(instance=instance, tags=tick())
    assert reexecution_of(job, result, instance).success
    assert tables.dataset("asset").count_rows() == 2


@pytest.mark.parametrize("failures", [1, 2, 3])
def test_failures_after_the_commit_again_and_again(run, tables, monkeypatch, failures):
    left = iter(range(failures))

    def dying(*args, **kwargs):
        if next(left, None) is not None:
            raise RuntimeError
        return report_output(*args, **kwargs)

    monkeypatch.setattr(io_manager, "report_output", dying)
    result = run(appending(dg.RetryPolicy(max_retries=failures)))
    assert result.success
    assert next(left, None) is None
    assert (tables.dataset("asset").version, tables.dataset("asset").count_rows()) == (1, 1)
    assert tables.tags("asset") == {run_tag(result.run_id): 1}
