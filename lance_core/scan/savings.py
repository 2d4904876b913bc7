"""Measure the pages, rows and bytes of a filter's columns that indices save a scan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.common.frozen import frozen
from lance_core.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from lance_core.file.file_layout import PageSummary
    from lance_core.format.table.fragment import Fragment
    from lance_core.index.answer import FragmentAnswer, RowAnswer
    from lance_core.scan.open_files import OpenFiles
    from lance_core.scan.plan import ScanPlan


@frozen(kw_only=True)
class Savings:
    """Pages, rows and bytes of the filter's columns: those that a scan with indices reads, and all.

    Attributes:
        pages: Pages with rows that may match, or none where indices know which rows match.
        all_pages: All pages.
        rows: Rows of which the columns are read.
        all_rows: All rows.
        bytes: Bytes of the pages at most; single rows take less.
        all_bytes: Bytes of all pages.
    """

    pages: int = 0
    all_pages: int = 0
    rows: int = 0
    all_rows: int = 0
    bytes: int = 0
    all_bytes: int = 0

    @property
    def text(self) -> str:
        """The numbers in a line."""
        names = ("pages", "rows", "bytes")
        pairs = [(name, getattr(self, name), getattr(self, f"all_{name}")) for name in names]
        read = ", ".join(f"{some:,} of {every:,} {name}" for name, some, every in pairs)
        saved = ", ".join(f"{every - some:,} {name}" for name, some, every in pairs)
        return f"read {read} of the filter's columns; saved {saved}"


def measure_savings(
    files: OpenFiles, fragments: Iterable[Fragment], plan: ScanPlan, answer: RowAnswer
) -> Savings | None:
    """Compare a scan with and without indices; looks into the metadata of all data files.

    Args:
        files: The dataset's open files.
        fragments: What is scanned.
        plan: The scan.
        answer: What indices know.

    Returns:
        The numbers; None for files of version 0.1, which do not tell.
    """
    field_ids = {field.id for field in plan.filter_projection.walk()}
    total = Savings()
    try:
        for fragment in fragments:
            fragment_answer = answer.of_fragment(fragment.id, fragment.physical_rows)
            residual = plan if plan.residuals is None else plan.residuals.plan(plan, fragment.id)
            asked_ids = {field.id for field in residual.filter_projection.walk()}
            columns = [(field_id in asked_ids, pages) for field_id, pages in _columns(files, fragment, field_ids)]
            total = _sum(total, _of_fragment(fragment_answer, columns, fragment.physical_rows))
    except UnsupportedError:
        return None
    return total


def _columns(
    files: OpenFiles, fragment: Fragment, field_ids: Collection[int]
) -> Iterator[tuple[int, tuple[PageSummary, ...]]]:
    for file in fragment.files:
        if not file.file_major_version:
            raise UnsupportedError("data files of version 0.1 do not record the size of columns")
        columns = files.open(file, num_rows=fragment.physical_rows).file_layout().columns
        for field_id, number in zip(file.fields, file.column_indices, strict=True):
            if field_id in field_ids and number >= 0:
                yield field_id, columns[number].pages


def _of_fragment(
    fragment_answer: FragmentAnswer, columns: list[tuple[bool, tuple[PageSummary, ...]]], num_rows: int
) -> Savings:
    """Return the savings of a fragment, of whose columns it is known whether they are asked, and their pages."""
    wanted = np.empty(0, np.int64) if fragment_answer.is_decided else fragment_answer.candidates()
    num_pages = num_bytes = 0
    for column in (pages for is_asked, pages in columns if is_asked):
        ends = np.cumsum([page.num_rows for page in column])
        edges = np.searchsorted(wanted, np.concatenate([[0], ends]))
        is_read = (np.diff(edges) > 0).tolist()
        num_pages += sum(is_read)
        num_bytes += sum(page.num_bytes for page, chosen in zip(column, is_read, strict=True) if chosen)
    return Savings(
        pages=num_pages,
        all_pages=sum(len(pages) for _, pages in columns),
        rows=len(wanted),
        all_rows=num_rows,
        bytes=num_bytes,
        all_bytes=sum(page.num_bytes for _, pages in columns for page in pages),
    )


def _sum(first: Savings, second: Savings) -> Savings:
    return Savings(
        pages=first.pages + second.pages,
        all_pages=first.all_pages + second.all_pages,
        rows=first.rows + second.rows,
        all_rows=first.all_rows + second.all_rows,
        bytes=first.bytes + second.bytes,
        all_bytes=first.all_bytes + second.all_bytes,
    )
