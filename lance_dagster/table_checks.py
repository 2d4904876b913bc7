"""Rules for a sound table, as a value that is evaluated on a dataset."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

import dagster as dg

from lance_core.common.late_module import LateModule
from lance_core.common.signatures import check_options, with_options
from lance_core.errors import InvalidInputError, VersionNotFoundError
from lance_dagster.index_numbers import index_numbers
from lance_dagster.metadata import table_numbers
from lance_dagster.partitioning.predicate import quote
from lance_dagster.units import age_text
from lance_dagster.versions.history import data_version

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import timedelta

    import pyarrow.compute as pc

    import lance_core
else:
    pc = LateModule("pyarrow.compute")

CheckOutcome = tuple[bool, dict[str, Any]]
_ERROR, _WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN
_SAMPLE_ROWS = 10_000
_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Rows that rules look at.

    Args:
        dataset: The table.
        now: The time, with zone, that ages are counted to.
        where: SQL predicate of the rows, or None for all.
    """

    dataset: lance_core.LanceDataset
    now: datetime
    where: str | None

    def restricted(self, condition: str) -> str:
        """Return an SQL predicate with the one of the rows."""
        return condition if self.where is None else f"({self.where}) AND ({condition})"


class CheckRules(TypedDict, total=False):
    """Rules for a table; each that is given is a check of its own, whose name stands in parentheses.

    None, False or no columns mean: no such check.

    Attributes:
        min_rows: Minimum number of rows; the check fails below it (``row_count``).
        max_rows: Maximum number of rows; the check fails above it (``row_count``).
        columns: Column name -> Arrow type text, such as ``"timestamp[us, tz=UTC]"``; the check fails for other types,
            missing columns and extra ones (``column_schema``).
        schema_change: Warn when the last change of data came with other columns than the version before
            (``schema_change``).
        not_null: Columns that must have no nulls (``not_null``).
        unique: Columns that together must not have a value twice, or several such lists; rows with a null among them
            are left out. The columns are read into memory (``unique``).
        max_age: Age of the last change of data above which to warn (``freshness``). For assets that Dagster itself
            materializes, a ``dg.FreshnessPolicy`` on the asset does this without a run.
        max_deleted_fraction: Fraction of deleted rows (0 to 1) in the files above which to warn
            (``deleted_fraction``).
        integrity: Fail if files are missing or do not fit together: ``quick`` compares sizes and the manifests of all
            versions, ``full`` also reads every value (``integrity``).
        max_unindexed_fraction: Fraction of rows (0 to 1) that an index does not cover above which to warn, of the index
            that misses most (``index_coverage``).
        index_audit: Fail if an index answers other than its column: ``sample`` compares some rows, ``full`` all rows
            and entries (``index_audit``). ``lance_core.repair`` rebuilds what is wrong.
    """

    min_rows: int | None
    max_rows: int | None
    columns: Mapping[str, str] | None
    schema_change: bool | None
    not_null: Sequence[str] | None
    unique: Sequence[str] | Sequence[Sequence[str]] | None
    max_age: timedelta | None
    max_deleted_fraction: float | None
    integrity: Literal["quick", "full"] | None
    max_unindexed_fraction: float | None
    index_audit: Literal["sample", "full"] | None


