"""What was learnt of a file serves its next reader, not one of another file; it keeps no file, and little memory."""

import gc
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lance_core.encoding.layouts.chunk_table import ChunkTable
from lance_core.encoding.values import VariableValues
from lance_core.errors import CorruptDataError
from lance_core.file import container
from lance_core.file.read.cache import FILE_CACHES, Budget, FileCaches, PageCache
from lance_core.file.read.page_index import MiniBlockIndex
from lance_core.file.read.reader import DataFileReader
from lance_core.store.local import LocalStore

ROWS = 20_000
TABLE = pa.table({
    "number": np.arange(ROWS) * 7,
    "price": np.round(np.random.default_rng(3).random(ROWS) * 50) / 4,
    "word": [f"word {one % 300}" for one in range(ROWS)],
    "list": [[one, one + 1] for one in range(ROWS)],
})  # fmt: skip


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch):
    monkeypatch.setattr("lance_core.file.read.reader.FILE_CACHES", FileCaches())


def _take(store, rows, name="x.lance"):
    reader = DataFileReader(store.reader(name), path=f"{store.uri}/{name}")
    columns = {leaf.id: number for number, leaf in enumerate(reader.schema.leaves())}
    return reader.take(reader.schema, columns, np.array(rows)).to_pylist()


def _forbid(monkeypatch):
    """Nothing of the metadata may be parsed, and no index be read."""
    monkeypatch.setattr(container, "decode_footer", None)
    monkeypatch.setattr(container, "decode_descriptor", None)
    monkeypatch.setattr(container, "decode_column", None)
    monkeypatch.setattr("lance_core.file.read.plan.index_ranges", None)


@pytest.mark.parametrize("rows", [[5, 17_000], list(range(0, ROWS, 40))])
def test_the_next_reader_parses_nothing(data_file, monkeypatch, rows):
    data_file.write(TABLE)
    first = _take(data_file.store, rows)
    _forbid(monkeypatch)
    assert _take(data_file.store, rows) == first == TABLE.take(rows).to_pylist()


def test_another_file_of_that_name_and_size_is_noticed(data_file):
    """Values that are packed alike: only bytes of data differ, and so checksums."""
    numbers = np.random.default_rng(4).random(ROWS)
    tables = [pa.table({"x": one}) for one in (numbers, numbers[::-1])]
    sizes = []
    for table in tables:
        data_file.write(table)
        sizes.append(len(data_file.bytes()))
        assert _take(data_file.store, [3, 9_000]) == table.take([3, 9_000]).to_pylist()
    assert sizes[0] == sizes[1]


def test_a_file_that_was_written_to_is_parsed_again(data_file, monkeypatch):
    """Whatever was written: it may be metadata that nobody would read again."""
    data_file.write(TABLE)
    _take(data_file.store, [3])
    os.utime(Path(data_file.store.uri) / "x.lance", ns=(1, 1))
    _forbid(monkeypatch)
    with pytest.raises(TypeError):
        _take(data_file.store, [3])


def test_data_are_checked_by_each_reader(data_file):
    data_file.write(TABLE)
    rows = list(range(0, ROWS, 40))
    _take(data_file.store, rows)
    damaged = bytearray(data_file.bytes())
    damaged[1000] ^= 1
    data_file.store.put("x.lance", bytes(damaged))
    with pytest.raises(CorruptDataError):
        _take(data_file.store, rows)


def test_a_damaged_end_is_found(data_file):
    data_file.write(TABLE)
    _take(data_file.store, [3])
    whole = data_file.bytes()
    for place in (len(whole) - 50, len(whole) - 100, len(whole) - 300):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        data_file.store.put("x.lance", bytes(damaged))
        with pytest.raises(CorruptDataError):
            _take(data_file.store, [3])


def test_files_without_checksums_are_not_known(data_file, monkeypatch):
    monkeypatch.setenv("LANCE_CORE_CHECKSUMS", "off")
    data_file.write(TABLE)
    _take(data_file.store, [3])
    _forbid(monkeypatch)
    with pytest.raises(TypeError):
        _take(data_file.store, [3])


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells what is mapped")
def test_files_do_not_stay_mapped(data_file):
    data_file.write(TABLE)
    _take(data_file.store, [3, 4_000])
    _take(data_file.store, range(0, ROWS, 10))
    gc.collect()
    assert str(Path(data_file.store.uri) / "x.lance") not in Path("/proc/self/maps").read_text()


