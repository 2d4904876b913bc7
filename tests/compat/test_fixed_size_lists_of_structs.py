"""Fixed-size lists of structs, which pylance 14.0.2 writes to files of version 2.0 but reads from 2.2 only."""

import lance
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import UnsupportedError

FIXED = pa.list_(pa.struct([("x", pa.int32()), ("y", pa.int64())]), 2)
VALUE = [{"x": 1, "y": 2}, {"x": 3, "y": 4}]
COLUMNS = {
    "column": (FIXED, VALUE),
    "in a struct": (pa.struct([("f", FIXED)]), {"f": VALUE}),
    "in a list": (pa.list_(FIXED), [VALUE]),
}


def rows_of(name, num_rows=3):
    kind, value = COLUMNS[name]
    return pa.table({"n": pa.array(range(num_rows)), "f": pa.array([value] * num_rows, kind)})


@pytest.mark.parametrize("name", COLUMNS)
def test_files_of_version_2_0_are_refused(tmp_path, name):
    place = str(tmp_path / "t")
    lance.write_dataset(rows_of(name), place, data_storage_version="2.0")
    with pytest.raises(ValueError, match="producer terminated"):
        lance.dataset(place).to_table()
    lance_core.write_dataset(rows_of(name).select(["n"]), place, mode="append")
    ours = lance_core.dataset(place)
    for read in (
        ours.to_table,
        lambda: ours.to_table(columns=["f"], filter="n > 1"),
        lambda: ours.take([1]),
        lambda: ours.count_rows(filter="f IS NULL"),
        ours.optimize.compact_files,
    ):
        with pytest.raises(UnsupportedError, match="fixed-size list of structs"):
            read()
    assert ours.to_table(columns=["n"])["n"].to_pylist() == [0, 1, 2] * 2


@pytest.mark.parametrize("package", [lance, lance_core])
@pytest.mark.parametrize("name", ["column", "in a struct"])
def test_pylance_reads_them_by_themselves_only(tmp_path, name, package):
    """If this fails, the note below the types in docs/supported.md is out of date."""
    place = str(tmp_path / "t")
    rows = rows_of(name)
    package.write_dataset(rows, place, data_storage_version="2.2")
    assert lance_core.dataset(place).to_table() == rows
    assert lance.dataset(place).to_table(columns=["f"]) == rows.select(["f"])
    with pytest.raises(ValueError, match="differing lengths"):
        lance.dataset(place).to_table()


@pytest.mark.parametrize("version", ["2.2", "2.3"])
@pytest.mark.parametrize("condition", ["n % 7 = 3", "n % 2 = 0", "n > 30000"])
def test_filters_of_many_rows_keep_whole_lists(tmp_path, version, condition):
    """From 32,768 rows on, the rows that a filter leaves out are dropped page by page."""
    num_rows = 40_000
    kind = pa.list_(pa.struct([("b", pa.binary())]), 2)
    values = [[{"b": b"%d" % number * 30}, None] if number % 50 else None for number in range(num_rows)]
    field = pa.field("f", kind, metadata={"lance-encoding:structural-encoding": "fullzip"})
    schema = pa.schema([pa.field("n", pa.int64()), field])
    rows = pa.table([pa.array(range(num_rows)), pa.array(values, kind)], schema)
    lance.write_dataset(rows, str(tmp_path / "t"), data_storage_version=version)
    kept = lance.dataset(tmp_path / "t").to_table(columns=["n"], filter=condition)["n"]
    assert lance_core.dataset(tmp_path / "t").to_table(filter=condition) == rows.take(kept)
