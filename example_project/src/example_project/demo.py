"""`make demo`: run the whole pipeline as Dagster would, then say what is in the tables.

All runs happen in this process, so that Spark starts only once. They are recorded like any other run:
the UI shows their history, and running the demo again replaces the same partitions.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from example_project import notes, report, settings
from example_project.definitions import defs
from example_project.tables import MONTHS, ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

QUIET = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run everything and print the report."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--months", type=int, default=12, help="how many months of 2013 to load")
    parser.add_argument("--backfill", type=int, default=9, help="how many of them one run loads together")
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    home = os.environ.setdefault("DAGSTER_HOME", str(settings.PROJECT))
    os.chdir(home)  # the place of the history in dagster.yaml is relative
    started = time.monotonic()
    with dg.DagsterInstance.get() as instance:
        if not Path(notes.URI).exists():
            notes.add_note("EWR", "LAX", "Written by another program.")
        run(instance, "reference_tables", "airlines, airports, planes, weather")
        load(instance, MONTHS.get_partition_keys()[: options.months], backfill=options.backfill)
        loaded = maintain(instance)
        run(instance, "insights", "late corrections, routes, planes")
        run(instance, "retrieval", "similar weather, recall of the index")
        corrected = maintain(instance)
    print(summary([loaded, corrected], time.monotonic() - started))


def load(instance: dg.DagsterInstance, months: Sequence[str], *, backfill: int) -> None:
    """Load flights: the first months in one run, the others month by month."""
    first, last = months[0], months[:backfill][-1]
    window = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    run(instance, "monthly_flights", f"backfill {first} to {last}", tags=window)
    for month in months[backfill:]:
        run(instance, "monthly_flights", month, tags={"dagster/partition": month})


def maintain(instance: dg.DagsterInstance) -> str:
    """Run the maintenance of all tables; returns what it did."""
    before = report.read_states(ROOT)
    run(instance, "maintenance", "compact, materialize deletions, clean up")
    return report.maintenance_text(before, report.read_states(ROOT))


def run(instance: dg.DagsterInstance, job: str, what: str, *, tags: Mapping[str, str] | None = None) -> None:
    """Run one job in this process.

    Raises:
        Exception: Whatever a step raised.
    """
    started = time.monotonic()
    print(f"{job:18}{what:52}", end="", flush=True)
    result = _job(job).execute_in_process(instance=instance, run_config=QUIET, tags=dict(tags or {}))
    checks = result.get_asset_check_evaluations()
    failed = [f"{check.asset_key.to_user_string()}: {check.check_name}" for check in checks if not check.passed]
    passed = f"{len(checks) - len(failed)} of {len(checks)} checks passed" if checks else ""
    print(f"{time.monotonic() - started:6.1f} s  {passed}".rstrip())
    for name in failed:
        print(f"  check failed: {name}")


@cache
def _job(name: str) -> dg.JobDefinition:
    return _project().resolve_job_def(name)


@cache
def _project() -> dg.Definitions:
    return defs()


def summary(maintained: Sequence[str], seconds: float) -> str:
    """Return the report."""
    return f"""
Maintenance after the months were loaded
{maintained[0]}

Maintenance after late corrections deleted rows
{maintained[1]}

Versions of enriched_flights that can be read
{report.history_text(f"{ROOT}/enriched_flights.lance")}

Tables in {ROOT}
{report.tables_text(report.read_states(ROOT))}

Done in {seconds:.0f} s. Next:
  make ui                                   lineage, history, plots and checks in the browser
  example_project/src/example_project/defs  the pipeline, ready to be changed
  README.md                                 how to do the common things
"""


if __name__ == "__main__":
    main()
