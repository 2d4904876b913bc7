"""What a materialization says about its table: keys and values for Dagster's event log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import lance_core

STORAGE_KIND = "lance"


def table_schema(schema: pa.Schema, *, primary_key: Sequence[str] = ()) -> dg.TableSchema:
    """Columns for ``dagster/column_schema``; a field's metadata ``comment`` or ``description`` becomes its text.

    Args:
        schema: The table's columns.
        primary_key: Columns named as the table's key.
    """
    constraints = dg.TableConstraints(other=[f"primary key: {', '.join(primary_key)}"]) if primary_key else None
    return dg.TableSchema(columns=[_column(column) for column in schema], constraints=constraints)


def _column(column: pa.Field) -> dg.TableColumn:
    notes = {key.decode(): value.decode(errors="replace") for key, value in (column.metadata or {}).items()}
    return dg.TableColumn(
        name=column.name,
        type=str(column.type),
        description=notes.get("comment") or notes.get("description"),
        constraints=dg.TableColumnConstraints(nullable=column.nullable),
    )


def table_numbers(dataset: lance_core.LanceDataset) -> Mapping[str, int | float]:
    """Numbers of one version, by metadata key (``lance/...``)."""
    return dict(dataset.table_statistics())
