"""The IO manager: assets in, Lance tables out, and back.

No ``from __future__ import annotations`` here: Dagster reads the annotation of a resource field when the class is made.
"""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import dagster as dg
from pydantic import Field, PrivateAttr

import lance_core
from lance_core.errors import InvalidInputError, LanceError
from lance_dagster import _compat
from lance_dagster.column_schema import arrow_schema, declared_schema
from lance_dagster.handlers import ReadRequest, TypeHandler, handler_for
from lance_dagster.handlers.stream import storable
from lance_dagster.identity import CommitIdentity
from lance_dagster.lineage.column_lineage import lineage_metadata
from lance_dagster.load import input_filter, input_selection, input_type, open_input, spark_session, upstream_metadata
from lance_dagster.partitioning.partition_scheme import SCHEME, PartitionScheme, change_warning
from lance_dagster.partitioning.partitions import PartitionSelection, select_partitions
from lance_dagster.progress import watched
from lance_dagster.report import report_output
from lance_dagster.setting_keys import check_input, check_output, check_run_tag_values, check_run_tags
from lance_dagster.settings import PREFIX, ReadSettings, WriteSettings, find_setting, own_branch
from lance_dagster.shared_tables import refuse_shared, stored_addresses
from lance_dagster.storage import Storage
from lance_dagster.versions.tags import DEFAULT_TEMPLATE, check_free, tag_name
from lance_dagster.write import Outcome, Target, store

# A first attempt has nothing to find, unless a crashed run was resumed under its own id.
_LOOKBACK_FIRST = 3
_LOOKBACK_RETRY = 1000
_SHOWN_KEYS = 3


