"""Tables written elsewhere, told version by version: none missed, none twice."""

import shutil
from datetime import timedelta

import dagster as dg
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lance_core
from lance_core.errors import InvalidInputError
from lance_dagster import LanceResource, build_table_sensor
from lance_dagster.versions.changes import Seen, changes_since

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})


class Daemon:
    """Evaluates a sensor and does with its result what Dagster's daemon does."""

    def __init__(self, root, instance, **options):
        self.instance = instance
        self.resources = {"lance": LanceResource(root=root)}
        self.sensor = build_table_sensor("raw/t", **options)
        self.cursor = None
        self.run_keys = []

    def tick(self, *, crash=False):
        """One evaluation: the versions told; with `crash` the daemon dies before it stores the cursor."""
        with dg.build_sensor_context(
            instance=self.instance, cursor=self.cursor, resources=self.resources, sensor_name=self.sensor.name
        ) as context:
            result = self.sensor.evaluate_tick(context)
        if result.cursor is None:
            return result.skip_message
        for event in result.asset_events:
            self.instance.report_runless_asset_event(event)
        new = [one for one in result.run_requests or () if one.run_key not in self.run_keys]
        self.run_keys += [one.run_key for one in new]
        if not crash:
            self.cursor = result.cursor
        told = [int(one.tags["lance/version"]) for one in new]
        return [*told, *(event.metadata["lance/version"].value for event in result.asset_events)]

    def log(self):
        """All versions in the event log, in order."""
        records = self.instance.fetch_materializations(dg.AssetKey(["raw", "t"]), limit=1000).records
        return [record.asset_materialization.metadata["lance/version"].value for record in reversed(records)]


@pytest.fixture
def uri(tables):
    return tables.uri("raw/t")


@pytest.fixture
def daemon(root, instance):
    return lambda **options: Daemon(root, instance, **options)


def write(uri, mode="append"):
    return lance_core.write_dataset(ROWS, uri, mode=mode)


def test_the_newest_state_first_then_every_version(uri, daemon):
    here = daemon()
    assert here.tick() == "There is no table raw/t yet."
    write(uri)
    write(uri)
    assert here.tick() == [2]
    assert here.tick() == []
    for _ in range(3):
        write(uri)
    assert here.tick() == [3, 4, 5]
    assert here.cursor.startswith("5:")
    assert here.log() == [2, 3, 4, 5]


def test_what_an_event_tells(uri, daemon, instance):
    write(uri)
    table = write(uri)
    daemon().tick()
    event = instance.get_latest_materialization_event(dg.AssetKey(["raw", "t"])).asset_materialization
    assert event.tags["dagster/data_version"] == "2"
    told = {name: value.value for name, value in event.metadata.items()}
    assert told["dagster/row_count"] == 6
    assert told["lance/operation"] == "Append"
    assert told["dagster/uri"] == table.uri
    assert told["lance/committed_at"] == pytest.approx(table.get_version()["timestamp"].timestamp())


def test_from_the_first_version_in_portions(uri, daemon):
    for _ in range(5):
        write(uri)
    here = daemon(start="first", max_versions=2)
    assert [here.tick() for _ in range(4)] == [[1, 2], [3, 4], [5], []]


def test_maintenance_is_passed_over(uri, daemon):
    write(uri)
    table = write(uri)
    here = daemon()
    assert here.tick() == [2]
    table.optimize.compact_files()
    table.update_config({"lance.auto_cleanup.interval": "100"})
    assert table.version > 3
    assert here.tick() == []
    assert here.cursor.startswith(f"{table.version}:")
    table.delete("id = 1")
    assert here.tick() == [table.version]


def test_the_state_after_maintenance_is_told_by_the_version_that_changed_data(uri, daemon):
    write(uri)
    table = write(uri)
    table.optimize.compact_files()
    assert daemon().tick() == [2]


def test_a_crash_before_the_cursor_is_stored_tells_nothing_twice(uri, daemon):
    write(uri)
    here = daemon(start="first")
    assert here.tick(crash=True) == [1]
    write(uri)
    assert here.tick(crash=True) == [2]
    assert here.tick() == []
    assert here.log() == [1, 2]


def test_runs_are_requested_once(uri, daemon):
    @dg.asset
    def down() -> None: ...

    here = daemon(target=[down], start="first")
    write(uri)
    write(uri)
    assert here.tick(crash=True) == [1, 2]
    write(uri)
    assert here.tick() == [3]
    assert here.log() == []


