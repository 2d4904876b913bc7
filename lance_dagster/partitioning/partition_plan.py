"""Plan after a change of partitions: rows of the table, records of Dagster, and the tasks that remain."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING

import dagster as dg

from lance_dagster.partitioning.partition_counts import PartitionCounts, existing_keys, partition_counts, partition_key
from lance_dagster.partitioning.partition_scheme import PartitionScheme, scheme_history
from lance_dagster.partitioning.partitions import dimension_definitions
from lance_dagster.units import count_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import lance_core
    from lance_dagster.partitioning.partitions import TablePartitions

_LOOKBACK = 1000
_SHOWN = 10

_UNKNOWN = (
    "The commits do not tell the former partitions. Give them as `former` of `build_partition_change_job`: keys of the "
    "same name may have meant other rows."
)

Window = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlan:
    """Tasks after a change of partitions; partition keys in the order of the partitions.

    Args:
        table: Asset key, parts joined by ``/``.
        version: Version of the table that was looked at.
        scheme: The present partitions.
        before: The former partitions; None if nothing tells of others.
        counts: Rows of each partition.
        complete: Partitions that Dagster records as materialized.
        to_report: Partitions whose rows are in the table, and that Dagster does not record.
        partial: Partitions of which the former partitions covered only a part: they must be materialized again.
        missing: Partitions without rows: they must be materialized.
        obsolete: Keys that Dagster records and that are no partitions any more.
    """

    table: str
    version: int
    scheme: PartitionScheme
    before: PartitionScheme | None
    counts: PartitionCounts
    complete: Sequence[str] = field(default_factory=list[str])
    to_report: Sequence[str] = field(default_factory=list[str])
    partial: Sequence[str] = field(default_factory=list[str])
    missing: Sequence[str] = field(default_factory=list[str])
    obsolete: Sequence[str] = field(default_factory=list[str])

    @property
    def summary(self) -> str:
        """One line for people."""
        return (
            f"{count_text(len(self.complete), 'partition')} recorded, {len(self.to_report):,} to report, "
            f"{len(self.partial) + len(self.missing):,} to materialize, "
            f"{count_text(self.counts.num_outside, 'row')} outside of every partition"
        )

    def markdown(self) -> str:
        """Return the plan as a Markdown table."""
        before = "" if self.before is None else f", formerly {self.before.text}"
        rows = self.counts.rows
        lines = [
            f"Partitions of `{self.table}` at version {self.version}: {self.scheme.text}{before}.",
            "",
            "| | partitions | rows | which | what to do |",
            "|---|---:|---:|---|---|",
        ]
        groups = (
            ("recorded by Dagster", self.complete, "nothing"),
            ("in the table, not recorded", self.to_report, "report (this job)"),
            ("only a part is known to be there", self.partial, "materialize"),
            ("no rows", self.missing, "materialize"),
        )
        for name, keys, advice in groups:
            number = sum(rows.get(key, 0) for key in keys)
            lines.append(f"| {name} | {len(keys):,} | {number:,} | {_shown(keys)} | {advice if keys else ''} |")
        if self.counts.future:
            lines.append(
                f"| later than the last partition | | {self.counts.future:,} | | nothing: they become partitions |"
            )
        if self.counts.num_outside:
            values = [f"{value} ({number:,})" for value, number in _largest(self.counts.outside)]
            more = len(self.counts.outside) - len(values)
            texts = ", ".join(map(_code, values)) + (f" and {more:,} more" if more > 0 else "")
            advice = "delete (`delete_outside`), rename the keys (`rename`) or widen the partitions"
            lines.append(f"| outside of every partition | | {self.counts.num_outside:,} | {texts} | {advice} |")
        if self.obsolete:
            lines.append(
                f"| recorded keys that are no partitions | {len(self.obsolete):,} | | {_shown(self.obsolete)} | |"
            )
            if self.before is None:
                lines += ["", _UNKNOWN]
        return "\n".join(lines)


def _largest(values: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(values.items(), key=lambda item: -item[1])[:_SHOWN]


def _shown(keys: Sequence[str]) -> str:
    if len(keys) <= _SHOWN:
        return ", ".join(map(_code, keys))
    return f"{_code(keys[0])} to {_code(keys[-1])}"


def _code(text: str) -> str:
    return f"`{text.replace('|', chr(92) + '|')}`"


def plan_partition_change(
    dataset: lance_core.LanceDataset,
    key: dg.AssetKey,
    partitions: TablePartitions,
    instance: dg.DagsterInstance,
    *,
    former: PartitionScheme | None = None,
    renamed: Mapping[str, str] | None = None,
) -> PartitionPlan:
    """Compare a table with the partitions of its asset; reads the partition columns of all rows.

    A partition counts as present if the materialized partitions of the former scheme cover it. If nothing tells of a
    former scheme, it does if it has rows.

    Args:
        dataset: The table, newest version.
        key: Its asset.
        partitions: The present partitions.
        instance: Knows which partitions were materialized.
        former: The former partitions; None takes what the commits of the table tell.
        renamed: Old key -> new key.
    """
    scheme = PartitionScheme.of(partitions.definition, partitions.partition_expr)
    keys = existing_keys(partitions.definition, instance)
    counts = partition_counts(dataset, partitions.definition, partitions.partition_expr, keys=keys, renamed=renamed)
    told, first = scheme_history(dataset, scheme, limit=_LOOKBACK)
    before = former or told
    ever = set(instance.get_materialized_partitions(key))
    present = _recorded_since(dataset, key, instance, first) if before is not None else ever
    covers = None if before is None or not before.dimensions else _Coverage.of(before, ever, renamed or {})
    groups: dict[str, list[str]] = defaultdict(list)
    existing: set[str] = set()
    for name, parts in _all_keys(partitions.definition, keys):
        existing.add(name)
        has_rows = name in counts.rows
        if name in present:
            groups["complete"].append(name)
        elif covers is None:
            groups["to_report" if has_rows else "missing"].append(name)
        elif covers.holds(partitions, scheme, parts):
            # A name that means the same as before is recorded already.
            is_recorded = name in ever and covers.means_same(partitions, scheme, parts)
            groups["complete" if is_recorded else "to_report"].append(name)
        else:
            groups["partial" if has_rows else "missing"].append(name)
    return PartitionPlan(
        table=key.to_user_string(),
        version=dataset.version,
        scheme=scheme,
        before=before,
        counts=counts,
        obsolete=sorted(ever - existing),
        **groups,
    )


def _all_keys(
    definition: dg.PartitionsDefinition, keys: Sequence[Sequence[str]]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    names = tuple(dimension_definitions(definition))
    for parts in product(*keys):
        yield partition_key(names, parts), parts


def _recorded_since(
    dataset: lance_core.LanceDataset, key: dg.AssetKey, instance: dg.DagsterInstance, version: int | None
) -> set[str]:
    """Return the partitions that were materialized since a version was made."""
    if version is None:
        return set()
    made = dataset.checkout_version(version).get_version()["timestamp"].astimezone().timestamp()
    since = dg.AssetRecordsFilter(asset_key=key, after_timestamp=made)
    events = instance.fetch_materializations(since, limit=1, ascending=True).records
    if not events:
        return set()
    return set(instance.get_materialized_partitions(key, after_cursor=events[0].storage_id - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Coverage:
    """Coverage of the materialized partitions of a former scheme.

    Args:
        scheme: The former scheme.
        windows: Merged time windows, in seconds since 1970, for each combination of the keys of its other dimensions.
        singles: The same, not merged.
    """

    scheme: PartitionScheme
    windows: Mapping[tuple[str, ...], Sequence[Window]]
    singles: Mapping[tuple[str, ...], frozenset[Window]]

    @classmethod
    def of(cls, scheme: PartitionScheme, keys: Iterable[str], renamed: Mapping[str, str]) -> _Coverage:
        """Return what keys cover; those that are none of the scheme are left out."""
        single: dict[tuple[str, ...], set[Window]] = defaultdict(set)
        ordered = sorted(range(len(scheme.dimensions)), key=lambda i: scheme.dimensions[i].name)
        definitions = [dimension.windows() for dimension in scheme.dimensions]
        for key in keys:
            texts = key.split("|") if len(ordered) > 1 else [key]
            if len(texts) != len(ordered):
                continue
            parts = dict(zip(ordered, texts, strict=True))
            window: Window | None = None
            try:
                for i, definition in enumerate(definitions):
                    if definition is not None:
                        time_window = definition.time_window_for_partition_key(parts[i])
                        window = time_window.start.timestamp(), time_window.end.timestamp()
            except Exception:  # noqa: BLE001, S112 - Dagster has several errors for a text that is no key
                continue
            rest = tuple(renamed.get(parts[i], parts[i]) for i in range(len(ordered)) if definitions[i] is None)
            windows = single[rest]
            if window is not None:
                windows.add(window)
        return cls(
            scheme=scheme,
            windows={rest: _merged(windows) for rest, windows in single.items()},
            singles={rest: frozenset(windows) for rest, windows in single.items()},
        )

    def holds(self, partitions: TablePartitions, scheme: PartitionScheme, parts: Sequence[str]) -> bool:
        """Return whether what was materialized covers a partition."""
        window, has_time = self._window(partitions, scheme, parts)
        if has_time and window is None:
            return False
        for rest in self._wanted(scheme, parts):
            if rest not in self.windows:
                return False
            if window is not None and not any(
                start <= window[0] and window[1] <= end for start, end in self.windows[rest]
            ):
                return False
        return bool(self.windows)

    def means_same(self, partitions: TablePartitions, scheme: PartitionScheme, parts: Sequence[str]) -> bool:
        """Return whether a former partition was the very same rows."""
        if [dimension.column for dimension in scheme.dimensions] != [
            dimension.column for dimension in self.scheme.dimensions
        ]:
            return False
        window, _ = self._window(partitions, scheme, parts)
        return all(window is None or window in self.singles.get(rest, ()) for rest in self._wanted(scheme, parts))

    def _window(
        self, partitions: TablePartitions, scheme: PartitionScheme, parts: Sequence[str]
    ) -> tuple[Window | None, bool]:
        """Return the time window of a partition in the column of the former time dimension, and if there was one."""
        time = next((dimension for dimension in self.scheme.dimensions if dimension.kind == "time"), None)
        if time is None:
            return None, False
        for dimension, definition, part in zip(
            scheme.dimensions, dimension_definitions(partitions.definition).values(), parts, strict=True
        ):
            if isinstance(definition, dg.TimeWindowPartitionsDefinition) and dimension.column == time.column:
                window = definition.time_window_for_partition_key(part)
                return (window.start.timestamp(), window.end.timestamp()), True
        return None, True

    def _wanted(self, scheme: PartitionScheme, parts: Sequence[str]) -> Iterator[tuple[str, ...]]:
        """Yield the combinations of former keys that make up a partition, in the dimensions without time."""
        given = {
            dimension.column: part
            for dimension, part in zip(scheme.dimensions, parts, strict=True)
            if dimension.kind != "time"
        }
        others = [dimension.column for dimension in self.scheme.dimensions if dimension.kind != "time"]
        choices = [
            [given[column]] if column in given else sorted({rest[i] for rest in self.windows})
            for i, column in enumerate(others)
        ]
        return product(*choices)


def _merged(windows: Iterable[Window]) -> list[Window]:
    """Return windows in order, those that touch or overlap as one."""
    merged: list[Window] = []
    for start, end in sorted(windows):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged
