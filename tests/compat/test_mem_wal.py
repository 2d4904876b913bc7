"""Tables with a write-ahead log in memory (MemWAL): rows in the table are read and changed, the log is kept."""

import lance
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import UnsupportedError

KEY = {"lance-schema:unenforced-primary-key": "true"}
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata=KEY), pa.field("v", pa.string())])
ROWS = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]}, schema=SCHEMA)
NEWS = pa.table({"id": [3, 9], "v": ["x", "z"]}, schema=SCHEMA)


@pytest.fixture
def uri(tmp_path):
    table = lance.write_dataset(ROWS, tmp_path / "t")
    table.initialize_mem_wal(unsharded=True)
    return str(tmp_path / "t")


def has_log(uri):
    return lance.dataset(uri).mem_wal_index_details() is not None


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.insert(NEWS),
        lambda t: t.delete("id = 1"),
        lambda t: t.update({"v": "'y'"}),
        lambda t: t.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(NEWS),
        lambda t: t.drop_columns(["v"]),
        lambda t: t.alter_columns({"path": "v", "name": "w"}),
        lambda t: t.add_columns(pa.field("n", pa.int64())),
        lambda t: t.update_config({"a": "b"}),
        lambda t: t.optimize.compact_files(),
    ],
    ids=["append", "delete", "update", "merge", "drop", "rename", "nulls", "config", "compact"],
)
def test_changes_keep_the_log(uri, change):
    table = lance_core.dataset(uri)
    assert table.to_table() == ROWS
    change(table)
    assert has_log(uri)
    assert lance.dataset(uri).to_table() == table.to_table()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: lance_core.write_dataset(NEWS, t, mode="overwrite"), "overwrite would lose rows"),
        (lambda t: t.checkout_version(1).restore(), "restore would lose rows"),
        (lambda t: t.add_columns({"n": "id + 1"}), "columns would be null"),
        (lambda t: t.merge(pa.table({"id": [1], "n": [1]}), "id"), "columns would be null"),
    ],
    ids=["overwrite", "restore", "computed", "joined"],
)
def test_what_would_lose_rows_of_the_log_is_refused_by_name(uri, tmp_path, change, words):
    files = sorted((tmp_path / "t" / "data").iterdir())
    version = lance_core.dataset(uri).version
    with pytest.raises(UnsupportedError, match=f"MemWAL.*{words}"):
        change(lance_core.dataset(uri))
    assert lance_core.dataset(uri).version == version
    assert has_log(uri)
    assert sorted((tmp_path / "t" / "data").iterdir()) == files


@pytest.mark.parametrize("name", ["initialize_mem_wal", "mem_wal_writer", "mem_wal_index_details"])
def test_writing_through_the_log_is_refused_by_name(uri, name):
    with pytest.raises(UnsupportedError, match=f"LanceDataset.{name}.*MemWAL"):
        getattr(lance_core.dataset(uri), name)()