def test_runs_and_observations(uri, daemon, instance):
    @dg.asset
    def down() -> None: ...

    here = daemon(target=[down], report="observation")
    write(uri)
    here.tick()
    assert len(here.run_keys) == 1
    (record,) = instance.fetch_observations(dg.AssetKey(["raw", "t"]), limit=10).records
    assert record.asset_observation.data_version == "1"


def test_versions_that_were_cleaned_up_count(uri, daemon):
    write(uri)
    here = daemon()
    assert here.tick() == [1]
    write(uri)
    table = write(uri)
    table.optimize.compact_files()
    table.cleanup_old_versions(older_than=timedelta(0), retain_versions=1)
    assert [one["version"] for one in table.version_refs()] == [4]
    assert here.tick() == [4]  # a compaction, but nobody knows any more what it followed
    assert here.tick() == []


def test_a_clean_up_of_what_was_told_tells_nothing(uri, daemon):
    write(uri)
    here = daemon()
    here.tick()
    table = write(uri)
    here.tick()
    table.optimize.compact_files()
    here.tick()
    table.cleanup_old_versions(older_than=timedelta(0), retain_versions=1)
    assert here.tick() == []


def test_a_restored_version_is_a_change(uri, daemon):
    write(uri)
    table = write(uri)
    here = daemon()
    here.tick()
    table.checkout_version(1).restore()
    assert here.tick() == [3]


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_a_table_made_anew_is_told_from_its_first_version(uri, daemon, writes):
    write(uri)
    write(uri)
    here = daemon()
    assert here.tick() == [2]
    shutil.rmtree(uri)
    for _ in range(writes):
        write(uri)
    assert here.tick() == list(range(1, writes + 1))


def test_what_runs_of_this_instance_wrote_is_known_already(uri, daemon, run, instance):
    @dg.asset(key=["raw", "t"], metadata={"mode": "append"})
    def asset():
        return ROWS

    run(asset)
    here = daemon(start="first")
    assert here.tick() == []
    write(uri)
    assert here.tick() == [2]
    assert len(instance.fetch_materializations(asset.key, limit=9).records) == 2


def test_a_place_of_its_own(tmp_path, daemon):
    elsewhere = str(tmp_path / "elsewhere.lance")
    write(elsewhere)
    assert daemon(uri=elsewhere).tick() == [1]


@pytest.mark.parametrize("cursor", ["x", "-1", "1.5"])
def test_a_wrong_cursor_is_refused(uri, daemon, cursor):
    write(uri)
    here = daemon()
    here.cursor = cursor
    with pytest.raises(InvalidInputError, match="cursor"):
        here.tick()


def test_a_cursor_set_by_hand(uri, daemon):
    for _ in range(3):
        write(uri)
    here = daemon()
    here.cursor = "1"
    assert here.tick() == [2, 3]


def test_portions_hold_something():
    with pytest.raises(InvalidInputError):
        build_table_sensor("t", max_versions=0)


@given(st.integers(0, 2**63), st.uuids().map(str) | st.just(""))
def test_cursors_are_read_as_they_are_written(version, identity):
    seen = Seen(version=version, identity=identity)
    assert Seen.of(str(seen)) == seen


STEPS = st.lists(st.sampled_from(["append", "delete", "compact", "config", "look", "restore"]), max_size=8)


@settings(max_examples=15, deadline=None)
@given(steps=STEPS, portion=st.integers(1, 4))
def test_any_history_is_told_once_and_in_order(tmp_path_factory, steps, portion):
    table = write(str(tmp_path_factory.mktemp("root") / "t.lance"))
    seen, told, expected = None, [], [1]
    for step in [*steps, *["look"] * (len(steps) + 1)]:
        before = table.version
        match step:
            case "append":
                table = write(table.uri)
            case "delete":
                table.delete("id = 2")
            case "compact":
                table.optimize.compact_files()
            case "config":
                table.update_config({"a": str(before)})
            case "restore":
                table.checkout_version(1).restore()
                table.checkout_latest()
            case _:
                found, seen = changes_since(table, seen, limit=portion)
                told += [change.version for change in found]
        if step in ("append", "delete", "restore") and table.version > before:
            expected.append(table.version)
    assert told == expected