def test_few_files_and_bytes_are_kept():
    known = FileCaches(most_files=3, most_bytes=100, step=1)
    found = {name: known.find(name) for name in "abc"}
    assert known.find("a") is found["a"]
    known.find("d")  # "b" was used last
    assert known.find("c") is found["c"]
    assert known.find("b") is not found["b"]
    for name in "abc":
        known.find(name).budget.num_bytes = 60
    last = known.find("c")
    assert known.find("c") is last
    assert known.find("a").budget.num_bytes == 0


def test_the_files_of_a_take_stay():
    """A thousand rows lie in all files of a table, and so do those of the next take."""
    known = FileCaches()
    found = {name: known.find(name) for name in range(160)}
    assert all(known.find(name) is entry for name, entry in found.items())


def test_what_is_kept_is_counted(tmp_path, data_file, monkeypatch):
    known = FileCaches()
    monkeypatch.setattr("lance_core.file.read.reader.FILE_CACHES", known)
    data_file.write(TABLE)
    _take(LocalStore(str(tmp_path)), [3, 4_000])
    reader = DataFileReader(data_file.store.reader("x.lance"), path=f"{tmp_path}/x.lance")
    (found,) = known._files.values()
    indexes = [index for pages in found._columns.values() for index in pages.indexes.values()]
    assert reader.num_rows == ROWS
    assert len(indexes) == 4
    assert found.budget.num_bytes > sum(index.table.grid.nbytes for index in indexes)  # and dictionaries
    assert FILE_CACHES is not known


def test_opened_columns_are_shared_counted_and_few(data_file, monkeypatch):
    """So that who opens a file again does not put its columns together anew."""
    known = FileCaches()
    monkeypatch.setattr("lance_core.file.read.reader.FILE_CACHES", known)
    data_file.write(TABLE)
    _take(data_file.store, [3])
    (found,) = known._files.values()
    before = found.budget.num_bytes
    (opened,) = found.opened
    _take(data_file.store, [9_000])
    assert list(found.opened) == [opened]
    assert found.budget.num_bytes == before
    reader = DataFileReader(data_file.store.reader("x.lance"), path=f"{data_file.store.uri}/x.lance")
    columns = {leaf.id: number for number, leaf in enumerate(reader.schema.leaves())}
    for name in TABLE.column_names * 2:
        projection = reader.schema.select([name])
        wanted = {leaf.id: columns[leaf.id] for leaf in projection.leaves()}
        assert reader.take(projection, wanted, np.array([5]))[name].to_pylist() == TABLE[name][5:6].to_pylist()
    assert len(found.opened) == 4
    assert opened not in found.opened
    assert found.budget.num_bytes == before


def test_what_is_put_together_of_pages_is_counted_as_long_as_it_is_kept():
    budget = Budget()
    pages = PageCache(np.arange(11), {}, budget, {}, {})
    for number in range(10):
        table = ChunkTable(grid=np.zeros((5, 100), np.int64), has_preamble=None)
        items = VariableValues(np.arange(11), np.zeros(10, np.uint8))
        pages.keep_index(number, MiniBlockIndex((None,), np.array([0, 100]), table, items, None))
    alone = budget.num_bytes
    assert alone == 10 * (5 * 100 * 8 + 11 * 8 + 10)
    for join, size in ((pages.chunks_of, 2 * 5 * 100 * 8), (pages.dictionary_of, 2 * 10 + 21 * 8)):
        before = budget.num_bytes
        for number in range(8):
            join((number, number + 1))
        assert budget.num_bytes == before + 8 * size
        join((0, 9))
        assert budget.num_bytes == before + size
        join((3,))  # nothing is put together
        assert budget.num_bytes == before + size
    whole = budget.num_bytes
    index = pages.index_of((4, 5), is_kept=False)
    assert budget.num_bytes == whole
    kept = pages.index_of((4, 5), is_kept=True)
    assert pages.index_of((4, 5), is_kept=False) is kept is not index
    assert budget.num_bytes == whole + 2 * 5 * 100 * 8 + 2 * 10 + 21 * 8


def _scan(reader, *, is_kept, batch_size=ROWS):
    columns = {leaf.id: number for number, leaf in enumerate(reader.schema.leaves())}
    rows = {"start": 0, "end": ROWS, "batch_size": batch_size}
    return pa.Table.from_batches(reader.scan(reader.schema, columns, **rows, is_kept=is_kept))


