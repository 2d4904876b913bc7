"""Small neighbouring fragments are read as one; what comes out is what each fragment holds."""

import string

import numpy as np
import pyarrow as pa
import pytest

from lance_core import dataset, write_dataset
from lance_core.errors import CorruptDataError
from lance_core.file.read import strategy
from lance_core.scan import fragment_run, take_together
from lance_core.scan.open_files import OpenFiles

RNG = np.random.default_rng(11)
FRAGMENTS, ROWS = 12, 50


def rows(count, first=0):
    ids = np.arange(first, first + count)
    words = ["".join(RNG.choice(list(string.ascii_letters), 12)) for _ in range(count)]
    lists = [None if k % 7 == 0 else list(range(k % 4)) for k in range(count)]
    return pa.table(
        {
            "id": ids,
            "few": pa.array(RNG.choice(["red", "green", "blue"], count)),
            "text": pa.array([None if k % 5 == 0 else word for k, word in enumerate(words)]),
            "number": pa.array(RNG.integers(0, 1 << 40, count), mask=RNG.random(count) < 0.2),
            "list": pa.array(lists, pa.list_(pa.int32())),
            "struct": pa.array([{"a": int(k), "b": str(k)} for k in ids]),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(RNG.random(count * 4), pa.float32()), 4),
            "kind": pa.array(RNG.choice(["x", "y"], count)).dictionary_encode(),
            "nothing": pa.nulls(count, pa.int8()),
        }
    )


@pytest.fixture(scope="module", params=["2.1", "2.2"])
def table(request, tmp_path_factory):
    """A dozen small fragments, some with deleted rows, one with a column in a file of its own."""
    uri = str(tmp_path_factory.mktemp(request.param.replace(".", "")) / "t.lance")
    for number in range(FRAGMENTS):
        write_dataset(
            rows(ROWS, number * ROWS),
            uri,
            mode="append" if number else "create",
            data_storage_version=request.param,
            enable_stable_row_ids=True,
        )
    found = dataset(uri)
    found.delete("id % 9 = 4")
    found.delete("id >= 150 AND id < 200")
    return found


@pytest.fixture
def runs(monkeypatch):
    """Sizes of the runs that scans are made of."""
    sizes, make = [], fragment_run.FragmentRun.__init__

    def counted(self, files, readers, **options):
        sizes.append(len(readers))
        make(self, files, readers, **options)

    monkeypatch.setattr(fragment_run.FragmentRun, "__init__", counted)
    return sizes


def one_by_one(table, **asked):
    return pa.concat_tables([fragment.to_table(**asked) for fragment in table.get_fragments()])


@pytest.mark.slow
@pytest.mark.parametrize(
    "condition",
    [None, "id % 3 = 0", "id % 100 = 17", "few = 'red' AND number > 1000", "text IS NULL", "id < 0", "_rowid > 40"],
)
@pytest.mark.parametrize(
    "columns", [None, ["text", "_rowid"], ["struct.b", "_rowaddr", "_row_created_at_version"], ["few", "kind"]]
)
def test_rows_of_a_run_are_those_of_its_fragments(table, runs, columns, condition):
    found = table.to_table(columns=columns, filter=condition)
    assert runs or condition == "_rowid > 40"
    assert found.equals(one_by_one(table, columns=columns, filter=condition).unify_dictionaries()) or (
        found.to_pylist() == one_by_one(table, columns=columns, filter=condition).to_pylist()
    )
    found.validate(full=True)
    if condition is not None:
        assert table.count_rows(condition) == found.num_rows


def test_batches_are_no_larger_than_asked_for(table, runs):
    sizes = [batch.num_rows for batch in table.to_batches(columns=["id"], batch_size=70)]
    assert runs
    assert max(sizes) <= 70
    assert sum(sizes) == table.count_rows()


