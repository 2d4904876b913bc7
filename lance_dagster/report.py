"""Report of an output to Dagster: tag, data version, metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg

from lance_core.errors import LanceError
from lance_dagster import _compat
from lance_dagster.column_schema import declared_schema
from lance_dagster.metadata import preview, readable, storage_metadata, write_metadata
from lance_dagster.partitioning.predicate import count_by_key, partition_terms, typed
from lance_dagster.units import bytes_text, count_text, seconds_text
from lance_dagster.versions.history import data_version
from lance_dagster.versions.tags import tag_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    import lance_core
    from lance_dagster.identity import CommitIdentity
    from lance_dagster.partitioning.partitions import PartitionSelection
    from lance_dagster.write import Outcome

_MAX_COUNTED_ROWS = 10_000_000
_PARTITION_ROWS = "dagster/partition_row_count"


def report_output(
    context: dg.OutputContext,
    dataset: lance_core.LanceDataset,
    outcome: Outcome,
    *,
    selection: PartitionSelection | None,
    identity: CommitIdentity,
    tag: str | None,
    preview_rows: int,
    is_beside: bool,
    more: Mapping[str, Any],
) -> None:
    """Tell all there is to tell, in one call for the metadata; keys that the user gave are left alone.

    An output on a branch beside the asset's own is an observation of the asset, not a materialization: Dagster's
    asset is what its own branch holds, and automation must not take the trial for it.

    Args:
        context: Of the output.
        dataset: The table at the version of the output.
        outcome: What became of the output.
        selection: The run's partitions, or None.
        identity: Of the commit.
        tag: Name for the version, or None.
        preview_rows: Rows to show.
        is_beside: The output is on a branch beside the asset's own.
        more: Further metadata.
    """
    made_tag = _tag(context, dataset, tag) if tag is not None and outcome.is_commit else None
    given = context.output_metadata or {}
    metadata = storage_metadata(context.asset_key, dataset.uri)
    if dataset.branch is not None:
        metadata["dagster/table_name"] += f"@{dataset.branch}"
    declared = declared_schema(context.definition_metadata or {})
    metadata |= write_metadata(dataset, outcome, tag=made_tag, inputs=identity.inputs, declared=declared)
    if outcome.is_commit:
        retries = metadata.get("lance/commit_retries")
        context.log.info(
            "Committed version %d of %s: %s and %s written in %s%s.",
            outcome.version,
            dataset.uri,
            count_text(metadata["lance/rows_written"], "row"),
            bytes_text(metadata["lance/bytes_written"]),
            seconds_text(outcome.seconds),
            f", {retries} other commits came first" if retries else "",
        )
    metadata |= more
    if preview_rows > 0:
        metadata["lance/preview"] = preview(dataset.to_table(limit=preview_rows))
    counts: Mapping[str, int] = {}
    if selection is not None and _PARTITION_ROWS not in given:
        counts = _partition_counts(dataset, selection)
    metadata = {key: value for key, value in readable(metadata).items() if key not in given}
    if is_beside:
        context.add_output_metadata(metadata)
        _observe(context, {**given, **metadata}, counts)
        return
    if dataset.branch is not None and _compat.was_materialized_on_main(context):
        context.log.warning(
            "%s was materialized on the main branch in this Dagster instance, and now is on the branch %r: assets "
            "downstream of it may become stale. Set branch_outputs='observation' on the IO manager to prevent that.",
            context.asset_key.to_user_string(),
            dataset.branch,
        )
    # What others did since (compaction, for one) must not make a skipped output look changed.
    last = outcome.version if outcome.is_commit else data_version(dataset)
    _compat.set_data_version(context, str(last) if dataset.branch is None else f"{dataset.branch}@{last}")
    if len(counts) == 1:
        metadata[_PARTITION_ROWS] = next(iter(counts.values()))
    context.add_output_metadata(metadata)
    # A single count is metadata of the output; each partition of a range has its own.
    for key, count in counts.items() if len(counts) > 1 else ():
        _compat.add_partition_metadata(context, key, {_PARTITION_ROWS: count})


def _observe(context: dg.OutputContext, metadata: Mapping[str, Any], counts: Mapping[str, int]) -> None:
    """Log an observation of each partition (or of the asset), in place of Dagster's materialization."""
    partitions = sorted(context.asset_partition_keys) if context.has_asset_partitions else [None]
    for partition in partitions:
        count = None if partition is None else counts.get(partition)
        rows = {} if count is None else {_PARTITION_ROWS: count}
        event = dg.AssetObservation(context.asset_key, partition=partition, metadata={**rows, **metadata})
        context.log_event(event)
    recorded = _compat.recorded_data_version(context)
    if not _compat.withhold_materialization(context) and recorded is not None:
        # The materialization that comes all the same makes nothing stale.
        _compat.set_data_version(context, recorded)


def _tag(context: dg.OutputContext, dataset: lance_core.LanceDataset, name: str) -> str | None:
    try:
        return tag_version(dataset, name)
    except (LanceError, OSError) as error:
        # The data is safe already; a missing name for it is no reason to write it again.
        context.log.warning("Version %d of %s got no run tag: %s", dataset.version, dataset.uri, error)
        return None


def _partition_counts(dataset: lance_core.LanceDataset, selection: PartitionSelection) -> Mapping[str, int]:
    """Return rows of each of the run's partitions; nothing for a table too big to count on the side."""
    if dataset.count_rows() > _MAX_COUNTED_ROWS:
        return {}
    filter_ = typed(selection, dataset.schema).sql()
    if len(selection.keys) == 1:
        return {selection.keys[0]: dataset.count_rows(filter=filter_)}
    terms = partition_terms(selection, dataset.schema)
    return count_by_key(selection, dataset.schema, dataset.to_table(columns=terms, filter=filter_))
