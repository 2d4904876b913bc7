"""Every use of a Dagster name that is not promised to stay, each with a fallback that only loses a feature.

Measured with dagster 1.13.27. ``OutputContext.step_context`` and ``InputContext.step_context`` are reachable
without a warning but not documented, and missing in ``build_output_context`` and ``load_asset_value``.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

import dagster as dg

from lance_core.errors import InvalidInputError

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition
    from pydantic.config import JsonDict

    # What ``dg.define_asset_job`` returns has no public name.
    AssetJob: TypeAlias = UnresolvedAssetJobDefinition

# Observations are few: those on branches, and looks at tables that are written elsewhere.
_OBSERVATIONS = 100

SECRET: JsonDict = {"dagster__is_secret": True}
# `dg.asset` takes it as a type; its annotations do not say so.
NOTHING: Any = dg.Nothing
"""Makes the UI hide the value of a resource's field; an older Dagster shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """Identity of the running step.

    Args:
        run_id: This run.
        root_run_id: First run of a chain of re-executions; ``run_id`` if this is the first.
        parent_run_id: The run that this one re-executes, or None.
        previous_attempts: Attempts of this step in this run before this one.
        tick: The tick of a schedule or the run key of a sensor that asked for this run, of which there may be another
            one if two daemons look after one deployment; None for other runs, and for re-executions.
        tick_time: Time of the tick of a schedule.
    """

    run_id: str
    root_run_id: str
    parent_run_id: str | None = None
    previous_attempts: int = 0
    tick: str | None = None
    tick_time: datetime | None = None

    @property
    def is_retry(self) -> bool:
        """Return whether an earlier attempt may have committed already."""
        return self.previous_attempts > 0 or self.parent_run_id is not None


def step_context(context: dg.OutputContext | dg.InputContext) -> Any:
    """Return the step behind a context, or None."""
    try:
        return context.step_context
    except (AttributeError, dg.DagsterInvariantViolationError):
        return None


def run_info(context: dg.OutputContext) -> RunInfo:
    """Identity of the running step."""
    step = step_context(context)
    run = getattr(step, "dagster_run", None)
    parent = getattr(run, "parent_run_id", None)
    tick, time = (None, None) if parent is not None else _tick(run_tags(context))
    return RunInfo(
        run_id=context.run_id,
        root_run_id=getattr(run, "root_run_id", None) or context.run_id,
        parent_run_id=parent,
        previous_attempts=getattr(step, "previous_attempt_count", 0),
        tick=tick,
        tick_time=time,
    )


def _tick(tags: Mapping[str, str]) -> tuple[str | None, datetime | None]:
    """Return the instigator of a run and its scheduled time: the same for all runs of one tick."""
    key, time = tags.get("dagster/run_key"), tags.get(".dagster/scheduled_execution_time")
    schedule, sensor = tags.get("dagster/schedule_name"), tags.get("dagster/sensor_name")
    if schedule is not None and time is not None:
        try:
            return f"{schedule}@{time}/{key or ''}", datetime.fromisoformat(time)
        except ValueError:
            return None, None
    return (None if sensor is None or key is None else f"{sensor}/{key}"), None


def run_tags(context: dg.OutputContext | dg.InputContext) -> Mapping[str, str]:
    """Tags of the running run; none outside of a run."""
    run = getattr(step_context(context), "dagster_run", None)
    return getattr(run, "tags", None) or {}


def tags_of_run(context: dg.InitResourceContext) -> Mapping[str, str]:
    """Tags of the run for which a resource is set up; none outside of a run."""
    return getattr(getattr(context, "run", None), "tags", None) or {}


def asset_graph(context: dg.OutputContext | dg.InputContext) -> Any:
    """Return all assets of the code location that a run is of; None outside of a run."""
    layer = getattr(getattr(step_context(context), "job_def", None), "asset_layer", None)
    graph = getattr(layer, "asset_graph", None)
    return getattr(graph, "source_asset_graph", graph)


def stored_assets(graph: Any, io_manager_key: str) -> Mapping[dg.AssetKey, Mapping[str, Any]]:
    """Metadata of the assets of a graph that one IO manager stores."""
    return {
        key: definition.metadata_by_key.get(key, {})
        for definition in getattr(graph, "assets_defs", ())
        if definition.is_executable
        for key in definition.keys
        if definition.get_io_manager_key_for_asset_key(key) == io_manager_key
    }


def asset_graphs(context: Any) -> list[Any]:
    """Assets that are known to a step, a sensor or an automation condition: those of its job and its code location."""
    context = getattr(context, "op_execution_context", context)
    graphs: list[Any] = [getattr(context, "asset_graph", None)]
    with suppress(Exception):  # contexts made by hand, and Dagster's CheckError, which has no public name
        graph = context.job_def.asset_layer.asset_graph
        graphs.append(getattr(graph, "source_asset_graph", graph))
    with suppress(Exception):
        graphs.append(context.repository_def.asset_graph)
    return [graph for graph in graphs if graph is not None]


def asset_metadata(graphs: Iterable[Any], key: dg.AssetKey) -> Mapping[str, Any]:
    """Metadata of the definition of an asset; nothing if no graph has it."""
    for graph in graphs:
        if graph.has(key):
            return graph.get(key).metadata
    return {}


def stores_value(asset: dg.AssetsDefinition, key: dg.AssetKey) -> bool:
    """Return whether an asset may give a value to its IO manager; one of type ``Nothing`` never does."""
    return asset.is_executable and not any(
        asset.op.output_def_named(name).dagster_type.is_nothing
        for name, output_key in asset.keys_by_output_name.items()
        if output_key == key
    )


def io_manager_key(graph: Any, key: dg.AssetKey) -> str | None:
    """Resource key of the IO manager that stores an asset; None if the graph does not have it."""
    try:
        return str(graph.get(key).assets_def.get_io_manager_key_for_asset_key(key))
    except (AttributeError, KeyError, dg.DagsterError):
        return None


def io_manager_keys(asset: dg.AssetsDefinition | dg.AssetSpec) -> set[str]:
    """Resource keys of the IO managers that store an asset and load its inputs."""
    if isinstance(asset, dg.AssetSpec):
        return {str(asset.metadata.get("dagster/io_manager_key", "io_manager"))}
    finder = getattr(asset, "get_io_manager_key_for_asset_key", lambda _: "io_manager")
    managers = {getattr(input_, "input_manager_key", None) for input_ in _inputs(asset)}
    return {str(finder(key)) for key in asset.keys} | {key for key in managers if key is not None}


def input_metadata(asset: dg.AssetsDefinition) -> dict[str, Mapping[str, Any]]:
    """Metadata of an asset's inputs (of ``dg.AssetIn``), by the name of the input."""
    return {input_.name: input_.metadata or {} for input_ in _inputs(asset)}


