"""Searches for near-duplicate texts: rows whose MinHash signatures share a band with that of a text.

Rows that no segment of the index covers are read and signed; they count if they share a band, too, as in pylance.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from lance_core.common.frozen import frozen
from lance_core.encoding.kernels import numbers_array
from lance_core.errors import InvalidInputError
from lance_core.format.index.minhash import TYPE_URL
from lance_core.format.table.fragment_list import without_ids
from lance_core.index.answer import ADDRESS_SHIFT
from lance_core.index.column import column_to_index
from lance_core.index.moved import original_segment
from lance_core.index.text.minhash import MinHashSegment
from lance_core.scan.deletions import contains
from lance_core.scan.fragment_columns import FragmentColumns
from lance_core.scan.indexed import document_rows, segments_over
from lance_core.scan.ranking import RankedRows
from lance_core.scan.search.row_mask import rows_to_search
from lance_core.scan.search.vector_ranking import DISTANCE, DISTANCE_FIELD

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from lance_core.format.table.fragment import Fragment
    from lance_core.format.table.manifest import Manifest
    from lance_core.index.text.query import MinHashQuery
    from lance_core.index.text.signatures import Signatures
    from lance_core.scan.indexed import OpenSegment
    from lance_core.scan.open_files import OpenFiles
    from lance_core.scan.plan import ScanPlan

Int64s: TypeAlias = npt.NDArray[np.int64]
_DEFAULT_COUNT = 10


@frozen(kw_only=True)
class DuplicateRanking:
    """A search for near duplicates in a version.

    Attributes:
        manifest: The version.
        query: What is searched.
        prefilter: Plan that asks which rows to search; None for all.
        count: Rows at most; None for 10.
        only_index: Leave out rows that no index covers.
        leading: No columns.
        trailing: The distance.
    """

    manifest: Manifest
    query: MinHashQuery
    prefilter: ScanPlan | None
    count: int | None
    only_index: bool
    leading: Sequence[pa.Field] = ()
    trailing: Sequence[pa.Field] = (DISTANCE_FIELD,)

    @property
    def text(self) -> str:
        """Description for explanations of the plan."""
        return f"near duplicates of a text in {self.query.column!r}"

    def rank(self, files: OpenFiles, fragments: Sequence[Fragment]) -> RankedRows:
        """Find the rows, ordered by distance and row address.

        Raises:
            CorruptDataError: A file of the index is damaged.
            InvalidInputError: The column has no such index.
        """
        segments = self._segments(files)
        allowed = None
        if self.prefilter is not None:
            allowed = rows_to_search(self.manifest, files, fragments, self.prefilter)
        signer = segments[0][1].signer
        signature = signer.signature(self.query.text)
        rows, distances = [np.empty(0, np.int64)], [np.empty(0)]
        if signature is not None:
            ids = np.array(sorted(fragment.id for fragment in fragments), np.int64)
            for addresses, signatures in self._candidates(files, fragments, segments, signature):
                is_searched = contains(ids, addresses >> ADDRESS_SHIFT)
                if allowed is not None:
                    is_searched &= allowed.has(addresses)
                rows.append(addresses[is_searched])
                distances.append(1 - np.mean(signatures[is_searched] == signature, axis=1))
        every, distance = np.concatenate(rows), np.concatenate(distances)
        order = np.lexsort((every, distance))[: _DEFAULT_COUNT if self.count is None else self.count]
        columns = {DISTANCE: numbers_array(distance[order].astype(np.float32))}
        return RankedRows(addresses=every[order].astype(np.uint64), columns=columns)

    def _segments(self, files: OpenFiles) -> list[tuple[OpenSegment, MinHashSegment]]:
        column = column_to_index(self.manifest.schema, self.query.column)
        result: list[tuple[OpenSegment, MinHashSegment]] = []
        for opened in segments_over(self.manifest, files, column, TYPE_URL):
            segment = original_segment(opened.segment)
            assert isinstance(segment, MinHashSegment)  # noqa: S101 for the type checker: the entry tells the kind
            result.append((opened, segment))
        if not result:
            raise InvalidInputError(
                f"column {self.query.column!r} has no index of near duplicates; build one with "
                f"create_scalar_index({self.query.column!r}, 'MINHASHLSH')"
            )
        return result

    def _candidates(
        self,
        files: OpenFiles,
        fragments: Sequence[Fragment],
        segments: Sequence[tuple[OpenSegment, MinHashSegment]],
        signature: Signatures,
    ) -> Iterator[tuple[Int64s, Signatures]]:
        """Return the addresses and signatures of rows that share a band."""
        for opened, segment in segments:
            locate = segment.kept_for(self.manifest, partial(document_rows, self.manifest, files, opened))
            rows, signatures = segment.near(signature)
            addresses = locate(rows)
            yield addresses[addresses >= 0], signatures[addresses >= 0]
        uncovered = [] if self.only_index else without_ids(fragments, [opened.fragment_ids for opened, _ in segments])
        if not uncovered:
            return
        column, signer = column_to_index(self.manifest.schema, self.query.column), segments[0][1].signer
        keys = signer.band_keys(signature)
        for values in FragmentColumns(files, uncovered, column):
            for addresses, texts in values.batches():
                for documents, signatures in signer.signatures(texts):
                    shares = (signer.band_keys(signatures) == keys).any(axis=1)
                    yield addresses[documents[shares]], signatures[shares]
