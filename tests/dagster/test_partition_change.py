"""Partitions that changed: a warning, a plan, and what is there reported without being written again."""

from datetime import UTC, datetime

import dagster as dg
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import InvalidInputError
from lance_dagster import LanceResource, build_partition_change_job, io_manager
from lance_dagster.partitioning.partition_counts import existing_keys, outside_filter, partition_counts
from lance_dagster.partitioning.partition_plan import plan_partition_change
from lance_dagster.partitioning.partition_scheme import PartitionScheme
from lance_dagster.partitioning.partitions import TablePartitions

DAYS = dg.DailyPartitionsDefinition("2026-01-30", end_date="2026-03-01")
MONTHS = dg.MonthlyPartitionsDefinition("2026-01-01", end_date="2026-04-01")


def events_of(partitions, *, column="day", value=str):
    """The asset with some partitions: a row for each key."""

    @dg.asset(partitions_def=partitions, metadata={"partition_expr": column})
    def events(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"day": [value(key) for key in context.partition_keys]})

    return events


def day_of(key):
    return datetime.fromisoformat(key).date()


@pytest.fixture
def plan(tables, instance):
    def of(asset, **options):
        dataset = tables.dataset("events")
        return plan_partition_change(dataset, asset.key, TablePartitions.of(asset), instance, **options)

    return of


@pytest.fixture
def change(root, instance):
    def run(asset, *, former=None, check=True, **config):
        job = build_partition_change_job(asset, former=former)
        return job.execute_in_process(
            run_config={"ops": {job.name: {"config": config}}},
            resources={"lance": LanceResource(root=root)},
            instance=instance,
            raise_on_error=check,
        )

    return run


def recorded(instance):
    return instance.get_materialized_partitions(dg.AssetKey("events"))


def reported(result):
    return [
        event.event_specific_data.materialization
        for event in result.all_events
        if event.event_type == dg.DagsterEventType.ASSET_MATERIALIZATION
    ]


def warnings_of(instance, result):
    logged = [log.user_message for log in instance.all_logs(result.run_id) if log.level == 30]
    return [text for text in logged if "change_partitions" in text]


def test_days_become_months(run, instance, tables, plan, change):
    days = events_of(DAYS, value=day_of)
    run(days, partition_range=("2026-01-30", "2026-02-28"))
    months = events_of(MONTHS, value=day_of)
    before = tables.dataset("events").version
    found = plan(months)
    assert found.before is not None
    assert found.before.text == "daily from 2026-01-30 (UTC) by `day`"
    # The key 2026-02-01 was a day: it says nothing of the month. January began before the first day.
    assert (found.complete, found.to_report) == ([], ["2026-02-01"])
    assert (found.partial, found.missing) == (["2026-01-01"], ["2026-03-01"])
    assert len(found.obsolete) == 29

    assert change(months, dry_run=True).success
    assert recorded(instance) == {f"2026-01-{day}" for day in (30, 31)} | {f"2026-02-{day:02}" for day in range(1, 29)}
    result = change(months)
    (event,) = reported(result)
    assert event.partition == "2026-02-01"
    assert event.tags["dagster/data_version"] == str(before)
    assert event.metadata["dagster/partition_row_count"].value == 28
    assert tables.dataset("events").version == before


def test_months_become_days_and_every_day_of_a_month_counts(run, plan):
    run(events_of(MONTHS, value=day_of), partition_key="2026-02-01")
    found = plan(events_of(DAYS, value=day_of))
    # Only one day has a row; the others were computed, too.
    assert found.to_report == [f"2026-02-{day:02}" for day in range(1, 29)]
    assert found.missing == ["2026-01-30", "2026-01-31"]


def test_an_earlier_start_leaves_what_is_recorded(run, plan):
    run(events_of(DAYS), partition_range=("2026-01-30", "2026-02-28"))
    earlier = dg.DailyPartitionsDefinition("2026-01-28", end_date="2026-03-01")
    found = plan(events_of(earlier))
    assert (len(found.complete), found.to_report, found.missing) == (30, [], ["2026-01-28", "2026-01-29"])


