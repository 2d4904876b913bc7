"""Write indices of near-duplicate texts: signatures as they come, then the keys of their bands in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.format.index.minhash import (
    BANDS_FILE,
    BANDS_SCHEMA,
    DETAILS_KEY,
    DOCUMENTS_KEY,
    PAGE_ROWS,
    PAGE_ROWS_KEY,
    PAGE_TABLE_KEY,
    SIGNATURES_FILE,
    VERSION,
    VERSION_KEY,
    encode_minhash_details,
    signatures_schema,
)
from lance_core.index.external_sort import ExternalSort
from lance_core.index.protocol import SegmentContent
from lance_core.index.text.signatures import Signer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from lance_core.format.index.minhash import MinHashOptions
    from lance_core.index.files import SegmentFiles
    from lance_core.index.protocol import Relocation
    from lance_core.index.text.signatures import Signatures

Int64s: TypeAlias = npt.NDArray[np.int64]
SignedRows: TypeAlias = "Iterable[tuple[Int64s, Signatures]]"
"""Rows and their signatures, some at a time."""

_PAIR = np.dtype([("key", ">u8"), ("document", ">u4")])
"""Key and document as bytes, which sort as the pair does."""
_PAIRS_SCHEMA = pa.schema([("pair", pa.binary())])


def signed(signer: Signer, batches: Iterable[tuple[Int64s, pa.Array]]) -> SignedRows:
    """Return the rows that have words, and their signatures."""
    for rows, texts in batches:
        for documents, signatures in signer.signatures(texts):
            yield rows[documents], signatures


def relocated(parts: Sequence[tuple[SignedRows, Relocation]]) -> SignedRows:
    """Return the rows of segments that are still there, where they are now."""
    for content, relocate in parts:
        for rows, signatures in content:
            targets = relocate(rows)
            yield targets[targets >= 0], signatures[targets >= 0]


def write_signatures(
    files: SegmentFiles, details: MinHashOptions, content: SignedRows, max_memory_bytes: int
) -> SegmentContent:
    """Write an index.

    Args:
        files: Where it is written.
        details: How the signatures were made.
        content: The rows; each is a document.
        max_memory_bytes: Memory for sorting the keys of bands.
    """
    message = encode_minhash_details(details)
    metadata = {DETAILS_KEY: message.hex(), VERSION_KEY: str(VERSION)}
    schema = signatures_schema(details.num_hashes)
    with ExternalSort(_PAIRS_SCHEMA, max_memory_bytes) as pairs:
        batches = _signature_batches(content, schema, Signer(details), pairs)
        count = _Counted(batches)
        files.write(SIGNATURES_FILE, schema, count, metadata=metadata)
        last_keys: dict[str, bytes] = {PAGE_TABLE_KEY: b""}  # filled while the rows are written, before it is
        metadata |= {DOCUMENTS_KEY: str(count.num_rows), PAGE_ROWS_KEY: str(PAGE_ROWS)}
        bands = _band_batches(pairs, last_keys)
        files.write(BANDS_FILE, BANDS_SCHEMA, bands, metadata=metadata, buffers=last_keys)
    return SegmentContent(index_version=VERSION, details=message)


class _Counted:
    """Batches whose rows are counted as they are read."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self.num_rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.num_rows += batch.num_rows
            yield batch


def _signature_batches(
    content: SignedRows, schema: pa.Schema, signer: Signer, pairs: ExternalSort
) -> Iterator[pa.RecordBatch]:
    """Return the rows of the signatures, and put the keys of their bands into a sort."""
    first = 0
    for rows, signatures in content:
        keys = signer.band_keys(signatures)
        both = np.empty(keys.size, _PAIR)
        both["key"] = keys.reshape(-1)
        both["document"] = np.repeat(np.arange(first, first + len(rows)), keys.shape[1])
        first += len(rows)
        pairs.add(pa.record_batch([_binaries(both)], schema=_PAIRS_SCHEMA))
        values = pa.array(signatures.reshape(-1))
        listed = pa.FixedSizeListArray.from_arrays(values, signatures.shape[1])
        yield pa.RecordBatch.from_arrays([pa.array(rows.astype(np.uint64)), listed], schema=schema)


def _binaries(pairs: npt.NDArray[np.void]) -> pa.Array:
    offsets = np.arange(len(pairs) + 1, dtype=np.int32) * _PAIR.itemsize
    return pa.Array.from_buffers(pa.binary(), len(pairs), [None, pa.py_buffer(offsets), pa.py_buffer(pairs.tobytes())])


def _band_batches(pairs: ExternalSort, last_keys: dict[str, bytes]) -> Iterator[pa.RecordBatch]:
    """Return the rows of the bands in order, and tell the last key of each page at the end."""
    position, table = 0, [np.empty(0, np.uint64)]
    last = np.empty(0, np.uint64)
    for batch in pairs.batches():
        if not batch.num_rows:
            continue
        column = batch.column(0)
        start = int(np.frombuffer(column.buffers()[1], np.int32)[column.offset])
        data = np.frombuffer(column.buffers()[2], np.uint8)[start : start + len(column) * _PAIR.itemsize]
        both = data.view(_PAIR)
        keys = both["key"].astype(np.uint64)
        table.append(keys[PAGE_ROWS - 1 - position % PAGE_ROWS :: PAGE_ROWS])
        position, last = position + len(keys), keys[-1:]
        columns = [pa.array(keys), pa.array(both["document"].astype(np.uint32))]
        yield pa.RecordBatch.from_arrays(columns, schema=BANDS_SCHEMA)
    if position % PAGE_ROWS:
        table.append(last)
    last_keys[PAGE_TABLE_KEY] = np.concatenate(table).astype("<u8").tobytes()
