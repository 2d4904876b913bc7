"""A table that is opened again: what follows from its schema is not worked out again."""

import pyarrow as pa
import pytest

import lance_core
from lance_core.common.limits import limits
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.file.read import field_shapes
from lance_core.format.table import manifest as manifest_format
from lance_core.methods import reading
from lance_core.table import publish


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


@pytest.mark.usefixtures("versions_are_remembered")
def test_who_appends_again_and_again_does_not_decode_its_own_versions(tmp_path, monkeypatch):
    rows = pa.table({"a": range(10)})
    lance_core.write_dataset(rows, tmp_path)
    monkeypatch.setattr(manifest_format, "_decode_message", None)  # it would fail
    for count in range(2, 20):
        lance_core.write_dataset(rows, tmp_path, mode="append")
        assert lance_core.dataset(tmp_path).count_rows() == 10 * count
    assert len(manifest_format._MADE) <= manifest_format._MANY_MADE


@pytest.mark.usefixtures("versions_are_remembered")
def test_what_limits_would_refuse_is_not_known(tmp_path, monkeypatch):
    monkeypatch.setenv("LANCE_CORE_MAX_FRAGMENTS", "1")
    limits.cache_clear()
    try:
        lance_core.write_dataset(pa.table({"a": range(10)}), tmp_path, max_rows_per_file=5)
        with pytest.raises(UnsupportedError, match="fragments"):
            lance_core.dataset(tmp_path)
    finally:
        monkeypatch.undo()
        limits.cache_clear()


def test_a_version_that_differs_from_its_file_would_be_told(tmp_path, monkeypatch):
    """The commit does not take an error of who looks at what was written for one of the store."""

    def refuse(*_):
        raise AssertionError("differs")

    monkeypatch.setattr(publish, "remember_manifest", refuse)
    with pytest.raises(AssertionError, match="differs"):
        lance_core.write_dataset(pa.table({"a": [1]}), tmp_path)