@dataclass(frozen=True, slots=True, init=False)
class LanceChecks:
    """Rules for a table, as a value that is evaluated on its versions.

    Args:
        **rules: See `CheckRules`.

    Raises:
        InvalidInputError: No rule, or two that contradict each other.
    """

    rules: CheckRules
    _checks: Mapping[str, _Check] = field(repr=False, compare=False)

    @with_options(CheckRules)
    def __init__(self, **rules: Unpack[CheckRules]) -> None:
        check_options("LanceChecks", CheckRules, rules)
        low, high = rules.get("min_rows"), rules.get("max_rows")
        if low is not None and high is not None and low > high:
            raise InvalidInputError(f"min_rows ({low:,}) is more than max_rows ({high:,}).")
        checks = dict(_given(rules))
        if not checks:
            raise InvalidInputError("The check has no rule. Pass at least one, such as min_rows=1.")
        object.__setattr__(self, "rules", rules)
        object.__setattr__(self, "_checks", checks)

    @property
    def names(self) -> tuple[str, ...]:
        """The checks there are."""
        return tuple(self._checks)

    def specs(
        self,
        asset: dg.AssetKey,
        *,
        blocking: bool = False,
        partitions_def: dg.PartitionsDefinition | None = None,
    ) -> list[dg.AssetCheckSpec]:
        """Declarations, for ``@dg.asset(check_specs=...)`` and the like; a warning never blocks."""
        # Dagster before 1.13 has no partitions of checks.
        partitions: dict[str, Any] = {} if partitions_def is None else {"partitions_def": partitions_def}
        with warnings.catch_warnings():
            # Partitions of checks are a preview; who asks for them knows.
            warnings.filterwarnings("ignore", ".*partitions_def.* preview", category=Warning)
            return [
                dg.AssetCheckSpec(
                    name,
                    asset=asset,
                    description=check.text,
                    blocking=blocking and check.severity is _ERROR,
                    **partitions,
                )
                for name, check in self._checks.items()
            ]

    def evaluate(
        self,
        dataset: lance_core.LanceDataset,
        asset: dg.AssetKey,
        *,
        now: datetime | None = None,
        where: str | None = None,
    ) -> list[dg.AssetCheckResult]:
        """Look at one version of a table.

        In an asset that writes its table itself this is the inline variant: its results go into
        ``dg.MaterializeResult(check_results=...)``, and ``specs`` into the asset's ``check_specs``.

        Args:
            dataset: The table.
            asset: Whose table it is.
            now: The time, with zone, that ages are counted to; the current time if not given.
            where: SQL predicate: the rules for rows (``row_count``, ``not_null``, ``unique``) look at these rows only.
        """
        scope = Scope(dataset=dataset, now=now or datetime.now(UTC), where=where)
        return [self._result(name, check, scope, asset) for name, check in self._checks.items()]

    def _result(self, name: str, check: _Check, scope: Scope, asset: dg.AssetKey, /) -> dg.AssetCheckResult:
        passed, metadata = check.run(scope)
        return dg.AssetCheckResult(
            asset_key=asset,
            check_name=name,
            passed=passed,
            severity=check.severity,
            metadata={**metadata, "lance/version": scope.dataset.version},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Check:
    """One check.

    Args:
        text: What it asks for.
        run: Returns whether the rows are as they should be, and metadata.
        severity: Of a failure.
    """

    text: str
    run: Callable[[Scope], CheckOutcome]
    severity: dg.AssetCheckSeverity = _ERROR


def _given(rules: CheckRules) -> Iterator[tuple[str, _Check]]:
    """Yield the checks asked for, by name, cheap ones first."""
    low, high = rules.get("min_rows"), rules.get("max_rows")
    if low is not None or high is not None:
        text = f"Between {low or 0} and {'any number of' if high is None else high} rows."
        yield "row_count", _Check(text=text, run=lambda scope: _row_count(scope, low, high))
    if (columns := rules.get("columns")) is not None:
        text = f"The columns are {', '.join(columns)}."
        yield "column_schema", _Check(text=text, run=lambda scope: _column_schema(scope.dataset, columns))
    if rules.get("schema_change"):
        text = "The last change of data left the columns as they were."
        yield "schema_change", _Check(text=text, run=lambda scope: _schema_change(scope.dataset), severity=_WARN)
    if names := tuple(rules.get("not_null") or ()):
        text = f"No nulls in {', '.join(names)}."
        yield "not_null", _Check(text=text, run=lambda scope: _not_null(scope, names))
    if keys := _keys(rules.get("unique") or ()):
        text = f"No value twice in {'; '.join(', '.join(key) for key in keys)}."
        yield "unique", _Check(text=text, run=lambda scope: _unique(scope, keys))
    if (age := rules.get("max_age")) is not None:
        text = f"The data changed in the last {age_text(age)}."
        yield "freshness", _Check(text=text, run=lambda scope: _fresh(scope.dataset, age, scope.now), severity=_WARN)
    if (fraction := rules.get("max_deleted_fraction")) is not None:
        text = f"At most {fraction:.0%} of the rows in the files are deleted."
        yield (
            "deleted_fraction",
            _Check(text=text, run=lambda scope: _deleted_fraction(scope.dataset, fraction), severity=_WARN),
        )
    if (unindexed := rules.get("max_unindexed_fraction")) is not None:
        text = f"Each index covers all but {unindexed:.0%} of the rows."
        yield (
            "index_coverage",
            _Check(text=text, run=lambda scope: _index_coverage(scope.dataset, unindexed), severity=_WARN),
        )
    if (extent := rules.get("index_audit")) is not None:
        text = f"Each index answers what the columns hold ({extent})."
        yield "index_audit", _Check(text=text, run=lambda scope: _index_audit(scope.dataset, extent))
    if (level := rules.get("integrity")) is not None:
        text = f"All files are there and fit together ({level})."
        yield "integrity", _Check(text=text, run=lambda scope: _integrity(scope.dataset, level))


def _keys(unique: Sequence[str] | Sequence[Sequence[str]]) -> tuple[tuple[str, ...], ...]:
    """Keys of one or more columns, from one list of columns or several."""
    if isinstance(unique, str):
        msg = f"`unique` is a list of columns or of such lists; found {unique!r}."
        raise InvalidInputError(msg)
    single = tuple(name for name in unique if isinstance(name, str))
    tuples = tuple(tuple(names) for names in unique if not isinstance(names, str))
    if single and tuples:
        raise InvalidInputError("'unique' must be a list of columns or a list of lists of columns, not a mixture.")
    return (single,) if single else tuples


def _row_count(scope: Scope, low: int | None, high: int | None) -> CheckOutcome:
    count = scope.dataset.count_rows(filter=scope.where)
    passed = (low is None or count >= low) and (high is None or count <= high)
    return passed, {"dagster/row_count" if scope.where is None else "dagster/partition_row_count": count}


def _column_schema(dataset: lance_core.LanceDataset, columns: Mapping[str, str]) -> CheckOutcome:
    return _compared(columns, {column.name: str(column.type) for column in dataset.schema})


def _compared(wanted: Mapping[str, str], names: Mapping[str, str]) -> CheckOutcome:
    missing = sorted(wanted.keys() - names.keys())
    extra = sorted(names.keys() - wanted.keys())
    others = sorted(
        f"{name}: {names[name]} instead of {kind}" for name, kind in wanted.items() if names.get(name, kind) != kind
    )
    return not (missing or extra or others), {"missing": missing, "extra": extra, "other_types": others}


def _schema_change(dataset: lance_core.LanceDataset) -> CheckOutcome:
    try:
        before = dataset.checkout_version(data_version(dataset) - 1)
    except (VersionNotFoundError, InvalidInputError):
        return True, {"lance/reason": "there is no version before the last change"}
    columns = {column.name: str(column.type) for column in before.schema}
    passed, differences = _compared(columns, {column.name: str(column.type) for column in dataset.schema})
    return passed, {**differences, "lance/version_before": before.version}


def _not_null(scope: Scope, names: Sequence[str]) -> CheckOutcome:
    nulls = {name: scope.dataset.count_rows(filter=scope.restricted(f"{quote(name)} IS NULL")) for name in names}
    return not any(nulls.values()), {f"nulls/{name}": count for name, count in nulls.items()}


def _unique(scope: Scope, keys: Sequence[Sequence[str]]) -> CheckOutcome:
    metadata: dict[str, Any] = {}
    for key in keys:
        present = " AND ".join(f"{quote(name)} IS NOT NULL" for name in key)
        rows = scope.dataset.to_table(columns=list(key), filter=scope.restricted(present))
        counted = rows.group_by(list(key)).aggregate([([], "count_all")])
        repeated = counted.filter(pc.field("count_all") > 1)
        name = ",".join(key)
        metadata[f"duplicates/{name}"] = rows.num_rows - counted.num_rows
        if repeated.num_rows:
            metadata[f"examples/{name}"] = json.dumps(repeated.slice(0, _SHOWN).to_pylist(), default=str)
    return not any(value for name, value in metadata.items() if name.startswith("duplicates/")), metadata


def _fresh(dataset: lance_core.LanceDataset, limit: timedelta, now: datetime) -> CheckOutcome:
    changed = dataset.checkout_version(data_version(dataset)).get_version()["timestamp"].astimezone(UTC)
    metadata = {
        "lance/changed_at": dg.MetadataValue.timestamp(changed),
        "lance/age_seconds": round((now - changed).total_seconds(), 3),
    }
    return now - changed <= limit, metadata


def _deleted_fraction(dataset: lance_core.LanceDataset, limit: float) -> CheckOutcome:
    fraction = table_numbers(dataset)["lance/deleted_fraction"]
    return fraction <= limit, {"lance/deleted_fraction": fraction}


def _index_coverage(dataset: lance_core.LanceDataset, limit: float) -> CheckOutcome:
    numbers = index_numbers(dataset)
    return numbers.get("lance/index_coverage", 1.0) >= 1 - limit, numbers


def _index_audit(dataset: lance_core.LanceDataset, extent: str) -> CheckOutcome:
    report = dataset.verify(level="indices", sample_rows=_SAMPLE_ROWS if extent == "sample" else None)
    wrong = sorted({problem.index_name for problem in report.problems if problem.index_name})
    passed, metadata = _reported(report)
    return passed, {**index_numbers(dataset), **metadata, "lance/wrong_indices": wrong}


def _integrity(dataset: lance_core.LanceDataset, level: str) -> CheckOutcome:
    return _reported(dataset.verify(level=level))


def _reported(report: lance_core.VerifyReport) -> CheckOutcome:
    metadata: dict[str, Any] = {
        "lance/problems": report.num_problems,
        "lance/versions_checked": report.num_versions,
        "lance/files_checked": report.num_files,
        "lance/orphans": report.num_orphans,
    }
    if report.problems:
        lines = [f"- {problem}" for problem in report.problems[:_SHOWN]]
        metadata["lance/first_problems"] = dg.MetadataValue.md("\n".join(lines))
    return report.is_ok, metadata
