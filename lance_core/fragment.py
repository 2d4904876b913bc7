"""Fragments as users see them: their metadata, reading one of them, and writing new ones without a commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from lance_core.common.frozen import replace
from lance_core.common.late_module import LateMethods
from lance_core.common.signatures import with_options
from lance_core.common.unsupported import late_names, with_refused
from lance_core.errors import InvalidInputError
from lance_core.format.extensions import batches_with_types
from lance_core.format.table.paths import deletion_file_path
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.fragments import count_matching, scan_fragment
from lance_core.scan.plan import plan_filter, plan_scan, with_row_starts
from lance_core.scanner import DEFAULT_BLOB_MODE, ScanOptions
from lance_core.table.naming import naming
from lance_core.values.fragment_metadata import FragmentMetadata, to_metadata

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyarrow.compute import Expression

    from lance_core.format.table.fragment import DataFile, Fragment
    from lance_core.methods import fragment_columns, fragment_rows
    from lance_core.methods.protocols import OpenDataset
    from lance_core.scan.ordering import ColumnOrdering
    from lance_core.table.snapshot import Snapshot
else:
    fragment_columns = LateMethods("lance_core.methods.fragment_columns")
    fragment_rows = LateMethods("lance_core.methods.fragment_rows")


@with_refused
class LanceFragment:
    """One fragment of a dataset version. Made by `LanceDataset.get_fragments`.

    Args:
        dataset: The dataset.
        fragment_id: Id of the fragment.
        index: Its place in the version's list of fragments, if it is known.

    Raises:
        InvalidInputError: There is no such fragment.
    """

    # A version may have 100,000 of them: what the manifest says of one is decoded when it is asked for.
    __slots__ = ("_dataset", "_id", "_index", "_inner", "_snapshot")

    def __init__(self, dataset: OpenDataset, fragment_id: int, *, index: int | None = None) -> None:
        self._dataset = dataset
        self._snapshot = dataset.snapshot
        self._id = fragment_id
        self._index = index
        self._inner: Fragment | None = None
        if index is None:
            self._inner = self._snapshot.manifest.fragments.find(fragment_id)
            if self._inner is None:
                raise InvalidInputError(f"version {dataset.version} has no fragment {fragment_id}", path=dataset.uri)

    def __repr__(self) -> str:
        return f"LanceFragment(id={self._id}, physical_rows={self.physical_rows}, num_deletions={self.num_deletions})"

    def __reduce__(self) -> tuple[object, ...]:
        return (LanceFragment, (self._dataset, self._id))

    @property
    def fragment_id(self) -> int:
        """Id of the fragment."""
        return self._id

    @property
    def dataset(self) -> OpenDataset:
        """The dataset that it was taken from."""
        return self._dataset

    @property
    def snapshot(self) -> Snapshot:
        """The version that it belongs to."""
        return self._snapshot

    @property
    def inner(self) -> Fragment:
        """The fragment as the manifest describes it, in lance_core's own form."""
        if self._inner is None:
            assert self._index is not None  # noqa: S101 for the type checker: one of them is known
            self._inner = self._snapshot.manifest.fragments[self._index]
        return self._inner

    @property
    def metadata(self) -> FragmentMetadata:
        """The fragment as the manifest describes it."""
        return to_metadata(self.inner)

    @property
    def physical_rows(self) -> int:
        """Rows in the data files, deleted ones included."""
        return self.inner.physical_rows

    @property
    def num_deletions(self) -> int:
        """Rows that are deleted."""
        return self.inner.num_deleted_rows

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the dataset."""
        return self._dataset.schema

    def data_files(self) -> list[DataFile]:
        """Return the data files."""
        return list(self.inner.files)

    def deletion_file(self) -> str | None:
        """Path of the deletion file below its dataset or base path, None if there is none."""
        file = self.inner.deletion_file
        return None if file is None else deletion_file_path(self._id, replace(file, base_id=None))

    def count_rows(self, filter: str | Expression | None = None) -> int:  # noqa: A002 the name in pylance
        """Count the live rows, or those that match a filter.

        Examples:
            >>> table.get_fragments()[0].count_rows("height > 500")
            2
        """
        if filter is None:
            return self.inner.num_rows
        plan = with_row_starts(plan_filter(self._snapshot.manifest.schema, filter), self._snapshot.manifest)
        return count_matching(FragmentReader(self._dataset.files, self.inner), plan)

    @with_options(ScanOptions)
    def to_batches(
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: str | Expression | None = None,  # noqa: A002 the name in pylance
        limit: int | None = None,
        offset: int | None = None,
        *,
        rows: tuple[int, int] | None = None,
        **options: Unpack[ScanOptions],
    ) -> Iterator[pa.RecordBatch]:
        """Read the fragment batch by batch; arguments as of `LanceDataset.scanner`.

        Args:
            columns: Names, or a dict of names and SQL expressions.
            filter: SQL text or pyarrow expression.
            limit: Rows at most.
            offset: Matching rows to leave out first.
            rows: Read only the row offsets [start, end), counted with deleted rows: how one large fragment is
                divided over tasks. Only together with columns, filter, batch_size, with_row_id and with_row_address.
                Not in pylance.
            **options: See `lance_core.scanner.ScanOptions`.

        Examples:
            >>> fragment = table.get_fragments()[0]
            >>> [batch.num_rows for batch in fragment.to_batches(rows=(1, 3))]
            [2]
        """
        if rows is None:
            return self.scanner(columns, filter, limit, offset, **options).to_batches()
        start, end = rows
        others = {
            name: value for name, value in {"limit": limit, "offset": offset, **options}.items() if value is not None
        }
        unknown = set(others) - {"batch_size", "with_row_id", "with_row_address"}
        if unknown or not 0 <= start <= end <= self.physical_rows:
            raise InvalidInputError(
                f"'rows' must be a range within 0 and {self.physical_rows}, without the arguments 'limit', "
                f"'offset' and the like; given were {rows} and {', '.join(sorted(unknown)) or 'no others'}"
            )
        with naming(self._snapshot.store):
            plan = plan_scan(
                self._snapshot.manifest.schema,
                columns=list(columns) if columns is not None else None,
                filter=filter,
                batch_size=options.get("batch_size"),
                with_row_id=bool(options.get("with_row_id")),
                with_row_address=bool(options.get("with_row_address")),
            )
            plan = with_row_starts(plan, self._snapshot.manifest)
        reader = FragmentReader(self._dataset.files, self.inner)
        return batches_with_types(plan.schema, scan_fragment(reader, plan, start=start, end=end))

    def to_table(  # noqa: PLR0917 positional as in pylance
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: str | Expression | None = None,  # noqa: A002 the name in pylance
        limit: int | None = None,
        offset: int | None = None,
        with_row_id: bool = False,
        with_row_address: bool = False,
        blob_handling: str | None = None,
        order_by: Iterable[ColumnOrdering | str] | None = None,
        use_scalar_index: bool | None = None,
        io_buffer_size: int | None = None,
        late_materialization: bool | Sequence[str] | None = None,
        include_deleted_rows: bool | None = None,
        batch_size_bytes: int | None = None,
        strict_batch_size: bool | None = None,
        *,
        batch_size: int | None = None,
        batch_readahead: int | None = None,
    ) -> pa.Table:
        """Read the fragment into memory; arguments as of `LanceDataset.scanner`."""
        made = self.scanner(
            columns,
            filter,
            limit,
            offset,
            batch_size=batch_size,
            with_row_id=with_row_id,
            with_row_address=with_row_address,
            blob_handling=blob_handling,
            order_by=order_by,
            use_scalar_index=use_scalar_index,
            io_buffer_size=io_buffer_size,
            late_materialization=late_materialization,
            include_deleted_rows=include_deleted_rows,
            batch_size_bytes=batch_size_bytes,
            strict_batch_size=strict_batch_size,
            batch_readahead=batch_readahead,
        )
        return made.to_table()

    def to_pandas(  # noqa: PLR0917 positional as in pylance
        self,
        columns: Sequence[str] | Mapping[str, str] | None = None,
        filter: str | Expression | None = None,  # noqa: A002 the name in pylance
        limit: int | None = None,
        offset: int | None = None,
        batch_size: int | None = None,
        with_row_id: bool = False,
        with_row_address: bool = False,
        blob_mode: str = DEFAULT_BLOB_MODE,
        order_by: Iterable[ColumnOrdering | str] | None = None,
        *,
        use_scalar_index: bool | None = None,
        io_buffer_size: int | None = None,
        late_materialization: bool | Sequence[str] | None = None,
        include_deleted_rows: bool | None = None,
        batch_size_bytes: int | None = None,
        strict_batch_size: bool | None = None,
        batch_readahead: int | None = None,
    ) -> Any:
        """Read the fragment into a pandas DataFrame; arguments as of `LanceDataset.to_pandas`."""
        made = self.scanner(
            columns,
            filter,
            limit,
            offset,
            batch_size=batch_size,
            with_row_id=with_row_id,
            with_row_address=with_row_address,
            order_by=order_by,
            use_scalar_index=use_scalar_index,
            io_buffer_size=io_buffer_size,
            late_materialization=late_materialization,
            include_deleted_rows=include_deleted_rows,
            batch_size_bytes=batch_size_bytes,
            strict_batch_size=strict_batch_size,
            batch_readahead=batch_readahead,
        )
        return made.to_pandas(blob_mode=blob_mode)

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows."""
        return self.to_table(limit=num_rows)

    scanner = fragment_columns.scanner
    take = fragment_columns.take
    merge_columns = fragment_columns.merge_columns
    merge = fragment_columns.merge
    update_columns = fragment_columns.update_columns
    create = staticmethod(fragment_rows.create)
    create_from_file = staticmethod(fragment_rows.create_from_file)
    delete = fragment_rows.delete
    delete_rows = fragment_rows.delete_rows
    open_session = fragment_rows.open_session
    validate = fragment_rows.validate


__getattr__ = late_names(
    __name__,
    {
        "DEFAULT_MAX_BYTES_PER_FILE": "lance_core.methods.arguments",
        "DataFile": "lance_core.format.table.fragment",
        "DeletionFile": "lance_core.format.table.fragment",
        "FragmentSession": "lance_core.methods.fragment_rows",
        "write_fragments": "lance_core.methods.writing",
    },
)
