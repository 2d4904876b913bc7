"""Methods of `LanceFragment` that read it, and that write columns beside its files; nothing is committed.

What they answer goes into `LanceDataset.commit`, as ``LanceOperation.Merge`` or ``LanceOperation.Update``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from lance_core.change.column_files import ColumnWriter, Transform, check_drops_columns, with_file
from lance_core.change.evolution import new_fields, next_field_id
from lance_core.change.ingest import read_input
from lance_core.change.transforms import Lookup, RowStream, from_lookup, from_stream, from_update, whole_table
from lance_core.common.frozen import replace
from lance_core.common.signatures import check_options, with_options
from lance_core.encoding.arrow_values import taken
from lance_core.encoding.kernels import numbers_array
from lance_core.errors import InvalidInputError
from lance_core.format.extensions import table_with_types
from lance_core.format.schema import Schema
from lance_core.format.table.deletion import bitmap_from_numpy
from lance_core.format.table.fragment import TOMBSTONE_FIELD_ID
from lance_core.methods.arguments import file_version, row_numbers
from lance_core.methods.evolving import make_transform
from lance_core.scan.fragment_reader import FragmentReader
from lance_core.scan.fragments import take_offsets
from lance_core.scan.plan import with_row_starts
from lance_core.scan.query import make_columns, plan_query
from lance_core.scanner import ScanOptions, make_scanner
from lance_core.schema import LanceSchema
from lance_core.table.naming import naming
from lance_core.values.fragment_metadata import to_metadata

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy.typing as npt
    import pyarrow as pa
    from pyarrow.compute import Expression

    from lance_core.format.table.fragment import DataFile, Fragment
    from lance_core.methods.protocols import OpenFragment
    from lance_core.scanner import LanceScanner
    from lance_core.values.fragment_metadata import FragmentMetadata


@with_options(ScanOptions)
def scanner(
    fragment: OpenFragment,
    columns: Sequence[str] | Mapping[str, str] | None = None,
    filter: str | Expression | None = None,  # noqa: A002 the name in pylance
    limit: int | None = None,
    offset: int | None = None,
    **options: Unpack[ScanOptions],
) -> LanceScanner:
    """Return a scanner over the fragment; arguments as of `LanceDataset.scanner`."""
    check_options("scanner", ScanOptions, options)
    return make_scanner(
        fragment.snapshot,
        fragment.dataset.files,
        [fragment.inner],
        columns=columns,
        filter=filter,
        limit=limit,
        offset=offset,
        **options,
    )


def take(
    fragment: OpenFragment,
    indices: Sequence[int] | pa.Array,
    columns: Sequence[str] | Mapping[str, str] | None = None,
) -> pa.Table:
    """Return rows by their place in the fragment.

    Args:
        indices: Places, from 0, deleted rows not counted; any order, repeats allowed.
        columns: As in `LanceDataset.scanner`.

    Raises:
        InvalidInputError: There is no such row.

    Examples:
        >>> fragment = table.get_fragments()[0]
        >>> fragment.take([0, 2], columns=["name"])["name"].to_pylist()
        ['Oslo', 'Pune']
    """
    offsets = row_numbers(indices, "indices").astype(np.int64)
    total = fragment.inner.num_rows
    if len(offsets) and (offsets.min() < 0 or offsets.max() >= total):
        raise InvalidInputError(f"cannot take rows {offsets.min()} to {offsets.max()}: the rows are 0 to {total - 1}")
    with naming(fragment.snapshot.store):
        query = plan_query(fragment.snapshot.manifest.schema, columns=columns)
        query = replace(query, plan=with_row_starts(query.plan, fragment.snapshot.manifest))
    reader = FragmentReader(fragment.dataset.files, fragment.inner)
    unique, order = np.unique(offsets, return_inverse=True)
    unique_rows = take_offsets(reader, query.plan, reader.offsets_of_live(unique))
    return table_with_types(taken(make_columns(unique_rows, query), numbers_array(order)))


def merge_columns(
    fragment: OpenFragment,
    value_func: Any,
    columns: Sequence[str] | None = None,
    batch_size: int | None = None,
    reader_schema: pa.Schema | None = None,
) -> tuple[FragmentMetadata, LanceSchema]:
    """Write new columns of this fragment; arguments as of `LanceDataset.add_columns`.

    Returns:
        The fragment with the new file, and the schema with the new columns, for ``LanceOperation.Merge``. Do it with
        all fragments of one version, so that they get the same field ids.
    """
    snapshot = fragment.snapshot
    with naming(snapshot.store):
        transform = make_transform(fragment.dataset, value_func, columns, batch_size)
        if transform is not None:
            return _with_new_columns(fragment, transform, None)
        rows = RowStream(stream=read_input(value_func, reader_schema))
        return _with_new_columns(fragment, from_stream(rows), rows)


def merge(
    fragment: OpenFragment, data_obj: Any, left_on: str, right_on: str | None = None, schema: pa.Schema | None = None
) -> tuple[FragmentMetadata, LanceSchema]:
    """Write the columns of other data, joined by a key; arguments as of `LanceDataset.merge`.

    Returns:
        As `merge_columns`.
    """
    with naming(fragment.snapshot.store):
        lookup = Lookup(whole_table(data_obj, schema), right_on or left_on)
        return _with_new_columns(fragment, from_lookup(lookup, left_on), None)


def update_columns(
    fragment: OpenFragment,
    data_obj: Any,
    left_on: str = "_rowid",
    right_on: str | None = None,
    schema: pa.Schema | None = None,
    *,
    with_offsets: bool = False,
) -> Any:
    """Write columns anew, with the values of other data for the rows that it has, found by a key.

    Args:
        data_obj: The new values and their keys, as for `write_dataset`; held in memory.
        left_on: Key column of the fragment; also ``_rowid`` and ``_rowaddr``.
        right_on: Key column of the data; ``left_on`` if None.
        schema: Arrow schema of data that is an iterable of batches.
        with_offsets: Tell which rows were found.

    Returns:
        The fragment with the new file and the ids of the fields written, for ``LanceOperation.Update`` with
        ``update_mode="rewrite_columns"``; with ``with_offsets`` also the row offsets found, as a portable roaring
        bitmap.

    Raises:
        InvalidInputError: Columns that the table does not have, values that do not fit.
    """
    table = fragment.snapshot.manifest.schema
    with naming(fragment.snapshot.store):
        check_drops_columns(fragment.snapshot.manifest.data_storage_version)
        lookup = Lookup(whole_table(data_obj, schema), right_on or left_on)
        unknown = [name for name in lookup.values.schema.names if name not in table.names]
        if unknown or not lookup.values.schema.names:
            raise InvalidInputError(
                f"cannot update columns {unknown}: the columns of the table are: {', '.join(table.names)}"
            )
        fields = table.select(lookup.values.schema.names)
        changed_offsets: list[npt.NDArray[np.int64]] = []
        transform = from_update(lookup, left_on, fields.to_arrow(), changed_offsets.append)
        file = _write(fragment, transform, fields)
    modified = sorted({field.id for field in fields.walk()} & set(file.fields))
    changed = to_metadata(_replaced(fragment.inner, file))
    if not with_offsets:
        return changed, modified
    offsets = np.concatenate(changed_offsets) if changed_offsets else np.empty(0, np.int64)
    return changed, modified, bitmap_from_numpy(offsets).serialize()


def _with_new_columns(
    fragment: OpenFragment, transform: Transform, rows: RowStream | None
) -> tuple[FragmentMetadata, LanceSchema]:
    manifest = fragment.snapshot.manifest
    fields = new_fields(manifest.schema, transform.schema, next_field_id(manifest))
    file = _write(fragment, transform, fields)
    if rows is not None:
        rows.check_empty()
    schema = Schema((*manifest.schema.fields, *fields.fields), manifest.schema.metadata)
    return to_metadata(with_file(fragment.inner, file, frozenset(field.id for field in schema.walk()))), LanceSchema(
        schema
    )


def _write(fragment: OpenFragment, transform: Transform, fields: Schema) -> DataFile:
    snapshot = fragment.snapshot
    writer = ColumnWriter(
        snapshot=snapshot,
        fields=fields,
        transform=transform,
        data_storage_version=file_version(None, snapshot),
        files=fragment.dataset.files,
    )
    return writer.write(fragment.inner)


def _replaced(fragment: Fragment, file: DataFile) -> Fragment:
    """Return the fragment with a file for columns it has: those in the files before are struck out."""
    new = set(file.fields)
    remaining: list[DataFile] = []
    for previous in fragment.files:
        fields = tuple(TOMBSTONE_FIELD_ID if number in new else number for number in previous.fields)
        if any(number != TOMBSTONE_FIELD_ID for number in fields):
            remaining.append(replace(previous, fields=fields))
    return replace(fragment, files=(*remaining, file))
