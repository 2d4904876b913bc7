"""Advice about partitions in the health of tables, with numbers; health waits for the other steps of its run."""

from types import SimpleNamespace

import dagster as dg
import pyarrow as pa
import pytest
from dagster._core.events import EngineEventData

import lance_core
from lance_dagster import LanceResource, build_table_health
from lance_dagster._compat import finished_steps, step_graph
from lance_dagster.maintenance.last import pending_steps
from lance_dagster.maintenance.partition_advice import PartitionSizes, fragments_touched, size_advice
from lance_dagster.partitioning.partitions import TablePartitions

DAYS = dg.DailyPartitionsDefinition("2026-01-01", end_date="2026-03-02")
KEYS = DAYS.get_partition_keys()


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
def events(context: dg.AssetExecutionContext) -> pa.Table:
    return pa.table({"day": context.partition_keys * 2})


@pytest.fixture
def advice(run):
    """Return the advice for the table and its line in the table of health."""

    def of(**options):
        result = run(build_table_health(events, compaction=None, deletions=None, cleanup=None, **options))
        (event,) = result.get_asset_materialization_events()
        metadata = event.materialization.metadata
        lines = metadata["lance/advice"].value.splitlines()[2:] if "lance/advice" in metadata else []
        texts = [line.removeprefix("| `events` | ").removesuffix(" |") for line in lines]
        return texts, metadata["lance/health"].value.splitlines()[2]

    return of


def test_a_table_of_few_fragments_gets_no_advice_without_a_look_at_its_rows(run, advice):
    run(events, partition_range=(KEYS[0], KEYS[9]))
    assert advice() == ([], advice()[1])
    assert advice()[1].startswith("| `events` | nothing |")


def test_fragments_without_a_zone_map_are_told(run, advice, tables):
    for key in KEYS[:8]:
        run(events, partition_key=key)
    (text,), line = advice()
    assert text.startswith(
        "`day` has no zone map: a read or a replacement of one partition looks at the column of all 8"
    )
    assert line.startswith("| `events` | nothing; *advice*: 1, see `lance/advice` |")
    tables.dataset("events").create_scalar_index("day", "ZONEMAP")
    assert advice()[0] == []


def test_small_partitions_are_told_with_a_coarser_choice(run, advice):
    run(events, partition_range=(KEYS[0], KEYS[-1]))
    (text,), _ = advice(measure_partitions=True)
    assert text.startswith("half of the 60 partitions have less than")
    assert "(2 rows): yearly partitions would have about" in text


def test_rows_outside_are_told(run, advice, tables):
    run(events, partition_key=KEYS[0])
    tables.dataset("events").insert(pa.table({"day": ["2020-01-01", None]}))
    assert advice(measure_partitions=True)[0] == [
        "2 rows belong to no partition: the job of build_partition_change_job tells which"
    ]


def sizes(**numbers):
    usual = {
        "partitions": 60, "median_rows": 1e6, "median_bytes": 1e8, "largest": "us", "largest_rows": 2_000_000,
        "largest_bytes": 2e8, "total_rows": 61_000_000, "fragments_per_partition": 1.0, "partitions_per_fragment": 1.0,
    }  # fmt: skip
    return PartitionSizes(**{**usual, **numbers})


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        (
            {"largest_rows": 50_000_000, "largest_bytes": 5e9},
            "the partition 'us' has 82% of the rows (5 GB), 50 times the median: a second dimension",
        ),
        (
            {"fragments_per_partition": 12.0, "partitions_per_fragment": 9.0},
            "a partition lies in 12 fragments, each with rows of 9 partitions: write the table once in the order of",
        ),
        (
            {"median_bytes": 50_000.0},
            "half of the 60 partitions have less than 50 kB (1,000,000 rows): monthly partitions would have about",
        ),
    ],
)
def test_advice_by_sizes(numbers, text):
    assert size_advice(sizes(), TablePartitions.of(events)) == []
    (advice,) = size_advice(sizes(**numbers), TablePartitions.of(events))
    assert advice.startswith(text)


def test_outputs_that_touch_many_fragments_are_told(run, advice, tables, root):
    """Each fragment has rows of all days, so replacing one day touches all of them."""
    for number in range(10):
        rows = pa.table({"day": KEYS[:3]})
        lance_core.write_dataset(rows, f"{root}/events.lance", mode="append" if number else "create")
    first = run(events, partition_key=KEYS[0])
    (event,) = first.get_asset_materialization_events()
    assert "| fragments touched | 10 |" in event.materialization.metadata["lance/details"].value
    assert fragments_touched(tables.dataset("events")) == [10]
    assert advice()[0][1].startswith("the last 1 outputs replaced rows in 10 fragments each for a single partition")


def test_a_step_waits_for_what_still_runs_and_not_for_what_never_will():
    upstream = {"compact": set(), "cleanup": {"compact"}, "other": set(), "health": set(), "after": {"health"}}
    assert pending_steps(["health"], upstream, {}) == {"compact", "cleanup", "other"}
    assert pending_steps(["health"], upstream, {"compact": True}) == {"cleanup", "other"}
    assert pending_steps(["health"], upstream, {"compact": False}) == {"other"}
    assert pending_steps(["health"], upstream, {"compact": False, "other": True}) == set()


def test_steps_that_come_last_do_not_wait_for_each_other(instance, root):
    """Two health assets in one run, each in a process of its own."""
    first, second = (build_table_health("a", key=key) for key in ("first", "second"))

    @dg.asset
    def work(): ...

    resources = {"lance": LanceResource(root=root)}
    job = dg.Definitions([first, second, work], jobs=[dg.define_asset_job("all")], resources=resources)
    run = instance.create_run_for_job(job.resolve_job_def("all"))
    started = dg.DagsterEvent("STEP_WORKER_STARTED", "all", step_key="first", event_specific_data=EngineEventData())
    instance.report_dagster_event(started, run.run_id)
    step = SimpleNamespace(step=SimpleNamespace(key="first"))
    op_context = SimpleNamespace(get_step_execution_context=lambda: step)
    last, upstream = step_graph(SimpleNamespace(instance=instance, run=run, op_execution_context=op_context))
    assert (last, pending_steps(last, upstream, {})) == ({"first", "second"}, {"work"})


def test_steps_that_ended_are_read_once(instance):
    @dg.asset
    def bad():
        raise ValueError

    @dg.asset(deps=[bad])
    def after():
        """Never runs."""

    @dg.asset
    def good():
        """Succeeds."""

    result = dg.materialize([good, bad, after], instance=instance, raise_on_error=False)
    ended, cursor = finished_steps(instance, result.run_id)
    assert ended == {"good": True, "bad": False}  # what waits for a failed step has no event
    assert finished_steps(instance, result.run_id, cursor=cursor) == ({}, cursor)
