"""Changes between two versions of a dataset; names and results as in pylance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lance_core.change.delta import changed_rows, deleted_row_ids, delta_schema
from lance_core.errors import InvalidInputError
from lance_core.scan.plan import ROW_ID
from lance_core.table.snapshot import load_transaction, open_snapshot

if TYPE_CHECKING:
    from lance_core.methods.protocols import OpenDataset
    from lance_core.table.snapshot import Snapshot
    from lance_core.values.operations import Transaction


class DatasetDelta:
    """Changes after one version, up to and including another; `LanceDataset.delta` makes one.

    Rows are told by their stable ids, so that a row that moves to another fragment remains the same row. Datasets
    without stable row ids have no inserted or updated rows here.

    Args:
        dataset: The version whose rows are read.
        begin_version: The version before the first change.
        end_version: The version that the last change made.
    """

    def __init__(self, dataset: OpenDataset, begin_version: int, end_version: int) -> None:
        self._snapshot = dataset.snapshot
        self._files = dataset.files
        self.begin_version = begin_version
        self.end_version = end_version

    def __repr__(self) -> str:
        return f"DatasetDelta({self._snapshot.store.uri!r}, {self.begin_version}..{self.end_version})"

    def list_transactions(self) -> list[Transaction]:
        """Return the transactions that made the versions, in order.

        Raises:
            VersionNotFoundError: One of the versions was cleaned up, or does not exist.
        """
        from lance_core.values.operations import from_inner  # noqa: PLC0415 twenty classes that few need

        transactions: list[Transaction] = []
        for version in range(self.begin_version + 1, self.end_version + 1):
            inner = load_transaction(self._snapshot.store, self._version(version).manifest)
            if inner is not None:
                transactions.append(from_inner(inner))
        return transactions

    def get_inserted_rows(self) -> pa.RecordBatchReader:
        """Return rows that were added: all columns, ``_rowid`` and both row versions, as they are now.

        A row that was updated after ``end_version`` has its newest values here; one that was deleted is missing.
        """
        return self._changed(inserted=True)

    def get_updated_rows(self) -> pa.RecordBatchReader:
        """Rows that were there before and were last changed in these versions; otherwise as `get_inserted_rows`."""
        return self._changed(inserted=False)

    def get_deleted_row_ids(self) -> pa.RecordBatchReader:
        """Ids of the rows that ``begin_version`` has and ``end_version`` has not, in a column ``_rowid``.

        Raises:
            InvalidInputError: The dataset has no stable row ids, or the versions are in the wrong order.
            VersionNotFoundError: One of the versions was cleaned up, or does not exist.
        """
        if self.begin_version > self.end_version:
            raise InvalidInputError(
                f"'begin_version' must be lower than 'end_version': {self.begin_version} and {self.end_version} "
                "were given"
            )
        begin, end = self._version(self.begin_version), self._version(self.end_version)
        for bounds in (begin, end):
            if not bounds.manifest.uses_stable_row_ids:
                raise InvalidInputError(
                    f"cannot find deleted rows: version {bounds.version} has no stable row ids; create the dataset "
                    "with enable_stable_row_ids=True",
                    path=bounds.store.uri,
                )
        ids = pa.array(deleted_row_ids(begin, end))
        schema = pa.schema([pa.field(ROW_ID, pa.uint64())])
        return pa.RecordBatchReader.from_batches(schema, [pa.RecordBatch.from_arrays([ids], schema=schema)])

    def _changed(self, *, inserted: bool) -> pa.RecordBatchReader:
        self._version(self.end_version)
        batches = changed_rows(
            self._snapshot, self._files, begin=self.begin_version, end=self.end_version, inserted=inserted
        )
        return pa.RecordBatchReader.from_batches(delta_schema(self._snapshot), batches)

    def _version(self, version: int) -> Snapshot:
        return self._snapshot if version == self._snapshot.version else open_snapshot(self._snapshot.store, version)
