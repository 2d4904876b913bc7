"""Checks of a table as one step: a process per step is dear.

No ``from __future__ import annotations`` here: Dagster reads the annotations of the check function as types.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dagster as dg

import lance_core
from lance_core.errors import InvalidInputError
from lance_dagster.metadata import table_numbers
from lance_dagster.predicate import quote

if TYPE_CHECKING:
    from lance_dagster.resource import LanceResource

_Check = Callable[[lance_core.LanceDataset], tuple[bool, dict[str, Any]]]


def build_lance_checks(
    asset: dg.AssetKey | dg.AssetsDefinition | Sequence[str] | str,
    *,
    min_rows: int | None = None,
    max_rows: int | None = None,
    columns: Mapping[str, str] | None = None,
    not_null: Sequence[str] = (),
    max_deleted_fraction: float | None = None,
    blocking: bool = False,
    resource_key: str = "lance",
) -> dg.AssetChecksDefinition:
    """Checks ``row_count``, ``column_schema``, ``not_null`` and ``deleted_fraction``, as asked for, in one step.

    Args:
        asset: The asset whose table is looked at.
        min_rows: Fewest rows allowed in the whole table.
        max_rows: Most rows allowed.
        columns: Column name -> Arrow type text (``"int64"``, ``"timestamp[us, tz=UTC]"``); extra columns fail, too.
        not_null: Columns without nulls.
        max_deleted_fraction: Most deleted rows that may still be in the files (0 .. 1); a warning, not an error.
        blocking: Whether a failure stops what is downstream (a warning never does).
        resource_key: Where the ``LanceResource`` is.
    """
    key = asset.key if isinstance(asset, dg.AssetsDefinition) else _key(asset)
    checks = _checks(min_rows, max_rows, columns, tuple(not_null), max_deleted_fraction)
    if not checks:
        raise InvalidInputError("build_lance_checks was asked for no check.")
    specs = [
        dg.AssetCheckSpec(name, asset=key, blocking=blocking and severity is dg.AssetCheckSeverity.ERROR)
        for name, (severity, _) in checks.items()
    ]

    @dg.multi_asset_check(
        name="__".join([*key.path, "lance_checks"]), specs=specs, required_resource_keys={resource_key}
    )
    def lance_checks(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        lance: LanceResource = getattr(context.resources, resource_key)
        dataset = lance.dataset(key)
        for name, (severity, check) in checks.items():
            passed, metadata = check(dataset)
            metadata["lance/version"] = dataset.version
            yield dg.AssetCheckResult(
                asset_key=key, check_name=name, passed=passed, severity=severity, metadata=metadata
            )

    return lance_checks


def _key(asset: dg.AssetKey | Sequence[str] | str) -> dg.AssetKey:
    return dg.AssetKey.from_user_string(asset) if isinstance(asset, str) else dg.AssetKey.from_coercible(asset)


def _checks(
    min_rows: int | None,
    max_rows: int | None,
    columns: Mapping[str, str] | None,
    not_null: tuple[str, ...],
    max_deleted_fraction: float | None,
) -> dict[str, tuple[dg.AssetCheckSeverity, _Check]]:
    """Severity and work of each check asked for, by name."""
    checks: dict[str, tuple[dg.AssetCheckSeverity, _Check]] = {}
    if min_rows is not None or max_rows is not None:
        checks["row_count"] = (dg.AssetCheckSeverity.ERROR, _row_count(min_rows, max_rows))
    if columns is not None:
        checks["column_schema"] = (dg.AssetCheckSeverity.ERROR, _column_schema(columns))
    if not_null:
        checks["not_null"] = (dg.AssetCheckSeverity.ERROR, _not_null(not_null))
    if max_deleted_fraction is not None:
        checks["deleted_fraction"] = (dg.AssetCheckSeverity.WARN, _deleted_fraction(max_deleted_fraction))
    return checks


def _row_count(min_rows: int | None, max_rows: int | None) -> _Check:
    def check(dataset: lance_core.LanceDataset) -> tuple[bool, dict[str, Any]]:
        count = dataset.count_rows()
        passed = (min_rows is None or count >= min_rows) and (max_rows is None or count <= max_rows)
        return passed, {"dagster/row_count": count}

    return check


def _column_schema(columns: Mapping[str, str]) -> _Check:
    def check(dataset: lance_core.LanceDataset) -> tuple[bool, dict[str, Any]]:
        found = {column.name: str(column.type) for column in dataset.schema}
        missing = sorted(columns.keys() - found.keys())
        extra = sorted(found.keys() - columns.keys())
        others = [f"{name}: {found[name]}" for name in columns.keys() & found.keys() if found[name] != columns[name]]
        differences = {"missing": missing, "extra": extra, "other_types": sorted(others)}
        return not (missing or extra or others), dict(differences)

    return check


def _not_null(names: tuple[str, ...]) -> _Check:
    def check(dataset: lance_core.LanceDataset) -> tuple[bool, dict[str, Any]]:
        nulls = {name: dataset.count_rows(filter=f"{quote(name)} IS NULL") for name in names}
        return not any(nulls.values()), {f"nulls/{name}": count for name, count in nulls.items()}

    return check


def _deleted_fraction(limit: float) -> _Check:
    def check(dataset: lance_core.LanceDataset) -> tuple[bool, dict[str, Any]]:
        fraction = table_numbers(dataset)["lance/deleted_fraction"]
        return fraction <= limit, {"lance/deleted_fraction": fraction}

    return check
