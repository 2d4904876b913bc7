"""Whole tables, both ways: what lance_core makes pylance opens, changes and hands back, and the reverse."""

import datetime as dt
import random

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance import optimize as lance_optimize

import lance_core
from lance_core.errors import UnsupportedError


def rows(start, count):
    """All supported types, with nulls."""
    number = np.arange(start, start + count)
    some = number % 5 == 2
    return pa.table(
        {
            "id": number,
            "small": pa.array(number % 100, pa.int8(), mask=some),
            "unsigned": pa.array(number * 3, pa.uint32()),
            "real": pa.array(number / 7, pa.float64(), mask=some),
            "single": pa.array(number / 3, pa.float32()),
            "flag": pa.array([None if i % 4 == 1 else i % 3 == 0 for i in number.tolist()], pa.bool_()),
            "text": pa.array([None if i % 6 == 4 else f"text {i % 50}" for i in number.tolist()]),
            "bytes": pa.array([b"\x00" * (i % 9) for i in number.tolist()], pa.large_binary()),
            "day": pa.array([dt.date(2013, 1, 1) + dt.timedelta(i % 365) for i in number.tolist()]),
            "time": pa.array(number * 1_000_003, pa.timestamp("us", "UTC")),
            "list": pa.array([None if i % 8 == 3 else list(range(i % 5)) for i in number.tolist()]),
            "vector": pa.FixedSizeListArray.from_arrays(np.repeat(number, 4).astype(np.float32), 4),
            "struct": pa.array([None if i % 7 == 6 else {"a": i, "b": {"c": str(i)}} for i in number.tolist()]),
        }
    )


TOOLS = {"lance_core": lance_core, "pylance": lance}


def check_equal(place):
    """Both tools see the same table, versions and tags."""
    ours, theirs = lance_core.dataset(place), lance.dataset(place)
    assert ours.version == theirs.version
    assert ours.schema.equals(theirs.schema, check_metadata=True)
    expected = theirs.to_table(with_row_id=True, with_row_address=True)
    assert ours.to_table(with_row_id=True, with_row_address=True).equals(expected)
    assert ours.count_rows() == theirs.count_rows()
    assert ours.stats.dataset_stats() == theirs.stats.dataset_stats()
    assert [one["version"] for one in ours.versions()] == [one["version"] for one in theirs.versions()]
    assert [one["metadata"] for one in ours.versions()] == [one["metadata"] for one in theirs.versions()]
    assert ours.tags.list() == theirs.tags.list()
    shape = [
        [(one.fragment_id, one.physical_rows, one.num_deletions) for one in d.get_fragments()] for d in (ours, theirs)
    ]
    assert shape[0] == shape[1]
    theirs.validate()


@pytest.mark.parametrize("writer", list(TOOLS))
def test_all_types(tmp_path, writer):
    place = str(tmp_path / "t")
    made = rows(0, 3000)
    TOOLS[writer].write_dataset(made, place, max_rows_per_file=1000)
    check_equal(place)
    assert lance_core.dataset(place).to_table().equals(made)


@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("first", list(TOOLS))
def test_the_tools_take_turns(tmp_path, first, stable):
    """Every step by one tool builds on what the other left."""
    place = str(tmp_path / "t")
    order = [lance_core, lance] if first == "lance_core" else [lance, lance_core]
    expected = rows(0, 400)
    order[0].write_dataset(expected, place, max_rows_per_file=150, enable_stable_row_ids=stable)
    check_equal(place)
    for step in range(4):
        tool = order[(step + 1) % 2]
        tool.write_dataset(rows(1000 * (step + 1), 100), place, mode="append")
        check_equal(place)
        dataset = order[step % 2].dataset(place)
        dataset.delete(f"id % 10 = {step} or id between {1000 * step} and {1000 * step + 20}")
        check_equal(place)
        order[step % 2].dataset(place).tags.create(f"step-{step}", step + 1)
        check_equal(place)
    before = lance.dataset(place).to_table(columns=["id"], with_row_id=stable).sort_by("id")
    for tool in order:
        tool.dataset(place).optimize.compact_files(target_rows_per_fragment=400)
        check_equal(place)
        tool.dataset(place).delete("id > 4050")
        tool.write_dataset(rows(9000, 10), place, mode="append")
        check_equal(place)
    after = lance.dataset(place).to_table(columns=["id"], with_row_id=stable, filter="id < 4051").sort_by("id")
    assert after.equals(before.filter(pa.compute.field("id") < 4051))
    for tool in order:
        tool.dataset(place, 2).restore()
        check_equal(place)
    for version in (1, 3, "step-2"):
        assert lance_core.dataset(place, version).to_table().equals(lance.dataset(place, version).to_table())