def test_row_offsets_count_over_all_fragments(table, runs):
    found = table.to_table(columns=["id", "_rowoffset"])
    assert runs
    assert found["_rowoffset"].to_pylist() == list(range(found.num_rows))


def test_a_limit_ends_a_scan_without_a_run(table, runs):
    assert table.to_table(columns=["id"], limit=3).num_rows == 3
    assert not runs


def test_deleted_rows_come_with_null_ids(table):
    found = table.scanner(columns=["id"], with_row_id=True, include_deleted_rows=True).to_table()
    gone = found.filter(pa.compute.is_null(found["_rowid"]))["id"].to_pylist()
    assert found.num_rows == table.count_rows() + len(gone)
    assert all(k % 9 == 4 for k in gone)


def test_large_fragments_stand_for_themselves(tmp_path, runs, monkeypatch):
    monkeypatch.setattr(fragment_run, "_SMALL_FILE_ROWS", 40)
    for count in (30, 30, 50, 30, 30, 30):
        table = write_dataset(rows(count).select(["id", "text"]), str(tmp_path / "t"), mode="append")
    assert table.to_table().num_rows == 200
    assert runs == [2, 3]


def test_a_run_has_bounds(tmp_path, runs, monkeypatch):
    for _ in range(7):
        table = write_dataset(rows(30).select(["id"]), str(tmp_path / "t"), mode="append")
    monkeypatch.setattr(take_together, "MOST_SMALL_FILES", 3)
    assert table.to_table().num_rows == 210
    assert runs == [3, 3]


def test_the_first_run_of_a_stream_is_small(tmp_path, runs, monkeypatch):
    write_dataset(rows(30 * 40).select(["id"]), str(tmp_path / "t"), max_rows_per_file=30)
    monkeypatch.setattr(fragment_run, "_FIRST_RUN_ROWS", 64)
    monkeypatch.setattr(fragment_run, "_RUN_ROWS", 256)
    batches = dataset(str(tmp_path / "t")).to_batches(batch_size=60)
    assert next(batches).num_rows <= 60
    assert runs[:1] == [2]
    assert sum(batch.num_rows for batch in batches) == 1140
    assert runs == [2, 8, 8, 8, 8, 6]


def test_runs_of_far_files_grow(tmp_path, runs, monkeypatch):
    write_dataset(rows(30 * 20).select(["id"]), str(tmp_path / "t"), max_rows_per_file=30)
    monkeypatch.setattr(fragment_run, "_FIRST_RUN_ROWS", 64)
    monkeypatch.setattr(fragment_run, "_RUN_ROWS", 256)
    monkeypatch.setattr(OpenFiles, "is_far", True)
    for read in (lambda scanner: scanner.to_table(), lambda scanner: pa.Table.from_batches(scanner.to_batches())):
        runs.clear()
        assert read(dataset(str(tmp_path / "t")).scanner(batch_size=15)).num_rows == 600
        assert runs == [2, 4, 8, 6]


def test_what_is_kept_is_read_in_large_runs_from_the_start(tmp_path, runs, monkeypatch):
    write_dataset(rows(30 * 20).select(["id"]), str(tmp_path / "t"), max_rows_per_file=30)
    monkeypatch.setattr(fragment_run, "_FIRST_RUN_ROWS", 64)
    monkeypatch.setattr(fragment_run, "_RUN_ROWS", 256)
    found = dataset(str(tmp_path / "t")).scanner(batch_size=15).to_table()
    assert runs == [8, 8, 4]
    runs.clear()
    streamed = list(dataset(str(tmp_path / "t")).to_batches(batch_size=15))
    assert runs == [2, 8, 8, 2]
    assert pa.Table.from_batches(streamed).equals(found)


def test_what_would_need_much_memory_is_read_file_by_file(table, monkeypatch):
    whole = table.to_table()
    monkeypatch.setattr(strategy, "MOST_JOINED_BYTES", 100)
    assert table.to_table().to_pylist() == whole.to_pylist()


