"""A table that is opened again: what follows from its schema is not worked out again."""

import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import InvalidInputError
from lance_core.file import field_shapes
from lance_core.methods import reading


@pytest.fixture
def counted(monkeypatch):
    calls = {"plans": 0, "shapes": 0}
    plan_scan, leaf_paths = reading.plan_scan, field_shapes.leaf_paths

    def plans(*args, **kwargs):
        calls["plans"] += 1
        return plan_scan(*args, **kwargs)

    def shapes(field):
        calls["shapes"] += 1
        return leaf_paths(field)

    monkeypatch.setattr(reading, "plan_scan", plans)
    monkeypatch.setattr(field_shapes, "leaf_paths", shapes)
    return calls


def test_plans_and_shapes_are_made_once_for_all_files_and_openings(tmp_path, counted):
    table = pa.table({"a": range(100), "s": [{"x": n, "y": str(n)} for n in range(100)]})
    lance_core.write_dataset(table, tmp_path, max_rows_per_file=20)
    for _ in range(3):
        assert lance_core.dataset(tmp_path).take([1, 30, 99]) == table.take([1, 30, 99])
    assert counted == {"plans": 1, "shapes": 2}


def test_what_is_asked_and_what_is_there_makes_a_plan_of_its_own(tmp_path, counted):
    table = pa.table({"a": range(10), "b": range(10)})
    lance_core.write_dataset(table, tmp_path)
    assert lance_core.dataset(tmp_path).take([3], columns=["b"]).column_names == ["b"]
    assert lance_core.dataset(tmp_path).take([3], columns=["a"]).column_names == ["a"]
    lance_core.dataset(tmp_path).add_columns({"c": "a + 1"})
    assert lance_core.dataset(tmp_path).take([3]).column_names == ["a", "b", "c"]
    lance_core.dataset(tmp_path).drop_columns(["a"])
    assert lance_core.dataset(tmp_path).take([3]).column_names == ["b", "c"]
    with pytest.raises(InvalidInputError, match="'a'"):
        lance_core.dataset(tmp_path).take([3], columns=["a"])
    assert counted["plans"] >= 5
