"""Numbers about the data and the indices of a version."""

import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import NotFoundError
from lance_core.store.local import LocalStore

ROWS = pa.table({"id": range(200), "text": [f"word{number % 7} other" for number in range(200)]})
KINDS = {"id": ("BTREE", "BITMAP", "ZONEMAP", "BLOOMFILTER"), "text": ("INVERTED", "NGRAM", "MINHASHLSH")}
NAMES = [kind for kinds in KINDS.values() for kind in kinds]


@pytest.fixture
def table(tmp_path):
    table = lance_core.write_dataset(ROWS, tmp_path / "t", max_rows_per_file=50)
    for column, kinds in KINDS.items():
        for kind in kinds:
            table.create_scalar_index(column, kind, name=kind)
    return table


@pytest.fixture
def opened(monkeypatch):
    """The files that were opened."""
    paths = []

    def counted(method):
        def open_file(store, path, *arguments, **options):
            paths.append(path)
            return method(store, path, *arguments, **options)

        return open_file

    for name in ("reader", "sized_reader"):
        monkeypatch.setattr(LocalStore, name, counted(getattr(LocalStore, name)))
    return paths


@pytest.mark.parametrize("kind", NAMES)
def test_segments_stay_open_for_their_statistics(table, opened, kind):
    statistics = table.stats.index_stats(kind)
    assert statistics == lance_core.dataset(table.uri).index_statistics(kind)
    assert opened
    opened.clear()
    assert table.stats.index_stats(kind) == statistics
    assert not opened


def test_statistics_are_of_the_newest_index(table):
    table.create_scalar_index("id", "ZONEMAP", name="ZONEMAP", rows_per_zone=8)
    before = table.stats.index_stats("ZONEMAP")["segments"]
    table.create_scalar_index("id", "ZONEMAP", name="ZONEMAP", rows_per_zone=16)
    after = table.stats.index_stats("ZONEMAP")["segments"]
    assert [segment["rows_per_zone"] for segment in before + after] == [8, 16]


def test_statistics_count_rows_that_are_there(table):
    table.delete("id < 60")
    lance_core.write_dataset(ROWS.slice(0, 10), table, mode="append")
    table = lance_core.dataset(table.uri)
    numbers = table.stats.index_stats("BTREE")
    assert (numbers["num_indexed_rows"], numbers["num_unindexed_rows"]) == (140, 10)
    assert {index.name: index.num_rows_indexed for index in table.describe_indices()} == dict.fromkeys(NAMES, 140)


def test_unknown_names_are_refused(table):
    with pytest.raises(NotFoundError, match="there is no index 'x'"):
        table.stats.index_stats("x")


def test_files_stay_open_for_the_bytes_of_columns(table, opened):
    table = lance_core.dataset(table.uri)
    sizes = table.stats.data_stats()
    assert all(field.bytes_on_disk > 0 for field in sizes.fields)
    assert opened
    opened.clear()
    assert table.stats.data_stats() == sizes
    assert not opened
    lance_core.write_dataset(ROWS, table, mode="append", max_rows_per_file=50)
    both = lance_core.dataset(table.uri).stats.data_stats()
    assert [field.bytes_on_disk for field in both.fields] == [2 * field.bytes_on_disk for field in sizes.fields]
