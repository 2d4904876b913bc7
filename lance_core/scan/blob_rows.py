"""Find the blobs of single rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.common.frozen import frozen
from lance_core.errors import CorruptDataError, InvalidInputError
from lance_core.format.blobs import BlobView, view_schema
from lance_core.scan.blobs import BlobPlace, BlobSources, Descriptions
from lance_core.scan.fragment_reader import FragmentReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from lance_core.format.schema import Field, Schema
    from lance_core.format.table.fragment import DataFile, Fragment
    from lance_core.scan.open_files import OpenFiles
    from lance_core.table.snapshot import Snapshot

_ADDRESS_SHIFT = np.uint64(32)


@frozen
class BlobRow:
    """The blob of one row.

    Attributes:
        address: Row address.
        location: Where the blob is; None for null.
        sources: The objects it may be in.
    """

    address: int
    location: BlobPlace | None
    sources: BlobSources


def find_blobs(
    snapshot: Snapshot,
    files: OpenFiles,
    column: str,
    rows: npt.NDArray[np.uint64],
    *,
    by: str,
) -> list[BlobRow]:
    """Locate the blobs of some rows.

    Args:
        snapshot: Version to read.
        files: The dataset's open files.
        column: Blob column: name or dotted path.
        rows: Shape (n,), any order, repeats allowed.
        by: What the rows are: ``ids``, ``addresses`` or ``indices``.

    Raises:
        InvalidInputError: No such rows or column.
    """
    projection = view_schema(snapshot.manifest.schema, BlobView.DESCRIPTIONS).select([column])
    leaf = _blob_leaf(projection, column)
    readers = {fragment.id: FragmentReader(files, fragment) for fragment in snapshot.manifest.fragments}
    addresses = {"ids": _from_ids, "addresses": _checked, "indices": _from_indices}[by](rows, list(readers.values()))
    unique, order = np.unique(addresses, return_inverse=True)
    owners = unique >> _ADDRESS_SHIFT
    blob_rows: list[BlobRow] = []
    for owner in np.unique(owners).tolist():
        fragment_offsets = unique[owners == owner]
        reader = readers[owner]
        offsets = (fragment_offsets & np.uint64(2**32 - 1)).astype(np.int64)
        file = _file_of(reader.fragment, leaf)
        sources = BlobSources(files.store, file)
        descriptions = Descriptions.of(_descend(reader.take(projection, offsets)[0], projection.fields[0]))
        blob_rows += [
            BlobRow(address, descriptions.locate(at), sources) for at, address in enumerate(fragment_offsets.tolist())
        ]
    return [blob_rows[at] for at in order.tolist()]


def described_blobs(
    snapshot: Snapshot,
    files: OpenFiles,
    leaf: Field,
    descriptions: pa.StructArray,
    addresses: npt.NDArray[np.uint64],
) -> list[BlobRow | None]:
    """Find blobs whose descriptions were read.

    Args:
        snapshot: Version that was read.
        files: The dataset's open files.
        leaf: Field of the blobs.
        descriptions: Shape (n,).
        addresses: Shape (n,): their rows.

    Returns:
        A blob for each row; None for nulls.
    """
    fragments = {fragment.id: fragment for fragment in snapshot.manifest.fragments}
    rows: list[BlobRow | None] = [None] * len(addresses)
    valid = np.flatnonzero(np.asarray(descriptions.is_valid()))
    owners = addresses[valid] >> _ADDRESS_SHIFT
    for owner in np.unique(owners).tolist():
        positions = valid[owners == owner]
        sources = BlobSources(files.store, _file_of(fragments[owner], leaf))
        taken = Descriptions.of(descriptions.take(positions))
        for index, position in enumerate(positions.tolist()):
            rows[position] = BlobRow(int(addresses[position]), taken.locate(index), sources)
    return rows


def blob_leaves(schema: Schema, column: str) -> list[tuple[tuple[str, ...], Field]]:
    """Return the blob fields of a column, those inside of lists left out.

    Args:
        schema: Schema of the table.
        column: Name or dotted path.

    Returns:
        For each the names that lead to it from the column, and the field.
    """
    field = schema.select([column]).fields[0]
    path = field.name
    while path != column and field.logical_type == "struct":
        field = field.children[0]
        path = f"{path}.{field.name}"
    return list(_leaves_below(field, ()))


def _leaves_below(field: Field, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Field]]:
    if field.is_blob:
        yield path, field
    elif field.logical_type == "struct":
        for child in field.children:
            yield from _leaves_below(child, (*path, child.name))


def _blob_leaf(projection: Schema, column: str) -> Field:
    field = projection.fields[0]
    while not field.is_blob:
        if field.logical_type != "struct" or len(field.children) != 1 or field.name == column:
            raise InvalidInputError(f"column {column!r} is no blob column, or lies inside of a list")
        field = field.children[0]
    return field


def _descend(array: pa.Array, field: Field) -> pa.StructArray:
    while not field.is_blob:
        array, field = array.field(0), field.children[0]
    return array


def _file_of(fragment: Fragment, leaf: Field) -> DataFile:
    for file in fragment.files:
        if leaf.id in file.fields:
            return file
    raise CorruptDataError(f"no file of fragment {fragment.id} holds blob column {leaf.name!r}")


def _from_indices(rows: npt.NDArray[np.uint64], readers: Sequence[FragmentReader]) -> npt.NDArray[np.uint64]:
    ends = np.cumsum([reader.fragment.num_rows for reader in readers], dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    if len(rows) and int(rows.max()) >= total:
        raise InvalidInputError(f"there is no row {int(rows.max())} in a table of {total} rows")
    positions = rows.astype(np.int64)
    owners = np.searchsorted(ends, positions, side="right")
    out = np.empty(len(rows), np.uint64)
    for owner in np.unique(owners).tolist():
        mine = owners == owner
        offsets = readers[owner].offsets_of_live(positions[mine] - (ends[owner - 1] if owner else 0))
        out[mine] = _address(readers[owner], offsets)
    return out


def _from_ids(rows: npt.NDArray[np.uint64], readers: Sequence[FragmentReader]) -> npt.NDArray[np.uint64]:
    if all(reader.fragment.row_id_sequence is None for reader in readers):
        return _checked(rows, readers)
    out = np.empty(len(rows), np.uint64)
    is_found = np.zeros(len(rows), np.bool_)
    for reader in readers:
        ids = reader.stable_row_ids
        order = np.argsort(ids, kind="stable")
        at = np.minimum(np.searchsorted(ids, rows, sorter=order), max(len(ids) - 1, 0))
        offsets = order[at] if len(ids) else np.empty(0, np.int64)
        mine = (ids[offsets] == rows) & ~np.isin(offsets, reader.deleted) if len(ids) else is_found & False
        out[mine] = _address(reader, offsets[mine])
        is_found |= mine
    if not is_found.all():
        raise InvalidInputError(f"there is no row with id {int(rows[~is_found][0])}")
    return out


def _checked(rows: npt.NDArray[np.uint64], readers: Sequence[FragmentReader]) -> npt.NDArray[np.uint64]:
    """Return the same, once it is known that there are such rows and that they are not deleted."""
    by_id = {reader.fragment.id: reader for reader in readers}
    owners = rows >> _ADDRESS_SHIFT
    for owner in np.unique(owners).tolist():
        offsets = (rows[owners == owner] & np.uint64(2**32 - 1)).astype(np.int64)
        reader = by_id.get(owner)
        if reader is None or int(offsets.max()) >= reader.fragment.physical_rows:
            raise InvalidInputError(f"there is no row with address {int(rows[owners == owner].max())}")
        if np.isin(offsets, reader.deleted).any():
            raise InvalidInputError(f"a row of fragment {owner} that is asked for has been deleted")
    return rows


def _address(reader: FragmentReader, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    return offsets.astype(np.uint64) + (np.uint64(reader.fragment.id) << _ADDRESS_SHIFT)
