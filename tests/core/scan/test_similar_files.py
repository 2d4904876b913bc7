"""Files that are larger than what is read at once: the metadata of all is taken apart at one go."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lance_core
from lance_core.errors import CorruptDataError
from lance_core.file.integrity import TAIL_SIZE, VARIABLE
from lance_core.file.read import strategy
from lance_core.file.read.similar_files import SimilarFiles
from lance_core.format.file.column_pages import PAGE_PARTS, decode_column_pages
from lance_core.format.file.file_metadata import Page, encode_column
from lance_core.format.wire import field_of

FILES, ROWS = 12, 3000


def differing():
    """Return rows of which each file encodes its pages in another way: bit widths, dictionaries, nulls, constants."""
    rng = np.random.default_rng(9)
    files = []
    for file in range(FILES):
        numbers = rng.integers(0, 1 << (3 * file + 2), ROWS)
        files.append(
            pa.table(
                {
                    "number": pa.array(numbers, mask=rng.random(ROWS) < (0.2 if file % 3 == 0 else 0)),
                    "time": pa.array(rng.integers(0, 1 << 62, ROWS)),
                    "word": pa.array([f"word {n % (5 + 40 * file)}" for n in range(ROWS)]),
                    "flag": pa.array(np.full(ROWS, file % 2 == 0) if file % 4 else rng.random(ROWS) < 0.5),
                    "text": pa.array([rng.bytes(12).hex() for _ in range(ROWS)]),
                    "list": pa.array([list(range(n % (file + 1))) for n in range(ROWS)], pa.list_(pa.int16())),
                }
            )
        )
    return pa.concat_tables(files)


@pytest.fixture(scope="module")
def table():
    return differing()


@pytest.fixture(params=["all", "off"])
def checks(request, monkeypatch):
    """When checksums are looked at."""
    monkeypatch.setenv(VARIABLE, request.param)


@pytest.mark.usefixtures("checks")
@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_of_files_with_one_page_of_each_column_one_is_opened(tmp_path, table, opened, version):
    dataset = lance_core.write_dataset(table, tmp_path / "t", max_rows_per_file=ROWS, data_storage_version=version)
    assert min(path.stat().st_size for path in (tmp_path / "t" / "data").iterdir()) > TAIL_SIZE
    assert dataset.to_table(columns=["number", "word"]).equals(table.select(["number", "word"]))
    assert len(opened) <= 2  # a run of few rows comes first
    for _ in range(3):
        assert dataset.to_table().equals(table)
        assert dataset.to_table(filter="number < 100").equals(table.filter(pc.less(table["number"], 100)))
        assert dataset.take(rows := list(range(7, FILES * ROWS, 500))).equals(table.take(rows))
    assert len(opened) <= FILES + 2  # what is read page by page is kept


def test_rows_of_files_of_several_sizes_come_in_order(tmp_path, table):
    for start, end in [(0, 15000), (15000, 17500), (17500, 36000)]:
        lance_core.write_dataset(table.slice(start, end - start), tmp_path / "t", mode="append", max_rows_per_file=ROWS)
    dataset = lance_core.dataset(tmp_path / "t")
    for _ in range(3):
        assert dataset.to_table().equals(table)
        assert pa.Table.from_batches(dataset.to_batches(columns=["word", "list"])).equals(
            table.select(["word", "list"])
        )


def test_a_damaged_file_is_named(tmp_path, table):
    lance_core.write_dataset(table, tmp_path / "t", max_rows_per_file=ROWS)
    path = tmp_path / "t" / "data" / lance_core.dataset(tmp_path / "t").get_fragments()[7].data_files()[0].path
    data = path.read_bytes()
    metadata = int.from_bytes(data[-40:-32], "little")
    for at in range(metadata, len(data), max(1, (len(data) - metadata) // 40)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :])
        try:
            assert lance_core.dataset(tmp_path / "t").to_table().equals(table)
        except CorruptDataError as error:
            assert path.name in str(error)  # noqa: PT017 either will do
    path.write_bytes(data[:100] + bytes([data[100] ^ 4]) + data[101:])
    with pytest.raises(CorruptDataError, match=path.name):
        lance_core.dataset(tmp_path / "t").to_table()


_PAGES = st.builds(
    lambda buffers, rows, layout: Page(buffers=tuple(buffers), num_rows=rows, first_row=0, layout=layout),
    st.lists(st.tuples(st.integers(0, 1 << 50), st.integers(0, 1 << 40)), max_size=5),
    st.integers(0, 1 << 45),
    st.binary(min_size=1, max_size=200),
)


@given(st.lists(st.lists(_PAGES, max_size=2), min_size=1, max_size=6), st.binary(max_size=9))
def test_pages_are_those_that_were_encoded(columns, before):
    messages = [encode_column(pages) for pages in columns]
    ends = np.cumsum([len(before), *map(len, messages)])
    data = before + b"".join(messages)
    found = decode_column_pages(np.frombuffer(data, np.uint8), ends[:-1].copy(), ends[1:].copy())
    assert found.is_plain.tolist() == [len(pages) == 1 for pages in columns]
    for at, pages in enumerate(columns):
        if len(pages) == 1:
            count = found.num_buffers[at]
            extents = zip(found.positions[at, :count].tolist(), found.sizes[at, :count].tolist(), strict=True)
            assert tuple(extents) == pages[0].buffers
            assert int(found.num_rows[at]) == pages[0].num_rows
            assert data[found.layout_starts[at] : found.layout_ends[at]] == pages[0].layout


@given(st.binary(min_size=1, max_size=60), st.integers(0, 60), st.integers(0, 60))
def test_garbage_is_no_page_or_refused(data, start, end):
    try:
        found = decode_column_pages(np.frombuffer(data, np.uint8), np.array([start]), np.array([end]))
    except CorruptDataError:
        return
    assert set(PAGE_PARTS) == set(type(found).__annotations__)
    if found.is_plain[0]:
        assert start <= found.layout_starts[0] <= found.layout_ends[0] <= end <= len(data)


def test_a_column_with_buffers_of_its_own_is_left_out():
    page = Page(buffers=((0, 8),), num_rows=3, first_row=0, layout=b"layout")
    data = encode_column([page]) + field_of(b"\x05", 3)
    assert not decode_column_pages(np.frombuffer(data, np.uint8), np.array([0]), np.array([len(data)])).is_plain[0]


@pytest.fixture
def reads_of_leaves(monkeypatch):
    """How many reads each leaf has, of all files."""
    counts, reads = [], SimilarFiles.reads
    monkeypatch.setattr(
        SimilarFiles,
        "reads",
        lambda self, **asked: [counts.append(len(leaf)) or leaf for leaf in reads(self, **asked)],
    )
    return counts


@pytest.mark.parametrize(("most_items", "num_reads"), [(strategy.MAX_GROUP_ITEMS, 1), (2_000, 3), (1, FILES)])
def test_pages_whose_dictionaries_have_other_numbers_of_items_are_one_read(
    tmp_path, monkeypatch, reads_of_leaves, most_items, num_reads
):
    monkeypatch.setattr(strategy, "MAX_GROUP_ITEMS", most_items)
    rng = np.random.default_rng(8)
    words = [rng.integers(0, 300 + 7 * file, ROWS) for file in range(FILES)]
    texts = [f"word {number:07}" for numbers in words for number in numbers]
    table = pa.table({"word": texts, "big": rng.integers(0, 1 << 62, FILES * ROWS)})
    dataset = lance_core.write_dataset(table, tmp_path / "t", max_rows_per_file=ROWS)
    for _ in range(2):
        reads_of_leaves.clear()
        assert dataset.to_table(columns=["word"]).equals(table.select(["word"]))
        assert reads_of_leaves == [num_reads]


@pytest.mark.parametrize("values", [["", "a", "bc"], [5], [None, 5, 6], [True, False], [1.5, None]])
def test_constants_of_files_are_one_read(tmp_path, reads_of_leaves, values):
    rng = np.random.default_rng(8)
    constants = [values[file // 2 % len(values)] for file in range(FILES) for _ in range(ROWS)]
    columns = {"constant": pa.array(constants), "wide": rng.integers(0, 1 << 62, FILES * ROWS)}
    table = pa.table(columns)
    dataset = lance_core.write_dataset(table, tmp_path / "t", max_rows_per_file=ROWS)
    for _ in range(3):
        assert dataset.to_table().equals(table)
        assert dataset.take(rows := list(range(7, FILES * ROWS, 500))).equals(table.take(rows))
    is_inline = not isinstance(values[0], str) and None not in values
    assert not is_inline or reads_of_leaves[0] == 1