def test_a_later_start_leaves_rows_outside_which_can_be_deleted(run, tables, plan, change):
    run(events_of(DAYS), partition_range=("2026-01-30", "2026-02-28"))
    later = events_of(dg.DailyPartitionsDefinition("2026-02-01", end_date="2026-03-01"))
    found = plan(later)
    assert found.counts.num_outside == 2
    assert "`2026-01-30 (1)`, `2026-01-31 (1)`" in found.markdown()
    before = tables.dataset("events").version
    change(later)
    assert tables.dataset("events").version == before
    change(later, delete_outside=True)
    assert (tables.dataset("events").version, tables.dataset("events").count_rows()) == (before + 1, 28)


def test_renamed_keys_are_renamed_in_the_table_and_reported(run, instance, tables, plan, change):
    run(events_of(dg.StaticPartitionsDefinition(["asia", "eu", "us"])), partition_range=("asia", "us"))
    renamed = events_of(dg.StaticPartitionsDefinition(["africa", "asia", "europe", "us"]))
    assert plan(renamed).counts.outside == {"eu": 1}
    found = plan(renamed, renamed={"eu": "europe"})
    assert (found.to_report, found.missing, found.counts.num_outside) == (["europe"], ["africa"], 0)
    change(renamed, rename={"eu": "europe"})
    assert sorted(tables.dataset("events").to_table()["day"].to_pylist()) == ["asia", "europe", "us"]
    assert "europe" in recorded(instance)
    assert not change(renamed, rename={"us": "usa"}, check=False).success


def test_static_keys_become_dynamic(run, instance, plan):
    run(events_of(dg.StaticPartitionsDefinition(["a", "b"])), partition_range=("a", "b"))
    instance.add_dynamic_partitions("names", ["a", "b", "c"])
    found = plan(events_of(dg.DynamicPartitionsDefinition(name="names")))
    assert (found.complete, found.missing) == (["a", "b"], ["c"])


def test_a_new_dimension_is_covered_by_the_old_ones(run, plan):
    run(events_of(dg.StaticPartitionsDefinition(["a", "b"])), partition_key="a")
    both = dg.MultiPartitionsDefinition(
        {"name": dg.StaticPartitionsDefinition(["a", "b"]), "size": dg.StaticPartitionsDefinition(["A", "Z"])}
    )

    @dg.asset(partitions_def=both, metadata={"partition_expr": {"name": "day", "size": "upper(day)"}})
    def events() -> None: ...

    found = plan(events)
    assert found.to_report == ["a|A", "a|Z"]
    assert found.missing == ["b|A", "b|Z"]


def test_another_column_means_other_rows(run, tables, plan):
    run(events_of(DAYS, value=day_of), partition_key="2026-02-01")
    tables.dataset("events").add_columns({"shipped": "day"})
    found = plan(events_of(DAYS, column="shipped"))
    assert (found.complete, found.partial) == ([], ["2026-02-01"])


def test_what_was_materialized_since_the_change_counts(run, plan):
    run(events_of(DAYS, value=day_of), partition_key="2026-02-01")
    months = events_of(MONTHS, value=day_of)
    run(months, partition_key="2026-03-01")
    found = plan(months)
    assert (found.complete, found.partial) == (["2026-03-01"], ["2026-02-01"])


def test_a_table_of_others_is_reported_as_it_is(root, plan):
    lance_core.write_dataset(pa.table({"day": ["2026-02-01", "2026-02-02", None]}), f"{root}/events.lance")
    found = plan(events_of(DAYS))
    assert (found.before, found.to_report) == (None, ["2026-02-01", "2026-02-02"])
    assert found.counts.outside == {"None": 1}


def test_former_partitions_may_be_told(root, instance, change):
    lance_core.write_dataset(pa.table({"day": [day_of("2026-02-01")]}), f"{root}/events.lance")
    instance.report_runless_asset_event(dg.AssetMaterialization("events", partition="2026-02-01"))
    months = events_of(MONTHS)
    change(months, former=DAYS)
    assert recorded(instance) == {"2026-02-01"}
    result = change(months, former=DAYS, report_partial=True)
    assert [event.partition for event in reported(result)] == ["2026-02-01"]


