"""Small files that are read side by side: the rows, which are joined, and errors that name the file."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lance_core
from lance_core.errors import CorruptDataError
from lance_core.maintenance import live_rows
from lance_core.testing.counting_store import open_counting

pytestmark = pytest.mark.slow

ROWS = 1200


def table(rows=ROWS):
    rng = np.random.default_rng(2)
    words = pa.array(["a", "bb", None, "dddd"]).take(pa.array(rng.integers(0, 4, rows)))
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(rng.random(rows * 4, np.float32)), 4)
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "small": pa.array(rng.integers(0, 9, rows), mask=rng.random(rows) < 0.2),
            "same": pa.array([7] * rows, pa.int32()),
            "flag": pa.array(rng.random(rows) < 0.5),
            "word": words,
            "text": [f"row {number} of some" for number in range(rows)],
            "vector": vectors,
        }
    )


@pytest.fixture
def calls(monkeypatch):
    """How many files were put together at each time, which is done with more rows than those of these tests."""
    made, inner = [], live_rows.merge_pages
    monkeypatch.setattr(live_rows, "_ROWS_READ_TOGETHER", 0)

    def merge(sources, *arguments, **options):
        made.append(len(sources))
        return inner(sources, *arguments, **options)

    monkeypatch.setattr(live_rows, "merge_pages", merge)
    return made


def damage(path):
    """Change a byte of a file's first page."""
    with path.open("r+b") as file:
        file.seek(100)
        found = file.read(1)
        file.seek(100)
        file.write(bytes([found[0] ^ 255]))


@pytest.mark.parametrize("version", ["2.1", "2.2"])
@pytest.mark.parametrize("stable", [False, True])
@pytest.mark.parametrize("batch_size", [None, 7])
def test_rows_and_their_lineage_survive(tmp_path, calls, version, stable, batch_size):
    lance_core.write_dataset(
        table(), tmp_path, max_rows_per_file=100, data_storage_version=version, enable_stable_row_ids=stable
    )
    dataset = lance_core.dataset(tmp_path)
    dataset.delete("id % 7 = 3 or id between 300 and 350 or id >= 1190")
    dataset.update({"small": "4"}, where="id = 1000")
    columns = [*dataset.schema.names, *(["_rowid"] if stable else [])]
    before = dataset.to_table(columns=columns)
    dataset.optimize.compact_files(compaction_mode="reencode", batch_size=batch_size)
    assert calls == [13]
    after = dataset.to_table(columns=columns)
    assert after == before
    assert len(dataset.get_fragments()) == 1
    assert dataset.verify(level="full").is_ok


def test_only_neighbours_of_one_version_that_fit(tmp_path, calls):
    data = table()
    for number, version in enumerate(["2.1", "2.2", "2.2", "2.0", "2.1", "2.1"]):
        part = data.slice(number * 200, 200)
        lance_core.write_dataset(part, tmp_path, mode="append" if number else "create", data_storage_version=version)
    dataset = lance_core.dataset(tmp_path)
    dataset.checkout_version(dataset.version).optimize.compact_files()
    assert calls == [2, 2]
    assert lance_core.dataset(tmp_path).to_table() == data
    dataset.restore()
    calls.clear()
    dataset.add_columns({"twice": "id * 2"})
    lance_core.write_dataset(data.append_column("twice", pa.array(range(0, 2 * ROWS, 2))), tmp_path, mode="append")
    dataset = lance_core.dataset(tmp_path)
    files = [one.metadata.files for one in dataset.get_fragments()]
    assert [len(one) for one in files] == [2, 2, 2, 2, 2, 2, 1]
    dataset.optimize.compact_files()
    assert calls == []  # columns in several files are read one fragment after the other
    assert dataset.to_table()["id"].to_pylist() == [*range(ROWS), *range(ROWS)]


def test_groups(tmp_path, calls, monkeypatch):
    lance_core.write_dataset(table(), tmp_path, max_rows_per_file=100)
    dataset = lance_core.dataset(tmp_path)
    dataset.delete("id % 100 = 0")
    expected = dataset.to_table()
    monkeypatch.setattr(live_rows, "_JOINED_FILES", 5)
    dataset.optimize.compact_files()
    assert calls == [5, 5, 2]
    assert dataset.to_table() == expected


@pytest.mark.parametrize("most_rows", [ROWS - 1, ROWS])
def test_few_rows_are_read_and_written_as_others_are(tmp_path, calls, monkeypatch, most_rows):
    monkeypatch.setattr(live_rows, "_ROWS_READ_TOGETHER", most_rows)
    dataset = lance_core.write_dataset(table(), tmp_path, max_rows_per_file=100)
    dataset.optimize.compact_files()

    assert len(calls) == (most_rows < ROWS)
    assert len(dataset.get_fragments()) == 1
    assert dataset.to_table() == table()