def _inputs(asset: dg.AssetsDefinition) -> Sequence[Any]:
    return getattr(getattr(asset, "node_def", None), "input_defs", ()) if asset.is_executable else ()


def recorded_event(context: dg.InputContext, *, branch: str | None) -> dg.EventLogRecord | None:
    """Return the newest event that Dagster has of the loaded asset, or of the partitions to load.

    For an asset without partitions it is the very event that Dagster records as the input of the running step. Outputs
    on a branch are observations, see `withhold_materialization`: they count for runs on the same branch, and there
    they come first.

    Args:
        context: Of the input.
        branch: Branch that the run works on beside the asset's own, or None.

    Raises:
        InvalidInputError: There is no instance to ask.
    """
    step = step_context(context)
    try:
        instance: Any = getattr(step, "instance", None) or context.instance
    except dg.DagsterInvariantViolationError as error:
        msg = "'read': 'materialized' asks Dagster for the version, and there is no instance to ask here."
        raise InvalidInputError(msg) from error
    wanted: dict[str, Any] = {"asset_key": context.asset_key}
    if context.has_asset_partitions:
        wanted["asset_partitions"] = list(context.asset_partition_keys)
    observations = instance.fetch_observations(dg.AssetRecordsFilter(**wanted), limit=_OBSERVATIONS).records
    on_branch = next((observation for observation in observations if _observed_branch(observation) == branch), None)
    if branch is not None and on_branch is not None:
        return on_branch
    if not context.has_asset_partitions:
        finder = getattr(step, "maybe_fetch_and_get_input_asset_version_info", None)
        info = None if finder is None else finder(context.asset_key)
        if info is not None:
            wanted["storage_ids"] = [info.storage_id]
            observations = [observation for observation in observations if observation.storage_id == info.storage_id]
    matches = list(instance.fetch_materializations(dg.AssetRecordsFilter(**wanted), limit=1).records)
    matches += [observation for observation in observations if _observed_branch(observation) is None][:1]
    return max(matches, key=lambda record: record.storage_id, default=None)


def _observed_branch(record: dg.EventLogRecord) -> str | None:
    event = record.asset_observation
    branch = None if event is None else event.metadata.get("lance/branch")
    return None if branch is None else str(branch.value)


