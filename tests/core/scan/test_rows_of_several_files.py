"""Scattered rows of several fragments, which are read and decoded at one go."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import CorruptDataError
from lance_core.file import scattered
from lance_core.file.read import several_files, strategy
from lance_core.scan import take_together
from lance_core.store import local_reader

pytestmark = pytest.mark.slow

ROWS, FILES = 3_000, 4
WANTED = np.random.default_rng(3).permutation(ROWS * FILES)[:200].tolist()


def rows_of(file):
    """Rows of one file; what columns hold differs from file to file, and so do their encodings."""
    rng = np.random.default_rng(file)
    number = np.arange(ROWS) + file * ROWS
    lists = [None if n % 11 == 0 else [float(n), None][: n % 3] for n in number.tolist()]
    return pa.table(
        {
            "number": number,
            "short": rng.integers(0, 1 << 16, ROWS).astype(np.uint16),
            "cents": rng.integers(0, 1 << 14, ROWS) / 128,
            "same": pa.array([file] * ROWS, pa.int16()),
            "nulls": pa.nulls(ROWS, pa.int32())
            if file == 1
            else pa.array(number % 77, pa.int32(), mask=number % 5 == 0),
            "flag": pa.array((number % 3 == 0).tolist()),
            "word": [f"word {n % (5 if file == 2 else 900)}" for n in number.tolist()],
            "text": [None if n % 13 == 0 else f"{n} " * (n % 40) for n in number.tolist()],
            "place": pa.array(rng.random((ROWS, 2)).tolist(), pa.list_(pa.float64(), 2)),
            "lists": lists,
            "pair": [None if n % 9 == 0 else {"x": n, "y": f"y{n % 4}"} for n in number.tolist()],
        }
    )


@pytest.fixture(scope="module")
def table():
    return pa.concat_tables([rows_of(file) for file in range(FILES)])


@pytest.fixture(params=["2.1", "2.2"])
def uri(tmp_path, table, request):
    path = str(tmp_path / "t.lance")
    lance_core.write_dataset(table, path, max_rows_per_file=ROWS, data_storage_version=request.param)
    return path


@pytest.fixture
def joined(monkeypatch):
    """How many files were read at one go, for each time that some were."""
    found = []
    take_joined = several_files.take_joined

    def counted(files):
        arrays = take_joined(files)
        if arrays is not None:
            found.append(sum(len(part.contents) for part in files))
        return arrays

    monkeypatch.setattr(several_files, "take_joined", counted)
    return found


@pytest.mark.parametrize("is_present", [True, False])
def test_rows_of_all_files_are_read_at_one_go(uri, table, joined, monkeypatch, is_present):
    if not is_present:
        monkeypatch.setattr(local_reader, "_copy_present", lambda *_: 0)
    dataset = lance_core.dataset(uri)
    for wanted in (WANTED, sorted(WANTED), [*WANTED, *WANTED[:50]]):
        assert dataset.take(wanted).equals(table.take(wanted))
    assert joined == [FILES] * 3
    found = dataset.take(WANTED, columns=["lists", "text", "nulls", "word"])
    assert found.equals(table.select(["lists", "text", "nulls", "word"]).take(WANTED))
    assert joined == [FILES] * 4


def test_a_system_that_cannot_read_into_memory(uri, table, joined, monkeypatch):
    monkeypatch.setattr(local_reader, "_CAN_ASK", False)
    monkeypatch.setattr(local_reader, "_CAN_COPY", False)
    assert lance_core.dataset(uri).take(WANTED).equals(table.take(WANTED))
    assert joined == [FILES]


def test_deleted_rows_are_passed_over(uri, table, joined):
    dataset = lance_core.dataset(uri)
    dataset.delete("number % 7 = 0")
    joined.clear()
    left = table.filter([n % 7 != 0 for n in range(ROWS * FILES)])
    wanted = [one % left.num_rows for one in WANTED]
    assert dataset.take(wanted).equals(left.take(wanted))
    assert joined == [FILES]


def test_rows_by_their_ids(uri, table, joined):
    dataset = lance_core.dataset(uri)
    ids = dataset.to_table(columns=["number"], with_row_id=True).column("_rowid").to_numpy()[WANTED]
    joined.clear()
    assert dataset._take_rows(ids).equals(table.take(WANTED))
    assert joined == [FILES]


def test_a_few_files_at_a_time(tmp_path, table, joined, monkeypatch):
    monkeypatch.setattr(take_together, "MOST_SMALL_FILES", 64)
    uri = str(tmp_path / "t.lance")
    lance_core.write_dataset(table, uri, max_rows_per_file=ROWS * FILES // 80)
    rows = list(range(0, ROWS * FILES, 30))
    assert lance_core.dataset(uri).take(rows).equals(table.take(rows))
    assert joined == [64, 16]


def test_what_is_read_file_by_file(uri, table, joined, monkeypatch):
    dataset = lance_core.dataset(uri)
    handful = [1, ROWS + 1, 2 * ROWS + 1]
    assert dataset.take(handful).equals(table.take(handful)), "value by value"
    whole = dataset.take(WANTED, columns=["number", "cents", "_rowid"])
    assert whole.column("_rowid").to_pylist() == [(n // ROWS << 32) + n % ROWS for n in WANTED], "of each fragment"
    assert joined == []
    dataset.add_columns({"more": "number + 1"})
    joined.clear()
    assert dataset.take(WANTED).drop_columns("more").equals(table.take(WANTED)), "of two files of each fragment"
    monkeypatch.setattr(strategy, "MOST_JOINED_BYTES", 1 << 12)
    columns = ["number", "cents", "text"]
    assert dataset.take(WANTED, columns=columns).equals(table.select(columns).take(WANTED)), "as it would be too much"
    assert joined == []


def test_how_many_rows_of_each_file_decides(tmp_path, joined):
    number = np.arange(40_000)
    vectors = pa.FixedSizeListArray.from_arrays(np.zeros(40_000 * 512, np.float32), 512)
    lists = pa.ListArray.from_arrays(np.arange(40_001, dtype=np.int32), number)
    many = {f"number {column}": number for column in range(33)}
    rows = pa.table({"number": number, "vector": vectors, "list": lists, **many})
    uri = str(tmp_path / "t.lance")
    dataset = lance_core.write_dataset(rows, uri, max_rows_per_file=5_000)

    def ways(columns, of_each):
        columns = columns if isinstance(columns, list) else [columns]
        joined.clear()
        wanted = [file * 5_000 + 3 * row for file in range(8) for row in range(of_each)]
        assert dataset.take(wanted, columns=columns).equals(rows.select(columns).take(wanted))
        return joined

    assert ways("number", 4) == ways("number", 500) == [8]
    assert ways("number", 520) == [], "as values take longer than the steps of a file"
    assert ways([*many], 40) == [], "as columns of a file are read together"
    assert ways([*many][:32], 40) == [8]
    assert ways("vector", 200) == [8]
    assert ways("vector", 300) == [], "as they would be copied"
    assert ways("list", 4) == [], "as lists are cheaper value by value"
    assert ways("list", 100) == [8]


def test_damage_is_told_with_the_name_of_its_file(uri, joined):
    dataset = lance_core.dataset(uri)
    files = [f"{uri}/data/{fragment.metadata.files[0].path}" for fragment in dataset.get_fragments()]
    with Path(files[2]).open("r+b") as file:
        data = bytearray(file.read())
        data[: len(data) // 2] = bytes(255 - one for one in data[: len(data) // 2])
        file.seek(0)
        file.write(data)
    with pytest.raises(CorruptDataError, match="damaged") as error:
        lance_core.dataset(uri).take(WANTED)
    assert str(error.value.path).endswith(files[2].rsplit("/", 1)[1])
    assert joined == []


@pytest.mark.parametrize("ahead", [1, 1 << 20])
def test_the_next_files_are_asked_before_one_is_waited_for(uri, table, monkeypatch, ahead):
    for _ in range(2):  # the first read opens one of the files only, the second learns where the rows of all are
        lance_core.dataset(uri).take(WANTED)
    told = []
    announce, finish = local_reader.LocalReader.announce, scattered.CopiedRanges.finish

    def announced(reader, starts, ends):
        told.append(("end" if int(ends[-1]) == reader.size else "asked", reader._path))
        announce(reader, starts, ends)

    def finished(copies):
        told.append(("waited", copies._source._path))
        finish(copies)

    monkeypatch.setattr(strategy, "READ_AHEAD", ahead)
    monkeypatch.setattr(local_reader, "_copy_present", lambda *_: 0)
    monkeypatch.setattr(local_reader.LocalReader, "announce", announced)
    monkeypatch.setattr(scattered.CopiedRanges, "finish", finished)
    assert lance_core.dataset(uri).take(WANTED).equals(table.take(WANTED))
    waited = [path for step, path in told if step == "waited"]
    asked = [[path for step, path in told[: told.index(("waited", one))] if step == "asked"] for one in waited]
    assert len(set(waited)) == FILES
    expected = [2, 3, 4, 4] if ahead == 1 else [FILES] * FILES
    assert [len(set(one)) for one in asked] == expected


def test_of_words_one_block_is_copied(tmp_path, monkeypatch):
    """Not the whole chunk of 8 KiB."""
    values = np.random.default_rng(1).integers(0, 1 << 16, 400_000).astype(np.uint16)
    columns = {f"c{number}": values[number:][:300_000] for number in range(3)}
    uri = str(tmp_path / "t.lance")
    lance_core.write_dataset(pa.table(columns), uri, max_rows_per_file=150_000)
    copied = []
    begin = scattered.CopiedRanges.begin
    monkeypatch.setattr(
        scattered.CopiedRanges, "begin", lambda one, memory: (copied.append(one.num_bytes), begin(one, memory))
    )
    wanted = sorted(np.random.default_rng(2).choice(300_000, 100, replace=False).tolist())
    assert lance_core.dataset(uri).take(wanted).equals(pa.table(columns).take(wanted))
    assert sum(copied) <= 4096 * 300


def test_calls_of_files(tmp_path, table, calls_of):
    """A file more costs looking up its rows, but hardly any decoding."""
    counts = []
    for files in (2, 12):
        uri = str(tmp_path / f"{files}.lance")
        lance_core.write_dataset(
            table.select(["number", "short", "cents"]), uri, max_rows_per_file=ROWS * FILES // files
        )
        dataset = lance_core.dataset(uri)
        dataset.take(WANTED)  # of files that are alike only the first is opened
        dataset.take(WANTED)  # those that are asked again are
        counts.append(calls_of(lambda dataset=dataset: dataset.take(WANTED)))
    assert counts[0] <= 1670, counts
    assert (counts[1] - counts[0]) / 10 <= 400, counts


def test_files_larger_than_their_share_of_positions_are_read_one_by_one(tmp_path, table, monkeypatch):
    """Else a position of one would be taken for one of the next."""
    uri = str(tmp_path / "t.lance")
    lance_core.write_dataset(table, uri, max_rows_per_file=ROWS)
    joined = []
    monkeypatch.setattr(several_files, "take_joined", joined.append)
    monkeypatch.setattr(several_files, "_BASE_BITS", 10)
    assert lance_core.dataset(uri).take(WANTED).equals(table.take(WANTED))
    assert not joined
