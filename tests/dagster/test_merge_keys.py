"""The first merge into a new table refuses repeated keys, as all later ones do, whatever the frame."""

import dagster as dg
import duckdb
import polars as pl
import pyarrow as pa
import pytest

from lance_core.errors import InvalidInputError

GOOD = pa.table({"id": [1, 2, 3], "part": ["a", "a", "b"], "v": ["x", "y", "z"]})
BAD = pa.table({"id": [1, 2, 1], "part": ["a", "a", "b"], "v": ["x", "y", "z"]})
FRAMES = {
    "table": lambda table: table,
    "reader": lambda table: table.to_reader(max_chunksize=1),
    "pandas": lambda table: table.to_pandas(),
    "polars": pl.from_arrow,
    "lazy polars": lambda table: pl.from_arrow(table).lazy(),
    "duckdb": lambda table: duckdb.connect().from_arrow(table),
}


def asset_of(make, **metadata):
    @dg.asset(metadata={"mode": "merge", "merge_keys": ["id"], **metadata})
    def asset():
        return make()

    return asset


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_a_first_merge_with_repeated_keys_stores_nothing(run, tables, frame):
    for _ in range(2):
        with pytest.raises(InvalidInputError, match=r"Storing asset: .*more than one row of the source has id = 1"):
            run(asset_of(lambda: frame(BAD)))
        assert not tables.exists("asset")
    run(asset_of(lambda: frame(GOOD)))
    with pytest.raises(InvalidInputError, match="more than one row of the source has id = 1"):
        run(asset_of(lambda: frame(BAD)))
    run(asset_of(lambda: frame(GOOD)))
    assert tables.dataset("asset").count_rows() == 3


def test_all_columns_of_the_key_count(run, tables):
    run(asset_of(lambda: BAD, merge_keys=["id", "part"]))
    assert tables.dataset("asset").count_rows() == 3


def test_a_declared_primary_key_counts(run, tables):
    key = pa.field("id", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"})
    rows = BAD.cast(pa.schema([key, *list(BAD.schema)[1:]]))
    with pytest.raises(InvalidInputError, match="more than one row of the source has id = 1"):
        run(asset_of(lambda: rows, merge_keys=None))
    assert not tables.exists("asset")


def test_rows_without_a_key_may_repeat(run, tables):
    run(asset_of(lambda: BAD.set_column(0, "id", pa.array([None, None, 1], pa.int64()))))
    assert tables.dataset("asset").count_rows() == 3


def test_other_modes_do_not_look_at_keys(run, tables):
    run(asset_of(lambda: BAD, mode="append"))
    run(asset_of(lambda: BAD, mode="overwrite"))
    assert tables.dataset("asset").count_rows() == 3
