"""Numbers about a version that its manifest alone tells."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from lance_core.format.table.fragment import FragmentTotals

if TYPE_CHECKING:
    from lance_core.format.table.manifest import Manifest

SMALL_FRAGMENT_ROWS = 1024 * 1024
"""Fragments with fewer rows are candidates for compaction by default."""


def table_statistics(manifest: Manifest) -> dict[str, int]:
    """Rows, fragments, files and bytes of a version.

    Returns:
        num_rows, num_deleted_rows, num_fragments, num_data_files, num_deletion_files, num_bytes (of data files) and
        num_small_fragments (fewer than `SMALL_FRAGMENT_ROWS` rows).
    """
    fragments = manifest.fragments
    num_data_files, num_bytes = fragments.data_file_totals()
    return {
        "num_rows": manifest.num_rows,
        "num_deleted_rows": int(fragments.num_deleted_rows.sum()),
        "num_fragments": len(fragments),
        "num_data_files": num_data_files,
        "num_deletion_files": fragments.num_deletion_files,
        "num_bytes": num_bytes,
        "num_small_fragments": int((fragments.num_rows < SMALL_FRAGMENT_ROWS).sum()),
    }


def version_summary(manifest: Manifest) -> dict[str, Any]:
    """Return an entry of the history: version, timestamp and the numbers as text, by the names pylance uses.

    The timestamp is local time without a time zone, as in pylance.
    """
    numbers = table_statistics(manifest)
    totals = FragmentTotals(
        numbers["num_rows"] + numbers["num_deleted_rows"],
        numbers["num_deleted_rows"],
        numbers["num_data_files"],
        numbers["num_bytes"],
        numbers["num_deletion_files"],
    )
    return version_entry(manifest.version, manifest.timestamp, totals, numbers["num_fragments"])


def _local(time: datetime) -> datetime:
    """Return a point in time as local time without a zone, as pylance tells it.

    A float has room for microseconds until the year 2242. `astimezone` takes three times as long.
    """
    return datetime.fromtimestamp(time.timestamp())  # noqa: DTZ006 - local time is what is asked for


def version_entry(
    version: int, timestamp: datetime | None, totals: FragmentTotals, num_fragments: int
) -> dict[str, Any]:
    """As `version_summary`, from the sums over all fragments."""
    physical_rows, num_deleted_rows, num_data_files, num_bytes, num_deletion_files = totals
    return {
        "version": version,
        "timestamp": None if timestamp is None else _local(timestamp),
        "metadata": {
            "total_data_file_rows": str(physical_rows),
            "total_data_files": str(num_data_files),
            "total_deletion_file_rows": str(num_deleted_rows),
            "total_deletion_files": str(num_deletion_files),
            "total_files_size": str(num_bytes),
            "total_fragments": str(num_fragments),
            "total_rows": str(physical_rows - num_deleted_rows),
        },
    }
