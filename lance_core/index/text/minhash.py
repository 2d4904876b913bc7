"""Indices of near-duplicate texts: the kind that finds rows whose texts have the same shingles.

It does not answer conditions. `lance_core.scan.search.duplicates` asks its segments for the rows of a signature. The
files are described in `lance_core.format.index.minhash`.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_core.common.last_made import KeepsLast
from lance_core.errors import CorruptDataError, UnsupportedError
from lance_core.format.arrow_kinds import is_text
from lance_core.format.index.minhash import (
    BANDS_FILE,
    BANDS_SCHEMA,
    DETAILS_KEY,
    PAGE_ROWS_KEY,
    PAGE_TABLE_KEY,
    SIGNATURES_FILE,
    TYPE_URL,
    VERSION,
    VERSION_KEY,
    MinHashOptions,
    decode_minhash_details,
    signatures_schema,
)
from lance_core.index.external_sort import DEFAULT_MEMORY, MEMORY_OPTION
from lance_core.index.files import check_columns, metadata_number, read_columns, read_ranges
from lance_core.index.text.signatures import Signer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lance_core.file.read.reader import DataFileReader
    from lance_core.index.answer import RowAnswer
    from lance_core.index.column import IndexedColumn
    from lance_core.index.files import SegmentFiles
    from lance_core.index.protocol import FragmentColumn, Relocation, Segment, SegmentContent, SegmentTarget
    from lance_core.index.text.signatures import Signatures, UInt64s
    from lance_core.sql.pruning import Question

Int64s: TypeAlias = npt.NDArray[np.int64]

_ROWS_AT_ONCE = 1 << 15


class MinHashSegment(KeepsLast):
    """One segment of an index; files are read when they are needed.

    Args:
        files: Its files.
    """

    def __init__(self, files: SegmentFiles) -> None:
        self._files = files

    @cached_property
    def details(self) -> MinHashOptions:
        """Options of the signatures."""
        return decode_minhash_details(
            self._opened(SIGNATURES_FILE).schema.metadata.get(DETAILS_KEY, b"?"), path=self._path(SIGNATURES_FILE)
        )

    @cached_property
    def signer(self) -> Signer:
        """Makes signatures."""
        return Signer(self.details)

    @cached_property
    def _signatures(self) -> DataFileReader:
        reader = self._opened(SIGNATURES_FILE)
        check_columns(reader, signatures_schema(self.details.num_hashes), path=self._path(SIGNATURES_FILE))
        return reader

    @cached_property
    def _bands(self) -> DataFileReader:
        reader = self._opened(BANDS_FILE)
        check_columns(reader, BANDS_SCHEMA, path=self._path(BANDS_FILE))
        return reader

    @cached_property
    def _page_rows(self) -> int:
        rows = metadata_number(self._bands, PAGE_ROWS_KEY)
        if rows is None:
            raise CorruptDataError("the bands have no rows of a page", path=self._path(BANDS_FILE))
        return rows

    @cached_property
    def _page_table(self) -> UInt64s:
        """The last key of each page of the bands."""
        number = metadata_number(self._bands, PAGE_TABLE_KEY)
        data = b"" if number is None else self._bands.global_buffer(number)
        if len(data) != -(-self._bands.num_rows // self._page_rows) * np.dtype(np.uint64).itemsize:
            raise CorruptDataError("the bands have no table of their pages", path=self._path(BANDS_FILE))
        return np.frombuffer(data, "<u8").astype(np.uint64)

    @property
    def options(self) -> Mapping[str, Any]:
        """Options of a build: none, signatures are always made in the same way."""
        return {}

    @property
    def statistics(self) -> Mapping[str, int]:
        """Numbers of documents and pages, and what signatures are like."""
        details = self.details
        return {
            "num_docs": self._signatures.num_rows,
            "num_pages": len(self._page_table),
            "num_hashes": details.num_hashes,
            "num_bands": details.num_bands,
            "shingle_size": details.shingle_size,
            "signature_version": 0,
        }

    def answer(self, question: Question, *, tells_null: bool) -> RowAnswer | None:
        """Leave all questions about values unanswered."""
        del question, tells_null

    def near(self, signature: Signatures) -> tuple[Int64s, Signatures]:
        """Return the documents that share a band with a signature: their rows and signatures.

        Raises:
            CorruptDataError: A file is damaged.
        """
        documents = self._sharing(np.sort(self.signer.band_keys(signature)[0]))
        return self._read(documents) if len(documents) else (documents, signature[:0])

    def content(self) -> Iterator[tuple[Int64s, Signatures]]:
        """Read the rows and signatures of all documents, some at a time."""
        for start in range(0, self._signatures.num_rows, _ROWS_AT_ONCE):
            end = min(start + _ROWS_AT_ONCE, self._signatures.num_rows)
            yield self._decoded(*read_columns(self._signatures, ["_rowid", "signature"], start, end))

    def entries(self) -> Iterator[tuple[pa.Array, Int64s]]:
        """Read the keys of all bands, each with its row."""
        for rows, signatures in self.content():
            yield self._keyed(signatures, rows)

    def expected_entries(self, values: pa.Array, rows: Int64s) -> Iterator[tuple[pa.Array, Int64s]]:
        """Return the keys of the bands of texts."""
        for documents, signatures in self.signer.signatures(values):
            yield self._keyed(signatures, rows[documents])

    def _keyed(self, signatures: Signatures, rows: Int64s) -> tuple[pa.Array, Int64s]:
        keys = self.signer.band_keys(signatures)
        return pa.array(keys.reshape(-1)), np.repeat(rows, keys.shape[1])

    def _sharing(self, keys: UInt64s) -> Int64s:
        """Return the documents that have one of some ascending keys."""
        table, size = self._page_table, self._page_rows
        pages = sorted(
            {
                page
                for first, last in zip(
                    np.searchsorted(table, keys, side="left").tolist(),
                    np.searchsorted(table, keys, side="right").tolist(),
                    strict=True,
                )
                for page in range(first, min(last + 1, len(table)))
            }
        )
        ranges = [range(page * size, min((page + 1) * size, self._bands.num_rows)) for page in pages]
        result = [np.empty(0, np.int64)]
        for stored, documents in read_ranges(self._bands, BANDS_SCHEMA.names, ranges):
            result.append(documents.to_numpy()[np.isin(stored.to_numpy(), keys)].astype(np.int64))
        sharing = np.unique(np.concatenate(result))
        if len(sharing) and sharing[-1] >= self._signatures.num_rows:
            raise CorruptDataError("a band has a document that is not there", path=self._path(BANDS_FILE))
        return sharing

    def _read(self, documents: Int64s) -> tuple[Int64s, Signatures]:
        projection = self._signatures.schema.select(["_rowid", "signature"])
        batch = self._signatures.take(projection, self._signatures.column_numbers, documents)
        return self._decoded(batch.column("_rowid"), batch.column("signature"))

    def _decoded(self, rows: pa.Array, signatures: pa.Array) -> tuple[Int64s, Signatures]:
        values = signatures.flatten()
        if rows.null_count or signatures.null_count or values.null_count:
            raise CorruptDataError("a signature is null", path=self._path(SIGNATURES_FILE))
        return rows.to_numpy().astype(np.int64), values.to_numpy().reshape(len(rows), -1)

    def _opened(self, name: str) -> DataFileReader:
        reader = self._files.open(name)
        version = reader.schema.metadata.get(VERSION_KEY)
        if version != str(VERSION).encode():
            raise UnsupportedError(f"near-duplicate indices of version {version!r} are not supported")
        return reader

    def _path(self, name: str) -> str:
        return self._files.path(name)


class MinHashKind:
    """The kind ``MINHASHLSH``."""

    name = "MINHASHLSH"
    type_url = TYPE_URL
    index_versions = frozenset({VERSION})
    default_options: Mapping[str, int] = {MEMORY_OPTION: DEFAULT_MEMORY}

    def takes(self, kind: pa.DataType) -> bool:
        """Return whether values are texts."""
        return is_text(kind)

    def open(self, files: SegmentFiles, column: IndexedColumn) -> Segment:
        """Return a segment; nothing is read yet."""
        del column
        return MinHashSegment(files)

    def build(
        self, target: SegmentTarget, fragments: Iterable[FragmentColumn], options: Mapping[str, int]
    ) -> SegmentContent:
        """Read the column and write the signatures of its texts."""
        from lance_core.index.text.minhash_build import signed, write_signatures  # noqa: PLC0415 rarely needed

        details = MinHashOptions()
        batches = (pair for fragment in fragments for pair in fragment.batches(by_row_id=target.with_stable_row_ids))
        return write_signatures(target.files, details, signed(Signer(details), batches), options[MEMORY_OPTION])

    def rewrite(self, target: SegmentTarget, segments: Sequence[tuple[Segment, Relocation]]) -> SegmentContent:
        """Write the signatures of segments with the rows where they are now.

        Raises:
            UnsupportedError: Segments whose signatures cannot be compared.
        """
        from lance_core.index.text.minhash_build import relocated, write_signatures  # noqa: PLC0415 rarely needed

        parts = [(segment, relocate) for segment, relocate in segments if isinstance(segment, MinHashSegment)]
        details = parts[0][0].details
        if any(segment.details != details for segment, _ in parts):
            raise UnsupportedError("segments of near-duplicate indices with different options cannot be merged")
        content = relocated([(segment.content(), relocate) for segment, relocate in parts])
        return write_signatures(target.files, details, content, DEFAULT_MEMORY)


MINHASH = MinHashKind()
