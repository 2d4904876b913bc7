"""Views of text and bytes come in through every entrance and are stored as text and bytes, as by pylance."""

import lance
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import InvalidInputError, UnsupportedError
from lance_core.file.api import LanceFileReader, LanceFileWriter

TEXTS = ["a", "bb", None, "d" * 30, "", "f"]
PAIRS = [[("k", "1")], None, [], [("a", "2" * 20), ("b", None)], [("c", "3")], [("d", "4")]]
COLUMNS = {
    "text": pa.array(TEXTS, pa.string_view()),
    "bytes": pa.array([one and one.encode() for one in TEXTS], pa.binary_view()),
    "list": pa.array([["a"], None, [], ["b", None], ["c" * 30], ["d"]], pa.list_(pa.string_view())),
    "large list": pa.array([["a"], None, [], ["b", None], ["c" * 30], ["d"]], pa.large_list(pa.string_view())),
    "struct": pa.array(
        [None if one == "" else {"x": one, "y": 1} for one in TEXTS],
        pa.struct([("x", pa.string_view()), ("y", pa.int8())]),
    ),
    "keys": pa.array(PAIRS, pa.map_(pa.string_view(), pa.string())),
    "values": pa.array(PAIRS, pa.map_(pa.string(), pa.string_view())),
    "both": pa.array(PAIRS, pa.map_(pa.string_view(), pa.string_view())),
    "list of maps": pa.array([[one] for one in PAIRS], pa.list_(pa.map_(pa.string(), pa.string_view()))),
}
NUM_ROWS = len(TEXTS)
DELETED = (1, 4)
LEFT = [place for place in range(NUM_ROWS) if place not in DELETED]


def _table(column):
    return pa.table({"id": range(NUM_ROWS), "v": column})


def _ids(module, place):
    options = {"max_rows_per_file": 4, "data_storage_version": "2.2"}
    table = module.write_dataset(pa.table({"id": range(NUM_ROWS)}), place, **options)
    table.delete(f"id IN {DELETED}")
    return table


def _write(module, place, column):
    module.write_dataset(_table(column), place, data_storage_version="2.2")


def _write_stream(module, place, column):
    module.write_dataset(_table(column).to_reader(), place, data_storage_version="2.2")


def _append(module, place, column):
    module.write_dataset(_table(column), place, data_storage_version="2.2").insert(_table(column))


def _merge_insert(module, place, column):
    table = module.write_dataset(_table(column).slice(0, 3), place, data_storage_version="2.2")
    table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(_table(column).slice(2))


def _merge(module, place, column):
    _ids(module, place).merge(_table(column), "id")


def _add_stream(module, place, column):
    _ids(module, place).add_columns(
        pa.table({"v": pa.array([column[one].as_py() for one in LEFT], column.type)}).to_reader()
    )


def _add_function(module, place, column):
    @module.batch_udf(output_schema=pa.schema([("v", column.type)]))
    def made(batch):
        return pa.record_batch([pa.array([column[one].as_py() for one in batch["id"].to_pylist()], column.type)], ["v"])

    _ids(module, place).add_columns(made, read_columns=["id"])


def _add_field(module, place, column):
    _ids(module, place).add_columns(pa.field("v", column.type))


def _merge_fragments(module, place, column):
    table = _ids(module, place)
    made = [fragment.merge(_table(column), "id") for fragment in table.get_fragments()]
    operation = module.LanceOperation.Merge([fragment for fragment, _ in made], made[0][1])
    module.LanceDataset.commit(str(place), operation, read_version=table.version)


ENTRANCES = [
    _write,
    _write_stream,
    _append,
    _merge_insert,
    _merge,
    _add_stream,
    _add_function,
    _add_field,
    _merge_fragments,
]


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("enter", ENTRANCES)
def test_both_store_the_same(tmp_path, enter, name):
    found = []
    for module in (lance_core, lance):
        place = tmp_path / module.__name__
        enter(module, place, COLUMNS[name])
        found.append(module.dataset(place).to_table().sort_by("id"))
    assert found[0].schema == found[1].schema
    assert found[0].to_pylist() == found[1].to_pylist()
    assert lance.dataset(tmp_path / "lance_core").to_table().sort_by("id").to_pylist() == found[0].to_pylist()


@pytest.mark.parametrize("name", ["text", "bytes"])
def test_views_are_keys(tmp_path, name):
    column = COLUMNS[name]
    table = lance_core.write_dataset(_table(column), tmp_path / "t")
    changed = pa.table({"id": [70, 71], "v": pa.array([column[0].as_py(), column[1].as_py()], column.type)})
    table.merge_insert("v").when_matched_update_all().execute(changed)
    table.merge(changed.rename_columns(["more", "v"]), "v")
    assert table.to_table(filter="more IS NOT NULL")["id"].to_pylist() == [70, 71]


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_are_updated_from_views(tmp_path, name):
    column = COLUMNS[name]
    plain = lance_core.write_dataset(_table(column), tmp_path / "t", data_storage_version="2.2")
    source = pa.table({"id": [0], "v": column.slice(3, 1)})
    fragment, fields = plain.get_fragments()[0].update_columns(source, "id")
    operation = lance_core.LanceOperation.Update(updated_fragments=[fragment], fields_modified=fields)
    changed = lance_core.LanceDataset.commit(plain.uri, operation, read_version=plain.version)
    assert changed.to_table()["v"].to_pylist() == [column[3].as_py(), *column.slice(1).to_pylist()]


@pytest.mark.parametrize("name", COLUMNS)
def test_files_without_a_table(tmp_path, name):
    column = COLUMNS[name]
    with LanceFileWriter(str(tmp_path / "f.lance"), version="2.2") as writer:
        writer.write_batch(_table(column))
    assert LanceFileReader(str(tmp_path / "f.lance")).read_all().to_table()["v"].to_pylist() == column.to_pylist()


@pytest.mark.parametrize("kind", [pa.list_view(pa.int32()), pa.large_list_view(pa.string_view())])
@pytest.mark.parametrize("enter", ENTRANCES)
def test_views_of_lists_are_refused(tmp_path, enter, kind):
    with pytest.raises((UnsupportedError, InvalidInputError), match="list_view"):
        enter(lance_core, tmp_path / "t", pa.array([None] * NUM_ROWS, kind))
