"""Checks of a table as one step: a process per step is dear.

No ``from __future__ import annotations`` here: Dagster reads the annotations of the check function as types.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Literal

import dagster as dg

from lance_core.errors import InvalidInputError
from lance_dagster.located import lance_of
from lance_dagster.partitioning.partitions import TablePartitions
from lance_dagster.setting_keys import check_asset
from lance_dagster.settings import BRANCH
from lance_dagster.table_checks import LanceChecks


def build_lance_checks(
    asset: dg.AssetKey | dg.AssetsDefinition | Sequence[str] | str,
    *,
    min_rows: int | None = None,
    max_rows: int | None = None,
    columns: Mapping[str, str] | None = None,
    schema_change: bool = False,
    not_null: Sequence[str] = (),
    unique: Sequence[str] | Sequence[Sequence[str]] = (),
    max_age: timedelta | None = None,
    max_deleted_fraction: float | None = None,
    integrity: Literal["quick", "full"] | None = None,
    max_unindexed_fraction: float | None = None,
    index_audit: Literal["sample", "full"] | None = None,
    blocking: bool = False,
    partitioned: bool = False,
    resource_key: str = "lance",
) -> dg.AssetChecksDefinition:
    """Build the checks of an asset's table, one for each rule, which run in one step.

    An asset may have several such steps, for example one that blocks and one that has the partitions of the asset, as
    long as each check is in one of them only. In parentheses: the name of the check.

    Args:
        asset: The asset whose table is checked.
        min_rows: Minimum number of rows; the check fails below it (``row_count``).
        max_rows: Maximum number of rows; the check fails above it (``row_count``).
        columns: Column name -> Arrow type text, such as ``"timestamp[us, tz=UTC]"``; the check fails for other types,
            missing columns and extra ones (``column_schema``).
        schema_change: Warn when the last change of data came with other columns than the version before
            (``schema_change``).
        not_null: Columns that must have no nulls (``not_null``).
        unique: Columns that together must not have a value twice, or several such lists; rows with a null among them
            are left out. The columns are read into memory (``unique``).
        max_age: Age of the last change of data above which to warn (``freshness``).
        max_deleted_fraction: Fraction of deleted rows (0 to 1) in the files above which to warn
            (``deleted_fraction``).
        integrity: Fail if files are missing or do not fit together: ``quick`` compares sizes and the manifests of all
            versions, ``full`` also reads every value (``integrity``).
        max_unindexed_fraction: Fraction of rows (0 to 1) that an index does not cover above which to warn
            (``index_coverage``).
        index_audit: Fail if an index answers other than its column: ``sample`` compares some rows, ``full`` all rows
            and entries (``index_audit``).
        blocking: Whether a failure stops what is downstream (a warning never does).
        partitioned: Give the checks the partitions of the asset, which must be an ``AssetsDefinition`` with the
            metadata ``partition_expr``. The rules for rows (``min_rows``, ``max_rows``, ``not_null``, ``unique``) then
            look at the rows of the run's partitions only, the others at the table. With a zone map on the partition
            column the data of other partitions is not read; without one their partition column is.
        resource_key: Where the ``LanceResource`` is.

    Raises:
        InvalidInputError: No rule, or ``partitioned`` without partitions.
    """
    checks = LanceChecks(
        min_rows=min_rows,
        max_rows=max_rows,
        columns=columns,
        schema_change=schema_change,
        not_null=not_null,
        unique=unique,
        max_age=max_age,
        max_deleted_fraction=max_deleted_fraction,
        integrity=integrity,
        max_unindexed_fraction=max_unindexed_fraction,
        index_audit=index_audit,
    )
    partitions = _partitions(asset) if partitioned else None
    return build_checks(asset_key(asset), checks, blocking=blocking, resource_key=resource_key, partitions=partitions)


def build_checks(
    key: dg.AssetKey,
    checks: LanceChecks,
    *,
    blocking: bool,
    resource_key: str,
    partitions: TablePartitions | None = None,
) -> dg.AssetChecksDefinition:
    """Rules as one step of Dagster, named for them: a table may have several such steps."""
    specs = checks.specs(key, blocking=blocking, partitions_def=None if partitions is None else partitions.definition)

    @dg.multi_asset_check(
        name="__".join([*key.path, *(spec.name for spec in specs), "lance_checks"]),
        specs=specs,
        required_resource_keys={resource_key},
    )
    def lance_checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        lance = lance_of(context, resource_key)
        # Where the run works on a branch, that is what is checked.
        branch = context.run.tags.get(BRANCH) or lance.own_branch
        dataset = lance.tables.open_preferred(lance.uri(key), branch)
        keys = () if partitions is None else context.partition_keys
        where = None if partitions is None else partitions.filter(dataset, keys)
        yield from checks.evaluate(dataset, key, where=where)

    return lance_checks


def _partitions(asset: object) -> TablePartitions:
    if not isinstance(asset, dg.AssetsDefinition):
        raise InvalidInputError("Partitioned checks need the asset itself (dg.AssetsDefinition), not its key.")
    return TablePartitions.of(asset)


def asset_key(asset: dg.AssetKey | dg.AssetsDefinition | Sequence[str] | str) -> dg.AssetKey:
    """Return the key of an asset."""
    if isinstance(asset, dg.AssetsDefinition):
        check_asset(asset)
        return asset.key
    return dg.AssetKey.from_user_string(asset) if isinstance(asset, str) else dg.AssetKey.from_coercible(asset)