@pytest.mark.parametrize("stable", [False, True])
def test_replace_where_reads_back(tmp_path, stable):
    place = str(tmp_path / "t")
    dataset = lance_core.write_dataset(rows(0, 500), place, max_rows_per_file=100, enable_stable_row_ids=stable)
    dataset.replace_where("id between 150 and 320", rows(1000, 7), transaction_properties={"k": "v"})
    check_equal(place)
    transaction = lance.dataset(place).read_transaction(2)
    assert type(transaction.operation).__name__ == "Update"
    assert transaction.transaction_properties == {"k": "v"}
    assert transaction.operation.removed_fragment_ids == [2]
    theirs = lance.dataset(place)
    theirs.delete("id = 1000")
    theirs.update({"real": "0.5"}, where="id < 20")
    check_equal(place)


def test_many_deleted_rows(tmp_path):
    place = str(tmp_path / "t")
    table = pa.table({"id": np.arange(40_000)})
    lance_core.write_dataset(table, place, max_rows_per_file=20_000)
    for tool, condition in ((lance_core, "id % 4 = 0"), (lance, "id % 5 = 0"), (lance_core, "id % 7 = 0")):
        tool.dataset(place).delete(condition)
        check_equal(place)
    left = [i for i in range(40_000) if i % 4 and i % 5 and i % 7]
    assert lance_core.dataset(place).to_table()["id"].to_pylist() == left


def test_scans_agree(tmp_path):
    place = str(tmp_path / "t")
    lance.write_dataset(rows(0, 5000), place, max_rows_per_file=1200)
    lance.dataset(place).delete("id % 9 = 0")
    ours, theirs = lance_core.dataset(place), lance.dataset(place)
    questions = [
        {"columns": ["text", "id"]},
        {"columns": ["struct.b.c", "struct.a"]},
        {"columns": ["vector"], "limit": 7, "offset": 1500},
        {"filter": "text = 'text 7'"},
        {"filter": "struct.a > 4000 and flag", "columns": ["list", "struct.b.c"]},
        {"filter": "day >= date '2013-06-01' and real is not null", "columns": ["bytes"], "limit": 10, "offset": 3},
        {"filter": "time < timestamp '1970-01-01 00:10:00'", "columns": ["id"], "with_row_id": True},
        {"filter": "id in (1, 2, 3, 4999)", "with_row_address": True},
        {"columns": ["_rowid"]},
    ]
    for question in questions:
        assert ours.to_table(**question).equals(theirs.to_table(**question)), question
        if "filter" in question:
            assert ours.count_rows(question["filter"]) == theirs.count_rows(question["filter"])
    places = random.Random(3).choices(range(ours.count_rows()), k=200)
    assert ours.take(places).equals(theirs.take(places))
    assert ours.take(places, columns=["text"]).equals(theirs.take(places, columns=["text"]))


def test_compaction_plans_agree(tmp_path):
    place = str(tmp_path / "t")
    randomness = random.Random(5)
    lance.write_dataset(pa.table({"id": range(50)}), place)
    for _ in range(25):
        count = randomness.choice([20, 60, 150, 310])
        lance.write_dataset(pa.table({"id": range(count)}), place, mode="append")
    lance.dataset(place).delete("id % 19 = 0")
    lance.dataset(place).delete("id > 250")
    for options in (
        {"target_rows_per_fragment": 100},
        {"target_rows_per_fragment": 250},
        {"target_rows_per_fragment": 300, "materialize_deletions": False},
        {"target_rows_per_fragment": 300, "materialize_deletions_threshold": 0.06},
        {"target_rows_per_fragment": 10_000},
        {"target_rows_per_fragment": 10},
    ):
        ours = lance_core.Compaction.plan(lance_core.dataset(place), options)
        theirs = lance_optimize.Compaction.plan(lance.dataset(place), options)
        plans = [[[one.id for one in task.fragments] for task in plan.tasks] for plan in (ours, theirs)]
        assert plans[0] == plans[1], options


def test_evolved_tables_are_read(tmp_path):
    """Columns added, dropped, renamed and rewritten by pylance."""
    place = str(tmp_path / "t")
    table = pa.table({"id": range(100), "text": [f"t{i}" for i in range(100)], "s": [{"x": i} for i in range(100)]})
    lance.write_dataset(table, place, max_rows_per_file=40)
    theirs = lance.dataset(place)
    theirs.add_columns({"double": "id * 2"})
    check_equal(place)
    theirs.add_columns(pa.field("empty", pa.int32()))
    check_equal(place)
    theirs.alter_columns({"path": "text", "name": "words"})
    theirs.drop_columns(["id"])
    check_equal(place)
    theirs.alter_columns({"path": "double", "data_type": pa.int32()})
    check_equal(place)
    lance_core.write_dataset(pa.table({"double": pa.array([7], pa.int32())}), place, mode="append")
    check_equal(place)
    lance_core.dataset(place).delete("double = 8 or empty is not null")
    check_equal(place)
    lance_core.dataset(place).optimize.compact_files()
    check_equal(place)


