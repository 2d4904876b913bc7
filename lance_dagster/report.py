"""What Dagster is told of an output: tag, data version, metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_core.errors import LanceError
from lance_dagster import _compat
from lance_dagster.column_schema import declared_schema
from lance_dagster.history import data_version
from lance_dagster.metadata import preview, storage_metadata, write_metadata
from lance_dagster.predicate import count_by_key, typed
from lance_dagster.tags import tag_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    import dagster as dg

    import lance_core
    from lance_dagster.identity import CommitIdentity
    from lance_dagster.partitions import PartitionSelection
    from lance_dagster.write import Outcome

_MAX_COUNTED_ROWS = 10_000_000


def report_output(
    context: dg.OutputContext,
    dataset: lance_core.LanceDataset,
    outcome: Outcome,
    *,
    selection: PartitionSelection | None,
    identity: CommitIdentity,
    tag_run: bool,
    preview_rows: int,
    more: Mapping[str, Any],
) -> None:
    """Tell all there is to tell, in one call for the metadata; keys that the user gave are left alone.

    Args:
        context: Of the output.
        dataset: The table at the version of the output.
        outcome: What became of the output.
        selection: The run's partitions, or None.
        identity: Of the commit.
        tag_run: Whether to tag the version.
        preview_rows: Rows to show.
        more: Further metadata.
    """
    is_skip = outcome.operation == "skip"
    tag = _tag(context, dataset) if tag_run and not is_skip else None
    # What others did since (compaction, for one) must not make a skipped output look changed.
    _compat.set_data_version(context, str(data_version(dataset) if is_skip else outcome.version))
    given = context.output_metadata or {}
    metadata = storage_metadata(context.asset_key, dataset.uri)
    declared = declared_schema(context.definition_metadata or {})
    metadata |= write_metadata(dataset, outcome, tag=tag, inputs=identity.inputs, declared=declared)
    metadata |= more
    if preview_rows > 0:
        metadata["lance/preview"] = preview(dataset.to_table(limit=preview_rows))
    if selection is not None and "dagster/partition_row_count" not in given:
        metadata |= _count_partitions(context, dataset, selection)
    context.add_output_metadata({key: value for key, value in metadata.items() if key not in given})


def _tag(context: dg.OutputContext, dataset: lance_core.LanceDataset) -> str | None:
    try:
        return tag_version(dataset, run_id=context.run_id, version=dataset.version)
    except (LanceError, OSError) as error:
        # The data is safe already; a missing name for it is no reason to write it again.
        context.log.warning("Version %d of %s got no run tag: %s", dataset.version, dataset.uri, error)
        return None


def _count_partitions(
    context: dg.OutputContext, dataset: lance_core.LanceDataset, selection: PartitionSelection
) -> dict[str, Any]:
    """Tell each partition of a range its own count; a single count is metadata of the output."""
    counts = _partition_counts(dataset, selection)
    if len(counts) == 1:
        return {"dagster/partition_row_count": next(iter(counts.values()))}
    for key, count in counts.items():
        _compat.add_partition_metadata(context, key, {"dagster/partition_row_count": count})
    return {}


def _partition_counts(dataset: lance_core.LanceDataset, selection: PartitionSelection) -> Mapping[str, int]:
    """Rows of each of the run's partitions; nothing for a table too big to count on the side."""
    if dataset.count_rows() > _MAX_COUNTED_ROWS:
        return {}
    filter_ = typed(selection, dataset.schema).sql()
    if len(selection.keys) == 1:
        return {selection.keys[0]: dataset.count_rows(filter=filter_)}
    return count_by_key(selection, dataset.to_table(columns=list(selection.columns), filter=filter_))
