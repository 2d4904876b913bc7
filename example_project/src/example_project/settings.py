"""Location of the project's files."""

from __future__ import annotations

import os
from pathlib import Path

PROJECT = Path(__file__).parents[2]


def lake() -> Path:
    """Return the folder of all tables; `EXAMPLE_LAKE` moves it."""
    return Path(os.environ.get("EXAMPLE_LAKE", PROJECT / ".lake")).absolute()