def _coded(reader, name):
    projection = reader.schema.select([name])
    columns = {projection.fields[0].id: TABLE.column_names.index(name)}
    parts = list(reader.scan_dictionary(projection, columns, start=0, end=ROWS, batch_size=1000))
    return [one for part in parts for one in (part if isinstance(part, pa.Array) else part.values()).to_pylist()]


def _reader(data_file):
    return DataFileReader(data_file.store.reader("x.lance"), path=f"{data_file.store.uri}/x.lance")


def test_a_scan_of_all_rows_keeps_what_it_learns(data_file, monkeypatch):
    data_file.write(TABLE)
    assert _scan(_reader(data_file), is_kept=True).equals(TABLE)
    _forbid(monkeypatch)
    reader = _reader(data_file)
    assert _scan(reader, is_kept=True).equals(TABLE)
    assert _scan(reader, is_kept=False, batch_size=1000).equals(TABLE)
    assert _coded(reader, "price") == TABLE["price"].to_pylist()


def test_a_condition_keeps_what_it_learns(data_file, monkeypatch):
    data_file.write(TABLE)
    assert _coded(_reader(data_file), "price") == TABLE["price"].to_pylist()
    _forbid(monkeypatch)
    assert _coded(_reader(data_file), "price") == TABLE["price"].to_pylist()


@pytest.mark.parametrize("most", [1 << 22, -1])
def test_a_stream_keeps_little(data_file, monkeypatch, most):
    """What it learns of a small file serves the next stream; of a large one it is forgotten on the way."""
    monkeypatch.setattr("lance_core.file.read.strategy.MOST_STREAMED_BYTES", most)
    known = FileCaches()
    monkeypatch.setattr("lance_core.file.read.reader.FILE_CACHES", known)
    data_file.write(TABLE)
    assert _scan(_reader(data_file), is_kept=False, batch_size=1000).equals(TABLE)
    (found,) = known._files.values()
    indexes = [index for pages in found._columns.values() for index in pages.indexes.values()]
    assert len(indexes) == (4 if most > 0 else 0)
    if most > 0:
        _forbid(monkeypatch)
        assert _scan(_reader(data_file), is_kept=False, batch_size=1000).equals(TABLE)


def test_a_stream_of_a_file_that_is_known_opens_no_field_again(data_file, monkeypatch):
    """However much that is: what is known stays, and the fields would take as much again."""
    monkeypatch.setattr("lance_core.file.read.strategy.MOST_STREAMED_BYTES", -1)
    data_file.write(TABLE)
    assert _scan(_reader(data_file), is_kept=True).equals(TABLE)
    monkeypatch.setattr("lance_core.file.read.reader.ContentV21.fields", None)
    for _ in range(2):
        assert _scan(_reader(data_file), is_kept=False, batch_size=1000).equals(TABLE)


def test_an_opened_column_takes_few_objects(data_file):
    """Forty files of a thousand columns have forty thousand: the garbage collector goes through all of them."""
    table = pa.table({f"c{number}": np.arange(100) * number % 7 for number in range(200)})
    data_file.write(table)
    _take(data_file.store, range(0, 100, 3))
    data_file.store.put("y.lance", data_file.bytes())
    gc.collect()
    before = len(gc.get_objects())
    _take(data_file.store, range(0, 100, 3), "y.lance")
    gc.collect()
    assert len(gc.get_objects()) - before < 200 * 12


def test_projections_of_a_file_share_their_fields(data_file):
    """A filter opens what it decides by and the rest, a take all of it."""
    data_file.write(TABLE)
    reader = _reader(data_file)
    columns = {leaf.id: number for number, leaf in enumerate(reader.schema.leaves())}
    projections = [reader.schema, reader.schema.select(["word", "list"])]
    for projection in projections:
        names = [field.name for field in projection.fields]
        assert (
            reader.take(projection, columns, np.array([5, 9])).to_pylist()
            == TABLE.take([5, 9]).select(names).to_pylist()
        )
    every, some = [opened.fields for opened in reader._cache.opened]
    assert all(one is another for one, another in zip(every[2:], some, strict=True))


