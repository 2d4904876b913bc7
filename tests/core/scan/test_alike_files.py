"""Small files whose metadata differs in numbers only: the first is opened, and the others are read like it."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import lance_core
from lance_core.errors import CorruptDataError
from lance_core.file.integrity import VARIABLE
from lance_core.format.file.file_metadata import Page, encode_column
from lance_core.format.file.metadata_spans import page_spans
from lance_core.format.file.page_layout import ConstantLayout, Layer, encode_layout
from lance_core.format.wire import fields_between, varint

NUM_ROWS = 120


def mixed(num_rows=NUM_ROWS):
    """Return rows whose files are of several sizes, in turns: strings of many lengths, nulls here and there."""
    rng = np.random.default_rng(5)
    words = ["w" * int(size) for size in rng.integers(0, 200, num_rows)]
    return pa.table(
        {
            "n": np.arange(num_rows),
            "word": words,
            "gap": pa.array(rng.random(num_rows), mask=rng.random(num_rows) < 0.3),
            "flag": rng.random(num_rows) < 0.5,
            "list": pa.array([list(range(n % 3)) for n in range(num_rows)], pa.list_(pa.int16())),
            "struct": pa.array([{"a": n, "b": str(n)} for n in range(num_rows)]),
        }
    )


def damage(folder, number, at):
    """Flip a bit of one of the files; return what its content was and where."""
    name = lance_core.dataset(folder).get_fragments()[number].data_files()[0].path
    path = folder / "data" / name
    data = path.read_bytes()
    path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    return path, data


@pytest.mark.parametrize("checks", ["all", "off"])
def test_of_files_that_are_alike_only_the_first_is_opened(tmp_path, opened, monkeypatch, checks):
    monkeypatch.setenv(VARIABLE, checks)
    table = pa.table({"n": np.arange(60) + 1000, "s": [f"text {n:03}" for n in range(60)], "x": np.arange(60) / 7})
    dataset = lance_core.write_dataset(table, tmp_path / "t", max_rows_per_file=1)
    assert dataset.to_table().equals(table)
    assert len(opened) == 1
    assert dataset.to_table(filter="x > 3 AND s < 'text 050'").equals(table.slice(22, 28))
    assert dataset.take(list(range(0, 60, 2))).equals(table.take(list(range(0, 60, 2))))
    assert len(opened) <= 3


def test_files_whose_pages_are_decoded_as_one_are_not_opened_to_be_read_again(tmp_path, opened):
    table = pa.table(
        {"n": np.arange(4000) % 100, "s": [f"text {n % 7}" for n in range(4000)], "x": np.arange(4000) / 7}
    )
    dataset = lance_core.write_dataset(table, tmp_path / "t", max_rows_per_file=100)
    for _ in range(3):
        assert dataset.to_table(filter="n = 3").equals(table.filter(pc.equal(table["n"], 3)))
        assert dataset.take(list(range(5, 4000, 50))).equals(table.take(list(range(5, 4000, 50))))
    assert len(opened) == 1


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("per_file", [1, 3])
def test_rows_of_different_files_come_in_order(tmp_path, opened, version, per_file):
    table = mixed()
    dataset = lance_core.write_dataset(
        table, tmp_path / "t", max_rows_per_file=per_file, data_storage_version=version, enable_stable_row_ids=True
    )
    assert dataset.to_table().equals(table)
    if per_file == 1:
        assert len(opened) < NUM_ROWS / 2
    for name in table.column_names:
        assert dataset.to_table(columns=[name]).equals(table.select([name]))
    dataset.delete("n % 5 = 2")
    left = table.take([n for n in range(NUM_ROWS) if n % 5 != 2])
    assert dataset.to_table().equals(left)
    assert dataset.to_table(filter="gap IS NULL").equals(left.filter(pc.is_null(left["gap"])))
    dataset.add_columns({"later": "n * 2"})
    lance_core.write_dataset(
        pa.table({**{name: mixed(3)[name] for name in table.column_names}, "later": np.arange(3)}),
        dataset.uri,
        mode="append",
        max_rows_per_file=1,
    )
    assert lance_core.dataset(dataset.uri).to_table(columns=["n", "later"])["later"].to_pylist() == [
        *(2 * n for n in left["n"].to_pylist()),
        0,
        1,
        2,
    ]


def test_each_bit_of_a_file_counts(tmp_path):
    table = pa.table({"n": np.arange(6) + 1000, "s": [f"text {n}" for n in range(6)], "x": np.arange(6) / 7})
    lance_core.write_dataset(table, tmp_path / "t", max_rows_per_file=1)
    size = len(damage(tmp_path / "t", 5, 0)[1])
    damage(tmp_path / "t", 5, 0)
    for at in range(0, size, 3):
        path, data = damage(tmp_path / "t", 3, at)
        try:
            assert lance_core.dataset(tmp_path / "t").to_table().equals(table)
        except CorruptDataError as error:
            assert path.name in str(error)  # noqa: PT017 either will do
        path.write_bytes(data)
    assert lance_core.dataset(tmp_path / "t").to_table().equals(table)


def test_a_damaged_value_is_noticed(tmp_path):
    table = pa.table({"n": np.arange(6) + 1000, "s": [f"text {n}" for n in range(6)]})
    lance_core.write_dataset(table, tmp_path / "t", max_rows_per_file=1)
    path, data = damage(tmp_path / "t", 3, 0)
    for value in (b"text 3", (1003).to_bytes(8, "little")):
        at = data.index(value)
        path.write_bytes(data[: at + 1] + b"?" + data[at + 2 :])
        with pytest.raises(CorruptDataError, match=path.name):
            lance_core.dataset(tmp_path / "t").to_table()


def test_a_file_in_the_place_of_another_is_noticed(tmp_path):
    """It has as many bytes of metadata, and another number of rows."""
    lance_core.write_dataset(pa.table({"n": [7] * 12}), tmp_path / "t", max_rows_per_file=2)
    lance_core.write_dataset(pa.table({"n": [7] * 3}), tmp_path / "other")
    path = tmp_path / "t" / "data" / lance_core.dataset(tmp_path / "t").get_fragments()[4].data_files()[0].path
    path.write_bytes(next((tmp_path / "other" / "data").iterdir()).read_bytes())
    with pytest.raises(CorruptDataError, match="has 3 rows, the manifest says 2"):
        lance_core.dataset(tmp_path / "t").to_table()


def test_files_that_all_differ_are_opened_once_each(tmp_path, opened):
    table = pa.table({"s": ["x" * (100 * n) for n in range(20)]})
    lance_core.write_dataset(table, tmp_path / "t", max_rows_per_file=1)
    assert lance_core.dataset(tmp_path / "t").to_table().equals(table)
    assert len(opened) <= 20


def test_places_are_those_of_numbers_and_constants():
    value = ConstantLayout(layers=(Layer.ALL_VALID_ITEM,), inline_value=b"12345678")
    pages = [
        Page(buffers=((0, 5), (640, 300)), num_rows=4, first_row=0, layout=b"any"),
        Page(buffers=(), num_rows=4, first_row=4, layout=encode_layout(value)),
    ]
    data = encode_column(pages)
    plain, constant = page_spans(data)
    assert [data[start:end] for start, end in plain.positions] == [varint(0), varint(640)]
    assert [data[start:end] for start, end in plain.sizes] == [varint(5), varint(300)]
    assert plain.value is None
    assert not constant.positions
    assert data[slice(*constant.value)] == b"12345678"


def test_a_message_that_ends_early_is_refused():
    for data in (b"\x0a\x05abc", b"\x08", b"\x08\x80", b"\x09abc", b"\x0f"):
        with pytest.raises(CorruptDataError):
            list(fields_between(data, 0, len(data)))
    assert list(fields_between(b"\x08\x05\x12\x02ab\x19abcdefgh\x25abcd", 0, 20)) == [
        (1, 1, 2),
        (2, 4, 6),
        (3, 7, 15),
        (4, 16, 20),
    ]
