"""Checks of a table as one step: a process per step is dear."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from lance_core.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def build_lance_checks(
    asset: dg.CoercibleToAssetKey | dg.AssetsDefinition,
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
        blocking: Whether a failure stops what is downstream.
        resource_key: Where the ``LanceResource`` is.
    """
    raise UnsupportedError("checks")