def test_a_run_with_changed_partitions_warns_once(run, instance):
    first = run(events_of(DAYS), partition_key="2026-02-01")
    same = run(events_of(dg.DailyPartitionsDefinition("2026-01-30")), partition_key="2026-02-02")
    changed = run(events_of(MONTHS), partition_key="2026-02-01")
    again = run(events_of(MONTHS), partition_key="2026-02-01")
    assert [warnings_of(instance, result) for result in (first, same, again)] == [[], [], []]
    (text,) = warnings_of(instance, changed)
    assert "changed from daily from 2026-01-30 (UTC) by `day` to monthly from 2026-01-01 (UTC) by `day`" in text
    assert "The job events__change_partitions (build_partition_change_job)" in text


@pytest.mark.parametrize("definition", [DAYS, MONTHS, dg.StaticPartitionsDefinition(["2026-02-02"])], ids=repr)
def test_tables_of_earlier_releases_warn_by_their_keys(run, instance, monkeypatch, definition):
    """They did not record their scheme."""
    with monkeypatch.context() as patched:
        patched.setattr(io_manager, "SCHEME", "none")
        run(events_of(DAYS), partition_key="2026-02-02")
    key = definition.get_first_partition_key()
    texts = warnings_of(instance, run(events_of(definition), partition_key=key))
    expected = ["to monthly from 2026-01-01 (UTC) by `day`: ['2026-02-02'] of the last run are no keys any more"]
    assert [text.partition("changed ")[2].partition(". Rows")[0] for text in texts] == expected * (definition is MONTHS)


def test_further_static_keys_are_no_change_but_removed_ones_are(run, instance):
    def regions(*keys):
        return run(events_of(dg.StaticPartitionsDefinition(list(keys))), partition_key="a")

    results = [regions("a", "b"), regions("a", "b", "c"), regions("a", "c")]
    assert [len(warnings_of(instance, result)) for result in results] == [0, 0, 1]
    assert "without the keys ['b']" in warnings_of(instance, results[2])[0]


@pytest.mark.parametrize(
    ("type_", "value"),
    [(pa.string(), "{}"), (pa.int32(), "{}"), (pa.date32(), "{}"), (pa.timestamp("us", "UTC"), "{}T12:00:00Z")],
    ids=str,
)
def test_rows_of_the_future_are_not_outside(tmp_path, type_, value):
    """Of every column type; a date far away is outside."""
    definition = dg.DailyPartitionsDefinition("2026-02-01")
    days = ["2026-01-31", "2026-02-01", "2026-02-02", datetime.now(UTC).date().isoformat(), "9999-12-30"]
    if type_ == pa.int32():
        column = pa.array([int(day.replace("-", "")) for day in days], type_)
    else:
        column = pa.array([value.format(day) for day in days]).cast(type_)
    dataset = lance_core.write_dataset(pa.table({"day": column}), tmp_path / "t")
    keys = existing_keys(definition, None)
    counts = partition_counts(dataset, definition, "day", keys=keys)
    assert (dict(counts.rows), counts.future, counts.num_outside) == ({"2026-02-01": 1, "2026-02-02": 1}, 1, 2)
    where = outside_filter(dataset, definition, "day", keys=keys)
    outside = dataset.to_table(filter=where)["day"].to_pylist()
    assert outside == [column[0].as_py(), column[-1].as_py()]


def test_a_scheme_survives_its_record():
    both = dg.MultiPartitionsDefinition({"day": DAYS, "region": dg.StaticPartitionsDefinition(["eu"])})
    scheme = PartitionScheme.of(both, {"day": "date(at)", "region": "region"})
    assert PartitionScheme.from_json(scheme.to_json()) == scheme
    assert scheme.text == "daily from 2026-01-30 (UTC) by `date(at)` and static keys by `region`"
    assert PartitionScheme.from_json("{}x") is None


def test_an_asset_without_partitions_is_refused():
    @dg.asset
    def whole() -> None: ...

    with pytest.raises(InvalidInputError, match="has no partitions"):
        build_partition_change_job(whole)