def test_columns_that_a_stream_opens_count_as_kept(data_file, monkeypatch):
    """Else the metadata of 64 files of a thousand columns would stay: 128 MiB."""
    known = FileCaches()
    monkeypatch.setattr("lance_core.file.read.reader.FILE_CACHES", known)
    data_file.write(TABLE)
    reader = _reader(data_file)
    columns = {leaf.id: number for number, leaf in enumerate(reader.schema.leaves())}
    next(reader.scan(reader.schema, columns, start=0, end=ROWS, batch_size=1000, is_kept=False))
    (found,) = known._files.values()
    assert found.budget.num_bytes >= len(columns) << 10


def test_a_file_that_was_let_go_is_emptied_and_can_still_be_read(data_file, monkeypatch):
    """Open readers hold their entry: those of 40 files of a thousand columns held 100 MiB."""
    known = FileCaches(most_files=1)
    monkeypatch.setattr("lance_core.file.read.reader.FILE_CACHES", known)
    data_file.write(TABLE)
    reader = _reader(data_file)
    columns = {leaf.id: number for number, leaf in enumerate(reader.schema.leaves())}
    batches = reader.scan(reader.schema, columns, start=0, end=ROWS, batch_size=1000, is_kept=False)
    first = next(batches)
    known.find("another")
    assert reader._cache.budget.num_bytes == 0
    assert not reader._cache.opened
    assert pa.Table.from_batches([first, *batches]).equals(TABLE)
    assert _scan(reader, is_kept=True).equals(TABLE)


def test_a_scan_keeps_no_more_than_there_is_room_for(data_file, monkeypatch):
    """It goes on without what it keeps, once that has become too much."""
    monkeypatch.setattr("lance_core.file.read.strategy.KEPT_COLUMN_WINDOW_BYTES", 1 << 14)  # several steps
    monkeypatch.setattr("lance_core.file.write.writer.PAGE_BYTES", 8_000)
    data_file.write(TABLE, max_chunksize=1000)
    whole = []
    for most in (1 << 30, 6000, 0):
        known = FileCaches(most_bytes=most)
        monkeypatch.setattr("lance_core.file.read.reader.FILE_CACHES", known)
        assert _scan(_reader(data_file), is_kept=True, batch_size=1000).equals(TABLE)
        (found,) = known._files.values()
        whole.append(found.budget.num_bytes)
    assert whole[0] > whole[1] >= 6000
    num_pages = sum(len(pages) for pages in found.parsed.pages.values())
    assert whole[2] == (num_pages << 9) + (
        len(found.parsed.pages) << 8
    )  # where they are, and nothing of what is in them


def test_a_scan_keeps_only_where_pages_are_of_a_file_that_was_let_go(data_file, monkeypatch):
    known = FileCaches(most_files=1)
    monkeypatch.setattr("lance_core.file.read.reader.FILE_CACHES", known)
    data_file.write(TABLE)
    reader = _reader(data_file)
    known.find("another")
    assert _scan(reader, is_kept=True).equals(TABLE)
    assert list(known._files.values()) == [reader._cache]
    assert reader._cache.budget.num_bytes == len(TABLE.schema) * 3 << 8  # columns of one page


def test_bytes_are_counted_at_once_behind_a_large_file():
    known = FileCaches(most_files=4, most_bytes=100)
    for name in "ab":
        known.find(name).budget.num_bytes = 60
    known.find("c")
    assert list(known._files) == ["b", "c"]


def test_a_file_that_was_let_go_is_counted_again_when_it_is_read(data_file, monkeypatch):
    """Else readers that stay open would hold what nobody counts."""
    known = FileCaches(most_files=1)
    monkeypatch.setattr("lance_core.file.read.reader.FILE_CACHES", known)
    data_file.write(TABLE)
    reader = _reader(data_file)
    columns = {leaf.id: number for number, leaf in enumerate(reader.schema.leaves())}
    for _ in range(2):
        reader.take(reader.schema, columns, np.arange(0, ROWS, 100))
        assert list(known._files.values()) == [reader._cache]
        assert reader._cache.budget.num_bytes > 1 << 12
        known.find("another")
        assert not reader._cache.opened


def test_a_stream_has_room_for_four_files_of_the_most_that_it_may_keep():
    known = FileCaches(most_bytes=1000)
    first, second = known.find("a"), known.find("b")
    first.budget.num_bytes, second.budget.num_bytes = 350, 50
    assert known.has_room(second)
    assert known.has_room(second, 101)
    assert not known.has_room(second, 100)
    assert not known.has_room(first, 101)
