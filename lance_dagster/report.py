"""What Dagster is told of an output: tag, data version, metadata."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lance_core.errors import LanceError
from lance_dagster import _compat
from lance_dagster.column_schema import declared_schema
from lance_dagster.history import data_version
from lance_dagster.metadata import preview, storage_metadata, write_metadata
from lance_dagster.predicate import count_by_key, partition_terms, typed
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
    tag: str | None,
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
        tag: Name for the version, or None.
        preview_rows: Rows to show.
        more: Further metadata.
    """
    made_tag = _tag(context, dataset, tag) if tag is not None and outcome.is_commit else None
    # What others did since (compaction, for one) must not make a skipped output look changed.
    last = outcome.version if outcome.is_commit else data_version(dataset)
    _compat.set_data_version(context, str(last) if dataset.branch is None else f"{dataset.branch}@{last}")
    given = context.output_metadata or {}
    metadata = storage_metadata(context.asset_key, dataset.uri)
    declared = declared_schema(context.definition_metadata or {})
    metadata |= write_metadata(dataset, outcome, tag=made_tag, inputs=identity.inputs, declared=declared)
    metadata |= more
    if preview_rows > 0:
        metadata["lance/preview"] = preview(dataset.to_table(limit=preview_rows))
    if selection is not None and "dagster/partition_row_count" not in given:
        metadata |= _count_partitions(context, dataset, selection)
    context.add_output_metadata({key: value for key, value in metadata.items() if key not in given})


def _tag(context: dg.OutputContext, dataset: lance_core.LanceDataset, name: str) -> str | None:
    try:
        return tag_version(dataset, name)
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
    terms = partition_terms(selection, dataset.schema)
    return count_by_key(selection, dataset.schema, dataset.to_table(columns=terms, filter=filter_))
