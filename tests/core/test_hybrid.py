"""Results of searches are joined by their ranks."""

import pyarrow as pa
import pytest

from lance_core.errors import InvalidInputError
from lance_core.hybrid import reciprocal_rank_fusion

NEAR = pa.table({"_rowid": [3, 1, 7], "name": ["c", "a", "g"], "_distance": [0.1, 0.2, 0.3]})
MATCHING = pa.table({"_rowid": [1, 2], "name": ["a", "b"], "_score": [9.0, 1.0]})


def test_rows_of_both_results_come_first_and_missing_values_are_null():
    fused = reciprocal_rank_fusion([NEAR, MATCHING])
    assert fused.to_pylist()[:3] == [
        {"_rowid": 1, "name": "a", "_distance": 0.2, "_score": 9.0, "_relevance_score": pytest.approx(1 / 62 + 1 / 61)},
        {"_rowid": 3, "name": "c", "_distance": 0.1, "_score": None, "_relevance_score": pytest.approx(1 / 61)},
        {"_rowid": 2, "name": "b", "_distance": None, "_score": 1.0, "_relevance_score": pytest.approx(1 / 62)},
    ]
    assert fused["_rowid"].to_pylist() == [1, 3, 2, 7]
    assert reciprocal_rank_fusion([NEAR, MATCHING], limit=2).num_rows == 2
    assert reciprocal_rank_fusion([NEAR.slice(0, 0), MATCHING])["_rowid"].to_pylist() == [1, 2]


def test_a_small_k_favours_first_ranks():
    first = pa.table({"id": ["a", "b", "c"]})
    others = [pa.table({"id": ["x", "c"]}), pa.table({"id": ["y", "c"]})]
    assert reciprocal_rank_fusion([first, *others], on="id", k=1)["id"][0].as_py() == "c"
    assert reciprocal_rank_fusion([first, others[0]], on="id", k=1)["id"][0].as_py() == "c"
    with pytest.raises(InvalidInputError, match="'k' must be at least 1"):
        reciprocal_rank_fusion([first], on="id", k=0)


def test_results_that_cannot_be_joined_are_refused():
    with pytest.raises(InvalidInputError, match="the column '_rowid'"):
        reciprocal_rank_fusion([NEAR, MATCHING.drop(["_rowid"])])
    with pytest.raises(InvalidInputError, match="the same '_rowid' twice"):
        reciprocal_rank_fusion([pa.table({"_rowid": [1, 1]})])
    with pytest.raises(InvalidInputError, match="must not have nulls"):
        reciprocal_rank_fusion([pa.table({"_rowid": [1, None]})])
    with pytest.raises(InvalidInputError, match="'_rowid' has types int64 and string"):
        reciprocal_rank_fusion([NEAR, pa.table({"_rowid": ["1"]})])
    with pytest.raises(InvalidInputError, match="'name' has types string and int64"):
        reciprocal_rank_fusion([NEAR, pa.table({"_rowid": [1], "name": [2]})])
    with pytest.raises(InvalidInputError, match="needs results"):
        reciprocal_rank_fusion([])
