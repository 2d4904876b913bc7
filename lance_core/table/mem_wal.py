"""Tables with a write-ahead log in memory (MemWAL), which pylance keeps beside a table.

lance_core reads and changes the rows that are in the table, and keeps the entry of the log. Rows that are only in the
log are not its business, so it refuses what would lose them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.errors import UnsupportedError
from lance_core.format.table.operations import Merge, Overwrite, Restore

if TYPE_CHECKING:
    from lance_core.format.table.manifest import Manifest
    from lance_core.format.table.operations import Operation

MEM_WAL_INDEX = "__lance_mem_wal"
"""Entry among the indices of a version that holds the state of the log."""


def has_mem_wal(manifest: Manifest) -> bool:
    """Return whether a version has a write-ahead log."""
    return manifest.index_section is not None and any(index.name == MEM_WAL_INDEX for index in manifest.indices)


def check_keeps_log(operation: Operation, base: Manifest) -> None:
    """Refuse what would lose a write-ahead log, or be wrong for the rows in it.

    Args:
        operation: What is about to be committed.
        base: The version that it builds on.

    Raises:
        UnsupportedError: An overwrite or restore, or columns with values for the rows of the table only.
    """
    if not isinstance(operation, Merge | Overwrite | Restore) or not has_mem_wal(base):
        return
    if isinstance(operation, Merge):
        new = {field.id for field in operation.schema.walk()} - {field.id for field in base.schema.walk()}
        if not any(new.intersection(file.fields) for fragment in operation.fragments for file in fragment.files):
            return
        problem = "new columns would be null for rows in the log; add them as nulls, and update them"
    else:
        problem = f"{type(operation).__name__.lower()} would lose rows that are only in the log"
    raise UnsupportedError(f"the table has a write-ahead log (MemWAL): {problem}. Merge the log with pylance first")
