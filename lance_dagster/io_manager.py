"""The IO manager: assets in, Lance tables out, and back.

No ``from __future__ import annotations`` here: Dagster reads the annotation of a resource field when the class is made.
"""

from typing import Any, Literal

import dagster as dg
import pyarrow as pa
from pydantic import Field, PrivateAttr

from lance_core.errors import InvalidInputError
from lance_dagster import _compat
from lance_dagster.column_lineage import lineage_metadata
from lance_dagster.column_schema import arrow_schema, declared_schema
from lance_dagster.handlers import ReadRequest, handler_for
from lance_dagster.identity import CommitIdentity
from lance_dagster.load import input_filter, input_selection, input_type, open_input, spark_session, upstream_metadata
from lance_dagster.partitions import PartitionSelection, select_partitions
from lance_dagster.report import report_output
from lance_dagster.settings import ReadSettings, WriteSettings, find_setting
from lance_dagster.tables import Tables
from lance_dagster.write import Outcome, Target, store

# A first attempt has nothing to find, unless a crashed run was resumed under its own id.
_LOOKBACK_FIRST = 3
_LOOKBACK_RETRY = 1000


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
    # Assets that were loaded, by the address of their table.
    _places: dict[str, dg.AssetKey] = PrivateAttr(default_factory=dict)

    @property
    def tables(self) -> Tables:
        """Naming and opening."""
        return Tables(root=self.root, storage_options=self.storage_options)

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write an asset (or some partitions of it) in one commit."""
        _check_output(context, obj)
        handler = handler_for(type(obj))
        metadata = (context.output_metadata or {}, context.definition_metadata or {})
        settings = WriteSettings.of(*metadata, mode=self.mode, out_of_partition=self.out_of_partition)
        selection = _output_selection(context, settings)
        identity = self._identity(context, selection)
        uri = find_setting("uri", *metadata) or self.tables.uri(context.asset_key)
        earlier = self._earlier_commit(context, identity, uri=uri)
        if earlier is not None and self._takes_over(earlier, uri=uri, settings=settings):
            outcome = Outcome(operation="replay", version=earlier)
        else:
            # A second commit that is wanted must not be taken for the first.
            token = identity.token(salt="" if earlier is None else f"{earlier}/{identity.run.previous_attempts}")
            target = Target(
                tables=self.tables,
                uri=uri,
                settings=settings,
                selection=selection,
                properties=identity.properties(token=token),
                token=token,
            )
            outcome = store(obj, handler, target)
        report_output(
            context,
            self.tables.open(uri, version=outcome.version),
            outcome,
            selection=selection,
            identity=identity,
            tag_run=self.tag_runs,
            preview_rows=self.preview_rows,
            more=lineage_metadata(context, obj, self.tables, inputs=self._places),
        )

    def load_input(self, context: dg.InputContext) -> Any:
        """Read an asset, or the partitions of it that the mapping asks for."""
        definition = upstream_metadata(context)
        settings = ReadSettings.of(context.definition_metadata or {})
        uri = find_setting("uri", definition) or self.tables.uri(context.asset_key)
        selection = input_selection(context)
        is_empty = selection is not None and not selection.keys
        dataset = open_input(context, self.tables, uri, version=settings.version, is_empty=is_empty)
        if dataset is not None:
            self._remember(context, dataset.version)
            self._places[dataset.uri] = context.asset_key
            schema = dataset.schema
        else:
            declared = declared_schema(definition)
            schema = pa.schema([]) if declared is None else arrow_schema(declared)
        type_ = input_type(context, has_spark=self.spark is not None)
        request = ReadRequest(
            dataset=dataset,
            type=type_,
            columns=settings.columns,
            filter=input_filter(settings.filter, selection, dataset),
            is_empty=is_empty or dataset is None,
            schema=schema,
            storage_options=self.storage_options,
            spark_session=lambda: spark_session(self.spark),
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

    def _earlier_commit(self, context: dg.OutputContext, identity: CommitIdentity, *, uri: str) -> int | None:
        """Version that an earlier attempt of this step committed, or None."""
        dataset = self.tables.find(uri)
        if dataset is None:
            return None
        return identity.find(
            dataset,
            lookback=_LOOKBACK_RETRY if identity.run.is_retry else _LOOKBACK_FIRST,
            was_published=lambda run_id: _compat.was_published(context, run_id),
        )

    def _takes_over(self, earlier: int, *, uri: str, settings: WriteSettings) -> bool:
        """Whether an earlier attempt's commit counts as this one's."""
        if self.on_retry == "rewrite":
            return False
        # Overwriting again does no harm, and is right if somebody else wrote in between.
        return settings.mode != "overwrite" or self.tables.open(uri).version == earlier

    def _remember(self, context: dg.InputContext, version: int) -> None:
        step = _compat.step_identity(context)
        if step is not None:
            # One step at a time: what earlier steps read is told already.
            self._inputs = {step: self._inputs.get(step, {})}
            self._inputs[step][context.asset_key.to_user_string()] = version


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


def _output_selection(context: dg.OutputContext, settings: WriteSettings) -> PartitionSelection | None:
    if not context.has_asset_partitions:
        return None
    return select_partitions(context.asset_partitions_def, context.asset_partition_keys, settings.partition_expr)
