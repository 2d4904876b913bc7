"""Column lineage of a Spark frame, without being told: read from its analyzed plan.

The plan of a classic session is asked of the JVM; that of a Connect session is the client's own, not yet analyzed, so
columns of SQL texts and views have no lineage there. Frames of other libraries have no plan: for those there is none,
unless the user gives one under ``dagster/column_lineage``.

Dagster's own key is ``dagster/column_lineage``; the open-source UI does not show it, so ``lance/column_lineage`` tells
the same as a table for people.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import dagster as dg

from lance_dagster.lineage.connect_plan import connect_sources
from lance_dagster.lineage.spark_plan import column_sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lance_dagster.lineage.spark_plan import Json
    from lance_dagster.tables import Tables

LINEAGE = "dagster/column_lineage"
SHOWN = "lance/column_lineage"
# Beyond this the projections of an ``Expand`` (rollups, grouping sets, unpivot) are not asked for one by one.
_MAX_EXPANDED = 2000


def lineage_metadata(
    context: dg.OutputContext, frame: Any, tables: Tables, *, inputs: Mapping[str, dg.AssetKey]
) -> dict[str, Any]:
    """Metadata about the columns of an output: what the user gave, else what the frame's plan tells.

    Args:
        context: Of the output.
        frame: The value that is stored.
        tables: Tells the asset of an address below its root.
        inputs: Assets that were loaded, by the address of their table.

    Returns:
        ``dagster/column_lineage`` and ``lance/column_lineage``, or nothing. No failure gets out: nobody shall lose an
        output because its plan is of a kind that nobody has seen before.
    """
    try:
        lineage = _given(context.output_metadata or {}, context.definition_metadata or {})
        lineage = frame_lineage(frame, tables, inputs=inputs) if lineage is None else lineage
        return {} if lineage is None else {LINEAGE: lineage, SHOWN: lineage_table(lineage)}
    except Exception as error:  # noqa: BLE001 - see above
        context.log.warning("The column lineage of %s is unknown: %r", context.asset_key.to_user_string(), error)
        return {}


def _given(*sources: Mapping[str, Any]) -> dg.TableColumnLineage | None:
    for metadata in sources:
        value = metadata.get(LINEAGE)
        value = getattr(value, "column_lineage", value)
        if isinstance(value, dg.TableColumnLineage):
            return value
    return None


def frame_lineage(
    frame: Any, tables: Tables, *, inputs: Mapping[str, dg.AssetKey] | None = None
) -> dg.TableColumnLineage | None:
    """Return the lineage of a frame: the columns of assets that each column is made from.

    Args:
        frame: Any value; only Spark frames have a plan.
        tables: Tells the asset of an address below its root.
        inputs: Assets whose tables lie in other places, by address.

    Returns:
        The lineage of the columns that are made from others, or None if there is none.
    """
    plan = getattr(frame, "_jdf", None)
    if plan is None:
        return _connect_lineage(frame, tables, inputs=inputs or {})
    analyzed: Any = plan.queryExecution().analyzed()
    text = analyzed.toJSON()
    sources = column_sources(json.loads(text), expands=_expands(analyzed) if '.Expand"' in text else None)
    snapshots = inputs or {}
    assets = {id_: snapshots.get(uri) or tables.asset_key(uri) for id_, uri in _scanned(analyzed).items()}
    return _lineage(dict(zip(frame.columns, sources, strict=True)), assets)


def _connect_lineage(frame: Any, tables: Tables, *, inputs: Mapping[str, dg.AssetKey]) -> dg.TableColumnLineage | None:
    """Return the lineage of a frame of Spark Connect; None for other values."""
    plan = getattr(frame, "_plan", None)
    if plan is None or not type(frame).__module__.startswith("pyspark.sql.connect"):
        return None
    assets: dict[str, dg.AssetKey | None] = {}

    def schema_of(uri: str) -> Sequence[str]:
        assets[uri] = inputs.get(uri) or tables.asset_key(uri)
        return tables.open(uri).schema.names

    relation = plan.plan(frame.sparkSession.client)
    return _lineage(connect_sources(relation, frame.columns, schema_of=schema_of), assets)


def _lineage(
    sources: Mapping[str, Iterable[tuple[Any, str]]], assets: Mapping[Any, dg.AssetKey | None]
) -> dg.TableColumnLineage | None:
    """Return the lineage of the columns whose sources are columns of assets."""
    result = {
        name: sorted(
            {
                dg.TableColumnDep(asset_key=key, column_name=column)
                for id_, column in made_from
                if (key := assets.get(id_)) is not None
            },
            key=lambda column: (column.asset_key, column.column_name),
        )
        for name, made_from in sources.items()
    }
    deps = {name: made_from for name, made_from in result.items() if made_from}
    return dg.TableColumnLineage(deps) if deps else None


def lineage_table(lineage: dg.TableColumnLineage) -> dg.MarkdownMetadataValue:
    """Return a lineage as a table for people."""
    lines = ["| column | made from |", "|---|---|"]
    for name, deps in lineage.deps_by_column.items():
        columns: dict[str, list[str]] = {}
        for dep in deps:
            columns.setdefault(dep.asset_key.to_user_string(), []).append(dep.column_name)
        texts = [f"**{_cell(asset)}**: {', '.join(map(_code, names))}" for asset, names in columns.items()]
        lines.append(f"| {_code(name)} | {'; '.join(texts)} |")
    return dg.MetadataValue.md("\n".join(lines))


def _code(text: str) -> str:
    return f"`{_cell(text.replace('`', ' '))}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def _scanned(analyzed: Any) -> dict[int, str]:
    """Address of each relation that has one, by the exprId of its first column.

    The plan's JSON leaves out the options of a data source, so the leaves themselves are asked.
    """
    addresses: dict[int, str] = {}
    for plan in (analyzed, *_each(analyzed.subqueriesAll())):
        for leaf in _each(plan.collectLeaves()):
            if leaf.getClass().getSimpleName() == "DataSourceV2Relation" and leaf.output().nonEmpty():
                path = leaf.options().get("path")
                if path is not None:
                    addresses[leaf.output().head().exprId().id()] = path
    return addresses


def _expands(analyzed: Any) -> dict[int, Sequence[Sequence[Sequence[Json]]]]:
    """Projections of all ``Expand`` nodes by the exprId of their last column; the plan's JSON leaves them out."""
    expands: dict[int, Sequence[Sequence[Sequence[Json]]]] = {}
    stack = [analyzed, *_each(analyzed.subqueriesAll())]
    while stack:
        node = stack.pop()
        stack.extend(_each(node.children()))
        if node.getClass().getSimpleName() == "Expand":
            rows = node.projections()
            if 0 < rows.size() * node.output().size() <= _MAX_EXPANDED:
                last = node.output().last().exprId().id()
                expands[last] = [[json.loads(node.toJSON()) for node in _each(row)] for row in _each(rows)]
    return expands


def _each(sequence: Any) -> Iterator[Any]:
    """Elements of a Scala sequence."""
    iterator = sequence.iterator()
    while iterator.hasNext():
        yield iterator.next()