def set_data_version(context: dg.OutputContext, version: str) -> None:
    """Give the materialization a data version; a version that the user gave wins inside Dagster."""
    step = step_context(context)
    setter = getattr(step, "set_data_version", None)
    if setter is not None:
        _expect_own_version(getattr(step, "log", None), context.asset_key)
        setter(context.asset_key, dg.DataVersion(version))


def _expect_own_version(log: logging.Logger | None, key: dg.AssetKey) -> None:
    """Keep Dagster from warning that a self-dependent asset read another version of itself than it wrote."""
    if log is None:
        return
    text = f"Data version mismatch for asset {key}."

    def is_wanted(record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith(text)

    # The logger is the step's own.
    log.addFilter(is_wanted)


def withhold_materialization(context: dg.OutputContext) -> bool:
    """Keep Dagster from recording this output as a materialization of its asset; the last use of a context.

    Dagster 1.13 makes the event after ``handle_output`` from the context's asset key, and offers no way to decline.
    Automation conditions go by materializations, whatever data version or tags they have, so an output on a branch
    may not make one.

    Returns:
        False if this Dagster keeps the key elsewhere; the materialization then comes.
    """
    if not hasattr(context, "_asset_key"):
        return False
    setattr(context, "_asset_key", None)  # noqa: B010 - a private name of Dagster
    return not context.has_asset_key


def instance_of(context: dg.OutputContext) -> dg.DagsterInstance | None:
    """Return the instance of the running step; None for a context made by hand."""
    return getattr(step_context(context), "instance", None)


def _last_materialization(context: dg.OutputContext) -> dg.AssetMaterialization | None:
    instance = instance_of(context)
    if instance is None:
        return None
    event = instance.get_latest_materialization_event(context.asset_key)
    return None if event is None else event.asset_materialization


def was_materialized_on_main(context: dg.OutputContext) -> bool:
    """Return whether the asset's last materialization in this instance was a version of the main branch."""
    last = _last_materialization(context)
    return last is not None and "lance/version" in last.metadata and "lance/branch" not in last.metadata


def recorded_data_version(context: dg.OutputContext) -> str | None:
    """Return the data version of the asset's last materialization, or None."""
    materialization = _last_materialization(context)
    return None if materialization is None else (materialization.tags or {}).get("dagster/data_version")


def forget_partitions(instance: dg.DagsterInstance, key: dg.AssetKey, partitions: Sequence[str]) -> bool:
    """Wipe partitions of an asset from Dagster's event log; False if its storage cannot do that."""
    wipe = getattr(instance, "wipe_asset_partitions", None)
    if wipe is None:
        return False
    try:
        wipe(key, list(partitions))
    except NotImplementedError:
        return False
    return True


def add_partition_metadata(context: dg.OutputContext, partition_key: str, metadata: Mapping[str, Any]) -> None:
    """Give the event of one partition of a range run its own metadata."""
    adder = getattr(step_context(context), "add_asset_metadata", None)
    if adder is not None:
        adder(dict(metadata), asset_key=context.asset_key, partition_key=partition_key)


def was_published(context: dg.OutputContext, run_id: str) -> bool:
    """Return whether an earlier run's event of this asset reached Dagster's event log.

    A commit whose event is missing belongs to a step that failed between the commit and the event. Unknown counts as
    published: the write is then done again, as the user asked for it.
    """
    instance = instance_of(context)
    if instance is None:
        return True
    types = {dg.DagsterEventType.ASSET_MATERIALIZATION, dg.DagsterEventType.ASSET_OBSERVATION}
    records: Any = instance.get_records_for_run(run_id, of_type=types).records
    return any(record.event_log_entry.dagster_event.asset_key == context.asset_key for record in records)


def writes_same_asset(context: dg.InputContext) -> bool:
    """Return whether the step that loads this input also writes the asset it loads (a self-dependent asset)."""
    outputs = getattr(getattr(step_context(context), "step", None), "step_outputs", ())
    return any(getattr(output.properties, "asset_key", None) == context.asset_key for output in outputs)


def step_identity(context: dg.InputContext | dg.OutputContext) -> str | None:
    """Names the running step within this process, or None outside of a run."""
    step = step_context(context)
    return None if step is None else f"{step.run_id}/{step.step.key}"


def asset_spec(context: dg.OutputContext) -> dg.AssetSpec | None:
    """Return the asset's definition; a context made by hand has none."""
    try:
        return context.asset_spec
    except (AttributeError, dg.DagsterInvariantViolationError):
        return None


def code_version(context: dg.OutputContext) -> str | None:
    """Return the asset's code version; a context made by hand has none."""
    return getattr(asset_spec(context), "code_version", None)


def schedule_is_on(instance: dg.DagsterInstance, schedule: dg.ScheduleDefinition) -> bool:
    """Return whether a schedule is on: as somebody set it in the UI, else as its definition says."""
    # Instances in memory have no storage for it.
    states = [] if instance.schedule_storage is None else instance.all_instigator_state()
    status = next((state.is_running for state in states if state.instigator_name == schedule.name), None)
    return schedule.default_status is dg.DefaultScheduleStatus.RUNNING if status is None else status


PRIORITY = "dagster/priority"
"""Tag of a step; executors begin with the highest."""


def step_graph(context: dg.AssetExecutionContext) -> tuple[set[str], dict[str, set[str]]] | None:
    """Return the running step with all others of its priority and, for each step of its run, the steps it waits for.

    None for executors that run steps in the process of the run, which log no workers, and if this Dagster keeps its
    plans elsewhere.
    """
    types = {dg.DagsterEventType.STEP_WORKER_STARTING, dg.DagsterEventType.STEP_WORKER_STARTED}
    try:
        if not context.instance.get_records_for_run(context.run.run_id, of_type=types, limit=1).records:
            return None
        run: Any = context.instance.get_run_by_id(context.run.run_id)
        plan: Any = context.instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id)
        step_key: str = context.op_execution_context.get_step_execution_context().step.key
        chosen: set[str] = set(plan.step_keys_to_execute)
        priorities: dict[str, str | None] = {step.key: step.tags.get(PRIORITY) for step in plan.steps}
        return {key for key in chosen if priorities[key] == priorities[step_key]}, {
            step.key: {handle.step_key for given in step.inputs for handle in given.upstream_output_handles} & chosen
            for step in plan.steps
            if step.key in chosen
        }
    except AttributeError:
        return None


