"""Files of version 2.3, which pylance 14.0.2 writes with a warning that they may not be readable in the future."""

import lance
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import UnsupportedError

ROWS = pa.table({"n": range(100), "s": [f"row {i}" for i in range(100)]})


@pytest.mark.parametrize("name", ["2.3", "next"])
def test_they_are_refused_by_name(tmp_path, name):
    place = str(tmp_path / "t")
    lance.write_dataset(ROWS, place, data_storage_version=name, max_rows_per_file=50)
    ours = lance_core.dataset(place)
    assert ours.data_storage_version == "2.3"
    assert ours.schema == ROWS.schema
    for ask in (
        ours.to_table,
        lambda: ours.take([1]),
        lambda: ours.count_rows(filter="n > 5"),
        lambda: ours.delete("n = 1"),
        lambda: ours.update({"n": "1"}),
        ours.optimize.compact_files,
        lambda: ours.add_columns({"m": "n + 1"}),
        lambda: lance_core.write_dataset(ROWS, place, mode="append"),
        lambda: lance_core.write_dataset(ROWS, tmp_path / "new", data_storage_version=name),
    ):
        with pytest.raises(UnsupportedError, match=r"version 2\.3 cannot be (read|written).*2\.2"):
            ask()
    assert lance.dataset(place).version == 1
    assert not (tmp_path / "new").exists()


def test_columns_of_other_files_of_the_table_are_read(tmp_path):
    place = str(tmp_path / "t")
    lance.write_dataset(ROWS, place, data_storage_version="2.3")
    lance.dataset(place).delete("true")
    lance_core.write_dataset(ROWS, place, mode="append", data_storage_version="2.2")
    assert lance_core.dataset(place).to_table() == lance.dataset(place).to_table()
