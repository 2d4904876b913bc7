"""Where the project keeps its files."""

from __future__ import annotations

import os
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def lake() -> Path:
    """The folder of all tables; `EXAMPLE_LAKE` moves it."""
    return Path(os.environ.get("EXAMPLE_LAKE", PROJECT / ".lake")).absolute()


def dagster_home() -> Path:
    """The folder of Dagster's history; `DAGSTER_HOME` moves it."""
    return Path(os.environ.get("DAGSTER_HOME", PROJECT / ".dagster_home")).absolute()
