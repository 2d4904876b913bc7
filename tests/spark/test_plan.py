import random

import pytest

from lance_core.spark.reading.plan import FragmentSize, Piece, plan_partitions

MIB = 1 << 20


def plan(sizes, *, split_rows=1000, split_bytes=MIB, min_partitions=1):
    fragments = [FragmentSize(num_rows=r, num_bytes=b) for r, b in sizes]
    return plan_partitions(fragments, split_rows=split_rows, split_bytes=split_bytes, min_partitions=min_partitions)


def test_a_table_without_rows_has_no_partitions():
    assert plan([]) == []
    assert plan([(0, 0), (0, 10)]) == []


def test_small_fragments_share_a_partition():
    assert [len(part) for part in plan([(10, 100)] * 200)] == [100, 100]


def test_a_big_fragment_is_cut_by_rows():
    assert plan([(4000, 10)]) == [(Piece(index=0, start=i * 1000, end=(i + 1) * 1000),) for i in range(4)]


def test_bytes_count_as_well_as_rows():
    assert len(plan([(400, 4 * MIB)])) == 4


def test_fragments_just_above_the_share_stay_whole():
    parts = plan([(1050, 10)] * 10)
    assert len(parts) == 10
    assert all(len(part) == 1 for part in parts)


def test_idle_tasks_get_work_unless_it_is_too_little():
    assert len(plan([(800, 10)], min_partitions=4)) == 4
    assert len(plan([(100, 10)], min_partitions=4)) == 1


def test_one_huge_row_is_not_cut():
    assert plan([(1, 100 * MIB)]) == [(Piece(index=0, start=0, end=1),)]


@pytest.mark.parametrize("seed", range(20))
def test_every_row_is_in_exactly_one_piece(seed):
    chance = random.Random(seed)
    sizes = [(chance.choice([0, 1, 7, 900, 5000]), chance.randrange(3 * MIB)) for _ in range(chance.randrange(30))]
    parts = plan(sizes, min_partitions=chance.randrange(1, 9))
    pieces = [piece for part in parts for piece in part]
    rows = [(p.index, row) for p in pieces for row in range(p.start, p.end)]
    assert rows == [(i, row) for i, (count, _) in enumerate(sizes) for row in range(count)]
    assert all(parts)
