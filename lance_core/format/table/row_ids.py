"""Stable row ids and row versions of a fragment.

Source: messages ``RowIdSequence`` and ``RowDatasetVersionSequence`` of package ``lance.table``. Bitmaps count from the
least significant bit (the specification says the opposite; pylance 14.0.2 writes and reads it this way).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError

from lance_core._proto import rowids_pb2
from lance_core.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Sequence

UInt64s: TypeAlias = npt.NDArray[np.uint64]

_SEGMENT_OVERHEAD = 24
_MIN_STRETCH = 64
"""Rows that an ascending stretch has on average, at least, to be a segment of its own."""
_MAX_ROWS = 1 << 32


def encode_row_ids(ids: UInt64s) -> bytes:
    """Encode row ids, shape (n,), in row order; a few ascending stretches become a segment each."""
    edges = [0, *(np.flatnonzero(ids[1:] <= ids[:-1]) + 1).tolist(), len(ids)]
    if len(edges) > 2 + len(ids) // _MIN_STRETCH:
        edges = [0, len(ids)]
    segments = [_encode_segment(ids[start:end]) for start, end in pairwise(edges) if start < end]
    return rowids_pb2.RowIdSequence(segments=segments).SerializeToString()


def encode_row_id_range(start: int, end: int) -> bytes:
    """Encode the row ids [start, end)."""
    return rowids_pb2.RowIdSequence(segments=[_range(start, end)] if end > start else []).SerializeToString()


def decode_row_ids(data: bytes, *, num_rows: int) -> UInt64s:
    """Decode row ids.

    Args:
        data: Encoded ``RowIdSequence``.
        num_rows: Physical rows of the fragment.

    Returns:
        Shape (num_rows,), in row order.

    Raises:
        CorruptDataError: Not a sequence of so many ids.
    """
    segments = _segments(data)
    _check_count(sum(_count(segment) for segment in segments), num_rows)
    parts = [_decode_segment(segment) for segment in segments]
    ids = np.concatenate(parts) if parts else np.empty(0, np.uint64)
    _check_count(len(ids), num_rows)  # holes that lie outside their range, or are listed twice
    return ids


def count_row_ids(data: bytes) -> int:
    """Count the row ids of a sequence without expanding them.

    Raises:
        CorruptDataError: Not a sequence of row ids.
    """
    return sum(_count(segment) for segment in _segments(data))


def row_id_bounds(data: bytes) -> tuple[int, int] | None:
    """Bounds of the row ids of a sequence; ranges are not expanded.

    Returns:
        Numbers that no id is below or above; None if there are no ids.

    Raises:
        CorruptDataError: Not a sequence of row ids.
    """
    bounds = [segment_bounds for segment in _segments(data) if (segment_bounds := _bounds(segment)) is not None]
    return (min(low for low, _ in bounds), max(high for _, high in bounds)) if bounds else None


def row_id_range(data: bytes) -> tuple[int, int] | None:
    """Return the first row id of a sequence that is one range, and the number behind the last one; else None.

    Raises:
        CorruptDataError: Not a sequence of row ids.
    """
    segments = _segments(data)
    if len(segments) != 1 or segments[0].WhichOneof("segment") != "range":
        return None
    return segments[0].range.start, segments[0].range.end


def _segments(data: bytes) -> Sequence[rowids_pb2.U64Segment]:
    try:
        return rowids_pb2.RowIdSequence.FromString(data).segments
    except DecodeError as error:
        raise CorruptDataError(f"the row ids cannot be decoded: {error}") from error


def encode_row_versions(versions: UInt64s) -> bytes:
    """Encode the version of each row, shape (n,), in row order."""
    edges = np.flatnonzero(np.diff(versions, prepend=versions[:1] + np.uint64(1), append=np.uint64(0)))
    if len(versions) and (not len(edges) or edges[-1] != len(versions)):
        edges = np.append(edges, len(versions))
    sequence = rowids_pb2.RowDatasetVersionSequence()
    for start, end in pairwise(edges.tolist()):
        sequence.runs.add(span=_range(start, end), version=int(versions[start]))
    return sequence.SerializeToString()


def encode_row_version(version: int, *, num_rows: int) -> bytes:
    """Encode one version for all rows."""
    run = rowids_pb2.RowDatasetVersionRun(span=_range(0, num_rows), version=version)
    return rowids_pb2.RowDatasetVersionSequence(runs=[run]).SerializeToString()


def decode_row_versions(data: bytes, *, num_rows: int) -> UInt64s:
    """Decode the version of each row; only the length of a run's span counts, not the values in it.

    Returns:
        Shape (num_rows,), in row order.

    Raises:
        CorruptDataError: Not a sequence for so many rows.
    """
    try:
        runs = rowids_pb2.RowDatasetVersionSequence.FromString(data).runs
    except DecodeError as error:
        raise CorruptDataError(f"the row versions cannot be decoded: {error}") from error
    counts = [_count(run.span) for run in runs]
    _check_count(sum(counts), num_rows)
    return np.repeat(np.array([run.version for run in runs], np.uint64), counts)


def _check_count(count: int, num_rows: int) -> None:
    if count != num_rows:
        raise CorruptDataError(f"a sequence of row ids or versions has {count} entries for {num_rows} rows")


# ------------------------------------------------------------------------------------------------------------- segments


def _range(start: int, end: int) -> rowids_pb2.U64Segment:
    return rowids_pb2.U64Segment(range=rowids_pb2.U64Segment.Range(start=start, end=end))


def _encode_segment(ids: UInt64s) -> rowids_pb2.U64Segment:
    if not (ids[1:] > ids[:-1]).all():
        return rowids_pb2.U64Segment(array=_encode_array(ids))
    start, end = int(ids[0]), int(ids[-1]) + 1
    holes = end - start - len(ids)
    if holes == 0:
        return _range(start, end)
    sizes = (
        _SEGMENT_OVERHEAD + 4 * holes,
        _SEGMENT_OVERHEAD + -(-(end - start) // 8),
        _SEGMENT_OVERHEAD + 2 * len(ids),
    )
    if sizes[2] < min(sizes[:2]):
        return rowids_pb2.U64Segment(sorted_array=_encode_array(ids))
    present = np.zeros(end - start, np.bool_)
    present[(ids - np.uint64(start)).astype(np.int64)] = True
    if sizes[0] <= sizes[1]:
        missing = np.flatnonzero(~present).astype(np.uint64) + np.uint64(start)
        with_holes = rowids_pb2.U64Segment.RangeWithHoles(start=start, end=end, holes=_encode_array(missing))
        return rowids_pb2.U64Segment(range_with_holes=with_holes)
    bitmap = np.packbits(present, bitorder="little").tobytes()
    with_bitmap = rowids_pb2.U64Segment.RangeWithBitmap(start=start, end=end, bitmap=bitmap)
    return rowids_pb2.U64Segment(range_with_bitmap=with_bitmap)


def _encode_array(values: UInt64s) -> rowids_pb2.EncodedU64Array:
    base = int(values.min())
    width = int(values.max()) - base
    offsets = values - np.uint64(base)
    if width < 1 << 16:
        u16 = rowids_pb2.EncodedU64Array.U16Array(base=base, offsets=offsets.astype("<u2").tobytes())
        return rowids_pb2.EncodedU64Array(u16_array=u16)
    if width < 1 << 32:
        u32 = rowids_pb2.EncodedU64Array.U32Array(base=base, offsets=offsets.astype("<u4").tobytes())
        return rowids_pb2.EncodedU64Array(u32_array=u32)
    u64 = rowids_pb2.EncodedU64Array.U64Array(values=values.astype("<u8").tobytes())
    return rowids_pb2.EncodedU64Array(u64_array=u64)


def _count(segment: rowids_pb2.U64Segment) -> int:
    """Return number of values, found without expanding them: a damaged range may claim to be as long as memory."""
    match segment.WhichOneof("segment"):
        case "range":
            count = segment.range.end - segment.range.start
        case "range_with_holes":
            holes = segment.range_with_holes
            count = holes.end - holes.start - len(_decode_array(holes.holes))
        case "range_with_bitmap":
            bitmap = segment.range_with_bitmap
            _check_bitmap(bitmap)
            count = int.from_bytes(bitmap.bitmap, "little").bit_count()
        case "sorted_array":
            count = len(_decode_array(segment.sorted_array))
        case "array":
            count = len(_decode_array(segment.array))
        case _:
            raise CorruptDataError("a segment of row ids has no known form")
    if not 0 <= count < _MAX_ROWS:
        raise CorruptDataError("a segment of row ids has an impossible length")
    return count


def _bounds(segment: rowids_pb2.U64Segment) -> tuple[int, int] | None:
    match segment.WhichOneof("segment"):
        case "range" | "range_with_holes" | "range_with_bitmap" as name:
            span = getattr(segment, name)
            return (span.start, span.end - 1) if span.start < span.end else None
        case "sorted_array" | "array" as name:
            values = _decode_array(getattr(segment, name))
            return (int(values.min()), int(values.max())) if len(values) else None
        case _:
            raise CorruptDataError("a segment of row ids has no known form")


def _check_bitmap(segment: rowids_pb2.U64Segment.RangeWithBitmap) -> None:
    slots = segment.end - segment.start
    if slots < 0 or len(segment.bitmap) != -(-slots // 8) or int.from_bytes(segment.bitmap, "little") >> slots:
        raise CorruptDataError("a bitmap of row ids does not fit its range")


def _decode_segment(segment: rowids_pb2.U64Segment) -> UInt64s:
    match segment.WhichOneof("segment"):
        case "range":
            return np.arange(segment.range.start, segment.range.end, dtype=np.uint64)
        case "range_with_holes":
            with_holes = segment.range_with_holes
            _check_span(with_holes.start, with_holes.end)
            whole = np.arange(with_holes.start, with_holes.end, dtype=np.uint64)
            return whole[~np.isin(whole, _decode_array(with_holes.holes))]
        case "range_with_bitmap":
            with_bitmap = segment.range_with_bitmap
            _check_span(with_bitmap.start, with_bitmap.end)
            bits = np.unpackbits(np.frombuffer(with_bitmap.bitmap, np.uint8), bitorder="little")
            return np.flatnonzero(bits).astype(np.uint64) + np.uint64(with_bitmap.start)
        case "sorted_array":
            return _decode_array(segment.sorted_array)
        case _:
            return _decode_array(segment.array)


def _check_span(start: int, end: int) -> None:
    if end - start >= _MAX_ROWS:
        raise CorruptDataError("a range of row ids is longer than a fragment can be")


def _decode_array(array: rowids_pb2.EncodedU64Array) -> UInt64s:
    try:
        match array.WhichOneof("array"):
            case "u16_array":
                return _offset_by(array.u16_array.base, np.frombuffer(array.u16_array.offsets, "<u2"))
            case "u32_array":
                return _offset_by(array.u32_array.base, np.frombuffer(array.u32_array.offsets, "<u4"))
            case "u64_array":
                return np.frombuffer(array.u64_array.values, "<u8").astype(np.uint64)
            case _:
                return np.empty(0, np.uint64)
    except ValueError as error:
        raise CorruptDataError("an array of row ids has a broken length") from error


def _offset_by(base: int, offsets: Sequence[int] | npt.NDArray[np.generic]) -> UInt64s:
    return np.asarray(offsets).astype(np.uint64) + np.uint64(base)