@pytest.mark.filterwarnings("ignore::lance_core.errors.IndexCoverageWarning")
def test_indexed_tables_stay_right(tmp_path):
    place = str(tmp_path / "t")
    table = pa.table({"id": np.arange(2000) % 50, "v": np.arange(2000)})
    lance.write_dataset(table, place, max_rows_per_file=500)
    lance.dataset(place).create_scalar_index("id", "BTREE")
    lance_core.dataset(place).delete("v % 2 = 0")
    lance_core.write_dataset(table.slice(0, 100), place, mode="append")
    lance_core.dataset(place).replace_where("id = 8", pa.table({"id": [8], "v": [-1]}))
    lance_core.dataset(place).optimize.compact_files()
    ours, theirs = lance_core.dataset(place), lance.dataset(place)
    for condition in ("id = 7", "id = 8", "id > 45", "id = 999"):
        found = [sorted(one.to_table(filter=condition)["v"].to_pylist()) for one in (ours, theirs)]
        assert found[0] == found[1], condition
    theirs.optimize.optimize_indices()
    assert lance_core.dataset(place).count_rows("id = 7") == theirs.count_rows("id = 7")


def test_file_versions_that_cannot_be_written_are_refused_by_name(tmp_path):
    version = "2.3"
    place = tmp_path / "t"
    table = pa.table({"id": range(100), "text": [f"t{i}" for i in range(100)]})
    lance.write_dataset(table, str(place), data_storage_version=version, max_rows_per_file=40)
    before = {one: one.read_bytes() for one in place.rglob("*") if one.is_file()}
    dataset = lance_core.dataset(place)
    assert dataset.count_rows() == 100
    assert dataset.to_table().equals(table)
    for change in (
        lambda: lance_core.write_dataset(table, place, mode="append"),
        lambda: dataset.replace_where("true", table),
        dataset.optimize.compact_files,
    ):
        with pytest.raises(UnsupportedError, match=r"2\.3") as caught:
            change()
        assert str(place) in str(caught.value)
    assert {one: one.read_bytes() for one in place.rglob("*") if one.is_file()} == before


@pytest.mark.parametrize("version", ["0.1", "2.0", "2.1", "2.2"])
def test_tables_keep_their_file_version(tmp_path, version):
    place = str(tmp_path / "t")
    table = pa.table({"id": range(100), "text": [f"t{i}" for i in range(100)]})
    lance.write_dataset(table, place, data_storage_version=version, max_rows_per_file=40)
    dataset = lance_core.write_dataset(table, place, mode="append")
    dataset.optimize.compact_files()
    theirs = lance.dataset(place)
    assert theirs.data_storage_version == dataset.data_storage_version == version
    versions = {
        (one.file_major_version, one.file_minor_version) for f in theirs.get_fragments() for one in f.data_files()
    }
    assert versions == {(0, 2) if version == "0.1" else tuple(map(int, version.split(".")))}
    lance.write_dataset(table, place, mode="append")
    check_equal(place)
    assert lance_core.dataset(place).count_rows() == 300
    other = "2.2" if version == "2.1" else "2.1"
    dataset = lance_core.write_dataset(table, place, mode="overwrite", data_storage_version=other)
    assert dataset.data_storage_version == lance.dataset(place).data_storage_version == other
    check_equal(place)


def test_settings_travel(tmp_path):
    place = str(tmp_path / "t")
    dataset = lance_core.write_dataset(pa.table({"id": range(10)}), place)
    assert dataset.update_config({"lance.compaction.target_rows_per_fragment": "5", "x": "y"})["x"] == "y"
    assert dataset.update_metadata({"owner": "me"}) == {"owner": "me"}
    assert dataset.update_schema_metadata({"note": "here"}) == {"note": "here"}
    assert dataset.update_config({"x": None}) == {"lance.compaction.target_rows_per_fragment": "5"}
    theirs = lance.dataset(place)
    assert theirs.config() == dataset.config()
    assert theirs.metadata == dataset.metadata
    check_equal(place)
    theirs.update_config({"theirs": "1"})
    assert lance_core.dataset(place).config()["theirs"] == "1"


def test_lists_of_fixed_lists_are_filtered_right(tmp_path):
    """pyarrow 26.0.1 filters slices of them wrong."""
    items = pa.array(np.arange(1800, dtype=np.float32))
    matrix = pa.FixedSizeListArray.from_arrays(pa.FixedSizeListArray.from_arrays(items, 2), 3)
    table = pa.table({"id": range(300), "m": matrix, "s": pa.StructArray.from_arrays([matrix], names=["m"])})
    dataset = lance_core.write_dataset(table, tmp_path / "t")
    dataset.delete("id % 5 = 0")
    left = [row for row in table.to_pylist() if row["id"] % 5]
    assert dataset.to_table(batch_size=50).to_pylist() == left
    assert dataset.to_table(batch_size=50, filter="id > 120").to_pylist() == [row for row in left if row["id"] > 120]
    assert dataset.to_table(offset=80, limit=90).to_pylist() == left[80:170]
    assert dataset.take([9, 7, 8], columns=["m"])["m"].to_pylist() == [left[index]["m"] for index in (9, 7, 8)]
