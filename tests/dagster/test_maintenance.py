"""Maintenance assets: what they do, what they leave alone, what they say."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run

import lance_core
from lance_core.errors import CommitConflictError, InvalidInputError
from lance_dagster import (
    CleanupPolicy,
    CompactionPolicy,
    DeletionPolicy,
    LanceResource,
    build_maintenance_assets,
    build_maintenance_definitions,
    build_maintenance_schedule,
)
from lance_dagster.maintenance import tasks
from lance_dagster.maintenance.policies import Tag, expired_run_tags
from lance_dagster.versions.history import data_version

NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def table(tables):
    """A table of five fragments of ten rows, made in five commits."""
    uri = tables.uri("raw/events")
    for start in range(0, 50, 10):
        part = pa.table({"id": pa.array(range(start, start + 10), pa.int64())})
        lance_core.write_dataset(part, uri, mode="append" if start else "create")
    return lambda: tables.dataset("raw/events")


@pytest.fixture
def maintain(root, instance):
    """Run one maintenance asset of the table; returns its metadata."""

    def run(name, *, dry_run=False, **policies):
        assets = build_maintenance_assets("raw/events", **policies)
        asset = next(one for one in assets if one.key.path[-1] == name)
        result = dg.materialize(
            [asset],
            instance=instance,
            resources={"lance": LanceResource(root=root)},
            run_config={"ops": {asset.op.name: {"config": {"dry_run": dry_run}}}},
        )
        (event,) = result.asset_materializations_for_node(asset.op.name)
        return {key: value.value for key, value in event.metadata.items()}

    return run


def data_files(uri):
    return {path.name for path in Path(uri, "data").iterdir()}


def ids(table):
    return sorted(table().to_table()["id"].to_pylist())


def test_compaction_merges_and_keeps_the_rows(table, maintain):
    metadata = maintain("compaction")
    assert ids(table) == list(range(50))
    assert len(table().get_fragments()) == 1
    assert metadata["lance/skipped"] is False
    assert (metadata["lance/fragments_before"], metadata["lance/fragments"]) == (5, 1)
    assert (metadata["lance/fragments_removed"], metadata["lance/fragments_added"]) == (5, 1)
    assert metadata["lance/version"] == 6
    assert metadata["lance/attempts"] == 1


def test_compaction_says_who_made_it(table, maintain):
    maintain("compaction")
    properties = table().read_transaction(6).transaction_properties
    assert properties["dagster/asset_key"] == "raw/events/compaction"


def test_nothing_to_compact_commits_nothing(table, maintain):
    maintain("compaction")
    metadata = maintain("compaction")
    assert metadata["lance/skipped"] is True
    assert metadata["lance/reason"] == "no neighbouring fragments of fewer than 1,048,576 rows"
    assert table().version == 6


def test_a_threshold_of_fragments(table, maintain):
    metadata = maintain("compaction", compaction=CompactionPolicy(min_fragments=6))
    assert metadata["lance/skipped"] is True
    assert table().version == 5


def test_a_dry_run_changes_nothing(table, maintain):
    table().delete("id < 5")
    before = table().version
    for name in ("compaction", "materialize_deletions", "cleanup"):
        metadata = maintain(
            name,
            dry_run=True,
            cleanup=CleanupPolicy(older_than=timedelta(0), grace_period=timedelta(0), retain_versions=1),
        )
        assert metadata["lance/skipped"] is True
        assert metadata["lance/reason"] == "dry run"
    assert maintain("compaction", dry_run=True)["lance/fragments_planned"] == 5
    assert metadata["lance/versions_planned"] == before - 1
    assert (table().version, len(table().versions())) == (before, before)


def test_a_dry_run_of_cleanup_tells_what_then_happens(table, maintain):
    table().tags.create("run-00000001", 1)
    table().tags.create("release", 2)
    policy = CleanupPolicy(
        older_than=timedelta(0), grace_period=timedelta(0), retain_versions=1, keep_runs=0, keep_runs_for=timedelta(0)
    )
    kept = len(table().versions())
    planned = maintain("cleanup", dry_run=True, cleanup=policy)
    done = maintain("cleanup", cleanup=policy)
    assert planned["lance/run_tags_planned"] == done["lance/run_tags_expired"] == 1
    assert planned["lance/versions_planned"] == done["lance/versions_removed"] == kept - 2
    assert planned["lance/bytes_planned"] == done["lance/bytes_reclaimed"] > 0


def test_deletions_above_the_threshold_are_materialized(table, maintain):
    table().delete("id < 5 OR id = 10")
    metadata = maintain("materialize_deletions", deletions=DeletionPolicy(threshold=0.2))
    assert metadata["lance/fragments_removed"] == 1
    assert (metadata["lance/deleted_rows_before"], metadata["lance/deleted_rows"]) == (6, 1)
    assert ids(table) == [5, 6, 7, 8, 9, *range(11, 50)]
    assert maintain("materialize_deletions", deletions=DeletionPolicy(threshold=0.2))["lance/skipped"] is True


def test_cleanup_removes_what_is_old_and_untagged(table, maintain):
    table().tags.create("keep-me", 2)
    maintain("compaction")
    metadata = maintain(
        "cleanup", cleanup=CleanupPolicy(older_than=timedelta(0), grace_period=timedelta(0), retain_versions=2)
    )
    assert [version["version"] for version in table().versions()] == [2, 5, 6]
    assert metadata["lance/versions_removed"] == 3
    assert lance_core.dataset(table().uri, version="keep-me").count_rows() == 20
    assert ids(table) == list(range(50))


def test_cleanup_with_nothing_to_do_says_so(table, maintain):
    metadata = maintain("cleanup")
    assert metadata["lance/skipped"] is True
    assert table().version == 5


def test_cleanup_expires_old_run_tags_first(table, maintain):
    for version in (1, 2, 3):
        table().tags.create(f"run-0000000{version}", version)
    table().tags.create("run-of-the-mill", 1)
    policy = CleanupPolicy(
        older_than=timedelta(0), grace_period=timedelta(0), retain_versions=1, keep_runs=1, keep_runs_for=timedelta(0)
    )
    metadata = maintain("cleanup", cleanup=policy)
    assert metadata["lance/run_tags_expired"] == 2
    assert set(table().tags.list()) == {"run-00000003", "run-of-the-mill"}
    assert [version["version"] for version in table().versions()] == [1, 3, 5]


def test_a_missing_table_is_no_failure(maintain):
    metadata = maintain("compaction")
    assert metadata == {"lance/skipped": True, "lance/reason": "there is no table yet"}


@pytest.fixture
def racing(table, monkeypatch):
    """While each of the first plans is carried out, another writer rewrites a row."""

    def install(times, row=0):
        original = tasks.execute
        calls = []

        def execute(*args, **kwargs):
            calls.append(1)
            result = original(*args, **kwargs)
            if len(calls) <= times:
                table().update({"id": "id"}, where=f"id = {row}")
            return result

        monkeypatch.setattr(tasks, "execute", execute)
        return calls

    return install


def test_a_conflict_is_planned_anew(table, maintain, racing):
    calls = racing(2)
    assert maintain("compaction")["lance/attempts"] == 3
    assert len(calls) == 3
    assert ids(table) == list(range(50))


def test_more_than_fifty_conflicts_are_no_reason_to_give_up(table, maintain, racing):
    calls = racing(51)
    assert maintain("compaction")["lance/attempts"] == 52
    assert len(calls) == 52
    assert ids(table) == list(range(50))


def test_conflicts_without_end_are_raised(table, maintain, racing):
    calls = racing(9)
    with pytest.raises(CommitConflictError):
        maintain("compaction", max_attempts=2)
    assert len(calls) == 2
    assert table().version == 7


def test_the_time_for_commits_ends_maintenance(maintain, racing, monkeypatch):
    monkeypatch.setenv("LANCE_CORE_COMMIT_TIMEOUT", "0.000001")
    calls = racing(9)
    with pytest.raises(CommitConflictError):
        maintain("compaction")
    assert len(calls) == 1


def test_groups_that_nobody_touched_are_committed_after_a_conflict(table, maintain, racing):
    table().delete("id % 2 = 0")
    calls = racing(1, row=45)
    metadata = maintain("materialize_deletions", max_attempts=1)
    assert (len(calls), metadata["lance/attempts"]) == (1, 1)
    assert (metadata["lance/fragments_removed"], metadata["lance/fragments_added"]) == (4, 4)
    assert ids(table) == list(range(1, 50, 2))


def tag(name, version, days):
    return Tag(name=name, version=version, created_at=NOW - timedelta(days=days))


@pytest.mark.parametrize(
    ("policy", "expired"),
    [
        (CleanupPolicy(keep_runs=0, keep_runs_for=timedelta(days=14)), [1, 2]),
        (CleanupPolicy(keep_runs=2, keep_runs_for=timedelta(0)), [1, 2]),
        (CleanupPolicy(keep_runs=3, keep_runs_for=timedelta(days=14)), [1]),
        (CleanupPolicy(keep_runs=9, keep_runs_for=timedelta(0)), []),
        (CleanupPolicy(keep_runs=0, keep_runs_for=timedelta(0)), [1, 2, 3, 4]),
    ],
)
def test_which_run_tags_expire(policy, expired):
    tags = [tag(f"run-{v:08x}", v, days) for v, days in ((4, 1), (1, 30), (3, 13), (2, 14))]
    people = [tag("release", 1, 999), tag("run-me", 2, 999), Tag(name="run-ffffffff", version=0, created_at=None)]
    assert [one.version for one in expired_run_tags([*tags, *people], policy, now=NOW)] == expired


@pytest.mark.parametrize("make", [lambda: CleanupPolicy(retain_versions=0), lambda: DeletionPolicy(threshold=2)])
def test_policies_that_make_no_sense(make):
    with pytest.raises(InvalidInputError):
        make()


def test_the_assets_hang_off_the_table_in_order():
    assets = build_maintenance_assets(["raw/events", dg.AssetSpec("b"), dg.AssetKey(["raw", "events"])])
    assert [asset.key.to_user_string() for asset in assets] == [
        f"{table}/{name}"
        for table in ("raw/events", "b")
        for name in ("compaction", "materialize_deletions", "cleanup")
    ]
    specs = [asset.specs_by_key[asset.key] for asset in assets[:3]]
    upstream = ["raw/events", "raw/events/compaction", "raw/events/materialize_deletions"]
    assert [[dep.asset_key.to_user_string() for dep in spec.deps] for spec in specs] == [[key] for key in upstream]
    spec = specs[2]
    assert (spec.group_name, spec.kinds) == ("maintenance", {"lance"})
    assert assets[0].op.pool == "lance/raw/events"


def test_parts_can_be_left_out():
    (only,) = build_maintenance_assets("t", compaction=None, deletions=None)
    assert only.key.path[-1] == "cleanup"


def test_maintenance_makes_nothing_stale(root, instance):
    @dg.asset(metadata={"mode": "append"})
    def events():
        return pa.table({"a": [1]})

    @dg.asset
    def down(events: pa.Table) -> None:
        pass

    from lance_dagster import LanceIOManager  # noqa: PLC0415 - only here

    resources = {"io_manager": LanceIOManager(root=root), "lance": LanceResource(root=root)}
    maintenance = build_maintenance_assets("events")
    for _ in range(2):
        dg.materialize([events, down], instance=instance, resources=resources)
    dg.materialize([events, down, *maintenance], selection=maintenance, instance=instance, resources=resources)
    dataset = LanceResource(root=root).dataset("events")
    assert (dataset.version, data_version(dataset)) == (3, 2)
    # What Dagster compares to tell stale from fresh: the upstream's version now, and the one that was read.
    tags = {
        key: instance.get_latest_materialization_event(dg.AssetKey(key)).asset_materialization.tags
        for key in ("events", "down")
    }
    assert tags["events"]["dagster/data_version"] == tags["down"]["dagster/input_data_version/events"] == "2"


def test_the_schedule_requests_the_job(root):
    defs = build_maintenance_definitions(
        ["a", "b"], cron_schedule="0 4 * * *", default_status=dg.DefaultScheduleStatus.RUNNING
    )
    merged = dg.Definitions.merge(defs, dg.Definitions(resources={"lance": LanceResource(root=root)}))
    schedule = merged.resolve_schedule_def("lance_maintenance_schedule")
    assert schedule.cron_schedule == "0 4 * * *"
    assert schedule.default_status is dg.DefaultScheduleStatus.RUNNING
    tick = schedule.evaluate_tick(dg.build_schedule_context(scheduled_execution_time=NOW))
    assert len(tick.run_requests) == 1
    assert len(merged.resolve_job_def("lance_maintenance").asset_layer.executable_asset_keys) == 7


def test_without_a_cron_schedule_there_is_the_job_only(root):
    defs = build_maintenance_definitions("a", cron_schedule=None, name="tidy")
    merged = dg.Definitions.merge(defs, dg.Definitions(resources={"lance": LanceResource(root=root)}))
    assert merged.resolve_job_def("tidy").execute_in_process().success
    assert not merged.schedules


@pytest.mark.parametrize("cron_schedule", [None, "0 4 * * *"])
def test_all_steps_of_the_job_run_in_one_process(root, instance, cron_schedule):
    """A process for each step imports Dagster each time, which takes as long as hundreds of steps."""
    defs = build_maintenance_definitions(["raw/events", "none"], cron_schedule=cron_schedule)
    resources = {"lance": LanceResource(root=root)}
    merged = dg.Definitions.merge(defs, dg.Definitions(resources=resources, executor=dg.multiprocess_executor))
    job = merged.resolve_job_def("lance_maintenance")
    # The executor of the code location cannot run a job that only this process knows.
    run = instance.create_run_for_job(job)
    assert execute_run(InMemoryJob(job), run, instance).success
    steps = {event.step_key for event in instance.all_logs(run.run_id) if event.step_key is not None}
    assert len(steps) == 7


def test_the_executor_of_the_job_can_be_chosen(root):
    resources = {"lance": LanceResource(root=root)}
    for chosen, name in [(None, "multiprocess"), (dg.multi_or_in_process_executor, "multi_or_in_process_executor")]:
        defs = build_maintenance_definitions("a", executor_def=chosen)
        merged = dg.Definitions.merge(defs, dg.Definitions(resources=resources, executor=dg.multiprocess_executor))
        assert merged.resolve_job_def("lance_maintenance").executor_def.name == name


def test_a_schedule_of_ones_own_assets():
    schedule = build_maintenance_schedule(build_maintenance_assets("a"), cron_schedule="@daily", name="mine")
    assert schedule.name == "mine_schedule"


def test_a_branch_is_maintained_by_itself(root, instance, table):
    main = table()
    main.tags.create("run-00000000", 1)
    main.create_branch("audit/eve")
    uri = main.uri
    for number in range(3):
        rows = pa.table({"id": pa.array([100 + number], pa.int64())})
        main.checkout_version(("audit/eve", None)).insert(rows)
    branch = main.checkout_version(("audit/eve", None))
    branch.tags.create("run-11111111", ("audit/eve", branch.version))
    rows_of = {None: ids(table), "audit/eve": sorted(branch.to_table()["id"].to_pylist())}
    newest, files = main.version, data_files(uri)

    assets = build_maintenance_assets(
        "raw/events",
        branch="audit/eve",
        cleanup=CleanupPolicy(
            older_than=timedelta(0),
            retain_versions=1,
            grace_period=timedelta(0),
            keep_runs=0,
            keep_runs_for=timedelta(0),
        ),
    )
    assert assets[0].key.path == ["raw", "events", "audit", "eve", "compaction"]
    resources = {"lance": LanceResource(root=root)}
    result = dg.materialize(assets, instance=instance, resources=resources)
    told = [
        {key: one.value for key, one in event.materialization.metadata.items()}
        for event in (e.event_specific_data for e in result.get_asset_materialization_events())
    ]
    compaction, deletions, cleanup = told
    assert (compaction["lance/branch"], compaction["lance/fragments_added"]) == ("audit/eve", 1)
    assert deletions["lance/skipped"]
    assert cleanup["lance/run_tags_expired"] == 1
    assert cleanup["lance/versions_removed"] > 0

    after = table()
    assert (after.version, ids(table)) == (newest, rows_of[None])
    assert list(after.tags.list()) == ["run-00000000"], "a tag of the main branch is none of the branch's"
    assert files <= data_files(uri)
    branch = after.checkout_version(("audit/eve", None))
    assert sorted(branch.to_table()["id"].to_pylist()) == rows_of["audit/eve"]
    assert after.verify(level="full").is_ok


def test_a_branch_that_is_not_there(root, instance, table):
    (asset,) = build_maintenance_assets("raw/events", branch="none", deletions=None, cleanup=None)
    table()
    result = dg.materialize([asset], instance=instance, resources={"lance": LanceResource(root=root)})
    (event,) = result.asset_materializations_for_node(asset.op.name)
    assert event.metadata["lance/reason"].value == "there is no branch 'none'"


def test_what_is_done_twice_is_done_once(root, instance, table):
    """A second run of every job writes no byte and makes no version."""
    table().delete("id % 3 = 0")
    policy = CleanupPolicy(older_than=timedelta(0), retain_versions=1, grace_period=timedelta(0))
    assets = build_maintenance_assets("raw/events", deletions=DeletionPolicy(threshold=0), cleanup=policy)
    resources = {"lance": LanceResource(root=root)}
    dg.materialize(assets, instance=instance, resources=resources)
    before = {path: path.stat().st_mtime_ns for path in Path(table().uri).rglob("*")}
    result = dg.materialize(assets, instance=instance, resources=resources)
    metadata = [
        event.event_specific_data.materialization.metadata for event in result.get_asset_materialization_events()
    ]
    assert [one["lance/skipped"].value for one in metadata] == [True, True, True]
    assert {path: path.stat().st_mtime_ns for path in Path(table().uri).rglob("*")} == before
