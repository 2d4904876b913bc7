"""Check of a vector index: the share of the nearest rows that searches find.

No ``from __future__ import annotations`` here: Dagster reads the annotations of the check function as types.
"""

from collections.abc import Sequence

import dagster as dg

from lance_core.errors import InvalidInputError
from lance_dagster.checks import asset_key
from lance_dagster.index_numbers import vector_index_numbers
from lance_dagster.located import lance_of
from lance_dagster.settings import BRANCH


def build_recall_check(
    asset: dg.AssetKey | dg.AssetsDefinition | Sequence[str] | str,
    column: str,
    *,
    min_recall: float = 0.9,
    k: int = 10,
    num_queries: int = 50,
    metric: str | None = None,
    nprobes: int | None = None,
    refine_factor: int | None = None,
    blocking: bool = False,
    additional_deps: Sequence[dg.AssetKey | dg.AssetsDefinition | Sequence[str] | str] = (),
    resource_key: str = "lance",
) -> dg.AssetChecksDefinition:
    """Check that searches in a vector index find most of the nearest rows.

    Vectors of the table, at random, are searched for with the index and by comparing all vectors. The metadata also
    have the number of partitions, their imbalance and the number of rows that the index does not cover.

    Args:
        asset: The asset whose table is looked at.
        column: The column of vectors.
        min_recall: The check fails below this share of the nearest rows, from 0 to 1.
        k: Rows to find for each vector.
        num_queries: Vectors to search for.
        metric: As your queries have it; that of the index if None.
        nprobes: Partitions to search, as your queries do.
        refine_factor: As your queries have it.
        blocking: Whether a failure stops what is downstream.
        additional_deps: Assets that come before the check in a run, such as the one that builds the index.
        resource_key: Where the ``LanceResource`` is.

    Raises:
        InvalidInputError: A bound that is not from 0 to 1.
    """
    if not 0 <= min_recall <= 1:
        raise InvalidInputError(f"'min_recall' must be from 0 to 1, not {min_recall}.")
    key = asset_key(asset)
    name = f"lance_recall_{column.replace('.', '_')}"

    @dg.asset_check(
        asset=key,
        name=name,
        blocking=blocking,
        additional_deps=[asset_key(dep) for dep in additional_deps],
        required_resource_keys={resource_key},
    )
    def recall_check(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
        lance = lance_of(context, resource_key)
        branch = context.run.tags.get(BRANCH) or lance.own_branch
        dataset = lance.tables.open_preferred(lance.uri(key), branch)
        from lance_core.vector import measure_recall  # noqa: PLC0415 imports numpy and Arrow

        recall = measure_recall(
            dataset,
            column,
            k=k,
            num_queries=num_queries,
            metric=metric,
            nprobes=nprobes,
            refine_factor=refine_factor,
        )
        return dg.AssetCheckResult(
            passed=recall >= min_recall,
            metadata={
                "lance/recall": recall,
                "lance/version": dataset.version,
                **vector_index_numbers(dataset, column),
            },
            description=f"Searches find {recall:.1%} of the nearest {k} rows; {min_recall:.1%} are asked for.",
        )

    return recall_check
