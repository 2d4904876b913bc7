"""Vector indices: the kind of index that finds the nearest vectors, mostly.

The layout of the files is described in `lance_core.format.index.vector_index`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lance_core.errors import UnsupportedError
from lance_core.format.index.vector_index import TYPE_URL, VERSION, encode_details
from lance_core.index.protocol import MODEL, SegmentContent
from lance_core.index.vector.build import PartitionedRows, add_fragments, add_segment
from lance_core.index.vector.codes import ProductCodes, ScalarCodes
from lance_core.index.vector.distances import L2, is_vector
from lance_core.index.vector.segment import VectorSegment
from lance_core.index.vector.train import INDEX_TYPES, train_model

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from lance_core.index.column import IndexedColumn
    from lance_core.index.files import SegmentFiles
    from lance_core.index.protocol import FragmentColumn, Relocation, Segment, SegmentTarget
    from lance_core.index.vector.segment import Model

DEFAULT_OPTIONS: Mapping[str, Any] = {
    "index_type": "IVF_FLAT",
    "metric": L2,
    "num_partitions": None,
    "target_partition_size": None,
    "num_sub_vectors": None,
    "num_bits": 8,
    "ivf_centroids": None,
    "pq_codebook": None,
    "sample_rate": 256,
    "max_iters": 50,
    MODEL: None,
}


class VectorKind:
    """Vector indices of types that lance_core builds, for `lance_core.index.kinds`."""

    name = "VECTOR"
    type_url = TYPE_URL
    index_versions = frozenset({VERSION})
    default_options = DEFAULT_OPTIONS

    def takes(self, kind: pa.DataType) -> bool:
        """Return whether values of a type are vectors."""
        return is_vector(kind)

    def open(self, files: SegmentFiles, column: IndexedColumn) -> VectorSegment:
        """Open a segment; its files are read when they are needed."""
        return VectorSegment(files, column)

    def train(self, column: IndexedColumn, fragments: Iterable[FragmentColumn], options: Mapping[str, Any]) -> Model:
        """Learn the centroids, and the codes of vectors."""
        return train_model(column, fragments, options)[0]

    def build(
        self, target: SegmentTarget, fragments: Iterable[FragmentColumn], options: Mapping[str, Any]
    ) -> SegmentContent:
        """Learn a model, unless it is given, and write the vectors of all fragments by it."""
        model, loss = options[MODEL], None
        if model is None:
            model, loss = train_model(target.column, fragments, options)
        with PartitionedRows(model) as partitioned:
            add_fragments(partitioned, model, fragments, by_row_id=target.with_stable_row_ids)
            partitioned.write(target.files, loss)
        return _content(model, options)

    def rewrite(self, target: SegmentTarget, segments: Sequence[tuple[Segment, Relocation]]) -> SegmentContent:
        """Merge segments of one model, or move their rows.

        Raises:
            UnsupportedError: Their models differ.
        """
        opened = [(segment, relocate) for segment, relocate in segments if isinstance(segment, VectorSegment)]
        model = opened[0][0].model
        if not all(_is_same(model, segment.model) for segment, _ in opened):
            raise UnsupportedError("segments of a vector index with other centroids or codes cannot be merged")
        with PartitionedRows(model) as partitioned:
            for number in range(len(model.centroids)):
                for segment, relocate in opened:
                    rows, values = segment.read(number)
                    add_segment(partitioned, number, rows, segment.model.codes.rows_of(values), relocate)
            partitioned.write(target.files)
        return _content(model, self.default_options)


def _content(model: Model, options: Mapping[str, Any]) -> SegmentContent:
    codes = model.codes
    parts, bits = (codes.num_parts, codes.num_bits) if isinstance(codes, ProductCodes) else (0, 8)
    details = encode_details(
        model.index_type,
        model.metric,
        num_bits=bits,
        num_sub_vectors=parts,
        target_partition_size=options["target_partition_size"] or 0,
        hints={"lance.ivf.max_iters": str(options["max_iters"]), "lance.ivf.sample_rate": str(options["sample_rate"])},
    )
    return SegmentContent(index_version=VERSION, details=details)


def _is_same(left: Model, right: Model) -> bool:
    """Return whether two segments have the same partitions and codes."""
    if left is right:
        return True
    if (left.index_type, left.metric) != (right.index_type, right.metric):
        return False
    if left.index_type not in INDEX_TYPES or not np.array_equal(left.centroids, right.centroids):
        return False
    match left.codes, right.codes:
        case ProductCodes(), ProductCodes():
            return np.array_equal(left.codes.codebook, right.codes.codebook)
        case ScalarCodes(), ScalarCodes():
            return (left.codes.start, left.codes.end) == (right.codes.start, right.codes.end)
        case _:
            return True


VECTOR = VectorKind()