class LanceIOManager(Storage, dg.ConfigurableIOManager):
    """Stores every asset as the Lance table ``<root>/<key parts>.lance``.

    Writes ``pyspark.sql.DataFrame`` (classic and Connect), ``pa.Table``, ``pa.RecordBatchReader``, ``LanceDataset``,
    pandas, Polars (eager and lazy) and DuckDB frames, by the value's type; `type_handlers` adds others. Loads what the
    input's annotation names; without one a Spark frame if ``spark`` is configured, else a ``pa.Table``. Lazy ones are
    Spark frames, ``pl.LazyFrame``, DuckDB relations, ``pa.RecordBatchReader``, ``LanceScanner``, ``LanceDataset``.

    A partitioned asset needs the metadata ``partition_expr``: the column that holds the partition key, or an SQL
    expression such as ``date(at)``; with several dimensions a dict dimension -> such. Each run replaces exactly the
    rows of its partition keys, in one atomic commit.

    Settings of a write: ``mode``, ``schema_mode``, ``merge_keys`` (or ``primary_key``), ``partition_expr``, ``branch``,
    ``lance/out_of_partition``, ``lance/compression_profile`` (when the table is created or overwritten), ``lance/uri``.
    They are looked for in the run (``context.add_output_metadata``), in the run's tags (``lance/mode`` and so on), in
    the asset's metadata, then here. ``dagster/column_schema`` on the
    definition gives the columns of an input that has no table yet. Two assets of one IO manager that write one table
    are refused unless both definitions have the metadata ``lance/shared``: true.

    Settings of a load, on an ``AssetIn``: ``columns`` (names), ``filter`` (SQL predicate), one of ``version`` (number),
    ``tag`` and ``as_of`` (time), ``branch``, or ``read``: ``"materialized"`` for exactly the version that Dagster
    recorded for the upstream.

    A commit is made once: a step that is tried again after its commit takes that over, and so does a second run for
    the same tick of a schedule or the same run key of a sensor. An asset that returns a ``LanceDataset`` of its own
    table has written it itself: that version is registered, nothing is copied.

    A misspelt setting is an error where it has the prefix ``lance/``, and a warning in the run's log where a bare key
    looks like one; `check_definitions` finds both before a run.

    Examples:
        >>> @dg.asset
        ... def numbers() -> pa.Table:
        ...     return pa.table({"x": [1, 2, 3]})
        >>> resources = {"io_manager": lance_dagster.LanceIOManager(root="lake")}
        >>> dg.materialize([numbers], resources=resources, instance=instance).success
        True
        >>> lance_core.dataset("lake/numbers.lance").count_rows()
        3
    """

    spark: dg.ResourceDependency[Any] = None  # pyright: ignore[reportAssignmentType] - Dagster resolves the field
    mode: Literal["overwrite", "append", "error", "ignore", "merge", "replace_partitions"] = Field(
        default="overwrite",
        description="For a partitioned asset these speak of the run's partitions only, never of the whole table.",
    )
    schema_mode: Literal["auto", "strict", "add", "overwrite"] = Field(
        default="auto",
        description="Columns unlike the table's: refused, added to it, or taken over. 'auto' refuses them where rows "
        "are kept and takes them over where the whole table is replaced.",
    )
    merge_keys: list[str] = Field(default_factory=list, description="Columns that tell rows apart in mode merge.")
    out_of_partition: Literal["error", "drop", "allow"] = Field(
        default="error", description="What happens to rows outside of the run's partitions."
    )
    branch: str | None = Field(
        default=None,
        description="Branch to write to, begun where need be; inputs are read from it where they have it. None or an "
        "empty text is the main branch; see `deployment_branch`.",
    )
    branch_outputs: Literal["materialization", "observation"] = Field(
        default="materialization",
        description="What Dagster records for outputs on `branch`: 'observation' if production runs in the same "
        "instance, so that nothing of the main branch becomes stale or starts.",
    )
    read: Literal["latest", "materialized"] = Field(
        default="latest", description="Which version of an input to load: the newest or the one that Dagster recorded."
    )
    on_retry: Literal["reuse", "rewrite"] = Field(
        default="reuse", description="Whether a retried step takes over what its earlier attempt committed."
    )
    tag_runs: bool = Field(default=True, description="Tag the version that each run made.")
    tag_template: str = Field(
        default=DEFAULT_TEMPLATE, description="Name of that tag: {run_id}, {short_run_id}, {asset}, {partition}."
    )
    preview_rows: int = Field(default=0, ge=0, description="Rows shown in the metadata `lance/preview`; 0 shows none.")

    # Versions read by each running step, to be told with what it writes.
    _inputs: dict[str, dict[str, int]] = PrivateAttr(default_factory=dict)
    # Assets that were loaded, by the address of their table.
    _places_of_assets: dict[str, dg.AssetKey] = PrivateAttr(default_factory=dict)

    # The assets of the code location, once they were checked.
    _checked_assets: Any = PrivateAttr(default=None)

    @property
    def _materialized_branch(self) -> str | None:
        """The branch whose outputs are materializations; outputs on all others are observations."""
        return None if self.branch_outputs == "observation" else self.branch

    def type_handlers(self) -> Sequence[TypeHandler]:
        """Handlers of further types, which come before the built-in ones; override it in a subclass.

        Example:
            ``return [ArrowBridge(types=("daft.DataFrame",), ...)]``
        """
        return ()

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        """Refuse unknown run tags, and values that they cannot have, before anything is computed."""
        tags = _compat.tags_of_run(context)
        check_run_tags(tags)
        check_run_tag_values(tags)

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write an asset (or some partitions of it) in one commit."""
        with _naming(context, "Storing"):
            self._check_places(context)
            self._store(context, obj)

    def load_input(self, context: dg.InputContext) -> Any:
        """Read an asset, or the partitions of it that the mapping asks for."""
        with _naming(context, "Loading"):
            return self._load(context)

    def _store(self, context: dg.OutputContext, obj: Any) -> None:
        _check_output(context, obj)
        _warn(context, check_output(context))
        handler = handler_for(type(obj), self.type_handlers())
        sources = (context.output_metadata or {}, _tags(context), context.definition_metadata or {})
        settings = WriteSettings.of(*sources, default=self._defaults(), is_partitioned=context.has_asset_partitions)
        selection = _output_selection(context, settings)
        identity = self._identity(context, selection)
        uri = self.tables.uri(context.asset_key, given=find_setting("uri", *sources), is_written=True)
        registered = self._registered(obj, uri)
        if registered is not None:
            dataset, outcome = registered, Outcome(operation="register", version=registered.version)
        else:
            if settings.branch is not None:
                uri = self.tables.branch_uri(uri, settings.branch, storable(handler.schema(obj)))
            context.log.info("Storing %s in %s (mode %s).", _described(context), uri, settings.mode)
            outcome = self._commit(
                context, obj, handler, identity=identity, settings=settings, selection=selection, uri=uri
            )
            dataset = self.tables.open(uri, version=outcome.version)
        report_output(
            context,
            dataset,
            outcome,
            selection=selection,
            identity=identity,
            tag=self._tag(identity) if self.tag_runs else None,
            preview_rows=self.preview_rows,
            is_beside=dataset.branch != own_branch(context.definition_metadata or {}, self._materialized_branch),
            more=lineage_metadata(context, obj, self.tables, inputs=self._places_of_assets),
        )

    def _check_places(self, context: dg.OutputContext) -> None:
        """Refuse two assets of the code location that this IO manager would store in one table; looks once."""
        graph = _compat.asset_graph(context)
        if graph is None or graph is self._checked_assets or not context.has_asset_key:
            return
        key = _compat.io_manager_key(graph, context.asset_key)
        if key is not None:
            refuse_shared(stored_addresses(_compat.stored_assets(graph, key), self.tables, branch=self.branch))
        self._checked_assets = graph

    def _commit(
        self,
        context: dg.OutputContext,
        obj: Any,
        handler: TypeHandler,
        *,
        identity: CommitIdentity,
        settings: WriteSettings,
        selection: PartitionSelection | None,
        uri: str,
    ) -> Outcome:
        """Write, unless an earlier attempt of this step did."""
        existing = self.tables.find(uri)
        earlier = None if existing is None else self._earlier_commit(context, identity, existing)
        if earlier is not None and self._takes_over(earlier, uri=uri, settings=settings):
            return Outcome(operation="replay", version=earlier)
        if existing is not None and earlier is None and self.tag_runs:
            check_free(existing, self.tag_template, self._tag(identity))
        # A second commit that is wanted must not be taken for the first.
        token = identity.token(salt="" if earlier is None else f"{earlier}/{identity.run.previous_attempts}")
        target = Target(
            tables=self.tables,
            uri=uri,
            settings=settings,
            selection=selection,
            properties=identity.properties(token=token) | self._scheme(context, settings, existing),
            token=token,
            has_twins=identity.run.tick is not None,
            is_placeholder=existing is None and self.tables.is_begun(uri),
        )
        with watched(context.log, uri, f"Storing {_described(context)}", session=getattr(obj, "sparkSession", None)):
            # The table as it was looked through: a commit of the same key that comes in between is found by the commit.
            return store(obj, handler, target, existing=existing)

    def _scheme(
        self, context: dg.OutputContext, settings: WriteSettings, existing: "lance_core.LanceDataset | None"
    ) -> dict[str, str]:
        """Return the transaction property with the partitions of the asset; warn if the last output had others."""
        if not context.has_asset_partitions:
            return {}
        definition = context.asset_partitions_def
        scheme = PartitionScheme.of(definition, settings.partition_expr)
        if existing is not None:
            store = _compat.instance_of(context)
            warning = change_warning(
                existing,
                scheme,
                asset=context.asset_key.to_user_string(),
                keys=lambda: definition.get_partition_keys(dynamic_partitions_store=store),
            )
            _warn(context, [] if warning is None else [warning])
        return {SCHEME: scheme.to_json()}

    def _load(self, context: dg.InputContext) -> Any:
        definition = upstream_metadata(context)
        _warn(context, check_input(context, definition))
        settings = ReadSettings.of(context.definition_metadata or {}, default=ReadSettings(read=self.read))
        uri = self.tables.uri(context.asset_key, given=find_setting("uri", definition))
        selection = input_selection(context)
        is_empty = selection is not None and not selection.keys
        dataset = open_input(
            context,
            self.tables,
            uri,
            settings=settings,
            preferred_branch=find_setting("branch", _tags(context)) or self.branch or None,
            own_branch=own_branch(definition, self._materialized_branch),
            is_empty=is_empty,
        )
        if dataset is not None:
            context.log.info("Loading %s from version %d of %s.", _described(context), dataset.version, dataset.uri)
            self._remember(context, dataset.version)
            self._places_of_assets[dataset.uri] = context.asset_key
            schema = dataset.schema
        else:
            schema = arrow_schema(declared_schema(definition) or dg.TableSchema(columns=[]))
        type_ = input_type(context, has_spark=self.spark is not None)
        request = ReadRequest(
            dataset=dataset,
            type=type_,
            columns=settings.columns,
            filter=input_filter(settings.filter, selection, dataset),
            is_empty=is_empty or dataset is None,
            schema=schema,
            storage_options=self.tables.storage_options_of(uri),
            base_store_params=self.base_store_params,
            spark_session=lambda: spark_session(self.spark),
        )
        return handler_for(type_, self.type_handlers()).load(request)

    def _defaults(self) -> WriteSettings:
        return WriteSettings(
            mode=self.mode,
            schema_mode=self.schema_mode,
            out_of_partition=self.out_of_partition,
            merge_keys=tuple(self.merge_keys) or None,
            branch=self.branch,
        )

    def _registered(self, obj: Any, uri: str) -> "lance_core.LanceDataset | None":
        """Return the dataset, if the asset wrote its own table (or a branch of it)."""
        if not isinstance(obj, lance_core.LanceDataset):
            return None
        existing = self.tables.find(uri)
        if existing is None:
            return None
        registered = existing if obj.branch is None else self.tables.open(uri, version=obj.version, branch=obj.branch)
        return obj if registered.uri == obj.uri else None

    def _tag(self, identity: CommitIdentity) -> str:
        return tag_name(
            self.tag_template,
            run_id=identity.run.run_id,
            asset=identity.asset_key,
            partitions=identity.partition_keys,
        )

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
        self, context: dg.OutputContext, identity: CommitIdentity, dataset: "lance_core.LanceDataset"
    ) -> int | None:
        """Version that an earlier attempt of this step committed, or None."""
        return identity.find(
            dataset,
            lookback=_LOOKBACK_RETRY if identity.run.is_retry else _LOOKBACK_FIRST,
            was_published=lambda run_id: _compat.was_published(context, run_id),
        )

    def _takes_over(self, earlier: int, *, uri: str, settings: WriteSettings) -> bool:
        """Return whether an earlier attempt's commit counts as this one's."""
        if self.on_retry == "rewrite":
            return False
        # Overwriting again does no harm, and is right if somebody else wrote in between.
        return settings.mode not in ("overwrite", "replace_partitions") or self.tables.open(uri).version == earlier

    def _remember(self, context: dg.InputContext, version: int) -> None:
        step = _compat.step_identity(context)
        if step is not None:
            # One step at a time: what earlier steps read is told already.
            self._inputs = {step: self._inputs.get(step, {})}
            self._inputs[step][context.asset_key.to_user_string()] = version


def _warn(context: dg.OutputContext | dg.InputContext, messages: Sequence[str]) -> None:
    """Write warnings to the run's log."""
    for message in messages:
        context.log.warning(message)


def _tags(context: dg.OutputContext | dg.InputContext) -> dict[str, str]:
    """Settings among the run's tags."""
    return {key: value for key, value in _compat.run_tags(context).items() if key.startswith(PREFIX)}


@contextmanager
def _naming(context: dg.OutputContext | dg.InputContext, what: str) -> Generator[None, None, None]:
    """Errors of ours tell which asset and partitions they are about."""
    try:
        yield
    except LanceError as error:
        if context.has_asset_key:
            error.message = f"{what} {_described(context)}: {error.message}"
        raise
    except OSError as error:
        # The file system names a file of the table, which says little to people.
        if context.has_asset_key:
            error.add_note(
                f"{what} {_described(context)} failed. Does `root` name a folder that may be used from here?"
            )
        raise


def _described(context: dg.OutputContext | dg.InputContext) -> str:
    text = context.asset_key.to_user_string()
    try:
        keys = sorted(context.asset_partition_keys) if context.has_asset_partitions else []
    except dg.DagsterError:
        keys = []
    more = "" if len(keys) <= _SHOWN_KEYS else f" and {len(keys) - _SHOWN_KEYS} more"
    return f"{text} [{', '.join(keys[:_SHOWN_KEYS])}{more}]" if keys else text


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
