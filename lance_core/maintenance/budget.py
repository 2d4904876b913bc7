"""Memory budget of a rewrite; pure.

Three things take memory while rows stream from old files to a new one: what the scan has decoded, a batch, and the rows
of each column that wait for their page to be full.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.common.frozen import frozen
from lance_core.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lance_core.format.table.fragment import Fragment

LEAST_MEMORY = 1 << 27
"""The window of a scan does not become smaller than 64 MiB."""

DEFAULT_MEMORY = 1 << 31
_MOST_PAGE_BYTES = 8 << 20
_LEAST_PAGE_BYTES = 1 << 16
_MANY_ROWS, _MANY_COLUMNS = 1 << 13, 1 << 8
"""Where so many rows fit, the scan chooses the batches. Of so many columns it takes few rows, although a column costs a
batch as much as hundreds of values: there eight times as many rows must fit."""


@frozen(kw_only=True)
class Budget:
    """Sizes that keep one task within its memory.

    Attributes:
        page_bytes: Bytes of Arrow data that make a page of one column.
        batch_size: Rows of a batch; None for the default.
        copy_bytes: Bytes of files whose pages are copied together.
    """

    page_bytes: int
    batch_size: int | None
    copy_bytes: int

    @property
    def may_join(self) -> bool:
        """Return whether small fragments may be read together: the scan chooses the batches, since enough rows fit."""
        return self.batch_size is None


def make_budget(max_bytes: int, *, num_columns: int, fragments: Sequence[Fragment], batch_size: int | None) -> Budget:
    """Divide the memory of a task.

    Args:
        max_bytes: The memory.
        num_columns: Columns of the table.
        fragments: What is rewritten.
        batch_size: Rows of a batch, if the caller asks for a number.

    Raises:
        InvalidInputError: Too little memory for anything.
    """
    if max_bytes < LEAST_MEMORY:
        raise InvalidInputError(f"each task of a rewrite needs at least {LEAST_MEMORY:,} bytes of memory")
    share = 4 if max_bytes >= 2 * LEAST_MEMORY else 8  # what a scan holds is the same for any memory
    page_bytes = min(max(max_bytes // share // max(num_columns, 1), _LEAST_PAGE_BYTES), _MOST_PAGE_BYTES)
    stored = sum(file.file_size_bytes for fragment in fragments for file in fragment.files)
    row_bytes = stored / max(sum(fragment.physical_rows for fragment in fragments), 1)
    # Half of what a batch may take: values in files are packed more closely than in memory.
    wide = int(max_bytes / 32 / row_bytes) if row_bytes else 0
    many = _MANY_ROWS * (1 if num_columns < _MANY_COLUMNS else 8)
    rows = batch_size if batch_size is not None or wide >= many else max(wide, 1)
    return Budget(page_bytes=page_bytes, batch_size=rows, copy_bytes=max_bytes // 4)
