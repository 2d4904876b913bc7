"""The IO manager: assets in, Lance tables out, and back.

No ``from __future__ import annotations`` here: Dagster reads the annotation of a resource field when the class is made.
"""

from collections.abc import Mapping
from typing import Any, Literal

import dagster as dg
import pyarrow as pa
from pydantic import Field, PrivateAttr

import lance_core
from lance_core.errors import DatasetNotFoundError, InvalidInputError, LanceError
from lance_dagster import _compat
from lance_dagster.handlers import ReadRequest, handler_for
from lance_dagster.identity import CommitIdentity
from lance_dagster.metadata import preview, storage_metadata, write_metadata
from lance_dagster.partitions import PartitionSelection, select_partitions
from lance_dagster.predicate import count_by_key, typed
from lance_dagster.settings import ReadSettings, WriteSettings, declared_schema, find_setting
from lance_dagster.tables import Tables
from lance_dagster.tags import tag_version
from lance_dagster.write import Outcome, Target, store

_LOOKBACK_FIRST = 10
_LOOKBACK_RETRY = 1000
_MAX_COUNTED_ROWS = 10_000_000


class LanceIOManager(dg.ConfigurableIOManager):
    """Stores every asset as the Lance table ``<root>/<key parts>.lance``.

    Writes ``pyspark.sql.DataFrame`` (classic and Connect), ``pa.Table``, ``pa.RecordBatchReader``, pandas and Polars
    frames, by the value's type. Loads what the input's annotation names; without one a Spark frame if ``spark`` is
    configured, else a ``pa.Table``. ``lance_core.LanceDataset`` loads the table itself, lazily.

    A partitioned asset needs the metadata ``partition_expr``: the column that holds the partition key, or a dict
    dimension -> column. Each run replaces exactly the rows of its partition keys, in one atomic commit.

    Metadata on the asset, or given in the run by ``context.add_output_metadata`` (wins): ``mode``, ``partition_expr``,
    ``lance/out_of_partition``, ``lance/uri``; ``dagster/column_schema`` on the definition
    gives the columns of an input that has no table yet. Metadata on an ``AssetIn``: ``columns`` (names),
    ``filter`` (SQL predicate), ``version`` (number) or ``tag``.
    """

    root: str = Field(description="Folder or URI that holds the tables.")
    storage_options: dict[str, str] = Field(default_factory=dict, description="Settings of the object store.")
    spark: dg.ResourceDependency[Any] = None  # pyright: ignore[reportAssignmentType] - Dagster resolves the field
    mode: Literal["overwrite", "append", "error", "ignore", "merge"] = Field(
        default="overwrite",
        description="For a partitioned asset these speak of the run's partitions only, never of the whole table.",
    )
    out_of_partition: Literal["error", "drop", "allow"] = Field(
        default="error", description="What happens to rows outside of the run's partitions."
    )
    on_retry: Literal["reuse", "rewrite"] = Field(
        default="reuse", description="Whether a retried step takes over what its earlier attempt committed."
    )
    tag_runs: bool = Field(default=True, description="Tag the version that each run made: run-<first 8 of the run id>.")
    preview_rows: int = Field(default=0, description="Rows shown in the metadata `lance/preview`; 0 shows none.")

    # Versions read by each running step, to be told with what it writes.
    _inputs: dict[str, dict[str, int]] = PrivateAttr(default_factory=dict)

    @property
    def tables(self) -> Tables:
        """Naming and opening."""
        return Tables(root=self.root, storage_options=self.storage_options)

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write an asset (or some partitions of it) in one commit."""
        _check_output(context, obj)
        handler = handler_for(type(obj))
        metadata = (_given(context), context.definition_metadata or {})
        settings = WriteSettings.of(*metadata, mode=self.mode, out_of_partition=self.out_of_partition)
        selection = _output_selection(context, settings)
        identity = self._identity(context, selection)
        uri = find_setting("uri", *metadata) or self.tables.uri(context.asset_key)
        earlier = self._earlier_commit(context, identity, uri=uri, mode=settings.mode)
        if earlier is not None and self.on_retry == "reuse":
            outcome = Outcome(operation="replay", version=earlier)
        else:
            salt = "" if earlier is None else f"{earlier}/{identity.run.previous_attempts}"
            token = identity.token(salt=salt)
            target = Target(
                tables=self.tables,
                uri=uri,
                settings=settings,
                selection=selection,
                properties=identity.properties(token=token),
                token=token,
            )
            outcome = store(obj, handler, target)
        self._report(context, uri, outcome, selection=selection, identity=identity)

    def load_input(self, context: dg.InputContext) -> Any:
        """Read an asset, or the partitions of it that the mapping asks for."""
        upstream = context.upstream_output
        definition = (upstream.definition_metadata if upstream is not None else None) or {}
        settings = ReadSettings.of(context.definition_metadata or {})
        uri = find_setting("uri", definition) or self.tables.uri(context.asset_key)
        selection = _input_selection(context, definition)
        is_empty = selection is not None and not selection.keys
        dataset = self._open_input(context, uri, version=settings.version, is_empty=is_empty)
        if dataset is not None:
            self._remember(context, dataset.version)
        type_ = self._load_type(context)
        request = ReadRequest(
            dataset=dataset,
            type=type_,
            columns=settings.columns,
            filter=_filter(settings.filter, selection, dataset),
            is_empty=is_empty or dataset is None,
            schema=dataset.schema if dataset is not None else declared_schema(definition),
            storage_options=self.storage_options,
            spark_session=lambda: _session(self.spark),
        )
        return handler_for(type_).load(request)

    def _identity(self, context: dg.OutputContext, selection: PartitionSelection | None) -> CommitIdentity:
        return CommitIdentity(
            run=_compat.run_info(context),
            step_key=context.step_key,
            asset_key=context.asset_key.to_user_string(),
            partition_keys=() if selection is None else selection.keys,
            code_version=_compat.code_version(context),
            inputs=self._inputs.get(_compat.step_identity(context) or "", {}),
        )

    def _earlier_commit(
        self, context: dg.OutputContext, identity: CommitIdentity, *, uri: str, mode: str
    ) -> int | None:
        """Version that an earlier attempt of this step committed, or None."""
        dataset = self.tables.find(uri)
        if dataset is None:
            return None
        found = identity.find(
            dataset,
            lookback=_LOOKBACK_RETRY if identity.run.is_retry else _LOOKBACK_FIRST,
            was_published=lambda run_id: _compat.was_published(context, run_id),
        )
        # Overwriting again does no harm, and is right if somebody else wrote in between.
        return None if mode == "overwrite" and found != dataset.version else found

    def _report(
        self,
        context: dg.OutputContext,
        uri: str,
        outcome: Outcome,
        *,
        selection: PartitionSelection | None,
        identity: CommitIdentity,
    ) -> None:
        """Tag, data version and metadata of a write."""
        dataset = self.tables.open(uri, version=outcome.version)
        tag = self._tag(context, dataset) if self.tag_runs and outcome.operation != "skip" else None
        _compat.set_data_version(context, str(outcome.version))
        metadata = storage_metadata(context.asset_key, uri)
        metadata |= write_metadata(dataset, outcome, tag=tag, inputs=identity.inputs)
        if self.preview_rows > 0:
            metadata["lance/preview"] = preview(dataset.to_table(limit=self.preview_rows))
        given = _given(context)
        counts = {} if selection is None else _partition_counts(dataset, selection)
        if len(counts) == 1:
            metadata["dagster/partition_row_count"] = next(iter(counts.values()))
        elif "dagster/partition_row_count" not in given:
            for key, count in counts.items():
                _compat.add_partition_metadata(context, key, {"dagster/partition_row_count": count})
        context.add_output_metadata({key: value for key, value in metadata.items() if key not in given})

    def _tag(self, context: dg.OutputContext, dataset: lance_core.LanceDataset) -> str | None:
        try:
            return tag_version(dataset, run_id=context.run_id, version=dataset.version)
        except (LanceError, OSError) as error:
            # The data is safe already; a missing name for it is no reason to write it again.
            context.log.warning("Version %d of %s got no run tag: %s", dataset.version, dataset.uri, error)
            return None

    def _open_input(
        self, context: dg.InputContext, uri: str, *, version: int | str | None, is_empty: bool
    ) -> lance_core.LanceDataset | None:
        """The table; None if there is none and none is needed: the first partition of a self-dependent asset."""
        try:
            return self.tables.open(uri, version=version)
        except DatasetNotFoundError as error:
            if is_empty or _compat.writes_same_asset(context):
                return None
            msg = f"There is no table of the asset {context.asset_key.to_user_string()} yet: materialize it first."
            raise DatasetNotFoundError(msg, path=uri) from error

    def _remember(self, context: dg.InputContext, version: int) -> None:
        step = _compat.step_identity(context)
        if step is not None:
            # One step at a time: what earlier steps read is told already.
            self._inputs = {step: self._inputs.get(step, {})}
            self._inputs[step][context.asset_key.to_user_string()] = version

    def _load_type(self, context: dg.InputContext) -> type:
        wanted = context.dagster_type.typing_type
        if wanted not in (Any, None, object):
            if isinstance(wanted, type):
                return wanted
            msg = f"Cannot tell which frame the annotation {wanted} asks for: annotate the input with one frame type."
            raise InvalidInputError(msg)
        if self.spark is None:
            return pa.Table
        from pyspark.sql import DataFrame  # noqa: PLC0415 - optional

        return DataFrame


def _check_output(context: dg.OutputContext, obj: Any) -> None:
    if not context.has_asset_key:
        msg = "LanceIOManager stores assets; give this op's output another IO manager (`io_manager_key`)."
        raise InvalidInputError(msg)
    if obj is None:
        msg = (
            f"The asset {context.asset_key.to_user_string()} returned None, which is no table. If it stores its data "
            "itself, annotate it `-> None` or return a `dg.MaterializeResult` without a value."
        )
        raise InvalidInputError(msg)


def _given(context: dg.OutputContext) -> Mapping[str, Any]:
    """Metadata that the user gave in the run."""
    return context.output_metadata or {}


def _output_selection(context: dg.OutputContext, settings: WriteSettings) -> PartitionSelection | None:
    if not context.has_asset_partitions:
        return None
    return select_partitions(context.asset_partitions_def, context.asset_partition_keys, settings.partition_expr)


def _input_selection(context: dg.InputContext, definition: Mapping[str, Any]) -> PartitionSelection | None:
    if not context.has_asset_partitions:
        return None
    partition_expr = find_setting("partition_expr", context.definition_metadata or {}, definition)
    return select_partitions(context.asset_partitions_def, context.asset_partition_keys, partition_expr)


def _filter(
    filter_: str | None, selection: PartitionSelection | None, dataset: lance_core.LanceDataset | None
) -> str | None:
    """The user's filter and the partitions', together."""
    if dataset is None or selection is None or not selection.keys:
        return filter_
    partitions = typed(selection, dataset.schema).sql()
    return partitions if filter_ is None else f"({partitions}) AND ({filter_})"


def _partition_counts(dataset: lance_core.LanceDataset, selection: PartitionSelection) -> Mapping[str, int]:
    """Rows of each of the run's partitions; nothing for a table too big to count on the side."""
    if dataset.count_rows() > _MAX_COUNTED_ROWS:
        return {}
    filter_ = typed(selection, dataset.schema).sql()
    if len(selection.keys) == 1:
        return {selection.keys[0]: dataset.count_rows(filter=filter_)}
    return count_by_key(selection, dataset.to_table(columns=list(selection.columns), filter=filter_))


def _session(spark: Any) -> Any:
    """The Spark session of a resource, or of the process."""
    if spark is None:
        from pyspark.sql import SparkSession  # noqa: PLC0415 - optional

        session = SparkSession.getActiveSession()
        if session is None:
            msg = "An input is annotated as a Spark frame: give LanceIOManager `spark=SparkSessionResource(...)`."
            raise InvalidInputError(msg)
        return session
    return getattr(spark, "spark_session", spark)
