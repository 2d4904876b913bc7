"""Methods of `LanceFragment` that make fragments, delete rows of one, and look whether one is sound.

Nothing is committed: what they answer goes into `LanceDataset.commit`, in ``LanceOperation.Append``, ``Overwrite`` or
``Delete``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.change.column_files import data_file_of
from lance_core.common.frozen import frozen, replace
from lance_core.common.unsupported import refuse_given
from lance_core.errors import CorruptDataError, InvalidInputError
from lance_core.format.table.deletion import bitmap_from_numpy
from lance_core.format.table.fragment import Fragment
from lance_core.format.table.paths import data_file_path
from lance_core.methods import fragment_columns
from lance_core.methods.arguments import DEFAULT_MAX_ROWS_PER_GROUP
from lance_core.methods.writing import write_fragments
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.fragments import matching_offsets
from lance_core.scan.indexed import with_index_answer
from lance_core.scan.plan import plan_filter, with_row_starts
from lance_core.table.locations import object_sizes
from lance_core.table.naming import naming
from lance_core.table.new_ids import RANDOM_IDS
from lance_core.table.rebase import write_deletions
from lance_core.values.fragment_metadata import to_metadata

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt
    import pyarrow as pa
    from pyarrow.compute import Expression

    from lance_core.methods.protocols import OpenDataset, OpenFragment
    from lance_core.values.fragment_metadata import FragmentMetadata
    from lance_core.values.session import Session

_NO_LIMIT = 1 << 62


@frozen
class FragmentSession:
    """Reads rows of the same columns of one fragment again and again. Made by `LanceFragment.open_session`."""

    fragment: OpenFragment
    columns: tuple[str, ...] | None
    with_row_address: bool

    def take(self, indices: Sequence[int] | pa.Array) -> pa.Table:
        """Return rows by their place in the fragment; as `LanceFragment.take`."""
        columns = self.columns
        if self.with_row_address:
            columns = (*(self.fragment.dataset.schema.names if columns is None else columns), "_rowaddr")
        return fragment_columns.take(self.fragment, indices, columns)


def open_session(
    fragment: OpenFragment, columns: Sequence[str] | None = None, with_row_address: bool | None = None
) -> FragmentSession:
    """For many `take` of the same columns.

    Args:
        columns: Names, or dotted paths inside structs; all columns if None.
        with_row_address: Add ``_rowaddr``.
    """
    return FragmentSession(fragment, None if columns is None else tuple(columns), bool(with_row_address))


def create(  # noqa: PLR0917 positional as in pylance
    dataset_uri: str | os.PathLike[str],
    data: Any,
    fragment_id: int | None = None,
    schema: pa.Schema | None = None,
    max_rows_per_group: int | None = DEFAULT_MAX_ROWS_PER_GROUP,
    progress: Any = None,
    mode: str = "append",
    *,
    data_storage_version: str | None = None,
    storage_options: Mapping[str, str] | None = None,
    use_legacy_format: bool | None = None,
    namespace_client: Any = None,
    table_id: Sequence[str] | None = None,
    session: Session | None = None,
) -> FragmentMetadata:
    """Write data as one fragment of a dataset that may not exist yet.

    Args:
        dataset_uri: Address of the dataset.
        data: As for `lance_core.write_dataset`.
        fragment_id: Its id; None if the commit shall choose one.
        schema: Arrow schema of the data.
        max_rows_per_group: Rows in a row group, 1024 if None; for file version 0.1 only.
        progress: As of `lance_core.write_dataset`.
        mode: As of `lance_core.write_fragments`.
        data_storage_version: File version.
        storage_options: Settings of the storage service.
        use_legacy_format: Not supported, like ``namespace_client`` and ``table_id``.
        namespace_client: Not supported.
        table_id: Not supported.
        session: Accepted, see `lance_core.Session`.

    Raises:
        InvalidInputError: No rows, or data that does not fit; nothing is left behind.
    """
    del session
    refuse_given(
        "LanceFragment.create",
        use_legacy_format=use_legacy_format,
        namespace_client=namespace_client,
        table_id=table_id,
    )
    fragments = write_fragments(
        data,
        dataset_uri,
        schema,
        mode=mode,
        max_rows_per_file=_NO_LIMIT,
        max_bytes_per_file=_NO_LIMIT,
        max_rows_per_group=max_rows_per_group,
        progress=progress,
        data_storage_version=data_storage_version,
        storage_options=storage_options,
    )
    if not fragments:
        raise InvalidInputError("cannot write a fragment without rows: the data has none", path=str(dataset_uri))
    return replace(fragments[0], id=fragment_id or 0)


def create_from_file(filename: str, dataset: OpenDataset, fragment_id: int) -> FragmentMetadata:
    """Return a fragment of a data file that is there, but in no version.

    Args:
        filename: Name of the file below ``data/``.
        dataset: The dataset; the file's columns are found in its schema by their names.
        fragment_id: Id of the fragment.

    Raises:
        NotFoundError: There is no such file.
        InvalidInputError: It has other columns than the dataset.
    """
    file, num_rows = data_file_of(dataset.snapshot, filename)
    return to_metadata(Fragment(id=fragment_id, files=(file,), physical_rows=num_rows))


def delete(fragment: OpenFragment, predicate: str | Expression) -> FragmentMetadata | None:
    """Delete rows of this fragment.

    Args:
        predicate: SQL text or pyarrow expression.

    Returns:
        The fragment with a new deletion file, or as it was if no row matches; None if no row is left. For
        ``LanceOperation.Delete``.
    """
    snapshot, files = fragment.snapshot, fragment.dataset.files
    with naming(snapshot.store):
        plan = with_row_starts(plan_filter(snapshot.manifest.schema, predicate), snapshot.manifest)
        plan = with_index_answer(plan, snapshot.manifest, files)
    return _without(fragment, matching_offsets(FragmentReader(files, fragment.inner), plan))


def delete_rows(fragment: OpenFragment, offsets: Iterable[int]) -> FragmentMetadata | None:
    """Delete rows of this fragment by their offsets in its files, deleted rows counted.

    Returns:
        As `delete`.

    Raises:
        InvalidInputError: There is no such row.
    """
    rows = np.unique(np.fromiter(offsets, np.int64))
    total = fragment.inner.physical_rows
    if len(rows) and (rows[0] < 0 or rows[-1] >= total):
        raise InvalidInputError(
            f"cannot delete rows {rows[[0, -1]]}: the rows of fragment {fragment.inner.id} are 0 to {total - 1}"
        )
    return _without(fragment, rows)


def _without(fragment: OpenFragment, offsets: npt.NDArray[np.int64]) -> FragmentMetadata | None:
    inner, reader = fragment.inner, FragmentReader(fragment.dataset.files, fragment.inner)
    rows = bitmap_from_numpy(reader.deleted)
    before = len(rows)
    rows |= bitmap_from_numpy(offsets)
    if len(rows) == inner.physical_rows:
        return None
    if len(rows) > before:
        file, _ = write_deletions(
            fragment.snapshot.store,
            inner.id,
            rows,
            read_version=fragment.snapshot.version,
            new_id=lambda: RANDOM_IDS.deletion_file(inner.id),
        )
        inner = replace(inner, deletion_file=file)
    return to_metadata(inner)


def validate(fragment: OpenFragment) -> None:
    """Check that the fragment's files are there, have the sizes and rows that the version says, and fit its schema.

    Raises:
        CorruptDataError: Something does not fit.
        NotFoundError: A file is not there.
    """
    inner, snapshot = fragment.inner, fragment.snapshot
    reader = FragmentReader(fragment.dataset.files, inner)
    paths = [data_file_path(file) for file in inner.files]
    for file, path, size in zip(inner.files, paths, object_sizes(snapshot.store, paths), strict=True):
        if file.file_size_bytes and size != file.file_size_bytes:
            raise CorruptDataError(
                f"the manifest says {file.file_size_bytes} bytes, but the file has {size}", path=path
            )
        fragment.dataset.files.open(file, num_rows=inner.physical_rows)
    if len(reader.deleted) != inner.num_deleted_rows:
        raise CorruptDataError(
            f"the deletion file of fragment {inner.id} lists {len(reader.deleted)} rows, the manifest "
            f"{inner.num_deleted_rows}",
            path=snapshot.store.uri,
        )
    if inner.row_id_sequence is not None:
        _ = reader.stable_row_ids  # which are as many as there are rows
    for rows in reader.scan(snapshot.manifest.schema, start=0, end=min(1, inner.physical_rows), batch_size=1):
        _ = rows  # each column is in a file, and can be decoded
