"""One input -> one read: which version, rows, columns and type."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lance_core.common.late_module import LateModule
from lance_core.errors import DatasetNotFoundError, InvalidInputError, RefNotFoundError
from lance_dagster import _compat
from lance_dagster.partitioning.partitions import PartitionSelection, select_partitions
from lance_dagster.partitioning.predicate import typed
from lance_dagster.settings import MAIN, ReadSettings, find_setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    import dagster as dg
    import pyarrow as pa

    import lance_core
    from lance_dagster.tables import Tables
else:
    pa = LateModule("pyarrow")


def upstream_metadata(context: dg.InputContext) -> Mapping[str, Any]:
    """Metadata of the loaded asset's definition; it is there even if the asset is not in the run."""
    upstream = context.upstream_output
    return (upstream.definition_metadata if upstream is not None else None) or {}


def input_selection(context: dg.InputContext) -> PartitionSelection | None:
    """Return the partitions to load; None for the whole table."""
    if not context.has_asset_partitions:
        return None
    partition_expr = find_setting("partition_expr", context.definition_metadata or {}, upstream_metadata(context))
    return select_partitions(context.asset_partitions_def, context.asset_partition_keys, partition_expr)


def open_input(
    context: dg.InputContext,
    tables: Tables,
    uri: str,
    *,
    settings: ReadSettings,
    preferred_branch: str | None,
    own_branch: str | None,
    is_empty: bool,
) -> lance_core.LanceDataset | None:
    """Return the table; None if there is none and none is needed: the first partition of a self-dependent asset.

    Args:
        context: Of the input.
        tables: All tables.
        uri: This one.
        settings: Which version.
        preferred_branch: Branch that the run works on: it is read where a table has it.
        own_branch: Branch that the asset is stored on in every run.
        is_empty: No rows are wanted.

    Raises:
        DatasetNotFoundError: The asset was never materialized.
    """
    try:
        if settings.read == "materialized" and not is_empty and not _compat.writes_same_asset(context):
            beside = None if preferred_branch in (own_branch, MAIN) else preferred_branch
            settings = _recorded(context, settings, branch=beside)
        elif preferred_branch is not None and (settings.version, settings.as_of, settings.branch) == (None,) * 3:
            return tables.open_preferred(uri, preferred_branch)
        return tables.open(uri, version=settings.version, branch=settings.branch, as_of=settings.as_of)
    except RefNotFoundError as error:
        error.message += tables.refs_text(uri, settings.branch or settings.version)
        raise
    except DatasetNotFoundError as error:
        if is_empty or _compat.writes_same_asset(context):
            return None
        msg = f"There is no table of the asset {context.asset_key.to_user_string()} yet: materialize it first."
        raise DatasetNotFoundError(msg, path=uri) from error


def _recorded(context: dg.InputContext, settings: ReadSettings, *, branch: str | None) -> ReadSettings:
    """Return the version that Dagster recorded for the upstream."""
    record = _compat.recorded_event(context, branch=branch)
    event = None if record is None else record.asset_materialization or record.asset_observation
    metadata = {} if event is None else {name: value.value for name, value in event.metadata.items()}
    version, recorded_branch = metadata.get("lance/version"), metadata.get("lance/branch")
    if not isinstance(version, int):
        msg = (
            f"Dagster has no version of {context.asset_key.to_user_string()} ('read' is 'materialized'): materialize "
            "it by this IO manager first."
        )
        raise InvalidInputError(msg)
    return replace(settings, version=version, branch=None if recorded_branch is None else str(recorded_branch))


def input_filter(
    filter_: str | None, selection: PartitionSelection | None, dataset: lance_core.LanceDataset | None
) -> str | None:
    """Return the user's filter and the partitions', together."""
    if dataset is None or selection is None or not selection.keys:
        return filter_
    partitions = typed(selection, dataset.schema).sql()
    return partitions if filter_ is None else f"({partitions}) AND ({filter_})"


def input_type(context: dg.InputContext, *, has_spark: bool) -> type:
    """The frame that the input's annotation asks for; without one Spark's if there is a session, else Arrow's."""
    wanted = context.dagster_type.typing_type
    if wanted not in (Any, None, object):
        if isinstance(wanted, type):
            return wanted
        msg = f"Cannot tell which frame the annotation {wanted} asks for: annotate the input with one frame type."
        raise InvalidInputError(msg)
    if not has_spark:
        return pa.Table
    from pyspark.sql import DataFrame  # noqa: PLC0415 - optional

    return DataFrame


def spark_session(spark: Any) -> Any:
    """Return the session of a resource, or a session given as it is, or the process's active one."""
    if spark is not None:
        return getattr(spark, "spark_session", spark)
    from pyspark.sql import SparkSession  # noqa: PLC0415 - optional

    session = SparkSession.getActiveSession()
    if session is None:
        msg = "An input is annotated as a Spark frame: give LanceIOManager `spark=SparkSessionResource(...)`."
        raise InvalidInputError(msg)
    return session
