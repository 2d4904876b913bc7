"""Files and tables as text."""

import pyarrow as pa
import pytest

import lance_core
from lance_core.cli.main import main
from lance_core.errors import NotFoundError
from lance_core.reports.describe import MAX_FRAGMENTS, describe

ROWS = pa.table({"id": pa.array([7] * 10_000, pa.int64()), "pair": [{"x": float(i)} for i in range(10_000)]})


@pytest.fixture
def dataset(tmp_path):
    dataset = lance_core.write_dataset(ROWS.replace_schema_metadata({"made by": "us"}), tmp_path / "t.lance")
    lance_core.write_dataset(ROWS.slice(0, 10), dataset, mode="append")
    dataset = lance_core.dataset(tmp_path / "t.lance")
    dataset.delete("pair.x < 5")
    return dataset


def test_a_file(dataset):
    path = f"{dataset.uri}/data/{dataset.get_fragments()[0].data_files()[0].path}"
    lines = describe(path).splitlines()
    assert "Lance file 2.2, 10,000 rows, 2 columns" in lines[0]
    assert "metadata made by = us" in lines
    (of_id,) = [line for line in lines if line.startswith("id ")]
    assert "int64" in of_id
    assert "Constant" in of_id
    (of_x,) = [line for line in lines if line.startswith("pair.x")]
    assert "x" in of_x.split()[4]  # how much smaller than in Arrow
    (of_x,) = [line for line in describe(path, measure=False).splitlines() if line.startswith("pair.x")]
    assert of_x.split()[4].startswith("MiniBlock")  # nothing in between


def test_a_table(dataset):
    text = describe(dataset.uri)
    assert "version 3 of " in text
    assert "10,000 rows" in text
    assert "2 in 2 fragments" in text
    assert "10 rows deleted in 2 deletion files" in text
    assert [line.split()[:3] for line in text.splitlines() if line.strip().startswith(("0 ", "1 "))] == [
        ["0", "10,000", "5"],
        ["1", "10", "5"],
    ]


def test_long_tables_are_cut(tmp_path):
    lance_core.write_dataset(ROWS.slice(0, 30), tmp_path / "t", max_rows_per_file=1)
    text = describe(tmp_path / "t", measure=False)
    assert f"... and {30 - MAX_FRAGMENTS} more" in text
    assert "columns of the first 16 data files:" in text


def test_the_command(dataset, capsys):
    assert main(["describe", dataset.uri, "--quick"]) == 0
    assert capsys.readouterr().out == describe(dataset.uri, measure=False) + "\n"
    assert main(["describe", f"{dataset.uri}/none"]) == 2
    assert "NotFoundError" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["describe", dataset.uri, "--storage-option", "no value"])


def test_nothing_there(tmp_path):
    with pytest.raises(NotFoundError):
        describe(tmp_path / "none")