def nested(rows=ROWS):
    lists = [None if i % 11 == 0 else [f"t{i % 5}"] * (i % 4) for i in range(rows)]
    structs = [None if i % 13 == 0 else {"zip": i % 7, "street": f"street {i % 9}"} for i in range(rows)]
    return pa.table({"id": range(rows), "tags": lists, "addr": structs})


@pytest.mark.parametrize("mode", ["one file", "several files"])
def test_a_small_nested_fragment_costs_few_calls(tmp_path, calls_of, mode):
    """Each read by itself takes 2,700 calls."""
    counts = []
    for number in (20, 120):
        for name in ("warm", "counted"):
            path = tmp_path / f"{number} {name}"
            dataset = lance_core.write_dataset(nested(), path, max_rows_per_file=ROWS // number)
            dataset.delete("id % 10 = 3")
            before = dataset.to_table()
            target = {"target_rows_per_fragment": 300} if mode == "several files" else {}
            calls = calls_of(lambda dataset=dataset, target=target: dataset.optimize.compact_files(**target))
            assert dataset.to_table() == before
        counts.append(calls)
    assert (counts[1] - counts[0]) / 100 <= 600, counts


@pytest.mark.parametrize("is_stable", [False, True])
def test_nested_rows_and_their_lineage_survive(tmp_path, is_stable):
    dataset = lance_core.write_dataset(nested(), tmp_path, max_rows_per_file=50, enable_stable_row_ids=is_stable)
    dataset.delete("id % 7 = 3 or id between 300 and 350")
    dataset.update({"tags": "null"}, where="id = 1000")
    columns = [*dataset.schema.names, *(["_rowid"] if is_stable else [])]
    before = dataset.to_table(columns=columns)
    dataset.optimize.compact_files(target_rows_per_fragment=400)
    assert len(dataset.get_fragments()) < 5
    assert dataset.to_table(columns=columns) == before
    assert dataset.verify(level="full").is_ok


def test_an_error_names_the_damaged_nested_file(tmp_path):
    dataset = lance_core.write_dataset(nested(), tmp_path, max_rows_per_file=100)
    path = dataset.get_fragment(7).data_files()[0].path
    damage(tmp_path / "data" / path)
    files = {one.name for one in Path(tmp_path, "data").iterdir()}
    with pytest.raises(CorruptDataError, match=path):
        dataset.optimize.compact_files()
    assert {one.name for one in Path(tmp_path, "data").iterdir()} == files


def test_an_error_names_the_damaged_file(tmp_path):
    dataset = lance_core.write_dataset(table(), tmp_path, max_rows_per_file=100)
    dataset.delete("id = 5")
    path = dataset.get_fragment(7).data_files()[0].path
    damage(tmp_path / "data" / path)
    files = {one.name for one in Path(tmp_path, "data").iterdir()}
    for mode in (None, "reencode"):
        with pytest.raises(CorruptDataError, match=path):
            dataset.optimize.compact_files(compaction_mode=mode)
    assert {one.name for one in Path(tmp_path, "data").iterdir()} == files


def test_a_damaged_page_is_not_copied(tmp_path):
    """A copy gets checksums of its own, under which damage would be hidden for ever."""
    dataset = lance_core.write_dataset(table(), tmp_path, max_rows_per_file=100)
    path = dataset.get_fragment(7).data_files()[0].path
    damage(tmp_path / "data" / path)
    with pytest.raises(CorruptDataError, match=path):
        dataset.optimize.compact_files(compaction_mode="force_binary_copy")


def test_a_file_with_fewer_rows_than_the_manifest_says(tmp_path):
    dataset = lance_core.write_dataset(table(), tmp_path, max_rows_per_file=100)
    plan = lance_core.Compaction.plan(dataset)
    (task,) = plan.tasks
    short = lance_core.write_dataset(table(50), tmp_path / "short").get_fragment(0).data_files()[0].path
    Path(tmp_path, "short", "data", short).replace(Path(tmp_path, "data", task.fragments[3].files[0].path))
    with pytest.raises(CorruptDataError, match=r"50 rows, the manifest says 100"):
        dataset.optimize.compact_files(compaction_mode="reencode")


@pytest.mark.parametrize("mode", ["reencode", "force_binary_copy"])
def test_each_file_is_read_twice_at_most(tmp_path, mode):
    """Its end and its pages, however many columns it has."""
    lance_core.write_dataset(table(), tmp_path, max_rows_per_file=100)
    dataset, counts = open_counting(str(tmp_path))
    dataset.optimize.compact_files(compaction_mode=mode)
    assert len(dataset.get_fragments()) == 1
    assert counts.num_requests <= 2 * 12 + 2, "besides the manifest"
    num_bytes = sum(path.stat().st_size for path in Path(tmp_path, "data").iterdir())
    assert counts.num_bytes <= 2 * num_bytes
