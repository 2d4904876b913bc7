"""Fixtures of the Dagster tests: a root, an instance, and runs without a Java runtime."""

from __future__ import annotations

import dagster as dg
import pytest
from alembic.script import ScriptDirectory

from lance_dagster import LanceIOManager, LanceResource


@pytest.fixture(scope="session", autouse=True)
def migrations_are_loaded_once():
    """Each storage of an instance asks for Dagster's migrations; to load them takes longer than most runs."""
    known, load = {}, ScriptDirectory.from_config

    def from_config(config):
        place = config.get_main_option("script_location")
        if place not in known:
            known[place] = load(config)
        return known[place]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptDirectory, "from_config", from_config)
        yield


@pytest.fixture
def root(tmp_path):
    return str(tmp_path / "tables")


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture
def tables(root):
    """The tables, opened directly."""
    return LanceResource(root=root)


@pytest.fixture
def run(root, instance):
    """Materialize assets; a range is given as (first key, last key)."""

    def materialize(*assets, partition_key=None, partition_range=None, manager=None, check=True, **kwargs):
        tags = None
        if partition_range is not None:
            start, end = partition_range
            tags = {"dagster/asset_partition_range_start": start, "dagster/asset_partition_range_end": end}
        return dg.materialize(
            list(assets),
            instance=instance,
            resources={"io_manager": manager or LanceIOManager(root=root), "lance": LanceResource(root=root)},
            partition_key=partition_key,
            tags=tags,
            raise_on_error=check,
            **kwargs,
        )

    return materialize


@pytest.fixture
def metadata_of():
    """Plain metadata values of the only materialization of an asset in a run."""

    def values(result, key="asset"):
        (event,) = result.asset_materializations_for_node(key)
        return {name: value.value for name, value in event.metadata.items()}

    return values


def pytest_collection_modifyitems(items):
    """Dagster calls parts of its public interface beta; using them is meant."""
    for item in items:
        if item.nodeid.startswith("tests/dagster/"):
            item.add_marker(pytest.mark.filterwarnings("ignore::dagster.BetaWarning"))
