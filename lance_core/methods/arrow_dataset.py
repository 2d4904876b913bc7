"""A table as a `pyarrow.dataset.Dataset`, for programs that push columns and conditions down into one.

pylance's datasets are of this class. Those of lance_core are not, because `pyarrow.dataset` takes as long to import as
all of lance_core.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Never

import pyarrow.dataset as pads

from lance_core.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pyarrow as pa

    from lance_core.scanner import LanceScanner


class ArrowDataset(pads.Dataset):  # pyright: ignore[reportUntypedBaseClass]
    """See `LanceDataset.to_arrow_dataset`.

    Args:
        schema: Names and types of the columns.
        scan: Makes a scanner of some columns and rows.
    """

    def __init__(self, schema: pa.Schema, scan: Callable[..., LanceScanner]) -> None:
        self._schema = schema
        self._scan = scan

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns."""
        return self._schema

    @property
    def partition_expression(self) -> pads.Expression:
        """The expression ``true``: nothing in particular holds for all rows."""
        return pads.scalar(True)  # noqa: FBT003 - a value

    def scanner(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: pads.Expression | str | None = None,  # noqa: A002 the name that pyarrow has
        batch_size: int | None = None,
        **options: Any,
    ) -> LanceScanner:
        """Return a scanner; the other methods of the class read through it.

        Args:
            columns: Names, or a dict of name to SQL expression; None for all columns.
            filter: Rows to read; None for all.
            batch_size: Rows of a batch at most.
            **options: What pyarrow's readers are told about threads and memory; accepted.
        """
        del options
        return self._scan(columns, filter, batch_size=batch_size)

    def _refuse(self, *_: object, **__: object) -> Never:
        raise UnsupportedError("only reads are supported of a table as a pyarrow dataset; use the LanceDataset")

    get_fragments = replace_schema = filter = join = join_asof = sort_by = take = _refuse
