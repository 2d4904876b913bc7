"""Partition scheme of a table: how an asset's partitions divide its rows, as each commit records it.

Dagster forgets the old definition as soon as the code changes. The commits remember it, so a later run notices the
change, and the job of `build_partition_change_job` can judge which new partitions the old ones cover.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

import dagster as dg

from lance_dagster.identity import TOKEN
from lance_dagster.partitioning.partitions import columns_of, dimension_definitions
from lance_dagster.versions.history import recent_properties

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    import lance_core

SCHEME = "lance/partition_scheme"
"""Transaction property: the scheme, as JSON."""
_PARTITIONS = "dagster/partitions"
_PARTITION_COUNT = "dagster/partition_count"
_LISTED_KEYS = 50
_SHOWN_KEYS = 5
_LOOKBACK = 5
_CRON_NAMES = {"0 0 * * *": "daily", "0 * * * *": "hourly", "0 0 * * 0": "weekly", "0 0 1 * *": "monthly"}

Kind = Literal["time", "static", "dynamic", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemeDimension:
    """One dimension of a scheme.

    Args:
        name: Name of the dimension; empty if there is only one.
        column: Column, or SQL expression, that holds its keys.
        kind: Kind of the partitions.
        cron: Cron schedule of time windows.
        timezone: Time zone of time windows.
        start: Start of the first time window, as ISO time.
        fmt: Format of the keys of time windows.
        keys: Static keys, sorted; None if there are too many to list.
    """

    name: str
    column: str
    kind: Kind
    cron: str | None = None
    timezone: str | None = None
    start: str | None = None
    fmt: str | None = None
    keys: tuple[str, ...] | None = None

    @classmethod
    def of(cls, name: str, definition: dg.PartitionsDefinition, column: str) -> SchemeDimension:
        """Return the dimension of a definition."""
        dimension = cls(name=name, column=column, kind="other")
        match definition:
            case dg.TimeWindowPartitionsDefinition():
                return replace(
                    dimension,
                    kind="time",
                    cron=definition.cron_schedule,
                    timezone=definition.timezone,
                    start=definition.start.isoformat(),
                    fmt=definition.fmt,
                )
            case dg.StaticPartitionsDefinition():
                keys = tuple(sorted(definition.get_partition_keys()))
                return replace(dimension, kind="static", keys=keys if len(keys) <= _LISTED_KEYS else None)
            case dg.DynamicPartitionsDefinition():
                return replace(dimension, kind="dynamic")
            case _:
                return dimension

    @property
    def text(self) -> str:
        """Text for people, such as ``daily from 2026-01-01 (UTC) by `day```."""
        what = f"{self.kind} keys"
        if self.kind == "time":
            start = "" if self.start is None else f" from {self.start[:10]}"
            what = f"{_CRON_NAMES.get(self.cron or '', f'windows of {self.cron!r}')}{start} ({self.timezone})"
        return f"{what} by `{self.column}`"

    def windows(self) -> dg.TimeWindowPartitionsDefinition | None:
        """Return the partitions of a time dimension; None for others."""
        if self.kind != "time" or self.cron is None or self.start is None or self.fmt is None:
            return None
        start = datetime.fromisoformat(self.start).replace(tzinfo=None)
        return dg.TimeWindowPartitionsDefinition(
            start=start, fmt=self.fmt, cron_schedule=self.cron, timezone=self.timezone
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionScheme:
    """The dimensions by which partitions divide a table; none for a table without partitions."""

    dimensions: tuple[SchemeDimension, ...]

    @classmethod
    def of(cls, definition: dg.PartitionsDefinition, partition_expr: object) -> PartitionScheme:
        """Return the scheme of an asset.

        Args:
            definition: Its partitions.
            partition_expr: As in its metadata.

        Raises:
            InvalidInputError: ``partition_expr`` does not fit the dimensions.
        """
        definitions = dimension_definitions(definition)
        columns = columns_of(tuple(definitions), partition_expr)
        return cls(
            dimensions=tuple(
                SchemeDimension.of(name, part, column)
                for (name, part), column in zip(definitions.items(), columns, strict=True)
            )
        )

    @classmethod
    def from_json(cls, text: str) -> PartitionScheme | None:
        """Read a transaction property; None if a newer release wrote it in another way."""
        try:
            parts: list[dict[str, Any]] = json.loads(text)
            for part in parts:
                part["keys"] = None if part.get("keys") is None else tuple(part["keys"])
            dimensions = [SchemeDimension(**part) for part in parts]
        except (TypeError, ValueError, AttributeError):
            return None
        return cls(dimensions=tuple(dimensions))

    def to_json(self) -> str:
        """Return the value of the transaction property."""
        dimensions = [
            {key: value for key, value in asdict(dimension).items() if value is not None}
            for dimension in self.dimensions
        ]
        return json.dumps(dimensions)

    @property
    def text(self) -> str:
        """Text for people."""
        return " and ".join(dimension.text for dimension in self.dimensions) or "no partitions"

    def is_change_of(self, before: PartitionScheme) -> bool:
        """Return whether rows or records made by another scheme may not fit; further static keys are no change."""

        def comparable(scheme: PartitionScheme) -> list[SchemeDimension]:
            return [replace(dimension, keys=None, name="") for dimension in scheme.dimensions]

        return comparable(self) != comparable(before) or bool(self.removed_keys(before))

    def removed_keys(self, before: PartitionScheme) -> list[str]:
        """Return static keys of another scheme that this one does not have."""
        return [
            key
            for dimension, former in zip(self.dimensions, before.dimensions, strict=False)
            if dimension.keys is not None and former.keys is not None
            for key in former.keys
            if key not in dimension.keys
        ]


def recorded_scheme(properties: Mapping[str, str]) -> PartitionScheme | None:
    """Return the scheme of the commit of an IO manager; None if the commit does not tell."""
    if SCHEME in properties:
        return PartitionScheme.from_json(properties[SCHEME])
    is_whole = TOKEN in properties and _PARTITION_COUNT not in properties
    return PartitionScheme(dimensions=()) if is_whole else None


def change_warning(
    dataset: lance_core.LanceDataset,
    scheme: PartitionScheme,
    *,
    asset: str,
    keys: Callable[[], Collection[str]],
) -> str | None:
    """Return a warning if the newest output in a table was written by another scheme; None if it was not.

    Args:
        dataset: The table, newest version.
        scheme: Of the run.
        asset: Key of the asset, for the text.
        keys: Returns the partition keys of the asset.
    """
    for _, properties in recent_properties(dataset, limit=_LOOKBACK):
        if TOKEN not in properties:
            continue
        before = recorded_scheme(properties)
        if before is not None:
            if not scheme.is_change_of(before):
                return None
            removed = scheme.removed_keys(before)
            more = f", without the keys {removed[:_SHOWN_KEYS]}" if removed else ""
            change = f"from {before.text} to {scheme.text}{more}"
        else:
            written: list[str] = json.loads(properties.get(_PARTITIONS, "[]"))
            present = set(keys())
            strange = [key for key in written if key not in present]
            if not strange:
                return None
            change = f"to {scheme.text}: {strange[:_SHOWN_KEYS]} of the last run are no keys any more"
        job = f"{asset.replace('/', '__')}__change_partitions"
        return (
            f"The partitions of {asset} changed {change}. Rows outside of the new partitions stay in the table, and "
            f"Dagster shows new partitions as missing whose rows are there. The job {job} (build_partition_change_job) "
            "tells which, and reports or deletes them."
        )
    return None


def scheme_history(
    dataset: lance_core.LanceDataset, scheme: PartitionScheme, *, limit: int
) -> tuple[PartitionScheme | None, int | None]:
    """Return the scheme before the present one, and the first version of the present one.

    Args:
        dataset: The table, newest version.
        scheme: The present scheme.
        limit: Versions to look at.

    Returns:
        None for the scheme if the commits do not tell of another; None for the version if no commit has the present
        scheme yet.
    """
    first: int | None = None
    for version, properties in recent_properties(dataset, limit=limit):
        recorded = recorded_scheme(properties)
        if recorded is None:
            continue
        if scheme.is_change_of(recorded):
            return recorded, first
        first = version
    return None, first
