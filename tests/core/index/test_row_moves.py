"""New addresses of the rows of rewritten fragments, worked out row by row and by ranges."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lance_core.errors import CorruptDataError
from lance_core.index import answer as answers
from lance_core.index.row_moves import MovedGroup, RowMoves, RowPositions
from lance_core.sql.ternary import ANY, FALSE, NULL, TRUE

FIRST_NEW = 1 << 20


def addresses_of(fragment_id, count):
    return [(fragment_id << 32) + offset for offset in range(count)]


@st.composite
def rewrites(draw):
    """Groups of rewritten fragments, the addresses of all old rows, and where each row is now; -1 if it is deleted."""
    ids = draw(st.lists(st.integers(0, 6) | st.integers(100_000, 100_006), min_size=1, max_size=5, unique=True))
    bounds = sorted({0, draw(st.integers(0, len(ids))), len(ids)})
    groups, after, next_id = [], {}, FIRST_NEW
    for low, high in itertools.pairwise(bounds):
        num_rows = [draw(st.integers(1, 5)) for _ in ids[low:high]]
        deleted = [sorted(draw(st.sets(st.integers(0, count - 1)))) for count in num_rows]
        live = []
        for fragment_id, count, gone in zip(ids[low:high], num_rows, deleted, strict=True):
            for offset, address in enumerate(addresses_of(fragment_id, count)):
                after[address] = -1
                if offset not in gone:
                    live.append(address)
        cuts = sorted({0, draw(st.integers(0, len(live))), len(live)})
        new_num_rows = [end - start for start, end in itertools.pairwise(cuts)]
        new_ids = [next_id + number for number in range(len(new_num_rows))]
        next_id += len(new_ids)
        new = [address for pair in zip(new_ids, new_num_rows, strict=True) for address in addresses_of(*pair)]
        after.update(zip(live, new, strict=True))
        groups.append(
            MovedGroup(
                ids=ids[low:high],
                num_rows=num_rows,
                deleted=[np.array(rows, np.int64) for rows in deleted],
                new_ids=new_ids,
                new_num_rows=new_num_rows,
            )
        )
    return groups, after


@given(rewrites())
def test_each_row_is_found_where_it_is_now(rewrite):
    groups, after = rewrite
    moves = RowMoves(groups)
    others = addresses_of(50, 3) + addresses_of(200_000, 1)
    before = np.array([*after, *others])
    assert moves(before).tolist() == [*after.values(), *others]
    for group in groups:
        for fragment_id, count in zip(group.ids, group.num_rows, strict=True):
            with pytest.raises(CorruptDataError, match="behind the last one"):
                moves(np.array([(fragment_id << 32) + count]))


@given(rewrites(), st.data())
def test_answers_follow_their_rows(rewrite, data):
    """An index may know some rows by their old address, and others by their new one."""
    groups, after = rewrite
    others = addresses_of(50, 3)
    old, new = list(after), [address for address in after.values() if address >= 0]
    codes = {address: data.draw(st.sampled_from([FALSE, TRUE, NULL, ANY])) for address in [*old, *others]}
    codes |= {address: data.draw(st.sampled_from([FALSE, TRUE])) for address in new}
    rows = np.array(sorted(codes), np.int64)
    answer = answers.of_ranges(rows, rows + 1, np.array([codes[row] for row in rows.tolist()]), elsewhere=FALSE)
    moved = RowMoves(groups).answer(answer)
    expected = dict.fromkeys(old, FALSE) | {row: codes[row] for row in others}
    for address, target in after.items():
        if target >= 0:
            expected[target] = codes[address] if codes[address] != FALSE else codes[target]
    assert moved.at(np.array(list(expected), np.int64)).tolist() == list(expected.values())


@given(st.lists(st.integers(0, 5) | st.integers(100_000, 100_005), min_size=1, max_size=4, unique=True), st.data())
def test_positions_count_the_rows_of_some_fragments(ids, data):
    ids = sorted(ids)
    num_rows = [data.draw(st.integers(1, 4)) for _ in ids]
    every = [address for pair in zip(ids, num_rows, strict=True) for address in addresses_of(*pair)]
    positions = RowPositions(np.array(ids), np.array(num_rows))
    assert positions.total == len(every)
    assert positions.of(np.array(every)).tolist() == list(range(len(every)))
    behind = [(fragment_id << 32) + count for fragment_id, count in zip(ids, num_rows, strict=True)]
    elsewhere = [address for fragment_id in (50, 200_000) for address in addresses_of(fragment_id, 2)]
    assert positions.of(np.array([*behind, *elsewhere])).tolist() == [-1] * (len(behind) + len(elsewhere))