def test_a_damaged_file_of_a_run_is_named(tmp_path):
    for number in range(4):
        table = write_dataset(rows(ROWS, number * ROWS).select(["id", "text"]), str(tmp_path / "t"), mode="append")
    path = tmp_path / "t" / "data" / table.get_fragments()[2].data_files()[0].path
    content = bytearray(path.read_bytes())
    content[:400] = bytes(400)
    path.write_bytes(content)
    with pytest.raises(CorruptDataError, match=path.name):
        dataset(str(tmp_path / "t")).to_table()


def test_a_delete_marks_rows_in_each_fragment_of_a_run(tmp_path, runs):
    for number in range(5):
        table = write_dataset(rows(ROWS, number * ROWS).select(["id", "few"]), str(tmp_path / "t"), mode="append")
    table.delete("id % 50 < 2 AND id <> 51 OR (id >= 100 AND id < 150)")
    assert runs
    left = [k for k in range(5 * ROWS) if not ((k % 50 < 2 and k != 51) or 100 <= k < 150)]
    assert table.to_table()["id"].to_pylist() == left
    assert [fragment.fragment_id for fragment in table.get_fragments()] == [0, 1, 3, 4]


@pytest.mark.parametrize(
    ("columns", "is_run"),
    [
        (["id"], True),
        (["id", "flag"], True),
        (["word"], True),
        (["vector"], False),
        (["id", "vector"], False),
        (None, False),
    ],
)
def test_columns_of_large_files_are_read_in_runs_if_they_are_small(tmp_path, runs, monkeypatch, columns, is_run):
    count, width = 300, 64
    monkeypatch.setattr(fragment_run, "_SMALL_FILE_BYTES", count * width * 3)
    whole = pa.table(
        {
            "id": range(count),
            "flag": [k % 3 == 0 for k in range(count)],
            "word": [f"{k:08x}" for k in range(count)],
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(RNG.random(count * width), pa.float32()), width),
        }
    )
    for _ in range(3):
        table = write_dataset(whole, str(tmp_path / "t"), mode="append")
    assert table.to_table(columns=columns).equals(pa.concat_tables([whole.select(columns or whole.column_names)] * 3))
    assert runs == ([3] if is_run else [])
    runs.clear()
    assert table.to_table(columns=columns, filter="id % 100 = 17").num_rows == 9
    assert runs == [3], "its condition is asked of a small column"


@pytest.mark.parametrize("batch_size", [None, 40])
@pytest.mark.parametrize("condition", [(100, 17), (2, 1), (1, 0)])
def test_large_columns_of_rows_that_match_are_read_fragment_by_fragment_unless_they_are_few(
    tmp_path, runs, monkeypatch, batch_size, condition
):
    (step, kept), count, width = condition, 300, 64
    monkeypatch.setattr(fragment_run, "_SMALL_FILE_BYTES", count * width * 3)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(RNG.random(3 * count * width), pa.float32()), width)
    rows = pa.table({"id": range(3 * count), "vector": vectors})
    table = write_dataset(rows, str(tmp_path / "t"), max_rows_per_file=count)
    table.delete("id % 7 = 3")
    together, asked = fragment_run.take_together, []

    def noted(files, wanted, projection, at_hand):
        asked.append((projection.names, len(wanted), sum(len(rows) for _, rows in wanted)))
        return together(files, wanted, projection, at_hand)

    monkeypatch.setattr(fragment_run, "take_together", noted)
    left = [k for k in range(3 * count) if k % step == kept and k % 7 != 3]
    found = pa.Table.from_batches(table.to_batches(filter=f"id % {step} = {kept}", batch_size=batch_size))
    assert found.equals(rows.take(left))
    assert runs[-1] == 3
    assert asked[0] == (("id",), 3, 3 * count)
    assert all(names == ("vector",) and size <= 0.1 * 3 * count for names, _, size in asked[1:]), "rows that are few"
