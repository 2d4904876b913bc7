"""Small methods of datasets: names, results and what they leave behind are those of pylance."""

from datetime import timedelta

import lance
import pyarrow as pa
import pytest

import lance_core

ROWS = pa.table({"a": range(10), "s": [{"x": number, "y": "t"} for number in range(10)]})
BOTH = pytest.mark.parametrize("tool", [lance, lance_core], ids=["pylance", "ours"])


@pytest.fixture
def uri(tmp_path):
    rows = ROWS.replace_schema_metadata({"made": "here"})
    return lance.write_dataset(rows, tmp_path / "t", max_rows_per_file=4).uri


def test_what_a_dataset_tells_of_itself(uri):
    def told(dataset):
        return (
            dataset.schema_metadata,
            dataset.max_field_id,
            dataset.has_index,
            list(dataset.fragment_ids()),
            dataset.slice(3, 6).to_pylist(),
            dataset.slice(8, 100, columns=["a"]).to_pylist(),
            dataset.slice(5, 5).num_rows,
            dataset.get_fragment(1).to_pandas().to_dict(),
        )

    assert told(lance_core.dataset(uri)) == told(lance.dataset(uri))
    lance.dataset(uri).create_scalar_index("a", "BTREE")
    lance.dataset(uri).drop_columns(["s"])
    assert told(lance_core.dataset(uri)) == told(lance.dataset(uri))
    for tool in (lance, lance_core):
        for start, end in ((-1, 3), (3, 2)):
            with pytest.raises(ValueError, match=str(start)):
                tool.dataset(uri).slice(start, end)


@BOTH
def test_insert_and_truncate(uri, tool):
    dataset = tool.dataset(uri)
    dataset.insert(ROWS.slice(0, 3))
    assert (dataset.version, dataset.count_rows()) == (2, 13)
    dataset.truncate_table()
    assert (dataset.version, dataset.count_rows()) == (3, 0)
    assert lance.dataset(uri).to_table().num_rows == lance_core.dataset(uri).to_table().num_rows == 0
    assert lance_core.dataset(uri).schema == lance.dataset(uri).schema
    dataset.insert(ROWS.select(["a"]), mode="overwrite")
    assert lance_core.dataset(uri).to_table().equals(lance.dataset(uri).to_table())


def test_all_files(uri):
    lance.dataset(uri).delete("a = 3")
    lance.dataset(uri).tags.create("kept", 1)
    ours, theirs = (tool.dataset(uri).all_files().read_all().sort_by("path") for tool in (lance_core, lance))
    assert ours.schema == theirs.schema
    assert ours.drop_columns("last_modified").to_pylist() == theirs.drop_columns("last_modified").to_pylist()
    for one, other in zip(ours["last_modified"].to_pylist(), theirs["last_modified"].to_pylist(), strict=True):
        assert abs(one - other) < timedelta(milliseconds=1)


@BOTH
def test_drop(uri, tool, tmp_path):
    lance.dataset(uri).create_branch("b", 1)
    lance.dataset(uri).tags.create("kept", 1)
    (tmp_path / "stays").write_text("")
    with pytest.raises((ValueError, lance_core.LanceError)):
        tool.LanceDataset.drop(tmp_path)
    with pytest.raises((OSError, lance_core.LanceError)):
        tool.LanceDataset.drop(tmp_path / "nothing")
    tool.LanceDataset.drop(tmp_path / "nothing", ignore_not_found=True)
    assert lance.dataset(uri).count_rows() == 10
    tool.LanceDataset.drop(uri)
    assert [one for one in tmp_path.rglob("*") if one.is_file()] == [tmp_path / "stays"]
    assert tool.write_dataset(ROWS, uri).version == 1


def test_a_branch_is_not_dropped_as_a_dataset(uri):
    branch = lance_core.dataset(uri).create_branch("b")
    with pytest.raises(ValueError, match="branch"):
        lance_core.LanceDataset.drop(branch.uri)
    assert lance_core.dataset(uri, branch="b").count_rows() == 10


@BOTH
def test_validate(uri, tool, tmp_path):
    tool.dataset(uri).validate()
    next((tmp_path / "t" / "data").iterdir()).unlink()
    with pytest.raises((OSError, ValueError, lance_core.LanceError)):
        tool.dataset(uri).validate()


def test_auto_cleanup(tmp_path):
    seen = []
    for tool in (lance, lance_core):
        dataset = tool.write_dataset(ROWS, tmp_path / tool.__name__)
        dataset.optimize.enable_auto_cleanup({"interval": 3, "older_than_seconds": 7})
        seen.append(lance.dataset(dataset.uri).config())
        dataset.optimize.disable_auto_cleanup()
        seen.append(lance.dataset(dataset.uri).config())
    assert seen[:2] == seen[2:]
    assert seen[3] == {}
