"""The best of many scores: compared with sorting all."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lance_core.index.text.score import largest
from lance_core.scan.search.text_search import Hits


@given(
    seed=st.integers(0, 1000),
    num_different=st.sampled_from([1, 2, 5, 300, 1 << 20]),
    num_scores=st.sampled_from([1, 30, 1023, 5000, 9000]),
    count=st.sampled_from([0, 1, 3, 40, 700, 5000]),
)
@settings(max_examples=100, deadline=None)
def test_the_best_are_the_first_of_all_sorted(seed, num_different, num_scores, count):
    rng = np.random.default_rng(seed)
    scores = (rng.integers(0, num_different, num_scores) / 7).astype(np.float32)
    rows = np.sort(rng.choice(1 << 40, num_scores, replace=False))
    order = np.lexsort((rows, -scores))
    best = Hits(rows, scores).best(count)
    assert best.rows.tolist() == rows[order][:count].tolist()
    assert best.scores.tolist() == scores[order][:count].tolist()
    assert Hits(rows, scores).best(None).rows.tolist() == rows[order].tolist()
    if 0 < count <= num_scores:
        assert largest(scores, count) == scores[order[count - 1]]