def finished_steps(
    instance: dg.DagsterInstance, run_id: str, *, cursor: str | None = None
) -> tuple[dict[str, bool], str]:
    """Return the steps of a run that ended since a cursor, and whether each succeeded, with the next cursor.

    Reading all events of a run with a thousand steps again takes 35 ms, reading what is new 2 ms.
    """
    ends = {
        dg.DagsterEventType.STEP_SUCCESS: True,
        dg.DagsterEventType.STEP_FAILURE: False,
        dg.DagsterEventType.STEP_SKIPPED: False,
    }
    page: Any = instance.get_records_for_run(run_id, cursor=cursor, of_type=set(ends))
    events = [record.event_log_entry.dagster_event for record in page.records]
    return {event.step_key: ends[event.event_type] for event in events}, page.cursor


def newest_materializations(instance: dg.DagsterInstance, keys: Sequence[dg.AssetKey]) -> dict[dg.AssetKey, int]:
    """Return the storage id of the newest materialization of each asset that has one, with one query."""
    records: Any = instance.get_asset_records(list(keys))
    ids = {record.asset_entry.asset_key: record.asset_entry.last_materialization_storage_id for record in records}
    return {key: storage_id for key, storage_id in ids.items() if storage_id is not None}


def keys_of_other_components(context: dg.ComponentLoadContext, *, but: type[dg.Component]) -> set[dg.AssetKey]:
    """Return the asset keys that the rest of a project defines, without what components of a class define.

    Dagster caches the definitions of a component, so they are not built twice.
    """
    try:
        leaves = [
            leaf for leaf in _leaves(context.component_tree.find_root_decl()) if leaf.loc != context.component_loc
        ]
        others = [leaf.loc for leaf in leaves if not issubclass(leaf.component_type, but)]
    except AttributeError:
        return set()
    if getattr(_asking, "is_on", False):
        return set()  # one of the others asks for our definitions
    _asking.is_on = True
    try:
        definitions = [context.build_defs(loc) for loc in others]
    finally:
        _asking.is_on = False
    return {key for defs in definitions for asset in defs.assets or () for key in _defined_keys(asset)}


_asking = threading.local()


def _leaves(declaration: Any) -> Iterator[Any]:
    """Components that hold no others; a Python file may hold definitions beside components, so it is one."""
    children = list(declaration.iterate_child_component_decls())
    if not children or "PythonFile" in type(declaration).__name__:
        yield declaration
        return
    for child in children:
        yield from _leaves(child)


def _defined_keys(asset: Any) -> Iterable[dg.AssetKey]:
    return [asset.key] if isinstance(asset, (dg.AssetSpec, dg.SourceAsset)) else getattr(asset, "keys", ())
