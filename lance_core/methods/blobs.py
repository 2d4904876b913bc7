"""Methods of `LanceDataset` that read blobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lance_core.blob import DEFAULT_BLOB_BUFFER_SIZE, BlobFile
from lance_core.errors import InvalidInputError
from lance_core.methods.arguments import row_numbers
from lance_core.scan.blob_rows import BlobRow, find_blobs
from lance_core.table.naming import naming

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from lance_core.methods.protocols import OpenDataset


def take_blobs(
    dataset: OpenDataset,
    blob_column: str,
    ids: Sequence[int] | pa.Array | None = None,
    addresses: Sequence[int] | pa.Array | None = None,
    indices: Sequence[int] | pa.Array | None = None,
    *,
    buffer_size: int = DEFAULT_BLOB_BUFFER_SIZE,
) -> list[BlobFile | None]:
    """Open blobs as files, which read what is asked of them and no more.

    Args:
        blob_column: Name, or dotted path inside of structs.
        ids: Row ids.
        addresses: Row addresses.
        indices: Places in the table, from 0, deleted rows not counted. Exactly one of the three is given.
        buffer_size: Bytes that sequential reading is ahead; 0 for none.

    Returns:
        One for each row asked for, in that order; None for null.

    Raises:
        InvalidInputError: No blob column, rows that are not there, or not exactly one way to name rows.
        CorruptDataError: A damaged file.

    Examples:
        >>> schema = pa.schema([lance_core.blob_field("image")])
        >>> images = pa.table({"image": lance_core.blob_array([b"png", b"gif!"])}, schema=schema)
        >>> stored = lance_core.write_dataset(images, "images.lance")
        >>> [blob.readall() for blob in stored.take_blobs("image", indices=[1])]
        [b'gif!']
    """
    rows = _find(dataset, blob_column, ids, addresses, indices)
    return [
        None if row.location is None else BlobFile(row.sources, row.location, buffer_size=buffer_size) for row in rows
    ]


def read_blobs(
    dataset: OpenDataset,
    blob_column: str,
    ids: Sequence[int] | pa.Array | None = None,
    addresses: Sequence[int] | pa.Array | None = None,
    indices: Sequence[int] | pa.Array | None = None,
    *,
    io_buffer_size: int | None = None,
    preserve_order: bool | None = None,
) -> list[tuple[int, bytes | None]]:
    """Read whole blobs, those of one object with one request.

    Args:
        blob_column: As in `take_blobs`, like the other arguments and the errors.
        ids: Row ids.
        addresses: Row addresses.
        indices: Places in the table.
        io_buffer_size: Accepted; requests are planned by bytes.
        preserve_order: Accepted; the order is always that of the rows asked for.

    Returns:
        Row address and bytes of each; None for null.
    """
    del io_buffer_size, preserve_order
    rows = _find(dataset, blob_column, ids, addresses, indices)
    return list(zip([row.address for row in rows], _read(rows, [None] * len(rows)), strict=True))


def read_blob_ranges(
    dataset: OpenDataset,
    blob_column: str,
    requests: Sequence[tuple[int, int, int]],
    *,
    selector: str,
    io_buffer_size: int | None = None,
    preserve_order: bool | None = None,
) -> list[tuple[int, int, bytes | None]]:
    """Read parts of blobs.

    Args:
        blob_column: As in `take_blobs`.
        requests: Row, offset in its blob, and number of bytes.
        selector: What the rows are: ``ids``, ``addresses`` or ``indices``.
        io_buffer_size: Accepted; requests are planned by bytes.
        preserve_order: Accepted; the order is always that of the requests.

    Returns:
        Place of the request, row address and bytes of each; None for null.

    Raises:
        InvalidInputError: As in `take_blobs`, or bytes beyond the end of a blob.
    """
    del io_buffer_size, preserve_order
    if selector not in ("ids", "addresses", "indices"):
        raise InvalidInputError(f"'selector' must be 'ids', 'addresses' or 'indices', not {selector!r}")
    wanted = {selector: [row for row, _, _ in requests]}
    rows = _find(dataset, blob_column, wanted.get("ids"), wanted.get("addresses"), wanted.get("indices"))
    contents = _read(rows, [(offset, size) for _, offset, size in requests])
    return [(number, row.address, data) for number, (row, data) in enumerate(zip(rows, contents, strict=True))]


def _find(
    dataset: OpenDataset,
    blob_column: str,
    ids: Sequence[int] | pa.Array | None,
    addresses: Sequence[int] | pa.Array | None,
    indices: Sequence[int] | pa.Array | None,
) -> list[BlobRow]:
    given = {
        name: rows for name, rows in (("ids", ids), ("addresses", addresses), ("indices", indices)) if rows is not None
    }
    if len(given) != 1:
        raise InvalidInputError("pass exactly one of 'ids', 'addresses' and 'indices'")
    name, rows = next(iter(given.items()))
    with naming(dataset.snapshot.store):
        numbers = _numbers(rows, name)
        return find_blobs(dataset.snapshot, dataset.files, blob_column, numbers, by=name)


def _numbers(rows: Sequence[int] | pa.Array, name: str) -> npt.NDArray[np.uint64]:
    values = row_numbers(rows, name)
    if len(values) and int(values.min()) < 0:
        raise InvalidInputError(f"'{name}' must be at least 0, not {values.min()}")
    return values.astype(np.uint64)


def _read(rows: Sequence[BlobRow], parts: Sequence[tuple[int, int] | None]) -> list[bytes | None]:
    """Return the bytes of blobs, or parts of them; one request for each object."""
    contents: list[bytes | None] = [None if row.location is None else b"" for row in rows]
    groups: dict[int, list[tuple[int, tuple[int, int]]]] = {}
    for number, (row, part) in enumerate(zip(rows, parts, strict=True)):
        if row.location is None:
            continue
        start, end = row.sources.bounds(row.location)
        if part is not None:
            offset, size = part
            if offset < 0 or size < 0 or start + offset + size > end:
                raise InvalidInputError(
                    f"cannot read bytes {offset} to {offset + size}: the blob has {end - start} bytes"
                )
            start, end = start + offset, start + offset + size
        if end > start:
            groups.setdefault(id(row.sources.reader(row.location)), []).append((number, (start, end)))
    for group in groups.values():
        row = rows[group[0][0]]
        assert row.location is not None  # noqa: S101 - nulls are in no group
        buffers = row.sources.reader(row.location).read_ranges([bounds for _, bounds in group])
        for (number, _), buffer in zip(group, buffers, strict=True):
            contents[number] = buffer.to_pybytes()
    return contents
