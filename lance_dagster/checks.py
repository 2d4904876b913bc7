"""Checks of a table as one step: a process per step is dear.

No ``from __future__ import annotations`` here: Dagster reads the annotations of the check function as types.
"""

from collections.abc import Iterator, Sequence
from typing import Unpack

import dagster as dg

from lance_core.common.signatures import with_options
from lance_core.errors import InvalidInputError
from lance_dagster.located import lance_of
from lance_dagster.partitioning.partitions import TablePartitions
from lance_dagster.setting_keys import check_asset
from lance_dagster.settings import BRANCH
from lance_dagster.table_checks import CheckRules, LanceChecks


@with_options(CheckRules)
def build_lance_checks(
    asset: dg.AssetKey | dg.AssetsDefinition | Sequence[str] | str,
    *,
    blocking: bool = False,
    partitioned: bool = False,
    resource_key: str = "lance",
    **rules: Unpack[CheckRules],
) -> dg.AssetChecksDefinition:
    """Build the checks of an asset's table, one for each rule, which run in one step.

    An asset may have several such steps, for example one that blocks and one that has the partitions of the asset, as
    long as each check is in one of them only.

    Args:
        asset: The asset whose table is checked.
        blocking: Whether a failure stops what is downstream (a warning never does).
        partitioned: Give the checks the partitions of the asset, which must be an ``AssetsDefinition`` with the
            metadata ``partition_expr``. The rules for rows (``min_rows``, ``max_rows``, ``not_null``, ``unique``) then
            look at the rows of the run's partitions only, the others at the table. With a zone map on the partition
            column the data of other partitions is not read; without one their partition column is.
        resource_key: Where the ``LanceResource`` is.
        **rules: See `lance_dagster.CheckRules`, such as ``min_rows=1``.

    Raises:
        InvalidInputError: No rule, or ``partitioned`` without partitions.
    """
    checks = LanceChecks(**rules)
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
