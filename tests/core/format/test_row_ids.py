import numpy as np
import pytest

from lance_core._proto import rowids_pb2
from lance_core.errors import CorruptDataError
from lance_core.format.table.row_ids import (
    decode_row_ids,
    decode_row_versions,
    encode_row_id_range,
    encode_row_ids,
    encode_row_version,
    encode_row_versions,
    row_id_bounds,
)


def ids_of(values):
    return np.array(values, np.uint64)


def form(data):
    return rowids_pb2.RowIdSequence.FromString(data).segments[0].WhichOneof("segment")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (range(5, 105), "range"),
        ([1 << 40], "range"),
        ([*range(200), *range(201, 500)], "range_with_holes"),
        (range(0, 200, 2), "range_with_bitmap"),
        (range(0, 200_000, 1000), "sorted_array"),
        ([5, 3, 9], "array"),
        ([1, 1 << 20, 5], "array"),
        ([0, 1 << 63, 3], "array"),
    ],
)
def test_round_trip_in_the_smallest_form(values, expected):
    data = encode_row_ids(ids_of(values))
    assert form(data) == expected
    assert decode_row_ids(data, num_rows=len(values)).tolist() == list(values)


def test_random_sequences():
    rng = np.random.default_rng(0)
    for step in range(200):
        values = np.unique(rng.integers(0, int(rng.choice([10, 100, 70_000, 1 << 40])), int(rng.integers(1, 200))))
        if step % 3 == 0:
            rng.shuffle(values)
        assert decode_row_ids(encode_row_ids(ids_of(values)), num_rows=len(values)).tolist() == values.tolist()


def test_ranges_and_nothing():
    assert decode_row_ids(encode_row_id_range(3, 6), num_rows=3).tolist() == [3, 4, 5]
    assert decode_row_ids(encode_row_id_range(3, 3), num_rows=0).tolist() == []
    assert decode_row_ids(encode_row_ids(ids_of([])), num_rows=0).tolist() == []


def test_count_must_fit_the_fragment():
    with pytest.raises(CorruptDataError):
        decode_row_ids(encode_row_id_range(0, 5), num_rows=6)


def segment(**form):
    return rowids_pb2.RowIdSequence(segments=[rowids_pb2.U64Segment(**form)]).SerializeToString()


@pytest.mark.parametrize(
    "data",
    [
        b"\xff",
        segment(),
        segment(range={"start": 0, "end": 1 << 60}),
        segment(range={"start": 9, "end": 2}),
        segment(range_with_bitmap={"start": 0, "end": 9, "bitmap": b"\xff"}),
        segment(range_with_bitmap={"start": 0, "end": 4, "bitmap": b"\xff"}),
        segment(range_with_bitmap={"start": 5, "end": 0, "bitmap": b""}),
        segment(array={"u32_array": {"base": 0, "offsets": b"\x01\x02\x03"}}),
        segment(range_with_holes={"start": 0, "end": 7, "holes": {"u16_array": {"offsets": b"\x01\x00\x01\x00"}}}),
        segment(range_with_holes={"start": 0, "end": 1 << 50, "holes": {"u16_array": {"offsets": b""}}}),
    ],
)
def test_damage_is_found_before_memory_is_taken(data):
    with pytest.raises(CorruptDataError):
        decode_row_ids(data, num_rows=5)


def test_versions():
    rng = np.random.default_rng(0)
    for _ in range(100):
        values = np.repeat(rng.integers(0, 3, 10), rng.integers(0, 4, 10)).astype(np.uint64)
        assert decode_row_versions(encode_row_versions(values), num_rows=len(values)).tolist() == values.tolist()
    assert decode_row_versions(encode_row_version(4, num_rows=3), num_rows=3).tolist() == [4, 4, 4]


def test_version_spans_count_by_length_only():
    span = rowids_pb2.U64Segment(range_with_bitmap={"start": 2, "end": 9, "bitmap": b"\x55"})
    runs = [rowids_pb2.RowDatasetVersionRun(span=span, version=7)]
    data = rowids_pb2.RowDatasetVersionSequence(runs=runs).SerializeToString()
    assert decode_row_versions(data, num_rows=4).tolist() == [7] * 4


def test_a_few_ascending_stretches_are_a_segment_each():
    ids = np.concatenate([np.arange(1000, 3000), np.arange(500), np.arange(700, 900, 2)]).astype(np.uint64)
    data = encode_row_ids(ids)
    assert (decode_row_ids(data, num_rows=len(ids)) == ids).all()
    assert len(data) < 200


def test_bounds_hold_all_ids():
    rng = np.random.default_rng(7)
    for size in (1, 3, 50, 400):
        for top in (size, 3 * size, 1 << 40):
            ids = rng.permutation(np.unique(rng.integers(0, top, size))).astype(np.uint64)
            for values in (ids, np.sort(ids)):
                low, high = row_id_bounds(encode_row_ids(values))
                assert low == values.min()
                assert high == values.max()
    assert row_id_bounds(encode_row_ids(ids[:0])) is None
    with pytest.raises(CorruptDataError):
        row_id_bounds(b"\x0a\x00")
