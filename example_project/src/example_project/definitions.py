"""Entry point of the code location: everything found in `defs/`."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from lance_dagster import check_definitions


@dg.definitions
def defs() -> dg.Definitions:
    """Load all assets, checks, schedules and resources of the project."""
    return check_definitions(dg.load_from_defs_folder(path_within_project=Path(__file__).parent))
