"""Messages between the planner rule and the data source.

The rule, in `lance_core.spark.planner`, finds the description of a version in the pickled data source. What it pushes
into a scan comes in the metadata of the first column of the schema that the reader is asked for.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StructField, StructType

from lance_core.format.extensions import EXTENSION_NAME_KEY
from lance_core.index.column import path_of
from lance_core.spark.common.types import SPARK_TYPE_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lance_core.format.schema import Field, Schema
    from lance_core.format.table.manifest import Manifest
    from lance_core.scan.plan import ScanPlan
    from lance_core.spark.common.read_options import ReadOptions
    from lance_core.table.snapshot import Snapshot

KEY = "lance.pushdown"
"""Key of the metadata of a column; its value is an object with the attributes of `Pushdown`."""

NEWEST = "lance.newest"
"""Key of the metadata of a column: the rule has not asked yet whether the version is still the newest."""

_BEGIN, _END = "lance-description:", ":lance-description"

_COMPARABLE = frozenset(
    {
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()),
        *(pa.float32(), pa.float64(), pa.string(), pa.large_string(), pa.date32()),
        *(pa.timestamp("us"), pa.timestamp("us", "UTC")),
    }
)
"""Types whose values Lance compares as Spark does, at most with another spelling of the condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushdown:
    """Condition, limit and aggregates that the rule pushed into a scan.

    Attributes:
        filter: SQL condition, besides that of the options.
        limit: Rows at most.
        aggregates: Attributes of `lance_core.spark.reading.aggregates.Partials`: what is returned instead of the rows.
    """

    filter: str | None = None
    limit: int | None = None
    aggregates: Mapping[str, Sequence[str]] | None = None

    def apply(self, options: ReadOptions, columns: tuple[str, ...]) -> ReadOptions:
        """Return the options of the scan.

        Args:
            options: Options of the relation.
            columns: Columns of the scan, some of which may be dotted paths inside structs.
        """
        conditions = [condition for condition in (options.filter, self.filter) if condition is not None]
        limits = [limit for limit in (options.limit, self.limit) if limit is not None]
        return replace(
            options,
            columns=columns if any("." in column for column in columns) else options.columns,
            filter=" AND ".join(f"({condition})" for condition in conditions) or None,
            limit=min(limits, default=None),
        )


def asks_newest(schema: StructType) -> bool:
    """Return whether the reader has to find out if the version is still the newest."""
    return bool(schema.fields) and NEWEST in schema.fields[0].metadata


def take_pushdown(schema: StructType) -> tuple[Pushdown | None, StructType]:
    """Return what was pushed into a scan, if the rule made it, and its schema without that."""
    pushed: dict[str, Any] | None = schema.fields[0].metadata.get(KEY) if schema.fields else None
    if pushed is None:
        return None, schema
    first = schema.fields[0]
    fields = [StructField(first.name, first.dataType, first.nullable), *schema.fields[1:]]
    return Pushdown(**pushed), StructType(fields)


def describe(snapshot: Snapshot, plan: ScanPlan) -> str:
    """Describe a version for the rule, in one line of ASCII.

    Args:
        snapshot: The version.
        plan: The columns of the relation.
    """
    manifest = snapshot.manifest
    paths = dict(_paths(plan.schema, manifest.schema))
    indexed = _indexed_paths(manifest)
    properties = {
        **manifest.config,
        "data_storage_version": str(manifest.data_storage_version),
        "enable_stable_row_ids": str(manifest.uses_stable_row_ids).lower(),
    }
    described = {
        "version": snapshot.version,
        "committed": str(manifest.timestamp),  # no other version of this number has that, also of a table made anew
        "rows": manifest.num_rows,
        "bytes": manifest.fragments.data_file_totals()[1],
        "stable_ids": manifest.uses_stable_row_ids,
        "property_names": list(properties),
        "properties": list(properties.values()),
        "paths": list(paths),
        "sql": list(paths.values()),
        "indexed": [paths[path] for path in sorted(indexed) if paths.get(path)],
    }
    return marked(described)


def _indexed_paths(manifest: Manifest) -> set[str]:
    """Return the columns over which there are indices of one column."""
    if manifest.index_section is None:
        return set()
    return {path_of(manifest.schema, index.fields[0]) for index in manifest.indices if len(index.fields) == 1}


def marked(described: Mapping[str, Any]) -> str:
    """Return a text that Java finds in a pickled object, without empty lists: Spark takes them for lists of numbers."""
    return f"{_BEGIN}{json.dumps({key: value for key, value in described.items() if value != []})}{_END}"


def _paths(schema: pa.Schema, table: Schema) -> Iterator[tuple[str, str]]:
    """Columns, and fields of structs, with their SQL; options may name such fields as columns."""
    stored = {field.name: field for field in table.fields}
    for field in schema:
        parts = [field.name] if field.name in stored else field.name.split(".")
        if not set(field.name) & {"`", "?"}:
            sql = ".".join(f"`{part}`" for part in parts)
            yield from _fields_of(field, stored.get(field.name), field.name, sql)


def _fields_of(field: pa.Field, stored: Field | None, path: str, sql: str) -> Iterator[tuple[str, str]]:
    """Yield a column and the fields in it; a blob is read as a struct that the table does not have."""
    is_plain = not {EXTENSION_NAME_KEY.encode(), SPARK_TYPE_KEY.encode()} & (field.metadata or {}).keys()
    is_struct = is_plain and pa.types.is_struct(field.type)
    if is_struct and (stored is None or stored.logical_type != "struct" or stored.is_packed or stored.is_blob):
        yield path, ""
        return
    yield path, f"?{sql}" if is_struct else sql if is_plain and _is_comparable(field.type) else ""
    if is_struct and stored is not None:
        children = {child.name: child for child in stored.children}
        for i in range(field.type.num_fields):
            child = field.type.field(i)
            if not set(child.name) & {".", "`", "?"}:
                yield from _fields_of(child, children.get(child.name), f"{path}.{child.name}", f"{sql}.`{child.name}`")


def _is_comparable(kind: pa.DataType) -> bool:
    return kind in _COMPARABLE or pa.types.is_decimal128(kind)
