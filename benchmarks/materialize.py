"""A Dagster asset from start to end, in one process, beside the same table written by hand."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # noqa: TC002 - Dagster looks at the annotation
from data import load
from engines import ENGINES
from measure import compare

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SHARE = 0.2
"""A million rows of taxi."""


def materialization(root: Path, scale: float, rounds: int) -> dict[str, dict[str, tuple[float, float]]]:
    """CPU and wall seconds; the engine lance_core is all that a run of Dagster does, for one asset of one table."""
    import dagster as dg  # noqa: PLC0415 - other parts need no Dagster

    from lance_dagster import LanceIOManager  # noqa: PLC0415 - likewise

    table = load("taxi", min(scale, SHARE))
    quiet = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}
    resources: Any = {"io_manager": LanceIOManager(root=str(root / "lake"))}

    @dg.asset
    def trips() -> pa.Table:
        return table

    def materialize() -> None:
        if not dg.materialize([trips], resources=resources, run_config=quiet).success:
            raise AssertionError("the run failed")

    def by_hand(engine: str) -> Callable[[], None]:
        path = root / f"by hand {engine}"

        def write() -> None:
            shutil.rmtree(path, ignore_errors=True)
            ENGINES[engine].write(table, str(path))

        return write

    names = ("pylance-2.0", "pylance-2.1", "pylance-2.2", "core-2.2", "parquet")
    spent = compare({"lance_core": materialize, **{name: by_hand(name) for name in names}}, rounds)
    return {"materialize an asset": {name: (one.cpu, one.wall) for name, one in spent.items()}}
