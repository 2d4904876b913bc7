"""Data files without a table."""

import itertools

import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import InvalidInputError, NotFoundError, UnsupportedError
from lance_core.file import LanceFileReader, LanceFileWriter

ROWS = pa.table(
    {
        "id": pa.array(range(5000), pa.int64()),
        "name": [f"name {i % 7}" for i in range(5000)],
        "pair": [{"x": i, "tags": ["a"] * (i % 3)} for i in range(5000)],
    }
)


@pytest.fixture
def path(tmp_path):
    dataset = lance_core.write_dataset(ROWS, tmp_path / "t.lance")
    return str(tmp_path / "t.lance" / "data" / dataset.get_fragments()[0].data_files()[0].path)


def test_rows_come_back_whole_in_part_and_singly(path):
    reader = LanceFileReader(path)
    assert reader.num_rows() == 5000
    assert reader.read_all().to_table() == ROWS
    assert [batch.num_rows for batch in reader.read_range(10, 2500).to_batches()] == [1024, 1024, 452]
    assert reader.read_range(10, 2500).to_table() == ROWS.slice(10, 2500)
    assert reader.take_rows([4999, 0, 4999]).to_table() == ROWS.take([4999, 0, 4999])
    assert reader.take_rows([]).to_table() == ROWS.slice(0, 0)


def test_columns_and_parts_of_structs_can_be_chosen(path):
    table = LanceFileReader(path, columns=["pair.tags", "id"]).read_range(2, 1).to_table()
    assert table.to_pylist() == [{"pair": {"tags": ["a", "a"]}, "id": 2}]


def test_metadata_accounts_for_every_byte(path):
    reader = LanceFileReader(path)
    metadata = reader.metadata()
    assert metadata.schema == ROWS.schema
    assert (metadata.num_rows, metadata.major_version, metadata.minor_version) == (5000, 2, 2)
    assert len(metadata.columns) == len(reader.file_statistics().columns) == 4
    buffers = [one for column in metadata.columns for page in column.pages for one in page.buffers]
    assert sum(one.size for one in buffers) == sum(one.size_bytes for one in reader.file_statistics().columns)
    ends = sorted((one.position, one.position + one.size) for one in [*buffers, *metadata.global_buffers])
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ends))
    in_pages_and_globals = metadata.num_data_bytes + metadata.num_global_buffer_bytes
    assert ends[-1][1] <= in_pages_and_globals <= ends[-1][1] + 64
    assert b"pair" in reader.read_global_buffer(0)


def test_what_is_not_there_is_named(path, tmp_path):
    reader = LanceFileReader(path)
    with pytest.raises(InvalidInputError, match="no row 5004"):
        reader.read_range(4995, 10)
    with pytest.raises(InvalidInputError, match="no row 5000"):
        reader.take_rows([5000])
    with pytest.raises(InvalidInputError, match="global buffer 2"):
        reader.read_global_buffer(2)
    with pytest.raises(InvalidInputError, match="nothing"):
        LanceFileReader(path, columns=["nothing"])
    with pytest.raises(NotFoundError):
        LanceFileReader(tmp_path / "none.lance")
    with pytest.raises(InvalidInputError, match="does not name a file"):
        LanceFileReader(f"{tmp_path}/")


@pytest.mark.parametrize("version", ["2.0", "2.2"])
def test_written_files_hold_rows_metadata_and_foreign_bytes(tmp_path, version):
    path = tmp_path / "x.lance"
    with LanceFileWriter(path, version=version) as writer:
        writer.write_batch(ROWS)
        writer.write_batch(ROWS.to_batches()[0])
        assert not path.exists()
        assert [writer.add_global_buffer(one) for one in (b"first", b"second")] == [1, 2]
        writer.add_schema_metadata("made by", "us")
    reader = LanceFileReader(path)
    assert reader.read_all().to_table().equals(pa.concat_tables([ROWS, ROWS]))
    assert [reader.read_global_buffer(number) for number in (1, 2)] == [b"first", b"second"]
    assert reader.metadata().schema.metadata == {b"made by": b"us"}


def test_pages_are_as_large_as_asked_for(tmp_path):
    with LanceFileWriter(tmp_path / "x", ROWS.schema, data_cache_bytes=30_000) as writer:
        writer.write_batch(ROWS)
    (ids, *_) = LanceFileReader(tmp_path / "x").metadata().columns
    assert len(ids.pages) >= 4
    assert LanceFileReader(tmp_path / "x").read_all().to_table() == ROWS


def test_files_that_fail_leave_nothing(tmp_path):
    writer = LanceFileWriter(tmp_path / "x", ROWS.schema)
    writer.write_batch(ROWS)
    with pytest.raises(InvalidInputError, match="other"), writer:
        writer.write_batch(pa.table({"other": [1]}))
    with pytest.raises(InvalidInputError, match="no schema"):
        LanceFileWriter(tmp_path / "x").close()
    with pytest.raises(UnsupportedError, match="map"):
        LanceFileWriter(tmp_path / "x", pa.schema([("m", pa.map_(pa.string(), pa.int8()))]), version="2.0")
    assert list(tmp_path.iterdir()) == []


def test_closing_twice_is_no_harm(tmp_path):
    writer = LanceFileWriter(tmp_path / "x", ROWS.schema)
    assert writer.close() == 0
    assert writer.close() is None
    assert LanceFileReader(tmp_path / "x").num_rows() == 0
