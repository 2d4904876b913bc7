"""One segment of a vector index, opened: its partitions are ranked for each query, and the best ones are searched.

Graphs (HNSW) are not walked: they lead to rows of a partition, all of which are compared here.
"""

from __future__ import annotations

from collections import deque
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lance_core.common.frozen import NamedTuple, frozen
from lance_core.common.last_made import KeepsLast
from lance_core.errors import CorruptDataError, NotFoundError, UnsupportedError
from lance_core.format.index.rabit import decode_rabit_layout
from lance_core.format.index.vector_index import (
    CODEBOOK_BUFFER,
    INDEX_KEY,
    IVF_BUFFER,
    METRIC_KEY,
    PARTITION_FILE,
    ROW_COLUMN,
    ROW_FILE,
    STORAGE_KEY,
    decode_json,
    decode_partitions,
    decode_tensor,
)
from lance_core.index.cache import BoundedCache
from lance_core.index.files import read_ranges
from lance_core.index.protocol import MODEL
from lance_core.index.vector.candidates import CandidateRows, Candidates
from lance_core.index.vector.codes import FlatCodes, ProductCodes, ScalarCodes, bytes_of_row, columns_of, joined_columns
from lance_core.index.vector.comparisons import RunRows
from lance_core.index.vector.distances import COSINE, HAMMING, L2, all_distances, normalized, pair_distances
from lance_core.index.vector.rabit import RabitCodes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from lance_core.file.read.reader import DataFileReader
    from lance_core.format.index.rabit import RabitLayout
    from lance_core.format.index.vector_index import Partitions
    from lance_core.index.answer import RowAnswer
    from lance_core.index.column import IndexedColumn
    from lance_core.index.files import SegmentFiles
    from lance_core.index.vector.codes import Codes
    from lance_core.index.vector.comparisons import Comparison, OpenedPartition
    from lance_core.index.vector.distances import Doubles, Int64s, Vectors
    from lance_core.index.vector.top_rows import TopRows
    from lance_core.sql.pruning import Question


_ENOUGH = 5
"""Without a number of partitions, more are searched until so many times as many rows as wanted were compared."""


_SPARSE = 4
"""Of a partition with so many times as many rows as are searched, the codes of these are picked before they are
compared."""
_RUN_BYTES = 16 << 20
"""Bytes of partitions that are read together, which spares most of the steps of a read."""
_ROW_NUMBER_BYTES = 8


@frozen(kw_only=True)
class Probes:
    """Number of partitions of an index that are searched.

    Attributes:
        minimum: Partitions that are searched in any case.
        maximum: Partitions at most; None for all.
        effort: From 0 to 1: the share, on a geometric scale, of the partitions that are searched at first.
    """

    minimum: int
    maximum: int | None
    effort: float


@frozen(kw_only=True)
class Model:
    """Model of a vector index, trained before vectors are indexed.

    Attributes:
        index_type: Such as ``IVF_PQ``.
        metric: Name of the metric.
        centroids: Shape (partitions, dimensions).
        codes: How vectors are stored.
    """

    index_type: str
    metric: str
    centroids: Vectors
    codes: Codes


@frozen(kw_only=True)
class _Opened:
    model: Model
    partitions: Partitions
    reader: DataFileReader


