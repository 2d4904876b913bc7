"""Scanners of both sides, the same questions."""

import lance
import pyarrow as pa
import pytest
from lance.dataset import ColumnOrdering

import lance_core

NAN = float("nan")
ROWS = pa.table(
    {
        "n": [3, 1, 2, None, 5, 4, 3, None],
        "f": [1.0, NAN, None, -NAN, 2.0, -1.0, -0.0, 0.0],
        "s": ["b", "a", None, "c", "a", "b", "", "a"],
        "d": pa.array([3, 2, None, 0, 1, 5, 4, 6], pa.date32()),
        "st": [{"x": i, "y": None} for i in range(8)],
        "dict": pa.array(["b", "a", None, "c", "a", "b", "", "a"]).dictionary_encode(),
    }
)


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    place = str(tmp_path_factory.mktemp("scanner") / "t")
    lance.write_dataset(ROWS, place, max_rows_per_file=3).delete("n = 2")
    return lance_core.dataset(place), lance.dataset(place)


SCANS = [
    {"columns": {"a": "n + 1", "b": "st.x * 2", "s": "s"}},
    {"columns": {"a": "n + 1"}, "filter": "n > 1", "limit": 2, "offset": 1},
    {"columns": {"a": "s || 'x'"}, "with_row_id": True, "with_row_address": True},
    {"columns": {"_rowid": "_rowid", "a": "st.y"}},
    {"columns": ["n"], "with_row_id": True, "include_deleted_rows": True},
    {"columns": ["n"], "with_row_id": True, "include_deleted_rows": True, "filter": "n > 1"},
    {"columns": ["st.x", "n"], "filter": "st.x % 2 = 0"},
    {"columns": [], "with_row_id": True},
    {"columns": []},
    {"columns": {}},
    {"columns": [], "filter": "n > 1"},
    {"columns": [], "filter": "true", "limit": 3, "offset": 1},
    {"columns": [], "filter": "_rowid > 3"},
    {"columns": [], "limit": 4, "offset": 2},
    {"columns": [], "offset": 5},
    {"columns": [], "limit": 0},
    {"columns": [], "order_by": ["n"], "limit": 3},
    {"columns": [], "order_by": ["s"]},
    {"columns": [], "batch_size": 2, "strict_batch_size": True},
    {"columns": [], "filter": "s = 'a'", "batch_size": 1},
    {"order_by": ["n", "s"]},
    {"order_by": ["dict", "d"], "limit": 4, "filter": "dict <> 'c'"},
    {"order_by": ["s", "n"], "limit": 3},
    {"order_by": ["f", "n"], "limit": 4, "offset": 2},
]
SCANS += [
    {"order_by": [ColumnOrdering(name, ascending, nulls_first), "n", "s"], "columns": ["n", "s", name]}
    for name in ("f", "d")
    for ascending in (True, False)
    for nulls_first in (True, False)
]


@pytest.mark.parametrize("options", SCANS)
def test_same_rows(tables, options):
    ours, theirs = (one.scanner(**options) for one in tables)
    found, expected = ours.to_table(), theirs.to_table()
    assert found.schema == expected.schema
    assert found.num_rows == expected.num_rows
    assert ours.to_reader().read_all().num_rows == expected.num_rows
    assert sum(one.num_rows for one in ours.to_batches()) == expected.num_rows
    assert str(found.to_pydict()) == str(expected.to_pydict())  # as text, because NaN does not equal itself
    assert ours.projected_schema == theirs.projected_schema
    assert ours.dataset_schema == theirs.dataset_schema


@pytest.mark.parametrize("size", [2, 3, 5])
def test_same_batches(tables, size):
    sizes = [[one.num_rows for one in table.to_batches(batch_size=size, strict_batch_size=True)] for table in tables]
    assert sizes[0] == sizes[1]


def test_same_takes(tables):
    ours, theirs = (one.take([6, 0, 2], columns={"a": "n * 2", "s": "s"}) for one in tables)
    assert ours == theirs
    ours, theirs = (one.sample(7).num_rows for one in tables)
    assert ours == theirs
    counts = [one.scanner(filter="n > 2").count_rows() for one in tables]
    assert counts[0] == counts[1]
    heads = [one.head(3, columns=["n"]) for one in tables]
    assert heads[0] == heads[1]


def test_fragments(tables):
    for number in range(3):
        parts = [one.get_fragment(number) for one in tables]
        for options in (
            {"columns": ["n", "s"], "limit": 1},
            {"columns": ["n"], "filter": "n > 1", "with_row_id": True},
        ):
            assert parts[0].scanner(**options).to_table() == parts[1].scanner(**options).to_table()
        taken = [one.take([0, 1], columns=["n"]) for one in parts]
        assert taken[0] == taken[1]


def test_both_refuse(tables):
    for options in ({"include_deleted_rows": True}, {"columns": {"a": "nope"}}, {"limit": -1}, {"order_by": ["nope"]}):
        for table in tables:
            with pytest.raises((ValueError, OSError)):
                table.to_table(**options)
