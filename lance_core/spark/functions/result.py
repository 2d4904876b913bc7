"""Result of a change to a table from Spark, as numbers and as a log line."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lance_core.format.table.operations import DataReplacement
from lance_core.spark.writing.commit import new_fragments

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lance_core.format.table.fragment import DataFile
    from lance_core.format.table.operations import Operation

_LOGGER = logging.getLogger("lance_core.spark")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """Result of a change.

    Attributes:
        version: The version made; the existing one if nothing was written.
        num_rows: Rows written into new files.
        num_files: Data files written.
        num_bytes: Bytes in these files.
        num_fragments: Fragments added.
        num_inserted_rows: Rows that are new in the table.
        num_updated_rows: Rows with new values.
        num_deleted_rows: Rows deleted, or replaced by others; None if that was not counted.
        seconds: Time from the call to the commit.
        attempts: How often the work was done until it could be committed.
        idempotency_key: Identity of the change, stored with the version; None if it has none.
        written: False if the key was there already, or the dataset was there and the mode ignore.
    """

    version: int
    num_rows: int = 0
    num_files: int = 0
    num_bytes: int = 0
    num_fragments: int = 0
    num_inserted_rows: int = 0
    num_updated_rows: int = 0
    num_deleted_rows: int | None = 0
    seconds: float = 0.0
    attempts: int = 0
    idempotency_key: str | None = None
    written: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Files of a change, in numbers."""

    num_rows: int
    num_files: int
    num_bytes: int
    num_fragments: int


def written_by(operation: Operation) -> Written:
    """Return the files that an operation adds."""
    if isinstance(operation, DataReplacement):
        return _written([file for _, file in operation.replacements], 0, 0)
    fragments = new_fragments(operation)
    files = [file for fragment in fragments for file in fragment.files]
    return _written(files, sum(fragment.physical_rows for fragment in fragments), len(fragments))


def _written(files: Iterable[DataFile], num_rows: int, num_fragments: int) -> Written:
    sizes = [file.file_size_bytes for file in files]
    return Written(num_rows=num_rows, num_files=len(sizes), num_bytes=sum(sizes), num_fragments=num_fragments)


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """Seconds since it was made."""

    started: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """So many have passed."""
        return time.perf_counter() - self.started


def log_result(what: str, uri: str, result: CommitResult) -> CommitResult:
    """Tell a person what happened, in one line.

    Args:
        what: What was done.
        uri: Address of the dataset.
        result: The numbers.
    """
    if not result.written:
        _LOGGER.info("%s %s: nothing to do, version %d has it", what, uri, result.version)
        return result
    changed = [
        (result.num_inserted_rows, "inserted"),
        (result.num_updated_rows, "updated"),
        (result.num_deleted_rows or 0, "deleted"),
    ]
    rows = ", ".join(f"{count:,} rows {word}" for count, word in changed if count) or "no rows changed"
    files = f"{result.num_files:,} files, {_size(result.num_bytes)}"
    again = f", {result.attempts} attempts" if result.attempts > 1 else ""
    _LOGGER.info(
        "%s %s: version %d, %s (%s) in %.1f s%s", what, uri, result.version, rows, files, result.seconds, again
    )
    return result


def _size(num_bytes: int) -> str:
    size = float(num_bytes)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"