class VectorSegment(KeepsLast):
    """One segment; its files are opened when they are needed first.

    Args:
        files: Its files.
        column: The column.
    """

    def __init__(self, files: SegmentFiles, column: IndexedColumn) -> None:
        self._files = files
        self._column = column
        self._content: _Opened | None = None
        self._cache: BoundedCache[int, tuple[Int64s, OpenedPartition]] = BoundedCache()

    @property
    def path(self) -> str:
        """Path of the rows, for errors."""
        return self._files.path(ROW_FILE)

    @property
    def model(self) -> Model:
        """Centroids and codes."""
        return self._opened.model

    @property
    def partitions(self) -> Partitions:
        """First row and number of rows of each partition."""
        return self._opened.partitions

    @property
    def options(self) -> Mapping[str, Any]:
        """Options that it was built with, and its model, so that rows added to the index get the same partitions."""
        model = self.model
        given: dict[str, Any] = {"index_type": model.index_type, "metric": model.metric, MODEL: model}
        given["num_partitions"] = max(len(model.centroids), 1)
        if isinstance(model.codes, ProductCodes):
            given |= {"num_sub_vectors": model.codes.num_parts, "num_bits": model.codes.num_bits}
        return given

    @property
    def statistics(self) -> Mapping[str, Any]:
        """Type, metric, number of partitions, and rows of each."""
        lengths = self.partitions.lengths
        return {
            "index_type": self.model.index_type,
            "metric_type": self.model.metric,
            "num_partitions": len(lengths),
            "partitions": [{"size": size} for size in lengths.tolist()],
            "imbalance": float(lengths.max() * len(lengths) / lengths.sum()) if lengths.sum() else 0.0,
        }

    def answer(self, question: Question, *, tells_null: bool) -> RowAnswer | None:  # noqa: ARG002 as in the protocol
        """Conditions are not answered."""
        return None

    # -------------------------------------------------------------------------------------------------------- search

    def search(self, queries: Vectors, probes: Probes, k: int, top: TopRows, searched: SearchedRows) -> None:
        """Find the nearest rows.

        Args:
            queries: Shape (queries, dimensions).
            probes: Partitions to search.
            k: Rows that are wanted for each query.
            top: Where the nearest rows are kept, by their positions; its queries have the numbers of these.
            searched: The rows to search.

        Raises:
            CorruptDataError: A file is damaged.
        """
        model = self.model
        if model.metric == COSINE:
            queries = normalized(queries.astype(np.float64)).astype(queries.dtype)
        order = self._ranked(queries)
        total = order.shape[1]
        most = total if probes.maximum is None else min(probes.maximum, total)
        # A tiny step below, lest a power that is whole is rounded up.
        first = min(max(int(np.ceil(total**probes.effort - 1e-9)), probes.minimum), most) if total else 0
        self._prepare(np.unique(order[:, :first]).tolist())
        search = _PartitionSearch(self, model.codes.compared(queries), top, searched)
        search.add(order[:, : min(first, 1)])  # bounds from the nearest partition spare most rows of the others
        search.add(order[:, min(first, 1) : first])
        while first < most and (is_lacking := search.num_compared < _ENOUGH * k).any():
            # Twice as many each time: few rows that match a filter may be anywhere.
            more = min(max(2 * first, 1), most)
            search.add(np.where(is_lacking[:, None], order[:, first:more], -1))
            first = more
        search.finish()

    @cached_property
    def _centroids(self) -> Doubles:
        """Centroids in double precision."""
        return self.model.centroids.astype(np.float64)

    def _ranked(self, queries: Vectors) -> Int64s:
        """Return the partitions of each query, the nearest first; shape (queries, partitions)."""
        metric = self.model.metric
        if metric == HAMMING:
            centroids = self.model.centroids
            distances = np.stack([pair_distances(query[None], centroids, HAMMING) for query in queries])
        else:
            distances = all_distances(queries, self._centroids, L2 if metric == COSINE else metric)
        return np.argsort(distances, axis=1, kind="stable")

    def opened(self, numbers: Sequence[int]) -> Iterator[tuple[int, Int64s, OpenedPartition]]:
        """Return the row numbers and codes of partitions; those used last are kept.

        Args:
            numbers: Numbers of partitions, each once; they are returned in this order.

        Raises:
            CorruptDataError: The file is damaged.
        """
        missing = deque(number for number in numbers if self._cache.get(number) is None)
        ready: dict[int, tuple[Int64s, OpenedPartition]] = {}
        for number in numbers:
            if missing and number == missing[0]:
                ready = self._read_together(self._next(missing))
            partition = ready.pop(number, None) or self._cache.get(number)
            if partition is None:  # it was dropped meanwhile
                partition = self._read_together([number])[number]
            yield number, *partition

    def _prepare(self, numbers: Sequence[int]) -> None:
        """Read partitions that will be searched at one go, if they are few."""
        missing = [number for number in numbers if self._cache.get(number) is None]
        if len(missing) > 1 and sum(map(self._num_bytes, missing)) <= _RUN_BYTES:
            self._read_together(missing)

    def _next(self, missing: deque[int]) -> list[int]:
        """Take out the partitions that are read together next."""
        result = [missing.popleft()]
        total = self._num_bytes(result[0])
        while missing and (total := total + self._num_bytes(missing[0])) <= _RUN_BYTES:
            result.append(missing.popleft())
        return result

    def _num_bytes(self, number: int) -> int:
        return int(self.partitions.lengths[number]) * (_ROW_NUMBER_BYTES + bytes_of_row(self.model.codes.field))

    def _read_together(self, numbers: Sequence[int]) -> dict[int, tuple[Int64s, OpenedPartition]]:
        """Read partitions at one go, and keep them."""
        result: dict[int, tuple[Int64s, OpenedPartition]] = {}
        for number, (ids, values) in zip(numbers, self._read_rows(numbers), strict=True):
            rows = np.asarray(ids).astype(np.int64)
            opened = self.model.codes.opened(_alone(values), self.model.centroids[number])
            self._cache.put(number, (rows, opened), rows.nbytes + opened.num_bytes)
            result[number] = rows, opened
        return result

    def read(self, number: int) -> tuple[Int64s, Any]:
        """Read the row numbers and the column of codes of a partition.

        Raises:
            CorruptDataError: The file is damaged.
        """
        ((ids, values),) = self._read_rows([number])
        return np.asarray(ids).astype(np.int64), values

    def _read_rows(self, numbers: Sequence[int]) -> Iterator[tuple[Any, Any]]:
        """Read the row numbers and the codes of partitions at one go; they may share their memory."""
        opened = self._opened
        starts, ends = self.partitions.starts, self.partitions.starts + self.partitions.lengths
        ranges = [range(int(starts[number]), int(ends[number])) for number in numbers]
        field = opened.model.codes.field
        names = [ROW_COLUMN, *(column.name for column in columns_of(field))]
        for ids, *columns in read_ranges(opened.reader, names, ranges):
            if ids.null_count or any(column.null_count for column in columns):
                raise CorruptDataError("a vector index has rows without a number or code", path=self.path)
            yield ids, joined_columns(field, columns)

    # -------------------------------------------------------------------------------------------------------- opening

    @property
    def _opened(self) -> _Opened:
        if self._content is None:
            self._content = self._open()
        return self._content

    def _open(self) -> _Opened:
        path = self._files.path(PARTITION_FILE)
        index = self._files.open(PARTITION_FILE)
        header = index.schema.metadata.get(INDEX_KEY)
        try:
            rows = self._files.open(ROW_FILE)
        except NotFoundError as error:
            if header is not None:
                raise
            raise UnsupportedError(f"vector index {path} has a layout older than V3; build it again") from error
        storage = rows.schema.metadata.get(STORAGE_KEY)
        if header is None or storage is None:
            raise CorruptDataError("the vector index has no metadata", path=path)
        described, details = decode_json(header, path=path), decode_json(storage, path=path)
        centroids = decode_partitions(index.global_buffer(IVF_BUFFER), path=path).centroids
        partitions = decode_partitions(rows.global_buffer(IVF_BUFFER), path=self.path)
        try:
            kind, metric = str(described["type"]), str(described.get(METRIC_KEY, "l2"))
            codes = self._codes(kind, metric, details, rows)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise CorruptDataError(f"the vector index has wrong metadata: {error!r}", path=path) from error
        self._check(partitions, centroids, rows, codes)
        model = Model(index_type=kind, metric=metric, centroids=centroids, codes=codes)
        return _Opened(model=model, partitions=partitions, reader=rows)

    def _codes(self, kind: str, metric: str, details: Mapping[str, Any], rows: DataFileReader) -> Codes:
        item, size = self._column.type.value_type, self._column.type.list_size
        suffix = kind.rpartition("_")[2]
        if suffix == "FLAT":
            return FlatCodes(item, size, metric)
        if suffix == "SQ":
            bounds = details["bounds"]
            return ScalarCodes(size, float(bounds["start"]), float(bounds["end"]), metric)
        if suffix == "PQ":
            tensor = decode_tensor(
                rows.global_buffer(int(details.get("codebook_position", CODEBOOK_BUFFER))), path=self.path
            )
            parts, bits = int(details["num_sub_vectors"]), int(details["nbits"])
            book = tensor.reshape(parts, 1 << bits, size // parts)
            return ProductCodes(book, metric, is_transposed=bool(details.get("transposed")))
        if suffix == "RQ":
            layout = decode_rabit_layout(details, rows.schema.names, size)
            return RabitCodes(layout, self._rotation(rows, layout), metric)
        raise UnsupportedError(
            f"lance_core does not search vector indices of type {kind}, only of FLAT, PQ, SQ and RQ codes; build one "
            "of these, or compare all vectors with use_index=False"
        )

    def _rotation(self, rows: DataFileReader, layout: RabitLayout) -> Vectors | None:
        if layout.matrix_buffer is None:
            return None
        return decode_tensor(rows.global_buffer(layout.matrix_buffer), path=self.path).reshape(layout.size, layout.size)

    def _check(self, partitions: Partitions, centroids: Vectors, rows: DataFileReader, codes: Codes) -> None:
        size = self._column.type.list_size
        stored = {field.name: field.type for field in rows.schema.to_arrow()}
        ends = partitions.starts + partitions.lengths
        if (
            any(stored.get(column.name) != column.type for column in columns_of(codes.field))
            or ROW_COLUMN not in stored
            or len(centroids) != len(partitions.lengths)
            or (len(centroids) and centroids.shape[1] != size)
            or (partitions.starts < 0).any()
            or (ends > rows.num_rows).any()
        ):
            raise CorruptDataError("the vector index does not fit its column, or contradicts itself", path=self.path)


def _alone(array: Any) -> Any:
    """Return an array that keeps no more than itself in memory."""
    return pa.concat_arrays([array]) if array.get_total_buffer_size() > 2 * array.nbytes else array


class RowLocator:
    """Finds the rows of partitions, and remembers where they are.

    Args:
        locate: Returns the position of each row number among the rows of a version; -1 for rows that are not live.
    """

    def __init__(self, locate: Callable[[Int64s], Int64s]) -> None:
        self._locate = locate
        self._cache: BoundedCache[int, tuple[Int64s, Int64s]] = BoundedCache()

    def of(self, number: int, rows: Int64s) -> tuple[Int64s, Int64s]:
        """Return the positions of the rows of a partition, and the places of those that have none."""
        cached = self._cache.get(number)
        if cached is None:
            positions = self._locate(rows)
            cached = positions, np.flatnonzero(positions < 0)
            self._cache.put(number, cached, sum(array.nbytes for array in cached))
        return cached


class _Probed(NamedTuple):
    """A partition that is searched.

    Attributes:
        opened: Its codes.
        positions: Shape (rows,); -1 for rows that are not searched.
        gone: Places of these.
    """

    opened: OpenedPartition
    positions: Int64s
    gone: Int64s


@frozen(kw_only=True)
class SearchedRows:
    """The rows of a segment that are searched.

    Attributes:
        locator: Finds rows.
        mask: Shape (rows of the version + 1,), which of them are searched, and a last item that is false; None for all.
    """

    locator: RowLocator
    mask: npt.NDArray[np.bool_] | None

    def of(self, number: int, rows: Int64s, opened: OpenedPartition) -> _Probed:
        """Return a partition with the rows that are searched; with no others, if these are few."""
        positions, gone = self.locator.of(number, rows)
        if self.mask is not None:
            is_searched = self.mask.take(positions)  # rows that are not live ask for the last item
            searched = np.flatnonzero(is_searched)
            if len(searched) * _SPARSE < len(rows):
                opened = opened.chosen(searched) if len(searched) else opened
                return _Probed(opened, positions[searched], gone[:0])
            positions, gone = np.where(is_searched, positions, -1), np.flatnonzero(~is_searched)
        return _Probed(opened, positions, gone)


class _PartitionSearch:
    """Compares queries with partitions of a segment.

    Args:
        segment: The segment.
        comparison: The queries.
        top: Where the nearest rows are kept.
        searched: The rows to search.
    """

    def __init__(self, segment: VectorSegment, comparison: Comparison, top: TopRows, searched: SearchedRows) -> None:
        self._segment = segment
        self._comparison = comparison
        self._top = top
        self._searched = searched
        self._candidates = Candidates(len(top.bounds), top.k if top.lower == -np.inf else None)
        self.num_compared = np.zeros(len(top.bounds), np.int64)
        """Shape (queries,): rows that each query was compared with."""

    def add(self, chosen: Int64s) -> None:
        """Search partitions, shape (queries, partitions), for the queries that chose them; -1 is none."""
        asking, _ = np.nonzero(chosen >= 0)
        flat = chosen[chosen >= 0]
        numbers = np.unique(flat)
        if len(numbers) and self._comparison.is_by_query(len(flat) / len(numbers)):
            for query in np.unique(asking).tolist():
                self._add(np.unique(chosen[query][chosen[query] >= 0]), [np.array([query])])
            return
        order = np.argsort(flat, kind="stable")
        self._add(numbers, np.split(asking[order], np.searchsorted(flat[order], numbers)[1:]))

    def _add(self, numbers: Int64s, members: Sequence[Int64s]) -> None:
        """Search partitions for the queries that are beside each, or all for the same ones."""
        run: list[_Probed] = []
        # Those of one query are compared together, which spares most of the steps, unless all rows are candidates.
        most = _RUN_BYTES if len(members) == 1 and self._top.lower == -np.inf else 0
        num_bytes = 0
        for at, (number, rows, opened) in enumerate(self._segment.opened(numbers.tolist())):
            probed = self._searched.of(number, rows, opened)
            if len(probed.gone) < len(probed.positions):
                run.append(probed)
                num_bytes += probed.opened.num_bytes
            if num_bytes > most:
                self._compare(run, members[at if len(members) > 1 else 0])
                run.clear()
                num_bytes = 0
        if run:
            self._compare(run, members[0])

    def _compare(self, run: Sequence[_Probed], members: Int64s) -> None:
        """Compare queries with partitions."""
        opened = [probed.opened for probed in run]
        lengths = [len(probed.positions) for probed in run]
        keys, margins = self._comparison.keys(members, opened, self._candidates.limits[members])
        positions = np.concatenate([probed.positions for probed in run])
        num_gone = 0
        for probed, end in zip(run, accumulate(lengths), strict=True):
            if len(probed.gone):
                keys[:, end - len(probed.positions) + probed.gone] = np.inf
                num_gone += len(probed.gone)
        self.num_compared[members] += len(positions) - num_gone
        at, near = self._candidates.near(members, keys, margins)
        if num_gone:
            is_searched = positions[near] >= 0
            at, near = at[is_searched], near[is_searched]
        if len(near):
            rows = RunRows.at(near, lengths)
            candidates = CandidateRows(
                queries=members[at],
                keys=keys[at, near].astype(np.float64),
                margins=margins[at],
                rows=positions[near],
                vectors=np.empty((len(near), 0)),
            )
            self._candidates.add(self._comparison.candidates(candidates, opened, rows))
        if self._top.lower > -np.inf:  # all rows are candidates: do not hold those of all partitions
            self.finish()

    def finish(self) -> None:
        """Hand on the nearest rows."""
        candidates = self._candidates.finish()
        if candidates is not None:
            self._top.add(candidates.queries, self._comparison.distances(candidates), candidates.rows)
