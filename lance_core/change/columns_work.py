"""New columns for the fragments of a version, as work that can be divided by fragments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_core.change.column_files import ColumnWriter
from lance_core.common.frozen import mutable
from lance_core.format.table.operations import DataReplacement
from lance_core.table.new_ids import RANDOM_IDS

if TYPE_CHECKING:
    from lance_core.change.column_files import Transform
    from lance_core.format.schema import Schema
    from lance_core.table.new_ids import NewIds
    from lance_core.table.snapshot import Snapshot


@mutable(kw_only=True)
class ColumnsWork:
    """Writes new columns of all fragments of a snapshot.

    Attributes:
        transform: How their values are made.
        fields: The new columns, with their ids.
        data_storage_version: File version of the new files.
        ids: Names of new files.
        num_rows: Rows that got values.
    """

    transform: Transform
    fields: Schema
    data_storage_version: str
    ids: NewIds = RANDOM_IDS
    sees_new_rows: bool = False
    num_rows: int = 0
    _writer: ColumnWriter | None = None

    def prepare(self, snapshot: Snapshot) -> DataReplacement:
        """Write the files; the answer names the new file of each fragment."""
        self._writer = writer = ColumnWriter(
            snapshot=snapshot,
            fields=self.fields,
            transform=self.transform,
            data_storage_version=self.data_storage_version,
            ids=self.ids,
        )
        writer.write_all(list(snapshot.manifest.fragments))
        self.num_rows = sum(fragment.num_rows for fragment in snapshot.manifest.fragments)
        return DataReplacement(replacements=tuple(writer.staged.items()))

    def forget(self) -> None:
        """Remove the files written so far."""
        if self._writer is not None:
            self._writer.remove()
            self._writer = None
