"""Maintenance of many tables in one step, several at a time."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import dagster as dg

from lance_dagster.maintenance.running import run_plan
from lance_dagster.metadata import readable
from lance_dagster.units import bytes_text, count_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lance_dagster.maintenance.running import Setting, Work

_TOTALS = ("fragments_removed", "fragments_added", "versions_removed", "bytes_reclaimed")
_SHOWN_TABLES = 200


def run_many(
    context: dg.AssetExecutionContext,
    plans: Mapping[dg.AssetKey, Sequence[Work]],
    setting: Setting,
    *,
    num_threads: int,
    dry_run: bool,
) -> dg.MaterializeResult:
    """Carry out the plans of all tables; those of other tables go on if one fails.

    Raises:
        dagster.Failure: Maintenance of some tables failed; its metadata tell the same as those of a success.
    """
    started = time.monotonic()
    results = dict(_results(context, plans, setting, num_threads=num_threads, dry_run=dry_run))
    metadata = _told(results, seconds=time.monotonic() - started)
    _raise_failures(results, metadata)
    return dg.MaterializeResult(metadata=metadata)


def run_each(
    context: dg.AssetExecutionContext,
    plans: Mapping[dg.AssetKey, Sequence[Work]],
    setting: Setting,
    *,
    num_threads: int,
    dry_run: bool,
) -> Iterator[tuple[dg.AssetKey, dict[str, Any]]]:
    """Carry out the plans of tables, and yield the metadata of each that succeeded; arguments and errors as above."""
    failures: dict[dg.AssetKey, dict[str, Any] | Exception] = {}
    for table, result in _results(context, plans, setting, num_threads=num_threads, dry_run=dry_run):
        if isinstance(result, Exception):
            failures[table] = result
        else:
            yield table, result
    _raise_failures(failures, {}, num_tables=len(plans))


def _results(
    context: dg.AssetExecutionContext,
    plans: Mapping[dg.AssetKey, Sequence[Work]],
    setting: Setting,
    *,
    num_threads: int,
    dry_run: bool,
) -> Iterator[tuple[dg.AssetKey, dict[str, Any] | Exception]]:
    """Yield the metadata of each table or what its maintenance failed with, in the order of the plans."""

    def run(table: dg.AssetKey) -> dict[str, Any] | Exception:
        try:
            return run_plan(context, table, plans[table], setting, dry_run=dry_run)
        except Exception as error:  # noqa: BLE001 - the other tables go on
            context.log.error("Maintenance of %s failed: %s", table.to_user_string(), error)  # noqa: TRY400 - one line
            return error

    with ThreadPoolExecutor(num_threads, thread_name_prefix="lance_maintenance") as pool:
        yield from zip(plans, pool.map(run, plans), strict=True)


def _raise_failures(
    results: Mapping[dg.AssetKey, dict[str, Any] | Exception],
    metadata: Mapping[str, Any],
    *,
    num_tables: int | None = None,
) -> None:
    failed = {table: result for table, result in results.items() if isinstance(result, Exception)}
    if failed:
        first, error = next(iter(failed.items()))
        number = count_text(len(results) if num_tables is None else num_tables, "table")
        text = f"Maintenance of {len(failed)} of {number} failed, first {first.to_user_string()}: {error}"
        raise dg.Failure(text, metadata=dict(metadata)) from error


def _told(results: Mapping[dg.AssetKey, dict[str, Any] | Exception], *, seconds: float) -> dict[str, Any]:
    """Metadata: how many tables were changed, the totals, and a line for each table that was not left as it was."""
    done = {table: result for table, result in results.items() if isinstance(result, dict)}
    changed = [table for table, result in done.items() if not result["lance/skipped"]]
    totals = {f"lance/{name}": sum(result.get(f"lance/{name}", 0) for result in done.values()) for name in _TOTALS}
    num_failed = len(results) - len(done)
    summary = (
        f"{len(changed):,} of {count_text(len(results), 'table')} changed, {num_failed:,} failed, "
        f"{bytes_text(totals['lance/bytes_reclaimed'])} reclaimed"
    )
    return readable(
        {
            "lance/summary": summary,
            "lance/tables": len(results),
            "lance/tables_changed": len(changed),
            "lance/tables_failed": num_failed,
            **totals,
            "lance/skipped": not changed and not num_failed,
            "lance/steps": dg.MetadataValue.md(_markdown(results)),
            "lance/seconds": round(seconds, 3),
        }
    )


def _markdown(results: Mapping[dg.AssetKey, dict[str, Any] | Exception]) -> str:
    """Return a line for each table that failed or was changed, those that failed first."""
    failed = [(table, f"failed: {result}") for table, result in results.items() if isinstance(result, Exception)]
    changed = [
        (table, result["lance/summary"])
        for table, result in results.items()
        if isinstance(result, dict) and not result["lance/skipped"]
    ]
    lines = [f"| `{table.to_user_string()}` | {text} |" for table, text in [*failed, *changed]]
    if not lines:
        return "No table needed anything."
    more = [f"| and {len(lines) - _SHOWN_TABLES:,} more | |"] if len(lines) > _SHOWN_TABLES else []
    return "\n".join(["| table | result |", "|---|---|", *lines[:_SHOWN_TABLES], *more])
