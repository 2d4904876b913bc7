"""Partly damaged data files: the rows that can be read stay, the others are counted, and pylance opens the result."""

from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_core
from lance_core.errors import InvalidInputError
from lance_core.maintenance.salvage import _readable

NUM_ROWS = 40_000
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("x", pa.float64())])


def rows(start):
    values = np.random.default_rng(start).random(NUM_ROWS)
    return pa.table({"id": np.arange(start, start + NUM_ROWS), "x": values}, schema=SCHEMA)


@pytest.fixture(params=[("2.0", False), ("2.1", True), ("2.2", False)], ids=str)
def table(tmp_path, request):
    """Two fragments, the first with a deleted row."""
    version, stable = request.param
    uri = str(tmp_path / "t.lance")
    options = {"data_storage_version": version, "enable_stable_row_ids": stable}
    lance_core.write_dataset(rows(0), uri, **options)
    made = lance_core.write_dataset(rows(NUM_ROWS), uri, mode="append")
    made.delete("id = 7")
    return made


def data_file(table, number=0):
    return Path(table.uri, "data", table.get_fragment(0).metadata.files[number].path)


def damage(path, *parts):
    """Turn bytes at some parts of a file, between 0 and 1."""
    data = bytearray(path.read_bytes())
    for part in parts:
        data[int(len(data) * part)] ^= 0xFF
    path.write_bytes(data)


def check_repaired(table):
    """What pylance and lance_core read of a table that is sound again."""
    read = lance.dataset(table.uri).to_table()
    assert lance_core.dataset(table.uri).to_table().equals(read)
    report = lance_core.verify(table.uri, level="full")
    assert not [problem for problem in report.problems if problem.version in {None, report.version}]
    return read


@pytest.mark.parametrize("parts", [(0.5,), (0.2, 0.6, 0.8)], ids=["once", "three times"])
def test_whole_rows_of_a_damaged_file_stay(table, parts):
    before = table.to_table()
    table.create_scalar_index("id", "BTREE")
    damage(data_file(table), *parts)
    plan = lance_core.plan_repair(table.uri, level="full")
    (step,) = plan.steps
    assert 0 < plan.rows_lost < 0.8 * NUM_ROWS
    assert step.loss.startswith(f"{plan.rows_lost:,} of 39,999 rows of fragment 0 are lost: ")
    assert plan.unrepaired == ()
    with pytest.raises(InvalidInputError, match="would lose something"):
        lance_core.repair(table.uri, level="full")
    assert lance_core.repair(table.uri, level="full", allow_loss=True) == {"fragment 0": "salvaged"}
    read = check_repaired(table)
    assert read.num_rows == before.num_rows - plan.rows_lost
    assert read.equals(before.filter(pc.is_in(before["id"], read["id"])))  # each row with its own values
    some = read["id"][100].as_py()
    assert lance.dataset(table.uri).to_table(filter=f"id = {some}")["id"].to_pylist() == [some]
    assert lance_core.repair(table.uri, level="full") == {}


def test_damaged_values_of_a_later_column_become_null(table):
    table.add_columns({"y": "x * 2"})
    table.create_scalar_index("y", "BTREE")
    before = table.to_table()
    damage(data_file(table, 1), 0.5)
    plan = lance_core.plan_repair(table.uri, level="full")
    assert (plan.rows_lost, plan.steps[0].rows_lost) == (0, 0)
    lost = plan.steps[0].values_lost
    assert 0 < lost < NUM_ROWS
    assert plan.steps[0].loss == f"the values of y in {lost:,} rows are lost"
    outcome = lance_core.repair(table.uri, level="full", allow_loss=True)
    assert outcome == {"fragment 0": "salvaged", "y_idx": "rebuilt"}
    read = check_repaired(table)
    assert read["y"].null_count == lost
    assert read.select(["id", "x"]).equals(before.select(["id", "x"]))
    assert lance.dataset(table.uri).count_rows("y is null") == lost


def test_what_can_be_read_is_found_with_few_tries():
    damaged = {*range(100, 2_000), 500_000, *range(999_000, 1_000_000)}
    tries = []

    def can_read(rows):
        tries.append(rows)
        return damaged.isdisjoint(rows)

    assert list(_readable(can_read, range(1_000_000))) == [range(100), range(2_000, 500_000), range(500_001, 999_000)]
    assert len(tries) < 200
